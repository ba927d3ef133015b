"""Runs are kept when their pods are gone: each once, whatever moment Fairway is killed at."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.node import shim
from fairway.node.archive import Archive, Bounds, Origin, retire, write_origin
from fairway.node.container import inspect
from fairway.node.logs import REMOVED

NAMES = {"namespace": "ml", "workload": "job-a", "uid": "u-1", "node": "here", "default": "main"}


class Killed(BaseException):
    """Fairway ends here."""


def run(own: Path, number: int, at: int, *, text: bytes = b"hello\n", code: int = 0, why: str = "-") -> Path:
    """An ended run of a pod, as its shim left it."""
    place = own / "containers" / "main" / str(number)
    place.mkdir(parents=True)
    shim.Log(str(place)).add("stdout", text)
    (place / "spec").write_bytes(b"its environment")
    (place / "started").write_text(str(at * 10**9))
    (place / "exit").write_text(f"{code} {at * 10**9} {(at + 1) * 10**9} {why} -\n")
    return place


def pod(pods: Path, uid: str, *, attempt: int = 1, rank: int | None = None) -> Path:
    own = pods / uid
    (own / "work").mkdir(parents=True)
    write_origin(own, Origin(**NAMES, attempt=attempt, pod=f"a-{uid}", rank=rank))
    return own


@pytest.fixture
def kept(tmp_path: Path) -> Archive:
    (tmp_path / "pods").mkdir()
    return Archive(tmp_path / "pods", tmp_path / "logs", Bounds(retention=100.0, size=1 << 30))


def shown(kept: Archive, *live: str) -> list[tuple[int, int, int]]:
    return [(it.origin.attempt, it.rank, it.retry) for it in kept.runs("ml", "job-a", "u-1", live)]


STEPS = {
    "rmtree": (shutil, "rmtree"),
    "unlink": (Path, "unlink"),
    "mkdir": (Path, "mkdir"),
    "rename": (Path, "rename"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_between_any_two_steps_it_keeps_every_run_once(
    step: str, is_done: bool, kept: Archive, monkeypatch: pytest.MonkeyPatch
):
    own = pod(kept.pods, "p-1", rank=0)
    run(own, 0, 10)
    run(own, 1, 20)
    place, name = STEPS[step]
    real: Callable[..., object] = getattr(place, name)

    def killed(*arguments: object, **options: object) -> None:
        if is_done:
            real(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(place, name, killed)
        with pytest.raises(Killed):
            kept.take(own, "Preempted")
    assert shown(kept, "p-1") == [(1, 0, 0), (1, 0, 1)]
    if own.exists():
        kept.take(own, "Preempted")
    assert shown(kept) == shown(kept, "p-1") == [(1, 0, 0), (1, 0, 1)]
    assert list(kept.pods.iterdir()) == [] and not list(kept.logs.rglob("spec"))


def test_runs_are_in_the_order_of_attempt_rank_and_retry(kept: Archive):
    for uid, attempt, rank, at in (("p-1", 1, 1, 5), ("p-2", 1, 0, 6), ("p-3", 1, 1, 8), ("p-4", 2, 0, 20)):
        run(pod(kept.pods, uid, attempt=attempt, rank=rank), 0, at)
        kept.take(kept.pods / uid)
    assert shown(kept) == [(1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 0, 0)]


def test_pods_that_say_no_rank_get_the_lowest_that_is_free_when_they_start(kept: Archive):
    for uid, at in (("p-1", 10), ("p-2", 10), ("p-3", 30)):
        run(pod(kept.pods, uid), 0, at)
    assert shown(kept, "p-1", "p-2", "p-3") == [(1, 0, 0), (1, 0, 1), (1, 1, 0)]


def test_earlier_runs_of_a_container_that_restarts_are_put_away_without_their_environment(kept: Archive):
    own = pod(kept.pods, "p-1", rank=0)
    for number in range(3):
        run(own, number, 10 * number)
    retire(inspect(own / "containers" / "main" / "0"))
    assert shown(kept, "p-1") == [(1, 0, 0), (1, 0, 1), (1, 0, 2)]
    assert not (own / "earlier" / "main" / "0" / "spec").exists()


def test_runs_of_a_pod_without_a_workload_go_with_it(kept: Archive):
    own = kept.pods / "p-1"
    run(own, 0, 10)
    kept.take(own)
    assert not own.exists() and not kept.logs.exists()


def test_runs_are_kept_until_their_workload_is_deleted_and_the_retention_is_over(kept: Archive):
    run(pod(kept.pods, "p-1", rank=0), 0, 10)
    kept.take(kept.pods / "p-1")
    for workloads, now in (({"u-1"}, 0.0), ({"u-1"}, 1e6), (set(), 1e6), (None, 2e6), (set(), 1e6 + 99)):
        kept.tidy(workloads, now)
        assert shown(kept) == [(1, 0, 0)]
    kept.tidy(set(), 1e6 + 100)
    assert shown(kept) == [] and list(kept.logs.iterdir()) == []


def test_the_runs_of_one_pod_are_found_without_reading_those_of_others(kept: Archive):
    for uid in ("p-0", "p-1"):
        run(pod(kept.pods, uid, rank=int(uid[-1])), 0, 10)
    kept.take(kept.pods / "p-1")
    (kept.pods / "p-0" / "origin").write_text("not to be read")
    assert [it.name for it in kept.runs_of_pod("ml", "job-a", "u-1", "p-1")] == ["p-1/main/0"]
    assert kept.runs_of_pod("ml", "job-a", "u-1", "..") == kept.runs_of_pod("ml", "job-a", "u-2", "p-1") == []


def test_a_pod_that_is_put_away_between_two_looks_is_found(kept: Archive):
    class Leaving(list[str]):
        def __iter__(self):
            kept.take(kept.pods / "p-1") if (kept.pods / "p-1").exists() else None
            return super().__iter__()

    run(pod(kept.pods, "p-1", rank=0), 0, 10, code=143)
    assert [it.shown()["exitCode"] for it in kept.runs("ml", "job-a", "u-1", Leaving(["p-1"]))] == [143]


def test_how_a_run_ended_is_known_after_its_pod_is_put_away(kept: Archive):
    run(pod(kept.pods, "p-1", rank=0), 0, 10, code=143)
    [found], [same] = kept.runs("ml", "job-a", "u-1", ["p-1"]), kept.runs("ml", "job-a", "u-1", ["p-1"])
    before = found.shown()
    kept.take(kept.pods / "p-1")
    assert same.shown() == before and before["exitCode"] == 143


def test_the_text_of_the_oldest_runs_goes_first_and_that_is_said(kept: Archive):
    for number in range(4):
        run(pod(kept.pods, f"p-{number}", rank=number), 0, 10 * (4 - number), text=b"x" * 960 + b"\n")
    kept.take(kept.pods / "p-3")
    small = Archive(kept.pods, kept.logs, Bounds(size=3000))
    small.tidy(None, 0.0)
    runs = small.runs("ml", "job-a", "u-1", ["p-0", "p-1", "p-2"])
    assert [(it.folder / REMOVED).exists() for it in runs] == [False, False, True, True]
    assert [it.shown()["isRemoved"] for it in runs] == [False, False, True, True]


def test_a_run_that_lasts_is_not_removed_however_much_it_wrote(kept: Archive):
    place = run(pod(kept.pods, "p-1", rank=0), 0, 10, text=b"x" * 5000 + b"\n")
    (place / "exit").unlink()
    (place / "started").unlink()
    Archive(kept.pods, kept.logs, Bounds(size=10)).tidy(None, 0.0)
    assert not (place / REMOVED).exists()


def test_a_pod_that_goes_while_the_logs_are_measured_is_passed_over(
    kept: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, scan = pod(kept.pods, "u-9"), os.scandir
    run(leaving, 0, 1)
    stays = run(pod(kept.pods, "u-8"), 0, 1, text=b"x" * (2 << 20) + b"\n")

    def leave_first(place: str | Path) -> object:
        if str(place) == str(leaving / "containers" / "main"):
            shutil.rmtree(leaving)
        return scan(place)

    monkeypatch.setattr(os, "scandir", leave_first)
    Archive(kept.pods, kept.logs, Bounds(size=1 << 20)).tidy(None, 0.0)
    assert not leaving.exists() and (stays / REMOVED).exists()


def test_how_a_run_ended_is_said_with_the_reason_of_its_workload(kept: Archive):
    run(pod(kept.pods, "p-1", rank=0), 0, 10, code=143, why="Deleted")
    kept.take(kept.pods / "p-1", "Preempted")
    shown = kept.runs("ml", "job-a", "u-1", [])[0].shown()
    assert (shown["exitCode"], shown["reason"], shown["started"]) == (143, "Preempted", "1970-01-01T00:00:10Z")


@pytest.mark.parametrize("asked", [("ml", "job-a", "u-1"), ("bob", "job-a", "u-1"), ("bob", "job-b", "u-1"),
                                   ("bob", "job-b", "../../ml/job-a/u-1"), ("bob", "../ml/job-a", "u-1")])
def test_no_name_leads_to_the_runs_of_another_namespace(asked: tuple[str, str, str], kept: Archive) -> None:
    for uid in ("p-1", "p-2"):
        run(pod(kept.pods, uid), 0, 10)
    kept.take(kept.pods / "p-1")
    (kept.logs / "bob" / "job-b").mkdir(parents=True)
    assert len(kept.runs(*asked, live=["p-2"])) == (2 if asked[0] == "ml" else 0)


def test_no_folder_of_a_user_is_taken_for_one_of_runs(kept: Archive, tmp_path: Path) -> None:
    """Otherwise a link in it would show a file of root's."""
    fake, uid = tmp_path / "home", "../../../home"
    run(pod(fake, "p-9"), 0, 10)
    write_origin(fake / "p-9", Origin(**NAMES | {"uid": uid}, attempt=1, pod="a"))
    (kept.logs / "ml" / "job-a").mkdir(parents=True)
    assert (kept.logs / "ml" / "job-a" / uid / "p-9" / "origin").exists()
    assert kept.runs("ml", "job-a", uid, []) == []
