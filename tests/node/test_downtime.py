"""When a machine went down, told by what it left on its disk, however often that is read."""

import os
from pathlib import Path

import pytest

from fairway.node import downtime as module
from fairway.node.container import LOST, history
from fairway.node.downtime import downtime, note_end
from fairway.node.podstatus import SHUTDOWN

BOOT = "first"


@pytest.fixture(autouse=True)
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells one boot of the machine from another."""
    (tmp_path / "boot").write_text(BOOT)
    monkeypatch.setattr(module, "BOOT_ID", tmp_path / "boot")
    return tmp_path / "boot"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that was last written at 100, on a machine that was never down."""
    data = tmp_path / "data"
    (data / "pods").mkdir(parents=True)
    (data / "state.db").touch()
    assert downtime(data, 50.0).note == ""
    os.utime(data / "state.db", (100, 100))
    return data


def attempt(data: Path, *, started: float, ended: str = "") -> Path:
    place = data / "pods/a-b/containers/main/0"
    place.mkdir(parents=True)
    (place / "started").write_text(str(int(started * 1e9)))
    if ended:
        (place / "exit").write_text(ended)
    return place


def test_an_orderly_end_counts_from_when_the_last_container_had_ended_until_the_next_start(data: Path):
    note_end(data / "pods", 120.0)
    os.utime(data / "state.db", (121, 121))
    assert downtime(data, 200.0).note == downtime(data, 300.0).note == "1970-01-01T00:02:00Z/1970-01-01T00:03:20Z"


def test_what_is_lost_with_the_machine_ended_at_its_last_sign_of_life_and_starts_again(data: Path):
    place = attempt(data, started=90)
    for now in (200.0, 300.0):  # the second finds it noted
        found = downtime(data, now)
        assert (found.began, found.ended) == (100.0, 200.0)
    [last] = history(place.parent)
    assert (last.finished_at, last.stopped, last.reason) == (100.0, SHUTDOWN, LOST)


def test_a_start_that_is_killed_before_it_has_noted_all_changes_nothing(data: Path):
    attempt(data, started=90)
    before = (data / "pods/down").read_bytes()
    first = downtime(data, 200.0)
    (data / "pods/down").write_bytes(before)
    os.utime(data / "state.db", (250, 250))
    again = downtime(data, 300.0)
    assert (again.began, again.ended) == (first.began, 300.0)


def test_a_boot_counts_where_nothing_ran_and_a_restart_of_the_server_does_not(data: Path, boot: Path):
    attempt(data, started=60, ended=f"0 {int(60e9)} {int(70e9)} - -\n")
    assert downtime(data, 200.0).note == ""
    boot.write_text("second")
    assert downtime(data, 300.0).began == 100.0


def test_what_a_backup_holds_ended_when_that_was_made(data: Path):
    (data / "pods/down").unlink()
    (data / "pods").rmdir()
    assert downtime(data, 200.0).began == 100.0
