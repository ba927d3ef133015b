"""B9, waits: what a policy that does not know durations costs against oracles that do, on traces of real clusters.

`fairway` is compared on mean wait: preempting with `srtf`, told the durations; not preempting with `sjf`, strict. Its
p99.9 wait is compared with the largest of `strict-fifo`. The two strict presets must reproduce the mean JCT of the
traces' own baselines within 5 %; that is told first, because figures against a wrong baseline are worth nothing.
BENCH_DAYS replays only the first days, where published baselines do not apply; the names then say so.
"""

from collections.abc import Iterator

from bench.figure import Figure
from bench.replays import Replay, days, loads, replay

TRACES = ("philly", "helios_venus", "pai_v2020")
PUBLISHED = {
    "muri_testbed": (747_499.0, 279_097.0),
    "pai_v2020": (116_326.0, 8_719.0),
    "helios_venus": (182_601.0, 18_841.0),
    "philly": (230_949.0, 32_261.0),
}
"""Mean JCT of strict FIFO and of strict shortest-first with known durations."""
NEAR, PREEMPTING, NOT_PREEMPTING = 0.05, 1.5, 2.0


def run(rounds: int = 1) -> Iterator[Figure]:
    """`rounds` is not used: the same load gives the same figures."""
    for trace, load in loads(("muri_testbed", *TRACES), "B9"):
        title = f"B9 {load.name}"
        fifo, sjf = replay(load, "strict-fifo"), replay(load, "sjf", knows_durations=True)
        published = (None, None) if days() else PUBLISHED[trace]
        yield _reproduced(f"{title} strict-fifo JCT", fifo, published[0])
        yield _reproduced(f"{title} sjf JCT", sjf, published[1])
        if trace not in TRACES:
            continue
        own, srtf = replay(load, "fairway"), replay(load, "srtf", knows_durations=True)
        is_valid = own.is_valid and srtf.is_valid and sjf.is_valid and fifo.is_valid
        wait, tail, longest = own.measures.mean_wait, own.measures.p999_wait, fifo.measures.max_wait
        for kind, oracle, most in (("preempting", srtf, PREEMPTING), ("not preempting", sjf, NOT_PREEMPTING)):
            base = oracle.measures.mean_wait
            yield Figure(f"{title} wait, {kind}", (wait,), "s", most * base, base, "oracle", is_valid=is_valid)
        yield Figure(f"{title} p99.9 wait", (tail,), "s", longest, longest, "strict-fifo's largest", is_valid=is_valid)
        yield own.cost(f"{title} replay")


def _reproduced(title: str, replayed: Replay, published: float | None) -> Figure:
    """A mean JCT, sound if it is near the published one."""
    jct = replayed.measures.mean_jct
    is_near = published is None or abs(jct / published - 1) <= NEAR
    return Figure(title, (jct,), "s", None, published, "published", is_valid=replayed.is_valid and is_near)
