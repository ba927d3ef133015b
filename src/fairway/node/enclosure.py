"""What a process does to itself before it becomes a container's program, or a command beside: cgroups, mounts, user.

Where `user` is set, this process is root's and the program is that user's. Then:
- Every path that the pod names is opened, and made where it is absent, with the user's rights alone. What is opened
  is what is mounted: nothing can be exchanged in between.
- All that is mounted is opened before the first mount, and nothing is imported or read by name between that and the
  change of user: the user decides what lies there, even at /proc. So we stand in /proc and name open files from there.
- A folder that others may exchange is covered, and made in, as an open file; what is made as root lies in memory.
- A program with mounts gains no rights by what it executes (no_new_privs): it could have covered /etc for a setuid one.
Without `user` all is done as who we are. The file imports nothing of ours; shim.py and enter.py load it by its path.
"""

import ctypes
import os
import resource
import signal
import stat
import struct
import time

NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
BIND, REC, SLAVE, REMOUNT, READ_ONLY, MOVE = 0x1000, 0x4000, 0x80000, 0x20, 0x1, 0x2000
CLOSED = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC  # as flags of a mount they are the same bits
DEATH_SIGNAL, KEEP_CAPABILITIES, NO_NEW_PRIVILEGES, AMBIENT, RAISE = 1, 8, 38, 47, 2
CAPABILITIES = 0x20080522  # the version of the two words of each set
SETPCAP, CHECKPOINT_RESTORE = 8, 40  # each the bit 8 of its word
NEW_CLOCKS = 0x80
ACCESS = "system.posix_acl_access"

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The container cannot be set up as it asks."""


def end_with_parent():
    """From now on this process is killed when its parent ends; a change of user clears that."""
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def enclose(spec):
    """The cgroups of a container, and its files in a namespace of its own; see volumes.py for what a mount is."""
    enter_cgroups(spec["cgroups"])
    user = spec["user"]
    if user:
        os.setgroups(user["groups"])
    hosts = spec.get("hosts")
    if spec["mounts"] or spec["hidden"]:
        enter_namespace()
    elif hosts and not may_enter():
        hosts = ""
    if hosts:
        mount(hosts, "/etc/hosts", BIND)
    if spec["mounts"] or spec["hidden"]:
        mirrors = Mirrors(user, spec["scratch"])
        mirrors.hide(spec["hidden"])
        for place, each in [(source_of(each, user), each) for each in spec["mounts"]]:
            bind(place, each, mirrors)


def may_enter():
    """Names of Services alone are no reason to refuse a container where the system allows no namespace."""
    try:
        enter_namespace()
    except Refused:
        return False
    return True


def enter_cgroups(cgroups):
    for each in cgroups:
        with open(f"{each}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")


def become(user):
    """Gives up all that the user may not; nothing is done where there is none."""
    if not user:
        return
    bounds = (user.get("processes", -1), *resource.getrlimit(resource.RLIMIT_NPROC))
    most = min((it for it in bounds if it >= 0), default=-1)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    if user["is_bound"]:
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def become_saver(user):
    """For CRIU, which opens, makes and removes all that the user's processes had open: with the user's rights, and two
    that reach no file. One lets it choose pids, the other give up what the processes may never gain."""
    if not user:
        return
    libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups(user["groups"])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    if libc.capset(struct.pack("Ii", CAPABILITIES, 0), struct.pack("6I", *[1 << SETPCAP] * 6)):
        raise OSError(ctypes.get_errno(), "the capabilities that CRIU needs")
    for each in (SETPCAP, CHECKPOINT_RESTORE):
        libc.prctl(AMBIENT, RAISE, each, 0, 0)


def turn_clocks(clocks):
    """Children find clocks that have not gone back: the machine was started again since they showed this."""
    if clocks[0] > time.clock_gettime(time.CLOCK_MONOTONIC):
        if libc.unshare(NEW_CLOCKS):
            raise OSError(ctypes.get_errno(), "a time namespace")
        with open("/proc/self/timens_offsets", "w", encoding="ascii") as file:
            for number, then in zip((time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME), clocks):
                file.write(f"{number} {int(then - time.clock_gettime(number)) + 1} 0\n")


def as_user(user, call, *arguments):
    """Calls with the user's rights alone: as the effective user this process has no capabilities. With another user of
    files alone it could still follow the links of any process in /proc, into folders that are closed."""
    if not user:
        return call(*arguments)
    try:
        os.setegid(user["gid"])
        os.seteuid(user["uid"])
        return call(*arguments)
    finally:
        os.seteuid(os.getuid())
        os.setegid(os.getgid())


def enter_namespace():
    """As root at once; else by way of a user namespace in which we stay who we are."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS):
        if libc.unshare(NEW_MOUNTS | NEW_USERS):
            why = os.strerror(ctypes.get_errno())
            raise Refused(f"volumes need a private mount namespace, which this system does not allow here: {why}")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    mount(None, "/", REC | SLAVE)


def at(file):
    """The name of an open file, from /proc."""
    return f"self/fd/{file}"


def source_of(each, user):
    """What is to be mounted; it stays open."""
    source, sub, _, _, sort = each
    return at(opened(source, sub, sort, user)) if user else source


