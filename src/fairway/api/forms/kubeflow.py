"""Kubeflow: the trainers of its v1 API, which say their pods by role, and TrainJob, whose runtime has them."""

from msgspec import field

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


class TrainerSpec(objects.Part, frozen=True):
    """What the v1 trainers share; each names its replicas by its own word."""

    replicas: dict[str, ReplicaSpec] = {}  # noqa: RUF012  msgspec gives every struct a dict of its own
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy = ElasticPolicy()


class Trainer(objects.Object, frozen=True):
    spec: TrainerSpec = TrainerSpec()
    status: Conditions = Conditions()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """A podset for each role, what leads first. The workers give way to the fewest of the elastic policy, else to
        the fewest pods that the scheduling policy names."""
        replicas, least = self.spec.replicas, self.spec.elastic_policy.min_replicas
        asked = self.spec.run_policy.scheduling_policy
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

    def outcome(self) -> Outcome | None:
        return self.status.outcome("Succeeded")


class PyTorchSpec(TrainerSpec, frozen=True):
    replicas: dict[str, ReplicaSpec] = field(default_factory=dict, name="pytorchReplicaSpecs")


class PyTorchJob(Trainer, frozen=True):
    spec: PyTorchSpec = PyTorchSpec()


class TensorFlowSpec(TrainerSpec, frozen=True):
    replicas: dict[str, ReplicaSpec] = field(default_factory=dict, name="tfReplicaSpecs")


class TensorFlowJob(Trainer, frozen=True):
    spec: TensorFlowSpec = TensorFlowSpec()


class BoostSpec(TrainerSpec, frozen=True):
    replicas: dict[str, ReplicaSpec] = field(default_factory=dict, name="xgbReplicaSpecs")


class BoostJob(Trainer, frozen=True):
    spec: BoostSpec = BoostSpec()


class MessageSpec(TrainerSpec, frozen=True):
    replicas: dict[str, ReplicaSpec] = field(default_factory=dict, name="mpiReplicaSpecs")


class MessageJob(Trainer, frozen=True):
    """An MPIJob of either operator."""

    spec: MessageSpec = MessageSpec()


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
