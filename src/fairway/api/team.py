"""A machine that Unix users share: which namespace a user has, and which queues its groups open.

A namespace belongs to one Unix user. Its annotations OWNER and UID name that user; only an administrator writes them,
so they say whose files and processes the pods of the namespace may use. A queue is open to Unix groups: the annotation
GROUPS of a Queue lists them, and its `spec.namespaces` selects the label that `labels_of` gives to each member's
namespace. The label `fairway.dev/queue` of a namespace is the queue of what names none there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

Thing = Mapping[str, Mapping[str, object]]
OWNER, UID, GROUPS = "fairway.dev/unix-user", "fairway.dev/uid", "fairway.dev/unix-groups"
QUEUE = "fairway.dev/queue"  # as in `objects`, which loads the engine
OPEN = "queue.fairway.dev/"  # before the name of a queue: a label
LONGEST = 63  # of a label's name, and of a namespace
RESERVED = re.compile(r"default|(kube|fairway|system)(-.*)?")


def space_of(user: str) -> str:
    """The namespace of a Unix user: its name, or what is nearest to it and unlike that of any other."""
    plain = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    if plain == user and len(user) <= LONGEST and not RESERVED.fullmatch(user):
        return user
    return f"{plain[:LONGEST - 9] or 'user'}-{sha256(user.encode()).hexdigest()[:8]}"


def groups_of(queue: Thing) -> list[str]:
    """The Unix groups that a queue is open to."""
    notes = queue["metadata"].get("annotations")
    return str(notes.get(GROUPS, "")).split() if isinstance(notes, dict) else []


def labels_of(groups: Sequence[str], queues: Iterable[Thing]) -> dict[str, str]:
    """The labels of the namespace of a member of these groups. Its own queue is that of the first group that has one;
    of several the first by name that guarantees something."""
    opened = sorted((groups.index(group), not _guarantees(queue), str(queue["metadata"]["name"]))
                    for queue in queues for group in groups_of(queue) if group in groups)
    first = {QUEUE: opened[0][-1]} if opened else {}
    return first | {f"{OPEN}{name}": "true" for *_, name in opened}


def _guarantees(queue: Thing) -> bool:
    """Whether a queue is owed anything."""
    quotas = queue.get("spec", {}).get("quotas")
    owed = [amount for quota in quotas if isinstance(quota, dict) for amount in (quota.get("guaranteed") or {}).values()
            ] if isinstance(quotas, list) else []
    return any(str(amount) not in ("0", "0%") for amount in owed)


def changes(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """What to merge into the labels of a namespace, so that it has the wanted ones of these and no other of them."""
    ours = {name for name in before if name == QUEUE or name.startswith(OPEN)}
    merged: dict[str, str | None] = dict.fromkeys(ours - wanted.keys())
    return merged | {name: text for name, text in wanted.items() if before.get(name) != text}
