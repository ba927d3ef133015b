"""Verdicts in words: the only place that writes English about a decision.

A sentence says what is wrong with figures, then who is in the way, then what would change it; nothing is said that the
facts do not hold. It names workloads of its reader's namespace alone; others are "3 workloads of queue X".
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

from msgspec.structs import replace

from fairway import engine
from fairway.engine import ATTACHABLE, CPU, GPU, MEMORY, Bar, Cause, Dependency, Ending, Facts, Reason, Rule, Workload

from .ends import end_message, exit_words
from .figures import amount, count, driver, is_one, number, span
from .forms.form import Outcome
from .indexes import failed_trials, rank_in
from .names import CANCELLED, PARTING, SUSPENDED, short_name
from .objects import ATTEMPT, DEFAULT_SCHEDULER, FINISHED, PAST_DEADLINE, SCHEDULER, PodObject, PodStatus, Terminated
from .pods import INCOMPLETE, is_lost
from .quantities import is_bytes, time_text
from .scalars import LATEST

NAMED = 3
DEFAULT = "default"
"""The pool of a cluster that names none."""
MOST_OBSTACLES = 5
"""What shuts nodes out is named up to here; the nodes of the rest are counted together."""
LOOPS = "CrashLoopBackOff"  # of a container that did start
Queues = Mapping[str, str]
"""Queue by key of workload."""


def reason(verdict: engine.Verdict) -> str:
    """The word for conditions and events."""
    match verdict:
        case engine.Wait():
            return verdict.reason
        case engine.Evict():
            return verdict.cause
        case engine.Finish():
            return verdict.ending
        case engine.Admit():
            return Reason.WAITING_FOR_VICTIMS if verdict.after else "Admitted"
        case engine.Resize():
            return "Grown" if sum(n for _, n in verdict.after) > sum(n for _, n in verdict.before) else "Shrunk"
        case engine.Keep():
            return verdict.short[0] if verdict.short else "Running"


def is_warning(verdict: engine.Verdict) -> bool:
    """Whether an event about it is a Warning."""
    return isinstance(verdict, engine.Evict | engine.Finish)


def sentence(verdict: engine.Verdict, workload: Workload, queues: Queues) -> str:
    """What is decided about `workload`, for readers of its namespace."""
    match verdict:
        case engine.Wait():
            return waiting(verdict, workload, queues)
        case engine.Admit(after=()):
            return f"starts on {places(verdict.admission)}"
        case engine.Admit():
            are = "are" if len(verdict.after) > 1 else "is"
            return f"starts on {places(verdict.admission)} when {names(verdict.after, workload, queues)} {are} gone"
        case engine.Evict():
            return _evicted(verdict, workload, queues)
        case engine.Resize():
            turns = zip(verdict.before, verdict.after)
            steps = [f"{name} {before} → {after}" for (name, before), (_, after) in turns if before != after]
            return f"runs on with other counts: {', '.join(steps)}{_for(verdict.beneficiary, workload, queues)}"
        case engine.Finish(ending=Ending.TIME_LIMIT):
            limit = workload.time_limit
            return "stopped: time limit " + (span(limit) if limit else f"of queue {workload.queue}")
        case engine.Finish():
            before = " or ".join(map(_called, workload.after))
            return f"not started: it comes after {before}, which failed"
        case engine.Keep(short=(why, facts)):
            return f"{GROWS}{waiting(engine.Wait(verdict.workload, why, facts), workload, queues)}"
        case engine.Keep():
            return "runs"


def waiting(wait: engine.Wait, workload: Workload, queues: Queues) -> str:
    """Why it waits and what would change it."""
    facts = wait.facts
    whom = names(facts.blocking, workload, queues) or "an earlier workload"
    is_behind = wait.reason is Reason.HELD_FOR and facts.until is None
    head = _BEHIND if is_behind else _HEADS[wait.reason]
    parts = [head.format_map(_figures(facts, workload) | {"whom": whom})]
    if workload.paused is not None:
        where = "on disk, on" if workload.on_disk else "on"
        parts = [f"paused {where} {' and '.join(sorted(workload.paused.nodes))}", *parts]
    parts += holders(facts, workload, queues) if wait.reason not in _NAMES_THEM else []
    parts += protections(facts, workload, queues)
    if wait.starts_at is not None:
        parts.append(f"{_KEPT}{_moment(hold_time(wait.starts_at))}, {'probably' if wait.is_guess else 'at the latest'}")
    return "; ".join((*parts, *would_start(facts)))


def hold_time(at: float) -> float:
    """When a hold begins, as messages say it: in whole minutes and never too early, since each cycle learns runtimes
    and moves it a little."""
    return ceil(min(at, LATEST) / 60) * 60.0


def kept_from(message: str) -> str:
    """From when on room is kept for a workload, as its message says; "" where it says nothing of it."""
    return re.split("[,;]", message.partition(_KEPT)[2])[0]


def holders(facts: Facts, workload: Workload, queues: Queues) -> list[str]:
    """What blocks it, as a clause; without the detail, which the head names."""
    blocking = [key for key in facts.blocking if key not in (facts.detail, workload.key)]
    if facts.spending and blocking:
        return [f"counted in it, and not charged yet: {names(blocking, workload, queues)}"]
    hold = "hold" if len(blocking) > 1 else "holds"
    # Where a place was named before; room that is missing in sum is missing nowhere in particular.
    is_named = facts.level or not (facts.census and nodes_words(facts.census, facts.level))
    there = " there" if facts.domain and is_named and facts.missing is None else ""
    what = facts.detail or _plural(facts.resource) if workload.paused else f"it{there}"
    return [f"{names(blocking, workload, queues)} {hold} {what}"] if blocking else []


def protections(facts: Facts, workload: Workload, queues: Queues) -> list[str]:
    """What keeps it from evicting others, and until when; a clause for each setting."""
    found = []
    for kind, keys, until in facts.shields:
        the_first = ", the first" if len(keys) > 1 else ""
        ends = f"{the_first} until {_moment(until)}" if until is not None else ""
        whom, are = names(keys, workload, queues), "are" if len(keys) > 1 else "is"
        found.append(
            {
                "evictionBudget": f"the evictionBudget of the pool is used up{ends}",
                "preemptionPolicy": "it preempts nothing: the preemptionPolicy of its PriorityClass is Never",
                "preemptible: false": f"{whom} {are} not preemptible",
                "priority": f"{whom} {are} of no lower priority, so it preempts nothing there",
                "guaranteed": f"{whom} {are} within a guarantee, so it reclaims nothing there",
                "pair": f"{whom} {are} protected{ends}, evicted for it less than an hour ago",
            }.get(kind, f"{kind} protects {whom}{ends}")
        )
    return found


def in_use(held: Mapping[str, int], resource: str, reader: Workload, queues: Queues) -> list[str]:
    """Who holds a resource, a clause; none where it is not held. `held`: base units by key."""
    hold = "holds" if len(held) == 1 else "hold"
    return [f"{names(held, reader, queues)} {hold} {amount(sum(held.values()), resource)}"] if held else []


def taken_next(promised: Mapping[str, int], resource: str, reader: Workload, queues: Queues) -> list[str]:
    """Who takes a resource when its victims are gone, a clause; none where nothing does. In base units, by key."""
    take, it = ("takes", "it") if len(promised) == 1 else ("take", "them")
    what = f"{amount(sum(promised.values()), resource)} as soon as what is evicted for {it} has stopped"
    return [f"{names(promised, reader, queues)} {take} {what}"] if promised else []


def paused(held: Mapping[str, int], reader: Workload, queues: Queues) -> list[str]:
    """Which paused workloads hold memory, and what frees it, a clause. `held`: bytes by key."""
    frees = "`fairway resume` lets it end, `fairway cancel` ends it, and CRIU, where it can, writes it to disk"
    return [f"{it} while paused in memory: {frees}" for it in in_use(held, MEMORY, reader, queues)]


def without_quota(queue: str, resource: str) -> str:
    """Why nothing is taken back from a queue, and what would change that."""
    what = _plural(resource)
    return f"queue {queue} has no quota of {what}, so it gives none back; `guaranteed: 0` there makes it lend them"


def _plural(resource: str) -> str:
    return {GPU: "GPUs", CPU: "CPUs"}.get(resource, resource)


def never(workload: Workload, facts: Facts) -> str:
    """Why no start is foretold for what cannot start as things are."""
    if facts.spending and facts.spending.is_beyond:
        return f"it needs more than the whole budget of queue {facts.queue}"
    return "nothing says when what it comes after ends" if workload.after else "it cannot start as things are"


def unknown(before: str, reader: Workload, queues: Queues) -> str:
    """Why no start is foretold behind what may run for any time."""
    return (
        f"{names((before,), reader, queues)} waits before it, and nothing says for how long it runs: no time limit, no "
        "expected runtime, and nothing of its queue has ended"
    )


def endless(before: str, reader: Workload, queues: Queues) -> str:
    """Why no start is foretold after what runs, and may for any time."""
    return (
        f"{names((before,), reader, queues)} runs before it, and nothing says when it ends: no time limit, no expected "
        "runtime, and nothing of its queue that ended ran so long"
    )


def missing(absent: Sequence[str]) -> str:
    """What a Reservation names that does not exist; "" where all of it does."""
    do = "does" if len(absent) == 1 else "do"
    return f"{_first(absent)} {do} not exist; nothing is reserved there until then" if absent else ""


def _first(listed: Sequence[str]) -> str:
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return f"{', '.join(listed[:NAMED])}{more}"


def would_start(facts: Facts) -> list[str]:
    """What else would let it start now, a clause each."""
    counts = ", ".join(f"{count(number, 'pod')} of {name}" for name, number in sorted((facts.would_fit or {}).items()))
    changes = {
        f"with a time limit of {span(facts.shorter_limit or 0)}": facts.shorter_limit,  # first: it costs least
        f"with {counts}": counts,
        f"with {amount(facts.with_gpus or 0, GPU)}": facts.with_gpus,
        f"in pool {facts.other_pool}": facts.other_pool,
        "without its required topology": facts.is_bound,
        f"in queue {facts.other_queue}": facts.other_queue,  # last: its own queue is where it belongs
    }
    return [f"{change} it would start now" for change, is_so in changes.items() if is_so]


_KEPT = "room is kept for it from "
BEGAN_AGAIN = "its node was down or the cluster was stopped, and with it all that ran there; it begins again"
GROWS = "waits to grow: "  # begins the message of one that runs
_HEADS: Mapping[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "there is no queue {queue}",
    Reason.QUEUE_INVALID: "queue {queue} holds no workloads{rule}",
    Reason.NOT_ALLOWED: "queue {queue} does not take it{rule}",
    Reason.QUEUE_STOPPED: "queue {queue} admits nothing new",
    Reason.LEVEL_UNKNOWN: "no pool it may use has the topology level {level}",
    Reason.NEVER_FITS: "{never}",
    Reason.BACKING_OFF: "it failed to start and is not tried again{until}",
    Reason.DEPENDENCY_PENDING: "it comes after {after}",
    Reason.SCHEDULING_GATED: "{gates}",
    Reason.CLAIM_MISSING: "a PersistentVolumeClaim of its pods does not exist{detail}",
    Reason.CLAIM_UNBOUND: "a PersistentVolumeClaim of its pods is not bound to a volume{detail}",
    Reason.CLAIM_IN_USE: "another pod uses its ReadWriteOncePod claim{detail}",
    Reason.BUDGET_SPENT: "it could overrun the budget of queue {queue}{spending}",
    Reason.OVER_LIMIT: "{needs}; queue {queue} would be over its limit{bounds}{missing}{used}",
    Reason.OVER_GUARANTEED: "{needs}; it is not preemptible, and queue {queue} would be over its guarantee"
    "{bounds}{missing}{used}",
    Reason.RESERVED: "{needs}; the room is reserved{for}{since}{until}{nodes}",
    Reason.HELD_FOR: "{needs}; capacity is reserved for {whom}{from}{nodes}",
    Reason.WAITING_FOR_VICTIMS: "admitted; waiting for evicted workloads to stop",
    Reason.OVER_SHARE: "with it queue {queue} would exceed its share{bounds}{used}, so it reclaims nothing; {room}",
    Reason.NO_DOMAIN: "{most}",
    Reason.NO_DEVICE: "{device}",
    Reason.FRAGMENTED: "{most}; together there is enough",
    Reason.NO_ROOM: "{room}",
    Reason.REFUSED: "the last plan for it was refused{detail}",
}


_GONE = "pods of its group are gone, and it starts whole; make them again, or cancel what is left"
_NAMES_THEM = (Reason.HELD_FOR, Reason.DEPENDENCY_PENDING)
"""The reasons whose head names the workloads in the way."""
_BEHIND = "{whom} is before it in queue {queue}, which starts workloads in their order"


def _figures(facts: Facts, workload: Workload) -> dict[str, str]:
    """What a sentence may say. `most`: how near the best node or domain comes; `room`: what is missing in all."""
    level, resource = level_word(facts.level), facts.resource
    nodes = nodes_words(facts.census, level) if facts.census else ""
    needs, best = _needs(facts, level), _best(facts, level) if level or not nodes else ""
    is_shut_out = nodes and facts.most_free is None  # no node counts, so nothing is missing on any
    never = _clauses(needs, best and _best(facts, level, "that any has"), nodes, "it would not fit if nothing else ran")
    missing = "" if facts.missing is None else amount(facts.missing, resource)
    bounds = " and ".join(amount(most, name) for name, most in sorted((facts.bounds or {}).items()))
    used = " and ".join(number(held, name) for name, held in sorted((facts.used or {}).items()))
    return {
        "queue": facts.queue or workload.queue,
        "level": facts.level,
        "needs": needs,
        "nodes": f"; {nodes}" if nodes else "",
        "missing": f" by {number(facts.missing or 0, resource) if bounds else missing}" if missing else "",
        "most": _clauses(needs, best, nodes),
        "device": _clauses(needs, best, nodes or "no devices serve it as it asks"),
        "room": _clauses(needs, "" if is_shut_out else _missing(facts) if missing else best, nodes),
        "bounds": f" of {bounds}" if bounds else "",
        "used": f" ({used} in use)" if used else "",
        "after": _after(facts, workload),
        "spending": _spending(facts),
        "never": f"there is no pool that it may use: {facts.detail}" if facts.detail else never,
        "detail": f": {facts.detail}" if facts.detail else "",
        "gates": _GONE if facts.detail == INCOMPLETE else gated(facts.detail),
        "rule": _rule(facts, workload),
        "for": f" for {f'queue {facts.queue}' if facts.queue else 'maintenance'}",
        "since": f" from {_moment(facts.since)}" if facts.since is not None else "",
        "from": f" from {_moment(hold_time(facts.until))}" if facts.until is not None else "",
        "until": f" until {_moment(facts.until)}" if facts.until is not None else "",
    }


def _after(facts: Facts, workload: Workload) -> str:
    """What it comes after, and what of that has not succeeded."""
    first, *others = (_called(key) for key in facts.blocking or ("",))
    match facts.dependency:
        case None:
            return "workloads that have not succeeded" + (f": {first}" if first else "")
        case Dependency.CIRCULAR:
            chain = ", which comes after ".join((first, *others, "it"))
            first = f"`fairway modify {_called(workload.key)} --after none` lets it go first"
            return f"{chain}: none of them can start; {first}"
        case Dependency.MISSING if first.endswith((SUSPENDED, CANCELLED)):
            return first
        case Dependency.MISSING if ": say which" in first:
            return facts.blocking[0].partition("/")[2]  # the name as it was written
    words = {
        Dependency.WAITING: "waits itself",
        Dependency.RUNNING: "has not ended",
        Dependency.MISSING: "does not exist",
    }
    return f"{first}, which {words[facts.dependency]}"


def _moment(at: float) -> str:
    """A time in a message: to the second, and never before it has come."""
    return time_text(ceil(min(at, LATEST)))


def _spending(facts: Facts) -> str:
    """The budget, what is left of it, and what it would take."""
    if facts.spending is None:
        return ""
    budget, spent, reserved, needed = facts.spending
    hours = [f"{max(one, 0) / 3600:,.4g}" for one in (budget, spent, reserved, needed, budget - spent - reserved)]
    needs = f"; it needs up to {hours[3]}"
    if facts.assumed is not None:
        needs += f": it has no time limit, so {span(facts.assumed)} is reserved; --time-limit sets one"
    ends = f"; the next period begins at {_moment(facts.until)}" if facts.until is not None else ""
    if facts.spending.is_beyond:
        less = f" unless its time limit is at most {span(facts.longest)}" if facts.longest else ""
        ends = f"; that is more than the whole budget, so no period allows it{less}"
    whole = f"{hours[0]} GPU hour" + ("" if budget == 3600 else "s")
    said = f" of {whole}: {hours[1]} spent, {hours[2]} reserved for what has not ended, {hours[4]} left"
    return f"{said}{needs}{ends}"


def _called(key: str) -> str:
    """A workload as its user calls it: the workload of a Job or a pod by the name of that. What goes of one is it."""
    return short_name(key.partition("/")[2].removesuffix(PARTING))


def _rule(facts: Facts, workload: Workload) -> str:
    """What a queue has against it, and what to change."""
    if facts.rule is None:
        return f": {facts.detail}" if facts.detail else ""
    own, most = span(workload.time_limit or 0), span(facts.longest or 0)
    return _RULES[facts.rule].format(detail=facts.detail, most=most, own=own, one=workload)


_RULES: Mapping[Rule, str] = {
    Rule.CHILDREN: ", only the queues below it do: {detail}; move it to one of these",
    Rule.NAMESPACES: ": it is of namespace {one.namespace}, which the queue does not admit; submit it to another queue",
    Rule.MAX_PRIORITY: ": its priority {one.priority} is above {detail}; choose a lower class",
    Rule.PREEMPTIBLE: ": it is not preemptible; submit it with --preemptible",
    Rule.POOLS: ": it asks for other pools than those of the queue, {detail}; submit it for one of these",
    Rule.TIME_LIMIT: ": its time limit of {own} is above {most}; shorten it",
    Rule.SUSPENDED: ": it is suspended; resume it",
}


def _clauses(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _needs(facts: Facts, level: str) -> str:
    needs = "needs a place"
    if facts.needed is not None:
        needs = f"needs {amount(facts.needed, facts.resource)}"
    needs += f" in one {level}" if level else ""
    return needs + (f" on other nodes than {', '.join(facts.shunned)}, where it failed" if facts.shunned else "")


def _best(facts: Facts, level: str, of: str = "free in any") -> str:
    if facts.most_free is None:
        return ""
    where = f" ({level or 'node'} {facts.domain})" if facts.domain else ""
    return f"the most {of} is {number(facts.most_free, facts.resource)}{where}"


def _missing(facts: Facts) -> str:
    missing = facts.missing or 0
    are = "is" if is_one(missing, facts.resource) else "are"
    where = f" in pool {facts.pool}" if facts.pool not in ("", DEFAULT) else ""
    return f"{number(missing, facts.resource)} {are} missing{where}"


def nodes_words(census: engine.Census, level: str) -> str:
    """The nodes by what shuts it out, the most first: `0 of 30 nodes: 12 cordoned, 18 without 4 free GPUs (largest
    free: 2)`. "" where the other figures say the same: a lone node that is full, or nodes of a level that are."""
    found = sorted(census.obstacles, key=lambda one: -one.nodes)
    is_plain = all(one.bar in _TOLD_ELSEWHERE for one in found)
    if not census.nodes or (is_plain and (census.nodes == 1 or level)):
        return "" if census.nodes else "the pool has no nodes"
    parts = [f"{one.nodes} {_obstacle(one)}" for one in found[:MOST_OBSTACLES]]
    rest = sum(one.nodes for one in found[MOST_OBSTACLES:])
    listed = ", ".join([*parts, *[f"{rest} for other reasons"] * bool(rest)])
    of_all = f"{census.open} of {count(census.nodes, 'node')}"
    if not census.open:
        return f"{of_all}: {listed}"
    pods = f"{census.wanted} {census.podset} pods" if census.podset else f"its {count(census.wanted, 'pod')}"
    room = f", for {census.room} of {pods}" if census.room < census.wanted else " for a pod"
    return f"{of_all} {'has' if census.open == 1 else 'have'} room{room}{'; others: ' if listed else ''}{listed}"


def _obstacle(one: engine.Obstacle) -> str:
    """What follows the number of nodes."""
    match one.about:
        case engine.Expression(key="metadata.name", operator="In", values=(name,)) if one.bar is Bar.VOLUME:
            return f"other than {name}, which its spec.nodeName names"
        case str() if one.about.startswith(ATTACHABLE) and one.bar is Bar.BUSY and not one.most:
            return f"attaching no more volumes of {driver(one.about)}"
        case engine.Expression():
            about = _expression(one.about, is_label=one.bar is Bar.SELECTOR)
        case _:
            about = ", ".join(map(level_word, one.about.split(", ")))
    asked, most = amount(one.asked, str(one.about)), number(one.most, str(one.about))
    less = "less" if is_bytes(str(one.about)) else "fewer"
    return _BARS[one.bar].format(about=about, asked=asked, most=most, less=less)


def _expression(one: engine.Expression, *, is_label: bool) -> str:
    if is_label:
        return f"{one.key}={one.values[0]}"
    key, values = level_word(one.key), _first(one.values)
    words = {"In": f"{key} in {values}", "NotIn": f"{key} not in {values}", "Exists": key, "DoesNotExist": f"no {key}"}
    return words.get(one.operator, f"{key} {'>' if one.operator == 'Gt' else '<'} {values}")


_TOLD_ELSEWHERE = (Bar.BUSY, Bar.TOO_SMALL, Bar.KEPT)
_BARS: Mapping[Bar, str] = {
    Bar.LEAVING: "being deleted",
    Bar.UNHEALTHY: "marked unhealthy",
    Bar.CORDONED: "cordoned",
    Bar.NOT_READY: "NotReady",
    Bar.TAINT: "with the taint {about}",
    Bar.SELECTOR: "without the label {about}",
    Bar.AFFINITY: "outside its node affinity ({about})",
    Bar.VOLUME: "out of reach of its volume ({about})",
    Bar.TOO_SMALL: "with {less} than {asked} (largest: {most})",
    Bar.FAILED_BEFORE: "where it failed before",
    Bar.PORT: "where its host port is in use",
    Bar.CLAIM: "where its ReadWriteOncePod claim is in use",
    Bar.ANTI_AFFINITY: "ruled out by pod anti-affinity ({about})",
    Bar.POD_AFFINITY: "without the pods that its affinity asks for ({about})",
    Bar.SPREAD: "ruled out by its topology spread ({about})",
    Bar.KEPT: "kept for others",
    Bar.BUSY: "without {asked} free (largest free: {most})",
    Bar.DEVICES: "without devices that serve it as it asks",
}


def level_word(level: str) -> str:
    """`rack` for fairway.dev/rack; the host is a node."""
    word = level.rpartition("/")[2]
    return "node" if word == "hostname" else word


def names(keys: Iterable[str], reader: Workload, queues: Queues) -> str:
    """Workloads of the reader's namespace by name, the others by number and queue; of many queues those with most."""
    own = sorted({_called(key) for key in keys if key.startswith(f"{reader.namespace}/")})
    parts = own if len(own) <= NAMED else [*own[:NAMED], f"{len(own) - NAMED} more of this namespace"]
    others = Counter(queues.get(key, "") for key in keys if not key.startswith(f"{reader.namespace}/"))
    shown = sorted(others.most_common(NAMED))
    parts += [count(n, "workload") + (f" of queue {queue}" if queue else "") for queue, n in shown]
    if rest := others.total() - sum(n for _, n in shown):
        parts.append(f"{count(rest, 'workload')} of {count(len(others) - NAMED, 'other queue')}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def places(admission: engine.Admission) -> str:
    """`n1 (4 pods) and n2 (4 pods) of pool h100`, or how many nodes."""
    pods: Counter[str] = Counter()
    for podset in admission.podsets:
        for share in podset.nodes:
            pods[share.node] += share.count
    shown = [f"{node} ({count(number, 'pod')})" for node, number in pods.items()]
    where = (" and ".join(shown) or "no node yet") if len(shown) <= NAMED else f"{len(shown)} nodes"
    return f"{where} of pool {admission.pool}"


def _for(key: str, reader: Workload, queues: Queues) -> str:
    return f", for {names((key,), reader, queues)}" if key else ""


def _evicted(verdict: engine.Evict, workload: Workload, queues: Queues) -> str:
    moved = f"; it goes on on {places(verdict.admission)}" if verdict.admission else "; it keeps its place in the queue"
    is_by_user = verdict.cause is Cause.SUSPENDED and workload.pauses
    if verdict.pauses:
        moved = f"; its processes are frozen where they are{', and written to disk' if verdict.saves else ''}"
    elif is_by_user:
        moved = "; it cannot be frozen where it runs, so it is stopped"
    why = "paused by its user" if is_by_user else _CAUSES[verdict.cause]
    if verdict.cause is Cause.PODS_LOST and workload.restart == "Pod":
        why = "it lost pods that found no place"
    if verdict.budget:
        why += f"; PodDisruptionBudget {verdict.budget} allows no more disruptions, but no other victims suffice"
    return f"{why}{_for(verdict.beneficiary, workload, queues)}{moved}"


def contested(pods: Sequence[PodObject]) -> str:
    """What to do where another scheduler may bind pods that wait; "" where none may."""
    by = sorted({pod.spec.scheduler_name for pod in pods} - {SCHEDULER})
    return f"{' and '.join(by)} may start it before its turn; to prevent that, {_OURS}" if by else ""


def adopted(pods: Sequence[PodObject]) -> str:
    """What became of a workload whose pods another scheduler bound before its turn, and how to have it wait."""
    others = {pod.spec.scheduler_name or DEFAULT_SCHEDULER for pod in pods} - {SCHEDULER}
    by = " and ".join(sorted(others)) or "its own spec.nodeName"
    nodes = sorted({pod.spec.node_name for pod in pods})
    on = _first(nodes)
    if any(ATTEMPT in pod.metadata.annotations for pod in pods):
        return f"it ran on {on} already, for a workload that is no more; it counts as admitted there"
    return f"{by} bound it to {on} before its turn; it counts as admitted there. To make it wait, {_OURS}"


def rejected(pod: PodObject) -> str:
    """Which node would not run a pod, and why."""
    said = (f"{pod.spec.node_name} rejected pod {pod.metadata.name}", pod.status.reason, pod.status.message)
    return f"{': '.join(filter(None, said))}; the workload is placed again, elsewhere if it fits"


def full(group: str, size: int) -> str:
    """Why a pod that came to a group after its start does not start, and what to do."""
    return f"group {group!r} started with its {size} pods, so this one never starts; delete it, or name another group"


def crowded_out(node: str, until: float, *, is_full: bool) -> str:
    """What others took of a workload before its pods came: the room, or the volumes."""
    took = f"another scheduler filled {node}" if is_full else f"others took its volumes on {node}"
    return f"{took} before its pods came; it keeps its place in the queue, with the next attempt at {_moment(until)}"


def pod_failure(pod: PodObject) -> str:
    """The reason for which a pod failed, as `ended` reads it."""
    return PAST_DEADLINE if pod.status.reason == PAST_DEADLINE else "PodFailed"


def ended(outcome: Outcome, pods: Sequence[PodObject]) -> tuple[str, str]:
    """How a workload ended by itself, in a word and in a sentence: `ExitCode3` and `failed: exit code 3`. Of several
    pods the one is named whose container failed first, of an array the trials that failed."""
    if outcome.succeeded:
        return FINISHED, "finished"
    if outcome.reason == PAST_DEADLINE:
        return PAST_DEADLINE, "stopped: its activeDeadlineSeconds are over"
    if not (first := first_exit(pods)):
        return outcome.reason, f"failed: {outcome.message or outcome.reason}"
    name, end = first
    word = "OutOfMemory" if end.reason == "OOMKilled" else f"ExitCode{end.exit_code}"
    said = exit_words(end.exit_code, end.reason, end.message)
    if outcome.reason == "FailedIndexes":
        ends = [(rank_in(pod.metadata.annotations), pod.status.phase) for pod in pods]
        return word, f"failed: {failed_trials(ends)}; the first with {said}"
    return word, f"failed: {said}{f' in pod {name}' if len(pods) > 1 else ''}"


def retrying(end: Terminated | None, at: float) -> str:
    """How the program failed, and when it is started again."""
    said = f"failed: {exit_words(end.exit_code, end.reason, end.message)}; " if end else ""
    return f"{said}starts again at {_moment(at)}"


def refusal(pods: Iterable[PodObject]) -> tuple[str, str]:
    """Why the first container that cannot start cannot, in a word and a sentence of its node; empty where each can."""
    every = (one for pod in pods for one in (*pod.status.init_container_statuses, *pod.status.container_statuses))
    waiting = (one.state.waiting for one in every)
    return next(((it.reason, it.message) for it in waiting if it and it.message and it.reason != LOOPS), ("", ""))


def gated(gates: str) -> str:
    return f"its pods have scheduling gates that others must remove: {gates}"


def idle(began: float, end: float) -> str:
    """When a session that does nothing is parked."""
    return f"idle since {_moment(began)}; parked at {_moment(end)} unless it computes before"


def parked(began: float, name: str) -> str:
    return f"idle since {_moment(began)}; `fairway resume {name}` wakes it"


def exit_of(pod: PodObject) -> Terminated | None:
    """How the first container of a pod that failed did."""
    return min(_exits(pod.status), key=lambda end: end.finished_at or "", default=None)


def first_exit(pods: Sequence[PodObject]) -> tuple[str, Terminated] | None:
    """The pod whose container failed first, and how it did; a pod that was lost only where no program failed."""
    exits = [(is_lost(pod.status), end.finished_at or "", pod.metadata.name, end)
             for pod in pods for end in _exits(pod.status)]  # fmt: skip
    return min(exits, key=lambda it: it[:3])[2:] if exits else None


def _exits(status: PodStatus) -> Iterator[Terminated]:
    for one in (*status.init_container_statuses, *status.container_statuses):
        end = one.state.terminated or one.last_state.terminated
        if end and end.exit_code:
            yield replace(end, message=end_message(one.name, end.message))


_OURS = f"set schedulerName: {SCHEDULER} in the spec of its pods, or install the webhook"

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
    Cause.SUSPENDED: "suspended",
}
