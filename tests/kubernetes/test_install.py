"""On a bare control plane: what `fairway install` prints is enough and no more; `fairway uninstall` leaves nothing."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import page
import pytest
import yaml
from access import Grant, granted
from plane import FAIRWAY, Plane, Thing, control_plane, missing, node, nodes, until
from test_local_volumes import ASKS, LOCAL, MADE, cleared, using, volume

from fairway.clock import Chance, Clock
from fairway.controllers.run import run
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import load
from fairway.kube.http import http_transport
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.kube.lease import micro_time
from fairway.kube.transport import Request, Response
from fairway.settings import Settings
from fairway.web.now import deciding
from fairway.web.world import World

CLUSTER_ROLES = Kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io/v1", is_namespaced=False)
DEPLOYMENTS = Kind("Deployment", "deployments", "apps/v1")
PARKS = {one for one in granted() if one[0] in ("apps", "kubeflow.org")}
"""To park sessions that are idle, which needs devices that tell how they are used."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    if why := missing():
        pytest.skip(why)
    with control_plane(tmp_path_factory.mktemp("bare"), is_bare=True) as plane:
        yield plane


async def printed(plane: Plane, script: str, status: int = 0) -> str:
    """What a piece of shell prints, as a page of docs/start has it; an administrator of the plane runs it."""
    home = plane.folder / "home"
    (home / ".kube").mkdir(parents=True, exist_ok=True)
    (home / ".kube" / "config").write_text(plane.kubeconfig().read_text())
    return await asyncio.to_thread(page.run, script, home, status=status)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@asynccontextmanager
async def controller(plane: Plane, client: Client, home: str = "fairway-system") -> AsyncIterator[None]:
    """The controllers and their webhook, outside, with a token of their service account. The answer to the first write
    of a Workload is lost."""
    port = free_port()
    await printed(plane, f"fairway install -n {home} --webhook-url https://127.0.0.1:{port} | kubectl apply -f -")
    path = f"/api/v1/namespaces/{home}/serviceaccounts/fairway-controller/token"
    said = await client.call(Request("POST", path, (), {"content-type": "application/json"}, b"{}"))
    account = replace(load([plane.kubeconfig()]), token=json.loads(said)["status"]["token"])
    lost: list[Request] = []
    async with http_transport(account) as transport:

        async def exchange(request: Request) -> Response:
            answer = await transport(request)
            if not lost and request.method == "PATCH" and "/workloads/" in request.path:
                lost.append(request)
                raise ConnectionError("cut")
            return answer

        door = "127.0.0.1", port
        task = asyncio.create_task(run(exchange, Settings(namespace=home), Clock(), Chance(), webhook=door))
        try:
            await until(lambda: _answers(client))
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _answers(client: Client) -> bool:
    """Whether the webhook lets a managed Job in."""
    with suppress(ApiError):
        return bool(await client.create(kinds.JOBS, job("probe", 1, 1), dry_run=True))
    return False


def audited(plane: Plane) -> Iterator[tuple[Grant, int]]:
    """What the controller asked for, and the code of the answer."""
    for line in plane.audit.read_text().splitlines():
        said = json.loads(line)
        about = said.get("objectRef") or {}
        is_of_anybody = about.get("apiGroup") == "authentication.k8s.io"
        if said["user"]["username"] == FAIRWAY and about.get("resource") and not is_of_anybody:
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            yield (about.get("apiGroup", ""), resource, said["verb"]), said["responseStatus"]["code"]


def labelled(kind: str, name: str, spec: Thing, **notes: str) -> Thing:
    version = "v1" if kind == "Pod" else "batch/v1"
    meta = {"name": name, "namespace": "default", "labels": {"fairway.dev/queue": "default"}, "annotations": notes}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def pod_spec(cpu: int, **more: str) -> Thing:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
    return {"restartPolicy": "Never", "containers": [container], "schedulerName": "fairway", **more}


