"""The webhook on a real API server, beside a running kube-scheduler; and what holds while nobody answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from plane import PATIENCE_SECONDS, Plane, Thing, fairway, free_ports, node, nodes, until
from test_other_scheduler import JOBS, ends, job

from fairway.cli.main import cli
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.kube.transport import Request

PARTS = {
    kind: Kind(kind, plural, "admissionregistration.k8s.io/v1", is_namespaced=False)
    for kind, plural in (
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
SERVICES, DEPLOYMENTS = Kind("Service", "services"), Kind("Deployment", "deployments", "apps/v1")
Address = tuple[str, int]


@asynccontextmanager
async def installed(admin: Client, address: Address, *, by_service: bool = False) -> AsyncIterator[None]:
    """What `fairway install` says of admission, for a controller at this address, is there and in force. With
    `by_service` it is called as in a cluster, by the name of its Service, which leads to this machine."""
    options = [] if by_service else ["--webhook-url", f"https://{address[0]}:{address[1]}"]
    printed = CliRunner(env={"KUBECONFIG": "/dev/null"}).invoke(cli, ["install", *options])  # it asks no cluster
    things = [one for one in yaml.safe_load_all(printed.output) if one["kind"] in PARTS]
    assert {one["kind"] for one in things} == PARTS.keys()
    if by_service:
        ports = [{"port": address[1]}]
        leads = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
        meta = {"name": "fairway-webhook", "namespace": "fairway-system"}
        await admin.create(SERVICES, {"metadata": meta, "spec": leads})
    for one in things:
        for hook in one.get("webhooks", ()) if by_service else ():
            hook["clientConfig"]["service"]["port"] = address[1]
        await admin.create(PARTS[one["kind"]], one)
    try:
        yield
    finally:
        for one in things:
            await admin.delete(Ref(PARTS[one["kind"]], one["metadata"]["name"]))
        await admin.delete(Ref(SERVICES, "fairway-webhook", "fairway-system"))


async def answered(ann: Client) -> None:
    """Returns once the webhook lets in what is managed, and the policies are in force: the last of them is."""

    async def is_let_in() -> bool:
        try:
            await ann.create(kinds.JOBS, job("probe"), dry_run=True)
        except ApiError as error:
            assert "failed calling webhook" in error.message, error
            return False
        return True

    await until(is_let_in)
    lies = pod("x", annotations={"fairway.dev/user": "bob"})
    await until(lambda: is_told(ann, kinds.PODS, lies))


def pod(name: str, namespace: str = "default", **meta: Any) -> Thing:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": {"name": name, "namespace": namespace, **meta}, "spec": spec}


@asynccontextmanager
async def served(plane: Plane) -> AsyncIterator[tuple[Client, Client]]:
    """An administrator and a user, once the webhook answers."""
    address = ("127.0.0.1", free_ports(1)[0])
    async with (
        plane.client() as admin, plane.client("ann") as ann, installed(admin, address), fairway(plane, webhook=address)
    ):  # fmt: skip
        await answered(ann)
        yield admin, ann


LABELS = {"fairway.dev/queue": "default"}
OVER: Thing = {
    "apiVersion": "fairway.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "over"},
    "spec": {"queue": "default", "pool": "default", "amount": {"cpu": "1"}, "duration": "1h",
             "start": "2020-01-01T00:00:00Z"},
}  # fmt: skip


async def refusal(work: Any) -> str:
    with pytest.raises(ApiError) as told:
        await work
    return told.value.message


async def test_every_default_job_succeeds_and_none_is_bound_by_another(plane: Plane) -> None:
    address = ("127.0.0.1", free_ports(1)[0])
    async with plane.client() as admin, plane.client("ann") as ann, installed(admin, address):
        with plane.scheduler():
            async with (
                nodes(admin, *(node(f"n{index}") for index in range(5))), fairway(plane, webhook=address)
            ):  # fmt: skip
                await answered(ann)
                await asyncio.gather(*(
                    ann.create(kinds.JOBS, job(f"w{index}", parallelism=1 + index % 3)) for index in range(JOBS)
                ))
                made = await admin.list(Selection(kinds.JOBS, "default"))
                jobs = [it for it in made if it["metadata"]["name"].startswith("w")]
                assert await ends(admin, [it["metadata"]["name"] for it in jobs]) == {"Complete": JOBS}
                events = await admin.list(Selection(kinds.EVENTS, "default"))
    mine = {it["metadata"]["annotations"]["fairway.dev/user"] for it in jobs}
    schedulers = {it["spec"]["template"]["spec"]["schedulerName"] for it in jobs}
    bound = [it for it in events if it["reason"] == "Scheduled" and it["involvedObject"]["name"].startswith("w")]
    assert (mine, schedulers, bound) == ({"ann"}, {"fairway"}, [])


async def test_users_are_stamped_and_only_the_controller_admits(plane: Plane) -> None:
    address = ("127.0.0.1", free_ports(1)[0])
    async with plane.client() as admin, plane.client("ann") as ann, installed(admin, address, by_service=True):
        async with fairway(plane, webhook=address):
            await answered(ann)
            made = await ann.create(kinds.PODS, pod("p", labels=LABELS, annotations={"fairway.dev/user": "boss"}))
            await until(lambda: is_there(ann, "pod-p"))
        assert made["metadata"]["annotations"]["fairway.dev/user"] == "ann"
        assert made["spec"]["schedulingGates"] == [{"name": "fairway.dev/admission"}]
        own, workload = Ref(kinds.PODS, "p", "default"), Ref(kinds.WORKLOADS, "pod-p", "default")
        said = await refusal(ann.patch(workload, {"status": {"phase": "Running"}}, subresource="status"))
        assert "only the Fairway controller writes it" in said
        for change in ({"spec": {"schedulingGates": None}}, {"metadata": {"annotations": {"fairway.dev/user": "eve"}}}):
            await refusal(ann.patch(own, change))
        await admin.delete(own)
        await admin.patch(workload, {"metadata": {"finalizers": None}})
        await admin.delete(workload)


async def test_a_pod_keeps_its_part_of_a_gpu_once_it_is_admitted(plane: Plane) -> None:
    notes, less = ({"fairway.dev/gpu-fraction": part} for part in ("0.99", "0.01"))
    own = Ref(kinds.PODS, "part", "default")
    async with served(plane) as (admin, ann):
        await ann.create(kinds.PODS, pod("part", labels=LABELS, annotations=notes))
        await admin.patch(own, {"spec": {"schedulingGates": None}})
        said = await refusal(ann.patch(own, {"metadata": {"annotations": less}}))
        assert "it is '0.99', and does not change once the pod is admitted" in said
        await admin.delete(own)


async def test_without_the_webhook_a_policy_keeps_what_a_bound_pod_holds(plane: Plane) -> None:
    notes = {"fairway.dev/gpu-fraction": "0.99", "fairway.dev/freeze": "x", "fairway.dev/attempt": "job-a/u/1"}
    own, lies = Ref(kinds.PODS, "held", "default"), pod("x", annotations={"fairway.dev/user": "bob"})
    async with plane.client() as admin, plane.client("ann") as ann, installed(admin, ("127.0.0.1", free_ports(1)[0])):
        await until(lambda: is_told(ann, kinds.PODS, lies))
        made = await admin.create(kinds.PODS, pod("held", annotations=notes))
        await admin.bind(own, "none", uid=made["metadata"]["uid"])
        forged = pod("forged", annotations={"fairway.dev/attempt": "job-a/u/1", "fairway.dev/in-queue": "victim"})
        assert "only the Fairway controller writes" in await refusal(ann.create(kinds.PODS, forged))
        for key, said in (("gpu-fraction", "an admitted pod keeps"), ("freeze", "only the Fairway controller")):
            change = {"metadata": {"annotations": {f"fairway.dev/{key}": None}}}
            assert said in await refusal(ann.patch(own, change))
        await admin.delete(own, grace=0)


async def test_only_administrators_name_the_priorities_of_the_system(plane: Plane) -> None:
    async with served(plane) as (admin, ann):
        vital = job("vital")
        vital["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
        bare = pod("vital", labels=LABELS)
        bare["spec"]["priorityClassName"] = "system-cluster-critical"
        noted = pod("vital", labels=LABELS, annotations={"fairway.dev/priority-class": "system-node-critical"})
        for kind, made, field in (
            (kinds.JOBS, vital, "spec.template.spec.priorityClassName"),
            (kinds.PODS, bare, "spec.priorityClassName"),
            (kinds.PODS, noted, "metadata.annotations[fairway.dev/priority-class]"),
        ):
            said = await refusal(ann.create(kind, made, dry_run=True))
            assert f"{field}: found system-" in said
            assert "; only an administrator uses the priorities of the system; choose another" in said
            await admin.create(kind, made, dry_run=True)
        del bare["metadata"]["labels"]
        await ann.create(kinds.PODS, bare, dry_run=True)  # what is not managed is the cluster's matter


async def test_a_queue_that_is_not_valid_is_seen_in_a_list(plane: Plane) -> None:
    async with served(plane) as (admin, _):
        for name, parent in (("ring", "ring"), ("root", "")):
            spec = {"parent": parent} if parent else {}
            made = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
            await admin.create(kinds.QUEUES, made)

        async def shown() -> dict[str, str]:
            table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            said = json.loads(await admin.call(Request("GET", "/apis/fairway.dev/v1alpha1/queues", (), table)))
            at = [it["name"] for it in said["columnDefinitions"]].index("Valid")
            return {row["cells"][0]: row["cells"][at] for row in said["rows"]}

        async def is_shown() -> bool:
            found = await shown()
            return (found["ring"], found["root"]) == ("Cycle", "Valid")

        await until(is_shown)
        for name in ("ring", "root"):
            await admin.delete(Ref(kinds.QUEUES, name))


async def test_a_pod_with_an_owner_that_is_not_its_own_counts_as_its_makers(plane: Plane) -> None:
    async with served(plane) as (admin, ann):
        mine = await ann.create(kinds.JOBS, job("mine"))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mine", "uid": mine["metadata"]["uid"]}
        await ann.create(kinds.PODS, pod("p", labels=LABELS, ownerReferences=[{**owner, "controller": True}]))
        where = Ref(kinds.PODS, "p", "default")

        async def is_released() -> Thing | None:
            found = await admin.get(where)
            return None if found["metadata"].get("ownerReferences") else found

        released = await until(is_released)
        assert released["metadata"]["annotations"]["fairway.dev/user"] == "ann"
        await admin.delete(where)
        await admin.delete(Ref(kinds.JOBS, "mine", "default"))


async def test_a_managed_namespace_needs_no_label_and_bad_input_names_its_field(plane: Plane) -> None:
    address = ("127.0.0.1", free_ports(1)[0])
    async with plane.client() as admin, plane.client("ann") as ann, installed(admin, address):
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": "lab", "labels": {"fairway.dev/managed": "true"}}})
        async with fairway(plane, webhook=address):
            await answered(ann)
            plain = job("plain")
            plain["metadata"] = {"name": "plain", "namespace": "lab"}
            queued = await ann.create(kinds.JOBS, plain, dry_run=True)
            plain["metadata"]["namespace"] = "default"
            left_alone = await ann.create(kinds.JOBS, plain, dry_run=True)
            said = await refusal(ann.create(kinds.RESERVATIONS, OVER))
        await admin.delete(Ref(kinds.NAMESPACES, "lab"))
    assert queued["spec"]["suspend"] and queued["spec"]["template"]["spec"]["schedulerName"] == "fairway"
    assert not left_alone["spec"].get("suspend") and "annotations" not in left_alone["metadata"]
    assert "spec.start: found 2020-01-01T00:00:00Z, which is over" in said


async def test_a_workload_stays_until_it_is_charged_whatever_its_user_removes(plane: Plane) -> None:
    """Deleted, or in a namespace that is, it goes once the controller or an administrator takes its finalizer off."""
    off = {"metadata": {"finalizers": None}}
    async with plane.client() as admin, plane.client("ann") as ann, plane.client("fairway") as controller:
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": "owes"}})
        for name in ("a", "b"):
            meta = {"name": name, "namespace": "owes", "finalizers": ["fairway.dev/charge", "example.com/own"]}
            made = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "spec": {}, "metadata": meta}
            await ann.create(kinds.WORKLOADS, made)
        one, other = (Ref(kinds.WORKLOADS, name, "owes") for name in ("a", "b"))
        async with installed(admin, ("127.0.0.1", free_ports(1)[0])):  # nothing answers there
            await until(lambda: is_told(ann, kinds.PODS, pod("x", annotations={"fairway.dev/user": "bob"})))
            for left in (["example.com/own"], None):
                said = await refusal(ann.patch(one, {"metadata": {"finalizers": left}}))
                assert "fairway.dev/charge stays until what it used is charged" in said
            await ann.patch(one, {"metadata": {"finalizers": ["fairway.dev/charge"]}})  # another it may
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
                await admin.delete(Ref(PARTS[kind], "fairway"))
            for note in ("pods", "submitted", "began-as"):  # what pods are made from, and when it is its turn
                await until(lambda note=note: is_kept(ann, one, f"fairway.dev/{note}"))
            await ann.delete(one)
            await refusal(ann.patch(one, off))
            await admin.patch(one, off)
            await admin.delete(Ref(kinds.NAMESPACES, "owes"))
            await controller.patch(other, off)
            await until(lambda: is_gone(admin, "owes"))


async def is_kept(client: Client, where: Ref, note: str) -> bool:
    """Whether a policy refuses this annotation, once no webhook is asked any more."""
    said = await refusal(client.patch(where, {"metadata": {"annotations": {note: "x"}}}))
    return "only the Fairway controller writes" in said


async def is_gone(client: Client, namespace: str) -> bool:
    return await client.find(Ref(kinds.NAMESPACES, namespace)) is None


async def is_there(client: Client, name: str) -> bool:
    return name in {it["metadata"]["name"] for it in await client.list(Selection(kinds.WORKLOADS, "default"))}


async def no_object_is_made_in_the_name_of_another(ann: Client) -> None:
    """By what holds without the webhook, which is not asked for what is not managed yet."""
    claims = {"fairway.dev/user": "bob"}
    mine, lied = job("mine"), job("lied")
    for one, user in ((mine, "ann"), (lied, "bob")):
        one["metadata"] = {"name": user, "namespace": "default", "annotations": {"fairway.dev/user": user}}
    await ann.create(kinds.JOBS, mine, dry_run=True)
    template = {"metadata": {"labels": {"app": "x"}, "annotations": claims}, "spec": pod("x")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    named = {"metadata": {"name": "x", "namespace": "default"}}
    for kind, one in (
        (kinds.JOBS, lied), (kinds.PODS, pod("x", annotations=claims)), (DEPLOYMENTS, {**named, "spec": spec}),
    ):
        await until(lambda kind=kind, one=one: is_told(ann, kind, one))  # a policy is in force a moment later


async def is_told(ann: Client, kind: Kind, one: Thing) -> bool:
    try:
        await ann.create(kind, one, dry_run=True)
    except ApiError as error:
        return "found bob; ann made it" in error.message
    return False


async def test_without_an_answer_managed_objects_are_refused_and_no_others(plane: Plane) -> None:
    async with plane.client() as admin, plane.client("ann") as ann:
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": "team", "labels": {"fairway.dev/managed": "true"}}})
        async with installed(admin, ("127.0.0.1", free_ports(1)[0])):

            async def is_refused() -> bool:
                try:
                    await ann.create(kinds.JOBS, job("x"), dry_run=True)
                except ApiError as error:
                    return "failed calling webhook" in error.message
                return False

            await until(is_refused, seconds=PATIENCE_SECONDS)
            assert "failed calling webhook" in await refusal(ann.create(kinds.PODS, pod("x", "team"), dry_run=True))
            for namespace, labels in (("default", {}), ("kube-system", LABELS), ("fairway-system", LABELS)):
                await ann.create(kinds.PODS, pod("x", namespace, labels=labels), dry_run=True)
            await no_object_is_made_in_the_name_of_another(ann)
            workload = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "spec": {"user": "bob"},
                        "metadata": {"name": "x", "namespace": "default"}}  # fmt: skip
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
                await admin.delete(Ref(PARTS[kind], "fairway"))
            await until(lambda: is_told(ann, kinds.WORKLOADS, workload))
        await admin.delete(Ref(kinds.NAMESPACES, "team"))
