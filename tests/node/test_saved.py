"""Processes of a team's users that go to disk and come back: with the rights of their user alone."""

import marshal
import os
import re
import shutil
from pathlib import Path

import psutil
import pytest
from box import COUNTER, grows, needs_criu
from users import needs_users

from fairway.api.objects import ASSIGNED, FREEZE, SAVE
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.node.container import Attempt, inspect
from fairway.node.lock import holder
from fairway.node.pause.disk import CLOCKS
from fairway.node.pause.stand import unsaved
from team import Team

pytestmark = [needs_users, needs_criu]


HELD = {
    "an open file": 'held = open("place/held", "w+"); held.write("x" * 9); held.flush()',
    "a mapped file": """
import mmap
with open("place/held", "w+") as file:
    file.write("x" * 9); file.flush(); held = mmap.mmap(file.fileno(), 9)
""",
    "a deleted file": 'import os; held = open("place/held", "wb", 0); held.write(b"x"); os.remove("place/held")',
    "a socket": 'import socket; held = socket.socket(socket.AF_UNIX); held.bind("place/held"); held.listen()',
    "the folder it is in": 'import os; os.chdir("place/held")',
}  # fmt: skip


async def saved(team: Team, what: str) -> Attempt:
    """A pod of ann's that counts and is on disk, with what it holds; all GPUs are its, so it needs no mounts."""
    home = Path(team.ann.pw_dir)
    shutil.rmtree(home / "place", ignore_errors=True)
    for each in (home / "place", home / "place" / "held")[: 1 + ("folder" in what)]:
        each.mkdir()
        os.chown(each, team.ann.pw_uid, team.ann.pw_gid)
    count = COUNTER.replace('"count', f'"{home}/count')
    container = {"command": ["/usr/bin/python3", "-c", f"{HELD[what]}\n{count}"]}
    pod = await team.run(team.ann, "a", "", container=container, annotations={ASSIGNED: "0,1"})
    await team.container(team.ann, "a", "running")
    await grows(home / "count")
    await patched(team, {FREEZE: "r1", SAVE: "r1"})
    while (attempt := inspect(team.box.attempt(pod))).stopped != "OnDisk":
        assert not (why := unsaved(attempt.folder)), why
        await team.client.clock.sleep(0.02)
    return attempt


async def patched(team: Team, notes: dict[str, str | None]) -> None:
    await team.client.patch(Ref(kinds.PODS, "a", team.ann.pw_name), {"metadata": {"annotations": notes}})


@pytest.mark.parametrize("what", HELD)
async def test_processes_come_back_from_disk_as_their_user(team: Team, what: str):
    attempt = await saved(team, what)
    before = int((Path(team.ann.pw_dir) / "count").read_text())
    await patched(team, {FREEZE: None, SAVE: None})
    after = await grows(Path(team.ann.pw_dir) / "count")
    assert after >= before, [it["message"] for it in await team.client.list(Selection(kinds.EVENTS))]
    process = psutil.Process(holder(attempt.folder.with_name("1") / "lock")).children()[0]
    assert set(process.uids()) == {team.ann.pw_uid} and set(process.gids()) == {team.ann.pw_gid}
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert re.findall(r"Cap(?:Inh|Prm|Eff|Amb):\t(\w+)", status) == ["0" * 16] * 4


@pytest.mark.parametrize("what", HELD)
async def test_what_lies_in_place_of_a_file_is_opened_with_the_rights_of_the_user(team: Team, what: str):
    """Else ann, who exchanges a folder while her processes are on disk, would open, make or remove files as root."""
    home = Path(team.ann.pw_dir)
    closed = home.parent / "closed"
    await saved(team, what)
    closed.mkdir(mode=0o700)
    (home / "place").rename(home / "mine")
    (home / "place").symlink_to(closed)
    if (home / "mine" / "held").is_dir():
        (closed / "held").mkdir()
    else:
        (closed / "held").write_text("of root's")
    before = {each.name: each.stat() for each in closed.iterdir()}
    await patched(team, {FREEZE: None, SAVE: None})
    said = await told(team, "could not be restored yet: ")
    after = {each.name: each.stat() for each in closed.iterdir()}
    (home / "place").unlink()
    for each in (closed, home / "mine"):
        shutil.rmtree(each)
    assert "ermission denied" in said and after == before


async def told(team: Team, words: str) -> str:
    """The message of an event with these words, once there is one."""
    while True:
        for event in await team.client.list(Selection(kinds.EVENTS)):
            if words in event["message"]:
                return str(event["message"])
        await team.client.clock.sleep(0.05)


async def test_clocks_do_not_go_back_where_the_machine_was_started_again(team: Team):
    attempt = await saved(team, "an open file")
    clocks = attempt.folder / "image" / CLOCKS
    clocks.write_bytes(marshal.dumps([each + 86_400 for each in marshal.loads(clocks.read_bytes())]))
    await patched(team, {FREEZE: None, SAVE: None})
    await grows(Path(team.ann.pw_dir) / "count")
    process = psutil.Process(holder(attempt.folder.with_name("1") / "lock")).children()[0]
    said = Path(f"/proc/{process.pid}/timens_offsets").read_text().split()
    assert said[0::3] == ["monotonic", "boottime"] and all(86_000 < int(it) <= 86_401 for it in said[1::3])
    await patched(team, {FREEZE: "r2", SAVE: "r2"})
    while not (why := unsaved(attempt.folder.with_name("1"))):
        await team.client.clock.sleep(0.02)
    assert "/time: Operation not permitted" in why  # its clocks are its own
