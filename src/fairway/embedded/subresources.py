"""Pods' binding, eviction and log, and the questions that are answered and not kept (who am I, may I).

A binding gives a pod its node once. An eviction is a delete that asks the pod's PodDisruptionBudget first; the budget
is counted when asked, from the pods as they are. Logs come from whoever runs the pods, through the function given to
the server. Everything is allowed: the server has one user.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from fairway.api.quantities import Malformed, time, time_text
from fairway.embedded import deletion
from fairway.embedded.budgets import BUDGETS, counted, guards, is_ready
from fairway.embedded.call import Call
from fairway.embedded.errors import Failure, bad_request, conflict, not_found
from fairway.embedded.registry import Registry, Thing, expect
from fairway.embedded.store import encode
from fairway.embedded.writing import warned
from fairway.kube.transport import Response
from fairway.node.logs import LogOptions

_JSON = {"content-type": "application/json"}
decode = msgspec.json.decode


Logs = Callable[[str, str, str, LogOptions], Awaitable[bytes | AsyncIterator[bytes]]]  # namespace, pod, container


async def no_logs(namespace: str, pod: str, container: str, options: LogOptions) -> bytes:
    return b""


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


# -- log

async def log(registry: Registry, call: Call, logs: Logs) -> Response:
    entry = registry.store.get(call.key)
    if entry is None:
        raise not_found(call.resource.kind, call.name)
    pod = decode(entry.value)
    container, options = _container(call, pod), _log_options(registry, call)
    if not pod["spec"].get("nodeName"):
        return Response(200, {"content-type": "text/plain"}, b"")
    status = _status_of(pod, container)
    state, ended = status.get("state") or {}, "terminated" in (status.get("lastState") or {})
    if options.previous and not ended:
        raise bad_request(f'previous terminated container "{container}" in pod "{call.name}" not found')
    if "waiting" in state and not ended:
        raise bad_request(f'container "{container}" in pod "{call.name}" is waiting to start: '
                          f"{state['waiting'].get('reason', 'ContainerCreating')}")
    return Response(200, {"content-type": "text/plain"}, await logs(call.namespace, call.name, container, options))


def _container(call: Call, pod: Thing) -> str:
    spec, asked = pod["spec"], call.query.get("container", "")
    names = [each["name"] for each in spec["containers"]]
    inits = [each["name"] for each in spec.get("initContainers") or ()]
    if not asked and len(names) > 1:
        also = f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        raise bad_request(f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(names)}]"
                          f"{also}")
    if asked and asked not in names + inits:
        raise bad_request(f"container {asked} is not valid for pod {call.name}")
    return asked or names[0]


def _status_of(pod: Thing, container: str) -> dict[str, Any]:
    statuses = [*(pod["status"].get("containerStatuses") or ()), *(pod["status"].get("initContainerStatuses") or ())]
    return next((each for each in statuses if each["name"] == container), {})


def _log_options(registry: Registry, call: Call) -> LogOptions:
    ago, since, tail, limit = (call.number("sinceSeconds"), call.query.get("sinceTime"), call.number("tailLines"),
                               call.number("limitBytes"))
    if (ago is not None and (ago < 1 or since)) or (tail or 0) < 0 or (limit is not None and limit < 1):
        raise Failure(422, "Invalid", 'PodLogOptions "" is invalid: sinceSeconds and limitBytes must be greater than '
                      "0, tailLines must not be negative, at most one of sinceTime or sinceSeconds may be specified")
    try:
        moment = registry.clock.now() - ago if ago else time(since) if since else None
    except Malformed as error:
        raise bad_request(f"sinceTime: {error}") from error
    return LogOptions(call.flag("follow"), call.flag("previous"), call.flag("timestamps"), tail, limit, moment)


# -- questions

def review(registry: Registry, call: Call) -> Response:
    """Answers who asks, and that everything is allowed."""
    thing = call.thing()
    user = {"username": call.user, "groups": ["system:masters", "system:authenticated"]}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    answers: dict[str, dict[str, Any]] = {
        "selfsubjectreviews": {"userInfo": user},
        "selfsubjectrulesreviews": {"resourceRules": [everything], "incomplete": False,
                                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]},
        "tokenreviews": {"authenticated": False, "error": "this server reviews no tokens"},
    }
    thing["status"] = answers.get(call.resource.kind.plural, {"allowed": True, "reason": "everything is allowed here"})
    return Response(201, _JSON, encode(call.resource.ordered(thing)))


def _success(status: int) -> Response:
    return Response(status, _JSON, encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                                           "code": status}))
