"""Memory pressure of this machine, as the condition MemoryPressure of its Node.

It begins when less than a twentieth of the memory is available (`MemAvailable`: free, or free at once), whatever the
pods requested, and ends when a tenth is: between the two it stays as it is. Fairway answers it by writing paused
workloads to disk, the one that is paused longest first.
"""

from collections.abc import Callable
from typing import Any

import psutil

from fairway.api.quantities import time_text
from fairway.kube import kinds
from fairway.kube.client import STRATEGIC, ApiError, Client
from fairway.kube.kinds import Ref

BEGINS, ENDS = 20, 10  # parts of the memory
LOOK_SECONDS = 5.0
WORDS = {True: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
         False: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")}  # fmt: skip


def is_short(available: int, total: int, *, was: bool) -> bool:
    """Whether memory is short with so many bytes available; `was`: whether it was short before."""
    return available * (ENDS if was else BEGINS) < total


def memory() -> tuple[int, int]:
    """Bytes of this machine that are available, and all."""
    found = psutil.virtual_memory()
    return found.available, found.total


async def watch_memory(client: Client, name: str, look: Callable[[], tuple[int, int]] = memory) -> None:
    """Keeps the condition of the Node true, until cancelled. It says False when this begins."""
    was = False
    while True:
        now = is_short(*look(), was=was)
        if now != was and await _tell(client, name, now):
            was = now
        await client.clock.sleep(LOOK_SECONDS)


async def _tell(client: Client, name: str, is_now: bool) -> bool:
    """Whether it is written; a server that does not answer is asked again at the next look."""
    reason, message = WORDS[is_now]
    moment = time_text(int(client.clock.now()))
    said: dict[str, Any] = {"type": "MemoryPressure", "status": str(is_now), "reason": reason, "message": message,
                            "lastHeartbeatTime": moment, "lastTransitionTime": moment}  # fmt: skip
    try:
        place, change = Ref(kinds.NODES, name), {"status": {"conditions": [said]}}
        await client.patch(place, change, subresource="status", form=STRATEGIC)
    except (ApiError, OSError):
        return False
    return True
