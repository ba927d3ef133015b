"""Sets of completion indexes, as Kubernetes writes them: `0,2-4`."""

import re
from collections.abc import Iterable

MOST = 100_000
"""Indexes of a Job are below this; the text of a set may be a user's, and name any."""
PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse_indexes(text: str) -> frozenset[int]:
    """`0,2-4` → {0, 2, 3, 4}; without what is no index, or from MOST on."""
    found: set[int] = set()
    for part in map(PART.fullmatch, text.split(",")):
        if part:
            found.update(range(int(part[1]), min(int(part[2] or part[1]) + 1, MOST)))
    return frozenset(found)


def show_indexes(indexes: Iterable[int]) -> str:
    """{0, 2, 3, 4} → `0,2-4`"""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
