"""Frozen processes to disk and back, by CRIU: what it needs to be told, and what keeps it from working.

The image lies in the folder of the attempt, closed to all but the user of the machine. It holds the memory of the
processes; the files that they have open stay where they are, and others may lie there when the processes come back. So
on a team's box CRIU runs as the user of the processes, with no right to a file beyond (`enclosure.become_saver`).
Processes with a GPU have their GPU memory in host memory by then, which CRIU can do from version 4 on. Processes come
back with their pids: while another process has one of these, the restore waits. What else fails is tried again, up to
MOST_TRIES times in all; until then the image stays.
"""

import marshal
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fairway.node.draft import text_of, write_whole
from fairway.node.enclosure import become_saver

PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEW = 4
"""The first version that knows processes with a GPU, and all that it needs to run as a user."""
IMAGE, SIZES, CLOCKS, SAID, PID, TRIES = "image", "sizes", "clocks", "said", "pid", "tries"
MARK = "FAIRWAY_CONTAINER"
"""The variable that marks what runs in a container: the folder of its attempt."""
MOST_TRIES = 4
TAKEN = re.compile(r"fork for \d+: File exists")
CALL_SECONDS, SECONDS_PER_BYTE = 120.0, 1e-8
OF_OTHERS = 1 << 40 | 1 << 8
"""CAP_CHECKPOINT_RESTORE and CAP_SETPCAP."""
SPARE_BYTES = 1 << 30
"""What an image leaves free on the disk, for the database and the logs of others."""


OWN_NAMESPACE = ("it has a namespace of its own ({}), which CRIU cannot bring back: volumes, terminationMessagePath, "
                 "Services in its Kubernetes namespace and hidden GPUs need one")  # fmt: skip
TERMINAL = "a terminal is open beside it (process {}, as of `fairway shell` or `exec -t`), and would be closed"


class DiskError(Exception):
    """What CRIU answered, or that there is none: one line."""


def program() -> str:
    """The path of CRIU; DiskError where it is not there."""
    if path := shutil.which("criu", path=PLACES):
        return path
    raise DiskError("CRIU is not installed")


def criu(*, is_new: bool = False) -> str:
    """Its path; DiskError where it is not there, or not able to work here."""
    path = program()
    version = re.search(r"Version: (\d+)", _said([path, "--version"]))
    if is_new and (version is None or int(version[1]) < NEW):
        raise DiskError(f"CRIU {NEW} or later is needed for processes with a GPU, and on a team's box")
    _said([path, "check"])
    return path


def can_save(*, of_others: bool = False) -> bool:
    """Whether this machine can write frozen processes to disk at all. `of_others`: those of other users, as whom CRIU
    runs with two capabilities."""
    held = int(re.findall(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)[0], 16)
    with suppress(DiskError):
        return bool(criu(is_new=of_others)) and (not of_others or held & OF_OTHERS == OF_OTHERS)
    return False


