"""GPUs that are used by processes which Fairway did not start: never given away while such a process lives.

NVML lists the processes that compute on a GPU. Ours are those below a shim, and commands beside a container, below this
process or with its mark and mounts, unless the container is paused: its GPU is another's then. For each GPU with any
other process there is a pod in kube-system, as a kubelet mirrors static pods: it is bound to this node, holds the GPU,
and its annotation says who uses it. So all that counts pods sees the GPU as taken: the scheduler, `fairway nodes`, the
page, kubectl. When the last such process ends the pod is deleted. The node has the same in an annotation, for users who
may not read these pods. A process that this machine does not know (of another container's PID namespace) is passed
over.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from glob import iglob
from pathlib import Path
from typing import Any

import msgspec
import psutil

from fairway.api.objects import ASSIGNED, OUTSIDE
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection
from fairway.node.lock import holder
from fairway.node.machine import GPU
from fairway.node.measure import Use
from fairway.node.pause.disk import MARK
from fairway.node.pause.freezer import children
from fairway.node.pause.stand import stand_of

NAMESPACE = "kube-system"
MOST_NAMED = 3
Who = Callable[[list[Use]], Mapping[int, str]]


def strangers(seen: Iterable[Use], pods: Path) -> dict[int, str]:
    """Device → who uses it besides Fairway. `pods`: the folder of all pods."""
    locks = iglob("*-*/containers/*/*/lock", root_dir=pods)  # it passes over what goes meanwhile
    shims = {str((pods / lock).parent): pid for lock in locks if (pid := holder(pods / lock))}
    found = {one.index: [it for pid in one.pids if (it := _stranger(pid, shims))] for one in seen}
    return {index: "; ".join(sorted(who)[:MOST_NAMED]) for index, who in found.items() if who}


def _stranger(pid: int, shims: Mapping[str, int]) -> str:
    """User and pid of a process that is not ours; "" for one that is, or that is not there."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        process = psutil.Process(pid)
        above = {it.pid for it in (process, *process.parents())}
        place = _mark(process, shims)
        is_beside = os.getpid() in above or place
        if above & {*shims.values()} or (is_beside and not (place and stand_of(Path(place)).step)):
            return ""
        return f"{process.username()}, pid {pid}"
    return ""


def _mark(process: psutil.Process, shims: Mapping[str, int]) -> str:
    """The folder of the running attempt beside which it runs; "" for none. Anybody may copy a mark: it counts among the
    mounts of that container alone, where a user has no GPUs but its own."""
    with suppress(psutil.AccessDenied, OSError):
        place = process.environ().get(MARK, "")
        for first in children(shims.get(place, 0))[:1]:
            if os.readlink(f"/proc/{process.pid}/ns/mnt") == os.readlink(f"/proc/{first}/ns/mnt"):
                return place
    return ""


def is_mirror(meta: Mapping[str, Any]) -> bool:
    """Whether the pod of this metadata stands for such processes, and is not to be run. Users write labels, too."""
    return meta["namespace"] == NAMESPACE and OUTSIDE in (meta.get("labels") or {})


class Mirror:
    """The pods of a node that stand for such processes. `devices`: the GPUs that this cluster offers."""

    def __init__(self, client: Client, node: str, devices: Collection[int], who: Who) -> None:
        self.client, self.node, self.devices, self.who = client, node, devices, who

    async def tell(self, seen: list[Use]) -> None:
        """Makes and deletes pods, so that there is one for each GPU that is used outside."""
        found = await self.client.clock.in_thread(lambda: self.who(seen))
        wanted = {index: said for index, said in found.items() if index in self.devices}
        told = await self.client.list(Selection(kinds.PODS, NAMESPACE, labels=OUTSIDE))
        for pod in told:
            index, said = int(pod["metadata"]["labels"][OUTSIDE]), pod["metadata"]["annotations"][OUTSIDE]
            if wanted.get(index) != said or pod["spec"]["nodeName"] != self.node:
                await self.client.delete(Ref(kinds.PODS, pod["metadata"]["name"], NAMESPACE), grace=0)
            else:
                del wanted[index]
        for index, said in wanted.items():
            await self._create(index, said)
        if told or wanted:
            said = {str(index): who for index, who in found.items() if index in self.devices}
            notes = {OUTSIDE: msgspec.json.encode(said).decode() if said else None}
            await self.client.patch(Ref(kinds.NODES, self.node), {"metadata": {"annotations": notes}})

    async def _create(self, index: int, said: str) -> None:
        name = f"gpu-{index}-used-outside"
        amounts = {GPU: "1"}
        meta = {"name": name, "namespace": NAMESPACE, "labels": {OUTSIDE: str(index)},
                "annotations": {OUTSIDE: said, ASSIGNED: str(index)}}
        container = {"name": "outside", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
        spec = {"nodeName": self.node, "containers": [container], "terminationGracePeriodSeconds": 0}
        await self.client.create(kinds.PODS, {"metadata": meta, "spec": spec})
        status = {"status": {"phase": "Running", "message": f"used outside Fairway by {said}"}}
        await self.client.patch(Ref(kinds.PODS, name, NAMESPACE), status, subresource="status")
