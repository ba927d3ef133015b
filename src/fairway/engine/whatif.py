"""What would let a workload that waits start now. Each change is tried by deciding again with it: what is told is true.

Tried, one at a time: fewer pods of a lone podset, or fewer GPUs for a lone pod; another queue; another of the pools,
where it names some; no required topology; a time limit that ends before what the room is kept for; without some of
those who run. A start that would have to wait for others to go is none. The number of decisions is bounded, and nothing
of this is part of a cycle.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from .decide import decide
from .model import GPU, Gone, PodSet, Running, Topology, Workload, World, amounts
from .plan import Admit, Facts, Reason, Wait
from .policy import Policy
from .resources import DEVICE
from .state import state_of

MOST_OTHERS = 16  # queues tried, and pools
MINUTE = 60.0
Starts = Callable[[Workload], bool]


def what_if(world: World, wait: Wait, policy: Policy) -> Facts:
    """The facts of the wait, with what would change it."""
    ours, state = next(one for one in world.pending if one.key == wait.workload), state_of(world)
    policy = replace(policy, tells_why=False)

    def starts(changed: Workload) -> bool:
        state.observe(changed)
        verdicts = decide(policy.seen(state.snapshot(world.now)), policy).verdicts
        return any(isinstance(it, Admit) and it.workload == ours.key and not it.after for it in verdicts)

    def starts_without(those: Sequence[Running]) -> bool:
        for one in those:
            state.observe(Gone("Workload", one.workload.key))
        found = starts(ours)
        for one in those:
            state.observe(one)
        return found

    queues = sorted({one.name for one in world.queues} - {one.parent for one in world.queues} - {ours.queue})
    pools = [one.name for one in world.pools if ours.pools and one.name not in ours.pools]
    limit, free = _limit(world, wait), _unbound(ours)
    return replace(
        wait.facts,
        blocking=wait.facts.blocking or _in_the_way(world, wait.facts.domain, starts_without),
        would_fit=_fewer_pods(ours, starts),
        with_gpus=_fewer_gpus(ours, starts),
        other_queue=next((name for name in queues[:MOST_OTHERS] if starts(replace(ours, queue=name))), ""),
        other_pool=next((name for name in pools[:MOST_OTHERS] if starts(replace(ours, pools=(name,)))), ""),
        is_bound=free != ours and starts(free),
        shorter_limit=limit if limit and starts(replace(ours, time_limit=limit)) else None,
    )


def _in_the_way(world: World, domain: str, starts_without: Callable[[Sequence[Running]], bool]) -> tuple[str, ...]:
    """Those who run and without whom it would start, none of them in vain; () where no few of them would help. Who
    stands in the domain that comes nearest is looked at first."""

    def place(one: Running) -> tuple[bool, str, str]:
        node = next((share.node for podset in one.admission.podsets for share in podset.nodes), "")
        return node != domain, node, one.workload.key

    those = sorted((one for one in world.running if not one.is_leaving and not one.is_promised), key=place)
    if not those or not starts_without(those):
        return ()
    those = those[: len(those) - most(len(those), lambda cut: starts_without(those[: len(those) - cut]))]
    those = those[most(len(those), lambda cut: starts_without(those[cut:])) :]
    if len(those) > MOST_OTHERS:
        return ()
    for one in those[1:-1]:
        rest = [other for other in those if other is not one]
        those = rest if starts_without(rest) else those
    return tuple(one.workload.key for one in those)


def most(top: int, holds: Callable[[int], bool]) -> int:
    """The largest number below `top` that was found to hold, by halving; 0 where none was."""
    fits, fails = 0, top
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if holds(middle) else (fits, middle)
    return fits


def _fewer_pods(ours: Workload, starts: Starts) -> dict[str, int] | None:
    if len(ours.podsets) != 1:
        return None
    (podset,) = ours.podsets
    fits = most(podset.min_count, lambda count: starts(_with(ours, replace(podset, count=count, min_count=count))))
    return {podset.name: fits} if fits else None


def _fewer_gpus(ours: Workload, starts: Starts) -> int | None:
    """In milli, for a lone pod with several."""
    podset, asked = ours.podsets[0], dict(ours.podsets[0].pod.requests)
    if len(ours.podsets) != 1 or podset.count != 1 or asked.get(GPU, 0) <= DEVICE:
        return None

    def less(gpus: int) -> Workload:
        requests = amounts(asked | {GPU: gpus * DEVICE})
        return _with(ours, replace(podset, pod=replace(podset.pod, requests=requests)))

    return most(asked[GPU] // DEVICE, lambda gpus: starts(less(gpus))) * DEVICE or None


def _with(ours: Workload, podset: PodSet) -> Workload:
    return replace(ours, podsets=(podset,))


def _unbound(ours: Workload) -> Workload:
    """The same without what its topology requires."""

    def free(topology: Topology) -> Topology:
        return replace(topology, required="", preferred=topology.preferred or topology.required)

    podsets = tuple(replace(one, topology=free(one.topology)) for one in ours.podsets)
    return replace(ours, topology=free(ours.topology), podsets=podsets)


def _limit(world: World, wait: Wait) -> float:
    """The longest that ends before what stands against it, in whole minutes; none ends before what has begun."""
    begins = wait.facts.since if wait.reason is Reason.RESERVED else wait.facts.until
    return 0.0 if begins is None else max(0.0, (begins - world.now) // MINUTE * MINUTE)