def dump(folder: Path, pid: int, pids: Collection[int], *, has_gpu: bool) -> None:
    """Writes the image of a process and its descendants, all of them `pids`, which stay as they are. Raises DiskError,
    and leaves nothing of an image that is not whole."""
    spec = marshal.loads((folder / "spec").read_bytes())
    if "engine" in spec:
        raise DiskError("containers of an engine stay in memory")
    if own := {name for each in pids for name in _own_namespaces(each)}:
        raise DiskError(OWN_NAMESPACE.format(", ".join(sorted(own))))
    if beside := _terminal(folder.parent, pids):
        raise DiskError(TERMINAL.format(beside))
    user = spec["user"]
    path, image, size = criu(is_new=has_gpu or bool(user)), folder / IMAGE, sum(map(memory_of, pids))
    shutil.rmtree(image, ignore_errors=True)
    if (free := shutil.disk_usage(folder).free) < size + SPARE_BYTES:
        takes, has, keeps = (amount >> 20 for amount in (size, free, SPARE_BYTES))
        raise DiskError(f"its memory takes {takes} MiB on disk, where {has} MiB are free and {keeps} MiB are kept free")
    image.mkdir(mode=0o700)
    pipes = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
    (image / "pipes").write_text("\n".join(pipes))
    (image / CLOCKS).write_bytes(marshal.dumps(_clocks(pid)))
    if user:
        os.chown(image, user["uid"], user["gid"])
    what = ["-t", str(pid), *_always(user), "--leave-stopped", "--ghost-limit", str(SPARE_BYTES // 4)]
    try:
        _said([path, "dump", *what], image, user, seconds=CALL_SECONDS + size * SECONDS_PER_BYTE)
        (image / SIZES).write_bytes(marshal.dumps(_sizes(image)))
    except DiskError:
        shutil.rmtree(image, ignore_errors=True)
        raise


def _always(user: object) -> list[str]:
    return ["-D", ".", "--manage-cgroups=ignore", "--file-locks", *(["--unprivileged"] if user else [])]


def _own_namespaces(pid: int) -> Iterator[str]:
    """Those in which it sees another part of the machine than we do, and so than a restore. The one for time is CRIU's:
    each restore makes it, so that clocks go on where they stood."""
    for place in Path("/proc/self/ns").glob("[!t]*"):
        with suppress(FileNotFoundError):  # it has ended
            if (seen := os.readlink(place)) != os.readlink(f"/proc/{pid}/ns/{place.name}"):
                yield seen.partition(":")[0]


def _terminal(place: Path, pids: Collection[int]) -> int:
    """The pid of a program with a terminal that runs beside these processes of a container, as one of their users or
    root: it ends with their shim, while a terminal that is among them comes back with them. 0 where there is none.
    `place`: of the attempts."""
    mark, users = os.fsencode(f"{MARK}={place}/"), {0, *map(_user, pids)}
    for each in {int(it) for it in os.listdir("/proc") if it.isdecimal()}.difference(pids):
        with suppress(OSError):
            if _user(each) not in users:
                continue  # any user may carry the mark
            is_marked = any(it.startswith(mark) for it in Path(f"/proc/{each}/environ").read_bytes().split(b"\0"))
            if is_marked and Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[4] != "0":
                return each
    return 0


def _user(pid: int) -> int:
    """The uid of who started a process, which a program like `su` keeps; -1 of one that is gone."""
    with suppress(OSError):
        found = re.search(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) if found else -1
    return -1


def memory_of(pid: int) -> int:
    """Bytes of a process in memory and in swap; 0 where it is gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        return sum(int(it) << 10 for it in re.findall(r"^Vm(?:RSS|Swap):\s+(\d+) kB", text, re.MULTILINE))
    return 0


def _sizes(image: Path) -> dict[str, int]:
    return {it.name: it.stat().st_size for it in image.iterdir()}


def restoring(folder: Path) -> dict[str, Any]:
    """What the shim is to do instead of starting the program: a command, and the pipes that its own stand in for.
    `tries`: how many of them failed; `why`: what CRIU said the last time. DiskError where no other try is worth it."""
    image = folder / IMAGE
    with suppress(FileNotFoundError):
        if lost := marshal.loads((image / SIZES).read_bytes()).items() - _sizes(image).items():
            raise DiskError(f"{min(lost)[0]} of its image is missing, or not whole")
    tries, why = int(text_of(image / TRIES) or 0), ""
    if (image / SAID).exists():
        why = words_of((image / SAID).read_text(errors="replace"))
        tries += not TAKEN.search(why)
        write_whole(image / TRIES, str(tries).encode())
    if tries >= MOST_TRIES:
        raise DiskError(why)
    for name in (SAID, PID):  # of the last try
        (image / name).unlink(missing_ok=True)
    user = marshal.loads((folder / "spec").read_bytes())["user"]
    command = [program(), "restore", *_always(user), "--restore-detached", "--restore-sibling", "--pidfile", PID]
    pipes = (image / "pipes").read_text().split("\n")
    return {"command": command, "pipes": pipes, "image": str(image), "said": str(image / SAID), "why": why,
            "tries": tries, "clocks": marshal.loads((image / CLOCKS).read_bytes())}  # fmt: skip


def _clocks(pid: int) -> list[float]:
    """What the clocks that count from the start of the machine show to a process, which may be set apart already."""
    apart = dict(line.split(maxsplit=1) for line in Path(f"/proc/{pid}/timens_offsets").read_text().splitlines())
    return [time.clock_gettime(clock) + float(apart[name].split()[0])
            for name, clock in (("monotonic", time.CLOCK_MONOTONIC), ("boottime", time.CLOCK_BOOTTIME))]  # fmt: skip


def _said(
    command: Sequence[str], place: Path | None = None, user: dict[str, Any] | None = None, *,
    seconds: float = CALL_SECONDS,
) -> str:
    """Its output, in the folder `place` and as `user`, where there is one. That is a file, not a pipe: what it dumps
    holds the other end, and keeps it where CRIU was killed."""
    with TemporaryFile("w+", errors="replace") as said:
        try:
            code = subprocess.run(command, stdout=said, stderr=said, timeout=seconds, env={"PATH": PLACES}, cwd=place,
                                  preexec_fn=user and partial(become_saver, user)).returncode  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise DiskError(f"`criu {command[1]}` took longer than {seconds:.0f} s") from error
        said.seek(0)
        text = said.read()
    if code:
        raise DiskError(f"`criu {command[1]}` failed: {words_of(text) if code > 0 else f'signal {-code}'}")
    return text


def words_of(said: str) -> str:
    """The first thing that went wrong. What follows from it comes later; that a limit stays as it is stops nothing."""
    found = re.findall(r"Error\b(?: \(\S+\))?: (?!rlimit: Can't setup)(.*)", said)
    return str(found[0]).strip() if found else "CRIU gave no reason"
