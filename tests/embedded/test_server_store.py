"""What is acknowledged is on disk; what is damaged, newer or foreign is refused and left alone."""

import asyncio
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from inprocess import MAPS, api, config

from fairway.embedded.database import STEPS, Database, Full, Unusable
from fairway.embedded.store import Compacted, Key, Store

KEY = Key("configmaps", "default", "a")


def thing(name: str = "a", **more: object) -> dict:
    return {"metadata": {"name": name}, **more}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def filled(path: Path, count: int = 3) -> None:
    store = Store(Database(str(path)))
    for index in range(count):
        store.put(Key("configmaps", "default", f"c{index}"), thing(f"c{index}"))
    await store.committed()
    await store.close()


async def test_what_was_committed_is_there_after_a_restart_with_its_revision_and_history(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(Database(str(path)))
    store.put(KEY, thing(data=1))
    store.put(KEY, thing(data=2))
    store.put(Key("pods", "default", "p"), thing("p"))
    store.remove(Key("pods", "default", "p"), thing("p"))
    await store.committed()
    await store.close()
    again = Store(Database(str(path)))
    assert again.revision == 4
    assert again.get(KEY).value == b'{"metadata":{"name":"a","resourceVersion":"2"},"data":2}'
    assert again.objects("pods") == {}
    assert [(event.revision, event.gone) for event in again.since(1)] == [(2, False), (3, False), (4, True)]
    await again.close()


async def test_readers_see_only_what_is_committed_and_writers_what_is_staged(tmp_path: Path) -> None:
    store = Store(Database(str(tmp_path / "db")))
    store.put(KEY, thing())
    assert store.get(KEY) is None
    assert store.latest(KEY).revision == 1
    await store.committed()
    assert store.get(KEY).revision == 1
    await store.close()


async def test_the_past_is_listed_as_it_was_until_it_is_compacted() -> None:
    store = Store(keep=3)
    for index in range(3):
        store.put(KEY, thing(data=index))
    store.remove(KEY, thing())
    assert set(store.objects("configmaps", 3)) == {("default", "a")}
    assert store.objects("configmaps") == {}
    with pytest.raises(Compacted):
        store.objects("configmaps", 0)


async def test_compaction_drops_rows_and_is_remembered_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = Store(Database(str(path)), keep=5)
    for index in range(40):
        store.put(KEY, thing(data=index))
        await store.committed()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM history").fetchone()[0] <= 8
    again = Store(Database(str(path)))
    assert again.get(KEY).revision == 40
    with pytest.raises(Compacted):
        again.since(20, "configmaps")
    await again.close()


async def test_a_quiet_resource_is_not_compacted_by_a_busy_one() -> None:
    store = Store(keep=5)
    store.put(Key("leases", "", "quiet"), thing("quiet"))
    for index in range(20):
        store.put(KEY, thing(data=index))
    assert store.since(1, "leases") == []
    with pytest.raises(Compacted):
        store.since(1, "configmaps")


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    store = Store(Database(str(tmp_path / "db")))
    store.put(KEY, thing())
    await store.committed()
    assert {oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()} == {"0o600"}
    await store.close()


@pytest.mark.parametrize(("spoil", "word"), [
    (lambda path: path.write_bytes(b"not a database at all" * 100), "damaged"),
    (lambda path: path.write_bytes(path.read_bytes()[:6000]), "damaged"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b'"name":"c1"', b'"name":"cX"', 1)), "checksum"),
    (lambda path: sqlite3.connect(path).executescript(f"PRAGMA user_version = {len(STEPS) + 1}"), "newer"),
    (lambda path: sqlite3.connect(path).executescript("PRAGMA application_id = 7"), "not a database of Fairway"),
])
async def test_what_cannot_be_used_is_refused_in_one_line_and_stays_as_it_is(tmp_path: Path, spoil, word: str) -> None:
    path = tmp_path / "db"
    await filled(path)
    spoil(path)
    before = digest(path)
    with pytest.raises(Unusable) as refusal:
        Database(str(path))
    assert word in str(refusal.value) and "\n" not in str(refusal.value) and str(path) in str(refusal.value)
    assert digest(path) == before


async def test_a_disk_that_takes_no_more_is_not_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "db"
    await filled(path)
    before = digest(path)
    program = ("import resource; from fairway.embedded.database import Database; "
               f"resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); Database({str(path)!r})")
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr.splitlines()[-1]
    assert "cannot be read or written" in said and "free some space" in said and "damaged" not in said
    assert digest(path) == before


