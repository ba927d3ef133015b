"""Deployment: a ReplicaSet for each template it has had; the newest grows as the older shrink.

`sizes` says how large each set is to be, from what the sets say of themselves. RollingUpdate: at most `maxSurge` more
pods than wanted, and never fewer than wanted less `maxUnavailable` that are available; of the older sets, pods that are
not available go first. Recreate: the new set grows when no pod of an older one is left. A template that returns finds
its set again (`kubectl rollout undo`); sets without pods beyond `revisionHistoryLimit` are deleted, the oldest first.
"""

from dataclasses import dataclass

from fairway.api.quantities import time, time_text
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.kube.turnstile import side_by_side

from .control import DEPLOYMENTS, REPLICA_SETS, Control, Object, Thing, fingerprint, share

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
NOT_COPIED = (REVISION, "kubectl.kubernetes.io/last-applied-configuration")
HISTORY, DEADLINE_SECONDS = 10, 600
COUNTS = ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")


@dataclass(frozen=True, slots=True)
class Rollout:
    """The sets of a Deployment: the one of its template (None before it is made), the others from old to new."""

    one: Object
    new: Object | None
    old: tuple[Object, ...]

    @property
    def wanted(self) -> int:
        return int(self.one.spec.get("replicas", 1))

    @property
    def bounds(self) -> tuple[int, int]:
        """How many pods more than wanted there may be, and how many fewer available."""
        rolling = self.one.spec.get("strategy", {}).get("rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), self.wanted, up=True)
        fewer = share(rolling.get("maxUnavailable", "25%"), self.wanted, up=False)
        return surge, fewer or int(not surge)

    @property
    def sets(self) -> tuple[Object, ...]:
        return (*self.old, self.new) if self.new else self.old

    def total(self, field: str) -> int:
        return sum(each.status.get(field) or 0 for each in self.sets)

    @property
    def is_done(self) -> bool:
        """Whether all that is wanted is of the new template and available, and nothing else is left."""
        new = self.new.status if self.new else {}
        present = (self.total("replicas"), new.get("replicas", 0), new.get("availableReplicas", 0))
        return present == (self.wanted,) * 3


def sizes(it: Rollout) -> tuple[int, list[int]]:
    """How large the new set and each of the others is to be."""
    if it.one.spec.get("strategy", {}).get("type") == "Recreate":
        left = sum(_size(each) + _there(each) for each in it.old)
        return (0 if left else it.wanted), [0] * len(it.old)
    if it.one.spec.get("paused"):
        return _paused(it)
    surge, fewer = it.bounds
    new, old = _size(it.new), [_size(each) for each in it.old]
    room = it.wanted + surge - new - sum(old)
    grown = min(it.wanted, new + max(0, room))
    return grown, _shrunk(it, old, fewer)


def _paused(it: Rollout) -> tuple[int, list[int]]:
    """Nothing is rolled; the newest set that has pods follows the wanted number alone."""
    old = [_size(each) for each in it.old]
    if _size(it.new) or not any(old):
        return (max(0, it.wanted - sum(old)) if it.new else 0), old
    newest = max(row for row, size in enumerate(old) if size)
    old[newest] = max(0, it.wanted - sum(old[:newest]))
    return 0, old


def _shrunk(it: Rollout, old: list[int], fewer: int) -> list[int]:
    """The old sets less what may go: first what is not available, then from the oldest on."""
    available = it.new.status.get("availableReplicas", 0) if it.new else 0
    pending = _size(it.new) - available
    spare = sum(old) + _size(it.new) - (it.wanted - fewer) - pending
    for is_sound in (False, True):
        for row, each in enumerate(it.old):
            sound = min(old[row], each.status.get("availableReplicas", 0))
            surplus = min(max(0, spare), sound if is_sound else old[row] - sound)
            if is_sound:
                surplus = min(surplus, max(0, _available(it, old) - (it.wanted - fewer)))
            old[row] -= surplus
            spare -= surplus
    return old


def _available(it: Rollout, old: list[int]) -> int:
    """Pods that are available when the old sets are of these sizes."""
    new = it.new.status.get("availableReplicas", 0) if it.new else 0
    return new + sum(min(size, each.status.get("availableReplicas", 0)) for size, each in zip(old, it.old))


def _size(each: Object | None) -> int:
    return int(each.spec.get("replicas", 1)) if each else 0


def _there(each: Object) -> int:
    return sum(each.status.get(field) or 0 for field in ("replicas", "terminatingReplicas"))


class Deployments(Control[Object]):
    kind, child = DEPLOYMENTS, REPLICA_SETS

    def __init__(self, client: Client) -> None:
        super().__init__(client, Object)

    async def settle(self, one: Object, children: list[Object]) -> float | None:
        it = _rollout(one, children)
        size, others = sizes(it)
        if it.new is None and not one.spec.get("paused"):
            await self.make(one, _set(it, size))
        elif it.new:
            await self._revise(it)
            await self._scale(one, it.new, size)
        await side_by_side(self._scale(one, each, count) for each, count in zip(it.old, others))
        it = _rollout(one, self.owned(one))
        if it.is_done:
            await self._forget(it)
        status, again = _status(it, self.clock.now())
        await self.show(one, status)
        return again

    async def _scale(self, one: Object, each: Object, size: int) -> None:
        before = _size(each)
        if before != size:
            change = {"metadata": {"uid": each.metadata.uid}, "spec": {"replicas": size}}
            made = await self.client.patch(self._ref(each), change)
            way = "up" if size > before else "down"
            said = f"Scaled {way} replica set {each.metadata.name} from {before} to {size}"
            self.tell(one, "ScalingReplicaSet", said)
            await self.children.caught_up(made)

    async def _revise(self, it: Rollout) -> None:
        """The set of the template in force has the highest revision; the Deployment says which."""
        assert it.new
        own, highest = _revision(it.new), max(map(_revision, it.old), default=0)
        if own <= highest:
            own = highest + 1
            change = {"metadata": {"annotations": {REVISION: str(own)}}}
            await self.children.caught_up(await self.client.patch(self._ref(it.new), change))
        if it.one.metadata.annotations.get(REVISION) != str(own):
            change = {"metadata": {"uid": it.one.metadata.uid, "annotations": {REVISION: str(own)}}}
            await self.objects.caught_up(await self.client.patch(self.ref(it.one), change))

    async def _forget(self, it: Rollout) -> None:
        empty = [each for each in it.old if not _size(each) and not _there(each)]
        most = it.one.spec.get("revisionHistoryLimit", HISTORY)
        await side_by_side(self.unmake(it.one, each) for each in empty[: max(0, len(empty) - most)])

    def _ref(self, each: Object) -> Ref:
        return Ref(REPLICA_SETS, each.metadata.name, each.metadata.namespace)


def _rollout(one: Object, children: list[Object]) -> Rollout:
    stamp = fingerprint(one.spec["template"])
    there = [each for each in children if not each.metadata.is_going]
    new = next((each for each in there if each.metadata.labels.get(HASH) == stamp), None)
    old = sorted((each for each in there if each is not new), key=_revision)
    return Rollout(one, new, tuple(old))


def _revision(each: Object) -> int:
    text = each.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def _set(it: Rollout, size: int) -> Thing:
    spec, meta = it.one.spec, it.one.metadata
    stamp = {HASH: fingerprint(spec["template"])}
    about = spec["template"].get("metadata") or {}
    labels = {**about.get("labels", {}), **stamp}
    notes = {name: text for name, text in meta.annotations.items() if name not in NOT_COPIED}
    revision = max(map(_revision, it.old), default=0) + 1
    selector = {**spec["selector"], "matchLabels": {**spec["selector"].get("matchLabels", {}), **stamp}}
    return {
        "metadata": {"name": f"{meta.name}-{stamp[HASH]}", "labels": labels,
                     "annotations": {**notes, REVISION: str(revision)}},
        "spec": {"replicas": size, "minReadySeconds": spec.get("minReadySeconds", 0), "selector": selector,
                 "template": {**spec["template"], "metadata": {**about, "labels": labels}}},
    }


def _status(it: Rollout, now: float) -> tuple[Thing, float | None]:
    counts = {name: it.total(name) for name in COUNTS}
    updated = (it.new.status.get("replicas") or 0) if it.new else 0
    lacking = max(0, it.wanted - counts["availableReplicas"])
    shown = {"observedGeneration": it.one.metadata.generation, "updatedReplicas": updated, **counts}
    shown["unavailableReplicas"] = lacking or None
    moved = any(it.one.status.get(name) != value for name, value in shown.items())
    conditions, again = _conditions(it, lacking, moved, now)
    return {**shown, "conditions": conditions}, again


def _conditions(it: Rollout, lacking: int, moved: bool, now: float) -> tuple[list[Thing], float | None]:
    """Whether enough pods are available, and whether it goes on; and when it will have stood still for too long."""
    said = {each["type"]: each for each in it.one.status.get("conditions") or ()}
    up = lacking <= it.bounds[1]
    have = "has" if up else "does not have"
    available = _condition("Available", up, f"MinimumReplicas{'Available' if up else 'Unavailable'}",
                           f"Deployment {have} minimum availability.")
    before = said.get("Progressing", {})
    since = time(before["lastUpdateTime"]) if before and not moved else now
    late = since + it.one.spec.get("progressDeadlineSeconds", DEADLINE_SECONDS)
    name = f'ReplicaSet "{it.new.metadata.name}"' if it.new else f'Deployment "{it.one.metadata.name}"'
    if it.is_done:
        progress = _condition("Progressing", True, "NewReplicaSetAvailable", f"{name} has successfully progressed.")
    elif now >= late and not it.one.spec.get("paused"):
        progress = _condition("Progressing", False, "ProgressDeadlineExceeded", f"{name} has timed out progressing.")
    else:
        progress = _condition("Progressing", True, "ReplicaSetUpdated", f"{name} is progressing.")
    written = [_dated(each, said.get(each["type"], {}), moved, now) for each in (available, progress)]
    return written, late if not it.is_done and now < late else None


def _condition(name: str, holds: bool, reason: str, message: str) -> Thing:
    return {"type": name, "status": str(holds), "reason": reason, "message": message}


def _dated(new: Thing, old: Thing, moved: bool, now: float) -> Thing:
    """With the times of the one before, as far as it says the same."""
    same = all(old.get(name) == value for name, value in new.items())
    updated = old["lastUpdateTime"] if same and not (moved and new["type"] == "Progressing") else time_text(now)
    turned = old["lastTransitionTime"] if old.get("status") == new["status"] else time_text(now)
    return {**new, "lastUpdateTime": updated, "lastTransitionTime": turned}
