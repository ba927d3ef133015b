"""What the processes of containers do on this machine, found through their shims: what they use, where they listen."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Use:
    """`cpu`: seconds of CPU since its processes began, of those that live; `memory`: resident bytes."""

    cpu: float
    memory: int


def processes(shims: Iterable[int]) -> Iterator[psutil.Process]:
    """All that run under these shims, the shims apart."""
    for shim in shims:
        with suppress(psutil.Error):
            yield from psutil.Process(shim).children(recursive=True)


def listening(shims: Iterable[int]) -> dict[int, str]:
    """TCP port → the address at which a process under these shims listens there; ANY has those that stand for all."""
    found: dict[int, str] = {}
    for process in processes(shims):
        with suppress(psutil.Error, OSError):
            for it in process.net_connections("tcp"):
                if it.status == psutil.CONN_LISTEN and it.laddr:
                    found.setdefault(it.laddr.port, it.laddr.ip)
    return found


def used_by_all() -> Use:
    """What the whole machine has used since it was booted, and what it holds of its memory."""
    times, memory = psutil.cpu_times(), psutil.virtual_memory()
    return Use(sum(times) - times.idle - times.iowait, memory.total - memory.available)


def used(shims: Iterable[int]) -> Use:
    cpu, memory = 0.0, 0
    for process in processes(shims):
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            cpu += times.user + times.system
            memory += process.memory_info().rss
    return Use(cpu, memory)
