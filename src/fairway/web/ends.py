"""Until when a workload runs, as well as it is known: its time limit, what its user expects, or what was learned; of
what is being stopped, its grace period.

The limit is enforced, so it comes first as a bound. What was learned of runs alike, longer than this one already is,
gives two moments: half have ended by the first and nine of ten by the second.
"""

from collections.abc import Mapping
from functools import cache

from fairway.api.quantities import duration
from fairway.api.queues import path
from fairway.engine import Lengths, Sketch, known_group

from .workload import Workload, known
from .world import World

End = tuple[str, float | None, float | None]
"""How it is known (grace, limit, expected, learned or nothing), and the earlier and the later moment."""


class Ends:
    def __init__(self, world: World, now: float) -> None:
        self._world, self._now = world, now
        self.limit, self._of_queue = cache(self._limit), cache(self._runtimes)
        self._lengths: dict[tuple[str, tuple[str, str]], Lengths] = {}

    def of(self, it: Workload) -> End:
        """Nothing of what does not run."""
        if it.gone is not None or it.began is None:
            return "grace" if it.gone else "", None, it.gone
        limit = it.limit or self.limit(it.queue)
        bound = it.began + limit if limit else None
        early, late = self._learned(it)
        if early is not None and late is not None and (bound is None or late < bound):
            return "learned", early, late
        if it.expected and (bound is None or it.began + it.expected < bound):
            return "expected", it.began + it.expected, bound
        return ("limit", None, bound) if bound else ("", None, None)

    def _limit(self, queue: str) -> float | None:
        """The time limit of what names none: the queue's own, or the nearest above it."""
        queues = self._world.queues
        texts = [queues[name].spec.time_limit.default for name in path(queues, queue)]
        return known(duration, next(filter(None, texts), ""))

    def _learned(self, it: Workload) -> tuple[float | None, float | None]:
        runtimes = self._of_queue(it.queue)
        group = known_group(runtimes, it.groups)
        if it.began is None or group not in runtimes:
            return None, None
        lengths = self._lengths.setdefault((it.queue, group), Lengths(runtimes[group]))
        found = [lengths.quantile(part, max(0.0, self._now - it.began)) for part in (0.5, 0.9)]
        early, late = (None if seconds is None else it.began + seconds for seconds in found)
        return early, late

    def _runtimes(self, queue: str) -> Mapping[tuple[str, str], Sketch]:
        said = self._world.queues.get(queue)
        return {(it.user, it.name): Sketch(it.points) for it in said.status.runtimes if it.points} if said else {}
