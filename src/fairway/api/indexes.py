"""Sets of completion indexes, as Kubernetes writes them: `0,2-4`."""

from collections.abc import Iterable


def parse_indexes(text: str) -> frozenset[int]:
    """`0,2-4` → {0, 2, 3, 4}"""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
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
