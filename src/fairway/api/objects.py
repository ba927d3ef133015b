"""Objects of Kubernetes itself, as far as Fairway reads them: partial structs for msgspec to decode watch bytes into.

A field that is not named here is skipped while decoding, which is what makes that cheap. Where a value of the engine
has the shape of Kubernetes' own it is used as it is. Only what Go writes as null though it is unset (creationTimestamp)
may be null; `decode.cleaned` drops other nulls from what people wrote.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from fairway.engine import ATTACHABLE, Expression, Taint, Toleration

from .indexes import INDEX as INDEX
from .quantities import Quantity

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Natural = Annotated[int, Meta(ge=0, le=2**31 - 1)]

GROUP = "fairway.dev"
QUEUE, MANAGED, USER = "fairway.dev/queue", "fairway.dev/managed", "fairway.dev/user"
FRACTION, GPU_MEMORY = "fairway.dev/gpu-fraction", "fairway.dev/gpu-memory"
GROUP_NAME, GROUP_SIZE = "fairway.dev/group", "fairway.dev/group-size"
CHOOSER, DEVICES, UNHEALTHY = "fairway.dev/devices", "fairway.dev/device-groups", "fairway.dev/unhealthy"
ASSIGNED, SUBMITTED, ACTIVE = "fairway.dev/assigned-devices", "fairway.dev/submitted", "fairway.dev/active"
PAUSED, CAN_PAUSE = "fairway.dev/paused", "fairway.dev/pause"  # on an owner: by its user; on a node: it can freeze pods
TO_DISK = "disk"  # the value of CAN_PAUSE on a node that can write frozen pods to disk
FREEZE, FROZEN = "fairway.dev/freeze", "fairway.dev/Frozen"  # on a pod: since when it is to be frozen; its condition
SAVE = "fairway.dev/freeze-to-disk"  # on a pod: as FREEZE, where its frozen processes are to be on disk
ON_DISK, NOT_SAVED = "OnDisk", "NotSaved"  # reasons of FROZEN: where its processes are, and that they cannot go there
CANCELLED = "Cancelled"  # the reason of an event, see cancelled.py
GATE, SCHEDULER, MANIFESTS = "fairway.dev/admission", "fairway", "fairway.dev/pods"
DEFAULT_SCHEDULER, HOLLOW = "default-scheduler", "fairway.dev/hollow"
ATTEMPT = "fairway.dev/attempt"  # on a pod: name and uid of its Workload, and status.attempt; with slashes
IN_QUEUE = "fairway.dev/in-queue"  # on a bound pod whose label does not name it: the queue of its Workload
RELEASED = "fairway.dev/released"  # on a pod that its Job owns no longer, and that is to go: the name of its Workload
POOL, CHARGED = "fairway.dev/pool", "fairway.dev/charged"  # on a pod without a Workload: where, and that it was charged
IDLE_SINCE = "fairway.dev/idle-since"  # on a pod: since when it uses neither a GPU nor a twentieth of a CPU
OF_CONTROLLER = (ASSIGNED, ATTEMPT, IN_QUEUE, POOL, CHARGED, RELEASED, FREEZE, SAVE, IDLE_SINCE)
"""Annotations of a pod on how it runs: they request nothing, and no user writes them."""
OVER = ("Succeeded", "Failed")  # phases of a pod, and of a Workload
FINISHED = "Finished"  # the condition of a Workload that is over, and the reason of one that succeeded
BEGAN = "fairway.dev/began-as"  # on a Workload: the uid of the pod that was its own Workload before
FINALIZER = "fairway.dev/charge"  # of a Workload that is not charged yet
COMPLETIONS = "fairway.dev/completions"  # on the Workload of an array: how many trials it has
WORLD_SIZE = "fairway.dev/world-size"
ELASTIC, MIN_COUNT = "fairway.dev/elastic", "fairway.dev/min-count"  # on a Job; and on its pods, when they are bound
PARKED_REPLICAS = "fairway.dev/parked"  # on what was scaled to zero: the replicas that it has when it is woken
GPU_USE = "fairway.dev/gpu-use"  # on a node: `0=busy,1=idle`, of the devices that tell
WENT_DOWN = "fairway.dev/went-down"  # on a node: from when until when it was last down with all its pods, `TIME/TIME`
OUTSIDE = "fairway.dev/outside"  # on a pod that stands for processes which Fairway did not start: device, and who
PAST_DEADLINE = "DeadlineExceeded"  # the reason of a pod or a Job that its activeDeadlineSeconds ended
LOST_POD = "Lost"  # the reason of a pod of which nobody knows how it ended
ATTACHED = f"{ATTACHABLE}csi-"  # before the name of a CSI driver: the resource of its volumes
NAMESPACE_NAME, HOSTNAME = "kubernetes.io/metadata.name", "kubernetes.io/hostname"


class Part(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """What all structs of the API share: camelCase outside, absent where default. They are trees: of the thousands that
    are kept none can be part of a cycle, and the collector of garbage passes by."""


class OwnerReference(Part, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Metadata(Part, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Natural = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Natural = 0
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def is_going(self) -> bool:
        return self.deletion_timestamp is not None


class Object(Part, frozen=True):
    """What all objects have, and templates of them."""

    metadata: Metadata = Metadata()


class Condition(Part, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class LabelSelector(Part, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()

    def requirements(self) -> tuple[Expression, ...]:
        """What holds of the labels that it selects; an empty one selects everything."""
        exact = tuple(Expression(key, "In", (value,)) for key, value in sorted(self.match_labels.items()))
        return exact + self.match_expressions


class NodeTerm(Part, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Part, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class PreferredNode(Part, frozen=True):
    weight: Int32
    preference: NodeTerm


class NodeAffinity(Part, frozen=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNode, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class PodTerm(Part, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPod(Part, frozen=True):
    weight: Int32
    pod_affinity_term: PodTerm


class PodTerms(Part, frozen=True):
    required: tuple[PodTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredPod, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(Part, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodTerms = PodTerms()
    pod_anti_affinity: PodTerms = PodTerms()


class SpreadPart(Part, frozen=True):
    max_skew: Natural
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Natural = 1
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Resources(Part, frozen=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Port(Part, frozen=True):
    container_port: Natural = 0
    host_port: Natural = 0
    host_ip: str = field(default="0.0.0.0", name="hostIP")
    protocol: str = "TCP"


class Container(Part, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class VolumeUse(Part, frozen=True):
    claim_name: str = ""


class ClaimSpec(Part, frozen=True):
    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    resources: Resources = Resources()
    selector: LabelSelector = LabelSelector()


class ClaimTemplate(Part, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class Ephemeral(Part, frozen=True):
    volume_claim_template: ClaimTemplate = ClaimTemplate()


class Volume(Part, frozen=True):
    name: str = ""
    persistent_volume_claim: VolumeUse = VolumeUse()
    ephemeral: Ephemeral | None = None


class Gate(Part, frozen=True):
    name: str


class SchedulingGroup(Part, frozen=True):
    pod_group_name: str = ""


class PodSpec(Part, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, Quantity] = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadPart, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()
    scheduling_group: SchedulingGroup = SchedulingGroup()
    restart_policy: str = ""
    termination_grace_period_seconds: Natural = 30
    active_deadline_seconds: int | None = None


class PodTemplate(Object, frozen=True):
    spec: PodSpec = PodSpec()


class Terminated(Part, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class Waiting(Part, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(Part, frozen=True):
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Part, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: int = 0
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None


class PodStatus(Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: dict[str, Quantity] = {}
    resources: Resources | None = None

    @property
    def is_over(self) -> bool:
        return self.phase in OVER


class PodObject(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Part, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Part, frozen=True):
    allocatable: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()


class NodeObject(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class FailurePolicy(Part, frozen=True):
    """There is one; its rules are the Job controller's."""


