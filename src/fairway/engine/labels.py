"""Labels, taints, terms of affinity and host ports, as Kubernetes reads them. Where pods go is not asked here."""

from collections.abc import Mapping

from .model import Expression, PodAffinity, PodClass, Selector, Taint, Toleration

EVERY_ADDRESS = ("", "0.0.0.0", "::")
CORDON = Taint("node.kubernetes.io/unschedulable")
"""What `unschedulable` amounts to: a pod that tolerates this may use the node."""
NAME = "metadata.name"
"""A node's name, where a label key is asked for."""


def holds(one: Expression, value: str | None) -> bool:
    """Whether a label's value, None where it is missing, satisfies the expression."""
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists" | "DoesNotExist":
            return (value is not None) == (one.operator == "Exists")
    try:
        left, right = int(value or ""), int(one.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if one.operator == "Gt" else left < right


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


def required(pod: PodClass, *, anti: bool) -> list[PodAffinity]:
    return [term for term in pod.pod_affinity if term.weight is None and term.anti == anti]


def means(term: PodAffinity, owner: PodClass, other: PodClass) -> bool:
    """Whether a term of `owner` speaks of pods like `other`."""
    in_namespace = term.any_namespace or other.namespace in (term.namespaces or (owner.namespace,))
    return in_namespace and term.selector is not None and selects(term.selector, dict(other.labels))


def clash(pod: PodClass, other: PodClass) -> bool:
    """Whether they want the same host port."""
    return any(
        protocol == other_protocol and port == other_port
        and (ip == other_ip or ip in EVERY_ADDRESS or other_ip in EVERY_ADDRESS)
        for ip, protocol, port in pod.host_ports
        for other_ip, other_protocol, other_port in other.host_ports
    )
