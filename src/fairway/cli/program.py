"""The program of a submission: a command, a script, or trials of one; and the Job that runs it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import variables
from .array import Trials, array_of, launcher, spread, sweep_of
from .job import DEFAULTS, INDEX_FIELD, literal, new_job, stem, train_elastically
from .launch import prepare
from .main import Problem
from .mistakes import program_missing
from .script import Script

SLURM = Path(__file__).with_name("slurm")
JOB_NAME = "metadata.labels['batch.kubernetes.io/job-name']"


@dataclass(frozen=True, slots=True)
class Program:
    """`argv`: the words that run it, of one trial; `trials`: of an array or a sweep."""

    argv: tuple[str, ...]
    script: Script | None
    trials: Trials | None
    stem: str
    is_here: bool
    is_process: bool

    @property
    def notes(self) -> list[str]:
        """What was understood differently from what a script says."""
        said = self.script.sbatch if self.script else None
        if not said:
            return []
        found = [f"#SBATCH without effect here: {', '.join(said.notes)}"] if said.notes else []
        return found + ([f"#SBATCH left out: {', '.join(said.unsupported)}"] if said.unsupported else [])

    def variables(self, values: Mapping[str, str]) -> dict[str, str]:
        """More for its environment: where `srun` is found by a script made for Slurm."""
        if not (self.is_process and self.script and self.script.sbatch):
            return {}
        return {"PATH": f"{SLURM}{os.pathsep}{values.get('PATH', os.defpath)}"}

    def job(self, order: SimpleNamespace, name: str, namespace: str) -> dict[str, Any]:
        is_imported = bool(self.script and self.script.sbatch)
        numbers = ("FAIRWAY_ARRAY_TASK_ID", *["SLURM_ARRAY_TASK_ID"] * is_imported)
        argv = launcher(self.trials, numbers) if self.trials else list(self.argv)
        made = new_job(order, name, argv, is_process=self.is_process)
        made["metadata"]["namespace"] = namespace
        if is_imported:
            made["spec"]["template"]["spec"]["containers"][0]["env"] = self._slurm(order, made)
        return made

    def finish(self, job: dict[str, Any], order: SimpleNamespace) -> None:
        """Makes the Job one of trials, after the options are written into it."""
        if self.trials:
            spread(job, self.trials, order.retries)
        elif order.elastic and order.min_workers:
            train_elastically(job)
        if not (self.trials or self.is_here):
            prepare(job, order)

    def _slurm(self, order: SimpleNamespace, job: dict[str, Any]) -> list[dict[str, Any]]:
        """What Slurm sets in a script, as far as scripts read it."""
        assert self.script and self.script.sbatch
        folder = job["spec"]["template"]["spec"]["containers"][0].get("workingDir", "")
        plain = {**self.script.sbatch.variables, "SLURM_SUBMIT_DIR": os.getcwd() if self.is_process else folder}
        names = ["SLURM_JOB_ID", "SLURM_JOBID"]
        if self.trials:
            numbers = [number for run in self.trials.numbers for number in (run[0], run[-1])]
            plain["SLURM_ARRAY_TASK_COUNT"] = str(self.trials.count)
            plain |= {"SLURM_ARRAY_TASK_MIN": str(min(numbers)), "SLURM_ARRAY_TASK_MAX": str(max(numbers))}
            names.append("SLURM_ARRAY_JOB_ID")
        env: list[dict[str, Any]] = [{"name": name, "value": literal(text)} for name, text in plain.items()]
        env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": JOB_NAME}}} for name in names]
        is_gang = (order.workers or 1) > 1
        rank = {"valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}} if is_gang else {"value": "0"}
        return [*env, {"name": "SLURM_PROCID", **rank}]


def program_of(order: SimpleNamespace, *, is_here: bool, is_process: bool) -> Program:
    """What is to run, with the defaults of a new Job written into the order. Raises a Problem where it cannot run."""
    if not is_here and not order.image:
        raise Problem("--image: a cluster runs containers; name the image the program is in")
    script = order.script
    _refuse_unsupported(order, script)
    argv = script.argv(order.command[1:], is_process=is_process) if script else list(order.command)
    _refuse_missing(order, argv, is_process=is_process)
    if order.array and order.sweep:
        raise Problem("--sweep: does not go with --array; say the numbers as '{0..199}'")
    trials = array_of(order.array, argv) if order.array else sweep_of(argv) if order.sweep else None
    if trials and (order.workers or 1) > 1:
        raise Problem(f"--workers: each trial of {'an array' if order.array else 'a sweep'} is one worker")
    _set_elastic(order, is_array=trials is not None)
    for name, value in {**DEFAULTS, "queue": order.usual}.items():
        if getattr(order, name) is None:
            setattr(order, name, value)
    own = script.sbatch.name if script and script.sbatch else ""
    return Program(tuple(argv), script, trials, stem((own,) if own else order.command), is_here, is_process)


def _set_elastic(order: SimpleNamespace, *, is_array: bool) -> None:
    """How a training takes a resize, where its workers may be fewer; trials do not know of each other."""
    if order.elastic and (is_array or (order.workers or 1) == 1):
        raise Problem("--elastic: is for a training of several workers; say how many with --workers")
    if order.elastic == "restart" and not order.min_workers:
        raise Problem("--elastic restart: needs --min-workers, the fewest workers to start with")
    if (order.min_workers or 1) > (most := order.workers or 1):
        raise Problem(f"--min-workers: found {order.min_workers}; 1 to {most}, its --workers, is allowed")
    if not order.elastic and (order.workers or 1) > 1 and not is_array:
        is_torchrun = os.path.basename(order.command[0]) == "torchrun"
        order.elastic = "torchrun" if is_torchrun else "restart" if order.min_workers else None


def _refuse_unsupported(order: SimpleNamespace, script: Script | None) -> None:
    left = script.sbatch.unsupported if script and script.sbatch else ()
    if left and not order.ignore_unsupported:
        what = f"{order.command[0]}: #SBATCH {', '.join(left)}"
        them = "it" if len(left) == 1 else "them"
        raise Problem(f"{what}: not supported; --ignore-unsupported leaves {them} out")


def _refuse_missing(order: SimpleNamespace, argv: list[str], *, is_process: bool) -> None:
    """Where the program is not on this machine. With a PATH that is not ours, that is not known."""
    path = variables.variables(order, is_process=True).get("PATH") if is_process else None
    missing = program_missing(argv, path, order.chdir or ".") if is_process else None
    if missing and not order.wait_anyway:
        raise Problem(f"{missing.message}; --wait-anyway queues it all the same", exit_code=1)
