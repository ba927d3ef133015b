"""A command beside the process of a running container, in its place (enter.py), with its output as it comes.

It is a session of its own. It ends with the container, and with whoever asked for it: then all of its session get
SIGHUP and, a moment later, SIGKILL. In a container it is no child of the engine's client, which hands on no signal,
but of a monitor that the client adopts; without its command the client ends by itself.
"""

import asyncio
import fcntl
import marshal
import os
import signal
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from fairway.clock import Clock

from .attended import entered
from .container import Attempt
from .containers.engine import beside
from .pause.freezer import children

ENTER = Path(__file__).with_name("enter.py")
STDOUT, STDERR = 1, 2
CHUNK_BYTES, CHUNKS = 32 << 10, 8
HANGUP_SECONDS, DRAIN_SECONDS, LOOK_SECONDS = 2.0, 1.0, 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run; without arguments, the command of a container that is attended. `has_input`: it reads
    standard input; without, that is empty."""

    argv: Sequence[str]
    has_input: bool = False
    is_terminal: bool = False


class Execution:
    """A command that runs. `output` has what it writes; then `code` is its exit code."""

    def __init__(self, run: Attempt, order: Order, clock: Clock) -> None:
        self.order, self.clock, self.code = order, clock, 0
        self._input, self._outputs, ends = _channels(order)
        try:
            self._process, self._has_monitor = _entered(run, order, ends)
        finally:
            for end in set(ends):
                os.close(end)
        self._container = os.pidfd_open(run.pid)
        self._ended = asyncio.Event()
        self._queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(CHUNKS)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Stream and text, until the command has ended and its output with it."""
        reading = [asyncio.create_task(self._read(stream, file)) for stream, file in self._outputs.items()]
        waiting = asyncio.create_task(self._wait())
        ending = asyncio.create_task(self._end(waiting, reading))
        try:
            while not (ending.done() and self._queue.empty()):
                getting = asyncio.create_task(self._queue.get())
                try:
                    await asyncio.wait([getting, ending], return_when=asyncio.FIRST_COMPLETED)
                    if getting.done():
                        yield getting.result()
                finally:
                    getting.cancel()
        finally:
            # A client that is gone may have its request cancelled a second time: the command ends all the same.
            await asyncio.shield(asyncio.create_task(self._finish(*reading, waiting, ending)))

    async def _finish(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._hang_up()
        for file in {*self._outputs.values(), self._container, *([self._input] if self._input >= 0 else [])}:
            os.close(file)

    async def _read(self, stream: int, file: int) -> None:
        while True:
            await _ready(file)
            try:
                text = os.read(file, CHUNK_BYTES)
            except OSError:  # how a terminal ends
                return
            if not text:
                return
            await self._queue.put((stream, text))

    async def _wait(self) -> None:
        """Until the command has ended; it does not outlive its container."""
        process = os.pidfd_open(self._process.pid)
        try:
            waits = [asyncio.ensure_future(_ready(it)) for it in (process, self._container)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for it in waits:
                    it.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
            if self._process.poll() is None:
                await self._hang_up()
        finally:
            os.close(process)
        code = self._process.wait()
        self.code = 128 - code if code < 0 else code

    async def _end(self, waiting: asyncio.Task[None], reading: Sequence[asyncio.Task[None]]) -> None:
        """What the command left running may hold its output open; that is not waited for."""
        await waiting
        await asyncio.wait(reading, timeout=DRAIN_SECONDS)

    async def write(self, text: bytes) -> None:
        """To its standard input; waits while it does not read."""
        while text and self._input >= 0:
            await _ready(self._input, to_write=True)
            try:
                text = text[os.write(self._input, text) :]
            except BlockingIOError:
                continue
            except OSError:  # it does not read any more
                return

    async def end_input(self) -> None:
        if self.order.is_terminal:
            await self.write(b"\x04")
        elif self._input >= 0:
            os.close(self._input)
            self._input = -1

    def resize(self, width: int, height: int) -> None:
        if self.order.is_terminal:
            with suppress(OSError):
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def _hang_up(self) -> None:
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self._process.poll() is not None and number == signal.SIGKILL:
                return
            own = {self._process.pid} if number == signal.SIGKILL else set()
            for process in _of_sessions(self._leaders() | own):
                with suppress(psutil.Error):
                    process.send_signal(number)
            left = HANGUP_SECONDS
            while self._process.poll() is None and left > 0:
                await self.clock.sleep(LOOK_SECONDS)
                left -= LOOK_SECONDS

    def _leaders(self) -> set[int]:
        """Of the sessions that are to end."""
        client = self._process.pid
        below = {it for monitor in children(client) for it in children(monitor)} if self._has_monitor else set()
        return below or {client}


def _channels(order: Order) -> tuple[int, dict[int, int], list[int]]:
    """Our end of the input (-1: none), our ends of the outputs by stream, and the command's three ends."""
    if order.is_terminal:
        ours, its = os.openpty()
        os.set_blocking(ours, False)
        return ours, {STDOUT: ours}, [its, its, its]
    (out, out_w), (err, err_w) = os.pipe(), os.pipe()
    read, write = os.pipe() if order.has_input else (os.open(os.devnull, os.O_RDONLY), -1)
    if order.has_input:
        os.set_blocking(write, False)
    return write, {STDOUT: out, STDERR: err}, [read, out_w, err_w]


def _entered(run: Attempt, order: Order, ends: Sequence[int]) -> tuple["subprocess.Popen[bytes]", bool]:
    """Its process, and whether that is an engine's client."""
    spec = marshal.loads((run.folder / "spec").read_bytes())
    env = spec["env"] | ({"TERM": spec["env"].get("TERM", "xterm")} if order.is_terminal else {})
    pid = next(iter(children(run.pid)), 0) if spec["mounts"] or spec.get("hosts") or spec.get("hidden") else 0
    argv = list(order.argv) or entered(spec.get("inside", spec["argv"]))
    if "beside" in spec:
        argv = beside(spec, argv, is_terminal=order.is_terminal)
    said = {"pid": pid, "env": env, "folder": spec["folder"], "argv": argv,
            "is_terminal": order.is_terminal, "user": spec.get("user"),
            "cgroups": spec.get("cgroups", ()), "adopts": "beside" in spec}  # fmt: skip
    if said["user"]:
        _give(ends, said["user"])
    read, write = os.pipe()
    # Some builds of Python find their own library only by this variable.
    own = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", str(ENTER), str(read)], env=own, pass_fds=[read],
            stdin=ends[0], stdout=ends[1], stderr=ends[2],
        )  # fmt: skip
    finally:
        os.close(read)
    with os.fdopen(write, "wb") as file, suppress(BrokenPipeError):
        file.write(marshal.dumps(said))
    return process, said["adopts"]


def _give(ends: Sequence[int], user: Mapping[str, int]) -> None:
    """Pipes and terminals to who is to open them by name; not the machine's /dev/null."""
    for end in ends:
        if stat.S_ISFIFO(os.fstat(end).st_mode) or os.isatty(end):
            os.fchown(end, user["uid"], user["gid"])


def _of_sessions(leaders: Collection[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) in leaders:
                found.append(process)
    return found


async def _ready(file: int, *, to_write: bool = False) -> None:
    """Returns when a file can be read from, or written to."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(file, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        remove(file)
