"""StatefulSet: pods with names that last, `NAME-0`, `NAME-1` …, each of a revision of the template.

The revisions are kept as ControllerRevisions. A turn does one thing at a time (OrderedReady), or all at once
(Parallel): what ended goes, to come again; what is missing is made, from the lowest number on, each when those below
are available; numbers that are not wanted go from the highest on; pods of an older revision from `partition` on go from
the highest on, each when those above are available again (with OnDelete: when somebody deletes them).
"""

from dataclasses import dataclass
from typing import Any

from msgspec import field

from fairway.embedded.jobtypes import Pod
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.turnstile import side_by_side

from .control import BURST, REVISIONS, STATEFUL_SETS, Control, Object, Thing, fingerprint
from .replicaset import ready_since, tally

REVISION, INDEX = "controller-revision-hash", "apps.kubernetes.io/pod-index"
POD_NAME = "statefulset.kubernetes.io/pod-name"
HISTORY = 10


class Revision(Object, frozen=True):
    revision: int = 0
    data: Thing = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stateful:
    """The pods by number, and the revisions by name; `update` is the one of the template in force."""

    one: Object
    pods: dict[int, Pod]
    revisions: dict[str, Revision]
    now: float

    @property
    def start(self) -> int:
        return int((self.one.spec.get("ordinals") or {}).get("start", 0))

    @property
    def numbers(self) -> range:
        return range(self.start, self.start + int(self.one.spec.get("replicas", 1)))

    @property
    def update(self) -> str:
        return f"{self.one.metadata.name}-{fingerprint(self.one.spec['template'])}"

    @property
    def current(self) -> str:
        """The revision of those that are not rolled yet."""
        said = self.one.status.get("currentRevision", "")
        return said if said in self.revisions else self.update

    @property
    def is_parallel(self) -> bool:
        return self.one.spec.get("podManagementPolicy") == "Parallel"

    @property
    def rolls_from(self) -> int | None:
        """The lowest number that is rolled; None: none is."""
        strategy = self.one.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return None
        return self.start + int((strategy.get("rollingUpdate") or {}).get("partition", 0))

    def is_available(self, number: int) -> bool:
        pod = self.pods.get(number)
        since = ready_since(pod) if pod and not pod.is_over else None
        return since is not None and since + self.one.spec.get("minReadySeconds", 0) <= self.now

    def revision_of(self, number: int) -> str:
        """What the pod of this number is made from."""
        is_rolled = self.rolls_from is None or number >= self.rolls_from
        return self.update if is_rolled else self.current


def due(it: Stateful) -> tuple[list[int], list[Pod]]:
    """The numbers to make now, and the pods to take away."""
    ended = [pod for pod in it.pods.values() if pod.is_over and not pod.metadata.is_going]
    if ended:
        return [], ended
    missing = [number for number in it.numbers if number not in it.pods]
    if it.is_parallel:
        first = missing[:BURST]
    else:
        first = [number for number in missing[:1] if all(map(it.is_available, range(it.start, number)))]
    if missing:
        return first, []
    surplus = sorted((number for number in it.pods if number not in it.numbers), reverse=True)
    if surplus:
        is_leaving = any(pod.metadata.is_going for pod in it.pods.values())
        is_settled = not is_leaving and all(map(it.is_available, it.numbers))
        going = surplus if it.is_parallel else surplus[:1] if is_settled else []
        return [], [it.pods[number] for number in going if not it.pods[number].metadata.is_going]
    return [], _outdated(it)


def _outdated(it: Stateful) -> list[Pod]:
    """The highest pod of an older revision that is to be rolled, if all above it are available."""
    for number in reversed(it.numbers):
        if it.rolls_from is None or number < it.rolls_from:
            return []
        pod = it.pods[number]
        if pod.metadata.labels.get(REVISION) != it.update:
            return [] if pod.metadata.is_going else [pod]
        if not it.is_available(number):
            return []
    return []


