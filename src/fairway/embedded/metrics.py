"""`metrics.k8s.io`: what the pods and the node of this machine use now, for `kubectl top` and autoscalers.

Nothing is stored. An answer takes WINDOW_SECONDS: what processes used of the CPU in that time is the usage; memory is
what they hold at its end. Of hollow nodes and their pods nothing is known.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from fairway.api.quantities import time_text
from fairway.embedded.errors import Failure, method_not_allowed
from fairway.embedded.kinds import Column, Kind
from fairway.embedded.logs import Kubelet
from fairway.embedded.registry import Registry, Thing
from fairway.embedded.selector import label_test
from fairway.embedded.store import encode
from fairway.kube.transport import Request, Response
from fairway.node.processes import Use, used, used_by_all

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
WINDOW_SECONDS = 0.5
_PATH = re.compile(rf"/apis/{re.escape(GROUP)}/{VERSION}/(?:namespaces/([^/]+)/)?(pods|nodes)(?:/([^/]+))?")
_COLUMNS = (Column("Name", ".metadata.name"),)


@cache
def measured() -> tuple[Kind, ...]:
    """The two kinds, for discovery."""
    return tuple(Kind(GROUP, VERSION, name, plural, "", (), plural == "pods", (), frozenset(), _COLUMNS, {}, True)
                 for name, plural in (("NodeMetrics", "nodes"), ("PodMetrics", "pods")))


async def answer(registry: Registry, request: Request, kubelet: Kubelet | None) -> Response | None:
    """None: the path leads elsewhere."""
    found = _PATH.fullmatch(request.path)
    if not found:
        return None
    if request.method != "GET":
        raise method_not_allowed()
    namespace, plural, name = found.groups(default="")
    test = label_test(dict(request.query).get("labelSelector", ""))
    items = [] if kubelet is None else (
        await _of_node(registry, kubelet) if plural == "nodes" else await _of_pods(registry, kubelet, namespace))
    return _shown(plural, name, [it for it in items if test is None or test(it["metadata"].get("labels") or {})])


def _shown(plural: str, name: str, items: list[Thing]) -> Response:
    kind = "NodeMetrics" if plural == "nodes" else "PodMetrics"
    about = {"kind": kind, "apiVersion": f"{GROUP}/{VERSION}"}
    if not name:
        whole: Thing = about | {"kind": f"{kind}List", "metadata": {}, "items": items}
        return Response(200, {"content-type": "application/json"}, encode(whole))
    for it in items:
        if it["metadata"]["name"] == name:
            return Response(200, {"content-type": "application/json"}, encode(about | it))
    details = {"name": name, "group": GROUP, "kind": plural}
    raise Failure(404, "NotFound", f'{plural}.{GROUP} "{name}" not found', details=details)


async def _of_node(registry: Registry, kubelet: Kubelet) -> list[Thing]:
    clock = registry.clock
    before = await clock.in_thread(used_by_all)
    await clock.sleep(WINDOW_SECONDS)
    after = await clock.in_thread(used_by_all)
    nodes = [msgspec.json.decode(entry.value) for (_, name), entry in registry.store.objects("nodes").items()
             if name == kubelet.node]
    return [_about(registry, it) | {"usage": _usage(before, after)} for it in nodes]


async def _of_pods(registry: Registry, kubelet: Kubelet, namespace: str) -> list[Thing]:
    clock, pods = registry.clock, list(_running(registry, kubelet, namespace))
    shims = {pid for _, found in pods for pid in found.values()}

    def look() -> Mapping[int, Use]:
        return {pid: used([pid]) for pid in shims}

    before = await clock.in_thread(look)
    await clock.sleep(WINDOW_SECONDS)
    after = await clock.in_thread(look)
    return [_about(registry, pod) | {"containers": [
        {"name": name, "usage": _usage(before[pid], after[pid])} for name, pid in found.items()
    ]} for pod, found in pods]  # fmt: skip


def _running(registry: Registry, kubelet: Kubelet, namespace: str) -> Iterator[tuple[Thing, dict[str, int]]]:
    for place, entry in list(registry.store.objects("pods").items()):
        if namespace in ("", place[0]):
            pod = msgspec.json.decode(entry.value)
            on_it = pod["spec"].get("nodeName") == kubelet.node and pod["status"].get("phase") == "Running"
            if on_it and (found := kubelet.shims(*place)):
                yield pod, found


def _about(registry: Registry, thing: Thing) -> Thing:
    now, meta = time_text(int(registry.clock.now())), thing["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "labels") if meta.get(name)}
    return {"metadata": kept | {"creationTimestamp": now}, "timestamp": now, "window": f"{WINDOW_SECONDS:g}s"}


def _usage(before: Use, after: Use) -> dict[str, str]:
    """A process that ended in between takes what it used with it, so that this may be less than nothing."""
    nanos = max(0, round((after.cpu - before.cpu) / WINDOW_SECONDS * 1e9))
    return {"cpu": f"{nanos}n", "memory": f"{after.memory >> 10}Ki"}

