"""The runs of a workload's containers, while its pods are there and afterwards.

A run is one process of one container. While its pod exists it is in the pod's folder; when the pod's folder is cleared,
the folder is stripped of all but logs and ends and moved in one rename, so that it is in one place at any moment:

    pods/<pod uid>/      origin  containers/<container>/<number>/  earlier/<container>/<number>/
    logs/<namespace>/<workload>/<workload uid>/<pod uid>/         the same; <workload uid>/deleted: since when

`origin` says which workload, attempt and rank the pod is of. Within an attempt a rank may run more than once (its Job
replaces a failed pod, a container restarts): those are retries, counted from 0. Runs are kept until their workload is
deleted and the retention is over. All logs together are bounded: the text of the oldest ended runs is removed first,
and how much it was stays written.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import iglob
from pathlib import Path
from typing import Any

import msgspec

from fairway.api.objects import ATTEMPT
from fairway.api.quantities import time_text

from .container import Attempt, inspect
from .draft import write_whole
from .environment import Pod
from .logs import REMOVED, remove, size_of
from .pause.disk import IMAGE
from .podstatus import DELETED

KEPT = ("containers", "earlier", "origin")
DELETED_FILE = "deleted"
KINDS = ("containers", "earlier")  # in the order in which runs move on
NAME = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]*")
DAY = 86400.0


class Origin(msgspec.Struct, frozen=True):
    """What a pod is of. `rank`: None where the pod does not say; `ended_by`: why its workload ended its attempt."""

    namespace: str
    workload: str
    uid: str
    attempt: int
    pod: str
    node: str
    default: str
    rank: int | None = None
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`retention`: seconds after a workload is deleted; `size`: bytes of all logs together."""

    retention: float = 7 * DAY
    size: int = 20 << 30


@dataclass(frozen=True)
class Run:
    """One process of a container of a workload, as it was when its folder was read: that moves. `size`: bytes of text;
    `is_removed`: whether that is no longer kept."""

    origin: Origin
    folder: Path
    end: Attempt
    size: int
    is_removed: bool
    rank: int = 0
    retry: int = 0

    @property
    def container(self) -> str:
        return self.folder.parent.name

    @property
    def name(self) -> str:
        """It stays the same wherever the run is."""
        *_, pod, _, container, number = self.folder.parts
        return f"{pod}/{container}/{number}"

    @property
    def started(self) -> str | None:
        """As the API shows it."""
        return _moment(self.end.started_at)

    def shown(self) -> dict[str, Any]:
        """As the API shows it."""
        end, origin = self.end, self.origin
        return {
            "id": self.name, "attempt": origin.attempt, "retry": self.retry, "rank": self.rank,
            "pod": origin.pod, "container": self.container, "isDefault": self.container == origin.default,
            "node": origin.node, "started": self.started,
            "finished": _moment(end.finished_at) if end.is_over else None,
            "exitCode": end.code, "reason": end.reason or self._why(), "bytes": self.size,
            "isRemoved": self.is_removed,
        }  # fmt: skip

    def _why(self) -> str:
        """Why it was stopped, where it did not end by itself."""
        return self.origin.ended_by or self.end.stopped if self.end.stopped == DELETED else self.end.stopped


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(int(seconds))


def _read(origin: Origin, folder: Path) -> Run:
    return Run(origin, folder, inspect(folder), size_of(folder), (folder / REMOVED).exists())


def origin_of(pod: Pod, rank: str = "") -> Origin | None:
    """What a pod is of; None for a pod that no workload was admitted for."""
    meta, spec = pod["metadata"], pod["spec"]
    notes = meta.get("annotations") or {}
    workload, uid, attempt = (notes.get(ATTEMPT) or "//").split("/")
    if not workload:
        return None
    default = notes.get("kubectl.kubernetes.io/default-container") or spec["containers"][0]["name"]
    number = int(rank) if rank.isdecimal() else None
    return Origin(meta["namespace"], workload, uid, int(attempt), meta["name"], spec["nodeName"], default, number)


