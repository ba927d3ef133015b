"""Gives back the memory that the C library keeps.

Objects of a few hundred bytes to some kilobytes come and go by the thousand, between others that stay. What was theirs
is free, and the C library keeps it: after 8,000 jobs a third of its heap. `malloc_trim` returns each page that holds
nothing, in half a millisecond where there is little. A C library that has no such function does as it likes.
"""

import ctypes
from collections.abc import Callable
from functools import partial

from fairway.clock import Clock

PAUSE_SECONDS = 5.0


async def give_back(clock: Clock, revision: Callable[[], int]) -> None:
    """Until cancelled; a while after something was written, as `revision` tells."""
    trim, seen = getattr(ctypes.CDLL(None), "malloc_trim", None), -1
    while trim is not None:
        await clock.sleep(PAUSE_SECONDS)
        if (now := revision()) != seen:
            seen = now
            await clock.in_thread(partial(trim, 0))
