"""Where a workload would be placed, in a word: `n1*2 n2` per podset, podsets apart by ` | `, None if nowhere."""

import numpy as np
from builders import world
from numpy.typing import NDArray

from fairway.engine.draft import Draft
from fairway.engine.model import Expression, NodeShare, Pod, PodClass, Pool, Term, Topology, Workload
from fairway.engine.place import Ask, cache_of, place
from fairway.engine.state import snapshot_of


def draft_of(*things, levels=(), **fields) -> Draft:
    """A draft of the world with one pool of those levels."""
    fields.setdefault("pools", (Pool("default", levels=tuple(levels), strategy=fields.pop("strategy", "Binpack")),))
    pods = tuple(one for one in things if isinstance(one, Pod))
    return Draft(snapshot_of(world(*things, pods=pods, **fields)))


def placed(workload: Workload, *things, pool="default", counts=None, ask=None, **fields) -> str | None:
    draft = draft_of(*things, workload, **fields)
    ask = {"counts": counts or tuple(podset.count for podset in workload.podsets), **(ask or {})}
    found = place(draft, Ask(workload, **ask), pool)
    return None if found is None else " | ".join(" ".join(map(word, podset.nodes)) for podset in found)


def room(draft: Draft, pod: PodClass, pool: str) -> NDArray[np.int64]:
    """Pods of the class that each node could take now."""
    return cache_of(draft).room(draft.shape(pod, pool))


def word(share: NodeShare) -> str:
    return share.node if share.count == 1 else f"{share.node}*{share.count}"


def devices_of(workload: Workload, *things, **fields) -> str | None:
    """`n1[0 1][2 3]`: the devices of each pod on each node."""
    draft = draft_of(*things, workload, **fields)
    found = place(draft, Ask(workload, tuple(podset.count for podset in workload.podsets)), "default")
    if found is None:
        return None
    shares = [share for podset in found for share in podset.nodes]
    return " ".join(one.node + "".join(f"[{' '.join(map(str, pod))}]" for pod in one.devices) for one in shares)


def term(*expressions: Expression, names: tuple[str, ...] = ()) -> Term:
    return Term(expressions, (Expression("metadata.name", "In", names),) if names else ())


def has(key: str, *values: str, operator: str = "In") -> Expression:
    return Expression(key, operator, values)


def other(name: str, node: str, *, devices=(), is_leaving=False, **fields) -> Pod:
    """A pod of others."""
    return Pod(f"other/{name}", node, PodClass(**fields), devices, is_leaving)


def within(required="", preferred="", segments=()) -> Topology:
    return Topology(required, preferred, segments)
