"""How the GPUs of this machine are used, by NVML: which compute, and which are held without computing.

A GPU is busy while a process on it computes: the driver counted some of the last seconds. One without a process is
idle, and so is one whose processes do nothing for LOOKS looks in a row. Where the driver does not tell, nothing is
said: that is unknown, not idle. The node says it in an annotation, which is written when it changes.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fairway.api.objects import GPU_USE
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

from .machine import opened

LOOK_SECONDS, LOOKS = 10.0, 3


@dataclass(frozen=True, slots=True)
class Use:
    """A device now: percent of the last second, bytes, and the processes that compute on it."""

    index: int
    percent: int
    memory: int
    total: int
    pids: tuple[int, ...]


def used() -> list[Use]:
    """The devices that tell; none without a driver."""
    if (nvml := opened()) is None:
        return []
    try:
        return [one for index in range(nvml.nvmlDeviceGetCount()) for one in _use(nvml, index)]
    finally:
        nvml.nvmlShutdown()


def _use(nvml: Any, index: int) -> Iterator[Use]:
    try:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory, percent = nvml.nvmlDeviceGetMemoryInfo(device), nvml.nvmlDeviceGetUtilizationRates(device).gpu
        pids = tuple(one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(device))
    except nvml.NVMLError:
        return  # a partitioned device does not tell
    yield Use(index, int(percent), int(memory.used), int(memory.total), pids)


@dataclass(slots=True)
class Looks:
    """What was seen lately. `quiet`: by device, how many looks ago it computed; `uses`: whether it is busy or idle."""

    quiet: dict[int, int] = field(default_factory=dict)
    uses: dict[int, str] = field(default_factory=dict)

    def said(self, seen: list[Use]) -> str:
        """The annotation: `0=busy,1=idle`."""
        self.uses = {}
        for one in seen:
            computes = bool(one.percent and one.pids)
            self.quiet[one.index] = 0 if computes else self.quiet.get(one.index, LOOKS) + 1
            is_busy = bool(one.pids) and self.quiet[one.index] < LOOKS
            self.uses[one.index] = "busy" if is_busy else "idle"
        return ",".join(f"{index}={use}" for index, use in self.uses.items())


Also = Callable[[list[Use]], Awaitable[None]]


async def watch(client: Client, name: str, looks: Looks, also: Also) -> None:
    """Tells on the node how its GPUs are used, and `also` at each look, until cancelled; ends where nothing tells."""
    told = ""
    if not await client.clock.in_thread(used):
        return

    async def look(_: str) -> float:
        nonlocal told
        seen = await client.clock.in_thread(used)
        await also(seen)
        said = looks.said(seen)
        if said != told:
            await client.patch(Ref(kinds.NODES, name), {"metadata": {"annotations": {GPU_USE: said}}})
            told = said
        return client.clock.now() + LOOK_SECONDS

    agenda = Agenda(client.clock, client.chance)
    agenda.note(name)
    await agenda.run(look)
