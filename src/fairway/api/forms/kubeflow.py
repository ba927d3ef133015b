"""Kubeflow: the trainers of its v1 API, which say their pods by role, and TrainJob, whose runtime has them."""

from collections.abc import Mapping

from fairway.api import objects
from fairway.api.types import PodSetSpec

from .form import Conditions, Outcome, ReplicaSpec, least_of, with_class

ORDER = ("Launcher", "Chief", "Master", "PS", "Worker")


class SchedulingPolicy(objects.Part, frozen=True):
    min_available: objects.Natural | None = None
    priority_class: str = ""


class RunPolicy(objects.Part, frozen=True):
    suspend: bool = False
    active_deadline_seconds: int | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class ElasticPolicy(objects.Part, frozen=True):
    min_replicas: objects.Natural | None = None


class Trainer(objects.Object, frozen=True):
    """What the v1 trainers share: how they end."""

    status: Conditions = Conditions()

    def outcome(self) -> Outcome | None:
        return self.status.outcome("Succeeded")


def roles(
    replicas: Mapping[str, ReplicaSpec], policy: RunPolicy, least: int | None = None
) -> tuple[PodSetSpec, ...]:
    """A podset for each role, what leads first. The workers give way to `least` of them, else to the fewest pods that
    the scheduling policy names."""
    asked = policy.scheduling_policy
    found = tuple(
        PodSetSpec(
            role.lower(),
            replicas[role].replicas,
            min(least, replicas[role].replicas) if role == "Worker" and least is not None else None,
            with_class(replicas[role].template, asked.priority_class),
        )
        for role in sorted(replicas, key=lambda role: (ORDER.index(role) if role in ORDER else len(ORDER), role))
    )
    return least_of(found, "worker", asked.min_available)


class PyTorchSpec(objects.Part, frozen=True):
    pytorch_replica_specs: dict[str, ReplicaSpec] = {}  # noqa: RUF012  msgspec gives every struct a dict of its own
    elastic_policy: ElasticPolicy = ElasticPolicy()
    run_policy: RunPolicy = RunPolicy()


class PyTorchJob(Trainer, frozen=True):
    spec: PyTorchSpec = PyTorchSpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return roles(self.spec.pytorch_replica_specs, self.spec.run_policy, self.spec.elastic_policy.min_replicas)


class TensorFlowSpec(objects.Part, frozen=True):
    tf_replica_specs: dict[str, ReplicaSpec] = {}  # noqa: RUF012
    run_policy: RunPolicy = RunPolicy()


class TensorFlowJob(Trainer, frozen=True):
    spec: TensorFlowSpec = TensorFlowSpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return roles(self.spec.tf_replica_specs, self.spec.run_policy)


class BoostSpec(objects.Part, frozen=True):
    xgb_replica_specs: dict[str, ReplicaSpec] = {}  # noqa: RUF012
    run_policy: RunPolicy = RunPolicy()


class BoostJob(Trainer, frozen=True):
    spec: BoostSpec = BoostSpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return roles(self.spec.xgb_replica_specs, self.spec.run_policy)


class MessageSpec(objects.Part, frozen=True):
    mpi_replica_specs: dict[str, ReplicaSpec] = {}  # noqa: RUF012
    run_policy: RunPolicy = RunPolicy()


class MessageJob(Trainer, frozen=True):
    """An MPIJob of either operator."""

    spec: MessageSpec = MessageSpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return roles(self.spec.mpi_replica_specs, self.spec.run_policy)


class TrainSpec(objects.Part, frozen=True):
    suspend: bool = False


class TrainJob(objects.Object, frozen=True):
    """Its operator merges it with a runtime into a JobSet, suspended as it is itself, and that has the podsets."""

    spec: TrainSpec = TrainSpec()
    status: Conditions = Conditions()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return ()

    def outcome(self) -> Outcome | None:
        return self.status.outcome("Complete")
