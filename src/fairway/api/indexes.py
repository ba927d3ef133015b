"""Sets of completion indexes, as Kubernetes writes them: `0,2-4`; and the numbers of an array's trials, in the order of
their indexes. Imports nothing heavy: commands ask too."""

import re
from collections.abc import Iterable, Mapping

MOST = 100_000
"""Indexes of a Job are below this; the text of a set may be a user's, and name any."""
PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", re.ASCII)
INDEX = "batch.kubernetes.io/job-completion-index"
TRIALS, NAMED = "fairway.dev/trials", 10
"""On the pods of an array: the numbers of its trials, as `--array` takes them; of how many that failed it is said."""


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


def runs_of(text: str) -> tuple[range, ...]:
    """`0-199`, `1-9:2`, `0,3,7` → the numbers in their order; empty where a part of it cannot be read."""
    found = [RUN.fullmatch(part.strip()) for part in text.split(",")]
    runs = tuple(range(int(it[1]), int(it[2] or it[1]) + 1, int(it[3] or 1)) for it in found if it)
    return runs if all(found) and all(runs) else ()


def rank_in(notes: Mapping[str, str]) -> str:
    """The rank that a pod's annotations say: its completion index, of an array the number of its trial; "" for none."""
    index = notes.get(INDEX, "")
    left = int(index) if index.isdecimal() else -1
    for run in runs_of(notes.get(TRIALS, "")):
        if 0 <= left < len(run):
            return str(run[left])
        left -= len(run)
    return index


def failed_trials(ends: Iterable[tuple[str, str]]) -> str:
    """`2 of 5 trials failed (10,12)`, of the number of each pod's trial and the pod's phase."""
    phases: dict[str, set[str]] = {}
    for number, phase in ends:
        phases.setdefault(number if number.isdecimal() else "0", set()).add(phase)
    failed = sorted(int(number) for number, seen in phases.items() if "Succeeded" not in seen and "Failed" in seen)
    more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return f"{len(failed)} of {len(phases)} trials failed ({show_indexes(failed[:NAMED])}{more})"
