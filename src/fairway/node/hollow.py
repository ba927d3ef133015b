"""Hollow nodes: nodes that exist on paper, whose pods run by a table of stages and no process.

A pod bound to one is Running at once and ends as its annotations say: `fairway.dev/duration` after it started
(absent: never), with `fairway.dev/exit-code` (absent: 0). While it is frozen its time stands still. A deleted pod is
gone at once. Since a pod's start stands in its status, a restart goes on where it was. No threads, no sockets: it runs
under a virtual clock too.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from fairway.api.objects import FREEZE, FROZEN, ON_DISK, OVER, SAVE, Condition, Metadata, Part
from fairway.api.quantities import Malformed, duration, time, time_text
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import STRATEGIC, ApiError, Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import Selection, ref

DURATION, EXIT_CODE = "fairway.dev/duration", "fairway.dev/exit-code"


class Container(Part):
    name: str = ""
    image: str = ""


class PodSpec(Part):
    node_name: str = ""
    containers: tuple[Container, ...] = ()


class PodStatus(Part):
    phase: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class Pod(Part):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def frozen_at(self) -> float | None:
        """Since when it is frozen."""
        found = next((it for it in self.status.conditions if it.type == FROZEN and it.status == "True"), None)
        return time(found.last_transition_time or "") if found else None

    @property
    def frozen_where(self) -> str:
        """OnDisk, or "" in memory."""
        return next((it.reason for it in self.status.conditions if it.type == FROZEN), "")


class Hollow:
    """`serves` says of a node's name whether its pods are ours."""

    def __init__(self, client: Client, serves: Callable[[str], bool]) -> None:
        self.client, self.clock, self.serves = client, client.clock, serves
        self.agenda = Agenda(client.clock, client.chance)
        self.informer = Informer(client, Selection(kinds.PODS), shape=Pod, changed=self._changed)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            await self.agenda.run(self._look)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new and new.spec.node_name and self.serves(new.spec.node_name):
            self.agenda.note(f"{new.metadata.namespace}/{new.metadata.name}")

    async def _look(self, key: str) -> float | None:
        pod = self.informer.store.get(key)
        if pod is None or not pod.spec.node_name:  # gone, or another of its name
            return None
        now = self.clock.now()
        change, again_at = step(pod, now)
        try:
            if change:
                await self._write(key, pod, change)
            if pod.metadata.is_going and pod.metadata.deletion_grace_period_seconds:
                await self.client.delete(ref(kinds.PODS, key), uid=pod.metadata.uid, grace=0)
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another of that name: the informer will tell
                raise
        return again_at

    async def _write(self, key: str, pod: Pod, status: dict[str, Any]) -> None:
        """Over the version it was computed from: a start that was written must not be written again, later."""
        meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        change = {"metadata": meta, "status": status}
        await self.client.patch(ref(kinds.PODS, key), change, subresource="status", form=STRATEGIC)


def step(pod: Pod, now: float) -> tuple[dict[str, Any] | None, float | None]:
    """The status that is due, and when the next one is."""
    if pod.status.phase in OVER:
        return None, None
    if pod.metadata.is_going:
        return _ended(pod, 137, now), None
    try:
        said = pod.metadata.annotations
        lasts = duration(said[DURATION]) if DURATION in said else None
        code = int(said.get(EXIT_CODE, "0"))
    except (Malformed, ValueError) as error:
        return _ended(pod, 128, now) | {"message": f"its annotations: {error}"}, None
    began = time(pod.status.start_time) if pod.status.start_time else now
    frozen_at = pod.frozen_at
    if FREEZE in said and pod.status.phase == "Running":
        where = ON_DISK if SAVE in said else ""
        change = {"conditions": _conditions(now, is_ready=False, is_frozen=True, where=where)}
        return (change if frozen_at is None or pod.frozen_where != where else None), None
    if frozen_at is not None:
        began += now - frozen_at
        return _running(pod, now, began) | {"conditions": _conditions(now, is_ready=True, is_frozen=False)}, None
    ends = None if lasts is None else began + lasts
    if ends is not None and ends <= now:
        return _ended(pod, code, now), None
    return (None if pod.status.phase == "Running" else _running(pod, now)), ends


def _running(pod: Pod, now: float, began: float | None = None) -> dict[str, Any]:
    start = now if began is None else began
    state = {"running": {"startedAt": time_text(int(start))}}
    return {"phase": "Running", "startTime": time_text(start)} | _parts(pod, state, now, is_ready=True)


def _conditions(
    now: float, *, is_ready: bool, is_frozen: bool | None = None, where: str = ""
) -> list[dict[str, Any]]:
    told = {"Ready": is_ready, "ContainersReady": is_ready} | ({} if is_frozen is None else {FROZEN: is_frozen})
    moment = time_text(now)
    found = [{"type": kind, "status": str(it), "lastTransitionTime": moment} for kind, it in told.items()]
    found[-1] |= {} if is_frozen is None else {"reason": where or None}
    return found


def _ended(pod: Pod, code: int, now: float) -> dict[str, Any]:
    began = pod.status.start_time or time_text(now)
    said = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began,
            "finishedAt": time_text(int(now))}
    parts = _parts(pod, {"terminated": said}, now, is_ready=False)
    return {"phase": "Failed" if code else "Succeeded", "startTime": began} | parts


def _parts(pod: Pod, state: dict[str, Any], now: float, *, is_ready: bool) -> dict[str, Any]:
    return {
        "conditions": _conditions(now, is_ready=is_ready),
        "containerStatuses": [
            {"name": it.name, "image": it.image, "imageID": "", "ready": is_ready, "started": is_ready,
             "restartCount": 0, "state": state, "lastState": {}}
            for it in pod.spec.containers
        ],
    }