def read_origin(own: Path) -> Origin | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return msgspec.json.decode((own / "origin").read_bytes(), type=Origin)
    return None


def write_origin(own: Path, origin: Origin) -> None:
    write_whole(own / "origin", msgspec.json.encode(origin))


def retire(attempt: Attempt) -> None:
    """Puts away a run of a pod that has had later ones; it is deleted where the pod is of no workload."""
    own, container = attempt.folder.parents[2], attempt.folder.parent.name
    if not (own / "origin").exists():
        shutil.rmtree(attempt.folder)
        return
    (own / "earlier" / container).mkdir(parents=True, exist_ok=True)
    _strip(attempt.folder)
    attempt.folder.rename(own / "earlier" / container / attempt.folder.name)


def _strip(run: Path) -> None:
    """Removes the specification, which holds the environment, the image of processes, and what was kept in reserve."""
    shutil.rmtree(run / IMAGE, ignore_errors=True)
    for file in (run / "spec", *run.glob(".spec.*"), *run.glob(".stop.*")):
        file.unlink(missing_ok=True)


class Archive:
    """`pods`: the folders of pods; `logs`: what is kept of those that are gone."""

    def __init__(self, pods: Path, logs: Path, bounds: Bounds) -> None:
        self.pods, self.logs, self.bounds = pods, logs, bounds

    def take(self, own: Path, ended_by: str = "") -> None:
        """Keeps the runs of a pod of which nothing runs any more, and removes all else. May be repeated."""
        said = read_origin(own)
        if said is None:
            shutil.rmtree(own, ignore_errors=True)
            return
        for entry in own.iterdir():
            if entry.name not in KEPT:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
        for run in _folders(own):
            _strip(run)
        if ended_by:
            write_origin(own, msgspec.structs.replace(said, ended_by=ended_by))
        place = self._place(said.namespace, said.workload) / said.uid
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.rename(place / own.name)

    def _place(self, namespace: str, workload: str) -> Path:
        return self.logs / namespace / workload

    def uids(self, namespace: str, workload: str) -> list[str]:
        """The workloads of a name that runs are kept of, the latest last."""
        added: dict[str, float] = {}
        if not _are_names(namespace, workload):
            return []
        for pod in self._place(namespace, workload).glob("*/*-*"):
            added[pod.parent.name] = max(added.get(pod.parent.name, 0.0), pod.stat().st_mtime)
        return sorted(added, key=added.__getitem__)

    def runs(self, namespace: str, workload: str, uid: str, live: Iterable[str]) -> list[Run]:
        """The runs of a workload by attempt, rank and retry. `live`: uids of pods that may be in their own place. What
        is of another namespace is not found by its uid."""
        return self._settled((namespace, workload, uid), lambda own: self._pods_in(own, live))

    def runs_of_pod(self, namespace: str, workload: str, uid: str, pod: str) -> list[Run]:
        """Those of the pod of this uid alone, without reading the others. Ranks and retries are counted in it alone."""

        def only(own: Path) -> dict[str, Path]:
            return {name: it for name, it in self._pods_in(own, [pod]).items() if name == pod}

        return self._settled((namespace, workload, uid), only)

    def _pods_in(self, own: Path, live: Iterable[str]) -> dict[str, Path]:
        """The folders of pods by uid: those that may be in their own place, and those in `own`."""
        kept = {it.name: it for it in own.iterdir()} if own.is_dir() else {}
        return {pod: self.pods / pod for pod in live} | kept

    def _settled(self, whose: tuple[str, str, str], pods: Callable[[Path], Mapping[str, Path]]) -> list[Run]:
        """The runs in the folders of pods that `pods` finds, none of which was moved while they were read. `whose`:
        namespace, name and uid of their workload."""
        namespace, workload, uid = whose
        while _are_names(*whose):
            places = pods(kept := self._place(namespace, workload) / uid)
            said = {it: origin for it in places.values() if (origin := read_origin(it))}
            ours = {it: origin for it, origin in said.items() if (origin.namespace, origin.uid) == (namespace, uid)}
            found = list(_counted([_read(of, run) for it, of in ours.items() for run in _folders(it)]))
            if places == pods(kept) and all(run.folder.exists() for run in found):
                return sorted(found, key=lambda run: (run.origin.attempt, run.rank, run.container, run.retry))
        return []

    def places_of(self, run: Run) -> list[Path]:
        """Where a run may be, in the order in which it moves on."""
        kept, own = self._place(run.origin.namespace, run.origin.workload) / run.origin.uid, run.folder.parents[2]
        tails = [Path(kind, *run.folder.parts[-2:]) for kind in KINDS]
        return [above / tail for above in (self.pods / own.name, kept / own.name) for tail in tails]

    def tidy(self, workloads: Collection[str] | None, now: float) -> None:
        """Removes what has been kept for long enough and what is too much. `workloads`: the uids of those that exist;
        None: not asked now."""
        if workloads is not None:
            for place in list(self.logs.glob("*/*/*")):
                self._expire(place, place.name in workloads, now)
        self._shrink()

    def _expire(self, place: Path, is_there: bool, now: float) -> None:
        mark = place / DELETED_FILE
        if is_there:
            mark.unlink(missing_ok=True)
        elif not mark.exists():
            mark.write_text(str(now))
        elif now - float(mark.read_text() or now) >= self.bounds.retention:
            shutil.rmtree(place)
            for above in (place.parent, place.parent.parent):
                with suppress(OSError):
                    above.rmdir()

    def _shrink(self) -> None:
        """The text of the oldest ended runs goes until the rest is a tenth below the bound."""
        kept = (self.logs / own for own in iglob("*/*/*/*-*", root_dir=self.logs))
        runs = [run for own in (*self.pods.glob("*-*"), *kept) for run in _folders(own)]
        sizes = {run: size_of(run) for run in runs}
        total = sum(sizes.values())
        if total <= self.bounds.size:
            return
        ended = sorted((end.finished_at or 0.0, run) for run in runs if sizes[run] and (end := inspect(run)).is_over)
        for _, run in ended:
            if total <= self.bounds.size * 0.9:
                return
            with suppress(FileNotFoundError):  # moved meanwhile
                remove(run)
            total -= sizes[run]


