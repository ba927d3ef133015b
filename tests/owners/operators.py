"""Hollow operators: what makes the pods of a kind as its real operator does, as far as a scheduler sees it.

A play says, for one object, what it should have made now (`made`) and what its status is (`status`); the `Operator`
makes what is missing, removes what is too much, sets what is suspended, and writes the status. Names, labels, counts,
owner references and the order in which things come are the real operator's; a pod runs as its annotation says.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.node.hollow import DURATION

Thing = dict[str, Any]
JOB_SETS = Kind("JobSet", "jobsets", "jobset.x-k8s.io/v1alpha2")
RAY_CLUSTERS = Kind("RayCluster", "rayclusters", "ray.io/v1")
STATEFUL_SETS = Kind("StatefulSet", "statefulsets", "apps/v1")
DEPLOYMENTS = Kind("Deployment", "deployments", "apps/v1")
REPLICA_SETS = Kind("ReplicaSet", "replicasets", "apps/v1")
MADE = {kind.name: kind for kind in (kinds.PODS, kinds.JOBS, JOB_SETS, RAY_CLUSTERS, STATEFUL_SETS, REPLICA_SETS)}
SECONDS = 100


@dataclass
class Seen:
    """One object, and what there is of what it made: by kind and name."""

    said: Thing
    things: dict[tuple[str, str], Thing] = field(default_factory=dict)
    all_pods: list[Thing] = field(default_factory=list)  # of its namespace
    others: Mapping[str, dict[str, Thing]] = field(default_factory=dict)  # by kind, then name

    @property
    def name(self) -> str:
        return self.said["metadata"]["name"]

    @property
    def pods(self) -> list[Thing]:
        return [one for (kind, _), one in self.things.items() if kind == "Pod"]

    def ended(self, pods: Iterable[Thing], count: int) -> bool:
        return sum(pod["status"].get("phase") == "Succeeded" for pod in pods) >= count

    def condition(self, kind: str) -> bool:
        found = self.said.get("status", {}).get("conditions") or ()
        return any(one["type"] == kind and one["status"] == "True" for one in found)


Made = Callable[[Seen], Iterator[Thing]]
Status = Callable[[Seen], Thing]


@dataclass(frozen=True)
class Play:
    kind: Kind
    made: Made
    status: Status


class Operator:
    def __init__(self, client: Client, play: Play, *others: Kind) -> None:
        """`others`: kinds that it reads beside its own and what it makes."""
        self.client, self.play = client, play
        self._changed = asyncio.Event()
        watched = dict.fromkeys((play.kind, kinds.PODS, *others))
        self._informers: dict[Kind, Informer[Any]] = {
            kind: Informer(client, Selection(kind), shape=dict, changed=lambda *_: self._changed.set())
            for kind in watched
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            while True:
                await self._changed.wait()
                self._changed.clear()
                for said in list(self._informers[self.play.kind].store.values()):
                    with suppress(ApiError, OSError):  # the next change brings it here again
                        await self._look(said)

    async def _look(self, said: Thing) -> None:
        seen = self._seen(said)
        if "deletionTimestamp" in said["metadata"]:
            return
        wanted = {(one["kind"], one["metadata"]["name"]): one for one in self.play.made(seen)}
        for key, one in wanted.items():
            there = seen.things.get(key)
            if there is None:
                await self._make(said, one)
                continue
            suspend = one.get("spec", {}).get("suspend")
            if suspend is not None and there["spec"].get("suspend") != suspend:
                await self.client.patch(_ref(there), {"spec": {"suspend": suspend}})
        for key in seen.things.keys() - wanted.keys():
            if "deletionTimestamp" not in seen.things[key]["metadata"]:
                await self.client.delete(_ref(seen.things[key]))
        status = self.play.status(self._seen(said))
        if status and any(said.get("status", {}).get(key) != value for key, value in status.items()):
            await self.client.patch(_ref(said, self.play.kind), {"status": status}, subresource="status")

    def _seen(self, said: Thing) -> Seen:
        uid, space = said["metadata"]["uid"], said["metadata"]["namespace"]
        seen = Seen(said)
        others: dict[str, dict[str, Thing]] = {}
        for kind, informer in self._informers.items():
            for one in informer.store.values():
                one = {"kind": kind.name, **one}
                if one["metadata"].get("namespace", space) != space:
                    continue
                others.setdefault(kind.name, {})[one["metadata"]["name"]] = one
                if any(it["uid"] == uid for it in one["metadata"].get("ownerReferences") or ()):
                    seen.things[kind.name, one["metadata"]["name"]] = one
        seen.others, seen.all_pods = others, list(others.get("Pod", {}).values())
        return seen

    async def _make(self, owner: Thing, thing: Thing) -> None:
        kind, meta = MADE[thing["kind"]], owner["metadata"]
        ref = {"apiVersion": self.play.kind.group_version, "kind": self.play.kind.name, "name": meta["name"],
               "uid": meta["uid"], "controller": True}  # fmt: skip
        made = deepcopy({"apiVersion": kind.group_version, **thing})
        made["metadata"].setdefault("ownerReferences", [ref])
        made["metadata"]["namespace"] = meta["namespace"]
        await self.client.ensure(kind, made)


def _ref(thing: Thing, kind: Kind | None = None) -> Ref:
    return Ref(kind or MADE[thing["kind"]], thing["metadata"]["name"], thing["metadata"]["namespace"])


def pod(name: str, template: Thing, labels: Mapping[str, str], **notes: str) -> Thing:
    meta = template.get("metadata") or {}
    spec = {"restartPolicy": "Never", **deepcopy(template["spec"])}
    said = {"labels": {**(meta.get("labels") or {}), **labels},
            "annotations": {DURATION: f"{SECONDS}s", **(meta.get("annotations") or {}), **notes}}  # fmt: skip
    return {"kind": "Pod", "metadata": {"name": name, **said}, "spec": spec}


def timed(template: Thing) -> Thing:
    """A template whose pods run as long as all do."""
    made = deepcopy(template)
    notes = made.setdefault("metadata", {}).setdefault("annotations", {})
    notes.setdefault(DURATION, f"{SECONDS}s")
    return made


def conditions(**said: bool) -> list[Thing]:
    moment = "2027-01-15T08:00:00Z"
    return [
        {"type": kind, "status": str(value), "reason": kind, "message": "", "lastTransitionTime": moment}
        for kind, value in said.items()
    ]


# Kubeflow's v1 trainers: pods at once, all of them, named and numbered by role.


def trainer(kind: str, field_name: str, leads: tuple[str, ...]) -> Play:
    def made(seen: Seen) -> Iterator[Thing]:
        spec = seen.said["spec"]
        if spec.get("runPolicy", {}).get("suspend") or seen.condition("Failed"):
            return
        for role, one in spec[field_name].items():
            for index in range(one.get("replicas", 1)):
                labels = {
                    "training.kubeflow.org/job-name": seen.name, "training.kubeflow.org/operator-name": kind.lower(),
                    "training.kubeflow.org/replica-type": role.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                }  # fmt: skip
                if role in leads:
                    labels["training.kubeflow.org/job-role"] = "master"
                yield pod(f"{seen.name}-{role.lower()}-{index}", one["template"], labels)

    def status(seen: Seen) -> Thing:
        roles = seen.said["spec"][field_name]
        suspended = bool(seen.said["spec"].get("runPolicy", {}).get("suspend"))
        first = next((role for role in leads if role in roles), "Worker")
        key = "training.kubeflow.org/replica-type"
        own = [it for it in seen.pods if it["metadata"]["labels"][key] == first.lower()]
        done = seen.condition("Succeeded") or seen.ended(own, roles[first].get("replicas", 1))
        late = not suspended and seen.said["spec"].get("runPolicy", {}).get("activeDeadlineSeconds") == 0
        failed = seen.condition("Failed") or (late and not done)
        return {"conditions": conditions(Created=True, Suspended=suspended, Succeeded=done, Failed=failed)}

    return Play(Kind(kind, f"{kind.lower()}s", "kubeflow.org/v1"), made, status)


# CronJob: the one Job of its first hour.


def cron_made(seen: Seen) -> Iterator[Thing]:
    said = seen.said["spec"]["jobTemplate"]
    spec = {**said["spec"], "template": timed(said["spec"]["template"])}
    suspend = (seen.things.get(("Job", f"{seen.name}-1")) or {"spec": spec})["spec"].get("suspend")
    yield {"kind": "Job", "metadata": {"name": f"{seen.name}-1", **(said.get("metadata") or {})},
           "spec": {**spec, "suspend": bool(suspend)}}  # fmt: skip


CRON_JOB = Play(Kind("CronJob", "cronjobs", "batch/v1"), cron_made, lambda seen: {})

# JobSet: Jobs, suspended as it is, each of which makes its pods.


def job_set_made(seen: Seen) -> Iterator[Thing]:
    spec, suspended = seen.said["spec"], bool(seen.said["spec"].get("suspend"))
    for one in spec["replicatedJobs"]:
        after = one.get("dependsOn") or ()
        if any(not _is_complete(seen, it["name"]) for it in after):
            continue
        for index in range(one.get("replicas", 1)):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": seen.name, "jobset.sigs.k8s.io/replicatedjob-name": one["name"],
                "jobset.sigs.k8s.io/job-index": str(index), "jobset.sigs.k8s.io/restart-attempt": "0",
            }  # fmt: skip
            job = deepcopy(one["template"])
            template = timed(job["spec"]["template"])
            template["spec"].setdefault("restartPolicy", "Never")
            template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), **labels}
            meta = job.get("metadata") or {}
            yield {"kind": "Job",
                   "metadata": {"name": f"{seen.name}-{one['name']}-{index}",
                                "annotations": meta.get("annotations") or {},
                                "labels": {**(meta.get("labels") or {}), **labels}},
                   "spec": {**job["spec"], "suspend": suspended, "template": template}}  # fmt: skip


def _is_complete(seen: Seen, name: str) -> bool:
    own = [job for (kind, _), job in seen.things.items()
           if kind == "Job" and job["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == name]  # fmt: skip
    return bool(own) and all(Seen(job).condition("Complete") for job in own)


def job_set_status(seen: Seen) -> Thing:
    done = all(_is_complete(seen, one["name"]) for one in seen.said["spec"]["replicatedJobs"])
    suspended = bool(seen.said["spec"].get("suspend"))
    return {"conditions": conditions(Suspended=suspended, Completed=done)}


JOB_SET = Play(JOB_SETS, job_set_made, job_set_status)

# TrainJob: a JobSet made of its runtime, suspended as it is.

TRAINER = "trainer.kubeflow.org/v1alpha1"
RUNTIMES = Kind("ClusterTrainingRuntime", "clustertrainingruntimes", TRAINER, is_namespaced=False)
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def train_job_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]
    runtime = seen.others.get(RUNTIMES.name, {}).get(spec["runtimeRef"]["name"])
    if runtime is None:
        return
    said = deepcopy(runtime["spec"]["template"]["spec"])
    trainer = spec.get("trainer") or {}
    nodes = trainer.get("numNodes") or runtime["spec"].get("mlPolicy", {}).get("numNodes") or 1
    for one in said["replicatedJobs"]:
        if (one["template"].get("metadata", {}).get("labels") or {}).get(STEP) == "trainer":
            one["template"]["spec"] |= {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed"}
            if "resourcesPerNode" in trainer:
                one["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = trainer["resourcesPerNode"]
    yield {"kind": "JobSet", "metadata": {"name": seen.name}, "spec": {**said, "suspend": bool(spec.get("suspend"))}}


def train_job_status(seen: Seen) -> Thing:
    inner = seen.things.get(("JobSet", seen.name))
    done = inner is not None and Seen(inner).condition("Completed")
    return {"conditions": conditions(Suspended=bool(seen.said["spec"].get("suspend")), Complete=done)}


TRAIN_JOB = Play(Kind("TrainJob", "trainjobs", TRAINER), train_job_made, train_job_status)

# MPIJob of the newer operator: its workers, and a Job that makes the launcher when they are ready.


def mpi_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]
    suspended = bool(spec.get("runPolicy", {}).get("suspend"))
    own = {"training.kubeflow.org/job-name": seen.name, "training.kubeflow.org/operator-name": "mpi-operator"}
    worker, launcher = spec["mpiReplicaSpecs"]["Worker"], spec["mpiReplicaSpecs"]["Launcher"]
    done = seen.condition("Succeeded")
    for index in range(0 if suspended or done else worker.get("replicas", 1)):
        labels = {**own, "training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": str(index)}
        yield pod(f"{seen.name}-worker-{index}", worker["template"], labels, **{DURATION: f"{10 * SECONDS}s"})
    ready = [it for it in seen.pods if it["status"].get("phase") == "Running"]
    is_made = ("Job", f"{seen.name}-launcher") in seen.things
    if is_made or spec.get("launcherCreationPolicy") != "WaitForWorkersReady" or len(ready) >= worker["replicas"]:
        template = timed(launcher["template"])
        template["metadata"]["labels"] = {**own, "training.kubeflow.org/job-role": "launcher"}
        template["spec"].setdefault("restartPolicy", "OnFailure")
        job = {"suspend": suspended, "backoffLimit": 6, "template": template}
        yield {"kind": "Job", "metadata": {"name": f"{seen.name}-launcher", "labels": own}, "spec": job}


def mpi_status(seen: Seen) -> Thing:
    launcher = seen.things.get(("Job", f"{seen.name}-launcher"))
    done = launcher is not None and Seen(launcher).condition("Complete")
    suspended = bool(seen.said["spec"].get("runPolicy", {}).get("suspend"))
    return {"conditions": conditions(Created=True, Suspended=suspended, Succeeded=done)}


MPI_JOB = Play(Kind("MPIJob", "mpijobs", "kubeflow.org/v2beta1"), mpi_made, mpi_status)

# Ray: the head and the groups; a RayJob makes a cluster, and a Job that submits once the head is up.


def ray_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]
    if spec.get("suspend"):
        return
    forever = {DURATION: f"{100 * SECONDS}s"}
    own = {"ray.io/cluster": seen.name, "ray.io/is-ray-node": "yes", "app.kubernetes.io/name": "kuberay"}
    head = deepcopy(spec["headGroupSpec"]["template"])
    if spec.get("enableInTreeAutoscaling"):
        asked = {"cpu": "500m", "memory": "512Mi"}
        scaler = {"name": "autoscaler", "image": "ray", "resources": {"requests": asked, "limits": asked}}
        head["spec"]["containers"].append(scaler)
    labels = {**own, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield pod(f"{seen.name}-head", head, labels, **forever)
    for group in spec.get("workerGroupSpecs") or ():
        labels = {**own, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
        for index in range(group["replicas"] * group.get("numOfHosts", 1)):
            yield pod(f"{seen.name}-{group['groupName']}-worker-{index}", group["template"], labels, **forever)


def ray_status(seen: Seen) -> Thing:
    return {"state": "suspended" if seen.said["spec"].get("suspend") else "ready"}


RAY_CLUSTER = Play(RAY_CLUSTERS, ray_made, ray_status)


def ray_job_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]
    if spec.get("suspend") or seen.said.get("status", {}).get("jobDeploymentStatus") in ("Complete", "Failed"):
        return
    labels = {"ray.io/originated-from-cr-name": seen.name, "ray.io/originated-from-crd": "RayJob"}
    yield {"kind": "RayCluster", "metadata": {"name": f"{seen.name}-x7k2p", "labels": labels},
           "spec": spec["rayClusterSpec"]}  # fmt: skip
    heads = [it for it in seen.all_pods if it["metadata"]["name"] == f"{seen.name}-x7k2p-head"]
    if ("Job", seen.name) in seen.things or any(it["status"].get("phase") == "Running" for it in heads):
        asked = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
        own = {"spec": {"restartPolicy": "Never",
                        "containers": [{"name": "ray-job-submitter", "image": "ray", "resources": asked}]}}  # fmt: skip
        template = timed(spec.get("submitterPodTemplate") or own)
        yield {"kind": "Job", "metadata": {"name": seen.name}, "spec": {"backoffLimit": 2, "template": template}}


def ray_job_status(seen: Seen) -> Thing:
    if seen.said.get("status", {}).get("jobDeploymentStatus") in ("Complete", "Failed"):
        return {}
    if seen.said["spec"].get("activeDeadlineSeconds") == 1 and not seen.said["spec"].get("suspend"):
        return {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}
    if seen.said["spec"].get("suspend"):
        return {"jobDeploymentStatus": "Suspended", "jobStatus": ""}
    job = seen.things.get(("Job", seen.name))
    done = job is not None and Seen(job).condition("Complete")
    return {"jobDeploymentStatus": "Complete" if done else "Running", "jobStatus": "SUCCEEDED" if done else "RUNNING"}


RAY_JOB = Play(Kind("RayJob", "rayjobs", "ray.io/v1"), ray_job_made, ray_job_status)

# LeaderWorkerSet: for each group a leader, whose workers come when it is ready; pods come again under their names.


def leader_worker_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]["leaderWorkerTemplate"]
    by_name = {it["metadata"]["name"]: it for it in seen.pods}
    for group in range(seen.said["spec"]["replicas"]):
        name = f"{seen.name}-{group}"
        labels = {"leaderworkerset.sigs.k8s.io/name": seen.name, "leaderworkerset.sigs.k8s.io/group-index": str(group)}
        leader = spec.get("leaderTemplate") or spec["workerTemplate"]
        forever = {DURATION: f"{100 * SECONDS}s"}
        yield pod(name, leader, {**labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"}, **forever)
        for index in range(1, spec["size"]):
            worker = f"{name}-{index}"
            if worker in by_name or by_name.get(name, {}).get("status", {}).get("phase") == "Running":
                own = {**labels, "leaderworkerset.sigs.k8s.io/worker-index": str(index)}
                yield pod(worker, spec["workerTemplate"], own, **forever)


LEADER_WORKER_SET = Play(
    Kind("LeaderWorkerSet", "leaderworkersets", "leaderworkerset.x-k8s.io/v1"), leader_worker_made, lambda seen: {}
)

# Volcano: a PodGroup first; pods when its phase is no longer Pending, which takes a scheduler.

POD_GROUPS = Kind("PodGroup", "podgroups", "scheduling.volcano.sh/v1beta1")
MADE[POD_GROUPS.name] = POD_GROUPS


def volcano_made(seen: Seen) -> Iterator[Thing]:
    meta, spec = seen.said["metadata"], seen.said["spec"]
    name = f"{seen.name}-{meta['uid']}"
    yield {"kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": spec.get("minAvailable", 1)}}
    phase = seen.things.get(("PodGroup", name), {}).get("status", {}).get("phase", "Pending")
    for task in spec["tasks"] if phase != "Pending" else ():
        for index in range(task.get("replicas", 1)):
            labels = {"volcano.sh/job-name": seen.name, "volcano.sh/task-spec": task["name"],
                      "volcano.sh/task-index": str(index)}  # fmt: skip
            yield pod(f"{seen.name}-{task['name']}-{index}", task["template"], labels)


def volcano_status(seen: Seen) -> Thing:
    count = sum(task.get("replicas", 1) for task in seen.said["spec"]["tasks"])
    done = seen.ended(seen.pods, count) or seen.said.get("status", {}).get("state", {}).get("phase") == "Completed"
    phase = "Completed" if done else "Running" if seen.pods else "Pending"
    return {"state": {"phase": phase, "lastTransitionTime": "2027-01-15T08:00:00Z"}} if seen.things else {}


VOLCANO_JOB = Play(Kind("Job", "jobs", "batch.volcano.sh/v1alpha1"), volcano_made, volcano_status)

# AppWrapper: what it wraps, while it is not suspended.


def wrapper_made(seen: Seen) -> Iterator[Thing]:
    if seen.said["spec"].get("suspend"):
        return
    for one in seen.said["spec"]["components"]:
        thing = deepcopy(one["template"])
        if thing["kind"] == "Job":
            label = {"workload.codeflare.dev/appwrapper": seen.name}
            thing["spec"]["template"] = timed(thing["spec"]["template"])
            thing["spec"]["template"]["metadata"]["labels"] = label
            thing["metadata"]["labels"] = label
            yield thing


def wrapper_status(seen: Seen) -> Thing:
    jobs = [one for (kind, _), one in seen.things.items() if kind == "Job"]
    done = bool(jobs) and all(Seen(job).condition("Complete") for job in jobs)
    suspended = bool(seen.said["spec"].get("suspend"))
    return {"phase": "Suspended" if suspended else "Succeeded" if done else "Running"}


APP_WRAPPER = Play(Kind("AppWrapper", "appwrappers", "workload.codeflare.dev/v1beta2"), wrapper_made, wrapper_status)

# Spark: a driver, which owns the executors and asks for them when it runs.


def spark_pod(seen: Seen, role: str, name: str, owner: Thing | None = None) -> Thing:
    said = seen.said["spec"][role]
    asked = {"cpu": str(said.get("cores", 1)), "memory": {"1g": "1408Mi", "2g": "2867Mi"}[said["memory"]]}
    limits = {said["gpu"]["name"]: str(said["gpu"]["quantity"])} if "gpu" in said else {}
    needs = {"requests": asked | limits, "limits": limits}
    main = {"name": f"spark-kubernetes-{role}", "image": "spark", "resources": needs}
    labels = {"sparkoperator.k8s.io/app-name": seen.name, "spark-role": role, "spark-app-selector": "spark-1"}
    lasts = SECONDS if role == "driver" else 100 * SECONDS
    made = pod(name, {"spec": {"containers": [main]}}, labels, **{DURATION: f"{lasts}s"})
    if owner:
        ref = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        made["metadata"]["ownerReferences"] = [{**ref, "controller": True}]
    return made


def spark_made(seen: Seen) -> Iterator[Thing]:
    if not seen.said["spec"].get("suspend"):
        yield spark_pod(seen, "driver", f"{seen.name}-driver")


def spark_status(seen: Seen) -> Thing:
    before = seen.said.get("status", {}).get("applicationState", {}).get("state")
    done = before == "COMPLETED" or seen.ended(seen.pods, 1)
    suspended = bool(seen.said["spec"].get("suspend"))
    state = "COMPLETED" if done else "SUSPENDED" if suspended else "RUNNING"
    return {"applicationState": {"state": state}, "driverInfo": {}}


SPARK = Play(Kind("SparkApplication", "sparkapplications", "sparkoperator.k8s.io/v1beta2"), spark_made, spark_status)


def spark_driver_made(seen: Seen) -> Iterator[Thing]:
    """The program in a driver's pod."""
    labels = seen.said["metadata"].get("labels") or {}
    if labels.get("spark-role") == "driver" and seen.said["status"].get("phase") == "Running":
        app = seen.others["SparkApplication"][labels["sparkoperator.k8s.io/app-name"]]
        for index in range(app["spec"]["executor"]["instances"]):
            yield spark_pod(Seen(app), "executor", f"{app['metadata']['name']}-exec-{index + 1}", seen.said)


