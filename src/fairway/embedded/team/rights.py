"""What the Unix users of a team's box may do: much in their own namespace, and read what all share.

In its namespace a user may do what the ClusterRole `edit` says. Everywhere it may read queues, nodes, pools, priority
classes and windows that are reserved, and whether the scheduler runs; none of these names the work of others.
"""

from typing import Any

from fairway import LEASE, NAMESPACE
from fairway.kube.kinds import Kind

Thing = dict[str, Any]
USERS = "fairway:unix-users"
"""The group of all who came in by the socket; no Unix group has a colon in its name."""
RBAC = "rbac.authorization.k8s.io"
NAME = "fairway-team"
ROLES = Kind("Role", "roles", f"{RBAC}/v1")
BINDINGS = Kind("RoleBinding", "rolebindings", f"{RBAC}/v1")
CLUSTER_ROLES = Kind("ClusterRole", "clusterroles", f"{RBAC}/v1", is_namespaced=False)
CLUSTER_BINDINGS = Kind("ClusterRoleBinding", "clusterrolebindings", f"{RBAC}/v1", is_namespaced=False)
READ = ["get", "list", "watch"]
SHARED = [
    {"apiGroups": ["fairway.dev"], "resources": ["nodepools", "queues", "reservations"], "verbs": READ},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": READ},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": READ},
]
LEASES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE], "verbs": ["get"]}]


def shared() -> list[tuple[Kind, Thing]]:
    """The roles of all users, in the order in which they are made."""
    of_role, users = {"apiGroup": RBAC, "name": NAME}, [{"apiGroup": RBAC, "kind": "Group", "name": USERS}]
    meta, home = {"name": NAME}, {"name": NAME, "namespace": NAMESPACE}
    return [
        (CLUSTER_ROLES, {"metadata": meta, "rules": SHARED}),
        (CLUSTER_BINDINGS, {"metadata": meta, "roleRef": of_role | {"kind": "ClusterRole"}, "subjects": users}),
        (ROLES, {"metadata": home, "rules": LEASES}),
        (BINDINGS, {"metadata": home, "roleRef": of_role | {"kind": "Role"}, "subjects": users}),
    ]


def binding(namespace: str, user: str) -> Thing:
    """What makes a namespace its user's own."""
    return {
        "metadata": {"name": NAME, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
