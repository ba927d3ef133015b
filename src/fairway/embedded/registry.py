"""Objects under the rules of the API: what create, update and delete make of what is asked. No HTTP here.

A write goes: shape (prune, defaults of the schema) → types → metadata → Kubernetes' defaults → what other objects
decide (namespace, priority) → admission → validation → the store. It happens in one step of the event loop, so that
nothing comes between what it read and what it stages: two writers never meet, and the later one sees the earlier.
Whoever called awaits `store.committed` before it says so. A write that changes nothing is none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.api.admission import Refused
from fairway.clock import Chance, Clock
from fairway.embedded import crd, defaults, door, managed, meta, rules
from fairway.embedded.access import escalation
from fairway.embedded.access.identity import Identity
from fairway.embedded.access.rbac import Authorizer
from fairway.embedded.catalog import CRDS, Catalog, Resource
from fairway.embedded.errors import Cause, already_exists, bad_request, conflict, forbidden, invalid, not_found
from fairway.embedded.kinds import Kind
from fairway.embedded.managed import APPLY, UPDATE, Manager
from fairway.embedded.schema import TYPE
from fairway.embedded.services import address
from fairway.embedded.store import Key, Store

Thing = dict[str, Any]
ANYBODY = Manager("unknown", UPDATE, "v1")
KEEP_STATUS = ("nodes",)  # whoever makes one says at once how it is
decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Write:
    """What is written and how it was asked for; what the asker is to be warned of is gathered here."""

    resource: Resource
    asker: Identity
    dry_run: bool = False
    validation: str = "Warn"  # of unknown fields: Strict, Warn, Ignore
    warnings: list[str] = field(default_factory=list)
    who: Manager = ANYBODY


@dataclass(frozen=True, slots=True)
class Admission:
    """What is asked of the admission check. `old` is None for a CREATE; `new` may be changed."""

    operation: str
    kind: Kind
    namespace: str
    new: Thing
    old: Thing | None
    asker: Identity

    @property
    def user(self) -> str:
        return self.asker.name


# Raises fairway.api.admission.Refused; what it returns beside the object are warnings.
Admit = Callable[[Admission], tuple[Thing, Sequence[str]]]


def admit_all(admission: Admission) -> tuple[Thing, Sequence[str]]:
    return admission.new, ()


class Registry:
    def __init__(self, store: Store, kinds: Sequence[Kind], clock: Clock, chance: Chance, *, admit: Admit = admit_all):
        self.store, self.clock, self.chance = store, clock, chance
        self.catalog = Catalog(store, kinds)
        self.access = Authorizer(store)
        self._admit = admit

    def current(self, resource: Resource, key: Key) -> Thing:
        """The object with what is staged: what a write starts from. NotFound if there is none."""
        entry = self.store.latest(key)
        if entry is None:
            raise not_found(resource.kind, key.name)
        return decode(entry.value)

    def shown(self, resource: Resource, key: Key) -> bytes:
        """The object as readers see it, encoded: without what is staged. NotFound if there is none."""
        entry = self.store.get(key)
        if entry is None:
            raise not_found(resource.kind, key.name)
        return entry.value

    def latest(self, name: str, namespace: str = "") -> Iterator[Thing]:
        """All objects of a resource (of a namespace) with what is staged, save those that are only staged yet."""
        for place in list(self.store.objects(name)):
            if not namespace or place[0] == namespace:
                entry = self.store.latest(Key(name, *place))
                if entry is not None:
                    yield decode(entry.value)

    def create(self, thing: Thing, write: Write) -> Thing:
        resource = write.resource
        self._shape(thing, {}, write=write)
        managers = _managers(thing, {"metadata": {}}, write)
        meta.begin(thing, uid=self.chance.uid(), now=self.clock.now())
        self._name(resource, thing["metadata"])
        if resource.has_status:
            thing["metadata"]["generation"] = 1
            if resource.name not in KEEP_STATUS:
                thing.pop("status", None)
        defaults.complete(resource.name, thing)
        defaults.start(resource.name, thing)
        door.enter(self.store, resource, thing)
        thing = self._admitted(thing, None, write=write)
        _check(thing, {}, resource=resource)
        escalation.check(self.access, write.asker, resource.kind, old=None, new=thing)
        if resource.name == CRDS:
            crd.establish(thing, self.catalog.kinds(), self.clock.now())
            write.warnings.extend(crd.warnings(thing))
        thing = resource.ordered(thing)
        if managers:
            thing["metadata"]["managedFields"] = managers
        if not write.dry_run:
            self.store.put(self.key(resource, thing), thing)
        return thing

    def update(self, old: Thing, thing: Thing, *, write: Write) -> Thing:
        """`thing` in the place of `old`, which is as in the store; its status stays where it is a subresource."""
        resource = write.resource
        expect(old, thing.get("metadata") or {}, kind=resource.kind)
        if resource.has_status:
            _take(thing, old, "status")
        if resource.name == "namespaces":  # its finalizers are its whole spec, and have a subresource
            _take(thing, old, "spec")
        self._shape(thing, old, write=write)
        managers = _managers(thing, old, write)
        meta.carry(thing["metadata"], old["metadata"])
        if resource.name == address.SERVICES:
            address.keep(self.store, thing, old)
        if managers:
            thing["metadata"]["managedFields"] = managers
        defaults.complete(resource.name, thing)
        thing = resource.ordered(thing)
        if thing == old:
            return old
        if resource.has_status and any(thing.get(name) != old.get(name) for name in thing.keys() | old.keys()
                                       if name not in ("metadata", "status")):
            thing["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        thing = self._admitted(thing, old, write=write)
        _check(thing, old, resource=resource)
        escalation.check(self.access, write.asker, resource.kind, old=old, new=thing)
        if resource.name == CRDS:
            crd.establish(thing, self.catalog.kinds(), self.clock.now())
        self._note_managers(thing, old, write)
        return self.replace(thing, write)

    def update_status(self, old: Thing, thing: Thing, *, write: Write) -> Thing:
        """The status of `thing` on what else `old` is."""
        expect(old, thing.get("metadata") or {}, kind=write.resource.kind)
        new = {**old, "metadata": dict(old["metadata"])}
        _take(new, thing, "status")
        self._shape(new, old, write=write)
        if managers := _managers(thing, old, write):
            new["metadata"]["managedFields"] = managers
        if new == old:
            return old
        new = self._admitted(new, old, write=write)
        self._note_managers(new, old, write)
        return self.replace(new, write)

    def _note_managers(self, thing: Thing, old: Thing, write: Write) -> None:
        if "managedFields" in thing["metadata"] and write.who.operation != APPLY:
            managed.written(write.resource.kind.schema, old, thing, write.who, self.clock.now())

    def replace(self, thing: Thing, write: Write) -> Thing:
        """Stages the object as it is; its end, if it is being deleted and nothing keeps it any more."""
        key = self.key(write.resource, thing)
        if write.dry_run:
            return thing
        if "deletionTimestamp" in thing["metadata"] and not is_kept(thing, write.resource):
            self.store.remove(key, thing)
        else:
            self.store.put(key, thing)
        return thing

    def key(self, resource: Resource, thing: Thing) -> Key:
        return Key(resource.name, thing["metadata"].get("namespace", ""), thing["metadata"]["name"])

    def _shape(self, thing: Thing, old: Mapping[str, Any], *, write: Write) -> None:
        """Leaves the fields that the kind has, each of its type; in order, since what was stored is compared."""
        resource, kind = write.resource, write.resource.kind
        thing.setdefault("metadata", {})
        unknown, causes = resource.schema.shape(thing, old)
        texts = [f'unknown field "{path}"' for path in unknown]
        if texts and write.validation == "Strict":
            raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict '
                              f"decoding error: {', '.join(texts)}")
        if write.validation == "Warn":
            write.warnings.extend(texts)
        typed = [cause for cause in causes if cause.reason == TYPE]
        if typed and (not resource.custom or typed[0].field.startswith("metadata")):
            raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                              + "; ".join(f"{cause.field}: {cause.message}" for cause in typed))
        if causes:
            raise invalid(kind.kind, kind.group, _called(thing), causes=causes)

    def _name(self, resource: Resource, about: Thing) -> None:
        """A name for what has only the beginning of one; AlreadyExists for what is there."""
        prefix = about.get("generateName")
        while prefix and not about.get("name"):
            name = prefix[:58] + self.chance.word()
            if self.store.latest(Key(resource.name, about.get("namespace", ""), name)) is None:
                about["name"] = name
        if self.store.latest(Key(resource.name, about.get("namespace", ""), about.get("name", ""))):
            raise already_exists(resource.kind, about["name"])

    def _admitted(self, thing: Thing, old: Thing | None, *, write: Write) -> Thing:
        kind, namespace = write.resource.kind, thing["metadata"].get("namespace", "")
        operation = "CREATE" if old is None else "UPDATE"
        try:
            thing, warnings = self._admit(Admission(operation, kind, namespace, thing, old, write.asker))
        except Refused as refused:
            if refused.forbidden:
                raise forbidden(kind, _called(thing), why=str(refused)) from refused
            causes = [Cause(*cause) for cause in refused.causes]
            raise invalid(kind.kind, kind.group, _called(thing), causes=causes) from refused
        write.warnings.extend(warnings)
        return thing


def _managers(thing: Thing, old: Thing, write: Write) -> Any:
    """What the object's managedFields are to be: an apply says them, another write may replace those that are there,
    and an empty list takes them away. What cannot be read changes nothing."""
    given = thing["metadata"].get("managedFields")
    if write.who.operation == APPLY:
        return given
    known = old["metadata"].get("managedFields")
    if given in ([], [{}]):
        return None
    return given if known and given and managed.is_readable(given) else known


def expect(old: Thing, about: Mapping[str, Any], *, kind: Kind) -> None:
    """Conflict where the writer saw another object, or another version of it."""
    known = old["metadata"]
    if about.get("uid") and about["uid"] != known["uid"]:
        why = f"Precondition failed: UID in precondition: {about['uid']}, UID in object meta: {known['uid']}"
        raise conflict(kind, known["name"], why=why)
    if (about.get("resourceVersion") or "0") not in ("0", known["resourceVersion"]):
        raise conflict(kind, known["name"])


def is_kept(thing: Thing, resource: Resource) -> bool:
    """Whether something keeps an object that is being deleted: finalizers, grace, or a namespace's contents."""
    about = thing["metadata"]
    return bool(about.get("finalizers") or about.get("deletionGracePeriodSeconds") or (
        resource.name == "namespaces" and thing["spec"].get("finalizers")))


def _check(thing: Thing, old: Mapping[str, Any], *, resource: Resource) -> None:
    causes = [*meta.faults(thing["metadata"], old.get("metadata", {}), resource=resource),
              *rules.faults(resource.name, thing, old=old)]
    if causes:
        raise invalid(resource.kind.kind, resource.kind.group, _called(thing), causes=causes)


def _take(thing: Thing, source: Thing, name: str) -> None:
    if name in source:
        thing[name] = source[name]
    else:
        thing.pop(name, None)


def _called(thing: Thing) -> str:
    about = thing["metadata"]
    name = about.get("name") or about.get("generateName")
    return name if isinstance(name, str) else ""
