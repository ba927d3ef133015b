"""All ways to put a few unlike pods on a few nodes, one after the other: the answer where orders of podsets are none.

Nodes are rows. Pods that are alike go in the order of rows, and of rows that are alike only the first is tried, so few
ways are left; after MOST_STEPS pods put anywhere it is over all the same. Scores play no part, and neither do
preferences: any place is better than none.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MOST_ROWS, MOST_PODS, MOST_STEPS = 16, 24, 2000


class Alike(NamedTuple):
    """Pods that are alike: how many, what each takes of a row, by column; how many of them a row holds at most, and in
    which domain it is: they need rows of one."""

    size: int
    needs: tuple[tuple[int, int], ...]
    room: list[int]
    domain: list[int]


class Packing:
    """`rows`: where the pods stand that have a place so far; `free`: what is left of each row, by column."""

    def __init__(self, free: list[list[int]], podsets: Sequence[Alike]) -> None:
        self.free, self.podsets, self.rows, self.steps = free, podsets, list[int](), MOST_STEPS
        self._pods = [one for one in podsets for _ in range(one.size)]

    def is_found(self) -> bool:
        """Whether all pods that have no place yet find one; then `rows` has them all."""
        if len(self.rows) == len(self._pods):
            return True
        one, tried = self._pods[len(self.rows)], set[object]()
        begun = next(at for at, each in enumerate(self._pods) if each is one)
        own = self.rows[begun:]
        for row in range(own[-1] if own else 0, len(self.free)):
            alike = own.count(row), *self.free[row], *((each.room[row], each.domain[row]) for each in self.podsets)
            fits = own.count(row) < one.room[row] and all(self.free[row][at] >= amount for at, amount in one.needs)
            if not fits or alike in tried or (own and one.domain[row] != one.domain[own[0]]):
                continue
            tried.add(alike)
            if self._stands(row, one):
                return True
        return False

    def _stands(self, row: int, one: Alike) -> bool:
        """Whether a pod can stand there, and all others find a place."""
        self.steps -= 1
        self._take(row, one.needs, 1)
        self.rows.append(row)
        if self.steps > 0 and self.is_found():
            return True
        self.rows.pop()
        self._take(row, one.needs, -1)
        return False

    def _take(self, row: int, needs: Iterable[tuple[int, int]], times: int) -> None:
        for at, amount in needs:
            self.free[row][at] -= amount * times
