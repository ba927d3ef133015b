"""Who asks: the user of a request, with groups.

Names and groups that begin with `system:` have a meaning, as in Kubernetes: MASTERS may do everything, a service
account is a user of a name of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
ACCOUNT = "system:serviceaccount:"
ACCOUNTS = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class Identity:
    """`uid`: what tells this user from an earlier one of the same name, where that is known. `extra`: what else the
    authenticator knows, for admission and reviews; no rule of RBAC reads it."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups

    def info(self) -> dict[str, object]:
        """The UserInfo of Kubernetes' reviews."""
        more = {"uid": self.uid} if self.uid else {}
        extra = {"extra": {key: list(values) for key, values in self.extra.items()}} if self.extra else {}
        return {"username": self.name, **more, "groups": list(self.groups), **extra}


ADMIN = Identity("fairway:admin", (MASTERS, AUTHENTICATED))


def controller(name: str) -> Identity:
    """A controller of this process: it does its work in every namespace."""
    return Identity(f"{ACCOUNT}kube-system:{name}", (MASTERS, ACCOUNTS, f"{ACCOUNTS}:kube-system", AUTHENTICATED))


def account(namespace: str, name: str, uid: str = "") -> Identity:
    """A service account."""
    return Identity(f"{ACCOUNT}{namespace}:{name}", (ACCOUNTS, f"{ACCOUNTS}:{namespace}", AUTHENTICATED), uid)