def _are_names(*words: str) -> bool:
    """Whether each is the name of a folder, and leads nowhere else: some come from users."""
    return all(NAME.fullmatch(it) for it in words)


def _folders(own: Path) -> Iterator[Path]:
    """Of the runs in a pod's folder; none of one that goes meanwhile."""
    for kind in KINDS:
        yield from (own / run for run in iglob(f"{kind}/*/[0-9]*", root_dir=own))


def _counted(runs: list[Run]) -> Iterator[Run]:
    """The runs with their retries; those whose pods do not say a rank get the lowest that is free when they start."""
    began = [run for run in runs if run.end.started_at is not None]
    alike: defaultdict[tuple[int, str], list[Run]] = defaultdict(list)
    for run in sorted(began, key=lambda run: run.end.started_at or 0.0):
        alike[run.origin.attempt, run.container].append(run)
    for together in alike.values():
        ranks: dict[str, int] = {}  # by pod
        last: dict[int, Run] = {}  # by rank
        retries: defaultdict[int, int] = defaultdict(int)
        for run in together:
            pod = run.origin.pod
            if pod not in ranks:
                ranks[pod] = run.origin.rank if run.origin.rank is not None else _free(last, run)
            rank = ranks[pod]
            last[rank] = run
            yield replace(run, rank=rank, retry=retries[rank])
            retries[rank] += 1


def _free(last: dict[int, Run], run: Run) -> int:
    """The lowest rank of which nothing runs when `run` starts."""
    start = run.end.started_at or 0.0
    is_free = (rank for rank in range(len(last) + 1) if rank not in last or _ended_before(last[rank], start))
    return next(is_free)


def _ended_before(run: Run, moment: float) -> bool:
    return run.end.is_over and (run.end.finished_at or 0.0) <= moment
