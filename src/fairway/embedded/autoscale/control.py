"""The controller: looks at each autoscaler every TURN_SECONDS, and scales its target by the subresource `scale`.

What pods use it asks of `metrics.k8s.io`, as any client would. A replica that it adds is a pod that waits for its quota
and its place like any other. Where the target
cannot be measured it is left alone, and the status says why.
"""

import asyncio
from fractions import Fraction
from typing import Any

from fairway.api.quantities import exact, time_text
from fairway.embedded.apps.control import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Object, Thing
from fairway.embedded.selector import selector_text
from fairway.kube.agenda import Agenda
from fairway.kube.client import Client
from fairway.kube.events import About, Events
from fairway.kube.informer import Informer
from fairway.kube.kinds import POD_METRICS, PODS, Kind, Ref, Selection

from .rules import RESOURCES
from .wanted import Use, bounded, wanted

AUTOSCALERS = Kind("HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling/v2")
KINDS = {it.name: it for it in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)}
TURN_SECONDS, STEADY_SECONDS = 15.0, 300


class Unscaled(Exception):
    """Why a target is left as it is: a reason in one word, then a sentence."""


class Autoscalers:
    def __init__(self, client: Client) -> None:
        self.client, self.clock = client, client.clock
        self.agenda = Agenda(client.clock, client.chance)
        self.events = Events(client, "horizontal-pod-autoscaler")
        self.objects = Informer(client, Selection(AUTOSCALERS), shape=Object, changed=self._changed)
        self._wishes: dict[str, list[tuple[float, int]]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.objects.run())
            tasks.create_task(self.events.run())
            await self.objects.synced.wait()
            await self.agenda.run(self._turn)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._wishes.pop(old.metadata.uid, None)
        elif old is None or old.spec != new.spec:
            self.agenda.note(f"{new.metadata.namespace}/{new.metadata.name}")

    async def _turn(self, key: str) -> float | None:
        one = self.objects.store.get(key)
        if one is None or one.metadata.is_going:
            return None
        try:
            shown = await self._scale(one)
            active = ("True", "ValidMetricFound", "the desired count follows from what its pods use")
        except Unscaled as error:
            shown, active = {}, ("False", *error.args)
        now = time_text(int(self.clock.now()))
        before = {it["type"]: it for it in one.status.get("conditions") or ()}.get("ScalingActive", {})
        since = before.get("lastTransitionTime", now) if before.get("status") == active[0] else now
        condition = dict(zip(("status", "reason", "message"), active)) | {"lastTransitionTime": since}
        status = {"currentReplicas": 0, "desiredReplicas": 0} | shown | {
            "conditions": [{"type": "ScalingActive", **condition}]}
        if any(one.status.get(name) != value for name, value in status.items()):
            place = Ref(AUTOSCALERS, one.metadata.name, one.metadata.namespace)
            change = {"metadata": {"uid": one.metadata.uid}, "status": status}
            await self.objects.caught_up(await self.client.patch(place, change, subresource="status"))
        return self.clock.now() + TURN_SECONDS

    async def _scale(self, one: Object) -> Thing:
        """Scales the target; returns the status."""
        place, target = await self._target(one)
        spec = target["spec"]
        replicas = int(spec.get("replicas", 1))
        if not replicas:
            raise Unscaled("ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
        labels = selector_text(spec.get("selector"))
        wishes, told = await self._measured(one, labels, replicas)
        desired = self._steady(one, bounded(
            replicas, wishes, least=one.spec.get("minReplicas", 1), most=one.spec["maxReplicas"]), replicas)
        shown: Thing = {"currentReplicas": replicas, "desiredReplicas": desired, "currentMetrics": told}
        if desired != replicas:
            await self.client.patch(place, {"spec": {"replicas": desired}}, subresource="scale")
            about = About(AUTOSCALERS, one.metadata.name, one.metadata.uid, one.metadata.namespace)
            self.events.tell(about, "SuccessfulRescale", f"New size: {desired}; its pods use another part of what they"
                             " ask for than they should")
            shown["lastScaleTime"] = time_text(int(self.clock.now()))
        return shown

    async def _target(self, one: Object) -> tuple[Ref, Thing]:
        said = one.spec["scaleTargetRef"]
        if said["kind"] not in KINDS:
            raise Unscaled("FailedGetScale", f"a {said['kind']} is not scaled here, only {', '.join(KINDS)}")
        place = Ref(KINDS[said["kind"]], said["name"], one.metadata.namespace)
        found = await self.client.find(place)
        if found is None:
            raise Unscaled("FailedGetScale", f"there is no {said['kind']} {said['name']}")
        return place, found

    async def _measured(self, one: Object, labels: str, replicas: int) -> tuple[list[int], list[Thing]]:
        """The wish of each metric, and what the status says of it."""
        namespace = one.metadata.namespace
        found = await self.client.list(Selection(PODS, namespace, labels=labels))
        pods = [it for it in found if it["status"].get("phase") in ("Pending", "Running")]
        listed = await self.client.list(Selection(POD_METRICS, namespace, labels=labels))
        used = {it["metadata"]["name"]: it for it in listed}
        wishes, told = [], []
        for metric in one.spec.get("metrics") or ():
            if metric["type"] != "Resource" or metric["resource"]["name"] not in RESOURCES:
                continue
            asked = metric["resource"]
            uses = [_use(it, used.get(it["metadata"]["name"]), asked) for it in pods]
            wishes.append(wanted(replicas, uses))
            told.append({"type": "Resource", "resource": {"name": asked["name"], "current": _current(uses, asked)}})
        if not any(it["resource"]["current"] for it in told):
            raise Unscaled("FailedGetResourceMetric", "no pod of the target is measured yet")
        return wishes, [it for it in told if it["resource"]["current"]]

    def _steady(self, one: Object, wish: int, replicas: int) -> int:
        """A step down waits: the greatest wish of the last minutes counts."""
        down = (one.spec.get("behavior") or {}).get("scaleDown") or {}
        window, now = down.get("stabilizationWindowSeconds", STEADY_SECONDS), self.clock.elapsed()
        wishes = self._wishes.setdefault(one.metadata.uid, [(now, replicas)])
        wishes[:] = [(at, it) for at, it in wishes if at > now - window] + [(now, wish)]
        return wish if wish >= replicas else min(replicas, max(it for _, it in wishes))


def _use(pod: Thing, measured: Thing | None, asked: Thing) -> Use:
    """Of a pod, by the unit in which the metric is."""
    name, target = asked["name"], asked["target"]
    is_ready = any((it["type"], it["status"]) == ("Ready", "True") for it in pod["status"].get("conditions") or ())
    used = sum((exact(it["usage"][name]) for it in measured["containers"]), Fraction(0)) if measured else None
    if percent := target.get("averageUtilization"):
        requests = [(it.get("resources") or {}).get("requests") or {} for it in pod["spec"]["containers"]]
        if not all(it.get(name) for it in requests):
            raise Unscaled("FailedGetResourceMetric", f"missing request for {name} in a container of pod "
                           f"{pod['metadata']['name']}")
        due = sum((exact(str(it[name])) for it in requests), Fraction(0)) * percent / 100
    else:
        due = exact(str(target["averageValue"]))
    return Use(used if is_ready else None, due)


def _current(uses: list[Use], asked: Thing) -> dict[str, Any]:
    known = [it for it in uses if it.used is not None]
    if not known:
        return {}
    used = sum((it.used for it in known if it.used is not None), Fraction(0))
    unit, factor = ("m", 1000) if asked["name"] == "cpu" else ("", 1)
    shown: dict[str, Any] = {"averageValue": f"{round(used * factor / len(known))}{unit}"}
    if percent := asked["target"].get("averageUtilization"):
        shown["averageUtilization"] = round(used / sum((it.due for it in known), Fraction(0)) * percent)
    return shown
