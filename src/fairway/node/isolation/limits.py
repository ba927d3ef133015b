"""Limits of containers, kept by the kernel: a cgroup for each container that has a limit of CPU, memory or processes.

`hierarchies` finds where this process may make cgroups: of version 1 in its own cgroup, of version 2 in its own, beside
it, or at the top. A cgroup of version 2 that holds processes cannot hold limited ones, so it is seldom its own. Where
the machine allows none, limits are not enforced, and `missing` says why in one line. Swap is no way around a limit.

    <where>/fairway/<pod uid>-<container>/    cgroup.procs  memory.max  cpu.max …

The container's process enters by itself before it becomes the program; its shim removes the cgroup when nothing of the
container is left, and Fairway what remains when the pod is gone.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.quantities import exact, time_text

from .devices import forbid

FOLDER = "fairway"
CONTROLLERS, PIDS, DEVICES = ("cpu", "memory"), "pids", "devices"
KNOWN = (*CONTROLLERS, PIDS, DEVICES)
OPTIONAL = ("memory.swap.max", "memory.oom.group", "memory.memsw.limit_in_bytes")  # not on every kernel
PERIOD, LEAST_QUOTA = 100_000, 1_000  # microseconds
CONDITION = "fairway.dev/LimitsEnforced"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """`places`: controller → the folder of ours in which it is limited. `missing`: why not all are there."""

    places: Mapping[str, Path]
    is_unified: bool = False
    missing: str = ""

    def make(
        self, name: str, resources: Mapping[str, Any], hidden: Iterable[str] = (), *, most_processes: int = 0
    ) -> list[str]:
        """The cgroups of a container that is to start, with its limits; none where it has no limit. `hidden`: device
        files that it may not open under any name. `most_processes`: with threads; 0: any number."""
        made, numbers = {}, list(_numbers(hidden))
        denied = [("devices.deny", f"c {major}:{minor} rw") for major, minor in numbers]
        counted = [("pids.max", str(most_processes))] if most_processes else []
        wanted = {**limited(resources, is_unified=self.is_unified), PIDS: counted, DEVICES: denied}
        for controller, files in wanted.items():
            if controller in self.places and files:
                own = self.places[controller] / name
                own.mkdir(exist_ok=True)
                for file, text in files:
                    if file not in OPTIONAL or (own / file).exists():
                        (own / file).write_text(text)
                made[str(own)] = True
        if numbers and self.is_unified:
            own = self.places[CONTROLLERS[0]] / name
            own.mkdir(exist_ok=True)
            with suppress(OSError):  # where BPF is not ours they are hidden all the same
                forbid(own, numbers)
            made[str(own)] = True
        return list(made)

    def sweep(self, pod: str) -> None:
        """Removes the cgroups of a pod in which nothing runs."""
        for own in {own for place in self.places.values() for own in place.glob(f"{pod}-*")}:
            with suppress(OSError):
                own.rmdir()

    def condition(self, now: float) -> dict[str, str]:
        """Of the node: whether limits are enforced here."""
        status, reason = ("False", "NoCgroups") if self.missing else ("True", "Cgroups")
        message = self.missing or "the kernel enforces limits of cpu and memory"
        moment = time_text(int(now))
        return {"type": CONDITION, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": moment, "lastTransitionTime": moment}


def limited(resources: Mapping[str, Any], *, is_unified: bool) -> dict[str, list[tuple[str, str]]]:
    """Controller → its files and what to write into them, of the controllers that there is a limit for."""
    limits = resources.get("limits") or {}
    cpu, memory = (exact(str(limits.get(name) or 0)) for name in CONTROLLERS)
    quota, size = max(int(cpu * PERIOD), LEAST_QUOTA), str(int(memory))
    if is_unified:
        files = {"cpu": [("cpu.max", f"{quota} {PERIOD}")],
                 "memory": [("memory.max", size), ("memory.swap.max", "0"), ("memory.oom.group", "1")]}
    else:
        files = {"cpu": [("cpu.cfs_period_us", str(PERIOD)), ("cpu.cfs_quota_us", str(quota))],
                 "memory": [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]}
    return {name: files[name] for name, amount in zip(CONTROLLERS, (cpu, memory)) if amount}


def _numbers(files: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The major and minor numbers of those files that are character devices."""
    for file in files:
        with suppress(OSError):
            seen = os.stat(file)
            if stat.S_ISCHR(seen.st_mode):
                yield os.major(seen.st_rdev), os.minor(seen.st_rdev)


