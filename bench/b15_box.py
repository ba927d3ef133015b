"""B15, one machine: what jobs, commands and waiting cost with `fairway up` on two processors.

Parts, all of them or those that BENCH_PARTS names: `commands` (CPU of `--help` and of `submit`), `month` (CPU of
`usage` of a month with 1,000 users), `jobs` (one-second jobs of 10m CPU, finished a second), `queued` (5,000 Jobs that
wait for the whole machine: how fast they are submitted, what commands, a cycle and doing nothing cost then, how soon a
successor starts, what cancelling 500 costs), `cycle` (the CPU of deciding and checking alone, when the first of as many
has gone and runtimes were learned), `explained` (the CPU of finding what would help twelve gangs that wait for 30
nodes), `team` (what `ls` costs one of ten users, each in a namespace with 500 jobs), `memory` (what the cluster holds
after each wave of jobs that came, ended and are removed, and whether it still grows) and `pause` (how soon after a job
is frozen the one runs that it gives way to, and how soon it goes on when that has ended). BENCH_JOBS stands in for
5,000, and for the 15,000 of `memory`. A run is valid if every command and job did what it was asked and no plan was
refused. Where something else uses the machine, figures in seconds tell of that as well; the CPU beside them does not.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time

from bench.box import Box, Cost, box, command, job, until
from bench.figure import Figure

from fairway import offline
from fairway.engine import (
    GPU,
    Admission,
    Gone,
    Ledger,
    Node,
    NodeShare,
    PodClass,
    PodSet,
    PodSetPlacement,
    Policy,
    Queue,
    Quota,
    Running,
    Share,
    Sketch,
    Wait,
    Workload,
    World,
    amounts,
    decide,
    groups,
    snapshot_of,
    state_of,
)
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.policies import PRESETS
from fairway.referee import check

ONE_SECOND, WAITING, GANGS = 400, 5_000, 12
ENDED, WAVES = 15_000, 6  # what has a bound has it at 10,000
USERS = 1_000
TEAM, EACH = 10, 500
SWEEPS = 10
IDLE_SECONDS = 60.0
SUCCESSORS = 20
MIB = "MiB"


def many(usual: int) -> int:
    return int(os.environ.get("BENCH_JOBS", usual))


async def commands(rounds: int) -> AsyncIterator[Figure]:
    """CPU of the commands that are typed most."""
    yield _cpu("--help", [command("--help") for _ in range(rounds)], 0.15)
    async with box() as it:
        costs = [it.run("submit", "--name", f"one{at}", "--cpus", "10m", "--", "true") for at in range(rounds)]
        yield _cpu("submit", costs, 0.4)


async def month(rounds: int) -> AsyncIterator[Figure]:
    """What `usage` of a month costs in which a thousand users held GPUs on each of thirty days."""
    async with box() as it:
        kind = {"apiVersion": kinds.FAIRWAY, "kind": "UsageDay"}
        for day in range(1, 31):
            rows = [{"user": f"user{at}", "name": f"job-{at % 50}", "pool": "a100", "allocated": 3_600_000 + at,
                     "busy": 3_000_000, "cost": at} for at in range(USERS)]  # fmt: skip
            name, labels = f"2026-06-{day:02}", {"fairway.dev/month": "2026-06"}
            meta = {"name": f"{name}.team", "labels": labels}
            await it.client.create(kinds.USAGE_DAYS, {**kind, "metadata": meta, "spec": {"day": name, "queue": "team"}})
            status = {"status": {"rows": rows, "until": f"{name}T23:59:59Z"}}
            await it.client.patch(Ref(kinds.USAGE_DAYS, meta["name"]), status, subresource="status")
        costs = [it.run("usage", "--period", "2026-06", "--by", "user", "--csv") for _ in range(rounds)]
        yield _cpu(f"usage of a month with {USERS} users", costs, 1.0)


async def jobs(rounds: int) -> AsyncIterator[Figure]:
    """Jobs of one second, from the first submission to the last end."""
    count, rates, costs, is_valid = min(many(ONE_SECOND), ONE_SECOND), [], [], True
    async with box() as it:
        for at in range(rounds):
            before = it.cpu()
            sent = asyncio.create_task(it.submit(job(f"r{at}-{n}", it.program(1), "10m") for n in range(count)))
            await until(partial(_have_ended, it, count * (at + 1)))
            await sent
            said = it.said()[-2 * count :]
            rates.append(count / (said[-1][0] - said[0][0]))
            costs.append(1000 * (it.cpu() - before) / count)
            is_valid &= sum(what == "began" for _, what in said) == count
        yield _sound(it, "one-second jobs", rates, "jobs/s", 40, is_rate=True, is_valid=is_valid)
        yield _sound(it, "one-second jobs, the cluster", costs, "CPU ms a job", is_valid=is_valid)


async def _have_ended(it: Box, count: int) -> bool:
    return sum(what == "ended" for _, what in it.said()) >= count


async def queued(rounds: int) -> AsyncIterator[Figure]:
    """With thousands that wait for one job that holds the machine."""
    count = many(WAITING)
    async with box() as it:
        await it.submit([job("first", ["sleep", "100000"], "2")])
        await until(lambda: _reads(it, "running", 1))
        before = it.cpu()
        seconds = await it.submit(job(f"s{n % SWEEPS}-{n}", it.program(0.2), "2") for n in range(count))
        yield _sound(it, "submission", [count / seconds], "jobs/s", 400, is_rate=True)
        yield _sound(it, "submission, the cluster meanwhile", [1000 * (it.cpu() - before) / count], "CPU ms a job")
        await until(lambda: _reads(it, "pending", count))
        await it.rest()
        for name, asked in _asked(count).items():
            costs = [it.run(*asked(at)) for at in range(rounds)]
            figure = partial(_sound, it, is_valid=all(cost.is_done for cost in costs))
            yield figure(f"{name}, {count} queued", [cost.wall for cost in costs], "s", 0.7)
            yield figure(f"{name}, the command itself", [cost.cpu for cost in costs], "CPU s")
        yield _sound(it, "cycle", [await _cycle(it, at) for at in range(rounds)], "ms", 20)
        await it.rest(0.01, IDLE_SECONDS + 15)  # longer than it is between two forecasts
        before = it.cpu()
        await asyncio.sleep(IDLE_SECONDS)
        yield _sound(it, "idle", [100 * (it.cpu() - before) / IDLE_SECONDS], "% of a core", 1)
        yield await _cancelled(it)
        it.run("cancel", "first")
        await until(lambda: _gapped(it, 1))
        before, first = it.cpu(), len(it.gaps())
        await until(lambda: _gapped(it, first + SUCCESSORS))
        gaps, cost = it.gaps(), 1000 * (it.cpu() - before)
        yield _sound(it, "successor starts after", gaps, "s", 0.1)
        yield _sound(it, "successor, the cluster meanwhile", [cost / (len(gaps) - first)], "CPU ms a job")


async def _gapped(it: Box, count: int) -> bool:
    return len(it.gaps()) >= count


async def _reads(it: Box, state: str, count: int) -> bool:
    return it.metric(f"fairway_{state}_workloads") == count


def _asked(count: int) -> dict[str, Callable[[int], tuple[str, ...]]]:
    """Each command's arguments in its round."""
    middle = count // 2
    return {
        "ls": lambda at: ("ls",),
        "why": lambda at: ("why", f"s{middle % SWEEPS}-{middle}"),
        "queues": lambda at: ("queues",),
        "cancel": lambda at: ("cancel", f"s{at % SWEEPS}-{at}"),
    }


