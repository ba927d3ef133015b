"""ReplicaSet: so many pods of a template. A pod that ended counts no more and is replaced.

Where there are too many, those go first that have no node, then those that are not ready, then those of the lowest
`controller.kubernetes.io/pod-deletion-cost`, then the youngest: what was reached is kept.
"""

from collections.abc import Sequence

from fairway.api.quantities import time
from fairway.embedded.jobtypes import Pod
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.turnstile import side_by_side

from .control import BURST, REPLICA_SETS, Control, Object, Thing

COST = "controller.kubernetes.io/pod-deletion-cost"


class ReplicaSets(Control[Pod]):
    kind, child = REPLICA_SETS, kinds.PODS

    def __init__(self, client: Client) -> None:
        super().__init__(client, Pod)

    async def settle(self, one: Object, children: list[Pod]) -> float | None:
        alive = [pod for pod in children if not pod.is_over]
        missing = one.spec.get("replicas", 1) - len(alive)
        if missing:
            surplus = sorted(alive, key=_worth)[:-missing] if missing < 0 else []
            await side_by_side([*(self.unmake(one, pod) for pod in surplus),
                                *(self.make(one, _pod(one)) for _ in range(min(missing, BURST)))])
            alive = [pod for pod in self.owned(one) if not pod.is_over]
        counted, again = tally(one, alive, self.clock.now())
        full = sum(one.spec["template"]["metadata"]["labels"].items() <= pod.metadata.labels.items() for pod in alive)
        leaving = sum(pod.metadata.is_going and pod.status.phase in ("Pending", "Running") for pod in children)
        shown = {"observedGeneration": one.metadata.generation, "fullyLabeledReplicas": full}
        await self.show(one, {**counted, **shown, "terminatingReplicas": leaving})
        return again


def tally(one: Object, alive: Sequence[Pod], now: float) -> tuple[Thing, float | None]:
    """How many pods there are, are ready, and have been for `minReadySeconds`; and when the next will have been."""
    since = [at for pod in alive if (at := ready_since(pod)) is not None]
    due = [at + one.spec.get("minReadySeconds", 0) for at in since]
    counts = {"replicas": len(alive), "readyReplicas": len(since), "availableReplicas": sum(at <= now for at in due)}
    return counts, min((at for at in due if at > now), default=None)


def ready_since(pod: Pod) -> float | None:
    found = next((it for it in pod.conditions if it.type == "Ready" and it.status == "True"), None)
    return time(found.last_transition_time) if found and found.last_transition_time else None


def _worth(pod: Pod) -> tuple[bool, bool, int, float]:
    cost, made = pod.metadata.annotations.get(COST, "0"), pod.metadata.creation_timestamp
    price = int(cost) if cost.lstrip("-").isdecimal() else 0
    return bool(pod.spec.node_name), ready_since(pod) is not None, price, -time(made) if made else 0.0


def _pod(one: Object) -> Thing:
    template = one.spec["template"]
    meta = template.get("metadata") or {}
    kept = {name: meta[name] for name in ("labels", "annotations", "finalizers") if name in meta}
    return {"metadata": {"generateName": f"{one.metadata.name[:57]}-", **kept}, "spec": template["spec"]}
