"""B9, waits: what a policy that does not know durations costs against an oracle that does, on traces of real clusters.

Two of ours are compared with `sjf`, strict and told the durations: `las`, which preempts whoever has had more service,
and `fairway`, which takes back only what was let in behind a hold. Mean wait is the oracle's at best; the p99.9 wait is
held against the largest of `strict-fifo`, for nobody may pay for the mean. What `srtf`, told the durations and
preempting, would reach stands beside. The two strict presets must reproduce the mean JCT of the traces' own baselines
within 5 %; that is told first, because figures against a wrong baseline are worth nothing. Where a policy of ours
misses an aim, what else could be had is shown: mean and tail of its CURVE. How fast it goes is told on helios_venus, by
`fairway` and by `fifo`. BENCH_DAYS replays only the first days, where published baselines and aims for speed do not
apply; the names then say so.

Submit times are those of one draw of many, and evictions lose work. So `fairway` is replayed once more for each of
`rounds` draws, every submit time moved by up to 30 s, with evictions that lose the work since the last checkpoint (one
each half hour) and take a restart of 30 s: its mean wait is to be at most NEAREST times that of the better of `easy`
and `fifo`, its p99.9 wait below the largest of `strict-fifo`.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain

from bench.figure import Figure
from bench.replays import LOSSY, Replay, days, drawn, loads, replay

from fairway.engine import DAY
from fairway.policies import PRESETS, least_attained, valued
from fairway.sim import Load

TRACES = ("philly", "helios_venus", "pai_v2020", "ms_itp", "chronus_philly_slo")
PUBLISHED = {
    "muri_testbed": (747_499.0, 279_097.0),
    "pai_v2020": (116_326.0, 8_719.0),
    "helios_venus": (182_601.0, 18_841.0),
    "philly": (230_949.0, 32_261.0),
    "ms_itp": (58_423.0, 35_618.0),
    "chronus_philly_slo": (26_245.0, 17_451.0),
}
"""Mean JCT of strict FIFO and of strict shortest-first with known durations."""
NEAR = 0.05
OURS = {"las": 1.5, "fairway": 2.0}
"""How many times the oracle's mean wait each of ours may have: preempting, and not."""
CURVE = {
    "las": {
        f"patience {it} d": replace(PRESETS["las"], view=partial(valued, least_attained, patience=it * DAY))
        for it in (4, 8)
    },
    "fairway": {
        f"halving {it}, overdue {at}": replace(PRESETS["fairway"], halving=it, overdue=at)
        for it, at in ((0.1, 1), (0.2, 1), (0.5, 3))
    },
}
"""From the tail to the mean: how long somebody waits until nobody passes him over any longer."""
RIVALS, NEAREST = ("easy", "fifo"), 1.1
BASELINES = ("strict-fifo", "sjf")
RUNS = (*OURS, *BASELINES)
SPEED = "helios_venus"
FAST = {"fairway": 300.0, "fifo": 60.0}
"""CPU seconds in which all of SPEED is to be replayed, the referee's included."""


def run(rounds: int = 1) -> Iterator[Figure]:
    """As many replays at once as there are processors; a trace's figures are told when all of its replays have ended,
    the `rounds` draws after them, what `srtf` and the CURVEs would reach last."""
    there = dict(loads(("muri_testbed", *TRACES), "B9"))
    with ProcessPoolExecutor() as pool:
        asked = {name: _asked(pool, load, RUNS if name in TRACES else BASELINES) for name, load in there.items()}
        fifo = [pool.submit(replay, there[it], "fifo") for it in there if it == SPEED]
        late = {f"B9 {there[it].name} srtf": pool.submit(replay, there[it], "srtf", knows_durations=True)
                for it in TRACES if it in there}  # fmt: skip
        for name, load in there.items():
            published = (None, None) if days() else PUBLISHED[name]
            runs = {it: one.result() for it, one in asked[name].items()}
            yield from _baselines(f"B9 {load.name}", runs, published)
            ours = {it: list(_waits(load, runs, it)) for it in OURS if it in runs}
            yield from chain.from_iterable(ours.values())
            missed = [it for it, (mean, tail, *_) in ours.items() if not (mean.is_met and tail.is_met)]
            late |= _curves(pool, load, missed)
            for draw in range(rounds if name in TRACES else 0):
                yield from _drawn(pool, drawn(load, draw))
        for one in fifo:
            yield one.result().cost(f"B9 {there[SPEED].name} fifo replay", _fast(there[SPEED], "fifo"))
        for title, one in late.items():
            yield from _reached(title, one.result())