async def _cycle(it: Box, at: int) -> float:
    """Milliseconds of deciding and checking, the mean of the cycles that one more job brings about."""
    names = [f"fairway_{part}_seconds" for part in ("cycle", "check")]
    before = [(it.metric(f"{name}_sum"), it.metric(f"{name}_count")) for name in names]
    await it.submit([job(f"more-{at}", ["true"], "2")])
    await it.rest()
    after = [(it.metric(f"{name}_sum"), it.metric(f"{name}_count")) for name in names]
    return sum(1000 * (then - was) / max(1.0, done - had) for (was, had), (then, done) in zip(before, after))


async def _cancelled(it: Box) -> Figure:
    """CPU of cancelling by label, of the command and of the cluster until all are gone."""
    before, there = it.cpu(), it.metric("fairway_pending_workloads")
    cost = it.run("cancel", "-l", f"sweep=s{SWEEPS - 1}")
    await it.rest()
    gone = there - it.metric("fairway_pending_workloads")
    return _sound(it, f"cancel -l of {gone:g}", [cost.cpu + it.cpu() - before], "CPU s", is_valid=cost.is_done)


async def cycle(rounds: int) -> AsyncIterator[Figure]:
    """Without a cluster: CPU time alone."""
    count, alike = many(WAITING), (PodSet("main", 1, 1, PodClass(requests=amounts({"cpu": 2000}))),)
    waiting = [Workload(f"b/job-s{n % SWEEPS}-{n}", "default", alike, submitted=float(n)) for n in range(count)]
    place = Admission("default", (PodSetPlacement("main", (NodeShare("here", 1),)),))
    running = Running(Workload("b/job-first", "default", alike), place, 0.0)
    learned = tuple((group, Sketch(((60.0, 9.0),))) for group in groups(waiting[0]))
    node = Node("here", capacity=amounts({"cpu": 2000, "memory": 1 << 33, "pods": 110}))
    queue = Queue("default", ledger=Ledger(runtimes=learned))
    state = state_of(World(now=1e5, nodes=(node,), queues=(queue,), running=(running,), pending=tuple(waiting)))
    samples, is_sound = [], True
    for one in waiting[: rounds + 1]:
        before = process_time()
        snapshot = state.snapshot(1e5)
        plan = decide(snapshot, PRESETS["fairway"])
        is_sound &= not check(snapshot, plan)
        samples.append(1000 * (process_time() - before))
        state.observe(Gone("Workload", one.key))
    title = f"B15 cycle with {count} waiting"
    yield Figure(title, tuple(samples[1:]), "CPU ms", 20, is_valid=is_sound)


