"""Jobs and their pods as their controller reads them: partial structs, and what a pod says of itself."""

import hashlib
from typing import Any

from msgspec import field, json
from msgspec.structs import replace

from fairway.api import objects
from fairway.api.objects import INDEX, Condition, Metadata, Part
from fairway.api.pods import is_disrupted, is_lost

from .podfailure import PodFailurePolicy
from .successpolicy import SuccessPolicy

FINALIZER = "batch.kubernetes.io/job-tracking"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


class JobSpec(Part):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    template: dict[str, Any] | bytes = field(default_factory=dict)  # `packed`: as JSON, a fifth of the memory

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"

    def packed(self) -> "JobSpec":
        """With the template as it is kept while no pod is made of it."""
        return replace(self, template=json.encode(self.template)) if isinstance(self.template, dict) else self

    def unpacked(self) -> dict[str, Any]:
        """The template."""
        template: dict[str, Any] = json.decode(self.template) if isinstance(self.template, bytes) else self.template
        return template


class Uncounted(Part):
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Part, kw_only=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None
    uncounted_terminated_pods: Uncounted = Uncounted()
    conditions: tuple[Condition, ...] = ()


class JobMetadata(Metadata):
    generation: int = 0


class Job(Part):
    metadata: JobMetadata = JobMetadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Ended(Part):
    finished_at: str = ""
    exit_code: int = 0


class State(Part):
    terminated: Ended | None = None


class ContainerStatus(Part):
    name: str = ""
    restart_count: int = 0
    state: State = State()


class PodStatus(objects.PodStatus):
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(Part):
    node_name: str = ""
    restart_policy: str = ""


class Pod(Part):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_tracked(self) -> bool:
        return FINALIZER in self.metadata.finalizers

    @property
    def has_succeeded(self) -> bool:
        return self.status.phase == "Succeeded"

    @property
    def is_over(self) -> bool:
        return self.status.is_over or self.metadata.is_going

    @property
    def is_lost(self) -> bool:
        """It ended, or is told to go, for no fault of its program."""
        return is_lost(self.status) or (self.metadata.is_going and is_disrupted(self.status))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions

    @property
    def exit_codes(self) -> tuple[tuple[str, int], ...]:
        """Of its containers that ended, by name."""
        all_of = (*self.status.container_statuses, *self.status.init_container_statuses)
        return tuple((it.name, it.state.terminated.exit_code) for it in all_of if it.state.terminated)

    @property
    def is_ready(self) -> bool:
        return any(it.type == "Ready" and it.status == "True" for it in self.status.conditions)

    @property
    def index(self) -> int:
        """-1 where the pod has none."""
        text = self.metadata.annotations.get(INDEX, "")
        return int(text) if text.isdecimal() else -1

    @property
    def failures_before(self) -> int:
        """How often its index had failed when it was made."""
        text = self.metadata.annotations.get(FAILURES, "")
        return int(text) if text.isdecimal() else 0


def letters(text: bytes, count: int) -> str:
    """So many letters that stand for a text, in names: the same for the same text, and no words by accident."""
    return "".join(LETTERS[byte % len(LETTERS)] for byte in hashlib.sha256(text).digest()[:count])