def job(name: str, cpu: int, seconds: int, **more: str) -> Thing:
    template = {"metadata": {"annotations": {"fairway.dev/duration": f"{seconds}s"}}, "spec": pod_spec(cpu, **more)}
    return labelled("Job", name, {"suspend": True, "template": template})


async def phase(client: Client, workload: str) -> str:
    found = await client.list(Selection(kinds.WORKLOADS, "default", fields=f"metadata.name={workload}"))
    return found[0].get("status", {}).get("phase", "") if found else "none"


async def test_a_cluster_gets_fairway_runs_jobs_and_loses_it_again(bare: Plane) -> None:
    """One story, since a control plane costs many seconds: each part starts from what the one before left."""
    async with bare.client() as admin:
        with bare.scheduler():
            async with nodes(admin, node("n1", cpu=6, gpus=8), node("n2", cpu=2, gpus=8)):
                await _installed(bare)
                await _only_what_is_granted(bare, admin)
                await _checked(bare, admin)
                await _upgraded(bare, admin)
                await _decided_outside(bare, admin)
                await _uninstalled(bare, admin)


async def _installed(plane: Plane) -> None:
    _, install, check, *_ = page.blocks("start/install-on-a-cluster.md")
    lacking = await printed(plane, check, status=1)
    assert "CustomResourceDefinition workloads.fairway.dev: missing; apply what `fairway install` prints" in lacking
    assert "no controller runs" in lacking
    refused = await printed(plane, f"fairway submit --image busybox --kubeconfig {plane.kubeconfig('ann')} -- true", 1)
    assert refused == "fairway: Fairway is not installed on this cluster; `fairway install` prints what it needs\n"
    first, again = await printed(plane, install), await printed(plane, install)
    assert {line.rpartition(" ")[2] for line in first.splitlines()} == {"created"}
    changed = {line.partition("/")[0] for line in again.splitlines() if not line.endswith(" unchanged")}
    for command in ("ls", "queues"):
        assert "no scheduler has decided yet: " in await printed(plane, f"fairway {command}")
    closed = await printed(plane, "fairway submit --image busybox --wait-anyway -- true", status=1)
    assert closed.startswith("fairway: Fairway's webhook does not answer, so nothing is let in; no controller")
    always_sent = {"poddisruptionbudget.policy"}  # its selector
    assert {kind for kind in changed if not kind.endswith(".admissionregistration.k8s.io")} == always_sent


async def _only_what_is_granted(plane: Plane, admin: Client) -> None:
    """Each thing that the controller can do happens once; it uses each verb of its roles, and is refused none."""
    high, may = {"metadata": {"name": "urgent"}, "value": 1000}, granted() - PARKS
    await admin.create(kinds.PRIORITY_CLASSES, high)
    async with controller(plane, admin):
        await admin.create(kinds.PODS, labelled("Pod", "a", pod_spec(5)))
        await admin.create(kinds.JOBS, job("b", 1, 5))
        await until(lambda: _runs(admin, "a"))
        await until(lambda: _is(admin, "job-b", "Succeeded"))
        await admin.create(kinds.JOBS, job("c", 5, 2, priorityClassName="urgent"))
        await until(lambda: _is(admin, "job-c", "Succeeded"))  # the bare pod is evicted, and made again
        await until(lambda: _is(admin, "pod-a", "Running"))
        elastic = job("e", 1, 600)
        elastic["metadata"]["annotations"] = {"fairway.dev/min-count": "1"}
        elastic["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
        elastic["spec"] |= {"completionMode": "Indexed", "parallelism": 6, "completions": 6}
        pod = Ref(kinds.PODS, "a", "default")
        await admin.patch(pod, {"metadata": {"finalizers": ["example.com/lingers"]}})
        await admin.delete(pod, grace=0)
        await until(lambda: _is(admin, "pod-a", "none"))
        await admin.patch(pod, {"metadata": {"finalizers": None}})
        await admin.create(kinds.JOBS, elastic)
        await until(lambda: _holds(admin, "e", 6))
        await admin.create(kinds.JOBS, job("f", 5, 2, priorityClassName="urgent"))
        await until(lambda: _is(admin, "job-f", "Succeeded"))  # the elastic one shrinks for it
        await admin.delete(Ref(kinds.JOBS, "e", "default"))  # what it used is charged at once
        month = {"apiVersion": "fairway.dev/v1alpha1", "kind": "UsageMonth", "metadata": {"name": "2026-10"}}
        await admin.create(kinds.USAGE_MONTHS, month)
        window = {"queue": "default", "pool": "default", "amount": {"cpu": "1"}, "start": "2099-01-01T00:00:00Z",
                  "duration": "1h"}  # fmt: skip
        reservation = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "later"}}
        await admin.create(kinds.RESERVATIONS, {**reservation, "spec": window})
        vital = labelled("Pod", "vital", pod_spec(1, priorityClassName="system-node-critical"))
        await admin.create(kinds.PODS, vital, dry_run=True)  # the webhook asks whether an administrator may
        await _stores(admin)
        certificate = Ref(kinds.SECRETS, "fairway-webhook-tls", "fairway-system")
        await admin.patch(certificate, {"data": {"ca.crt": None}})  # it is made anew

        async def all_used() -> bool:
            return may <= {one for one, _ in audited(plane)}

        with suppress(TimeoutError):
            await until(all_used, seconds=70)
    used = set(audited(plane))
    assert {one for one, code in used if code == 403} == set()
    assert ({one for one, _ in used} - may - PARKS, may - {one for one, _ in used}) == (set(), set())


