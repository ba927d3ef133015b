"""Two users with a namespace each, on the server of one machine: what each tries to take from the other, or from all.

Each has the ClusterRole `edit` in its namespace, as the users of a team's machine do, and reads queues and nodes.
"""

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from inprocess import Thing, job, pod
from inprocess import api as make_api

from fairway.api.crds import crds
from fairway.api.objects import ASSIGNED, FINALIZER, USER
from fairway.clock import Clock
from fairway.embedded.access.authenticate import by_token
from fairway.embedded.access.identity import ADMIN, AUTHENTICATED, Identity
from fairway.embedded.access.roles import defaults
from fairway.embedded.gate import CONTROLLER, gate
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube.transport import Request

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS, MERGE = "/apis/fairway.dev/v1alpha1", "application/merge-patch+json"
TEAM = Identity("x", ("team", AUTHENTICATED)).groups
USERS = {"ann": Identity("ann", TEAM), "bob": Identity("bob", TEAM), "root": ADMIN, "controller": CONTROLLER}
READ = [{"apiGroups": ["fairway.dev"], "resources": ["queues"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]


class Box:
    """A server with admission as `fairway up` has it."""

    def __init__(self) -> None:
        store, clock = Store(), Clock()
        self.registry = Registry(store, builtin_kinds(), clock, make_api().registry.chance, admit=gate(store, clock))
        self.server = Server(self.registry, authenticators=[by_token(USERS)])

    async def ask(self, user: str, method: str, path: str, thing: Any = None, media: str = "application/json") -> Any:
        body = b"" if thing is None else json.dumps(thing).encode()
        headers = {"authorization": f"Bearer {user}", "content-type": media, "accept": "application/json"}
        answer = await self.server.handle(Request(method, path, (), headers, body))
        assert isinstance(answer.body, bytes)
        self.warnings = answer.headers.get("warning", "")
        return answer.status, json.loads(answer.body)

    async def ok(self, user: str, method: str, path: str, thing: Any = None, media: str = "application/json") -> Any:
        status, said = await self.ask(user, method, path, thing, media)
        assert status < 300, f"{user}: {method} {path}: {said}"
        return said

    async def no(self, user: str, method: str, path: str, thing: Any = None, media: str = "application/json") -> Any:
        status, said = await self.ask(user, method, path, thing, media)
        assert status == 403, f"{user}: {method} {path}: {said}"
        return said


def within(space: str, plural: str, *rest: str) -> str:
    root = {"jobs": "/apis/batch/v1", "workloads": OURS, "rolebindings": RBAC}.get(plural.partition("/")[0], "/api/v1")
    return "/".join((f"{root}/namespaces/{space}/{plural}", *rest))


def workload(**more: Any) -> Thing:
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "w"},
            "spec": {"queue": "q", "podSets": [{"name": "main"}]}} | more


