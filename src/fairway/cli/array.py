"""Arrays and sweeps: one program run many times, as one elastic Indexed Job in which each trial succeeds once.

A trial is a completion index of the Job. A launcher in /bin/sh turns the index into the trial's number and arguments,
the same on this machine and in an image. The launcher's text is ours alone: each word of the user is an argument of
the shell, named in the text by its place ("${7}"), and never read as shell.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from fairway.api.indexes import TRIALS, runs_of

from .main import Problem

MOST_TRIALS, USUAL_AT_ONCE = 100_000, 1_000
GROUP = re.compile(r"\{([^{},]*(?:,[^{},]*)+)\}|\{(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(\d{1,18}))?\}")
TRIAL = "trial"  # the name of the shell that runs a trial
GANG = "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT"
"""What the workers of one training find; a trial stands alone."""


@dataclass(frozen=True, slots=True)
class Trials:
    """`words`: for each word of the command line the texts it takes; the trials are their product, the last word
    fastest. `numbers`: the number of each trial, in runs. `at_once`: the most that run together; 0: as usual."""

    words: tuple[tuple[str, ...], ...]
    numbers: tuple[range, ...]
    at_once: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers))

    def lines(self) -> list[str]:
        """Each trial of a sweep as `number  command`."""
        from shlex import join

        numbers = (number for run in self.numbers for number in run)
        return [f"{number:>6}  {join(words)}" for number, words in zip(numbers, product(*self.words))]


def array_of(text: str, command: Sequence[str]) -> Trials:
    """`0-199`, `1-9:2`, `0,3,7`, each with `%8` for the most at once."""
    listed, is_bounded, most = text.partition("%")
    runs = runs_of(listed)
    at_once = int(most) if most.isdecimal() and len(most) < 7 else 0
    total = sum(map(len, runs))
    if not runs or total > MOST_TRIALS or (is_bounded and not at_once):
        allowed = "0-199, 1-9:2 or 0,3,7 is allowed, with %8 for 8 at once; 100000 at most"
        raise Problem(f"--array: found {text!r}; {allowed}")
    if len({number for run in runs for number in run}) < total:
        raise Problem(f"--array: {text!r} names a trial twice")
    return Trials(tuple((word,) for word in command), runs, at_once)


def sweep_of(command: Sequence[str]) -> Trials:
    """A trial for each combination of the `{a,b}` and `{1..4}` in the words."""
    words = tuple(tuple(_expanded(word)) for word in command)
    count = _allowed(prod(map(len, words)))
    if count == 1:
        example = "'--lr={0.1,0.01}'"
        raise Problem(f"--sweep: no argument has {{a,b}} or {{1..4}}; quote them, or the shell expands them: {example}")
    return Trials(words, (range(count),))


def _allowed(count: int) -> int:
    if count > MOST_TRIALS:
        raise Problem(f"--sweep: {count} combinations; {MOST_TRIALS} at most are allowed")
    return count


def _expanded(word: str) -> list[str]:
    found = GROUP.search(word)
    if not found:
        return [word]
    choices, rest = _choices(found), _expanded(word[found.end() :])
    _allowed(len(choices) * len(rest))  # before they fill the memory
    return [f"{word[: found.start()]}{choice}{tail}" for choice in choices for tail in rest]


def _choices(found: re.Match[str]) -> list[str]:
    listed, first, last, step = found.groups()
    if listed is not None:
        return listed.split(",")
    start, end, by = int(first), int(last), int(step or 1)
    if not by or abs(end - start) // by >= MOST_TRIALS:
        allowed = f"{{1..9}} or {{1..9..2}} is allowed, with {MOST_TRIALS} steps at most"
        raise Problem(f"--sweep: found {found[0]!r}; {allowed}")
    sign = 1 if end >= start else -1
    return [str(number) for number in range(start, end + sign, sign * by)]


def launcher(trials: Trials, names: Sequence[str] = ("FAIRWAY_ARRAY_TASK_ID",)) -> list[str]:
    """The command of the Job: a shell that runs the trial of its completion index. `names`: variables that get the
    number of the trial."""
    lines, place, argv = [f"unset {GANG}", "i=$JOB_COMPLETION_INDEX", *_number(trials.numbers)], 1, []
    after = prod(map(len, trials.words))
    for at, texts in enumerate(trials.words):
        after //= len(texts)
        if len(texts) == 1:
            argv.append(f'"${{{place}}}"')
        else:
            cases = " ".join(f"{n}) w{at}=${{{place + n}}};;" for n in range(len(texts)))
            lines.append(f"case $((i / {after} % {len(texts)})) in {cases} esac")
            argv.append(f'"$w{at}"')
        place += len(texts)
    lines += [f"export {' '.join(f'{name}=$n' for name in names)}", f"exec {' '.join(argv)}"]
    words = [text for texts in trials.words for text in texts]
    return ["/bin/sh", "-c", "\n".join(lines), TRIAL, *words]


def _number(runs: Sequence[range]) -> list[str]:
    """Sets n, the number of the trial, from i."""
    lines, before = ["n=$i"], 0
    for run in runs:
        lines.append(f"[ $i -lt {before} ] || n=$(({run.start} + {run.step} * (i - {before})))")
        before += len(run)
    return lines


def spread(job: dict[str, Any], trials: Trials, retries: int) -> None:
    """Makes a Job one of trials: elastic from one on, a failure of a trial the matter of that trial alone."""
    most = trials.at_once or USUAL_AT_ONCE
    job["spec"] |= {
        "completions": trials.count, "parallelism": min(most, trials.count), "completionMode": "Indexed",
        "backoffLimitPerIndex": retries, "backoffLimit": trials.count * (retries + 1),
    }  # fmt: skip
    if trials.numbers != (range(trials.count),):
        meta = job["spec"]["template"].setdefault("metadata", {})
        meta.setdefault("annotations", {})[TRIALS] = ",".join(f"{it[0]}-{it[-1]}:{it.step}" for it in trials.numbers)
    job["metadata"].setdefault("annotations", {}).setdefault("fairway.dev/min-count", "1")
