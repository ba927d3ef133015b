"""What serves until it is deleted, in replicas that are workloads each, so that it can be scaled and rolled."""

from fairway.api import objects
from fairway.api.types import PodSetSpec

from .form import Endless


class LeaderWorkerTemplate(objects.Part, frozen=True):
    size: objects.Natural = 1
    leader_template: objects.PodTemplate | None = None
    worker_template: objects.PodTemplate = objects.PodTemplate()


class LeaderWorkerSpec(objects.Part, frozen=True):
    replicas: objects.Natural = 1
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Endless, frozen=True):
    spec: LeaderWorkerSpec = LeaderWorkerSpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """Those of one group: its workers come when the leader is there, or ready."""
        said = self.spec.leader_worker_template
        leader = PodSetSpec("leader", 1, template=said.leader_template or said.worker_template)
        workers = PodSetSpec("worker", said.size - 1, template=said.worker_template)
        return (leader, workers) if said.size > 1 else (leader,)
