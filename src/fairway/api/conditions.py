"""Verdicts in words: the only place that writes English about a decision.

A sentence says what is wrong with figures, then who is in the way, then what would change it; nothing is said that the
facts do not hold. It names workloads of its reader's namespace alone; others are "3 workloads of queue X".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fairway.engine.model import GPU, Admission, Workload
from fairway.engine.plan import Admit, Cause, Ending, Evict, Facts, Finish, Keep, Reason, Resize, Verdict, Wait

from .ends import exit_words
from .names import name_of
from .objects import PodObject, PodStatus, Terminated
from .quantities import duration_text, format, time_text

NAMED = 3
Queues = Mapping[str, str]
"""Queue by key of workload."""


def reason(verdict: Verdict) -> str:
    """The word for conditions and events."""
    match verdict:
        case Wait():
            return verdict.reason
        case Evict():
            return verdict.cause
        case Finish():
            return verdict.ending
        case Admit():
            return Reason.WAITING_FOR_VICTIMS if verdict.after else "Admitted"
        case Resize():
            return "Grown" if sum(n for _, n in verdict.after) > sum(n for _, n in verdict.before) else "Shrunk"
        case Keep():
            return "Running"


def is_warning(verdict: Verdict) -> bool:
    """Whether an event about it is a Warning."""
    return isinstance(verdict, Evict | Finish)


def sentence(verdict: Verdict, workload: Workload, queues: Queues) -> str:
    """What is decided about `workload`, for readers of its namespace."""
    match verdict:
        case Wait():
            return waiting(verdict, workload, queues)
        case Admit(after=()):
            return f"starts on {places(verdict.admission)}"
        case Admit():
            are = "are" if len(verdict.after) > 1 else "is"
            return f"starts on {places(verdict.admission)} when {names(verdict.after, workload, queues)} {are} gone"
        case Evict():
            return _evicted(verdict, workload, queues)
        case Resize():
            turns = zip(verdict.before, verdict.after)
            steps = [f"{name} {before} → {after}" for (name, before), (_, after) in turns if before != after]
            return f"runs on with other counts: {', '.join(steps)}{_for(verdict.beneficiary, workload, queues)}"
        case Finish(ending=Ending.TIME_LIMIT):
            limit = workload.time_limit
            return "stopped: time limit " + (duration_text(limit) if limit else f"of queue {workload.queue}")
        case Finish():
            before = " or ".join(key.partition("/")[2].removeprefix(name_of("Job", "")) for key in workload.after)
            return f"not started: it comes after {before}, which failed"
        case Keep():
            return "runs"


def waiting(wait: Wait, workload: Workload, queues: Queues) -> str:
    """Why it waits and what would change it."""
    facts = wait.facts
    parts = [_HEADS[wait.reason].format_map(_figures(facts, workload))]
    parts += holders(facts, workload, queues)
    parts += protections(facts, workload, queues)
    if wait.starts_at is not None:
        parts.append(f"room is kept for it from {time_text(wait.starts_at)}")
    return "; ".join((*parts, *would_start(facts)))


def holders(facts: Facts, workload: Workload, queues: Queues) -> list[str]:
    """Who stands in its way, a clause; not who is the detail, which the head has told."""
    blocking = [key for key in facts.blocking if key != facts.detail]
    hold = "hold" if len(blocking) > 1 else "holds"
    # Where a place was named before; room that is missing in sum is missing nowhere in particular.
    there = " there" if facts.domain and facts.missing is None else ""
    return [f"{names(blocking, workload, queues)} {hold} it{there}"] if blocking else []


def protections(facts: Facts, workload: Workload, queues: Queues) -> list[str]:
    """What keeps it from evicting others, and until when; a clause for each setting."""
    found = []
    for kind, keys, until in facts.shields:
        ends = f" until {time_text(until)}" if until is not None else ""
        whom, are = names(keys, workload, queues), "are" if len(keys) > 1 else "is"
        found.append({
            "evictionBudget": f"the evictionBudget of the pool is used up{ends}",
            "preemptible: false": f"{whom} {are} not preemptible",
            "pair": f"{whom} {are} protected{ends}, evicted for it less than an hour ago",
        }.get(kind, f"{kind} protects {whom}{ends}"))
    return found


def would_start(facts: Facts) -> list[str]:
    """What else would let it start now, a clause each."""
    counts = ", ".join(f"{count} of {name}" for name, count in sorted((facts.would_fit or {}).items()))
    changes = {
        f"with {counts}": counts,
        f"with {format(facts.with_gpus or 0, GPU)} {GPU}": facts.with_gpus,
        f"in queue {facts.other_queue}": facts.other_queue,
        f"in pool {facts.other_pool}": facts.other_pool,
        "without its required topology": facts.is_bound,
        f"with a time limit of {duration_text(facts.shorter_limit or 0)}": facts.shorter_limit,
    }
    return [f"{change} it would start now" for change, is_so in changes.items() if is_so]


_HEADS: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "there is no queue {queue}",
    Reason.QUEUE_INVALID: "queue {queue} holds no workloads{detail}",
    Reason.NOT_ALLOWED: "queue {queue} does not take it{detail}",
    Reason.QUEUE_STOPPED: "queue {queue} admits nothing new",
    Reason.LEVEL_UNKNOWN: "no pool it may use has the topology level {level}",
    Reason.NEVER_FITS: "{never}",
    Reason.BACKING_OFF: "it failed to start and is not tried again{until}",
    Reason.DEPENDENCY_PENDING: "it comes after workloads that have not succeeded{detail}",
    Reason.SCHEDULING_GATED: "its pods have scheduling gates that others must remove{detail}",
    Reason.CLAIM_MISSING: "a PersistentVolumeClaim of its pods does not exist{detail}",
    Reason.CLAIM_UNBOUND: "a PersistentVolumeClaim of its pods is not bound to a volume{detail}",
    Reason.CLAIM_IN_USE: "another pod uses its ReadWriteOncePod claim{detail}",
    Reason.BUDGET_SPENT: "it could overrun the budget of queue {queue}{until}",
    Reason.OVER_LIMIT: "{needs}; queue {queue} would be over its limit{missing}",
    Reason.OVER_GUARANTEED: "{needs}; it is not preemptible, and queue {queue} would be over its guarantee{missing}",
    Reason.RESERVED: "{needs}; the room is reserved{since}{until}",
    Reason.HELD_FOR: "{needs}; the room is kept for a workload before it{until}",
    Reason.WAITING_FOR_VICTIMS: "its room is promised, those who leave it are not gone",
    Reason.OVER_SHARE: "{room}; queue {queue} would be above its share{share} with it",
    Reason.NO_DOMAIN: "{most}",
    Reason.NO_DEVICE: "{most}; no devices serve it as it asks",
    Reason.FRAGMENTED: "{most}; together there is enough",
    Reason.NO_ROOM: "{room}",
    Reason.REFUSED: "the last plan for it was refused{detail}",
}


def _figures(facts: Facts, workload: Workload) -> dict[str, str]:
    """What a sentence may say. `most`: how near the best node or domain comes; `room`: what is missing in all."""
    level, resource = level_word(facts.level), facts.resource
    needs = "needs a place" if facts.needed is None else f"needs {format(facts.needed, resource)} {resource}"
    needs += f" in one {level}" if level else ""
    needs += f" on other nodes than {', '.join(facts.shunned)}, where it failed" if facts.shunned else ""
    most, missing = needs, ""
    if facts.most_free is not None:
        where = f" ({level or 'node'} {facts.domain})" if facts.domain else ""
        most += f"; the most free in any is {format(facts.most_free, resource)}{where}"
    if facts.missing is not None:
        missing = f" by {format(facts.missing, resource)} {resource}"
    where = f" in pool {facts.pool}" if facts.pool else ""
    amount = format(facts.missing or 0, resource)
    share = " and ".join(f"{format(most, name)} {name}" for name, most in sorted((facts.share or {}).items()))
    short = f"{needs}; {amount} {'is' if amount == '1' else 'are'} missing{where}"
    return {
        "queue": facts.queue or workload.queue, "level": facts.level, "needs": needs, "most": most, "missing": missing,
        "room": short if missing else most,
        "share": f" of {share}" if share else "",
        "never": f"there is no pool that it may use: {facts.detail}" if facts.detail else
                 f"{most}; it would not fit if nothing else ran",
        "detail": f": {facts.detail}" if facts.detail else "",
        "since": f" from {time_text(facts.since)}" if facts.since is not None else "",
        "until": f" until {time_text(facts.until)}" if facts.until is not None else "",
    }  # fmt: skip


def level_word(level: str) -> str:
    """`rack` for fairway.dev/rack; the host is a node."""
    word = level.rpartition("/")[2]
    return "node" if word == "hostname" else word


def names(keys: Iterable[str], reader: Workload, queues: Queues) -> str:
    """Workloads of the reader's namespace by name, the others by number and queue."""
    own = sorted(key.partition("/")[2] for key in keys if key.startswith(f"{reader.namespace}/"))
    parts = own if len(own) <= NAMED else [*own[:NAMED], f"{len(own) - NAMED} more of this namespace"]
    others = Counter(queues.get(key, "") for key in keys if not key.startswith(f"{reader.namespace}/"))
    parts += [_count(n, "workload") + (f" of queue {queue}" if queue else "") for queue, n in sorted(others.items())]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def places(admission: Admission) -> str:
    """`n1 (4 pods) and n2 (4 pods) of pool h100`, or how many nodes."""
    pods: Counter[str] = Counter()
    for podset in admission.podsets:
        for share in podset.nodes:
            pods[share.node] += share.count
    shown = [f"{node} ({_count(count, 'pod')})" for node, count in pods.items()]
    where = (" and ".join(shown) or "no node yet") if len(shown) <= NAMED else f"{len(shown)} nodes"
    return f"{where} of pool {admission.pool}"