@pytest.fixture
async def box() -> AsyncIterator[Box]:
    made = Box()
    await made.server.start()
    for definition in crds():
        await made.ok("root", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    await made.ok("root", "POST", f"{OURS}/queues", {
        "apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}})
    await made.ok("root", "POST", f"{RBAC}/clusterroles", {"metadata": {"name": "team"}, "rules": READ})
    await made.ok("root", "POST", f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": "team"}, "roleRef": {"kind": "ClusterRole", "name": "team"},
        "subjects": [{"kind": "Group", "name": "team"}]})
    for user in ("ann", "bob"):
        await made.ok("root", "POST", "/api/v1/namespaces", {"metadata": {"name": user}})
        await made.ok("root", "POST", within(user, "rolebindings"), {
            "metadata": {"name": "own"}, "roleRef": {"kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "User", "name": user}]})
        await made.ok(user, "POST", within(user, "jobs"), job("train"))
        await made.ok(user, "POST", within(user, "secrets"), {"metadata": {"name": "key"}, "stringData": {"a": user}})
    yield made
    await made.registry.store.close()


READS = (
    *(("GET", within("ann", each)) for each in (
        "pods", "pods/p", "pods/p/log", "secrets", "secrets/key", "configmaps", "events", "jobs", "jobs/train",
        "serviceaccounts", "workloads", "workloads/w", "workloads/w/log", "workloads/w/attempts", "rolebindings")),
    ("GET", "/api/v1/namespaces/ann"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/secrets"),
    ("GET", "/apis/batch/v1/jobs"), ("GET", f"{OURS}/workloads"), ("GET", "/api/v1/namespaces"),
    ("GET", f"{OURS}/usagedays"), ("GET", f"{RBAC}/clusterrolebindings"), ("GET", "/api/v1/events"),
)


async def test_a_user_reads_nothing_in_the_namespace_of_another(box: Box) -> None:
    for method, path in READS:
        await box.no("bob", method, path)


async def test_a_user_writes_nothing_in_the_namespace_of_another(box: Box) -> None:
    for plural in ("pods", "jobs", "secrets", "configmaps", "workloads", "serviceaccounts"):
        await box.no("bob", "POST", within("ann", plural), {"metadata": {"name": "mine"}})
        await box.no("bob", "PATCH", within("ann", plural, "train"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
        await box.no("bob", "DELETE", within("ann", plural, "train"))
        await box.no("bob", "DELETE", within("ann", plural))
    for path in ("pods/p/eviction", "pods/p/exec", "pods/p/binding", "serviceaccounts/default/token"):
        await box.no("bob", "POST", within("ann", path), {})


async def test_a_user_writes_nothing_that_all_share(box: Box) -> None:
    for plural in ("queues", "nodepools", "reservations"):
        await box.no("bob", "POST", f"{OURS}/{plural}", {"metadata": {"name": "mine"}})
    await box.no("bob", "PATCH", f"{OURS}/queues/q", {"spec": {"weight": 100}}, MERGE)
    await box.no("bob", "PATCH", f"{OURS}/queues/q/status", {"status": {"users": {}}}, MERGE)
    for path in ("/api/v1/nodes/n", "/api/v1/namespaces/bob", f"{RBAC}/clusterroles/edit"):
        await box.no("bob", "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    await box.no("bob", "DELETE", "/api/v1/namespaces/bob")


async def test_a_user_gives_itself_no_rights(box: Box) -> None:
    ref = {"kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "User", "name": "bob"}]
    await box.no("bob", "POST", within("bob", "rolebindings"), {
        "metadata": {"name": "more"}, "roleRef": ref, "subjects": subjects})
    await box.no("bob", "POST", f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": "more"}, "roleRef": ref, "subjects": subjects})


async def test_a_user_speaks_for_no_other(box: Box) -> None:
    for name, group in (("ann", ""), ("fairway:controller", ""), ("bob", "system:masters")):
        headers = {"authorization": "Bearer bob", "impersonate-user": name} | (
            {"impersonate-group": group} if group else {})
        answer = await box.server.handle(Request("GET", "/api", (), headers))
        assert answer.status == 403, name


async def test_who_asks_is_stamped_whatever_the_object_says(box: Box) -> None:
    notes = {"annotations": {USER: "ann"}}
    made = await box.ok("bob", "POST", within("bob", "jobs"), job("mine") | {"metadata": {"name": "mine"} | notes})
    assert made["metadata"]["annotations"][USER] == "bob"
    made = await box.ok("bob", "POST", within("bob", "pods"), pod("mine") | {"metadata": {"name": "mine"} | notes})
    assert made["metadata"]["annotations"][USER] == "bob"
    made = await box.ok("bob", "POST", within("bob", "workloads"), workload(spec={
        "queue": "q", "user": "ann", "podSets": [{"name": "main"}]}))
    assert made["spec"]["user"] == "bob"
    status, _ = await box.ask("bob", "PATCH", within("bob", "jobs", "mine"), {"metadata": notes}, MERGE)
    assert status == 422


async def test_a_user_writes_no_status_of_a_workload_and_binds_no_pod(box: Box) -> None:
    made = await box.ok("bob", "POST", within("bob", "workloads"), workload(status={"phase": "Running"}))
    assert "status" not in made
    taken = {"status": {"admission": {"pool": "default"}}}
    await box.no("bob", "PATCH", within("bob", "workloads", "w", "status"), taken, MERGE)
    made = await box.ok("bob", "POST", within("bob", "pods"), pod("mine") | {
        "metadata": {"name": "mine", "annotations": {ASSIGNED: "0,1"}}})
    assert ASSIGNED not in made["metadata"]["annotations"] and made["spec"]["schedulingGates"]
    said = await box.ok("bob", "PATCH", within("bob", "pods", "mine"), {"metadata": {"annotations": {ASSIGNED: "0"}}},
                        MERGE)  # fmt: skip
    assert ASSIGNED not in said["metadata"]["annotations"]
    assert box.warnings == f'299 - "metadata.annotations[{ASSIGNED}]: only Fairway writes it; it is left as it was"'
    await box.no("bob", "POST", within("bob", "pods", "mine", "binding"), {"target": {"kind": "Node", "name": "n"}})
    await box.no("bob", "PATCH", within("bob", "pods", "mine", "status"), {"status": {"phase": "Running"}}, MERGE)


async def test_a_user_shrinks_no_part_of_a_gpu_that_its_pod_holds_and_charges_it_to_no_other(box: Box) -> None:
    share = {"metadata": {"annotations": {"fairway.dev/gpu-fraction": "0.99"}}}
    made = await box.ok("ann", "POST", within("ann", "pods"), pod("cheat") | {
        "metadata": {"name": "cheat", **share["metadata"]}})
    less, other = ({"metadata": {"annotations": note}} for note in (
        {"fairway.dev/gpu-fraction": "0.01"}, {"fairway.dev/user": "bob"}))
    assert (await box.ask("ann", "PATCH", within("ann", "pods", "cheat"), other, MERGE))[0] == 422
    await box.ok("ann", "PATCH", within("ann", "pods", "cheat"), less, MERGE)  # it waits
    await box.ok("ann", "PATCH", within("ann", "pods", "cheat"), share, MERGE)
    about = {"metadata": {"name": "cheat", "uid": made["metadata"]["uid"]}, "target": {"kind": "Node", "name": "n"}}
    await box.ok("controller", "PATCH", within("ann", "pods", "cheat"), {"spec": {"schedulingGates": None}}, MERGE)
    await box.ok("controller", "POST", within("ann", "pods", "cheat", "binding"), about)
    code, said = await box.ask("ann", "PATCH", within("ann", "pods", "cheat"), less, MERGE)
    assert code == 422 and "annotations[fairway.dev/gpu-fraction]: found '0.01'; it is '0.99'" in said["message"]


async def test_a_user_takes_no_accelerators_past_the_queue(box: Box) -> None:
    asks = pod("mine", nodeName="n")
    asks["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    await box.no("bob", "POST", within("bob", "pods"), asks)


async def test_a_workload_stays_until_it_is_charged(box: Box) -> None:
    about = {"name": "w", "finalizers": [FINALIZER, "example.com/mine"]}
    await box.ok("controller", "POST", within("bob", "workloads"), workload(metadata=about))
    said = await box.ok("bob", "PATCH", within("bob", "workloads", "w"), {"metadata": {"finalizers": None}}, MERGE)
    assert said["metadata"]["finalizers"] == [FINALIZER]
    await box.ok("bob", "DELETE", within("bob", "workloads", "w"))
    said = await box.ok("bob", "PATCH", within("bob", "workloads", "w"), {"metadata": {"finalizers": None}}, MERGE)
    assert said["metadata"]["finalizers"] == [FINALIZER]
    await box.ok("root", "PATCH", within("bob", "workloads", "w"), {"metadata": {"finalizers": None}}, MERGE)
    assert (await box.ask("bob", "GET", within("bob", "workloads", "w")))[0] == 404


async def test_a_token_of_an_account_is_no_more_than_the_account(box: Box) -> None:
    await box.ok("bob", "POST", within("bob", "serviceaccounts"), {"metadata": {"name": "robot"}})
    made = await box.ok("bob", "POST", within("bob", "serviceaccounts", "robot", "token"), {"spec": {}})
    token = made["status"]["token"]
    await box.no(token, "GET", within("bob", "pods"))
    await box.no(token, "GET", within("ann", "secrets"))


async def test_each_user_does_its_work_in_its_own_namespace(box: Box) -> None:
    for user in ("ann", "bob"):
        assert (await box.ok(user, "GET", within(user, "secrets", "key")))["metadata"]["name"] == "key"
        for plural in ("jobs", "pods", "workloads", "events", "configmaps"):
            await box.ok(user, "GET", within(user, plural))
        await box.ok(user, "GET", f"{OURS}/queues")
        await box.ok(user, "DELETE", within(user, "jobs", "train"))


USED = {"users": {user: {"value": 5, "time": "2026-01-01T00:00:00Z"} for user in ("ann", "bob")},
        "runtimes": [{"user": "ann", "name": "quince"}, {"user": "bob", "name": "medlar"}]}


async def test_a_queue_tells_a_user_of_its_own_work_alone(box: Box) -> None:
    await box.ok("root", "PATCH", f"{OURS}/queues/q/status", {"status": USED}, MERGE)
    one, many = [await box.ok("bob", "GET", f"{OURS}/{path}") for path in ("queues/q", "queues")]
    for status in (one["status"], many["items"][0]["status"]):
        assert list(status["users"]) == ["bob"] and [it["name"] for it in status["runtimes"]] == ["medlar"]
    watch = Request("GET", f"{OURS}/queues", (("watch", "1"),), {"authorization": "Bearer bob"})
    answer = await box.server.handle(watch)
    first = (await anext(answer.body)).decode()
    await answer.body.aclose()
    assert '"medlar"' in first and "quince" not in first and '"ann"' not in first


async def test_who_lists_all_workloads_sees_a_queue_whole(box: Box) -> None:
    await box.ok("root", "PATCH", f"{OURS}/queues/q/status", {"status": USED}, MERGE)
    await box.ok("root", "POST", f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": "all"}, "roleRef": {"kind": "ClusterRole", "name": "fairway-user"},
        "subjects": [{"kind": "User", "name": "bob"}]})
    for user in ("root", "bob"):
        said = await box.ok(user, "GET", f"{OURS}/queues/q")
        assert list(said["status"]["users"]) == ["ann", "bob"] and len(said["status"]["runtimes"]) == 2


def test_the_roles_of_fairway_hold_what_it_installs_on_a_cluster() -> None:
    text = files("fairway.deploy").joinpath("rbac.yaml").read_text()
    installed = {one["metadata"]["name"]: one["rules"] for one in yaml.safe_load_all(text)
                 if one["kind"] == "ClusterRole" and one["metadata"]["name"] != "fairway-controller"}
    own = {one["metadata"]["name"]: one["rules"] for one in defaults()[0]}
    assert [name for name, rules in installed.items() for rule in rules if rule not in own[name]] == []


def test_the_page_on_rights_names_every_default_role() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "access.md").read_text()
    names = [one["metadata"]["name"] for one in defaults()[0]]
    assert [name for name in names if f"`{name}`" not in page and "system:aggregate" not in name] == []