def _asked(pool: ProcessPoolExecutor, load: Load, policies: tuple[str, ...]) -> dict[str, Future[Replay]]:
    return {one: pool.submit(replay, load, one, knows_durations=one == "sjf") for one in policies}


def _baselines(title: str, runs: dict[str, Replay], published: tuple[float | None, float | None]) -> Iterator[Figure]:
    for policy, jct in zip(BASELINES, published):
        yield _reproduced(f"{title} {policy} JCT", runs[policy], jct)


def _waits(load: Load, runs: dict[str, Replay], policy: str) -> Iterator[Figure]:
    """Mean and tail, what they cost in evictions, and what the run cost."""
    title = f"B9 {load.name} {policy}"
    own, fifo, sjf, most = runs[policy], runs["strict-fifo"], runs["sjf"], OURS[policy]
    is_valid = own.is_valid and sjf.is_valid and fifo.is_valid
    base, longest, measures = sjf.measures.mean_wait, fifo.measures.max_wait, own.measures
    yield Figure(f"{title} wait", (measures.mean_wait,), "s", most * base, base, "sjf", is_valid=is_valid)
    yield Figure(f"{title} p99.9 wait", (measures.p999_wait,), "s", longest, longest, "strict-fifo's largest",
                 is_valid=is_valid)  # fmt: skip
    yield Figure(f"{title} evictions", (measures.evictions_per_job,), "a job", is_valid=is_valid)
    yield own.cost(f"{title} replay", _fast(load, policy))


def _drawn(pool: ProcessPoolExecutor, load: Load) -> Iterator[Figure]:
    """`fairway` against the better of its rivals, where evictions lose work."""
    asked = {it: pool.submit(replay, load, it, mechanics=LOSSY) for it in ("fairway", *RIVALS, "strict-fifo")}
    runs = {it: one.result() for it, one in asked.items()}
    rival = min(RIVALS, key=lambda it: runs[it].measures.mean_wait)
    own, base, longest = (runs[it].measures for it in ("fairway", rival, "strict-fifo"))
    title, is_valid = f"B9 {load.name} fairway, evictions lose work", all(it.is_valid for it in runs.values())
    yield Figure(f"{title} wait", (own.mean_wait,), "s", NEAREST * base.mean_wait, base.mean_wait, rival,
                 is_valid=is_valid)  # fmt: skip
    yield Figure(f"{title} p99.9 wait", (own.p999_wait,), "s", longest.max_wait, longest.max_wait,
                 "strict-fifo's largest", is_valid=is_valid)  # fmt: skip


def _fast(load: Load, policy: str) -> float | None:
    return FAST.get(policy) if load.name == SPEED else None


def _curves(pool: ProcessPoolExecutor, load: Load, missed: list[str]) -> dict[str, Future[Replay]]:
    """Of the policies that missed an aim."""
    points = {f"{it}, {said}": policy for it in missed for said, policy in CURVE[it].items()}
    return {f"B9 {load.name} {it}": pool.submit(replay, load, it, policy) for it, policy in points.items()}


def _reached(title: str, other: Replay) -> Iterator[Figure]:
    yield Figure(f"{title}: wait", (other.measures.mean_wait,), "s", is_valid=other.is_valid)
    yield Figure(f"{title}: p99.9", (other.measures.p999_wait,), "s", is_valid=other.is_valid)


def _reproduced(title: str, replayed: Replay, published: float | None) -> Figure:
    """A mean JCT, sound if it is near the published one."""
    jct = replayed.measures.mean_jct
    is_near = published is None or abs(jct / published - 1) <= NEAR
    return Figure(title, (jct,), "s", None, published, "published", is_valid=replayed.is_valid and is_near)
