"""`python -m bench B3 B4 …`: run the named benchmarks, all that need no peer without a name.

A line for each figure: name, figure, unit, spread, aim, what it is compared with, ratio, valid or not; then what the
benchmark cost. `--json FILE` writes the same with all samples.
"""

import argparse
import importlib
import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter

from bench.figure import Figure

MOST_MEMORY = 1430.0
"""MiB, or 1.5 GB: the aim at 100,000 nodes and 100,000 pods, which none of the loads exceeds."""


def modules() -> dict[str, str]:
    """Benchmark → its module, in their order."""
    found = {path.stem.partition("_")[0].upper(): path.stem for path in Path(__file__).parent.glob("b[0-9]*_*.py")}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def spent() -> float:
    """CPU seconds of this process and of those that it made and that have ended."""
    return sum(os.times()[:4])


def with_cost(name: str, figures: Iterable[Figure], before: float) -> Iterator[Figure]:
    """What was measured, if anything was; then the CPU seconds since, and the most memory that one process has held so
    far, other benchmarks before it included."""
    figure = None
    for figure in figures:
        yield figure
    if figure is not None:
        yield Figure(f"{name} in all", (spent() - before,), "CPU s")
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
        yield Figure(f"{name} peak memory", (peak,), "MiB", MOST_MEMORY)


def main(arguments: list[str]) -> int:
    known = modules()
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--json", metavar="FILE", help="write figures and samples there")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each figure")
    options = parser.parse_args(arguments)
    names = [name.upper() for name in options.names] or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{', '.join(unknown)} is not known; there are {', '.join(known)}")
    records, is_valid = [], True
    for name in names:
        began, before = perf_counter(), spent()
        for figure in with_cost(name, importlib.import_module(f"bench.{known[name]}").run(options.rounds), before):
            print(figure.line(), flush=True)
            records.append({"benchmark": name, **figure.record()})
            is_valid &= figure.is_valid
        print(f"{name} took {perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(records, indent=1))
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
