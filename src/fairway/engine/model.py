"""What the engine knows of the world: values, frozen and hashable, with no behaviour beyond reading themselves.

Amounts are whole numbers in base units: milli-CPU for `cpu`, milli-GPU for `nvidia.com/gpu`, bytes for memory and
storage, units for everything else. Times are seconds since the epoch, durations seconds. A key is "namespace/name".
Absent is None or an empty tuple. What is read from Kubernetes objects is made in `fairway.api`, nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Amounts = tuple[tuple[str, int], ...]
"""Resource name and amount, sorted by name, no zeros unless a zero means something (a quota of 0)."""
DaysUsed = tuple[tuple[str, float, float], ...]
"""GPU-seconds that a workload used on UTC days: queue, end of the day, amount."""
Budgeted = tuple[float, tuple[tuple[float, float], ...]]
"""GPU-seconds that count in a queue's budget, and those of them by UTC day: end of the day, amount."""

CPU, MEMORY, PODS, GPU = "cpu", "memory", "pods", "nvidia.com/gpu"
ATTACHABLE = "attachable-volumes-"  # begins the resources of which a node without a limit has any number

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label (or, in `Term.fields`, on metadata.name)."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


Selector = tuple[Expression, ...]  # all must hold; empty selects everything


@dataclass(frozen=True, slots=True)
class Term:
    """A node selector term: all of its expressions and fields must hold; a term with neither matches nothing."""

    expressions: Selector = ()
    fields: Selector = ()


@dataclass(frozen=True, slots=True)
class Preference:
    weight: int
    term: Term


Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        """As kubectl writes it: key=value:effect."""
        return f"{self.key}{'=' * bool(self.value)}{self.value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty key with Exists tolerates everything; an empty effect every effect."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Effect | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """A pod (anti-)affinity term; `weight` None = required. `namespaces` empty = the pod's own."""

    selector: Selector | None
    topology_key: str
    namespaces: tuple[str, ...] = ()
    any_namespace: bool = False
    anti: bool = False
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint; `hard` = DoNotSchedule."""

    max_skew: int
    topology_key: str
    selector: Selector
    hard: bool = True
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodClass:
    """All that placement reads of a pod; pods alike share one value. `requests` holds no pod slot (each takes one,
    unless it says another number) and, with a fraction or GPU memory, no GPU. `affinity` is one of: any of its terms;
    `volumes`: each of them likewise. `attaches`: how many volumes, by ATTACHABLE resource."""

    namespace: str = "default"
    requests: Amounts = ()
    labels: tuple[tuple[str, str], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    volumes: tuple[tuple[Term, ...], ...] = ()
    attaches: Amounts = ()
    preferences: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod_affinity: tuple[PodAffinity, ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()  # (ip, protocol, port)
    gpu_fraction: int = 0  # milli-GPU of one shared device
    gpu_memory: int = 0  # bytes of one shared device
    alignment_required: bool = False
    exclusive: tuple[str, ...] = ()  # ReadWriteOncePod claims, namespace/name: one pod of the cluster uses each
    unready: tuple[tuple[str, str], ...] = ()  # claims that no pod can use yet: a Reason, and which


@dataclass(frozen=True, slots=True)
class Segment:
    level: str
    size: int  # pods


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels are node label keys. `segments`: outer first, each inner size divides the outer."""

    required: str = ""
    preferred: str = ""
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSet:
    name: str
    count: int
    min_count: int
    pod: PodClass
    topology: Topology = Topology()

    @property
    def is_elastic(self) -> bool:
        return self.min_count < self.count


@dataclass(frozen=True, slots=True)
class Eviction:
    time: float
    reason: str
    by: str = ""  # queue
    beneficiary: str = ""  # key of the workload it was for