def hierarchies(process: Path = Path("/proc/self")) -> Hierarchies:
    """Where this process may make cgroups with limits; their folders are made."""
    own, mounts = _own(process), _mounts(process)
    places: dict[str, Path] = {}
    why = ""
    for controller in KNOWN:
        try:
            if controller in mounts and controller in own:
                places[controller] = _made(mounts[controller] / own[controller])
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
    if not places.keys() & {*CONTROLLERS} and "" in mounts and "" in own:
        top = mounts[""]
        here = top / own[""]
        for above in dict.fromkeys((here, top if here == top else here.parent, top)):
            try:
                own_folder, has_pids = _made_unified(above)
                controllers = (*CONTROLLERS, PIDS) if has_pids else CONTROLLERS
                return Hierarchies(dict.fromkeys(controllers, own_folder), is_unified=True)
            except OSError as error:
                why = why or f"{error.filename}: {error.strerror}"
    lacking = [name for name in CONTROLLERS if name not in places]
    return Hierarchies(places, missing=_said(lacking, why) if lacking else "")


def _said(lacking: list[str], why: str) -> str:
    return (f"limits of {' and '.join(lacking)} are not enforced: this process may make no cgroup for them"
            f" ({why or 'no such controller'}); as root, or by `systemd-run --user --scope fairway up`, it may")


def _own(process: Path) -> dict[str, str]:
    """Controller → the cgroup of a process in its hierarchy, without the first slash; "" is version 2."""
    lines = (line.split(":", 2) for line in (process / "cgroup").read_text().splitlines())
    return {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}


def _mounts(process: Path) -> dict[str, Path]:
    """Controller → where its hierarchy is mounted."""
    return dict(_mounted((process / "mountinfo").read_text()))


def _mounted(text: str) -> Iterator[tuple[str, Path]]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        sort, _, options = after.split(" ", 2)
        place = Path(before.split()[4])
        if sort == "cgroup2":
            yield "", place
        elif sort == "cgroup":
            yield from ((name, place) for name in options.split(",") if name in KNOWN)


def _made(above: Path) -> Path:
    own = above / FOLDER
    own.mkdir(exist_ok=True)
    if not os.access(own, os.W_OK):
        raise PermissionError(13, "Permission denied", str(own))
    return own


def _made_unified(above: Path) -> tuple[Path, bool]:
    """Our folder in a cgroup of version 2 that hands its controllers on, and whether that of processes is among them;
    OSError where it cannot."""
    has_pids = _hand_on(above)
    own = _made(above)
    return own, _hand_on(own) and has_pids


def _hand_on(cgroup: Path) -> bool:
    """Hands on the controllers, and whether that of processes is among them; OSError where the others cannot be."""
    file = cgroup / "cgroup.subtree_control"
    given = file.read_text().split()
    lacking = [f"+{name}" for name in (*CONTROLLERS, PIDS) if name not in given]
    try:
        if lacking:
            file.write_text(" ".join(lacking))
    except OSError:
        if lacking == [f"+{PIDS}"]:
            return False
        file.write_text(" ".join(name for name in lacking if name != f"+{PIDS}"))
        return f"+{PIDS}" not in lacking
    return True


def most_processes() -> int:
    """How many processes and threads this machine can have at once."""
    return min(int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max"))