async def explained(rounds: int) -> AsyncIterator[Figure]:
    """Without a cluster: why each of twelve gangs waits, and what would let it start, where 105 workloads run."""
    nodes, names = 30, "qrst"
    machine = amounts({"cpu": 64_000, "memory": 1 << 40, GPU: 8_000, "pods": 110})
    queues = tuple(Queue(name, quotas=(Quota("*", guaranteed=((GPU, Share(2 * nodes * 1000)),)),)) for name in names)
    asked = [(f"b/w{at}", names[at % 4], _gpus(4, at % 5 + 1)) for at in range(GANGS)]
    waiting = tuple(Workload(*one, submitted=1e5 + at) for at, one in enumerate(asked))
    running = tuple(_runs(at, f"n{at % nodes}", names[at % 4]) for at in range(7 * nodes // 2))
    hosts = tuple(Node(f"n{at}", capacity=machine) for at in range(nodes))
    world = World(now=1e6, nodes=hosts, queues=queues, pending=waiting, running=running)
    plan, samples = decide(snapshot_of(world), Policy()), []
    for _ in range(rounds):
        before = process_time()
        told = offline.explained(world, plan, Policy())
        samples.append(process_time() - before)
    is_told = sum(isinstance(it, Wait) and bool(it.facts.blocking) for it in told.verdicts) > 0
    yield Figure(f"B15 {GANGS} that wait explained", tuple(samples), "CPU s", 0.5, is_valid=is_told)


async def team(rounds: int) -> AsyncIterator[Figure]:
    """What `ls` shows one user, beside the jobs of the others."""
    async with box() as it:
        each = many(EACH)
        spaces = [f"user{at}" for at in range(TEAM)]
        for space in spaces:
            await it.client.create(kinds.NAMESPACES, {"metadata": {"name": space}})
        own = [job(f"j-{n}", ["sleep", "100000"], "2") for n in range(TEAM * each)]
        for at, one in enumerate(own):
            one["metadata"]["namespace"] = spaces[at % TEAM]
        await it.submit(own)
        await until(lambda: _reads(it, "pending", TEAM * each - 1))
        await it.rest()
        costs = [it.run("ls", "-n", spaces[at % TEAM]) for at in range(rounds)]
        figure = partial(_sound, it, is_valid=all(cost.is_done for cost in costs))
        yield figure(f"ls of one of {TEAM} users, {each} jobs each", [cost.wall for cost in costs], "s", 0.3)
        yield figure("ls of one of them, the command itself", [cost.cpu for cost in costs], "CPU s")


def _gpus(each: int, count: int = 1) -> tuple[PodSet, ...]:
    return (PodSet("main", count, count, PodClass(requests=((GPU, each * 1000),))),)


def _runs(at: int, node: str, queue: str) -> Running:
    place = Admission("default", (PodSetPlacement("main", (NodeShare(node, 1),)),))
    return Running(Workload(f"b/r{at}", queue, _gpus(2)), place, 1e6 - 60)


async def memory(rounds: int) -> AsyncIterator[Figure]:
    """Memory after each wave of jobs that end and are removed, and what each thousand adds in the last third of them:
    what has a bound has reached it by then. At last what is left of two waves that are queued at once."""
    each, held = max(1, many(ENDED) // WAVES), list[float]()
    async with box() as it:
        for first in range(0, each * WAVES, each):
            held.append(await _after(it, range(first, first + each)))
            yield _sound(it, f"memory after {first + each} jobs", held[-1:], MIB)
        full = 2 * WAVES // 3
        more = 1000 * (held[-1] - held[full - 1]) / (each * (WAVES - full))
        yield _sound(it, f"each 1,000 more after {each * full}", [more], MIB, 1)
        peak = await _after(it, range(each * WAVES, each * (WAVES + 2)))
        yield _sound(it, f"memory after {each * 2} at once", [peak], MIB)


async def _after(it: Box, numbers: range) -> float:
    """MiB when so many jobs were submitted as fast as can be, have ended and are removed."""
    await it.submit(job(f"m-{n}", ["true"], "10m", ttlSecondsAfterFinished=0) for n in numbers)
    await until(lambda: _is_empty(it))
    await it.rest(seconds=15.0)  # until it has collected and given back what it can
    return it.memory()


async def _is_empty(it: Box) -> bool:
    return not [page async for page in it.client.pages(Selection(kinds.JOBS, "default")) if page.items]


async def pause(rounds: int) -> AsyncIterator[Figure]:
    """A program that writes the time all along, frozen for a more urgent one, again and again."""
    async with box() as it:
        ticks = it.folder.parent / "ticks"
        await it.client.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
        place = Ref(kinds.QUEUES, "default")
        await until(partial(it.client.find, place))
        await it.client.patch(place, {"spec": {"evict": "Pause"}})
        await it.submit([job("ticks", ["sh", "-c", f"while date +%s.%N >> {ticks}; do sleep 0.01; done"], "2")])
        await until(lambda: _ticks(ticks, 0.0))
        for at in range(rounds):
            one = job(f"u-{at}", it.program(0.5), "2")
            one["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
            await it.submit([one])
            await until(partial(_have_ended, it, at + 1))
            await until(partial(_ticks, ticks, it.said()[-1][0]))
        moments, said = [float(line) for line in ticks.read_text().split("\n")[:-1]], it.said()
        began, ended = ([time for time, told in said if told == what] for what in ("began", "ended"))
        stops = [max(tick for tick in moments if tick < start) for start in began]
        still = not any(start < tick < end for tick in moments for start, end in zip(began, ended))
        yield _sound(it, "pause to the next start", [t - s for s, t in zip(stops, began)], "s", 1, is_valid=still)
        wakes = [min(tick for tick in moments if tick > end) - end for end in ended]
        yield _sound(it, "wake with room", wakes, "s", 3, is_valid=still)


async def _ticks(file: Path, since: float) -> bool:
    """Whether the program has gone on since then."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return bool(lines) and float(lines[-1]) > since


PARTS = {
    "commands": commands, "month": month, "jobs": jobs, "queued": queued, "cycle": cycle, "explained": explained,
    "team": team, "memory": memory, "pause": pause,
}  # fmt: skip


def run(rounds: int = 5) -> Iterator[Figure]:
    """Figures as they come."""
    named = os.environ.get("BENCH_PARTS", "").split()
    for part in named or PARTS:
        yield from _each(PARTS[part](rounds))


def _each(figures: AsyncIterator[Figure]) -> Iterator[Figure]:
    with asyncio.Runner() as runner:
        while (found := runner.run(_next(figures))) is not None:
            yield found


async def _next(figures: AsyncIterator[Figure]) -> Figure | None:
    return await anext(figures, None)


def _sound(it: Box, title: str, samples: list[float], unit: str, aim: float | None = None, **more: bool) -> Figure:
    """A figure that is valid if no plan was refused either."""
    is_valid = more.pop("is_valid", True) and it.is_sound()
    return Figure(f"B15 {title}", tuple(samples), unit, aim, is_valid=is_valid, **more)  # type: ignore[arg-type]


def _cpu(title: str, costs: list[Cost], aim: float) -> Figure:
    samples = tuple(cost.cpu for cost in costs)
    return Figure(f"B15 {title}", samples, "CPU s", aim, is_valid=all(cost.is_done for cost in costs))
