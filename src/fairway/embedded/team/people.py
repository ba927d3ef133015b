"""The Unix accounts of this machine, as its name service knows them (files, LDAP, …), and who is on a Unix socket.

A name service may ask the network: callers on an event loop ask in a thread. The groups are those that the name service
lists now, not those of the process that asks: who was removed from a group has lost it.
"""

import grp
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from fairway.kube.transport import Peer

PEER = "iII"  # struct ucred: pid, uid, gid
NOBODY = 65_534  # whom the kernel names where a user namespace hides the real user
SPECIAL = ":"  # `system:masters`: a directory service might have such a name, /etc/passwd cannot


@dataclass(frozen=True, slots=True)
class Person:
    """A Unix user; `groups`: the primary group first."""

    name: str
    uid: int
    groups: tuple[str, ...]


def peer_of(connection: socket.socket) -> Peer:
    """The process that connected, as the kernel noted it then."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(PEER))
    return Peer(*struct.unpack(PEER, found))


def person_of(uid: int) -> Person | None:
    """The user of a uid; None where the machine knows none, or it is nobody's."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return None
    is_plain = uid != NOBODY and SPECIAL not in found.pw_name
    return Person(found.pw_name, uid, tuple(_groups(found))) if is_plain else None


def _groups(found: pwd.struct_passwd) -> Iterator[str]:
    """The names of a user's groups; a group without a name, or with one that means more here, gives nothing."""
    ids = os.getgrouplist(found.pw_name, found.pw_gid)
    for gid in (found.pw_gid, *sorted(it for it in ids if it != found.pw_gid)):
        with suppress(KeyError):
            if SPECIAL not in (name := grp.getgrgid(gid).gr_name):
                yield name


def is_group(name: str) -> bool:
    """Whether the machine has a group of this name."""
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
