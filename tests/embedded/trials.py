"""A load of trials that keep a book of their own, and what the book says: an account that Fairway has no part in.

A trial is what one pod of a Job runs. Each attempt at it writes `start TRIAL POD` when it begins and `end TRIAL POD
CODE` as the last thing it does, and holds a lock of its trial (flock: the kernel gives it back when nothing of the
attempt is left). Where the lock is held the attempt writes `twice TRIAL POD`.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINES = 4
SCRIPT = r"""
book=$1 fails=$2 pause=$3 name=$4 trial=$4/${JOB_COMPLETION_INDEX:-0} pod=$FAIRWAY_POD_UID
exec 9>> "$book.$name.${JOB_COMPLETION_INDEX:-0}"
flock -n 9 || echo "twice $trial $pod" >> "$book"
echo "start $trial $pod" >> "$book"
line=0
while [ $line -lt LINES ]; do echo "line $line"; line=$((line+1)); sleep $pause; done
code=0
[ $(grep -c "^end $trial " "$book") -ge $fails ] || code=3
echo "end $trial $pod $code" >> "$book"
exit $code
""".replace("LINES", str(LINES))
NEVER = 99


@dataclass(frozen=True, slots=True)
class Asked:
    """A Job as it was asked for. `fails`: how often each trial ends with code 3 before it succeeds; with more than its
    `retries` it fails for good. `after`: the Job it waits for."""

    name: str
    width: int = 1
    is_array: bool = False
    fails: int = 0
    retries: int = 0
    after: str = ""

    @property
    def trials(self) -> list[str]:
        return [f"{self.name}/{index}" for index in range(self.width)]

    @property
    def is_gang(self) -> bool:
        return self.width > 1 and not self.is_array

    @property
    def succeeds(self) -> bool:
        return self.fails <= self.retries

    @property
    def codes(self) -> list[int]:
        """How the attempts at each of its trials end."""
        return [3] * min(self.fails, self.retries + 1) + [0] * self.succeeds


def load(count: int, chance: random.Random) -> Iterator[Asked]:
    """Single jobs, gangs, arrays, jobs with retries and chains, mixed."""
    last = ""
    for number in range(count):
        kind = chance.choice(("single", "single", "gang", "array", "retries", "chain"))
        name = f"{kind}-{number}"
        match kind:
            case "single":
                yield Asked(name, fails=chance.choice((0, 0, NEVER)))
            case "gang":
                yield Asked(name, width=3)
            case "array":
                yield Asked(name, width=6, is_array=True)
            case "retries":
                yield Asked(name, fails=chance.choice((1, NEVER)), retries=1)
            case "chain":
                yield Asked(name, after=last)
                last = name


def job(asked: Asked, book: Path, chance: random.Random) -> dict[str, Any]:
    pause = f"{chance.uniform(0.01, 0.4):.2f}"
    command = ["sh", "-c", SCRIPT, "trial", str(book), str(asked.fails), pause, asked.name]
    container = {"name": "main", "image": "busybox", "command": command, "resources": {"requests": {"cpu": "1"}}}
    notes = {"fairway.dev/preemptible": "false"}  # an eviction would be another start
    notes |= {"fairway.dev/after": asked.after} if asked.after else {}
    notes |= {"fairway.dev/min-count": "1"} if asked.is_array else {}
    spec = {"completions": asked.width, "parallelism": asked.width, "completionMode": "Indexed",
            "backoffLimit": asked.retries,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    meta = {"name": asked.name, "namespace": "default", "annotations": notes}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


@dataclass(slots=True)
class Book:
    """What the trials wrote. `pods`: the pods that started, in order; `ends`: (pod, exit code) in order; `twice`: pods
    that found another attempt alive; `order`: trials as they started and ended, `+TRIAL` and `-TRIAL`."""

    pods: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ends: defaultdict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    twice: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Book":
        book = cls()
        for line in path.read_text().splitlines():
            event, trial, pod, *code = line.split()
            if event == "twice":
                book.twice.append(f"{trial} {pod}")
            elif event == "start":
                book.pods[trial].append(pod)
                book.order.append(f"+{trial}")
            else:
                book.ends[trial].append((pod, int(code[0])))
                book.order.append(f"-{trial}")
        return book

    def faults(self, asked: Asked, killed: set[str], again: set[str]) -> list[str]:
        """What is wrong with the attempts at a Job. `killed`: pods whose shims were killed. How such a pod's attempt
        ended died with its shim, so it counts for nothing, even where it came to its end. `again`: those of them that
        lost it with all others while no server ran, and started again: their last end counts."""
        found = []
        for trial in asked.trials:
            ends = self.ends[trial]
            lasts = {pod: row for row, (pod, _) in enumerate(ends) if pod in again}
            counted = [code for row, (pod, code) in enumerate(ends) if pod not in killed or lasts.get(pod) == row]
            last = self.pods[trial][-1] if self.pods[trial] else ""
            if counted != asked.codes:
                found.append(f"{trial}: ended with {counted}, not {asked.codes}: {self.pods[trial]} {self.ends[trial]}")
            elif last != self.ends[trial][-1][0]:
                found.append(f"{trial}: started again after its end")
            lost = set(self.pods[trial]) - {pod for pod, _ in self.ends[trial]} - killed
            if lost and not (asked.is_gang and killed & self.all_pods(asked)):
                found.append(f"{trial}: {lost} did not end, though nothing killed them")
        return found

    def all_pods(self, asked: Asked) -> set[str]:
        return {pod for trial in asked.trials for pod in self.pods[trial]}

    def is_before(self, earlier: str, later: str) -> bool:
        """Whether a trial was over before another first started."""
        ends = [row for row, said in enumerate(self.order) if said == f"-{earlier}"]
        return bool(ends) and ends[-1] < self.order.index(f"+{later}")
