"""What must hold at every moment, whatever fails: watched on the server's own objects, at every commit."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairway.api.objects import ASSIGNED
from fairway.api.quantities import parse
from fairway.embedded.jobtypes import FINALIZER
from fairway.embedded.registry import Registry
from fairway.embedded.store import Event, Store

JOB = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
Thing = dict[str, Any]


@dataclass(slots=True)
class Watcher:
    """Follows the store's log; `broken` says what did not hold."""

    registry: Registry
    position: int = 0
    broken: list[str] = field(default_factory=list)
    succeeded: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pods: dict[tuple[str, str], Thing] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.registry.store

    async def run(self) -> None:
        self.position = self.store.revision
        while not self.store.closed:
            for event in self.store.since(self.position, "pods"):
                self._see(event)
            self.position = self.store.revision
            await self.store.changed("pods")

    def _see(self, event: Event) -> None:
        place = event.key[1:]
        if event.gone:
            self.pods.pop(place, None)
            return
        pod = self.pods[place] = msgspec.json.decode(event.value)
        job = pod["metadata"].get("labels", {}).get(JOB, "")
        is_counted = FINALIZER in pod["metadata"].get("finalizers", ())  # not what ends while its job takes it away
        if job and is_counted and pod["status"].get("phase") == "Succeeded":
            self.succeeded[job].add(pod["metadata"]["uid"])
        if pod["spec"].get("nodeName"):
            self._check_node(pod["spec"]["nodeName"])
            self._check_ranks(job)

    def _on(self, node: str) -> list[Thing]:
        return [
            pod for pod in self.pods.values()
            if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip

    def _check_node(self, name: str) -> None:
        """No device is given twice, and no more CPU than there is."""
        if ("", name) not in self.store.objects("nodes"):
            return
        node = msgspec.json.decode(self.store.objects("nodes")["", name].value)
        owner: dict[str, str] = {}
        cpu = 0
        for pod in self._on(name):
            own = pod["metadata"]["name"]
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            cpu += parse(requests["cpu"], "cpu")
            devices = [it for it in pod["metadata"].get("annotations", {}).get(ASSIGNED, "").split(",") if it]
            if len(devices) != int(requests.get("nvidia.com/gpu", 0)):
                self.broken.append(f"{own} asked for {requests} and has devices {devices}")
            for device in devices:
                if other := owner.get(device):
                    self.broken.append(f"device {device} of {name} is given to {other} and {own}")
                owner[device] = own
        if cpu > parse(node["status"]["allocatable"]["cpu"], "cpu"):
            self.broken.append(f"{name} has {cpu} milli-CPU taken: {[it['metadata']['name'] for it in self._on(name)]}")

    def _check_ranks(self, job: str) -> None:
        """No rank of a job runs twice at once."""
        ranks: set[str] = set()
        for pod in self.pods.values():
            meta = pod["metadata"]
            if meta.get("labels", {}).get(JOB) != job or not job or "deletionTimestamp" in meta:
                continue
            rank = meta.get("annotations", {}).get(INDEX)
            if pod["spec"].get("nodeName") and rank is not None and pod["status"].get("phase") == "Running":
                if rank in ranks:
                    self.broken.append(f"rank {rank} of {job} runs twice")
                ranks.add(rank)
