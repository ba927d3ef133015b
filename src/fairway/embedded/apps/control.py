"""What the controllers of this package share: objects of a kind, the children they control, and turns to settle them.

A turn looks at one object and its children as they are seen, makes what differs as it should be, and returns only when
its own writes are seen: the next turn counts no child twice and none too few. So a turn may be cut off anywhere and
taken again. A kind without a single object costs a watch and no more: its children are not looked at before.
"""

import asyncio
from collections import defaultdict
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import field

from fairway.api.objects import Metadata, Part
from fairway.embedded.jobtypes import letters
from fairway.kube.agenda import Agenda
from fairway.kube.client import ApiError, Client
from fairway.kube.events import About, Events
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.kube.kinds import ref as ref_of

REPLICA_SETS = Kind("ReplicaSet", "replicasets", "apps/v1")
DEPLOYMENTS = Kind("Deployment", "deployments", "apps/v1")
STATEFUL_SETS = Kind("StatefulSet", "statefulsets", "apps/v1")
REVISIONS = Kind("ControllerRevision", "controllerrevisions", "apps/v1")
CRON_JOBS = Kind("CronJob", "cronjobs", "batch/v1")

BURST = 500  # objects made in one turn
Thing = dict[str, Any]


class Dated(Metadata, frozen=True):
    generation: int = 0


class Object(Part, frozen=True):
    """An object whose spec and status are read as they come."""

    metadata: Dated = Dated()
    spec: Thing = field(default_factory=dict)
    status: Thing = field(default_factory=dict)


class Child(Protocol):
    @property
    def metadata(self) -> Metadata: ...


C = TypeVar("C", bound=Child)


class Control(Generic[C]):
    """Settles the objects of `kind`, whose children are of `child` and decoded into `shape`."""

    kind: Kind
    child: Kind

    def __init__(self, client: Client, shape: type[C]) -> None:
        self.client, self.clock = client, client.clock
        self.events = Events(client, f"{self.kind.name.lower()}-controller")
        self.agenda = Agenda(client.clock, client.chance)
        self.objects = Informer(client, Selection(self.kind), shape=Object, changed=self._changed)
        self.children = Informer(client, Selection(self.child), shape=shape, changed=self._child_changed)
        self._of: defaultdict[tuple[str, str], dict[str, C]] = defaultdict(dict)
        """By namespace and uid of the owner: in other namespaces its uid may be named too."""
        self._some = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.objects.run())
            tasks.create_task(self.events.run())
            await self._some.wait()
            tasks.create_task(self.children.run())
            await self.children.synced.wait()
            await self.agenda.run(self._turn)

    async def settle(self, one: Object, children: list[C]) -> float | None:
        """Makes one object as it should be; returns when to look again."""
        raise NotImplementedError

    async def _turn(self, key: str) -> float | None:
        one = self.objects.store.get(key)
        if one is None or one.metadata.is_going:
            return None
        return await self.settle(one, self.owned(one))

    def owned(self, one: Object) -> list[C]:
        return list(self._of[one.metadata.namespace, one.metadata.uid].values())

    def _changed(self, old: Object | None, new: Object | None) -> None:
        self._some.set()
        if new:
            self.agenda.note(f"{new.metadata.namespace}/{new.metadata.name}")
        elif old:
            self._of.pop((old.metadata.namespace, old.metadata.uid), None)

    def _child_changed(self, old: C | None, new: C | None) -> None:
        child = new or old
        assert child is not None
        for it in child.metadata.owner_references:
            if it.controller and it.kind == self.kind.name:
                space = child.metadata.namespace
                if new:
                    self._of[space, it.uid][child.metadata.name] = new
                else:
                    self._of[space, it.uid].pop(child.metadata.name, None)
                self.agenda.note(f"{space}/{it.name}")

    # What a turn writes

    async def make(self, one: Object, child: Thing) -> None:
        """A child of this object, controlled by it; the one of its name that is there already is as good."""
        meta = child["metadata"]
        meta |= {"namespace": one.metadata.namespace, "ownerReferences": [self._owner(one)]}
        try:
            made = await self.client.create(self.child, child)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return
            self.tell(one, "FailedCreate", f"Error creating: {error.message}", is_warning=True)
            raise
        self.tell(one, "SuccessfulCreate", f"Created {self.child.name.lower()}: {made['metadata']['name']}")
        await self.children.caught_up(made)

    async def unmake(self, one: Object, child: C) -> None:
        meta = child.metadata
        key = f"{meta.namespace}/{meta.name}"
        await self.client.delete(ref_of(self.child, key), uid=meta.uid)
        self.tell(one, "SuccessfulDelete", f"Deleted {self.child.name.lower()}: {meta.name}")
        await self.children.shown(key, lambda seen: _is_going(seen, meta.uid))

    async def show(self, one: Object, status: Thing) -> None:
        """Writes these fields of its status where they differ; None takes one away."""
        if any(one.status.get(name) != value for name, value in status.items()):
            meta = {"uid": one.metadata.uid, "resourceVersion": one.metadata.resource_version}
            change = {"metadata": meta, "status": status}
            await self.objects.caught_up(await self.client.patch(self.ref(one), change, subresource="status"))

    def ref(self, one: Object) -> Ref:
        return Ref(self.kind, one.metadata.name, one.metadata.namespace)

    def tell(self, one: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        about = About(self.kind, one.metadata.name, one.metadata.uid, one.metadata.namespace)
        self.events.tell(about, reason, message, is_warning=is_warning)

    def _owner(self, one: Object) -> Thing:
        meta = one.metadata
        return {"apiVersion": self.kind.group_version, "kind": self.kind.name, "name": meta.name, "uid": meta.uid,
                "controller": True, "blockOwnerDeletion": True}


def _is_going(seen: Child | None, uid: str) -> bool:
    return seen is None or seen.metadata.uid != uid or seen.metadata.is_going


def fingerprint(template: Thing) -> str:
    """Ten letters that stand for a pod template."""
    return letters(msgspec.json.encode(template, order="sorted"), 10)


def share(text: int | str | None, of: int, *, up: bool) -> int:
    """What a number or a percentage such as `25%` comes to."""
    if isinstance(text, str) and text.endswith("%"):
        scaled = int(text[:-1]) * of
        return -(-scaled // 100) if up else scaled // 100
    return int(text or 0)