@dataclass(frozen=True, slots=True)
class Workload:
    """What is queued, admitted and evicted as a whole. `submitted` never changes, evicted or not."""

    key: str
    queue: str
    podsets: tuple[PodSet, ...]
    uid: str = ""
    user: str = ""
    kind: str = "Training"  # Interactive | Inference
    priority: int = 0
    preempts: bool = True  # if its priority is higher; else it only goes first
    preemptible: bool = True
    submitted: float = 0.0
    pools: tuple[str, ...] = ()
    topology: Topology = Topology()
    expected_runtime: float | None = None
    time_limit: float | None = None
    deadline: float | None = None
    restart: Literal["Gang", "Pod"] = "Gang"
    restart_seconds: float = 0.0
    checkpoint_interval: float | None = None
    last_checkpoint: float | None = None
    grace: float = 30.0
    after: tuple[str, ...] = ()  # keys that must have succeeded
    is_active: bool = True
    backs_off_until: float | None = None
    excluded_nodes: tuple[str, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    attained: float = 0.0  # GPU-seconds served so far
    refused: str = ""  # why the last plan for it was dropped
    gates: tuple[str, ...] = ()  # scheduling gates of its pods that are not Fairway's
    pauses: bool = False  # its user wants it paused rather than stopped while it is not active
    paused: "Admission | None" = None  # where its processes are frozen; it starts there or nowhere
    on_disk: bool = False  # its frozen processes are, and need their memory again
    days: DaysUsed = ()  # as far as known

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class NodeShare:
    """`count` pods of a podset on a node. `devices`: per pod the device indices; empty where others choose them."""

    node: str
    count: int
    devices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PodSetPlacement:
    name: str
    nodes: tuple[NodeShare, ...]  # in rank order

    @property
    def count(self) -> int:
        return self.nodes[0].count if len(self.nodes) == 1 else sum([share.count for share in self.nodes])


@dataclass(frozen=True, slots=True)
class Admission:
    pool: str
    podsets: tuple[PodSetPlacement, ...]

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes in use."""
        return {share.node for placement in self.podsets for share in placement.nodes}

    def is_same(self, other: "Admission | None") -> bool:
        """Whether it gives the same places: podsets without any may be told or left out, in any order."""
        return self == other or (other is not None and self.pool == other.pool and self._places() == other._places())

    def _places(self) -> dict[str, tuple[NodeShare, ...]]:
        return {one.name: one.nodes for one in self.podsets if one.nodes}


@dataclass(frozen=True, slots=True)
class Running:
    """A workload that holds room: admitted, or promised it while `waits_for` leave, or leaving. `moves_to`: where it is
    admitted when it is gone from here. `lost`: podset and number of pods a running gang lost (they hold no room)."""

    workload: Workload
    admission: Admission
    admitted_at: float | None = None
    waits_for: tuple[str, ...] = ()
    is_promised: bool = False  # the Admitted condition is not True yet
    is_leaving: bool = False
    leaving_since: float | None = None
    is_pausing: bool = False  # it leaves by being paused: its memory stays held
    is_saving: bool = False  # it is paused on disk: its memory becomes free too
    moves_to: Admission | None = None
    lost: tuple[tuple[str, int], ...] = ()
    lost_since: float | None = None
    backfilled_for: str = ""  # key of the held workload into whose room it started at its own risk


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator in a node. Groups are small numbers; -1 = unknown."""

    index: int
    numa: int = -1
    nvlink: int = -1
    memory: int = 0  # bytes
    is_partitioned: bool = False  # MIG
    is_healthy: bool = True


@dataclass(frozen=True, slots=True)
class Numa:
    """What one NUMA group of a node offers; how much of it is free, where others choose and that is told."""

    index: int
    capacity: Amounts
    free: Amounts | None = None


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    capacity: Amounts = ()  # allocatable
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    is_unschedulable: bool = False
    is_unhealthy: bool = False  # fairway.dev/unhealthy: drains
    is_leaving: bool = False  # being deleted
    can_pause: bool = False  # its processes can be frozen
    can_save: bool = False  # and frozen ones can be written to disk
    is_short: bool = False  # of memory, whatever was requested
    chooser: Literal["Scheduler", "Claim", "Kubelet"] = "Kubelet"
    devices: tuple[Device, ...] = ()
    numa: tuple[Numa, ...] = ()
    load: tuple[tuple[str, int], ...] = ()  # measured use in milli of capacity per resource, for load risk

    @property
    def is_up(self) -> bool:
        """Neither marked unhealthy nor being deleted."""
        return not (self.is_unhealthy or self.is_leaving)


@dataclass(frozen=True, slots=True)
class Pause:
    """Of a pod whose processes are frozen. `queue`: where its memory counts; `disk`: how far it is written there."""

    workload: str
    queue: str
    since: float
    disk: Literal["", "Writing", "Written", "Refused"] = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that is not of a workload we admit: it takes room and takes part in affinity, no more. So does one of a
    workload that is paused, and holds memory alone."""

    key: str
    node: str
    pod: PodClass
    devices: tuple[int, ...] = ()
    is_leaving: bool = False
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    selector: Selector = ()
    levels: tuple[str, ...] = ()  # widest first
    strategy: str = "Binpack"
    hold_depth: int | None = None  # None: the policy's; -1: all
    eviction_gpus: int | None = None  # token bucket: milli-GPU per `eviction_period`; None: no bucket
    eviction_period: float = 3600.0
    max_nodes: int | None = None
    shape: Amounts = ()
    cost_per_gpu_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """A quantity of a quota: absolute in base units, or milli of the live capacity of its pools."""

    amount: int
    is_relative: bool = False


@dataclass(frozen=True, slots=True)
class Quota:
    """`pool` "*": all pools. A resource in neither guaranteed nor limit is not governed here."""

    pool: str = "*"
    guaranteed: tuple[tuple[str, Share], ...] = ()
    limit: tuple[tuple[str, Share], ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Decayed:
    """A quantity that halves every half-life, as it was at `time`."""

    value: float
    time: float


@dataclass(frozen=True, slots=True)
class Sketch:
    """Runtimes seen, as a mergeable quantile sketch: (seconds, weight), seconds ascending."""

    points: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a queue remembers; kept in its status."""

    usage: tuple[tuple[tuple[str, str], Decayed], ...] = ()  # (pool, resource) → amount·seconds
    users: tuple[tuple[str, Decayed], ...] = ()  # GPU·seconds
    budget_spent: float = 0.0  # GPU-seconds in the current period
    budget_since: float | None = None
    uncharged: tuple[tuple[str, float], ...] = ()  # workload → GPU-seconds: part of `budget_spent`
    evicted: tuple[tuple[str, Decayed], ...] = ()  # pool → milli-GPU in the token bucket, drained linearly
    runtimes: tuple[tuple[tuple[str, str], Sketch], ...] = ()  # (user, name) → runtimes; "" = wider group
    stretch: float = 2.0  # of the wait until p90, so that nine in ten start by then; as long as little was learned: 2


@dataclass(frozen=True, slots=True)
class Queue:
    """None = inherited from the parent, then the default that SEMANTICS names."""

    name: str
    parent: str = ""
    quotas: tuple[Quota, ...] = ()
    priority: int = 0
    order: str = "Priority"
    pools: tuple[str, ...] = ()
    namespaces: frozenset[str] | None = None  # who may submit, resolved from labels; None: any
    max_priority: int | None = None
    allows_nonpreemptible: bool | None = None
    min_runtime: float | None = None
    preempt_min_runtime: float | None = None
    max_evictions: int | None = None
    expected_runtime: float | None = None
    default_time_limit: float | None = None
    max_time_limit: float | None = None
    max_wait: float | None = None
    consolidates: bool | None = None  # consolidation: WhenStuck
    pauses: bool | None = None  # evict: Pause
    budget: int | None = None  # GPU-seconds per period
    budget_period: float | None = None
    stop: Literal["None", "StopAdmitting", "Drain"] = "None"
    created: float = 0.0
    ledger: Ledger = Ledger()

    def spent(self, now: float) -> tuple[float, float]:
        """GPU-seconds of the budget's period that `now` is in, and when it began; it begins with the first use."""
        since, period = self.ledger.budget_since, self.budget_period
        if since is None or period is None or now < since + period:
            return self.ledger.budget_spent, now if since is None else since
        return 0.0, now - (now - since) % period

    def counted(self, used: float, days: tuple[tuple[float, float], ...], now: float) -> float:
        """GPU-seconds of `used` that count in the period that `now` is in: without those of `days` that were over when
        it began. The first period begins with the first charge; what was used before that counts in it."""
        period, (_, began) = self.budget_period, self.spent(now)
        if period is None:
            return used
        is_first = self.ledger.budget_since is None or began < self.created + period
        return max(0.0, used - sum(amount for end, amount in days if end <= (began - period if is_first else began)))

    def spend(self, gpu_seconds: float, now: float) -> Ledger:
        """Its ledger with so much more spent of the budget."""
        spent, since = self.spent(now)
        return replace(self.ledger, budget_spent=spent + gpu_seconds, budget_since=since)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity kept for a queue ("": maintenance) from the first `start` on: `nodes`, or an amount of `pool`."""

    name: str
    start: float
    duration: float
    queue: str = ""
    pool: str = ""
    amount: Amounts = ()
    nodes: tuple[str, ...] = ()
    repeat: Literal["", "Daily", "Weekly"] = ""


@dataclass(frozen=True, slots=True)
class Disruption:
    """A PodDisruptionBudget as far as moving is concerned: how many more pods it allows to go."""

    key: str
    selector: Selector
    allowed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A workload that is over; kept while others may name it in `after`."""

    key: str
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """No more there. `kind` is the name of a class of this module: "Workload" for a Running or Ended as well."""

    kind: str
    key: str


Fact = Workload | Running | Ended | Node | Pod | Pool | Queue | Reservation | Disruption | Gone


def amounts(values: Mapping[str, int]) -> Amounts:
    """The canonical form of a mapping from resource to amount."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True)
class World:
    """A cluster written down: what State is made from in one go (tests, offline plan, records). `recent`: what was
    submitted lately, whatever became of it; no decision asks for it, a forecast does."""

    now: float = 0.0
    nodes: tuple[Node, ...] = ()
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    pending: tuple[Workload, ...] = ()
    running: tuple[Running, ...] = ()
    pods: tuple[Pod, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    disruptions: tuple[Disruption, ...] = ()
    ended: tuple[Ended, ...] = field(default=())
    recent: tuple[Workload, ...] = ()
