"""Labels, taints, affinity terms and host ports, as Kubernetes reads them. No placement is decided here."""

import re
from collections.abc import Mapping

from .model import Expression, Node, PodAffinity, PodClass, Selector, Taint, Toleration

EVERY_ADDRESS = ("", "0.0.0.0")
CORDON, NOT_READY = Taint("node.kubernetes.io/unschedulable"), Taint("node.kubernetes.io/not-ready")
"""The taints that Kubernetes sets on a cordoned node and on a NotReady one."""
READINESS = (NOT_READY.key, "node.kubernetes.io/unreachable")
STATE = "node.kubernetes.io/"
"""How the keys of taints begin that Kubernetes sets and takes away by a node's state."""
NAME, CLUSTER = "node name", "all nodes"
"""Topology keys of our own: each node is a domain; all nodes are one. No label key has a space."""
WHOLE = re.compile(r"[+-]?[0-9]+")


def holds(one: Expression, value: str | None) -> bool:
    """Whether a label's value, None where it is missing, satisfies the expression."""
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists" | "DoesNotExist":
            return (value is not None) == (one.operator == "Exists")
    left, right = (_whole(text) for text in (value, *one.values[:1])) if one.values else (None, None)
    if left is None or right is None:
        return False
    return left > right if one.operator == "Gt" else left < right


def _whole(text: str | None) -> int | None:
    """The 64-bit integer that a text is in plain digits; None for any other text."""
    found = int(text) if text is not None and WHOLE.fullmatch(text) and len(text) < 64 else None
    return found if found is not None and -(2**63) <= found < 2**63 else None


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy every requirement."""
    return all(holds(one, labels.get(one.key)) for one in selector)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and one.operator == "Exists"))
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )


def implied(node: Node) -> tuple[Taint, ...]:
    """The taints that a node's state amounts to, where Kubernetes has not set them yet."""
    cordon = (CORDON,) if node.is_unschedulable else ()
    is_marked = node.is_ready or any(taint.key in READINESS for taint in node.taints)
    return cordon if is_marked else (*cordon, NOT_READY)


def repels(node: Node, pod: PodClass) -> Taint | None:
    """The first taint of a node, written or implied, that keeps the pod off it."""
    taints = (one for one in (*node.taints, *implied(node)) if one.effect != "PreferNoSchedule")
    return next((one for one in taints if not tolerates(pod.tolerations, one)), None)


def required(pod: PodClass, *, anti: bool) -> list[PodAffinity]:
    return [term for term in pod.pod_affinity if term.weight is None and term.anti == anti]


def means(term: PodAffinity, owner: PodClass, other: PodClass) -> bool:
    """Whether a term of `owner` speaks of pods like `other`."""
    in_namespace = term.any_namespace or other.namespace in (term.namespaces or (owner.namespace,))
    return in_namespace and term.selector is not None and selects(term.selector, dict(other.labels))


def clash(pod: PodClass, other: PodClass) -> bool:
    """Whether they request the same host port."""
    return any(
        protocol == other_protocol and port == other_port
        and (ip == other_ip or ip in EVERY_ADDRESS or other_ip in EVERY_ADDRESS)
        for ip, protocol, port in pod.host_ports
        for other_ip, other_protocol, other_port in other.host_ports
    )
