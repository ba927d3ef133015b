"""What the roles of the manifests grant the controller, and what a request needs of them: (group, resource, verb)."""

from collections.abc import Iterator

from fairway import LEASE
from fairway.api.owners import GROUPS, OWNERS
from fairway.cli.manifests import manifests
from fairway.kube.transport import Request

Grant = tuple[str, str, str]
OF_OPERATORS = {(group, row.plural) for (group, _), row in OWNERS.items() if group != "batch"}
OF_OPERATORS |= {(group, "podgroups") for group, _ in GROUPS} | {("topology.node.k8s.io", "noderesourcetopologies")}
"""What others define; tests/owners holds the rules for it to the table."""
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def granted() -> set[Grant]:
    roles = [one for one in manifests() if one["kind"] in ("Role", "ClusterRole") and one["metadata"]["name"] == LEASE]
    return {
        (group, resource, verb) for role in roles for rule in role["rules"] for group in rule["apiGroups"]
        for resource in rule["resources"] if (group, resource) not in OF_OPERATORS for verb in rule["verbs"]
    }  # fmt: skip


def needed(request: Request) -> Iterator[Grant]:
    """What a request needs; nothing for what every authenticated user may read, as /apis/GROUP/VERSION."""
    root, *rest = request.path.strip("/").split("/")
    group = rest.pop(0) if root == "apis" else ""
    del rest[:1]  # the version
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        del rest[:2]
    if rest:
        resource, name, part = [*rest, "", ""][:3]
        read = "watch" if ("watch", "true") in request.query else "get" if name else "list"
        yield group, "/".join(filter(None, (resource, part))), VERBS.get(request.method, read)
