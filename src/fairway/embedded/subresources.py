"""Pods' binding and eviction.

A binding gives a pod its node once. An eviction is a delete that asks the pod's PodDisruptionBudget first; the budget
is counted when asked, from the pods as they are.
"""

from dataclasses import replace
from typing import Any

import msgspec

from fairway.api.quantities import time_text
from fairway.embedded import deletion
from fairway.embedded.budgets import BUDGETS, counted, guards, is_ready
from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request, conflict
from fairway.embedded.registry import Registry, Thing, expect
from fairway.embedded.store import encode
from fairway.embedded.writing import warned
from fairway.kube.transport import Response

_JSON = {"content-type": "application/json"}
decode = msgspec.json.decode


def bind(registry: Registry, call: Call) -> Response:
    thing, write = call.thing(), call.write()
    target = thing.get("target") or {}
    if not target.get("name") or target.get("kind", "Node") not in ("", "Node"):
        raise bad_request("a binding needs target.kind Node and target.name")
    pod = registry.current(call.resource, call.key)
    if why := _unbindable(pod):
        raise conflict(replace(call.resource.kind, plural="pods/binding"), call.name, why=why)
    expect(pod, {**thing["metadata"], "resourceVersion": ""}, kind=call.resource.kind)
    pod["spec"]["nodeName"] = target["name"]
    for part in ("annotations", "labels"):
        if added := thing["metadata"].get(part):
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **added}
    now = time_text(int(registry.clock.now()))
    _condition(pod, {"lastTransitionTime": now, "status": "True", "type": "PodScheduled"})
    registry.replace(pod, write)
    return warned(_success(201), write)


def _unbindable(pod: Thing) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    return ""


def evict(registry: Registry, call: Call) -> Response:
    thing, write = call.thing(), call.write()
    asked = call if not thing.get("deleteOptions") else call.with_body(thing["deleteOptions"])
    how, dry = deletion.options(asked), deletion.writing(asked)
    pod = registry.current(call.resource, call.key)
    if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
        _ask_budgets(registry, pod)
    if not dry.dry_run and pod["spec"].get("nodeName"):
        _condition(pod, {"lastTransitionTime": time_text(int(registry.clock.now())),
                         "message": "Eviction API: evicting", "reason": "EvictionByEvictionAPI", "status": "True",
                         "type": "DisruptionTarget"})
        pod = decode(encode(registry.replace(pod, write)))
    deletion.delete(registry, pod, how=how, write=dry)
    return warned(_success(201), write)


def _ask_budgets(registry: Registry, pod: Thing) -> None:
    """Fails with 429 where the pod's budget has no room for one more disruption."""
    ours = [each for each in registry.latest(BUDGETS, pod["metadata"]["namespace"]) if guards(each, pod)]
    if len(ours) > 1:
        raise Failure(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction "
                      "subresource does not support.")
    for budget in ours:
        counts = counted(registry, budget)
        healthy, needed = counts["currentHealthy"], counts["desiredHealthy"]
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if healthy > needed or (not is_ready(pod) and (always or healthy == needed > 0)):
            continue
        cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget['metadata']['name']} needs "
                 f"{needed} healthy pods and has {healthy} currently"}
        raise Failure(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.",
                      details={"causes": [cause]})


def _condition(pod: Thing, condition: dict[str, Any]) -> None:
    status = pod.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    status["conditions"] = [*others, condition]


def _success(status: int) -> Response:
    return Response(status, _JSON, encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                                           "code": status}))