def _for(key: str, reader: Workload, queues: Queues) -> str:
    return f", for {names((key,), reader, queues)}" if key else ""


def _evicted(verdict: Evict, workload: Workload, queues: Queues) -> str:
    moved = f"; it goes on on {places(verdict.admission)}" if verdict.admission else "; it keeps its place in the queue"
    why = _CAUSES[verdict.cause]
    if verdict.cause is Cause.PODS_LOST and workload.restart == "Pod":
        why = "it lost pods that found no place"
    if verdict.budget:
        why += f"; PodDisruptionBudget {verdict.budget} allows no more disruptions, but no other victims suffice"
    return f"{why}{_for(verdict.beneficiary, workload, queues)}{moved}"


def ended(reason: str, message: str, *, succeeded: bool, pods: Sequence[PodObject]) -> str:
    """How a workload ended by itself: `finished`, `failed: exit code 3`. `reason` and `message` are its owner's; of
    several pods the one is named whose container failed first."""
    if succeeded:
        return "finished"
    first = first_exit(pods)
    if first and reason != "DeadlineExceeded":
        name, end = first
        said = exit_words(end.exit_code, end.reason, end.message)
        return f"failed: {said}{f' in pod {name}' if len(pods) > 1 else ''}"
    if reason == "DeadlineExceeded":
        return "stopped: the activeDeadlineSeconds of its job are over"
    return f"failed: {message or reason}"


def first_exit(pods: Sequence[PodObject]) -> tuple[str, Terminated] | None:
    """The pod whose container failed first, and how it did."""
    exits = [(end.finished_at or "", pod.metadata.name, end) for pod in pods for end in _exits(pod.status)]
    return min(exits, key=lambda it: it[:2])[1:] if exits else None


def _exits(status: PodStatus) -> Iterator[Terminated]:
    for one in (*status.init_container_statuses, *status.container_statuses):
        end = one.state.terminated or one.last_state.terminated
        if end and end.exit_code:
            yield end


_CAUSES: Mapping[Cause, str] = {
    Cause.PREEMPTED: "preempted by a higher priority of its queue",
    Cause.RECLAIMED: "its queue gives back what is another's due",
    Cause.CONSOLIDATED: "moved to make whole room",
    Cause.HOLD_TAKEN: "it stood in room that was kept for another",
    Cause.RESERVED: "its room is reserved from now on",
    Cause.DRAINED: "its node or its queue is drained",
    Cause.NODE_LOST: "its node is lost",
    Cause.PODS_LOST: "a pod of it was lost, and all start again",
    Cause.START_TIMEOUT: "its pods did not get ready in time",
    Cause.SUSPENDED: "suspended by its user",
}