class StatefulSets(Control[Pod]):
    kind, child = STATEFUL_SETS, kinds.PODS

    def __init__(self, client: Client) -> None:
        super().__init__(client, Pod)

    async def settle(self, one: Object, children: list[Pod]) -> float | None:
        it = Stateful(one, _numbered(one, children), await self._revisions(one), self.clock.now())
        if it.update not in it.revisions:
            await self._record(it)
            return self.clock.now()
        make, take = due(it)
        await side_by_side([*(self.make(one, _pod(it, number)) for number in make),
                            *(self.unmake(one, pod) for pod in take)])
        pods = _numbered(one, self.owned(one))
        status, again = _status(Stateful(one, pods, it.revisions, it.now))
        await self.show(one, status)
        return again

    async def _revisions(self, one: Object) -> dict[str, Revision]:
        found = await self.client.list(Selection(REVISIONS, one.metadata.namespace), Revision)
        uid = one.metadata.uid
        own = (each for each in found if any(it.uid == uid for it in each.metadata.owner_references))
        return {each.metadata.name: each for each in own}

    async def _record(self, it: Stateful) -> None:
        """The template in force becomes a revision; the oldest that nothing is made from go."""
        space, number = it.one.metadata.namespace, max((each.revision for each in it.revisions.values()), default=0) + 1
        about = {"name": it.update, "namespace": space, "ownerReferences": [self._owner(it.one)],
                 "labels": it.one.spec["template"].get("metadata", {}).get("labels", {})}
        data = {"spec": {"template": {**it.one.spec["template"], "$patch": "replace"}}}
        await self.client.ensure(REVISIONS, {"metadata": about, "revision": number, "data": data})
        used = {it.current, *(pod.metadata.labels.get(REVISION, "") for pod in it.pods.values())}
        old = sorted((each for name, each in it.revisions.items() if name not in used), key=lambda each: each.revision)
        for each in old[: max(0, len(old) - it.one.spec.get("revisionHistoryLimit", HISTORY))]:
            await self.client.delete(Ref(REVISIONS, each.metadata.name, space), uid=each.metadata.uid)


def _numbered(one: Object, children: list[Pod]) -> dict[int, Pod]:
    found = {}
    for pod in children:
        stem, _, text = pod.metadata.name.rpartition("-")
        if stem == one.metadata.name and text.isdecimal():
            found[int(text)] = pod
    return found


def _pod(it: Stateful, number: int) -> Thing:
    revision = it.revision_of(number)
    template = it.one.spec["template"] if revision == it.update else it.revisions[revision].data["spec"]["template"]
    about, name = template.get("metadata") or {}, f"{it.one.metadata.name}-{number}"
    labels = {**about.get("labels", {}), POD_NAME: name, INDEX: str(number), REVISION: revision}
    host = name.replace(".", "-")[:63].rstrip("-")
    spec: dict[str, Any] = {"hostname": host, "subdomain": it.one.spec.get("serviceName", ""), **template["spec"]}
    spec = {field: value for field, value in spec.items() if value != ""}
    return {"metadata": {"name": name, "labels": labels, "annotations": about.get("annotations", {})}, "spec": spec}


def _status(it: Stateful) -> tuple[Thing, float | None]:
    alive = [pod for pod in it.pods.values() if not pod.is_over]
    counts, again = tally(it.one, alive, it.now)
    made = [pod.metadata.labels.get(REVISION) for pod in alive]
    updated, wanted = made.count(it.update), len(it.numbers)
    is_rolled = updated == wanted == len(alive) == counts["availableReplicas"]
    current = it.update if is_rolled or not it.one.status.get("currentRevision") else it.current
    shown = {"observedGeneration": it.one.metadata.generation, "currentRevision": current, "updateRevision": it.update,
             "currentReplicas": made.count(current), "updatedReplicas": updated, "collisionCount": 0}
    return {**counts, **shown}, again
