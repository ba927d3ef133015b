"""Ray: a cluster that runs until it is deleted, and a job that makes one for itself."""

from msgspec.structs import replace

from fairway.api import objects
from fairway.api.quantities import Malformed
from fairway.api.types import PodSetSpec

from .form import Endless, Outcome, ReplicaSpec

AUTOSCALER = objects.Resources({"cpu": "500m", "memory": "512Mi"})
SUBMITTER = objects.Resources({"cpu": "500m", "memory": "200Mi"})
"""What KubeRay gives the containers that it adds, where the user says nothing."""


class RayGroup(ReplicaSpec, frozen=True):
    group_name: str = "head"
    min_replicas: objects.Natural | None = None
    num_of_hosts: objects.Natural = 1
    suspend: bool = False


class AutoscalerOptions(objects.Part, frozen=True):
    resources: objects.Resources = AUTOSCALER


class RaySpec(objects.Part, frozen=True):
    head_group_spec: RayGroup = RayGroup()
    worker_group_specs: tuple[RayGroup, ...] = ()
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions = AutoscalerOptions()
    suspend: bool = False

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """The head, and a podset for each group of workers; they are elastic where Ray scales them."""
        workers = (
            PodSetSpec(
                one.group_name,
                0 if one.suspend else one.replicas * one.num_of_hosts,
                None if least is None else min(least, one.replicas) * one.num_of_hosts,
                one.template,
            )
            for one in self.worker_group_specs
            for least in [one.min_replicas if self.enable_in_tree_autoscaling and not one.suspend else None]
        )
        return PodSetSpec("head", 1, template=self._head()), *workers

    def _head(self) -> objects.PodTemplate:
        """With the container of Ray's autoscaler, where that runs."""
        template = self.head_group_spec.template
        if not self.enable_in_tree_autoscaling:
            return template
        scaler = objects.Container("autoscaler", self.autoscaler_options.resources)
        return replace(template, spec=replace(template.spec, containers=(*template.spec.containers, scaler)))


class RayCluster(Endless, frozen=True):
    spec: RaySpec = RaySpec()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        return self.spec.podsets()


class RayJobSpec(objects.Part, frozen=True):
    ray_cluster_spec: RaySpec | None = None
    cluster_selector: dict[str, str] = {}  # noqa: RUF012
    submission_mode: str = "K8sJobMode"
    submitter_pod_template: objects.PodTemplate | None = None
    shutdown_after_job_finishes: bool = False
    suspend: bool = False
    active_deadline_seconds: int | None = None


class RayJobStatus(objects.Part, frozen=True):
    job_status: str = ""
    job_deployment_status: str = ""
    reason: str = ""
    message: str = ""


class RayJob(objects.Object, frozen=True):
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """The pods of its cluster, and after the head the one that submits; on a cluster that is there already it needs
        no admission. Its groups of workers come last: a minimum is theirs."""
        said = self.spec
        if said.ray_cluster_spec is None or said.cluster_selector:
            return ()
        if not said.shutdown_after_job_finishes:
            why = "found false; true is allowed, since a cluster that stays could never be taken back"
            raise Malformed(why, "spec.shutdownAfterJobFinishes")
        head, *workers = said.ray_cluster_spec.podsets()
        submits = said.submission_mode == "K8sJobMode"
        return head, *([PodSetSpec("submitter", 1, template=self._submitter())] if submits else []), *workers

    def _submitter(self) -> objects.PodTemplate:
        own = objects.PodSpec(containers=(objects.Container("ray-job-submitter", SUBMITTER),), restart_policy="Never")
        return self.spec.submitter_pod_template or objects.PodTemplate(spec=own)

    def outcome(self) -> Outcome | None:
        """When its operator is done with it: a try that failed may be followed by another."""
        said = self.status
        if said.job_deployment_status not in ("Complete", "Failed", "ValidationFailed"):
            return None
        succeeded = said.job_deployment_status == "Complete" and said.job_status == "SUCCEEDED"
        return Outcome(succeeded, said.reason or said.job_status or said.job_deployment_status, said.message)
