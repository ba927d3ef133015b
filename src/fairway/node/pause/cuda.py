"""GPU memory of a process to host memory and back, by the checkpoint calls of the CUDA driver (570 or later).

One process calls them for another, by its pid. A process is running, locked (no GPU work goes on, none begins),
checkpointed (its GPU memory is in host memory, its GPUs are free) or failed. Every call can fail; what a driver answers
is told by its own name for it.
"""

import ctypes
from typing import NoReturn

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
LIBRARY = "libcuda.so.1"
MISSING = "the CUDA driver has no checkpoint calls: version 570 or later is needed"


class CudaError(Exception):
    """What a call of the driver answered: one line."""


class LockArguments(ctypes.Structure):
    """CUcheckpointLockArgs."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class Arguments(ctypes.Structure):
    """The arguments of the other calls: nothing is to be said."""

    _fields_ = (("reserved", ctypes.c_uint64 * 8),)


class Cuda:
    def __init__(self, library: str = LIBRARY) -> None:
        """Loads the driver; CudaError where there is none that can do it."""
        try:
            self._library = ctypes.CDLL(library)
            self._library.cuCheckpointProcessLock  # noqa: B018 -- looked up, not called
        except OSError as error:
            raise CudaError(f"{library} cannot be loaded: {error}") from error
        except AttributeError as error:
            raise CudaError(MISSING) from error
        self._library.cuInit(0)

    def state(self, pid: int) -> int:
        """One of the four; CudaError for a process without CUDA."""
        found = ctypes.c_int()
        self._call("GetState", pid, ctypes.byref(found))
        return found.value

    def lock(self, pid: int, timeout: float) -> None:
        """Stops its GPU work; fails where that does not end within `timeout` seconds."""
        self._call("Lock", pid, ctypes.byref(LockArguments(timeout_ms=int(timeout * 1000))))

    def checkpoint(self, pid: int) -> None:
        self._call("Checkpoint", pid, ctypes.byref(Arguments()))

    def restore(self, pid: int) -> None:
        self._call("Restore", pid, ctypes.byref(Arguments()))

    def unlock(self, pid: int) -> None:
        self._call("Unlock", pid, ctypes.byref(Arguments()))

    def _call(self, name: str, pid: int, argument: object) -> None:
        code = getattr(self._library, f"cuCheckpointProcess{name}")(ctypes.c_int(pid), argument)
        if code:
            self._fail(name, pid, code)

    def _fail(self, name: str, pid: int, code: int) -> NoReturn:
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(text))
        raise CudaError(f"cuCheckpointProcess{name} of process {pid}: {(text.value or str(code).encode()).decode()}")