async def _stores(admin: Client) -> None:
    """One claim is given a free volume, another the node to make one on."""
    (first, *_) = await admin.list(Selection(kinds.NODES))
    await admin.create(kinds.VOLUMES, volume("free", first["metadata"]["name"]))
    for kind in (LOCAL, MADE):
        name = kind["metadata"]["name"]
        await admin.create(kinds.STORAGE_CLASSES, kind)
        spec = {**ASKS, "storageClassName": name}
        await admin.create(kinds.CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        await admin.create(kinds.PODS, using(f"with-{name}", {"persistentVolumeClaim": {"claimName": name}}))
    for name in ("with-local", "with-made"):
        await until(lambda name=name: _runs(admin, name))
    await cleared(admin)


async def _holds(client: Client, name: str, count: int) -> bool:
    pods = await client.list(Selection(kinds.PODS, "default", labels=f"job-name={name}"))
    return sum(it["status"]["phase"] == "Running" for it in pods) == count


async def _runs(client: Client, pod: str) -> bool:
    """A pod that never waited has no Workload that says so."""
    found = await client.find(Ref(kinds.PODS, pod, "default"))
    return found is not None and found["status"].get("phase") == "Running"


async def _is(client: Client, workload: str, wanted: str) -> bool:
    return await phase(client, workload) == wanted


async def _checked(plane: Plane, admin: Client) -> None:
    await until(lambda: _available(admin))
    async with controller(plane, admin):
        await until(lambda: _leads(admin))
        await printed(plane, page.blocks("start/install-on-a-cluster.md")[1])
        hooks = (await admin.get(Ref(kinds.MUTATING_WEBHOOKS, "fairway")))["webhooks"]
        assert all(hook["clientConfig"]["caBundle"] for hook in hooks)  # applied again, they are still trusted
        complete = await printed(plane, "fairway install --check")
        assert complete == "complete: nothing is missing, and a controller runs\n"
        looked = [await printed(plane, block) for block in page.blocks("start/troubleshoot-a-cluster.md")]
        assert looked[0] == complete and "fairway-webhook" in looked[2] and looked[1].rstrip().endswith("Z")
        role = Ref(CLUSTER_ROLES, "fairway-controller")
        rules = (await admin.get(role))["rules"]
        await admin.patch(role, {"rules": [one for one in rules if one["resources"] != ["pods/binding"]]})
        lacking = await printed(plane, "fairway install --check", status=1)
        assert lacking.startswith(f"{FAIRWAY} may not create pods/binding;")
        await admin.patch(role, {"rules": rules})


async def _upgraded(plane: Plane, admin: Client) -> None:
    """A job runs on, in the pod that it had, while manifests are applied and another controller takes over."""
    async with controller(plane, admin):
        await admin.create(kinds.JOBS, job("r", 1, 600))
        await until(lambda: _is(admin, "job-r", "Running"))
        before = await _pods(admin, "r")
        for role in ("fairway-view", "system:aggregate-to-view"):  # a user's, no administrator's
            await printed(plane, f"kubectl create rolebinding ann-{role[:7]} --clusterrole={role} --user=ann")
        seen = await printed(plane, f"fairway status r --kubeconfig {plane.kubeconfig('ann')}")
        assert re.search(r"^r-\w+ +Running +n", seen, re.MULTILINE)
        await _modified(plane)
        for block in page.blocks("start/upgrade-on-a-cluster.md"):
            await printed(plane, block)
    async with controller(plane, admin):
        await until(lambda: _leads(admin))
        await admin.create(kinds.JOBS, job("s", 1, 1))
        await until(lambda: _is(admin, "job-s", "Succeeded"))
        assert await _pods(admin, "r") == before and await _is(admin, "job-r", "Running")
        await admin.delete(Ref(kinds.JOBS, "r", "default"))
        await until(lambda: _is(admin, "job-r", "none"))


async def _modified(plane: Plane) -> None:
    """By a user who may edit what runs in a namespace, and see no queues and priorities."""
    for role in ("fairway-edit", "system:aggregate-to-edit"):
        await printed(plane, f"kubectl create rolebinding ann-{role[:9]} --clusterrole={role} --user=ann")
    as_ann = f"--kubeconfig {plane.kubeconfig('ann')}"
    said = await printed(plane, f"fairway modify r --queue default --priority urgent {as_ann}")
    assert said == "r modified: queue default, priority urgent\n"


async def _decided_outside(plane: Plane, admin: Client) -> None:
    """By a process of its own, as the page has it; a signal ends it in order."""
    address = f"127.0.0.1:{free_port()}"
    prepare, start = page.blocks("start/install-on-a-cluster.md")[3:]
    await printed(plane, prepare.replace("fairway.example.com:9443", address))
    users = yaml.safe_load((plane.folder / "home" / "fairway.kubeconfig").read_text())["users"]
    assert [it["name"] for it in users] == ["fairway"]  # nobody's that could do more
    lacking = await printed(plane, f"fairway install --check --webhook-url https://{address}", status=1)
    assert lacking.endswith("; start `fairway controller`\n") and len(lacking.splitlines()) == 1
    words = start.replace("0.0.0.0:9443", address).split()[1:]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairway", *words, cwd=plane.folder / "home")
    await until(lambda: _answers(admin))
    await admin.create(kinds.JOBS, job("outside", 1, 1))
    await until(lambda: _is(admin, "job-outside", "Succeeded"))
    process.terminate()
    assert await process.wait() == 0 and not await _leads(admin)


async def _pods(client: Client, name: str) -> list[str]:
    found = await client.list(Selection(kinds.PODS, "default", labels=f"job-name={name}"))
    return [it["metadata"]["uid"] for it in found]


async def _available(client: Client) -> bool:
    found = await client.get(Ref(DEPLOYMENTS, "fairway-controller", "fairway-system"))
    return found["status"].get("availableReplicas") == 2


async def _leads(client: Client, home: str = "fairway-system") -> bool:
    lease = await client.find(Ref(kinds.LEASES, "fairway-controller", home))
    return bool(lease and lease["spec"].get("holderIdentity"))


async def _lead(client: Client, pod: str) -> None:
    """The controller in this pod leads; it does not give the lease up when it is killed."""
    held = {"holderIdentity": pod, "renewTime": micro_time(client.clock.now()), "leaseDurationSeconds": 15}
    await client.patch(Ref(kinds.LEASES, "fairway-controller", "fairway-system"), {"spec": held})


async def _uninstalled(plane: Plane, admin: Client) -> None:
    """A namespace that is deleted while no controller runs hangs until its charge is given up; then all goes."""
    await admin.create(kinds.NAMESPACES, {"metadata": {"name": "ml"}})
    async with controller(plane, admin):
        await until(lambda: _leads(admin))
        await admin.create(kinds.JOBS, {**job("d", 1, 600), "metadata": {
            "name": "d", "namespace": "ml", "labels": {"fairway.dev/queue": "default"}}})
        await admin.create(kinds.JOBS, job("waits", 100, 600))

        async def has_both() -> bool:
            return len([it for it in await admin.list(Selection(kinds.WORKLOADS))
                        if it.get("status", {}).get("phase") in ("Running", "Pending")]) == 2

        await until(has_both)
        refused = await printed(plane, "fairway uninstall --yes", status=1)
        assert refused.startswith("fairway: a controller still renews the lease") and await _answers(admin)
        assert await _available(admin)  # nothing was touched, nor what runs inside
    await admin.delete(Ref(kinds.NAMESPACES, "ml"))

    async def told() -> bool:
        said = await printed(plane, "fairway install --check", status=1)
        return "Namespace ml: waits for the finalizer fairway.dev/charge of 1 Workloads" in said

    uninstall, give_up = page.blocks("start/uninstall-from-a-cluster.md")
    await until(told)
    await printed(plane, give_up)
    await until(lambda: _is_gone(admin, "ml"))
    await _lead(admin, (await admin.list(Selection(kinds.PODS, "fairway-system")))[0]["metadata"]["name"])
    said = await printed(plane, uninstall)  # a controller in a pod goes with its Deployment
    assert "1 Jobs name the scheduler fairway, default/waits first; " in said
    await until(lambda: _is_gone(admin, "fairway-system"))
    lacking = (await printed(plane, "fairway install --check", status=1)).splitlines()
    assert all(": missing; " in line for line in lacking[:-1])
    assert "Fairway is not installed on this cluster" in await printed(plane, "fairway ls", status=1)


async def _is_gone(client: Client, namespace: str) -> bool:
    return not await client.list(Selection(kinds.NAMESPACES, fields=f"metadata.name={namespace}"))


async def test_fairway_in_another_namespace_is_found_by_every_command_and_removed_by_none_that_does_not_name_it(
    bare: Plane,
) -> None:
    check = "fairway install --check --webhook-url https://127.0.0.1:1"
    async with bare.client() as admin:
        async with controller(bare, admin, "scheduling"):
            await until(lambda: _leads(admin, "scheduling"))
            assert await printed(bare, f"{check} -n scheduling") == (
                "complete: nothing is missing, and a controller runs\n")  # fmt: skip
            assert await printed(bare, check, status=1) == (
                "Fairway is installed in namespace scheduling, not in fairway-system; check with -n scheduling\n")
            assert "no scheduler" not in await printed(bare, "fairway ls")
            world = World(admin, "default")
            await world.seen()
            assert world.controller == "scheduling" and deciding(world, admin.clock.now())[0]
            await world.stop()
            assert await printed(bare, "fairway uninstall --yes", status=2) == (
                "fairway: --namespace: found fairway-system; Fairway is installed in scheduling: "
                "uninstall with -n scheduling\n")  # fmt: skip
            assert await printed(bare, "fairway install", status=2) == (
                "fairway: --namespace: found fairway-system; Fairway is installed in scheduling: "
                "upgrade with -n scheduling, or `fairway uninstall -n scheduling` first\n")  # fmt: skip
            assert await printed(bare, "KUBECONFIG=/dev/null fairway install") != ""  # it may be for another cluster
            assert await _answers(admin)
        await printed(bare, "fairway uninstall --yes -n scheduling")
        await until(lambda: _is_gone(admin, "scheduling"))
        lacking = (await printed(bare, f"{check} -n scheduling", status=1)).splitlines()
        assert all(": missing; " in line for line in lacking[:-1])
