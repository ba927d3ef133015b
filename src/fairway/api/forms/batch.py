"""Jobs: of Kubernetes, sets of them, and Volcano's, which are sets of tasks."""

from msgspec.structs import replace

from fairway.api import objects
from fairway.api.indexes import parse_indexes
from fairway.api.types import PodSetSpec

from .form import Conditions, Outcome, ReplicaSpec, ended, least_of, with_class

MAIN = "main"


class Job(objects.JobObject, frozen=True):
    def podsets(self) -> tuple[PodSetSpec, ...]:
        return job(self)

    def outcome(self) -> Outcome | None:
        return Conditions(self.status.conditions).outcome("Complete")


def job(said: objects.JobObject) -> tuple[PodSetSpec, ...]:
    """As many pods at once as it still needs, with the labels that the Job controller gives them."""
    name, template = said.metadata.name, said.spec.template
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name} | template.metadata.labels
    template = replace(template, metadata=replace(template.metadata, labels=labels))
    over = said.status.succeeded + len(parse_indexes(said.status.failed_indexes))
    return (PodSetSpec(MAIN, at_once(said.spec, over), template=template),)


def at_once(spec: objects.JobSpec, over: int = 0) -> int:
    """The most pods of a Job that run at one time. `over`: completions that are reached, or failed for good."""
    left = spec.parallelism if spec.completions is None else max(0, spec.completions - over)
    return min(spec.parallelism, left)


class ReplicatedJob(objects.Part, frozen=True):
    name: str
    replicas: objects.Natural = 1
    template: objects.JobObject = objects.JobObject()


class JobSetSpec(objects.Part, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    suspend: bool = False


class JobSet(objects.Object, frozen=True):
    spec: JobSetSpec = JobSetSpec()
    status: Conditions = Conditions()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """A podset for each replicated job."""
        return tuple(
            PodSetSpec(one.name, one.replicas * at_once(one.template.spec), template=one.template.spec.template)
            for one in self.spec.replicated_jobs
        )

    def outcome(self) -> Outcome | None:
        return self.status.outcome("Completed")


class Task(ReplicaSpec, frozen=True):
    name: str = ""
    min_available: objects.Natural | None = None


class VolcanoSpec(objects.Part, frozen=True):
    tasks: tuple[Task, ...] = ()
    min_available: objects.Natural | None = None
    priority_class_name: str = ""


class VolcanoState(objects.Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""


class VolcanoStatus(objects.Part, frozen=True):
    state: VolcanoState = VolcanoState()


class VolcanoJob(objects.Object, frozen=True):
    spec: VolcanoSpec = VolcanoSpec()
    status: VolcanoStatus = VolcanoStatus()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """A podset for each task, with its own minimum; without any, the last gives way to the job's."""
        said = self.spec
        found = tuple(
            PodSetSpec(
                one.name or f"task{index}",
                one.replicas,
                None if one.min_available is None else min(one.min_available, one.replicas),
                with_class(one.template, said.priority_class_name),
            )
            for index, one in enumerate(said.tasks)
        )
        if not found or any(one.min_available is not None for one in said.tasks):
            return found
        return least_of(found, found[-1].name, said.min_available or None)

    def outcome(self) -> Outcome | None:
        state = self.status.state
        return ended(state.phase, ("Completed", "Failed", "Terminated"), state.reason, state.message)
