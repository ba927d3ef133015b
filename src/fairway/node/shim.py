"""The shim: the small parent of one container. Shims are forked by the nursery, a program of its own
(`python -I -S -E shim.py`), since starting Python costs more than all a shim does.

It outlives Fairway, so what must not be lost is its work: it holds the lock of its folder, starts the container,
writes the log, and writes `exit` before it goes. Fairway reads the folder and sends one signal, SIGTERM, which means
"look at `stop`". The rules:
- *At most once.* The lock first, then `started`, which only one shim can make, then the process. So an `exit` tells
  the truth; `started` without lock and `exit` means lost; without `started` nothing ran. What comes back from disk is
  frozen: there `started` follows the restore, and the image goes last, so that a restore that fails can be repeated.
- *Out of memory* is what a failure means that nobody asked for, where the kernel counted such a kill in its cgroup.
  Without a cgroup of its own SIGKILL means it, where the kernel counted such a kill anywhere while it ran.
- *Nothing stays behind.* The shim is the reaper of all its descendants and kills what is left when the first process
  ends; the first process dies with the shim.
- *Pausing is asked in a file* (`pause`), and done by a program of its own (pause/freezer.py), so that no step of it can
  hang the shim. What is asked to stop goes on first.
- *Stopping is asked in a file* (`stop`: seconds of grace, and why): it can be asked again, or before the start. The
  process group gets SIGTERM once and, after the grace, SIGKILL; a shorter grace asked later counts.

The nursery gets on its standard input, a socket, the folders of attempts, each with the pipe that the shim is to close
when its process runs, or never will. It ends when Fairway does; the shims stay. It imports nothing of ours. On a team's
box it is root's, and so are folders and logs; only the container's process is its user's (enclosure.py).
"""

import ctypes
import fcntl
import marshal
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from importlib.machinery import SourceFileLoader

FILE_BYTES, FILES = 10 << 20, 4
PATH_BYTES = SPARE_BYTES = 4096
PARTIAL_BYTES, MESSAGE_BYTES = 16 << 10, 4000
OF_CLIENT = (125, 126, 127)  # what the client of an engine ends with where it could not run a container
SUBREAPER = 36

ROOT = os.path.abspath(f"{__file__}/../../..")
FREEZER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fairway.node.pause.freezer import main; main()"

libc = ctypes.CDLL(None, use_errno=True)


