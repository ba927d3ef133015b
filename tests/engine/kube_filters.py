"""kube-scheduler's filters, stated again from Kubernetes' documentation, on raw objects: the nodes that take a pod.

Slow and literal: each function is one filter plugin and says of one node whether it takes the pod. Nothing is shared
with the engine. Nodes and pods are dicts as YAML gives them; `spaces` are the labels of namespaces.
"""

import re
from collections import Counter
from decimal import Decimal
from typing import Any, NamedTuple

Thing = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
SUFFIX = {"m": Decimal("0.001"), "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


class Cluster(NamedTuple):
    nodes: list[Thing]
    pods: list[Thing]  # with a node
    spaces: dict[str, dict[str, str]]

    def on(self, node: Thing) -> list[Thing]:
        """The pods on a node that are not over."""
        name = node["metadata"]["name"]
        return [one for one in self.pods if one["spec"]["nodeName"] == name and not is_over(one)]


def feasible(pod: Thing, cluster: Cluster) -> set[str]:
    """Names of the nodes that pass every filter."""
    return {node["metadata"]["name"] for node in cluster.nodes if not rejected_by(pod, node, cluster)}


def rejected_by(pod: Thing, node: Thing, cluster: Cluster) -> str:
    """The first filter that rejects a node; "" for none."""
    filters = (unschedulable, node_name, taints, node_affinity, ports, resources, inter_pod_affinity, topology_spread)
    return next((one.__name__ for one in filters if not one(pod, node, cluster)), "")


def is_over(pod: Thing) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def labels_of(thing: Thing) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


# Filters that look at the node


def unschedulable(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    return not node["spec"].get("unschedulable") or tolerated(pod, CORDON)


def node_name(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    return pod["spec"].get("nodeName", "") in ("", node["metadata"]["name"])


def taints(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    return no_taint_repels(pod, node)


def no_taint_repels(pod: Thing, node: Thing) -> bool:
    hard = [one for one in node["spec"].get("taints", []) if one["effect"] in ("NoSchedule", "NoExecute")]
    return all(tolerated(pod, one) for one in hard)


def tolerated(pod: Thing, taint: Thing) -> bool:
    for one in pod["spec"].get("tolerations", []):
        if one.get("effect") and one["effect"] != taint["effect"]:
            continue
        if one.get("key") and one["key"] != taint["key"]:
            continue
        if one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""):
            return True
    return False


def node_affinity(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    return wants_node(pod, node)


def wants_node(pod: Thing, node: Thing) -> bool:
    own = labels_of(node)
    if any(own.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return False
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None:
        return True
    return any(term_holds(term, node) for term in required["nodeSelectorTerms"])


def term_holds(term: Thing, node: Thing) -> bool:
    expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    if not expressions and not fields:
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    return all(holds(one, labels_of(node)) for one in expressions) and all(holds(one, name) for one in fields)


def holds(one: Thing, labels: dict[str, str]) -> bool:
    key, values = one["key"], one.get("values", [])
    match one["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    numbers = [labels.get(key, ""), values[0]]
    if not all(re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) and abs(int(text)) < 2**63 for text in numbers):
        return False
    left, right = map(int, numbers)
    return left > right if one["operator"] == "Gt" else left < right


# Filters that look at the pods on the node


def ports(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    taken = [port for other in cluster.on(node) for port in host_ports(other)]
    return not any(conflict(mine, other) for mine in host_ports(pod) for other in taken)


def host_ports(pod: Thing) -> list[tuple[str, str, int]]:
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"] for port in container.get("ports", []) if port.get("hostPort")
    ]


def conflict(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))


def resources(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    others, offered = cluster.on(node), {key: amount(text) for key, text in node["status"]["allocatable"].items()}
    if len(others) + 1 > offered.get("pods", 0):
        return False
    used: Counter[str] = Counter()
    for other in others:
        used.update(requests(other))
    return all(value <= offered.get(key, 0) - used[key] for key, value in requests(pod).items() if value > 0)


def requests(pod: Thing) -> dict[str, Decimal]:
    """The sum of the containers, or the largest init container if that is more; then the overhead."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for key, value in asked(container).items():
            total[key] = total.get(key, Decimal(0)) + value
    for container in pod["spec"].get("initContainers", []):
        for key, value in asked(container).items():
            total[key] = max(total.get(key, Decimal(0)), value)
    for key, text in pod["spec"].get("overhead", {}).items():
        total[key] = total.get(key, Decimal(0)) + amount(text)
    return total


def asked(container: Thing) -> dict[str, Decimal]:
    said = container.get("resources", {})
    return {key: amount(text) for key, text in {**said.get("limits", {}), **said.get("requests", {})}.items()}


def amount(text: str) -> Decimal:
    number, suffix = re.fullmatch(r"([0-9.]+)(\w*)", str(text)).groups()  # type: ignore[union-attr]
    return Decimal(number) * SUFFIX[suffix] if suffix else Decimal(number)


# Filters that look at pods on other nodes


def selects(selector: Thing | None, labels: dict[str, str]) -> bool:
    """No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(holds(one, labels) for one in selector.get("matchExpressions", []))


def terms(pod: Thing, kind: str) -> list[Thing]:
    return pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])


def means(term: Thing, owner: Thing, other: Thing, cluster: Cluster) -> bool:
    """Whether a term of `owner` selects the other pod. Match label keys join its selector with the owner's values."""
    space, own, labels = other["metadata"]["namespace"], labels_of(owner), labels_of(other)
    named, by_label = term.get("namespaces", []), term.get("namespaceSelector")
    if not named and by_label is None:
        in_space = space == owner["metadata"]["namespace"]
    else:
        in_space = space in named or selects(by_label, cluster.spaces.get(space, {}))
    same = all(labels.get(key) == own[key] for key in term.get("matchLabelKeys", []) if key in own)
    differs = all(labels.get(key) != own[key] for key in term.get("mismatchLabelKeys", []) if key in own)
    return in_space and same and differs and selects(term.get("labelSelector"), labels)


def inter_pod_affinity(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    here = labels_of(node)
    standing = [(labels_of(at), other) for at in cluster.nodes for other in cluster.on(at)]

    def is_beside(there: dict[str, str], key: str) -> bool:
        return key in here and there.get(key) == here[key]

    for there, other in standing:
        repels = [term for term in terms(other, "podAntiAffinity") if means(term, other, pod, cluster)]
        repels += [term for term in terms(pod, "podAntiAffinity") if means(term, pod, other, cluster)]
        if any(is_beside(there, term["topologyKey"]) for term in repels):
            return False
    wanted = terms(pod, "podAffinity")
    friends = [there for there, other in standing if all(means(term, pod, other, cluster) for term in wanted)]
    keys = [term["topologyKey"] for term in wanted]
    if any(key not in here for key in keys):
        return False
    if all(any(is_beside(there, key) for there in friends) for key in keys):
        return True
    is_first = not any(key in there for there in friends for key in keys)
    return is_first and all(means(term, pod, pod, cluster) for term in wanted)


def topology_spread(pod: Thing, node: Thing, cluster: Cluster) -> bool:
    said = pod["spec"].get("topologySpreadConstraints", [])
    hard = [one for one in said if one["whenUnsatisfiable"] == "DoNotSchedule"]
    return all(is_even(one, hard, pod, node, cluster) for one in hard)


def is_even(one: Thing, hard: list[Thing], pod: Thing, node: Thing, cluster: Cluster) -> bool:
    """Whether one more pod on the node keeps its domain within the skew. Nodes count that have the keys of all
    constraints and pass the node inclusion policies; pods that are being deleted do not."""
    key = one["topologyKey"]
    if key not in labels_of(node):
        return False
    counts: Counter[str] = Counter()
    for other in cluster.nodes:
        has_keys = all(each["topologyKey"] in labels_of(other) for each in hard)
        if has_keys and is_included(one, pod, other):
            stay = [it for it in cluster.on(other) if "deletionTimestamp" not in it["metadata"]]
            counts[labels_of(other)[key]] += sum(is_counted(one, pod, it) for it in stay)
    least = min(counts.values(), default=0) if len(counts) >= one.get("minDomains", 1) else 0
    return counts[labels_of(node)[key]] + is_counted(one, pod, pod) - least <= one["maxSkew"]


def is_included(one: Thing, pod: Thing, node: Thing) -> bool:
    if one.get("nodeAffinityPolicy", "Honor") == "Honor" and not wants_node(pod, node):
        return False
    return one.get("nodeTaintsPolicy", "Ignore") == "Ignore" or no_taint_repels(pod, node)


def is_counted(one: Thing, pod: Thing, other: Thing) -> bool:
    own, labels = labels_of(pod), labels_of(other)
    same = all(labels.get(key) == own[key] for key in one.get("matchLabelKeys", []) if key in own)
    return same and pod["metadata"]["namespace"] == other["metadata"]["namespace"] and selects(
        one.get("labelSelector"), labels
    )