async def test_a_place_where_no_file_can_be_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be opened"):
        Database(str(tmp_path / "absent" / "db"))
    store = Store(Database(str(tmp_path / "a?b#c%20d")))
    store.put(KEY, thing())
    await store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["a?b#c%20d"]


async def test_an_older_format_takes_the_steps_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db"
    await filled(path)
    step = "ALTER TABLE horizon ADD COLUMN note TEXT;"
    monkeypatch.setattr("fairway.embedded.database.STEPS", (*STEPS, step))
    store = Store(Database(str(path)))
    assert len(store.objects("configmaps")) == 3
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(STEPS) + 1


async def test_a_second_server_on_one_file_is_refused(tmp_path: Path) -> None:
    store = Store(Database(str(tmp_path / "db")))
    program = f"from fairway.embedded.database import Database; Database({str(tmp_path / 'db')!r})"
    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "in use by another process" in second.stderr
    await store.close()


async def test_a_full_disk_is_told_to_the_writer_and_loses_nothing(tmp_path: Path) -> None:
    made = api(database=Database(str(tmp_path / "db")))
    await made.server.start()
    database = made.store._database
    await made.ok("POST", MAPS, config("before"))
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    big = {"data": {"x": "y" * 100_000}}
    status = await made.no(507, "POST", MAPS, config("big") | big)
    assert "no space left" in status["message"]
    assert await made.names(MAPS) == ["before"]
    answers = await asyncio.gather(*(made.ask("POST", MAPS, config(f"b{index}") | big) for index in range(5)))
    assert {code for code, _ in answers} == {507}
    database._connection.execute("PRAGMA max_page_count = 100000")
    await made.ok("POST", MAPS, config("after") | big)
    await made.store.close()
    with pytest.raises(RuntimeError):
        made.store.put(KEY, thing())
    again = api(database=Database(str(tmp_path / "db")))
    assert await again.names(MAPS) == ["after", "before"]
    await again.store.close()


async def test_a_failed_commit_takes_what_was_staged_on_it_along(tmp_path: Path) -> None:
    store = Store(Database(str(tmp_path / "db")))
    store.put(KEY, thing())
    await store.committed()
    store._database._connection.execute("PRAGMA max_page_count = 1")
    store.put(KEY, thing(data="x" * 50_000))
    first = asyncio.ensure_future(store.committed())
    await asyncio.sleep(0)
    store.put(KEY, thing(data="built on the first"))
    second = asyncio.ensure_future(store.committed())
    await asyncio.sleep(0)
    for waiting in (first, second):
        with pytest.raises(Full):
            await waiting
    assert store.latest(KEY) == store.get(KEY) and store.get(KEY).revision == 1
    await store.close()


WRITER = """
import asyncio, sys
from fairway.embedded.database import Database
from fairway.embedded.store import Key, Store

async def write(store, writer):
    start = int(sys.argv[2])  # beyond all earlier numbers, so that a larger one is a later one
    for number in range(start, start + 10_000):
        key = Key("configmaps", "default", f"{writer}-{number % 50}")
        store.put(key, {"metadata": {"name": key.name}, "number": number})
        await store.committed()
        print(key.name, number, flush=True)

async def main():
    store = Store(Database(sys.argv[1]), keep=200)
    await asyncio.gather(*(write(store, writer) for writer in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("seconds", [0.35, 0.5, 0.7])
def test_killed_at_any_moment_it_has_every_write_that_it_acknowledged(tmp_path: Path, seconds: float) -> None:
    path = str(tmp_path / "db")
    acknowledged: dict[str, int] = {}
    for start in (0, 10_000, 20_000):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path, str(start)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(seconds)
        os.kill(writer.pid, signal.SIGKILL)
        said = (first + writer.stdout.read()).splitlines(keepends=True)
        writer.wait()
        acknowledged |= {name: int(number) for line in said if line.endswith("\n") for name, number in [line.split()]}
        database = Database(path)
        newest = {row.name: row.value for row in database.rows if not row.gone}
        database.close()
        for name, number in acknowledged.items():
            found = int(newest[name].rpartition(b":")[2].strip(b"}"))
            assert found >= number, name
        acknowledged = {name: int(value.rpartition(b":")[2].strip(b"}")) for name, value in newest.items()}
