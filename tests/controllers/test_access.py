"""The controller does all that its roles grant, and nothing else: each verb that is granted is used."""

import ssl

from access import Grant, granted, needed
from simworld import World, cluster, job, node, pod, priority
from test_storage import LOCAL, MADE, claim, using, volume

from fairway import NAMESPACE
from fairway.cli.manifests import manifests, ref_of
from fairway.clock import VirtualClock, seeded
from fairway.controllers.certificates import Certificates
from fairway.controllers.idle import SERVED
from fairway.controllers.webhook import User, is_administrator
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response
from fairway.settings import Settings


class Watched:
    """The way to the server, with what was asked on it. The answer to one write of a status is lost."""

    def __init__(self, world: World) -> None:
        self._world, self._has_lost, self.used = world, False, set[Grant]()

    async def __call__(self, request: Request) -> Response:
        self.used.update(needed(request))
        answer = await self._world.server.handle(request)
        if request.method == "PATCH" and request.path.endswith("/workloads/job-b/status") and not self._has_lost:
            self._has_lost = True
            raise ConnectionError("cut")
        return answer


async def story(world: World) -> set[Grant]:
    """What is used while each thing that the controller can do happens once."""
    way = Watched(world)
    await world.client.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
    world.start(way, Settings())
    await world.apply(priority("high", 1000), pod("a", seconds=None), job("b", seconds=20, cpu="1"))
    await world.until(lambda: world.is_in("pod-a", "Running"))
    await world.until(lambda: world.is_in("job-b", "Running"))
    await world.apply(job("urgent", cpu="4", seconds=20, pod={"priorityClassName": "high"}))
    await world.until(lambda: world.is_in("job-urgent", "Running"))  # the bare pod is evicted, and made again
    await world.until(lambda: world.is_in("pod-a", "Running"))
    await world.delete(kinds.PODS, "a")
    await world.until(lambda: _is_gone(world, "pod-a"))
    elastic = {"completionMode": "Indexed", "annotations": {"fairway.dev/min-count": "1"}}
    await world.apply(job("elastic", cpu="1", parallelism=4, completions=4, **elastic))
    await world.until(lambda: _are_running(world, 4))
    await world.apply(job("more", cpu="2", seconds=20, pod={"priorityClassName": "high"}))
    await world.until(lambda: world.is_in("job-more", "Running"))  # the elastic one shrinks for it
    await world.clock.sleep(120)
    elastic = {"annotations": {"fairway.dev/min-count": "1"}, "completionMode": "Indexed"}
    await world.apply(job("many", cpu="1", seconds=60, parallelism=4, completions=4, **elastic))
    await world.until(lambda: world.is_in("job-many", "Running"))
    await world.apply(job("rush", cpu="2", seconds=20, pod={"priorityClassName": "high"}))
    await world.until(lambda: world.is_in("job-rush", "Running"))  # the elastic job shrinks
    await world.apply(LOCAL, MADE, volume("v", "n1", key="kubernetes.io/hostname"))
    await world.apply(claim("given", "local"), claim("made", "made"))
    await world.apply(using("stores", "given", "made"))
    await world.until(lambda: world.is_in("pod-stores", "Running"))
    month = {"apiVersion": "fairway.dev/v1alpha1", "kind": "UsageMonth", "metadata": {"name": "2026-12"}, "spec": {}}
    await world.client.create(kinds.USAGE_MONTHS, month)
    course = {"queue": "nobody", "nodes": ["gone"], "start": "2027-02-01T12:00:00Z", "duration": "2h"}
    meta = {"name": "course"}
    await world.apply({"apiVersion": "fairway.dev/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": course})
    await world.apply(job("computes", cpu="100m", seconds=20, gpus=1))
    await world.until(lambda: world.is_in("job-computes", "Succeeded"), seconds=200)
    await world.clock.sleep(700)  # what it used is charged
    await _park(world)
    await world.crash()
    await _certify(world, Client(way, world.clock, world.chance))
    return way.used


async def _park(world: World) -> None:
    """A session of each kind that is scaled to zero, or told to stop."""
    names = {"kind": "Notebook", "plural": "notebooks", "singular": "notebook", "listKind": "NotebookList"}
    form = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": form}]}  # fmt: skip
    await world.client.create(kinds.DEFINITIONS, {"metadata": {"name": "notebooks.kubeflow.org"}, "spec": spec})
    for chain in (("Deployment", "ReplicaSet"), ("Notebook", "StatefulSet")):
        above: list[dict[str, object]] = []
        for kind in chain:
            name, selector = kind.lower(), {"matchLabels": {"app": kind}}
            containers = [{"name": "main", "image": "none"}]
            template = {"metadata": {"labels": {"app": kind}}, "spec": {"containers": containers}}
            made = await world.client.create(SERVED[kind], {
                "apiVersion": SERVED[kind].group_version, "kind": kind,
                "metadata": {"name": name, "namespace": "default", "ownerReferences": above},
                "spec": {"replicas": 1, "selector": selector, "template": template}})  # fmt: skip
            above = [{"apiVersion": SERVED[kind].group_version, "kind": kind, "name": name, "controller": True,
                      "uid": made["metadata"]["uid"]}]  # fmt: skip
        await _session(world, chain[1].lower(), above)
    alone = await world.client.create(SERVED["StatefulSet"], {
        "metadata": {"name": "alone", "namespace": "default"},
        "spec": {"replicas": 1, "selector": selector, "template": template}})  # fmt: skip
    await _session(world, "alone", [above[0] | {"name": "alone", "uid": alone["metadata"]["uid"]}])
    await world.clock.sleep(120)


async def _session(world: World, name: str, above: list[dict[str, object]]) -> None:
    """A pod of such an owner that has been idle for long."""
    notes = {"fairway.dev/idle-timeout": "1m"}
    said = {"labels": {"fairway.dev/queue": "default"}, "annotations": notes, "ownerReferences": above}
    await world.apply(pod(name, seconds=None, cpu="100m", **said))
    await world.until(lambda: world.is_in(f"pod-{name}", "Running"))
    await world.mark(name, "fairway.dev/idle-since", "2027-01-15T08:00:00Z")


async def _certify(world: World, client: Client) -> None:
    """The webhook's certificate is made, told to the API server, and made anew where a part of it is lost. It asks who
    is an administrator."""
    for one in manifests():
        if one["kind"].endswith("WebhookConfiguration"):
            await world.client.create(ref_of(one).kind, one)
    door = Certificates(client, NAMESPACE, "0.0.0.0", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    await door.have()
    await world.client.patch(door.ref, {"data": {"ca.crt": None}})
    again = Certificates(client, NAMESPACE, "0.0.0.0", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    await again.have()
    assert not await is_administrator(client, User("ann"))


async def _are_running(world: World, count: int) -> bool:
    return len(await world.pods(phase="Running")) == count


async def _is_gone(world: World, workload: str) -> bool:
    return await world.phase(workload) == ""


def test_each_verb_that_is_granted_is_used_and_no_other_is() -> None:
    clock = VirtualClock(1_800_000_000.0)

    async def played() -> set[Grant]:
        async with cluster(clock, seeded(1), node("n1", gpus=1)) as world:
            return await story(world)

    used, may = clock.run(played()), granted()
    assert (used - may, may - used) == (set(), set())