SPARK_DRIVER = Play(kinds.PODS, spark_driver_made, lambda seen: {})

# Flink, native: a job manager, which asks for task managers when it runs. What controls them stands for a Deployment,
# whose own controller may be at work where this is played.


def flink_pod(seen: Seen, part: str, name: str) -> Thing:
    spec = seen.said["spec"]
    said = spec["jobManager" if part == "jobmanager" else "taskManager"]["resource"]
    asked = {"cpu": str(said["cpu"]), "memory": said["memory"].replace("m", "Mi")}
    gpu = {"nvidia.com/gpu": "1"} if part == "taskmanager" else {}
    needs = {"requests": asked | gpu, "limits": asked | gpu}
    main = {"name": "flink-main-container", "image": "flink", "resources": needs}
    labels = {"app": seen.name, "component": part, "type": "flink-native-kubernetes"}
    lasts = {DURATION: f"{SECONDS if part == 'jobmanager' else 100 * SECONDS}s"}
    made = pod(name, {"spec": {"containers": [main]}}, labels, **lasts)
    uid, meta = seen.things["StatefulSet", seen.name]["metadata"]["uid"], seen.said["metadata"]
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": seen.name, "uid": uid, "controller": True},
        {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": seen.name, "uid": meta["uid"]},
    ]
    return made