def bind(place, each, mirrors):
    _, _, target, is_read_only, _ = each
    mirrors.make_point(os.path.isdir(place), target)
    mount(place, target, BIND | REC)
    if is_read_only:
        bound = at(os.open(target, os.O_PATH))  # once: what a name leads to may be exchanged
        mount(None, bound, BIND | REMOUNT | READ_ONLY | os.statvfs(bound).f_flag & CLOSED)


def opened(source, sub, sort, user):
    """The volume, or the place `sub` in it. `sort`: None for a folder of ours, else the type of a hostPath."""
    try:
        if sort is None:
            base = os.open(source, os.O_PATH)
        else:
            as_user(user, make_host_path, source, sort)
            base = as_user(user, os.open, source, os.O_PATH)
        if not sub:
            return base
        return as_user(user, open_below, f"{at(base)}/{sub}")
    except OSError as error:
        what = f"subPath {sub}" if sort is None else f"hostPath {source}{sub and '/'}{sub}"
        raise Refused(f"{what} cannot be used by user {user['uid']}: {error.strerror}") from error


def open_below(place):
    try:
        return os.open(place, os.O_PATH)
    except FileNotFoundError:
        os.makedirs(place)
        return os.open(place, os.O_PATH)


def make_host_path(path, sort):
    if sort == "DirectoryOrCreate":
        os.makedirs(path, exist_ok=True)
    elif sort == "FileOrCreate":
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NONBLOCK, 0o644))
    mode = os.stat(path).st_mode
    is_wrong = sort.startswith("Directory") and not stat.S_ISDIR(mode)
    if is_wrong or (sort.startswith("File") and not stat.S_ISREG(mode)):
        raise Refused(f"hostPath {path}: there is no such {'file' if sort.startswith('File') else 'directory'}")


def mount(source, target, flags, kind=None):
    arguments = (name and os.fsencode(name) for name in (source, target, kind))
    if libc.mount(*arguments, ctypes.c_ulong(flags), None):
        raise Refused(f"cannot mount {source} at {target}: {os.strerror(ctypes.get_errno())}")


def make_place(is_folder, target):
    if is_folder:
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))


class Mirrors:
    """Folders that are covered, each once, by one in memory that holds the same entries: there we may make more."""

    def __init__(self, user, scratch):
        os.chdir("/proc")
        self.user, self.devices = user, set()
        self.scratch = f"{at(os.open(os.path.dirname(scratch), os.O_PATH))}/{os.path.basename(scratch)}"

    def make_point(self, is_folder, target):
        """A place to mount on. Where the user may not make one, the folder around it is first covered."""
        if os.path.exists(target):
            return
        parent = os.path.dirname(target) or "/"
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        try:
            as_user(self.user, make_place, is_folder, target)
        except OSError:
            folder = os.open(parent, os.O_PATH | os.O_DIRECTORY)
            if os.fstat(folder).st_dev not in self.devices:
                folder = self.cover(folder)
            make_place(is_folder, f"{at(folder)}/{os.path.relpath(target, parent)}")

    def hide(self, files):
        """Covers their folders by ones without them, outer ones first."""
        for folder in sorted({os.path.dirname(it) for it in files}, key=len):
            names = {os.path.basename(it) for it in files if os.path.dirname(it) == folder}
            self.cover(os.open(folder, os.O_PATH), names)

    def cover(self, folder, but=()):
        """The new folder is as open to others as the old one. Both are open files."""
        seen = os.fstat(folder)
        mount("tmpfs", self.scratch, 0, "tmpfs")
        top = os.open(self.scratch, os.O_PATH)
        for name in os.listdir(at(folder)):
            if name not in but:
                copy_entry(folder, name, f"{at(top)}/{name}")
        if not os.getuid():
            os.chown(at(top), seen.st_uid, seen.st_gid)
            os.chmod(at(top), stat.S_IMODE(seen.st_mode))
            if listed := access_list(at(folder)):
                os.setxattr(at(top), ACCESS, listed)
        if os.path.samestat(seen, os.stat("/")):
            os.chroot(at(top))
        else:
            mount(at(top), at(folder), MOVE)
        self.devices.add(os.fstat(top).st_dev)
        return top


def is_device(mode):
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def access_list(place):
    """Who else may, beside what the mode says; empty where there is none."""
    try:
        return os.getxattr(place, ACCESS)
    except OSError:
        return b""


def copy_entry(folder, name, place):
    """As root devices are made anew: a terminal master that is bound alone does not find its terminals. Those of a file
    system that opens none stay closed."""
    file = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    try:
        seen = os.fstat(file)
        if stat.S_ISLNK(seen.st_mode):
            os.symlink(os.readlink("", dir_fd=file), place)
        elif is_device(seen.st_mode) and not os.getuid() and not os.statvfs(at(file)).f_flag & os.ST_NODEV:
            os.mknod(place, seen.st_mode, seen.st_rdev)
            os.chown(place, seen.st_uid, seen.st_gid)
            os.chmod(place, stat.S_IMODE(seen.st_mode))
        else:
            make_place(stat.S_ISDIR(seen.st_mode), place)
            mount(at(file), place, BIND | REC)
    finally:
        os.close(file)
