"""Two Unix users of one machine, for the tests beside it."""

import pwd
from dataclasses import dataclass
from typing import Any

import psutil
from box import Box

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.node.lock import holder


@dataclass(frozen=True, slots=True)
class Team:
    """Two users, a namespace for each."""

    box: Box
    ann: pwd.struct_passwd
    bob: pwd.struct_passwd

    @property
    def client(self) -> Client:
        return self.box.client

    async def run(self, user: pwd.struct_passwd, name: str, script: str, **rest: Any) -> dict[str, Any]:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", script], **rest.pop("container", {})}
        spec = {"restartPolicy": "Never", "nodeName": "here", "containers": [container], **rest}
        meta = {"name": name, "namespace": user.pw_name, "annotations": rest.pop("annotations", {})}
        return await self.client.create(kinds.PODS, {"metadata": meta, "spec": spec})

    async def container(self, user: pwd.struct_passwd, name: str, kind: str) -> dict[str, Any]:
        """The state of the pod's container, once it is of this kind."""
        place = Ref(kinds.PODS, name, user.pw_name)
        while True:
            pod = await self.client.get(place)
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                if kind in status["state"]:
                    return dict(status["state"][kind])
            await self.client.clock.sleep(0.02)

    async def said(self, user: pwd.struct_passwd, name: str, script: str, **rest: Any) -> str:
        """The log of a pod, once it has ended."""
        await self.run(user, name, script, **rest)
        await self.container(user, name, "terminated")
        read = self.client.logs(Ref(kinds.PODS, name, user.pw_name))
        return b"".join([chunk async for chunk in read]).decode()

    async def refused(self, user: pwd.struct_passwd, name: str, **rest: Any) -> str:
        """Why a pod is not started."""
        await self.run(user, name, "echo in vain", **rest)
        while not (said := (await self.container(user, name, "waiting")).get("message")):
            await self.client.clock.sleep(0.02)
        return str(said)

    def process(self, pod: dict[str, Any]) -> psutil.Process:
        """The container's process."""
        return psutil.Process(holder(self.box.attempt(pod) / "lock")).children()[0]
