"""Whose the processes of a pod are: the Unix user of its namespace.

The annotations `fairway.dev/unix-user` and `fairway.dev/uid` of a namespace name the user. Only an administrator may
write namespaces, so nothing that a user can set says as whom a pod runs: all pods of a namespace run as its user,
whatever makes them (a person, a Job, a CronJob). A name whose uid has changed belongs to another user. No pod runs as
root: an administrator of the cluster may make pods in any namespace, and need not be root.
"""

import os
import pwd
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairway.api.team import OWNER, UID
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.node.environment import Pod, Unusable

from .limits import most_processes

OF_USER = 2
"""The part of the processes that the machine can have which one user may have, in all pods together."""
OF_DAEMON = ("LANG", "LANGUAGE", "TZ", "PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True, slots=True)
class Account:
    """A Unix user; `groups`: all ids, the primary one among them."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """What a program of this user finds of the daemon's environment, and what is its own."""
        kept = {name: text for name, text in base.items() if name in OF_DAEMON or name.startswith("LC_")}
        return kept | {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    def order(self, *, is_bound: bool) -> dict[str, Any]:
        """For the shim. `is_bound`: no program gains rights by what it executes."""
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups), "is_bound": is_bound,
                "processes": most_processes() // OF_USER}  # fmt: skip


Tenant = Callable[[Pod], Awaitable[Account]]


def tenants(client: Client) -> Tenant:
    """Asks the server for the namespace, and this machine for its user; Unusable where a pod may not run."""

    async def of(pod: Pod) -> Account:
        name = pod["metadata"]["namespace"]
        found = await client.find(Ref(kinds.NAMESPACES, name))
        notes = (found or {"metadata": {}})["metadata"].get("annotations") or {}
        account = await client.clock.in_thread(lambda: account_of(name, notes))
        check(pod, account)
        return account

    return of


def account_of(namespace: str, notes: Mapping[str, str]) -> Account:
    """The user that the annotations of a namespace name."""
    user = notes.get(OWNER, "")
    if not user:
        raise Unusable(f"namespace {namespace} belongs to no Unix user, so no pod runs in it: use a user's namespace,"
                       f" or let root set its annotation {OWNER}")
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise Unusable(f"namespace {namespace} belongs to the Unix user {user}, unknown on this machine") from None
    if notes.get(UID, str(found.pw_uid)) != str(found.pw_uid):
        raise Unusable(f"namespace {namespace} belongs to the Unix user {user} with uid {notes[UID]}; now the uid"
                       f" is {found.pw_uid}: let root set its annotation {UID}")
    if not found.pw_uid:
        raise Unusable(f"namespace {namespace} belongs to root, and no pod runs as root on a shared machine: use the"
                       " namespace of another user")
    groups = tuple(os.getgrouplist(user, found.pw_gid))
    return Account(user, found.pw_uid, found.pw_gid, groups, found.pw_dir or "/", found.pw_shell or "/bin/sh")


def check(pod: Pod, account: Account) -> None:
    """A pod may ask for the user and groups that it gets anyway, and for no others."""
    spec = pod["spec"]
    whole = (*spec["containers"], *(spec.get("initContainers") or ()))
    for where, part in [("spec", spec), *((f"container {it['name']}", it) for it in whole)]:
        asked = part.get("securityContext") or {}
        said = [("runAsUser", asked.get("runAsUser"), (account.uid,)),
                *((field, asked.get(field), account.groups) for field in ("runAsGroup", "fsGroup")),
                *(("supplementalGroups", each, account.groups) for each in asked.get("supplementalGroups") or ())]
        for field, value, allowed in said:
            if value is not None and value not in allowed:
                raise Unusable(f"{where}: securityContext.{field} is {value}; pods here run as {account.name}"
                               f" (uid {account.uid}) with the groups of that user: leave it out")
