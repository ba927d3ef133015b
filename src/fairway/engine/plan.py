"""What a cycle decided: one verdict for each pending and each running workload, as values.

A plan is data: checked by `check`, written by the controllers, applied to a State by `assume`, turned into words by
`fairway.api.conditions`. It holds no English.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from .model import Admission, Expression


class Reason(StrEnum):
    """Why a workload waits. The order is the precedence: of several, the first is told."""

    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_INVALID = "QueueInvalid"
    NOT_ALLOWED = "NotAllowed"
    QUEUE_STOPPED = "QueueStopped"
    LEVEL_UNKNOWN = "LevelUnknown"
    NEVER_FITS = "NeverFits"
    BACKING_OFF = "BackingOff"
    DEPENDENCY_PENDING = "DependencyPending"
    SCHEDULING_GATED = "SchedulingGated"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_UNBOUND = "ClaimUnbound"
    BUDGET_SPENT = "BudgetSpent"
    OVER_LIMIT = "OverLimit"
    OVER_GUARANTEED = "OverGuaranteed"
    RESERVED = "Reserved"
    HELD_FOR = "HeldFor"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    OVER_SHARE = "OverShare"
    CLAIM_IN_USE = "ClaimInUse"
    NO_DOMAIN = "NoDomain"
    NO_DEVICE = "NoDevice"
    FRAGMENTED = "Fragmented"
    NO_ROOM = "NoRoom"
    REFUSED = "Refused"


RANK = {reason: rank for rank, reason in enumerate(Reason)}  # by precedence


class Cause(StrEnum):
    """Why a running workload is evicted."""

    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    CONSOLIDATED = "Consolidated"
    HOLD_TAKEN = "HoldTaken"
    RESERVED = "Reserved"
    DRAINED = "Drained"
    NODE_LOST = "NodeLost"
    PODS_LOST = "PodsLost"
    START_TIMEOUT = "StartTimeout"
    SUSPENDED = "Suspended"


class Ending(StrEnum):
    """Why a workload finishes by decision."""

    TIME_LIMIT = "TimeLimit"
    DEPENDENCY_FAILED = "DependencyFailed"


class Bar(StrEnum):
    """What shuts a pod out of a node. Of several a node is counted under the first."""

    LEAVING = "Leaving"
    UNHEALTHY = "Unhealthy"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    TAINT = "Taint"
    SELECTOR = "NodeSelector"
    AFFINITY = "NodeAffinity"
    VOLUME = "Volume"
    TOO_SMALL = "TooSmall"
    FAILED_BEFORE = "FailedBefore"
    PORT = "HostPort"
    CLAIM = "Claim"
    ANTI_AFFINITY = "AntiAffinity"
    POD_AFFINITY = "PodAffinity"
    SPREAD = "Spread"
    KEPT = "Kept"
    BUSY = "Busy"
    DEVICES = "Devices"


class Obstacle(NamedTuple):
    """So many nodes are shut out by the same thing. `about`: the taint, the label asked for, a topology key, a
    resource. `asked` of that resource for a pod; `most` that any of the nodes offers."""

    bar: Bar
    about: Expression | str
    nodes: int
    asked: int = 0
    most: int = 0


class Census(NamedTuple):
    """The nodes of a pool; those with room for a pod, and for how many of the pods `wanted`; what shuts out the others.
    `podset`: of which podset, where there are several."""

    nodes: int
    open: int
    room: int
    wanted: int
    obstacles: tuple[Obstacle, ...]
    podset: str = ""


class Spending(NamedTuple):
    """GPU-seconds: of a period in all, spent, what running workloads may still spend, what the waiting one may."""

    budget: float
    spent: float
    reserved: float
    needed: float

    @property
    def is_beyond(self) -> bool:
        """Whether no period allows it."""
        return self.needed > self.budget


class Dependency(StrEnum):
    """What keeps a workload named in `after` from having succeeded."""

    MISSING = "Missing"
    WAITING = "Waiting"
    RUNNING = "Running"
    CIRCULAR = "Circular"


class Rule(StrEnum):
    """What a queue has against a workload, by the field of the Queue that says so."""

    NAMESPACES = "namespaces"
    MAX_PRIORITY = "maxPriority"
    PREEMPTIBLE = "allowNonPreemptible"
    POOLS = "pools"
    TIME_LIMIT = "timeLimit"
    CHILDREN = "children"  # it has queues below it
    SUSPENDED = "active"  # of the workload itself


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a wait, for people and programs. Only what applies is set; amounts in base units."""

    resource: str = ""
    needed: int | None = None
    bounds: Mapping[str, int] | None = None  # OverLimit, OverGuaranteed, OverShare: what it would be above
    used: Mapping[str, int] | None = None  # of these resources, what counts against the bound by now
    spending: Spending | None = None  # BudgetSpent
    assumed: float | None = None  # BudgetSpent: the seconds that count for want of a time limit
    rule: Rule | None = None  # NotAllowed, QueueInvalid; `detail`: what the rule says
    longest: float | None = None  # the longest time limit that is allowed, by a full budget where BudgetSpent
    dependency: Dependency | None = None  # DependencyPending: why; `blocking` names the circle, from the first on
    most_free: int | None = None  # the most of `resource` free in any one node or domain
    missing: int | None = None
    pool: str = ""
    queue: str = ""  # the queue (an ancestor, perhaps) at which it fails
    level: str = ""
    domain: str = ""
    shunned: tuple[str, ...] = ()  # nodes that failed it and are not counted, for others could hold it
    census: Census | None = None  # the nodes of the pool, by what shuts it out
    blocking: tuple[str, ...] = ()  # keys of workloads whose going would let it start
    would_fit: Mapping[str, int] | None = None  # podset → count with which it would start now
    with_gpus: int | None = None  # milli-GPU with which its pod would start now
    other_queue: str = ""  # a queue in which it would start now
    other_pool: str = ""  # a pool, likewise
    is_bound: bool = False  # without what its topology requires it would start now
    shorter_limit: float | None = None  # a time limit with which it would start now
    since: float | None = None  # Reserved: when this begins, if it is not so yet
    until: float | None = None  # BackingOff, Reserved, HeldFor, BudgetSpent: when this ends
    detail: str = ""  # a name that is missing, a node or device fault, the GPUs on which a paused workload resumes
    shields: tuple[tuple[str, tuple[str, ...], float | None], ...] = ()  # protected by a setting, until when


