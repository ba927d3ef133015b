"""Our own resources, group fairway.dev/v1alpha1: Queue, NodePool, Workload, Reservation, UsageDay, UsageMonth.

These structs are the one description of the API: objects are decoded into them, the CRDs and the reference are made
from them. A constraint stands here when it is about one value; `admission` holds what relates several. Quantities,
durations and times stay text as the user wrote them; a pattern is for the schema alone, those who read them say more.
"""

# ruff: noqa: RUF012 -- msgspec gives every struct a dict of its own

from typing import Annotated, Literal

from msgspec import Meta, field

from .objects import GROUP, OVER, Condition, Int32, LabelSelector, Object, Part, PodTemplate
from .quantities import Quantity

VERSION = f"{GROUP}/v1alpha1"
MOST_PODS = 100_000

QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$"
QUOTA = QUANTITY.replace(r")?$", r"|%)?$")
DURATION = r"^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d))+)$"
NOTIFY = r"^(https?://[^\s/]\S*|mailto:[^\s@-][^\s@]*@[^\s@]+)$"
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def says(description: str) -> Meta:
    return Meta(description=description)


def _form(pattern: str) -> Meta:
    return Meta(extra_json_schema={"pattern": pattern})


Amount = Annotated[Quantity, _form(QUANTITY)]
QuotaAmount = Annotated[Quantity, _form(QUOTA)]
Duration = Annotated[str, _form(DURATION)]
Address = Annotated[str, _form(NOTIFY)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**53)]  # a bound is a double in an API server, which answers a larger one rounded
Depth = Annotated[int, Meta(ge=-1, le=MOST_PODS)]
Pods = Annotated[int, Meta(ge=0, le=MOST_PODS)]
Day = Annotated[str, _form(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
Name = Annotated[str, Meta(max_length=63, extra_json_schema={"pattern": NAME})]
Order = Literal["Priority", "FIFO", "ShortestFirst", "LeastAttained", "FairUsers"]
Stop = Literal["None", "StopAdmitting", "Drain"]
Strategy = Literal["Binpack", "Spread", "Fragmentation"]
Phase = Literal["", "Pending", "Admitted", "Running", "Succeeded", "Failed", "Suspended", "Parked", "Paused"]
Disk = Literal["", "Writing", "Written", "Refused"]
PodDevices = tuple[Annotated[tuple[Count, ...], says("Indices of the devices of one pod.")], ...]


PROTECTS = "Protects from being reclaimed or moved; inherited. Absent: 10m, but not from a queue within its guarantee."

EVICTS = "What becomes of its workloads that give way: stopped and queued again, or frozen in place; inherited."


class QuotaSpec(Part, frozen=True):
    pool: Annotated[str, says('The pool it is for; "*" for all together.')] = "*"
    guaranteed: Annotated[dict[str, QuotaAmount], says("Owed: an amount, or a percentage of live capacity.")] = {}
    limit: Annotated[dict[str, QuotaAmount], says("The most it may use. Absent: no limit.")] = {}
    weight: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, says("Its part of the surplus; absent: 1.")] = None


class TimeLimits(Part, frozen=True):
    default: Annotated[Duration, says("For workloads that name none.")] = ""
    max: Annotated[Duration, says("The longest that a workload may name.")] = ""


class Budget(Part, frozen=True):
    gpu_hours: Annotated[Amount, says("GPU-hours that may be used in a period.")]
    period: Annotated[Duration, says("After this the budget is whole again.")]


class QueueSpec(Part, frozen=True):
    parent: Annotated[str, says("The queue above; absent: a root.")] = ""
    quotas: Annotated[tuple[QuotaSpec, ...], says("Per pool; one for all pools and one for a pool both apply.")] = ()
    priority: Annotated[Int32, says("The higher is served first when the surplus is divided.")] = 0
    order: Annotated[Order, says("Who is next inside it.")] = "Priority"
    pools: Annotated[tuple[str, ...], says("Pools allowed, in order of preference; absent: any.")] = ()
    namespaces: Annotated[LabelSelector | None, says("Namespaces that may submit; absent: any.")] = None
    max_priority: Annotated[Int32 | None, says("The highest priority its workloads may have.")] = None
    allow_non_preemptible: Annotated[bool | None, says("Whether workloads may be non-preemptible.")] = None
    min_runtime: Annotated[Duration, says(PROTECTS)] = ""
    preempt_min_runtime: Annotated[Duration, says("Protects from being preempted this long; inherited.")] = ""
    max_evictions: Annotated[Count | None, says("Evictions of one workload in a day; inherited.")] = None
    expected_runtime: Annotated[Duration, says("For workloads that name none; inherited.")] = ""
    time_limit: Annotated[TimeLimits, says("Default and longest time limit; inherited.")] = TimeLimits()
    max_wait: Annotated[Duration, says("After this a workload counts as the highest of its queue; inherited.")] = ""
    consolidation: Annotated[Literal["Never", "WhenStuck"] | None, says("Whether its workloads may be moved.")] = None
    evict: Annotated[Literal["Requeue", "Pause"] | None, says(EVICTS)] = None
    expire: Annotated[Duration, says("A paused workload gives back its memory after this long; inherited.")] = ""
    budget: Annotated[Budget | None, says("GPU-hours per period.")] = None
    stop_policy: Annotated[Stop, says("Admit nothing new, or also evict what runs.")] = "None"


class DecayedAmount(Part, frozen=True):
    """A quantity that halves every half-life, as it was at `time`."""

    value: float
    time: Time


class RuntimeSketch(Part, frozen=True):
    user: str = ""
    name: str = ""
    points: Annotated[tuple[tuple[float, float], ...], says("Seconds and weight, seconds ascending.")] = ()


class BudgetUse(Part, frozen=True):
    gpu_hours: float = 0.0
    since: Time = ""


class ForecastAccuracy(Part, frozen=True):
    """How good forecasts of one horizon were; of the last 200 starts or so, the older the less."""

    horizon: Annotated[str, says("How far ahead the start was told: up to 10m, 1h, 6h, 1d, or longer.")]
    starts: Annotated[int, says("Workloads that started after they were told so.")]
    error: Annotated[float, says("Seconds between p50 and the start, mean.")]
    coverage: Annotated[float, says("The part of them that started by p90.")]


class QueueStatus(Part, frozen=True):
    pending: Annotated[int, says("Workloads that wait.")] = 0
    admitted: Annotated[int, says("Workloads admitted.")] = 0
    usage: Annotated[dict[str, dict[str, Amount]], says("What it holds now, per pool and resource.")] = {}
    share: Annotated[dict[str, dict[str, Amount]], says("What is its due now, per pool and resource.")] = {}
    borrowed: Annotated[dict[str, dict[str, Amount]], says("Usage above guaranteed.")] = {}
    decayed_usage: Annotated[dict[str, dict[str, DecayedAmount]], says("Amount times seconds.")] = {}
    users: Annotated[dict[str, DecayedAmount], says("GPU-seconds per user.")] = {}
    budget_spent: Annotated[BudgetUse | None, says("Of the current period.")] = None
    budget_reserved: Annotated[float, says("GPU-hours that what has not ended can come to.")] = 0.0
    evicted_gpus: Annotated[dict[str, DecayedAmount], says("Per pool, for its eviction budget.")] = {}
    runtimes: Annotated[tuple[RuntimeSketch, ...], says("Runtimes seen, by user and name.")] = ()
    forecasts: Annotated[tuple[ForecastAccuracy, ...], says("How far off forecasts were, by horizon.")] = ()
    stretch: Annotated[float, says("How much longer than the runs say p90 is told, by how forecasts came true.")] = 2.0
    charged: Annotated[tuple[str, ...], says("Workloads (uids) that are in usage, but not gone yet.")] = ()
    conditions: tuple[Condition, ...] = ()


class QueueObject(Object, frozen=True):
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class EvictionBudget(Part, frozen=True):
    gpus: Annotated[Amount, says("GPUs whose workloads may be evicted for others.")]
    per: Annotated[Duration, says("The time after which all of them are there again.")] = "1h"


class NodePoolSpec(Part, frozen=True):
    node_selector: Annotated[LabelSelector, says("The nodes of the pool; absent: all.")] = LabelSelector()
    levels: Annotated[tuple[str, ...], says("Node labels that name topology domains, widest first.")] = ()
    strategy: Annotated[Strategy | None, says("How nodes are preferred.")] = None
    hold_depth: Annotated[Depth | None, says("How many blocked workloads have room kept; -1: all.")] = None
    eviction_budget: Annotated[EvictionBudget | None, says("GPUs that may be evicted per time.")] = None
    max_nodes: Annotated[Count | None, says("With shape: how far the pool may grow. Comes with real clusters.")] = None
    shape: Annotated[dict[str, Amount], says("What a new node of the pool has. Comes with real clusters.")] = {}
    cost_per_gpu_hour: Annotated[Amount | None, says("What a GPU costs in an hour, in any currency; see usage.")] = None


class NodePoolStatus(Part, frozen=True):
    nodes: Annotated[int, says("Nodes that are ready.")] = 0
    capacity: dict[str, Amount] = {}
    free: dict[str, Amount] = {}
    conditions: tuple[Condition, ...] = ()


class NodePoolObject(Object, frozen=True):
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()


class SegmentSpec(Part, frozen=True):
    level: Annotated[str, says("A level of the pool.")]
    size: Annotated[int, Meta(ge=1, le=MOST_PODS, description="Pods in one domain of it.")]


class TopologySpec(Part, frozen=True):
    required: Annotated[str, says("The level of which one domain must hold all pods.")] = ""
    preferred: Annotated[str, says("The level of which one domain should hold all pods.")] = ""
    unconstrained: Annotated[bool, says("Any nodes will do; what absent means too.")] = False
    segments: Annotated[tuple[SegmentSpec, ...], Meta(max_length=3, description="Groups of pods, outer first.")] = ()


class PodSetSpec(Part, frozen=True):
    name: Name = "main"
    count: Annotated[Pods, says("Pods.")] = 1
    min_count: Annotated[Pods | None, says("Fewest pods to start with; absent: count.")] = None
    template: Annotated[PodTemplate, says("The pods; requests and constraints are read from it.")] = PodTemplate()
    topology: Annotated[TopologySpec, says("Where the pods of this podset stand together.")] = TopologySpec()
    alignment: Annotated[Literal["Required", "Preferred"] | None, says("Devices and CPU of one NUMA group.")] = None


class WorkloadSpec(Part, frozen=True):
    queue: Annotated[str, says("The queue it waits in.")] = "default"
    user: Annotated[str, says("Who made it; set at the door, immutable.")] = ""
    priority_class_name: Annotated[str, says("A PriorityClass of scheduling.k8s.io/v1.")] = ""
    workload_type: Annotated[Literal["Training", "Interactive", "Inference"], says("What it does.")] = "Training"
    preemptible: Annotated[bool | None, says("Absent: training is, interactive and inference are not.")] = None
    topology: Annotated[TopologySpec, says("Where all podsets stand together.")] = TopologySpec()
    pod_sets: Annotated[tuple[PodSetSpec, ...], Meta(max_length=64, description="Pods that are alike.")] = ()
    pools: Annotated[tuple[str, ...], says("Pools allowed, in order of preference; absent: any.")] = ()
    expected_runtime: Annotated[Duration, says("How long it is expected to run.")] = ""
    time_limit: Annotated[Duration, says("It is stopped and fails after this.")] = ""
    deadline: Annotated[Time, says("When it should have ended.")] = ""
    restart: Annotated[Literal["Gang", "Pod"] | None, says("Who starts again when a pod is lost.")] = None
    checkpoint_interval: Annotated[Duration, says("How often it saves its work.")] = ""
    last_checkpoint: Annotated[Time, says("When it last saved its work.")] = ""
    on_disconnect: Annotated[Literal["Keep", "Stop"] | None, says("Comes with many clusters.")] = None
    start_timeout: Annotated[Duration, says("Its pods must be ready this long after it starts.")] = ""
    idle_timeout: Annotated[Duration, says("Parked after this long without GPU use and below 5 % of a CPU.")] = ""
    after: Annotated[tuple[str, ...], says("Workloads of the namespace that must have succeeded.")] = ()
    notify: Annotated[Address, says("Notified when it starts, is evicted, ends: http(s)://… or mailto:NAME@HOST.")] = ""
    data: Annotated[str, says("The cluster its data is in. Comes with many clusters.")] = ""
    active: Annotated[bool, says("False: suspended by the user.")] = True
    paused: Annotated[bool, says("Frozen in place by the user, where the node can do that; else suspended.")] = False

    @property
    def may_run(self) -> bool:
        """Whether its user lets it."""
        return self.active and not self.paused


class NodePods(Part, frozen=True):
    """Pods of a podset on one node."""

    node: str
    count: Annotated[Pods | None, says("Pods.")] = None
    devices: Annotated[PodDevices, says("Per pod its devices; absent where others choose them.")] = ()


class PodSetNodes(Part, frozen=True):
    name: str
    nodes: Annotated[tuple[NodePods, ...], says("In rank order.")] = ()


class AdmissionStatus(Part, frozen=True):
    """Where a workload runs. What `placement` is in the output of `fairway plan` too."""

    pool: str = ""
    pod_sets: tuple[PodSetNodes, ...] = ()
    gpu_memory: Annotated[Bytes, says("Bytes of a GPU of the pool then, where a part is asked for in memory.")] = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Each once, in rank order."""
        return tuple(dict.fromkeys(on.node for part in self.pod_sets for on in part.nodes))

    @property
    def pods(self) -> int:
        return sum(on.count or 0 for part in self.pod_sets for on in part.nodes)


class EvictionRecord(Part, frozen=True):
    time: Time
    reason: str
    by: Annotated[str, says("The queue that took the room.")] = ""
    beneficiary: Annotated[str, says("The workload it was for.")] = field(default="", name="for")
    queue: Annotated[str, says("The queue it was in.")] = ""
    lost: Annotated[int, says("Work since its last checkpoint, in GPU-milliseconds.")] = 0
    began: Annotated[Time, says("When it had been admitted.")] = ""
    nodes: Annotated[tuple[str, ...], says("Where it ran, at most eight nodes.")] = ()
    paused: Annotated[bool, says("Its processes were frozen, not stopped.")] = False
    unpaused: Annotated[str, says("Why its processes were frozen no longer, where they were lost or stopped.")] = ""


class Forecast(Part, frozen=True):
    p50: Time = ""
    p90: Time = ""
    rough: bool = False


class Served(Part, frozen=True):
    """What a workload has held, over all attempts; what is charged."""

    until: Annotated[Time, says("What it held until then is counted.")]
    amounts: Annotated[dict[str, dict[str, float]], says("By pool and resource, times the seconds; CPU in m.")] = {}
    days: Annotated[dict[str, dict[str, dict[str, int]]], says("GPU-milliseconds by UTC day, queue and pool.")] = {}


class PausedStatus(Part, frozen=True):
    """A workload whose processes are frozen, or about to be, or about to go on."""

    since: Time
    admission: Annotated[AdmissionStatus, says("Where its processes are; it starts there or is queued again.")]
    until: Annotated[Time, says("When it gives back its memory; absent: when it goes on.")] = ""
    disk: Annotated[Disk, says("Whether its processes are on disk; Refused: they cannot go there.")] = ""

    @property
    def is_saved(self) -> bool:
        """Whether it needs memory to resume: its processes are on disk, or on their way there."""
        return self.disk in ("Writing", "Written")


class WorkloadStatus(Part, frozen=True):
    phase: Annotated[Phase, says("Where it is in its life.")] = ""
    reason: Annotated[str, says("Why it waits, or how it ended, in a word.")] = ""
    message: Annotated[str, says("Why it waits, in a sentence.")] = ""
    position: Annotated[int, says("Its place in its queue, from 1.")] = 0
    forecast: Annotated[Forecast | None, says("When it is expected to start.")] = None
    admission: Annotated[AdmissionStatus | None, says("Where it runs, or is about to.")] = None
    moves_to: Annotated[AdmissionStatus | None, says("Where it is admitted when it is gone from where it runs.")] = None
    attempt: Annotated[int, says("How often it was admitted.")] = 0
    eviction_history: Annotated[tuple[EvictionRecord, ...], says("The last ten.")] = ()
    excluded_nodes: Annotated[tuple[str, ...], says("Nodes that failed it.")] = ()
    paused: Annotated[PausedStatus | None, says("Its frozen processes.")] = None
    backfilled_for: Annotated[str, says("The held workload whose room it uses at its own risk, `namespace/name`.")] = ""
    attained: Annotated[float, says("GPU-seconds served so far.")] = 0.0
    served: Annotated[Served | None, says("What it has held, for the charge.")] = None
    conditions: tuple[Condition, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.phase in OVER


class WorkloadObject(Object, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReservationSpec(Part, frozen=True):
    queue: Annotated[str, says("For whom.")] = ""
    maintenance: Annotated[bool, says("For nobody.")] = False
    pool: Annotated[str, says("Of which pool.")] = ""
    amount: Annotated[dict[str, Amount], says("How much of the pool.")] = {}
    nodes: Annotated[tuple[str, ...], says("Which nodes, instead of an amount.")] = ()
    start: Annotated[Time, says("When the first window opens.")] = ""
    duration: Annotated[Duration, says("How long a window is open.")] = ""
    repeat: Annotated[Literal["Daily", "Weekly"] | None, says("Absent: once.")] = None


class ReservationStatus(Part, frozen=True):
    phase: Annotated[str, says("Waiting, Open or Over.")] = ""
    conditions: tuple[Condition, ...] = ()


class ReservationObject(Object, frozen=True):
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()


class UsageRow(Part, frozen=True):
    """What the workloads of a user and a name held of a pool on a day; all in GPU-milliseconds, but the cost."""

    user: Annotated[str, says('Whose; "(others)" of the smallest, merged.')] = ""
    name: Annotated[str, says('Without counters; "(others)" of the smallest, merged.')] = ""
    pool: str = ""
    day: Annotated[str, says("Used on this day of a closed month; absent: on the day of the object.")] = ""
    allocated: Annotated[int, says("Held in all; what is not starting, busy or idle of it is unknown.")] = 0
    starting: Annotated[int, says("From the admission until all pods run.")] = 0
    busy: Annotated[int, says("A process computed.")] = 0
    idle: Annotated[int, says("No process computed.")] = 0
    cost: Annotated[int, says("At the price of the pool when it was charged, in millionths.")] = 0


class UsageLoss(Part, frozen=True):
    """Work that evictions cost, by victim and by taker."""

    user: Annotated[str, says("Of the victim.")] = ""
    name: Annotated[str, says("Of the victim.")] = ""
    reason: Annotated[str, says("Why it was evicted.")] = ""
    by: Annotated[str, says("The queue that took the room.")] = ""
    taker: Annotated[str, says("The user who took the room.")] = ""
    taker_name: Annotated[str, says("Of the workload that took the room, without counters.")] = ""
    lost: Annotated[int, says("GPU-milliseconds since the last checkpoint.")] = 0


class UsageMark(Part, frozen=True):
    """What of one workload is in the rows: charging it again changes nothing."""

    pools: Annotated[dict[str, int], says("GPU-milliseconds by pool.")] = {}
    evicted: Annotated[Time, says("The last eviction that is in the losses.")] = ""


class PoolDay(Part, frozen=True):
    """What a pool had, and what of it no workload held, in GPU-milliseconds."""

    capacity: Annotated[int, says("Of all its nodes.")] = 0
    reserved: Annotated[int, says("Free, and kept for holds and reservations.")] = 0
    draining: Annotated[int, says("Free on nodes that take no work, or held by workloads that leave.")] = 0
    others: Annotated[int, says("Held by pods that Fairway does not manage.")] = 0


class UsageDaySpec(Part, frozen=True):
    day: Annotated[Day, says("UTC.")] = ""
    queue: Annotated[str, says("Whose workloads; absent: the capacity of the pools.")] = ""
    parents: Annotated[tuple[str, ...], says("The queues above it on that day, the nearest first.")] = ()


class UsageDayStatus(Part, frozen=True):
    until: Annotated[Time, says("What was used until then is in it.")] = ""
    gpu_hours: Annotated[float, says("Held in all.")] = 0.0
    rows: Annotated[tuple[UsageRow, ...], says("By user, name and pool.")] = ()
    losses: Annotated[tuple[UsageLoss, ...], says("Work lost to evictions.")] = ()
    pools: Annotated[dict[str, PoolDay], says("Of the object without a queue: the capacity.")] = {}
    recent: Annotated[
        dict[str, dict[str, int]],
        says("GPU-milliseconds of the last ten minutes, by their beginning and pool: of rows; of pools, held or free."),
    ] = {}
    marks: Annotated[dict[str, UsageMark], says("By uid what is charged of workloads that are not gone yet.")] = {}
    settled: Annotated[bool, says("Nothing more of this day is charged.")] = False
    closed: Annotated[bool, says("Its month is closed: rows, losses and pools never change again.")] = False


class UsageDayObject(Object, frozen=True):
    spec: UsageDaySpec = UsageDaySpec()
    status: UsageDayStatus = UsageDayStatus()


class UsageMonthSpec(Part, frozen=True):
    closed: Annotated[bool, says("Close it once it is over; what is charged later counts in the next.")] = True


class UsageMonthStatus(Part, frozen=True):
    closed_at: Annotated[Time, says("Nothing of it has changed since.")] = ""


class UsageMonthObject(Object, frozen=True):
    spec: UsageMonthSpec = UsageMonthSpec()
    status: UsageMonthStatus = UsageMonthStatus()