def beside(name):
    """The file of that name in this folder, as a module."""
    module = type(os)(name)
    SourceFileLoader(name, os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")).exec_module(module)
    return module


enclosure = beside("enclosure")


class Log:
    """Lines as container runtimes write them: time, stream, F or P (the line goes on), text. A file is named after what
    came before it, in bytes and lines: `log.<bytes>.<lines>`. When it is full the next one follows and the oldest is
    removed, always between two lines. On a full disk lines are lost and the container runs on; the next file has
    `.lost` at the end of its name. So a reader finds every gap, and how much is missing."""

    def __init__(self, folder):
        self.folder, self.rest, self.files = folder, {"stdout": b"", "stderr": b""}, []
        self.bytes = self.lines = self.start = 0
        self.file, self.suffix, self.last = None, "", b""
        self.open()

    def open(self):
        """The next file; None where the disk has no room for it."""
        path = f"{self.folder}/log.{self.bytes:016d}.{self.lines:012d}{self.suffix}"
        try:
            self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        except OSError:
            return
        self.start, self.suffix = self.bytes, ""
        self.files.append(path)
        if len(self.files) > FILES:
            os.unlink(self.files.pop(0))

    def close(self):
        os.close(self.file)
        self.file = None

    def add(self, stream, chunk):
        *lines, rest = (self.rest[stream] + chunk).split(b"\n")
        self.rest[stream] = rest
        if lines:
            self.write(stream, b"F", lines)
        if len(rest) >= PARTIAL_BYTES:
            self.rest[stream] = b""
            self.write(stream, b"P", [rest])

    def finish(self):
        for stream, rest in self.rest.items():
            if rest:
                self.write(stream, b"P", [rest])
        if self.suffix:
            self.open()  # tells that the end is missing

    def write(self, stream, mark, lines):
        self.last = lines[-1]
        if self.file is None:
            self.open()
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        head = b"%s.%09dZ %s %s " % (moment.encode(), nanos, stream.encode(), mark)
        text = b"".join([head + line + b"\n" for line in lines])
        kept = self.put(text) if self.file is not None else 0
        if kept < len(text):
            self.suffix = ".lost"
            if self.file is not None and self.bytes + kept == self.start:  # it is empty
                os.unlink(self.files.pop())
        self.bytes += len(text)
        self.lines += len(lines)
        if self.file is not None and (self.suffix or self.bytes - self.start > FILE_BYTES):
            self.close()

    def put(self, text):
        """How much of it was written: all, or the first whole lines."""
        try:
            written = os.write(self.file, text)
        except OSError:
            return 0
        if written < len(text):
            written = text.rfind(b"\n", 0, written) + 1
            os.ftruncate(self.file, self.bytes - self.start + written)
        return written


def main():
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims need no burial
    asked = socket.socket(fileno=0)
    while True:
        folder, pipes, _, _ = socket.recv_fds(asked, PATH_BYTES, 1)
        if not folder:
            return
        if not os.fork():
            try:
                asked.close()
                shim(os.fsdecode(folder), *pipes)
            except BaseException:
                traceback.print_exc()
            os._exit(0)  # at once: an interpreter that tidies up would hold back the news
        os.close(*pipes)


def shim(folder, told):
    os.setsid()
    os.set_inheritable(told, False)
    errors = os.open(f"{folder}/shim", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    lock = os.open(f"{folder}/lock", os.O_CREAT | os.O_RDWR, 0o600)
    with open(f"{folder}/spec", "rb") as file:
        spec = marshal.load(file)
    child, error = 0, ""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        libc.prctl(SUBREAPER, 1, 0, 0, 0)
        if "restore" in spec and not os.path.exists(f"{folder}/started"):
            child, pipes = restore(spec, wake, folder)
            if not child:
                return
        begun = time.time_ns()
        write(f"{folder}/started", str(begun), only=True)
    except (BlockingIOError, FileExistsError):
        return
    with suppress(OSError):
        keep_room(f"{folder}/exit")
    log, before = Log(folder), oom_kills()
    if not child:
        child, pipes, error = start(spec, wake, folder)
    os.close(told)
    stop = Stop(folder, child, spec)
    if "restore" in spec:
        for entry in os.scandir(spec["restore"]["image"]):
            os.unlink(entry.path)
        stop.pause.wake()
    code, why = attend(stop, wake, pipes, log)
    why = why or (stop.pause.end() if code else "")
    reason, _, message = error.partition("\n")
    if stop.fault and not why:
        reason, message = stop.fault, log.last.decode(errors="replace").removeprefix("Error: ")[:MESSAGE_BYTES]
    if reason:
        code = 128
    elif code and not why:
        reason, message = want_of_memory(spec["cgroups"], code, before)
    leave(spec["cgroups"])
    write(f"{folder}/exit", f"{code} {begun} {time.time_ns()} {why or '-'} {reason or '-'}\n{message}")


def oom_kills():
    """How many processes the kernel has killed for want of memory since it was booted, in any cgroup."""
    return kills_in("/proc/vmstat") or 0


def want_of_memory(cgroups, code, before):
    """The reason and message of a death for want of memory. Its own cgroups know; where none counts such kills, a
    SIGKILL may be one if there was one anywhere."""
    kills = [kills_in(f"{each}/{name}") for each in cgroups for name in ("memory.events", "memory.oom_control")]
    counted = [it for it in kills if it is not None]
    if any(counted):
        return "OOMKilled", "The kernel killed it for want of memory."
    may_be = not counted and code == 128 + signal.SIGKILL and oom_kills() > before
    return "", "killed by SIGKILL, perhaps for want of memory" if may_be else ""


def kills_in(path):
    try:
        with open(path, "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), None)
    except OSError:
        return None


def leave(cgroups):
    """A command beside the container may be in them for a moment yet; then they are removed with the pod."""
    for each in cgroups:
        with suppress(OSError):
            os.rmdir(each)


def write(path, text, only=False):
    """The whole file or none of it; with `only`, FileExistsError where there is one."""
    draft = f"{path}.{os.getpid()}"
    file = os.open(draft, os.O_CREAT | os.O_WRONLY, 0o600)
    os.ftruncate(file, os.write(file, text.encode()))
    os.close(file)
    try:
        (os.link if only else os.rename)(draft, path)
    finally:
        if only:
            os.unlink(draft)


def keep_room(path):
    """The draft of a file that is to be written, as large as it may become: its program may fill the disk."""
    file = os.open(f"{path}.{os.getpid()}", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(file, bytes(SPARE_BYTES))
    os.close(file)


def start(spec, wake, folder):
    """The child's pid, the read ends of its output, and why it could not start (empty if it did). What the user names
    may keep the child waiting, as a file system of the network does: it is killed where it is to stop by then."""
    (out, out_w), (err, err_w), (told, tell) = os.pipe(), os.pipe(), os.pipe()
    shim = os.getpid()
    child = os.fork()
    if not child:
        try:
            become(spec, shim, out_w, err_w)
        except BaseException as error:
            reason = "CreateContainerConfigError" if isinstance(error, enclosure.Refused) else "StartError"
            os.write(tell, f"{reason}\n{error}".encode()[:MESSAGE_BYTES])
        os._exit(128)
    for end in (out_w, err_w, tell):
        os.close(end)
    while told not in select.select([told, wake], (), ())[0]:
        os.read(wake, 256)
        if os.path.exists(f"{folder}/stop"):
            os.kill(child, signal.SIGKILL)
    with os.fdopen(told, "rb") as file:
        error = file.read().decode(errors="replace")
    return child, {out: "stdout", err: "stderr"}, error


def restore(spec, wake, folder):
    """As `start`, of processes that are on disk: they are our children again, and write to our pipes. The child is 0
    where that failed, or it is to stop by then; CRIU says why in the file `said`."""
    (out, out_w), (err, err_w), plan = os.pipe(), os.pipe(), spec["restore"]
    said = os.open(plan["said"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    command = list(plan["command"])
    give(spec["user"], out_w, err_w)
    for end, pipe in zip((out_w, err_w), plan["pipes"]):
        os.set_inheritable(end, True)
        command += ["--inherit-fd", f"fd[{end}]:{pipe}"]
    criu = os.fork()
    if not criu:
        try:
            enclosure.enter_cgroups(spec["cgroups"])
            os.chdir(plan["image"])
            if spec["user"]:
                enclosure.turn_clocks(plan["clocks"])
            enclosure.become_saver(spec["user"])
            enclosure.end_with_parent()
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.execve(command[0], command, plan["env"])
        except OSError as error:
            os.write(said, f"Error: {error}".encode())
        os._exit(1)
    while not (ended := os.waitpid(criu, os.WNOHANG))[0]:
        os.read(wake, 256)
        if os.path.exists(f"{folder}/stop"):
            os.kill(criu, signal.SIGKILL)
    for end in (out_w, err_w, said):
        os.close(end)
    if ended[1]:
        kill_rest()
        return 0, {}
    with open(f"{plan['image']}/pid", encoding="ascii") as file:
        return int(file.read()), {out: "stdout", err: "stderr"}


def give(user, *ends):
    """So that the user may open /dev/stdout, and CRIU the pipe that it inherits."""
    for end in ends if user else ():
        os.fchown(end, user["uid"], user["gid"])


def become(spec, shim, out, err):
    os.setsid()
    user = spec["user"]
    give(user, out, err)
    enclosure.enclose(spec)
    enclosure.become(user)
    enclosure.end_with_parent()  # last: a change of user would clear it
    if os.getppid() != shim:
        os._exit(137)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(spec["folder"])
    except OSError as error:
        raise OSError(f"the folder {spec['folder']} cannot be entered: {error.strerror}") from error
    try:
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        raise OSError(f'exec: "{spec["argv"][0]}": {error.strerror}') from error


def attend(stop, wake, pipes, log):
    """Copies output and minds signals until the child has ended and nothing of it is left: exit code, why stopped."""
    poll = select.poll()
    for fd in (wake, *pipes):
        poll.register(fd, select.POLLIN)
    stop.look()
    code = reap(stop)
    while code is None:
        for fd, _ in poll.poll():
            if fd == wake:
                numbers = os.read(wake, 256)
                code = reap(stop)
                if code is None:
                    stop.mind(numbers)
            elif not copy(fd, pipes[fd], log):
                poll.unregister(fd)
    stop.clear(code)
    kill_rest()
    for fd, stream in pipes.items():
        os.set_blocking(fd, False)
        while copy(fd, stream, log):
            pass
    log.finish()
    return code, stop.why or (stop.asked()[1] if code else "")


def copy(fd, stream, log):
    try:
        chunk = os.read(fd, 1 << 16)
    except BlockingIOError:
        return False
    if chunk:
        log.add(stream, chunk)
    return bool(chunk)


class Pause:
    """Has what `pause` asks for done, once for each text of it; again where the freezer was killed."""

    def __init__(self, folder):
        self.folder, self.seen, self.freezer = folder, "", 0

    def look(self):
        if self.freezer and os.path.exists(f"/proc/{self.freezer}"):
            return  # it looks again itself; its end wakes us
        self.freezer, text = 0, self.asked()
        if text != self.seen:
            self.seen = text
            command = [sys.executable, "-I", "-S", "-E", "-c", FREEZER, ROOT, self.folder, str(os.getpid())]
            self.freezer = os.posix_spawn(command[0], command, os.environ)

    def asked(self):
        try:
            with open(f"{self.folder}/pause", encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def ask_again(self):
        """The same may be asked a second time while a freezer that failed at it is about to end."""
        if self.freezer:
            self.seen = None

    def wake(self):
        """What came back from disk is frozen yet, as `paused` says."""
        self.seen = None
        self.look()

    def end(self):
        """What ended processes that stood still: they went to disk, or were killed, which is no failure of theirs."""
        with suppress(FileNotFoundError), open(f"{self.folder}/paused", encoding="utf-8") as file:
            return {"3": "NotWoken", "4": "OnDisk"}.get(file.read(1), "")
        return ""

    def lift(self):
        """Nothing is to be frozen any more."""
        if self.asked():
            os.unlink(f"{self.folder}/pause")
        self.look()


class Stop:
    """What `stop` asks for, done once."""

    def __init__(self, folder, child, spec):
        self.path, self.child, self.why, self.pause = f"{folder}/stop", child, "", Pause(folder)
        self.remove, self.began, self.env, self.fault = spec.get("remove"), spec.get("began"), spec["env"], ""

    def asked(self):
        """Seconds of grace, and why; why is empty where nothing asks. One that fails right then was asked, too: it may
        fail because another of its gang was stopped a moment earlier."""
        try:
            with open(self.path, encoding="ascii") as file:
                return file.read().split()
        except FileNotFoundError:
            return "0", ""

    def clear(self, code):
        """What an engine runs would go on where only its client was killed."""
        if self.remove:
            self.fault = fault(self.began, self.env) if code in OF_CLIENT else ""
            os.waitpid(os.posix_spawn(self.remove[0], self.remove, self.env), 0)

    def look(self):
        seconds, why = self.asked()
        if not why:
            return
        if not self.why:
            self.why = why
            send(self.child, signal.SIGTERM)
            self.pause.lift()
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        grace = max(float(seconds), 1e-3)
        if not left or grace < left:
            signal.setitimer(signal.ITIMER_REAL, grace)

    def mind(self, numbers):
        if signal.SIGTERM in numbers:
            self.look()
            self.pause.ask_again()
        if signal.SIGALRM in numbers:
            send(self.child, signal.SIGKILL)
        self.pause.look()


def fault(began, env):
    """Why an engine's container never ran, as the engine tells once its client has ended; "" where the program did,
    and the exit code is its own."""
    read, write = os.pipe()
    asked = os.posix_spawn(began[0], began, env, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read()
    is_absent = os.waitpid(asked, 0)[1]
    return "CreateContainerError" if is_absent else "StartError" if said.startswith(b"true") else ""


def send(child, number):
    """To the child's process group; to the child alone while it has not made its group yet."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        os.kill(child, number)


def reap(stop):
    """Buries the dead; the exit code of the child if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not pid:
            return code
        if pid == stop.pause.freezer and os.WIFSIGNALED(status):
            stop.pause.seen = None
        if pid == stop.child:
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code


def kill_rest():
    """Descendants that lost their parent are our children now, and so in turn are theirs."""
    me = os.getpid()
    try:
        while True:
            with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, FileNotFoundError):
        return


if __name__ == "__main__":
    main()
