"""The webhook: the same rules as the door of the embedded server, its certificates, and whom it is asked about."""

import base64
import copy
import json
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import aiohttp
import jsonpatch
import pytest
import yaml
from click.testing import CliRunner
from cluster import running, serve
from cryptography import x509

from fairway.api.admission import Refused
from fairway.api.decode import decode
from fairway.api.objects import NamespaceObject
from fairway.api.owners import GATED, OWNERS
from fairway.api.types import QueueObject
from fairway.cli.main import cli
from fairway.clock import Clock, VirtualClock, seeded
from fairway.controllers.certificates import CONFIGURATION, SECRET, Certificates
from fairway.controllers.view import View
from fairway.controllers.webhook import Door, address
from fairway.embedded.access.identity import Identity
from fairway.embedded.gate import gate
from fairway.embedded.registry import Admission
from fairway.embedded.store import Key, Store
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

Thing = dict[str, Any]
NOW = 1_800_000_000.0
NAMESPACE = {"metadata": {"name": "team", "labels": {"fairway.dev/managed": "true", "fairway.dev/queue": "short"}}}
QUEUE = {"metadata": {"name": "short"}, "spec": {"timeLimit": {"max": "1h"}}}
CONTAINER = {"name": "c", "image": "i"}


def thing(kind: str, spec: Thing, **meta: Any) -> Thing:
    return {"kind": kind, "metadata": {"name": "a", "namespace": "team", **meta}, "spec": spec}


def job(pod: Thing | None = None, **meta: Any) -> Thing:
    return thing("Job", {"template": {"spec": {"containers": [CONTAINER], **(pod or {})}}}, **meta)


def stopped(**meta: Any) -> Thing:
    made = job(**meta)
    return made | {"spec": made["spec"] | {"suspend": True}}


def pod(spec: Thing | None = None, **meta: Any) -> Thing:
    return thing("Pod", {"containers": [CONTAINER], **(spec or {})}, **meta)


def limited(limit: str) -> Thing:
    notes = {"fairway.dev/time-limit": limit}
    return job(labels={"fairway.dev/queue": "short"}, annotations=notes)


