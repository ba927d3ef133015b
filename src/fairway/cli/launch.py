"""A program of several ranks on a cluster, where a kubelet starts its pods: what they need to find each other.

On the cluster of this machine the runner tells each rank what it needs (node/environment.py). A kubelet tells none, so
here the same names stand in the Job: RANK is the pod's completion index, and rank 0 has a name of its own in a headless
Service, which goes with the Job. A program that torchrun starts finds the defaults of torchrun's options instead.

What ends a pod from outside (an eviction, a drain, a node that is lost) must not end the Job, and only the program's
own failures are counted as `--retries`: `podFailurePolicy` tells the two apart.
"""

import os
from types import SimpleNamespace
from typing import Any

from .job import INDEX_FIELD, is_fraction

Thing = dict[str, Any]
PORT = 29500
TERMINATED, TRIES = 143, 6
"""The exit code of what SIGTERM ended; how often a pod that no rule is about may be made again."""

WORLD_SIZE_FIELD = "metadata.annotations['fairway.dev/world-size']"


def prepare(job: Thing, order: SimpleNamespace) -> None:
    """Writes what a cluster needs into a new Job."""
    spec, workers = job["spec"], order.workers or 1
    _forgive(spec, order.retries or 0, workers)
    if workers > 1:
        pod = spec["template"]["spec"]
        pod["subdomain"] = domain_of(job)
        container = pod["containers"][0]
        container["env"] = [*_environment(job, order, workers), *(container.get("env") or ())]


def domain_of(job: Thing) -> str:
    """The name of its Service, which may not begin with a digit."""
    name = str(job["metadata"]["name"])
    return name if name[:1].isalpha() else f"job-{name}"


def service_of(job: Thing) -> Thing | None:
    """The Service in which the ranks of a Job that is made have names; None where it needs none."""
    meta, domain = job["metadata"], job["spec"]["template"]["spec"].get("subdomain")
    if not domain:
        return None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    labels = {"batch.kubernetes.io/job-name": meta["name"]}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
    about = {"name": domain, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def _environment(job: Thing, order: SimpleNamespace, workers: int) -> list[Thing]:
    first = f"{job['metadata']['name']}-0.{domain_of(job)}"
    if os.path.basename((order.command or ("",))[0]) == "torchrun" or order.elastic == "torchrun":
        return _torchrun(first, order, workers)
    size: Thing = {"valueFrom": {"fieldRef": {"fieldPath": WORLD_SIZE_FIELD}}} if order.elastic else {}
    return [
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}},
        {"name": "WORLD_SIZE", **(size or {"value": str(workers)})},
        *_plain(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR=first, MASTER_PORT=str(PORT)),
    ]


def _torchrun(first: str, order: SimpleNamespace, workers: int) -> list[Thing]:
    """Each pod is a node of it, with a process for each GPU; its processes get RANK and the like from torchrun."""
    gpus = int(float(order.gpus or 1)) if not is_fraction(order.gpus or "") else 1
    said = _plain(PET_NPROC_PER_NODE=str(max(1, gpus)))
    if order.min_workers:
        nodes = f"{order.min_workers}:{workers}"
        return said + _plain(PET_NNODES=nodes, PET_RDZV_BACKEND="c10d", PET_RDZV_ENDPOINT=f"{first}:{PORT}",
                             PET_RDZV_ID=first, PET_MAX_RESTARTS="10")  # fmt: skip
    rank = {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}}
    return [*said, rank, *_plain(PET_NNODES=str(workers), PET_MASTER_ADDR=first, PET_MASTER_PORT=str(PORT))]


def _plain(**values: str) -> list[Thing]:
    return [{"name": name, "value": text} for name, text in values.items()]


def _forgive(spec: Thing, retries: int, workers: int) -> None:
    """Not counted: what Kubernetes says was a disturbance, and what SIGTERM ended. Without retries any other failure of
    the program ends the Job; with them each counts, and a gang fails with all its ranks."""
    policy = spec.setdefault("podFailurePolicy", {"rules": []})
    policy["rules"] += [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [TERMINATED]}},
    ]
    if not retries:
        policy["rules"].append({"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [TERMINATED]}})
    spec["backoffLimit"] = retries * workers or TRIES