Why = tuple[Reason, Facts]


@dataclass(slots=True)
class Admit:
    """Start the workload there, when all in `after` are gone. A value that nothing changes, as all verdicts; a frozen
    one takes four times as long to make, and a plan may have thousands."""

    workload: str
    admission: Admission
    after: tuple[str, ...] = ()
    backfilled_for: str = ""


@dataclass(slots=True)
class Wait:
    """No start now. `starts_at`: until when a hold keeps its room coming free, in `held`; `is_guess`: something in that
    room has no time limit, where reasons are told. Not frozen, as `Admit`."""

    workload: str
    reason: Reason
    facts: Facts = Facts()
    position: int = 0  # in its queue, from 1
    starts_at: float | None = None
    held: Admission | None = None
    is_guess: bool = False


@dataclass(slots=True)
class Keep:
    """Go on as it is. `short`: why an elastic workload gets no more pods now. Not frozen, as `Admit`."""

    workload: str
    short: Why | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop and requeue; with `admission` it moves there when gone."""

    workload: str
    cause: Cause
    beneficiary: str = ""  # key of the workload it is for
    admission: Admission | None = None
    budget: str = ""  # key of the PodDisruptionBudget that it exceeds: no other victims suffice
    pauses: bool = False  # its processes are frozen and keep their memory, if that works
    saves: bool = False  # and are written to disk, for the beneficiary needs their memory


@dataclass(frozen=True, slots=True)
class Resize:
    """Run on with other counts; `admission` is the whole afterwards."""

    workload: str
    before: tuple[tuple[str, int], ...]  # podset → count
    after: tuple[tuple[str, int], ...]
    admission: Admission
    beneficiary: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Stop for good."""

    workload: str
    ending: Ending


Verdict = Admit | Wait | Keep | Evict | Resize | Finish


@dataclass(frozen=True, slots=True)
class Plan:
    """`verdicts` in the order decided. `shares`: (queue, pool, resource) → its due now in base units, per governed
    resource; `guaranteed` alike. `again_at`: the earliest time at which the answer may change by itself. `reserved`:
    of each queue with a budget the GPU-seconds that its workloads can come to, and used before."""

    verdicts: tuple[Verdict, ...] = ()
    shares: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    again_at: float | None = None
    reserved: Mapping[str, float] = field(default_factory=dict, compare=False)
    guaranteed: Mapping[tuple[str, str, str], int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a plan would break the cluster or a promise: which item, which rule, and the figures."""

    workload: str
    rule: str  # a word of referee.RULES
    detail: str = ""
