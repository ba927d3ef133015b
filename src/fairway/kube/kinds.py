"""Where objects are served: kinds as values, and the paths made from them.

A Kind knows its group, its plural and whether it lives in namespaces; a Ref names one object; a Selection names many.
The kinds that Fairway reads or writes stand at the end, and are constants. Nothing here talks to a server.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    plural: str
    group_version: str = "v1"
    is_namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Below `/api/v1` for the core group, `/apis/<group>/<version>` for the others."""
        root = f"/{'apis' if '/' in self.group_version else 'api'}/{self.group_version}"
        space = f"namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return "/".join(filter(None, (root, space, self.plural, name, subresource)))


@dataclass(frozen=True, slots=True)
class Ref:
    """One object. `namespace` is empty for what is cluster-scoped."""

    kind: Kind
    name: str
    namespace: str = ""

    def path(self, subresource: str = "") -> str:
        return self.kind.path(self.namespace, self.name, subresource)

    def alone(self) -> "Selection":
        """What selects this object and no other."""
        return Selection(self.kind, self.namespace, fields=f"metadata.name={self.name}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a kind; in one namespace, or with these labels and fields (Kubernetes' selector syntax)."""

    kind: Kind
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def path(self) -> str:
        return self.kind.path(self.namespace)

    def query(self) -> tuple[tuple[str, str], ...]:
        pairs = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return tuple((name, value) for name, value in pairs if value)


def ref(kind: Kind, key: str) -> Ref:
    """The object with a key as informers and the engine write it: `namespace/name`, or `name`."""
    namespace, _, name = key.rpartition("/")
    return Ref(kind, name, namespace)


FAIRWAY = "fairway.dev/v1alpha1"

NAMESPACES = Kind("Namespace", "namespaces", is_namespaced=False)
NODES = Kind("Node", "nodes", is_namespaced=False)
PODS = Kind("Pod", "pods")
POD_METRICS = Kind("PodMetrics", "pods", "metrics.k8s.io/v1beta1")
EVENTS = Kind("Event", "events")
_OURS = f"involvedObject.kind=Workload,involvedObject.apiVersion={FAIRWAY}"
RECORDS = Selection(EVENTS, fields=f"reason=Cancelled,{_OURS}")  # what cancelled workloads leave
SERVICES = Kind("Service", "services")
SECRETS = Kind("Secret", "secrets")
JOBS = Kind("Job", "jobs", "batch/v1")
LIMIT_RANGES = Kind("LimitRange", "limitranges")
PRIORITY_CLASSES = Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io/v1", is_namespaced=False)
LEASES = Kind("Lease", "leases", "coordination.k8s.io/v1")
CLAIMS = Kind("PersistentVolumeClaim", "persistentvolumeclaims")
VOLUMES = Kind("PersistentVolume", "persistentvolumes", is_namespaced=False)
STORAGE_CLASSES = Kind("StorageClass", "storageclasses", "storage.k8s.io/v1", is_namespaced=False)
STORAGE = (CLAIMS, VOLUMES, STORAGE_CLASSES)
CSI_NODES = Kind("CSINode", "csinodes", "storage.k8s.io/v1", is_namespaced=False)
CSI_DRIVERS = Kind("CSIDriver", "csidrivers", "storage.k8s.io/v1", is_namespaced=False)
CAPACITIES = Kind("CSIStorageCapacity", "csistoragecapacities", "storage.k8s.io/v1")
CSI = (CSI_NODES, CSI_DRIVERS, CAPACITIES)
DISRUPTION_BUDGETS = Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy/v1")
MUTATING_WEBHOOKS = Kind(
    "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1", False
)
VALIDATING_WEBHOOKS = Kind(
    "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "admissionregistration.k8s.io/v1", False
)
QUEUES = Kind("Queue", "queues", FAIRWAY, is_namespaced=False)
NODE_POOLS = Kind("NodePool", "nodepools", FAIRWAY, is_namespaced=False)
WORKLOADS = Kind("Workload", "workloads", FAIRWAY)
REVIEWS = Kind("SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io/v1", is_namespaced=False)
DEFINITIONS = Kind(
    "CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io/v1", is_namespaced=False
)
RESERVATIONS = Kind("Reservation", "reservations", FAIRWAY, is_namespaced=False)
USAGE_DAYS = Kind("UsageDay", "usagedays", FAIRWAY, is_namespaced=False)
USAGE_MONTHS = Kind("UsageMonth", "usagemonths", FAIRWAY, is_namespaced=False)