class JobSpec(Part, frozen=True):
    parallelism: Natural = 1
    completions: Natural | None = None
    suspend: bool = False
    completion_mode: str = ""
    manual_selector: bool = False
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Part, frozen=True):
    active: Natural = 0
    succeeded: Natural = 0
    failed_indexes: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class JobObject(Object, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Gang(Part, frozen=True):
    min_count: Natural = 1


class GroupPolicy(Part, frozen=True):
    gang: Gang | None = None


class PodGroupSpec(Part, frozen=True):
    min_member: Natural | None = None
    scheduling_policy: GroupPolicy = GroupPolicy()


class PodGroupObject(Object, frozen=True):
    """A gang of pods as others describe it: Kubernetes by a policy, Volcano by a number of members."""

    spec: PodGroupSpec = PodGroupSpec()

    @property
    def least(self) -> int:
        """The fewest pods that start."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang else self.spec.min_member or 1


class DefinedVersion(Part, frozen=True):
    name: str
    served: bool = False


class DefinedNames(Part, frozen=True):
    kind: str = ""
    plural: str = ""


class DefinitionSpec(Part, frozen=True):
    group: str = ""
    names: DefinedNames = DefinedNames()
    versions: tuple[DefinedVersion, ...] = ()


class DefinitionStatus(Part, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    """Null while it is new."""


class DefinitionObject(Object, frozen=True):
    """A CustomResourceDefinition."""

    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


class NamespaceObject(Object, frozen=True):
    """A Namespace: its labels are all that is read."""


class RangeItem(Part, frozen=True):
    type: str = ""
    default_request: dict[str, Quantity] = {}


class RangeSpec(Part, frozen=True):
    limits: tuple[RangeItem, ...] = ()


class LimitRangeObject(Object, frozen=True):
    """What containers of a namespace request that do not say so; an API server has completed it."""

    spec: RangeSpec = RangeSpec()


class PriorityClassObject(Object, frozen=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class BudgetSpec(Part, frozen=True):
    selector: LabelSelector | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(Part, frozen=True):
    disruptions_allowed: Int32 | None = None


class DisruptionBudgetObject(Object, frozen=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ZoneResource(Part, frozen=True):
    name: str
    allocatable: Quantity = 0
    capacity: Quantity = 0
    available: Quantity | None = None


class Zone(Part, frozen=True):
    name: str
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


TOPOLOGY = ("topology.node.k8s.io", "NodeResourceTopology")


class NodeTopologyObject(Object, frozen=True):
    """A NodeResourceTopology; its name is the node's."""

    zones: tuple[Zone, ...] = ()


class VolumeStatus(Part, frozen=True):
    """Of a volume or a claim."""

    phase: str = ""


class ClaimObject(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: VolumeStatus = VolumeStatus()


class VolumeAffinity(Part, frozen=True):
    required: NodeSelector = NodeSelector()


class ClaimRef(Part, frozen=True):
    """The claim that a volume is for. `uid`: empty while it was only named."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def means(self, claim: Metadata) -> bool:
        is_named = bool(self.name) and (self.namespace, self.name) == (claim.namespace, claim.name)
        return is_named and self.uid in ("", claim.uid)


class VolumeSource(Part, frozen=True):
    driver: str = ""


class VolumeSpec(Part, frozen=True):
    csi: VolumeSource = VolumeSource()
    node_affinity: VolumeAffinity = VolumeAffinity()
    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ClaimRef = ClaimRef()


class VolumeObject(Object, frozen=True):
    """A PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    def is_like(self, claim: ClaimSpec) -> bool:
        """Whether it is of the class and the mode that a claim asks for."""
        return (self.spec.storage_class_name, self.spec.volume_mode) == (claim.storage_class_name, claim.volume_mode)


class TopologyLabel(Part, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Part, frozen=True):
    match_label_expressions: tuple[TopologyLabel, ...] = ()


class StorageClassObject(Object, frozen=True):
    volume_binding_mode: str = "Immediate"
    provisioner: str = ""
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class NodeDriver(Part, frozen=True):
    name: str = ""
    allocatable: dict[str, Natural] = {}


class NodeDrivers(Part, frozen=True):
    drivers: tuple[NodeDriver, ...] | None = None


class CsiNodeObject(Object, frozen=True):
    """What CSI drivers can do on the node of its name."""

    spec: NodeDrivers = NodeDrivers()

    def limits(self) -> dict[str, int]:
        """How many volumes of each limited driver the node attaches, by resource."""
        drivers = self.spec.drivers or ()
        return {ATTACHED + one.name: one.allocatable["count"] for one in drivers if "count" in one.allocatable}


class DriverSpec(Part, frozen=True):
    storage_capacity: bool = False


class CsiDriverObject(Object, frozen=True):
    spec: DriverSpec = DriverSpec()


class CapacityObject(Object, frozen=True):
    """A CSIStorageCapacity: how large a volume of a class can be on some nodes."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity = 0
    maximum_volume_size: Quantity | None = None
