"""Gives back the memory that is not used any more.

Objects of a few hundred bytes to some kilobytes come and go by the thousand, between others that stay. What was theirs
is free, and the C library keeps it: after 8,000 jobs a third of its heap. `malloc_trim` returns each page that holds
nothing, in half a millisecond where there is little. A C library that has no such function does as it likes.

What decisions leave behind refers to itself in part, and waits for Python's collector, which looks at old objects when
a quarter has come to them: some 10 MiB after many jobs. So it is asked to look, which takes a tenth of a second, when
little is written for a while after much was.
"""

import ctypes
import gc
from collections.abc import Callable
from functools import partial

from fairway.clock import Clock

PAUSE_SECONDS = 5.0
MANY, FEW = 5_000, 20  # writes: of some 500 jobs; of leases and heartbeats in a pause


async def give_back(clock: Clock, revision: Callable[[], int]) -> None:
    """Until cancelled; a while after something was written, as `revision` tells."""
    trim, seen = getattr(ctypes.CDLL(None), "malloc_trim", None), -1
    collected = revision()
    while trim is not None:
        await clock.sleep(PAUSE_SECONDS)
        before, seen = seen, revision()
        if seen - before < FEW and seen >= collected + MANY:
            collected = seen
            gc.collect()
        if seen != before:
            await clock.in_thread(partial(trim, 0))
