"""What the C library keeps is given back."""

import asyncio
import ctypes
import gc
import platform
from itertools import count

import pytest

from fairway.clock import Clock
from fairway.embedded import heap

PIECE, PIECES = 1 << 12, 20_000


class Quick(Clock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def resident() -> int:
    """Bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory in its own way")
async def test_what_is_free_between_objects_that_stay_is_given_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pieces = [libc.malloc(PIECE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(ctypes.c_void_p(piece), 1, PIECE)
    for at, piece in enumerate(pieces):
        if at % 50:
            libc.free(piece)
    held, revision = resident(), count()
    giving = asyncio.create_task(heap.give_back(Quick(), lambda: next(revision)))
    while resident() > held - PIECE * PIECES // 2:
        await asyncio.sleep(0.01)
    giving.cancel()
    for piece in pieces[::50]:
        libc.free(piece)


async def test_what_refers_to_itself_is_collected_at_rest_after_many_writes() -> None:
    class Ring:
        def __init__(self) -> None:
            self.itself = self

    def left() -> int:
        return sum(isinstance(one, Ring) for one in gc.get_objects())

    gc.disable()
    written = [0]
    giving = asyncio.create_task(heap.give_back(Quick(), lambda: written[0]))
    await asyncio.sleep(0.01)
    Ring()
    written[0] += heap.MANY - 1
    await asyncio.sleep(0.1)
    before = left()
    written[0] += 1
    await asyncio.sleep(0.1)
    giving.cancel()
    gc.enable()
    assert (before, left()) == (1, 0)
