"""An sbatch script read as Fairway options: the directives that mean the same, and the names of the others.

Slurm starts the script once, and `srun` in it starts the tasks. Where a script calls srun, each task is a worker here
that runs the whole script, in which srun runs its command once; otherwise one worker has what all tasks would have.
A directive that would change what the job means and has no counterpart is wrong use, unless --ignore-unsupported.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from .main import Problem

SHORT = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition",
    "A": "account", "a": "array", "d": "dependency", "o": "output", "e": "error", "D": "chdir", "q": "qos",
    "C": "constraint", "w": "nodelist", "x": "exclude", "b": "begin", "i": "input", "L": "licenses",
    "m": "distribution", "s": "oversubscribe", "k": "no-kill", "H": "hold", "v": "verbose", "Q": "quiet", "W": "wait",
    "F": "nodefile",
}  # fmt: skip
FLAGS = frozenset((
    "requeue", "no-requeue", "exclusive", "oversubscribe", "no-kill", "hold", "verbose", "quiet", "wait", "contiguous",
    "overcommit", "parsable", "spread-job", "use-min-nodes", "ignore-pbs", "get-user-env", "reboot",
))  # fmt: skip
TAKEN = frozenset((
    "job-name", "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "cpus-per-task", "mem", "mem-per-cpu",
    "mem-per-gpu", "gres", "gpus", "gpus-per-node", "gpus-per-task", "cpus-per-gpu", "time", "partition", "array",
    "dependency", "chdir", "requeue", "signal", "mail-user", "mail-type", "export",
))  # fmt: skip
WITHOUT_EFFECT = {
    "output": "`fairway logs` prints the output", "error": "`fairway logs` prints the output", "account": "",
    "qos": "use --priority", "no-requeue": "a job that is stopped always queues again", "open-mode": "", "comment": "",
    "verbose": "", "quiet": "", "parsable": "", "wckey": "", "distribution": "", "hint": "", "mem-bind": "",
    "cpu-bind": "", "profile": "", "tmp": "", "input": "", "no-kill": "", "export-file": "", "oversubscribe": "",
    "priority": "use --priority", "threads-per-core": "", "ntasks-per-core": "", "ignore-pbs": "", "time-min": "",
    "nice": "", "acctg-freq": "", "switches": "", "get-user-env": "", "kill-on-invalid-dep": "",
}  # fmt: skip
OURS = {
    "job-name": "it is --name NAME", "nodes": "it is --workers N (or --topology LEVEL to keep them together)",
    "ntasks": "it is --workers N", "ntasks-per-node": "it is --workers N", "tasks-per-node": "it is --workers N",
    "cpus-per-task": "it is --cpus N, for each worker", "mem": "it is --memory SIZE, e.g. 32Gi, for each worker",
    "mem-per-cpu": "it is --memory SIZE, for each worker", "mem-per-gpu": "it is --memory SIZE, for each worker",
    "gres": "it is --gpus N, for each worker", "gpus-per-node": "it is --gpus N, for each worker",
    "gpus-per-task": "it is --gpus N, for each worker", "cpus-per-gpu": "it is --cpus N, for each worker",
    "time": "it is --time-limit 6h", "partition": "it is --queue QUEUE", "dependency": "it is --after JOB",
    "requeue": "it is --requeue-on 75,node-lost", "signal": "it is --grace 2m", "mail-type": "it is --notify URL",
    "mail-user": "it is --notify mailto:NAME@HOST", "export": "it is --env NAME=V or --env-only NAME,…",
    "qos": "it is --priority CLASS", "priority": "it is --priority CLASS", "account": "it is --queue QUEUE",
    "gpus": "it is --gpus N, for each worker", "array": "it is --array 0-199%8", "chdir": "it is --chdir DIR",
    "wait": "it is `fairway wait JOB`, or --follow", "test-only": "it is --dry-run", "wrap": "it is -- sh -c COMMAND",
    "hold": "`fairway suspend JOB` keeps it from starting", "output": "`fairway logs JOB` prints the output",
    "error": "`fairway logs JOB` prints the output", "begin": "nothing is like it: submit it then",
    "exclusive": "it is --cpus N --gpus N, all that a node has: `fairway nodes` lists it",
    **dict.fromkeys(("constraint", "nodelist", "exclude"), "it is a nodeAffinity in the pod template of -f FILE"),
    "reservation": "it is --queue QUEUE, of the queue that a Reservation names",
}  # fmt: skip
"""What a command line says here for each option of sbatch."""
GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")
TYPED = re.compile(r"(?:gres:)?gpu:[A-Za-z][^:=]*(?:[:=]\d+)?|(?!gpu:)[A-Za-z][^:=]*:\d+")
SRUN = re.compile(r"""^(?:[^#\n]*(?:[;&|(`!]|\b(?:exec|time|then|do|else|if|while)\s))?\s*"""
                  r"""(?:\w+=(?:[^\s"']|"[^"]*"|'[^']*')*\s+)*srun\b""", re.MULTILINE)  # fmt: skip
"""A call of srun, after other words that a command may begin with, variables among them."""
MEMORY = {"": "Mi", "K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}


@dataclass(frozen=True, slots=True)
class Import:
    """What the #SBATCH lines of a script come to. `notes`: what has no effect; `unsupported`: what would change the
    meaning; `variables`: those of Slurm that scripts read; `name`: what several jobs may be called."""

    name: str
    options: tuple[str, ...]
    notes: tuple[str, ...]
    unsupported: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)


def ours(option: str) -> str:
    """What stands here for an option of sbatch, as a clause; "" where it is none."""
    word = option.lstrip("-").partition("=")[0]
    name = word if option.startswith("--") else SHORT.get(word[:1], "")
    is_known = name in FLAGS or name in WITHOUT_EFFECT or name in SHORT.values()
    return OURS.get(name) or "nothing is like it: leave it out" * is_known


def imported(path: str, text: str, header: Sequence[str]) -> Import | None:
    """The directives of a script; None where it has none."""
    lines = [(number, line) for number, line in enumerate(header, 1) if line.startswith("#SBATCH")]
    if not lines:
        return None
    said: dict[str, str] = {}
    for number, line in lines:
        try:
            said |= dict(_directives(shlex.split(line.removeprefix("#SBATCH"), comments=True)))
        except ValueError as error:
            raise Problem(f"{path}: line {number}: {error}") from error
    uses_srun = bool(SRUN.search(text))
    try:
        return Translation(said, uses_srun).made()
    except ValueError as error:
        raise Problem(f"{path}: #SBATCH {error}") from error


def _directives(words: list[str]) -> Iterator[tuple[str, str]]:
    """(long name, value) of each option of a line."""
    while words:
        word = words.pop(0)
        long, given, value = word[2:].partition("=")
        if not word.startswith("--"):
            if not re.match(r"-[A-Za-z]", word):
                raise ValueError(f"{word!r} is no option")
            long, value = SHORT.get(word[1], word[:2]), word[2:].removeprefix("=")
            given = value
        if not given and long not in FLAGS:
            if not words:
                raise ValueError(f"{word} needs a value")
            value = words.pop(0)
        if not value and long in TAKEN - FLAGS:
            raise ValueError(f"--{long}: found ''; leave it out, or give it a value")
        yield long, value


@dataclass(slots=True)
class Translation:
    said: dict[str, str]
    uses_srun: bool
    unsupported: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def made(self) -> Import:
        options = [*self._size(), *self._rest()]
        types = {f"--{name}={it}" for name in GPUS for it in self.said.get(name, "").split(",") if TYPED.fullmatch(it)}
        self.notes += [f"{it} (the type of GPU; a nodeAffinity in -f FILE chooses it)" for it in sorted(types)]
        for name in self.said:
            if name in WITHOUT_EFFECT:
                advice = WITHOUT_EFFECT[name]
                self.notes.append(f"--{name}" + (f" ({advice})" if advice else ""))
            elif name not in TAKEN:
                self.unsupported.append(f"--{name}")
        name, left = self.said.get("job-name", ""), (tuple(self.notes), tuple(self.unsupported))
        return Import(name, tuple(options), *left, self._variables())

    # Sizes: Slurm counts per node, task, CPU or GPU; a worker has the sum of its part.

    def _count(self, name: str, default: int) -> int:
        text = self.said.get(name, "")
        found = re.fullmatch(r"([1-9]\d{0,5})(?:-\d+)?", text)
        if text and not found:
            raise ValueError(f"--{name}={text}: a number is allowed")
        return int(found[1]) if found else default

    @property
    def tasks(self) -> int:
        each = self._count("ntasks-per-node", self._count("tasks-per-node", 1))
        return self._count("ntasks", self.nodes * each)

    @property
    def nodes(self) -> int:
        return self._count("nodes", 1)

    @property
    def workers(self) -> int:
        return self.tasks if self.uses_srun else 1

    def _size(self) -> Iterator[str]:
        if self.nodes > 1 and not self.uses_srun:
            self.unsupported.append("--nodes without srun in the script")
        per_worker = self.tasks // self.workers
        cpus, gpus = per_worker * self._count("cpus-per-task", 1), self._gpus()
        cpus = self._count("cpus-per-gpu", 0) * gpus or cpus
        yield from ("--cpus", str(cpus), "--workers", str(self.workers))
        if gpus:
            yield from ("--gpus", str(gpus))
        if memory := self._memory(cpus, gpus):
            yield from ("--memory", memory)

    def _gpus(self) -> int:
        """Of a worker."""
        total = self._gpu_count("gpus")
        total = total or self._gpu_count("gpus-per-task") * self.tasks
        total = total or (self._gpu_count("gpus-per-node") or self._gres()) * self.nodes
        each = Fraction(total, self.workers)
        if each.denominator > 1:
            raise ValueError(f"{total} GPUs cannot be divided by {self.workers} tasks")
        return int(each)

    def _gpu_count(self, name: str) -> int:
        """`2`, `a100:2`."""
        text = self.said.get(name, "0").rpartition(":")[2]
        if not text.isdecimal():
            raise ValueError(f"--{name}={self.said[name]}: a number is allowed")
        return int(text)

    def _gres(self) -> int:
        count = 0
        for part in filter(None, self.said.get("gres", "").split(",")):
            found = re.fullmatch(r"(?:gres:)?gpu(?::[A-Za-z][^:=]*)?(?:[:=](\d+))?", part)
            if found:
                count += int(found[1] or 1)
            elif part != "none":
                self.unsupported.append(f"--gres={part}")
        return count

    def _memory(self, cpus: int, gpus: int) -> str:
        for name, times in (("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
            if name in self.said:
                return self._bytes(name, Fraction(times))
        return self._bytes("mem", Fraction(self.nodes, self.workers)) if "mem" in self.said else ""

    def _bytes(self, name: str, times: Fraction) -> str:
        found = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", self.said[name].upper())
        if not found:
            raise ValueError(f"--{name}={self.said[name]}: a size such as 4000, 4G or 500M is allowed")
        if not int(found[1]):
            self.notes.append(f"--{name}=0")
            return ""
        amount = int(found[1]) * times
        if amount.denominator == 1:
            return f"{amount}{MEMORY[found[2]]}"
        return str(int(amount * {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[MEMORY[found[2]]]))

    # The rest: one directive, one option

    def _rest(self) -> Iterator[str]:
        same = {"partition": "queue", "array": "array", "chdir": "chdir"}
        for name, option in same.items():
            if self.said.get(name):
                yield from (f"--{option}", self.said[name])
        if "time" in self.said and (limit := seconds(self.said["time"])):
            yield from ("--time-limit", f"{limit}s")
        yield from self._after()
        yield from self._signal()
        yield from self._mail()
        yield from self._export()

    def _after(self) -> Iterator[str]:
        for part in filter(None, self.said.get("dependency", "").split(",")):
            sort, *jobs = part.split(":")
            if sort != "afterok" or not jobs:
                self.unsupported.append(f"--dependency={part}")
                continue
            for job in jobs:
                yield from ("--after", job)

    def _signal(self) -> Iterator[str]:
        text = self.said.get("signal", "")
        found = re.fullmatch(r"(?:[RB]+:)?(?:SIG)?(TERM|15)(?:@(\d+))?", text)
        if found:
            yield from ("--grace", f"{found[2] or 60}s")
        elif text:
            self.unsupported.append(f"--signal={text}")

    def _mail(self) -> Iterator[str]:
        """A mail for each event, or for none: those that `--mail-type` leaves out come all the same."""
        user, types = self.said.get("mail-user", ""), self.said.get("mail-type", "ALL")
        if user and types.upper() != "NONE":
            if "@" in user:
                yield from ("--notify", f"mailto:{user}")
            else:
                self.notes.append(f"--mail-user={user} (no address)")
            if "ALL" not in (said := set(types.upper().split(","))) and not said >= {"BEGIN", "END", "FAIL"}:
                self.notes.append(f"--mail-type={types} (mail comes at the start, at each eviction and at the end)")
        elif not user and "mail-type" in self.said:
            self.notes.append(f"--mail-type={types} (no --mail-user)")

    def _export(self) -> Iterator[str]:
        parts = [it for it in self.said.get("export", "ALL").split(",") if it]
        sets, names = [it for it in parts if "=" in it], [it for it in parts if "=" not in it]
        if "ALL" not in names:
            yield from ("--env-only", ",".join(it for it in names if it not in ("NONE", "NIL")) or ",")
        for one in sets:
            yield from ("--env", one)

    def _variables(self) -> dict[str, str]:
        """Those whose values are known now; the others are read from the pod."""
        cpus, gpus = self._count("cpus-per-task", 1), self._gpus()
        found = {
            "SLURM_JOB_NAME": self.said.get("job-name", ""), "SLURM_JOB_PARTITION": self.said.get("partition", ""),
            "SLURM_NTASKS": str(self.tasks), "SLURM_NPROCS": str(self.tasks), "SLURM_CPUS_PER_TASK": str(cpus),
            "SLURM_CPUS_ON_NODE": str(cpus * self.tasks // self.nodes), "SLURM_NNODES": str(self.nodes),
            "SLURM_JOB_NUM_NODES": str(self.nodes), "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
            "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
            "SLURM_GPUS": str(gpus * self.workers) if gpus else "", "SLURM_GPUS_ON_NODE": str(gpus) if gpus else "",
            "SLURM_NTASKS_PER_NODE": self.said.get("ntasks-per-node", ""),
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def seconds(text: str) -> int:
    """Slurm's time limits: minutes, m:s, h:m:s, days-h, days-h:m, days-h:m:s; 0 for none."""
    if text.upper() in ("UNLIMITED", "INFINITE", "0"):
        return 0
    found = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,4}))?(?::(\d{1,4}))?", text)
    if not found:
        raise ValueError(f"--time={text}: minutes, m:s, h:m:s, days-h, days-h:m or days-h:m:s is allowed")
    days, *parts = found.groups()
    numbers = [int(it) for it in parts if it is not None]
    if days is not None:
        hours, minutes, rest = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, rest = numbers
    else:
        hours, (minutes, rest) = 0, [*numbers, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest
