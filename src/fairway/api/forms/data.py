"""Spark and Flink, which say what a pod needs in words of their own: cores, and memory in the units of a JVM."""

import re
from math import ceil

from msgspec.structs import replace

from fairway.api import objects
from fairway.api.quantities import Malformed, Quantity, shown, within
from fairway.api.types import PodSetSpec

from .form import Outcome, ended, with_class

MIB = 1 << 20
UNITS = {"": MIB, "b": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30, "t": 1 << 40}
LEAST_OVERHEAD = 384 * MIB
OVERHEAD, OVERHEAD_OUTSIDE = 0.1, 0.4  # of memory, beside the heap: of the JVM, of Python and R
MEMORY = re.compile(r"(\d+)\s*([bkmgt]?)(?:i?b|ibibytes|bytes)?", re.IGNORECASE)


def memory_of(text: str) -> int:
    """Bytes of a JVM's quantity: `8g`, `2048m`; a number alone is MiB."""
    if not (found := MEMORY.fullmatch(text.strip())):
        raise Malformed(f"found {shown(text)}; a number with k, m, g or t is allowed")
    return int(found[1]) * UNITS[found[2].lower()]


class Device(objects.Part, frozen=True):
    name: str
    quantity: int


class SparkPod(objects.Part, frozen=True):
    instances: objects.Natural | None = None
    cores: int | None = None
    core_request: str = ""
    memory: str = "1g"
    memory_overhead: str = ""
    gpu: Device | None = None
    template: objects.PodTemplate = objects.PodTemplate()
    node_selector: dict[str, str] = {}  # noqa: RUF012  msgspec gives every struct a dict of its own
    priority_class_name: str = ""
    annotations: dict[str, str] = {}  # noqa: RUF012

    def made(self, name: str, factor: float) -> objects.PodTemplate:
        """The pod that it comes to: its one container has what Spark's fields say, the template the rest."""
        heap = within("memory", memory_of, self.memory)
        more = within("memoryOverhead", memory_of, self.memory_overhead) if self.memory_overhead else None
        more = max(LEAST_OVERHEAD, int(heap * factor)) if more is None else more
        asked: dict[str, Quantity] = {"cpu": self.core_request or str(self.cores or 1), "memory": str(heap + more)}
        if self.gpu:
            asked[self.gpu.name] = str(self.gpu.quantity)
        main, others = objects.Container(name, objects.Resources(asked)), self.template.spec.containers[1:]
        own = self.template.spec
        spec = replace(own, containers=(main, *others), node_selector={**own.node_selector, **self.node_selector})
        meta = replace(self.template.metadata, annotations={**self.template.metadata.annotations, **self.annotations})
        return with_class(replace(self.template, metadata=meta, spec=spec), self.priority_class_name)


class Allocation(objects.Part, frozen=True):
    enabled: bool = False
    initial_executors: objects.Natural | None = None
    min_executors: objects.Natural | None = None
    max_executors: objects.Natural | None = None


class SparkSpec(objects.Part, frozen=True):
    type: str = ""
    driver: SparkPod = SparkPod()
    executor: SparkPod = SparkPod()
    dynamic_allocation: Allocation = Allocation()
    memory_overhead_factor: str = ""
    suspend: bool = False


class SparkState(objects.Part, frozen=True):
    state: str = ""
    error_message: str = ""


class SparkStatus(objects.Part, frozen=True):
    application_state: SparkState = SparkState()


class SparkApplication(objects.Object, frozen=True):
    spec: SparkSpec = SparkSpec()
    status: SparkStatus = SparkStatus()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        """The driver, and the executors that it asks for; with dynamic allocation as many as that may come to."""
        said, dynamic = self.spec, self.spec.dynamic_allocation
        factor = float(said.memory_overhead_factor or (OVERHEAD_OUTSIDE if said.type in ("Python", "R") else OVERHEAD))
        fixed = 1 if said.executor.instances is None else said.executor.instances
        count = max(fixed, dynamic.initial_executors or 0, dynamic.max_executors or 0) if dynamic.enabled else fixed
        least = min(dynamic.min_executors or 0, count) if dynamic.enabled else None
        driver = within("spec.driver", said.driver.made, "spark-kubernetes-driver", factor)
        executor = within("spec.executor", said.executor.made, "spark-kubernetes-executor", factor)
        return PodSetSpec("driver", 1, template=driver), PodSetSpec("executor", count, least, executor)

    def outcome(self) -> Outcome | None:
        said = self.status.application_state
        return ended(said.state, ("COMPLETED", "FAILED"), said.state.capitalize(), said.error_message)


class FlinkResource(objects.Part, frozen=True):
    cpu: float | str | None = None
    memory: str = ""


class FlinkPods(objects.Part, frozen=True):
    replicas: objects.Natural | None = None
    resource: FlinkResource = FlinkResource()
    pod_template: objects.PodTemplate = objects.PodTemplate()


class FlinkWork(objects.Part, frozen=True):
    parallelism: objects.Natural = 1


class FlinkSpec(objects.Part, frozen=True):
    flink_configuration: dict[str, object] = {}  # noqa: RUF012
    job_manager: FlinkPods = FlinkPods()
    task_manager: FlinkPods = FlinkPods()
    pod_template: objects.PodTemplate = objects.PodTemplate()
    job: FlinkWork | None = None


class FlinkWorkStatus(objects.Part, frozen=True):
    state: str = ""


class FlinkStatus(objects.Part, frozen=True):
    job_status: FlinkWorkStatus = FlinkWorkStatus()
    error: str = ""


class FlinkDeployment(objects.Object, frozen=True):
    """Its operator refuses one that starts suspended: its pods wait at gates."""

    spec: FlinkSpec = FlinkSpec()
    status: FlinkStatus = FlinkStatus()

    def podsets(self) -> tuple[PodSetSpec, ...]:
        said = self.spec
        slots = int(str(said.flink_configuration.get("taskmanager.numberOfTaskSlots", 1)))
        tasks = ceil(said.job.parallelism / slots) if said.job else 1
        count = tasks if said.task_manager.replicas is None else said.task_manager.replicas
        leads = 1 if said.job_manager.replicas is None else said.job_manager.replicas
        return (
            PodSetSpec("jobmanager", leads, template=within("spec.jobManager", self._template, said.job_manager, {})),
            PodSetSpec(
                "taskmanager", count,
                template=within("spec.taskManager", self._template, said.task_manager, self._devices()),
            ),
        )  # fmt: skip

    def _template(self, pods: FlinkPods, devices: dict[str, Quantity]) -> objects.PodTemplate:
        """The main container has what Flink's fields say and what the templates add; external resources are the task
        managers'."""
        own, shared = pods.pod_template.spec, self.spec.pod_template.spec
        asked: dict[str, Quantity] = {"cpu": str(pods.resource.cpu or 1)}
        if pods.resource.memory:
            asked["memory"] = str(within("resource.memory", memory_of, pods.resource.memory))
        asked |= devices
        for spec in (shared, own):
            for one in spec.containers:
                if one.name == "flink-main-container":
                    asked |= {**one.resources.limits, **one.resources.requests}
        others = tuple(one for one in own.containers if one.name != "flink-main-container")
        main = objects.Container("flink-main-container", objects.Resources(asked))
        base = own if own.containers or own.node_selector or own.tolerations else shared
        return replace(pods.pod_template, spec=replace(base, containers=(main, *others)))

    def _devices(self) -> dict[str, Quantity]:
        said = self.spec.flink_configuration
        named = re.split(r"[,;\s]+", str(said.get("external-resources", "")))
        keys = ((one, said.get(f"external-resource.{one}.kubernetes.config-key")) for one in named if one)
        return {str(key): str(said.get(f"external-resource.{one}.amount", 1)) for one, key in keys if key}

    def outcome(self) -> Outcome | None:
        state = self.status.job_status.state
        return ended(state, ("FINISHED", "FAILED", "CANCELED"), state.capitalize(), self.status.error)
