"""How much a user may store: objects and bytes in a namespace of a team's box, and data in ConfigMaps and Secrets.

One database serves all users, so no user may fill it. The bounds hold in namespaces that name a Unix user; annotations
of the namespace, which users cannot write, set others. Events are not counted, for the last ones alone are kept; so a
user's own is bounded in size, and has no finalizers.
A user is refused what would be more; to make what is there smaller is always allowed. Controllers are refused pods
beyond the bound, for a Job may ask for any number of them, and nothing else: what they write follows from objects that
are counted. Counted is what is stored, from the store's log; what is only staged yet counts too.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairway.api.admission import FORBIDDEN, Refused
from fairway.api.quantities import Malformed, exact
from fairway.embedded.store import Compacted, Entry, Event, Key, Store, encode

from .identity import Identity

OBJECTS, BYTES, DATA = "fairway.dev/most-objects", "fairway.dev/most-bytes", "fairway.dev/most-data"
DEFAULTS = {OBJECTS: 20_000, BYTES: 128 << 20, DATA: 16 << 20}
WORDS = {OBJECTS: "objects", BYTES: "bytes of objects", DATA: "bytes of ConfigMaps and Secrets"}
EVENT_BYTES = 16 << 10
UNCOUNTED = ("events", "events.events.k8s.io")
HOLDS_DATA = ("configmaps", "secrets")
ADVICE = "delete what is over, or ask an administrator: kubectl annotate --overwrite namespace {space} {bound}=NUMBER"


@dataclass(frozen=True, slots=True)
class Asked:
    """A write: `old` None makes an object; `who` asks, in this namespace with these annotations."""

    who: Identity
    resource: str
    space: str
    notes: Mapping[str, str]
    new: Mapping[str, Any]
    old: object | None


class Allowance:
    """What each namespace holds by now, by bound."""

    def __init__(self, store: Store) -> None:
        self._store, self._revision = store, -1
        self._held: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(DEFAULTS, 0))

    def held(self, space: str) -> dict[str, int]:
        """Objects, bytes, and bytes of data of a namespace, with what is staged."""
        self._catch_up()
        found = dict(self._held[space])
        for event in self._store.staged():
            if event.key.namespace == space:
                _count(found, event.key, event.before, event)
        return found

    def check(self, asked: Asked) -> None:
        """Raises Refused for a write after which the namespace would hold more than it may, and more than before."""
        is_user, is_new = not asked.who.is_master, asked.old is None
        if asked.resource in UNCOUNTED:
            if is_user:
                _check_event(asked.new)
            return
        if not (is_user or (is_new and asked.resource == "pods")):
            return
        more = {OBJECTS: int(is_new), BYTES: 0, DATA: 0}
        if is_user:
            more[BYTES] = len(encode(asked.new)) - (0 if is_new else len(encode(asked.old)))
            more[DATA] = more[BYTES] if asked.resource in HOLDS_DATA else 0
        if not any(amount > 0 for amount in more.values()):
            return
        held = self.held(asked.space)
        for bound, amount in more.items():
            most = _most(asked.notes, bound)
            if amount > 0 and held[bound] + amount > most:
                why = f"{held[bound]} {WORDS[bound]} are in namespace {asked.space}, and {amount} more would be over"
                why += f" the {most} that {bound} allows; {ADVICE.format(space=asked.space, bound=bound)}"
                raise Refused([("metadata.namespace", FORBIDDEN, why)], forbidden=True)

    def _catch_up(self) -> None:
        """Counts what was stored since the last look; all anew where the log does not reach back so far."""
        try:
            for event in self._store.since(self._revision):
                _count(self._held[event.key.namespace], event.key, event.before, event)
        except Compacted:
            self._held.clear()
            for resource in self._store.touched:
                for (space, name), entry in self._store.objects(resource).items():
                    _count(self._held[space], Key(resource, space, name), None, entry)
        self._revision = self._store.revision


def _check_event(event: Mapping[str, Any]) -> None:
    """Refused where it is large, or would stay when it is deleted."""
    if (size := len(encode(event))) > EVENT_BYTES:
        why = f"has {size} bytes with the rest of the event, and may have {EVENT_BYTES}: make it shorter"
        raise Refused([("message", FORBIDDEN, why)], forbidden=True)
    if event["metadata"].get("finalizers"):
        raise Refused([("metadata.finalizers", FORBIDDEN, "an event of a user has none: omit it")], forbidden=True)


def _count(held: dict[str, int], key: Key, before: Entry | None, now: Entry | Event) -> None:
    if key.resource in UNCOUNTED:
        return
    is_gone = isinstance(now, Event) and now.gone
    size = (0 if is_gone else len(now.value)) - (len(before.value) if before else 0)
    held[OBJECTS] += (not is_gone) - (before is not None)
    held[BYTES] += size
    held[DATA] += size if key.resource in HOLDS_DATA else 0


def _most(notes: Mapping[str, str], bound: str) -> int:
    """The bound as a namespace sets it; the default where it sets none that can be read."""
    with suppress(Malformed):
        if text := notes.get(bound):
            return int(exact(text))
    return DEFAULTS[bound]