def flink_made(seen: Seen) -> Iterator[Thing]:
    if seen.said.get("status", {}).get("jobStatus", {}).get("state") == "FINISHED":
        return
    template = {"metadata": {"labels": {"app": seen.name}},
                "spec": {"containers": [{"name": "flink-main-container", "image": "flink"}]}}  # fmt: skip
    selector = {"matchLabels": {"app": seen.name}}
    spec = {"replicas": 0, "serviceName": seen.name, "selector": selector, "template": template}
    yield {"kind": "StatefulSet", "metadata": {"name": seen.name}, "spec": spec}
    if ("StatefulSet", seen.name) not in seen.things:
        return
    yield flink_pod(seen, "jobmanager", f"{seen.name}-jm")
    leads = seen.things.get(("Pod", f"{seen.name}-jm"), {}).get("status", {}).get("phase") == "Running"
    for index in range(4):
        if leads or ("Pod", f"{seen.name}-taskmanager-1-{index}") in seen.things:
            yield flink_pod(seen, "taskmanager", f"{seen.name}-taskmanager-1-{index}")


def flink_status(seen: Seen) -> Thing:
    lead = seen.things.get(("Pod", f"{seen.name}-jm"), {}).get("status", {}).get("phase")
    before = seen.said.get("status", {}).get("jobStatus", {}).get("state")
    state = "FINISHED" if before == "FINISHED" or lead == "Succeeded" else "RUNNING"
    return {"jobStatus": {"state": state}}