GPU = {"containers": [{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
CASES: dict[str, tuple[str, str, Thing, Thing | None]] = {
    "a job": ("batch", "Job", job(), None),
    "a job of another scheduler": ("batch", "Job", job({"schedulerName": "other"}), None),
    "a job that asks for a user": ("batch", "Job", job(annotations={"fairway.dev/user": "boss"}), None),
    "a job of another user": (
        "batch", "Job", job(annotations={"fairway.dev/user": "eve"}), job(annotations={"fairway.dev/user": "ann"})),
    "a job that runs and is to change its queue": (
        "batch", "Job", job(labels={"fairway.dev/queue": "other"}), job(labels={"fairway.dev/queue": "short"})),
    "a job that gets a label": ("batch", "Job", job(labels={"fairway.dev/queue": "short"}), job()),
    "a job that its user stops": (
        "batch", "Job", stopped(labels={"fairway.dev/queue": "short"}), job(labels={"fairway.dev/queue": "short"})),
    "a job within the queue's time limit": ("batch", "Job", limited("30m"), None),
    "a job past the queue's time limit": ("batch", "Job", limited("2h"), None),
    "a job with an unknown duration": ("batch", "Job", limited("soon"), None),
    "a job that takes its node": ("batch", "Job", job({**GPU, "nodeName": "n1"}), None),
    "a pod": ("", "Pod", pod(), None),
    "a pod with a gate of others": ("", "Pod", pod({"schedulingGates": [{"name": "x.y/z"}]}), None),
    "a pod that is assigned devices": (
        "", "Pod", pod(annotations={"fairway.dev/assigned-devices": "0"}), pod(annotations={})),
    "a deployment": ("apps", "Deployment", thing(
        "Deployment", {"template": {"metadata": {}, "spec": {"containers": [CONTAINER]}}},
        labels={"fairway.dev/queue": "short"}), None),
    "a workload": ("fairway.dev", "Workload", thing("Workload", {"podSets": [{"name": "main"}]}), None),
    "a workload with a status of its own": (
        "fairway.dev", "Workload", thing("Workload", {}) | {"status": {"phase": "Running"}},
        thing("Workload", {}) | {"status": {"phase": "Pending"}}),
    "a reservation in a queue that is not there": ("fairway.dev", "Reservation", {
        "kind": "Reservation", "metadata": {"name": "r"},
        "spec": {"queue": "none", "nodes": ["n1"], "start": "2030-01-01T00:00:00Z", "duration": "1h"}}, None),
}  # fmt: skip
"""Group, kind, the object, and what is stored already."""


Outcome = tuple[Thing | None, str, list[str]]
"""What is stored, why it is refused, warnings."""


def embedded(group: str, kind: str, new: Thing, old: Thing | None) -> Outcome:
    store = Store()
    for plural, one in (("namespaces", NAMESPACE), ("queues.fairway.dev", QUEUE)):
        store.put(Key(plural, "", one["metadata"]["name"]), one)
    operation, space = "UPDATE" if old else "CREATE", new["metadata"].get("namespace", "")
    asked = Admission(operation, SimpleNamespace(group=group, kind=kind, plural=""), space, new, old, Identity("ann"))
    try:
        made, warnings = gate(store, VirtualClock(NOW))(asked)
    except Refused as refused:
        return None, str(refused), []
    return made, "", list(warnings)


@asynccontextmanager
async def served(*, settled: bool = True) -> AsyncIterator[tuple[Client, "Asks"]]:
    """A webhook, and its API server: in memory."""
    clock, chance = Clock(), seeded(1)
    client = Client((await serve(clock, chance)).handle, clock, chance)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": "fairway-system"}})
    port = free_port()
    door = Door(client, "fairway-system", ("127.0.0.1", port))
    if settled:
        door.view = View(client, lambda kind, old, new: None)
        door.view.queues["short"] = decode(QUEUE, QueueObject)
        door.view.namespaces["team"] = decode(NAMESPACE, NamespaceObject)
    async with running(door.run()), aiohttp.ClientSession() as session:
        while door.waits_for:
            await clock.sleep(0.02)
        yield client, Asks(session, client, f"https://127.0.0.1:{port}", door)


@dataclass
class Asks:
    """What the API server asks."""

    session: aiohttp.ClientSession
    client: Client
    url: str
    door: Door

    async def post(self, path: str, review: Any) -> tuple[int, bytes]:
        secret = await self.client.get(Ref(kinds.SECRETS, SECRET, "fairway-system"))
        trusts = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
        async with self.session.post(self.url + path, json=review, ssl=trusts) as said:
            return said.status, await said.read()

    async def review(
        self, path: str, group: str, kind: str, new: Thing, old: Thing | None, *, groups: Sequence[str] = ()
    ) -> Outcome:
        request = {
            "uid": "u1", "kind": {"group": group, "version": "v1", "kind": kind},
            "userInfo": {"username": "ann", "groups": groups},
            "operation": "UPDATE" if old else "CREATE", "namespace": new["metadata"].get("namespace", ""),
            "object": new, "oldObject": old,
        }  # fmt: skip
        asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        code, body = await self.post(path, asked)
        assert code == 200, body
        told = json.loads(body)["response"]
        assert told["uid"] == "u1"
        if not told["allowed"]:
            return None, told["status"]["message"], []
        patch = json.loads(base64.b64decode(told.get("patch", "W10=")))
        return jsonpatch.apply_patch(new, patch), "", told.get("warnings", [])


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_the_webhook_says_what_the_embedded_door_says() -> None:
    async with served() as (_, asks):
        for name, (group, kind, new, old) in CASES.items():
            expected = embedded(group, kind, copy.deepcopy(new), old)
            assert await asks.review("/mutate", group, kind, new, old) == expected, name


async def test_what_the_webhook_completed_is_valid_as_it_is() -> None:
    async with served() as (_, asks):
        for name, (group, kind, new, old) in CASES.items():
            made, why, warnings = await asks.review("/mutate", group, kind, new, old)
            *again, told = await asks.review("/validate", group, kind, made or new, old)
            assert again == [made, why] and set(told) <= set(warnings), name  # what is left out is told once


async def test_reviews_are_counted_and_what_is_refused_by_its_kind() -> None:
    async with served() as (_, asks):
        for path, new in (("/mutate", job()), ("/mutate", limited("soon")), ("/validate", job())):
            await asks.review(path, "batch", "Job", new, None)
        await asks.post("/mutate", {})
        told = asks.door.metrics.exposition().decode()
    assert 'fairway_webhook_requests_total{code="200",path="/mutate"} 2.0' in told
    assert 'fairway_webhook_requests_total{code="400",path="/mutate"} 1.0' in told
    assert 'fairway_webhook_refused_total{kind="Job"} 1.0' in told and "fairway_webhook_seconds_count 4.0" in told


async def test_a_refusal_names_the_object_and_the_fields_as_kubernetes_does() -> None:
    bad = limited("soon")
    request = {"uid": "u", "kind": {"group": "batch", "kind": "Job"}, "operation": "CREATE", "object": bad}
    async with served() as (_, asks):
        said = json.loads((await asks.post("/mutate", {"request": request}))[1])["response"]["status"]
    (cause,) = said["details"].pop("causes")
    assert said["details"] == {"name": bad["metadata"]["name"], "group": "batch", "kind": "Job"}
    assert cause["field"] == "metadata.annotations[fairway.dev/time-limit]"


async def test_only_an_administrator_says_since_when_a_pod_is_idle() -> None:
    idle, plain = pod(annotations={"fairway.dev/idle-since": "2026-11-21T10:00:00Z"}), pod(annotations={})
    async with served() as (_, asks):
        for new, old in ((idle, plain), (plain, idle)):
            for groups, stays in (([], old), (["system:masters"], new)):
                made, *_ = await asks.review("/mutate", "", "Pod", new, old, groups=groups)
                assert made and made["metadata"]["annotations"].get("fairway.dev/idle-since") == (
                    stays["metadata"]["annotations"].get("fairway.dev/idle-since"))  # fmt: skip


async def test_nothing_is_let_in_before_the_queues_are_known() -> None:
    async with served(settled=False) as (_, asks):
        assert (await asks.post("/mutate", {}))[0] == 503


async def test_what_is_no_review_is_refused_and_nothing_ends() -> None:
    async with served() as (_, asks):
        assert [(await asks.post(path, {"a": 1}))[0] for path in ("/mutate", "/other", "/validate")] == [400, 404, 400]


@pytest.mark.parametrize("text", ["9443", ":9443", "host:", "host:0", "host:65536", "host:x"])
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT is allowed"):
        address(text)


def test_a_wrong_address_is_one_line_of_the_command() -> None:
    said = CliRunner().invoke(cli, ["controller", "--webhook", "9443"])
    assert (said.exit_code, said.output) == (
        2, "fairway: --webhook: found '9443'; HOST:PORT is allowed, as in 0.0.0.0:9443\n")


# -- certificates

def configuration(**client: Any) -> Thing:
    hook = {**hooks()[0], "clientConfig": client or hooks()[0]["clientConfig"]}
    return {"kind": "MutatingWebhookConfiguration", "metadata": {"name": CONFIGURATION}, "webhooks": [hook]}


@asynccontextmanager
async def cluster_at(now: float) -> AsyncIterator[tuple[Client, VirtualClock]]:
    clock, chance = VirtualClock(now), seeded(1)
    client = Client((await serve(clock, chance)).handle, clock, chance)
    await client.create(kinds.NAMESPACES, {"metadata": {"name": "fairway-system"}})
    yield client, clock


def certificates(client: Client) -> Certificates:
    return Certificates(client, "fairway-system", "0.0.0.0", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


async def held(client: Client) -> dict[str, str]:
    data = (await client.get(Ref(kinds.SECRETS, SECRET, "fairway-system")))["data"]
    return {name: base64.b64decode(text).decode() for name, text in data.items()}


async def trusted(client: Client) -> str:
    found = await client.get(Ref(kinds.MUTATING_WEBHOOKS, CONFIGURATION))
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", "")).decode()


def names(certificate: str) -> list[str]:
    read = x509.load_pem_x509_certificate(certificate.encode())
    known = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return sorted(str(it.value) for it in known)


async def test_a_certificate_is_for_the_service_and_the_addresses_that_are_called() -> None:
    async with cluster_at(NOW) as (client, _):
        await client.create(kinds.MUTATING_WEBHOOKS, configuration(url="https://192.0.2.7:9443/mutate"))
        await certificates(client).have()
        secret = await held(client)
        assert names(secret["tls.crt"]) == ["192.0.2.7", "fairway-webhook.fairway-system.svc"]
        assert await trusted(client) == secret["ca.crt"]


async def test_a_second_replica_serves_the_certificate_of_the_first() -> None:
    async with cluster_at(NOW) as (client, _):
        first, second = certificates(client), certificates(client)
        await first.have()
        await second.have()
        assert first.served == second.served


async def test_a_certificate_that_is_nearly_over_is_renewed_and_the_earlier_one_is_trusted_on() -> None:
    async with cluster_at(NOW) as (client, _):
        await client.create(kinds.MUTATING_WEBHOOKS, configuration())
        await certificates(client).have()
        before = await held(client)
        later = VirtualClock(NOW + 340 * 86_400)
        await certificates(Client(client.transport, later, client.chance)).have()
        after = await held(client)
        assert after["tls.crt"] != before["tls.crt"] and after["ca.crt"].endswith(before["ca.crt"])
        assert await trusted(client) == after["ca.crt"]


def test_what_cert_manager_keeps_is_left_to_it() -> None:
    clock = VirtualClock(NOW)

    async def story() -> None:
        client = Client((await serve(clock, seeded(1))).handle, clock, seeded(1))
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "fairway-system"}})
        meta = {"name": SECRET, "namespace": "fairway-system",
                "annotations": {"cert-manager.io/certificate-name": "fairway"}}  # fmt: skip
        await client.create(kinds.SECRETS, {"metadata": meta, "data": {"ca.crt": "", "tls.crt": "", "tls.key": ""}})
        said = configuration()
        said["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "fairway-system/fairway"}
        await client.create(kinds.MUTATING_WEBHOOKS, said)
        with pytest.raises(TimeoutError):
            await clock.within(60, certificates(client).have())
        assert (await held(client))["tls.crt"] == "" and await trusted(client) == ""

    clock.run(story())


# -- the configurations

def hooks() -> list[Thing]:
    text = files("fairway").joinpath("deploy", "webhook.yaml").read_text()
    return [hook for one in yaml.safe_load_all(text) for hook in one.get("webhooks", ())]


def test_every_kind_that_can_be_an_owner_is_sent_to_the_webhook() -> None:
    owners = [hook for hook in hooks() if hook["name"] != "own.fairway.dev"]
    assert len(owners) == 4
    for hook in owners:
        sent = {(rule["apiGroups"][0], plural) for rule in hook["rules"] for plural in rule["resources"]}
        assert sent >= {(group, f"{kind.lower()}s") for group, kind in {*OWNERS, *GATED, ("", "Pod")}}


def test_nothing_of_the_control_plane_or_of_fairway_is_sent_to_the_webhook() -> None:
    for hook in hooks():
        if hook["name"] != "own.fairway.dev":
            (but,) = hook["namespaceSelector"]["matchExpressions"]
            assert but["operator"] == "NotIn" and {"kube-system", "fairway-system"} <= set(but["values"])
