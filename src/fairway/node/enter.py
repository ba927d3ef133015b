"""Runs a command in the place of a container: its namespaces, directory and environment. `up` starts it for each exec:
`python -I -S -E enter.py FD`; the pipe FD has the order. It imports nothing of ours, and becomes the command.
"""

import ctypes
import fcntl
import marshal
import os
import signal
import sys
import termios
from importlib.machinery import SourceFileLoader

NOT_FOUND, NOT_RUN, SUBREAPER = 127, 126, 36


def beside(name):
    """The file of that name in this folder, as a module."""
    module = type(os)(name)
    SourceFileLoader(name, os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")).exec_module(module)
    return module


enclosure = beside("enclosure")


def main():
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = marshal.load(file)
    os.setsid()
    if order["is_terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        enclosure.enter_cgroups(order["cgroups"])
        join(order["pid"], order["user"])
        enclosure.end_with_parent()  # last: a change of user would clear it
        if order["adopts"]:
            enclosure.libc.prctl(SUBREAPER, 1, 0, 0, 0)  # an engine's monitor, below which its command is found
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order["folder"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f'exec: "{order["argv"][0]}": {error.strerror}\n'.encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)


def join(pid, user):
    """Becomes the user in the namespaces of a process in which it is not yet, and in its root; 0: of none. A user
    namespace that a program made for itself is its user's, so it is never entered as root."""
    places = [f"/proc/{pid}/ns/{name}" for name in ("user", "mnt")] if pid else []
    others = [it for it in places if os.readlink(it) != os.readlink(it.replace(str(pid), "self", 1))]
    is_own = bool(others) and others[0] == places[0]
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY) if others else -1
    files = [os.open(it, os.O_RDONLY) for it in others]
    if is_own:
        enclosure.become(user)
    for file in files:
        if enclosure.libc.setns(file, 0):
            raise OSError(ctypes.get_errno(), f"its namespaces: {os.strerror(ctypes.get_errno())}")
        os.close(file)
    if others:
        os.chdir(root)
        os.chroot(".")
        os.close(root)
    if not is_own:
        enclosure.become(user)


if __name__ == "__main__":
    main()