FLINK = Play(Kind("FlinkDeployment", "flinkdeployments", "flink.apache.org/v1beta1"), flink_made, flink_status)

# Replicas: of a ReplicaSet, which a Deployment makes, and of a StatefulSet, which a Notebook makes.


def deployment_made(seen: Seen) -> Iterator[Thing]:
    spec = seen.said["spec"]
    template = deepcopy(spec["template"])
    template["metadata"].setdefault("labels", {})["pod-template-hash"] = "5d4f"
    own = {"replicas": spec["replicas"], "template": template, "selector": spec["selector"]}
    notes = seen.said["metadata"].get("annotations") or {}
    meta = {"name": f"{seen.name}-5d4f", "labels": template["metadata"]["labels"], "annotations": notes}
    yield {"kind": "ReplicaSet", "metadata": meta, "spec": own}


def replica_set_made(seen: Seen) -> Iterator[Thing]:
    """As many as are wanted, under names that never come again."""
    left = [it for it in seen.pods if "deletionTimestamp" not in it["metadata"]][: seen.said["spec"]["replicas"]]
    yield from left
    used = int((seen.said.get("status") or {}).get("observedGeneration") or 0)
    for index in range(seen.said["spec"]["replicas"] - len(left)):
        template = seen.said["spec"]["template"]
        yield pod(f"{seen.name}-{used + index}", template, {}, **{DURATION: f"{100 * SECONDS}s"})


