"""A Workload object as the page shows it: read once when it changes, shown many times.

Times are seconds since the epoch, None where they are not known. An object that contradicts itself is shown with what
can be read of it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fairway import engine
from fairway.api import types
from fairway.api.accounts import HOUR_UNITS
from fairway.api.cancelled import Record
from fairway.api.conditions import kept_from
from fairway.api.names import STATES, plain_name
from fairway.api.objects import SUBMITTED
from fairway.api.quantities import Malformed, duration, time
from fairway.api.workloads import Reading, condition, gpu_memory_of, priority_class
from fairway.api.workloads import workload as value_of
from fairway.engine import Group, gpus_of, groups

S, T = TypeVar("S"), TypeVar("T")
OVER = ("finished", "failed", "cancelled")
GONE_SECONDS = 60.0
"""How long after its latest time a forecast is not shown any more: a new one is on its way."""
Starts = tuple[str, float | None, float | None, float | None]
"""How it is known when it starts (forecast, rough, kept or nothing), the earlier and the later moment, and from when on
room is kept for it, where that is a minute later than both."""
BY_USER = "by its user"
HOLDS = ("running", "retrying", "starting", "cancelling", "stopping")


@dataclass(frozen=True, slots=True)
class Share:
    """What it holds on one node. `gpus`: of all its pods there; `devices`: their indices, empty where the node's own
    software chose them."""

    node: str
    pods: int
    gpus: float
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Eviction:
    """`queue`: that took the room; `own`: that it was in. `began`: when the attempt that it ended was admitted,
    `nodes`: where. `lost`: work, in GPU-hours. `word`: paused where its processes were frozen, suspended where its user
    stopped it, else evicted. `is_kept`: its processes are still there, or went on."""

    time: float
    reason: str
    queue: str
    beneficiary: str
    began: float | None = None
    nodes: tuple[str, ...] = ()
    lost: float = 0.0
    word: str = "evicted"
    is_kept: bool = False
    own: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """`name`: what people call it. `since`: when it entered its state. `shares`: where it runs, or is about to.
    `owners`: group and version, kind and name of the objects that the user made. `podsets`: name, pods, GPUs of each.
    `groups`: by which runs alike are known. `kept`: from when on room is kept for it. `counted`: until when
    `attained` counts. `selects`: of which one a node's labels must satisfy, empty for any; `pools`: those that it
    names; `pool`: the one in which it was admitted. `saved`: its last checkpoint; `saves`: seconds between two.
    `gone`: by when it has stopped, where it is to stop."""

    key: str
    name: str
    queue: str
    user: str
    state: str
    since: float | None
    version: str
    priority: str = ""
    reason: str = ""
    message: str = ""
    position: int = 0
    forecast: tuple[float | None, float | None, bool] = (None, None, False)
    kept: float | None = None
    began: float | None = None
    ended: float | None = None
    limit: float | None = None
    expected: float | None = None
    saved: float | None = None
    saves: float | None = None
    asked: float = 0.0
    attempt: int = 0
    attained: float = 0.0
    counted: float | None = None
    shares: tuple[Share, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    owners: tuple[tuple[str, str, str], ...] = ()
    podsets: tuple[tuple[str, int, float], ...] = ()
    groups: tuple[Group, ...] = ()
    selects: tuple[engine.Selector, ...] = ()
    pools: tuple[str, ...] = ()
    pool: str = ""
    gone: float | None = None

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def waits(self) -> bool:
        """Whether it waits for room: what was paused by its user, and not by its queue, has no position."""
        return self.state == "waiting" or (self.state == "paused" and self.position > 0)

    def starts(self, now: float) -> Starts:
        """See Starts. A moment that has gone by, or is not in sight, is none."""
        early, late, is_rough = self.forecast
        bound = self.kept if self.kept and self.kept >= (late or early or 0.0) + 60.0 else None
        if self.state in ("waiting", "paused") and (late or early or 0.0) >= now - GONE_SECONDS:
            is_past = early is not None and early < now - GONE_SECONDS
            return "rough" if is_rough else "forecast", None if is_past else early, late, bound
        return ("kept", self.kept, None, None) if self.kept and self.kept > now else ("", None, None, None)

    def used(self, now: float) -> float:
        """GPU-seconds, those up to now of what it holds included."""
        since = max(self.counted or 0.0, self.began or now)
        return self.attained + self.held * max(0.0, now - since)

    @property
    def held(self) -> float:
        return sum(share.gpus for share in self.shares)

    @property
    def ending(self) -> str:
        """How it ended, to stand beside the word for its state, which its message begins with."""
        return self.message.removeprefix(self.state).removeprefix(": ")

    def line(self, command: str) -> str:
        """The command for it, which names it beyond doubt."""
        return f"kubectl fairway {command} -n {self.namespace} workload/{self.key.partition('/')[2]}"


def workload(said: types.WorkloadObject) -> Workload:
    meta, spec, status = said.metadata, said.spec, said.status
    state, value = _state(said), known(lambda it: value_of(it, Reading()), said)
    each = {it.name: gpus_of((it,), (1,), gpu_memory_of(said)) for it in value.podsets} if value else {}
    forecast, since = status.forecast or types.Forecast(), _since(said, state)
    grace = meta.deletion_grace_period_seconds or (value.grace if value else 0.0)
    name = plain_name(meta.name, ((it.kind, it.name) for it in meta.owner_references))
    return Workload(
        key=f"{meta.namespace}/{meta.name}", name=name, queue=spec.queue, user=spec.user.rpartition(":")[2],
        state=state, since=since, version=meta.resource_version, priority=priority_class(spec, ""),
        reason=status.reason, message=status.message, position=status.position,
        kept=moment(kept_from(status.message)) if state == "waiting" else None,
        forecast=(moment(forecast.p50), moment(forecast.p90), forecast.rough),
        began=_turned(said, "Admitted"), ended=_turned(said, "Finished"),
        limit=_seconds(spec.time_limit), expected=_seconds(spec.expected_runtime), saved=moment(spec.last_checkpoint),
        saves=_seconds(spec.checkpoint_interval),
        asked=sum(it.count * each.get(it.name, 0.0) for it in spec.pod_sets),
        attempt=status.attempt, attained=status.attained,
        counted=moment(status.served.until) if status.served else None,
        shares=tuple(_shares(status.admission, each)) if state in HOLDS and status.admission else (),
        evictions=tuple(map(_eviction, status.eviction_history)),
        owners=tuple((it.api_version, it.kind, it.name) for it in meta.owner_references),
        podsets=tuple((it.name, it.count, each.get(it.name, 0.0)) for it in spec.pod_sets),
        groups=groups(value) if value else (), pools=value.pools if value else (),
        selects=_selects(value.podsets[0].pod) if value and value.podsets else (),
        pool=status.admission.pool if status.admission else "",
        gone=since + grace if since and state in HOLDS[3:] else None,
    )  # fmt: skip


def cancelled(left: Record) -> Workload:
    """What the event that it left tells of a workload, or of very many at once: no podsets."""
    notes, (kind, owner), ended = left.metadata.annotations, left.owner, moment(left.last_timestamp)
    return Workload(
        f"{left.metadata.namespace}/{left.name}", owner or left.name, notes.queue, notes.user.rpartition(":")[2],
        "cancelled", ended, version="", message=left.message, began=moment(notes.ran_from), ended=ended,
        owners=(("", kind, owner),) if owner else (),
    )  # fmt: skip


def _eviction(said: types.EvictionRecord) -> Eviction:
    is_by_user = said.reason == "Suspended"
    word = "paused" if said.paused or said.unpaused else "suspended" if is_by_user else "evicted"
    return Eviction(
        moment(said.time) or 0.0, BY_USER if is_by_user else said.reason, said.by, said.beneficiary,
        moment(said.began), said.nodes, said.lost / HOUR_UNITS, word, said.paused, said.queue,
    )  # fmt: skip


def _selects(pod: engine.PodClass) -> tuple[engine.Selector, ...]:
    """The labels that a pod asks a node to have, by each term of its affinity."""
    plain = tuple(engine.Expression(key, "In", (label,)) for key, label in pod.node_selector)
    return tuple((*plain, *it.expressions) for it in pod.affinity) or ((plain,) if plain else ())


def _state(said: types.WorkloadObject) -> str:
    """The word for people."""
    state = STATES.get(said.status.phase, "waiting")
    if said.metadata.deletion_timestamp and state not in OVER:
        return "cancelling"
    if state in ("running", "starting") and said.status.reason == "Retrying":
        return "retrying"
    is_leaving = state in ("waiting", "paused", "suspended") and said.status.admission and _turned(said, "Evicted")
    return "stopping" if is_leaving else state


def _since(said: types.WorkloadObject, state: str) -> float | None:
    kinds = {"running": "Running", "retrying": "Admitted", "starting": "Admitted"} | dict.fromkeys(OVER, "Finished")
    meta = said.metadata
    deleted = moment(meta.deletion_timestamp)  # of a pod when its grace is over
    if deleted is not None and state == "cancelling":
        return deleted - meta.deletion_grace_period_seconds
    moments = map(moment, (meta.annotations.get(SUBMITTED), meta.creation_timestamp))
    return _turned(said, kinds.get(state, "Evicted")) or next(filter(None, moments), None)


def _turned(said: types.WorkloadObject, kind: str) -> float | None:
    found = condition(said.status.conditions, kind)
    return moment(found.last_transition_time) if found and found.status == "True" else None


def _shares(placed: types.AdmissionStatus, each: dict[str, float]) -> Iterator[Share]:
    for part in placed.pod_sets:
        for on in part.nodes:
            pods, devices = on.count or 1, tuple(sorted({index for pod in on.devices for index in pod}))
            yield Share(on.node, pods, pods * each.get(part.name, 0.0), devices)


def known(read: Callable[[S], T], text: S | None) -> T | None:
    """What is read of a text, None where it is missing or malformed."""
    with suppress(Malformed):
        return read(text) if text else None
    return None


moment, _seconds = partial(known, time), partial(known, duration)