def replica_set_status(seen: Seen) -> Thing:
    """Its generation is where the next name is counted from, which the real one draws."""
    numbers = [int(it["metadata"]["name"].rpartition("-")[2]) + 1 for it in seen.pods]
    before = int((seen.said.get("status") or {}).get("observedGeneration") or 0)
    return {"replicas": len(seen.pods), "observedGeneration": max([before, *numbers])}


def stateful_set_made(seen: Seen) -> Iterator[Thing]:
    for index in range(seen.said["spec"]["replicas"]):
        yield pod(f"{seen.name}-{index}", seen.said["spec"]["template"], {}, **{DURATION: f"{100 * SECONDS}s"})


def notebook_made(seen: Seen) -> Iterator[Thing]:
    meta = seen.said["metadata"]
    labels = {**(meta.get("labels") or {}), "notebook-name": seen.name, "statefulset": seen.name}
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if "notebook" not in key}
    stopped = "kubeflow-resource-stopped" in (meta.get("annotations") or {})
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": seen.said["spec"]["template"]["spec"]}
    spec = {"replicas": 0 if stopped else 1, "template": template, "serviceName": seen.name,
            "selector": {"matchLabels": {"statefulset": seen.name}}}  # fmt: skip
    yield {"kind": "StatefulSet", "metadata": {"name": seen.name}, "spec": spec}


DEPLOYMENT = Play(DEPLOYMENTS, deployment_made, lambda seen: {})
REPLICA_SET = Play(REPLICA_SETS, replica_set_made, replica_set_status)
STATEFUL_SET = Play(STATEFUL_SETS, stateful_set_made, lambda seen: {})
NOTEBOOK = Play(Kind("Notebook", "notebooks", "kubeflow.org/v1"), notebook_made, lambda seen: {})
