"""Roles and bindings: what they let a user do, how a refusal is worded, and that no right is made of none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

Thing = dict[str, Any]
RBAC, REVIEWS = "/apis/rbac.authorization.k8s.io/v1", "/apis/authorization.k8s.io/v1"
PAUSE_SECONDS = 0.02
API_GROUP = "rbac.authorization.k8s.io"


class Rights:
    """Roles and bindings of one test; what is not in its namespace is taken away at the end."""

    def __init__(self, api, namespace: str) -> None:
        self.api, self.namespace, self._made = api, namespace, list[str]()

    async def role(self, name: str, *rules: Thing, **more: Any) -> Thing:
        thing = {"metadata": {"name": name}, "rules": list(rules)} | more
        return await self.api.create(f"{RBAC}/namespaces/{self.namespace}/roles", thing)

    async def cluster(self, name: str, *rules: Thing, labels: Thing | None = None, **more: Any) -> str:
        """A ClusterRole; answers its name, which is of this test alone."""
        name = f"{self.namespace}-{name}"
        about = {"name": name, "labels": labels or {}}
        await self.api.create(f"{RBAC}/clusterroles", {"metadata": about, "rules": list(rules)} | more)
        self._made.append(f"{RBAC}/clusterroles/{name}")
        return name

    async def bind(self, role: str, *subjects: Thing, kind: str = "Role") -> None:
        thing = binding(role, *subjects, kind=kind)
        await self.api.create(f"{RBAC}/namespaces/{self.namespace}/rolebindings", thing)

    async def bind_everywhere(self, role: str, *subjects: Thing) -> None:
        made = await self.api.create(f"{RBAC}/clusterrolebindings", binding(role, *subjects, kind="ClusterRole"))
        self._made.append(f"{RBAC}/clusterrolebindings/{made['metadata']['name']}")

    async def end(self) -> None:
        for path in self._made:
            await self.api.ask("DELETE", path)


def binding(role: str, *subjects: Thing, kind: str = "Role") -> Thing:
    return {"metadata": {"generateName": "it-"}, "subjects": list(subjects),
            "roleRef": {"apiGroup": API_GROUP, "kind": kind, "name": role}}


def rule(verbs: str, resources: str, *names: str, group: str = "") -> Thing:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()} | (
        {"resourceNames": list(names)} if names else {})


def user(name: str) -> Thing:
    return {"kind": "User", "apiGroup": API_GROUP, "name": name}


def group(name: str) -> Thing:
    return {"kind": "Group", "apiGroup": API_GROUP, "name": name}


@pytest.fixture
async def rights(api, namespace) -> AsyncIterator[Rights]:
    made = Rights(api, namespace)
    yield made
    await made.end()


@pytest.fixture
def ann(namespace) -> str:
    """A user that no other test gives rights to."""
    return f"ann-{namespace}"


@pytest.fixture
def speaking(api) -> Callable[..., Any]:
    """The same connection, spoken by another user: `speaking(name, *groups)`."""
    def speaking(name: str, *groups: str):
        other = type(api)(api.session, api.server, dict(api.headers), api.cluster)
        other.headers |= {"Impersonate-User": name} | ({"Impersonate-Group": groups[0]} if groups else {})
        return other

    return speaking


async def settled(api, path: str, **how: Any) -> None:
    """Returns when a GET is allowed; servers learn of a binding a moment after it is made."""
    while (await api.ask("GET", path, **how)).status == 403:
        await asyncio.sleep(PAUSE_SECONDS)


async def lost(api, path: str) -> None:
    while (await api.ask("GET", path)).status != 403:
        await asyncio.sleep(PAUSE_SECONDS)


# -- refusals, in words

async def test_a_user_without_rights_is_refused_in_words_that_name_what_was_asked(speaking, ann, namespace):
    plain, pods = speaking(ann), f"/api/v1/namespaces/{namespace}/pods"
    within = f'in API group "" in the namespace "{namespace}"'
    cases = (
        ("GET", pods, f'pods is forbidden: User "{ann}" cannot list resource "pods" {within}'),
        ("GET", f"{pods}/a", f'pods "a" is forbidden: User "{ann}" cannot get resource "pods" {within}'),
        ("GET", f"{pods}/a/log", f'pods "a" is forbidden: User "{ann}" cannot get resource "pods/log" {within}'),
        ("DELETE", pods, f'pods is forbidden: User "{ann}" cannot deletecollection resource "pods" {within}'),
        ("DELETE", f"{pods}/a", f'pods "a" is forbidden: User "{ann}" cannot delete resource "pods" {within}'),
        ("GET", "/api/v1/nodes",
         f'nodes is forbidden: User "{ann}" cannot list resource "nodes" in API group "" at the cluster scope'),
        ("GET", "/apis/batch/v1/jobs", f'jobs.batch is forbidden: User "{ann}" cannot list resource "jobs" in API '
                                       'group "batch" at the cluster scope'),
        ("GET", f"/api/v1/namespaces/{namespace}",
         f'namespaces "{namespace}" is forbidden: User "{ann}" cannot get resource "namespaces" {within}'),
        ("GET", "/secrets-of-mine", f'forbidden: User "{ann}" cannot get path "/secrets-of-mine"'),
        ("GET", "/api/v1/unheardof", f'unheardof is forbidden: User "{ann}" cannot list resource "unheardof" in API '
                                     'group "" at the cluster scope'),
    )
    for method, path, message in cases:
        status = await plain.refused(403, method, path)
        assert (status["message"], status["reason"]) == (message, "Forbidden")


async def test_a_refusal_says_in_its_details_what_it_is_about(speaking, ann, namespace):
    status = await speaking(ann).refused(403, "GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/a")
    assert status["details"] == {"name": "a", "group": "batch", "kind": "jobs"}


async def test_discovery_is_for_every_user(speaking, ann):
    for path in ("/api", "/apis", "/version", "/openapi/v3", "/apis/batch/v1"):
        assert (await speaking(ann).ask("GET", path)).status == 200


# -- grants

async def test_a_role_counts_in_its_namespace(rights, speaking, ann, namespace):
    await rights.role("reader", rule("get list", "configmaps"))
    await rights.bind("reader", user(ann))
    plain = speaking(ann)
    await settled(plain, f"/api/v1/namespaces/{namespace}/configmaps")
    await plain.refused(403, "GET", "/api/v1/namespaces/default/configmaps")
    await plain.refused(403, "GET", "/api/v1/configmaps")
    await plain.refused(403, "GET", f"/api/v1/namespaces/{namespace}/configmaps", watch="1")
    await plain.refused(403, "POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "a"}})


async def test_a_cluster_role_counts_where_it_is_bound(rights, speaking, ann, namespace):
    name = await rights.cluster("reader", rule("list", "configmaps"))
    await rights.bind(name, user(ann), kind="ClusterRole")
    await settled(speaking(ann), f"/api/v1/namespaces/{namespace}/configmaps")
    await speaking(ann).refused(403, "GET", "/api/v1/configmaps")
    await rights.bind_everywhere(name, group(f"people-{namespace}"))
    await settled(speaking("bob", f"people-{namespace}"), "/api/v1/configmaps")
    await speaking("bob").refused(403, "GET", "/api/v1/configmaps")


async def test_a_service_account_is_a_subject(rights, speaking, namespace):
    await rights.role("reader", rule("list", "configmaps"))
    await rights.bind("reader", {"kind": "ServiceAccount", "name": "robot", "namespace": namespace})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    await settled(speaking(f"system:serviceaccount:{namespace}:robot"), maps)
    await speaking("system:serviceaccount:default:robot").refused(403, "GET", maps)


async def test_names_narrow_a_rule(rights, speaking, ann, namespace, maps):
    await rights.role("one", rule("get list update", "configmaps", "mine"))
    await rights.bind("one", user(ann))
    for name in ("mine", "yours"):
        await rights.api.create(maps, {"metadata": {"name": name}})
    plain = speaking(ann)
    await settled(plain, f"{maps}/mine")
    await plain.refused(403, "GET", f"{maps}/yours")
    await plain.refused(403, "GET", maps)
    found = await plain.get(maps, fieldSelector="metadata.name=mine")
    assert [each["metadata"]["name"] for each in found["items"]] == ["mine"]


async def test_a_subresource_is_a_right_of_its_own(rights, speaking, ann, namespace, pods):
    await rights.role("reader", rule("get", "pods"))
    await rights.bind("reader", user(ann))
    await settled(speaking(ann), f"{pods}/a")
    await speaking(ann).refused(404, "GET", f"{pods}/a")
    await speaking(ann).refused(403, "GET", f"{pods}/a/log")
    await rights.role("logs", rule("get", "pods/log"))
    await rights.bind("logs", user(ann))
    await settled(speaking(ann), f"{pods}/a/log")
    await speaking(ann).refused(404, "GET", f"{pods}/a/log")


async def test_a_path_is_granted_by_a_cluster_role(rights, speaking, ann):
    name = await rights.cluster("paths", {"nonResourceURLs": ["/mine/*"], "verbs": ["get"]})
    await rights.bind_everywhere(name, user(ann))
    await settled(speaking(ann), "/mine/a")
    assert (await speaking(ann).ask("GET", "/mine/a")).status == 404
    await speaking(ann).refused(403, "GET", "/yours")


async def test_a_right_ends_with_its_binding(rights, speaking, ann, namespace, maps):
    await rights.role("reader", rule("list", "configmaps"))
    await rights.bind("reader", user(ann))
    await settled(speaking(ann), maps)
    await rights.api.delete(f"{RBAC}/namespaces/{namespace}/rolebindings")
    await lost(speaking(ann), maps)


async def test_to_apply_what_is_not_there_takes_the_right_to_create(rights, speaking, ann, maps):
    await rights.role("patcher", rule("patch get", "configmaps"))
    await rights.bind("patcher", user(ann))
    await settled(speaking(ann), f"{maps}/a")
    said = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    how = {"media": "application/apply-patch+yaml", "fieldManager": "it"}
    status = await speaking(ann).refused(403, "PATCH", f"{maps}/a", said, **how)
    assert "cannot create resource" in status["message"]
    await rights.api.create(maps, {"metadata": {"name": "a"}})
    await speaking(ann).patch(f"{maps}/a", said, how["media"], fieldManager="it")


async def test_a_missing_role_is_named(rights, speaking, ann, namespace, maps):
    await rights.bind("nowhere", user(ann))
    wanted = f'RBAC: role.{API_GROUP} "nowhere" not found'
    while wanted not in (status := await speaking(ann).refused(403, "GET", maps))["message"]:
        await asyncio.sleep(PAUSE_SECONDS)
    assert status["message"].endswith(f'in the namespace "{namespace}": {wanted}')


# -- the default roles

@pytest.mark.parametrize(("role", "yes", "no"), [
    ("view", {"pods": "list", "jobs.batch": "get", "pods/log": "get"},
     {"secrets": "list", "configmaps": "create", "roles.rbac.authorization.k8s.io": "list", "pods/exec": "create"}),
    ("edit", {"secrets": "list", "pods": "create", "jobs.batch": "deletecollection", "deployments.apps": "patch",
              "serviceaccounts/token": "create", "pods/exec": "create", "pods/eviction": "create"},
     {"rolebindings.rbac.authorization.k8s.io": "create", "pods/status": "update", "pods/binding": "create",
      "resourcequotas": "create", "namespaces": "delete"}),
    ("admin", {"rolebindings.rbac.authorization.k8s.io": "create", "pods": "create", "secrets": "get",
               "localsubjectaccessreviews.authorization.k8s.io": "create"},
     {"resourcequotas": "create", "namespaces": "delete", "pods/binding": "create"}),
])
async def test_the_default_roles_hold_what_kubernetes_says(collecting, rights, namespace, ann, role, yes, no):
    await rights.bind(role, user(ann), kind="ClusterRole")
    for wanted, asks in ((True, yes), (False, no)):
        for what, verb in asks.items():
            while wanted and not await may(rights.api, ann, namespace, what, verb):
                await asyncio.sleep(PAUSE_SECONDS)
            assert await may(rights.api, ann, namespace, what, verb) is wanted, f"{role}: {verb} {what}"


async def may(api, name: str, namespace: str, what: str, verb: str) -> bool:
    resource, _, of = what.partition(".")
    resource, _, subresource = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource, "group": of}
    said = await api.create(f"{REVIEWS}/subjectaccessreviews", review("SubjectAccessReview", {
        "user": name, "resourceAttributes": asked}))
    return said["status"]["allowed"]


def review(kind: str, spec: Thing, of: str = "authorization.k8s.io") -> Thing:
    return {"apiVersion": f"{of}/v1", "kind": kind, "spec": spec}


async def test_an_aggregated_role_gathers_the_rules_of_those_that_its_selector_takes(collecting, rights, namespace):
    selects = {"clusterRoleSelectors": [{"matchLabels": {"of": namespace}}]}
    whole = await rights.cluster("whole", rule("get", "nodes"), aggregationRule=selects)
    await rights.cluster("part", rule("list", "pods"), labels={"of": namespace})
    await rights.api.until(f"{RBAC}/clusterroles", whole, lambda it: it and it["rules"] == [rule("list", "pods")])


# -- no right of none

@pytest.fixture
async def granting(rights, speaking, ann, namespace):
    """A user that may write roles and bindings of the namespace, and list its pods."""
    await rights.role("granting", rule("*", "roles rolebindings", group=API_GROUP), rule("list", "pods"))
    await rights.bind("granting", user(ann))
    await settled(speaking(ann), f"{RBAC}/namespaces/{namespace}/roles")
    await settled(speaking(ann), f"/api/v1/namespaces/{namespace}/pods")
    return speaking(ann)


@pytest.fixture
async def lesser(rights, speaking, namespace):
    """As `granting`, without the verbs `escalate` and `bind`."""
    name = f"eve-{namespace}"
    verbs = "create get list update patch delete"
    await rights.role("lesser", rule(verbs, "roles rolebindings", group=API_GROUP), rule("list", "pods"))
    await rights.bind("lesser", user(name))
    await settled(speaking(name), f"{RBAC}/namespaces/{namespace}/roles")
    return speaking(name)


async def test_nobody_writes_rules_that_it_does_not_hold(lesser, namespace):
    roles, name = f"{RBAC}/namespaces/{namespace}/roles", f"eve-{namespace}"
    made = await lesser.create(roles, {"metadata": {"name": "mine"}, "rules": [rule("list", "pods")]})
    wide = made | {"rules": [rule("list get", "pods"), rule("get", "secrets")]}
    status = await lesser.refused(403, "PUT", f"{roles}/mine", wide)
    assert status["message"] == (
        f'roles.{API_GROUP} "mine" is forbidden: user "{name}" (groups=["system:authenticated"]) is attempting to '
        'grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["get"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')
    await lesser.refused(403, "POST", roles, {"metadata": {"name": "new"}, "rules": [rule("*", "*", group="*")]})


async def test_nobody_binds_a_role_with_rights_that_it_does_not_hold(lesser, rights, namespace):
    bindings, name = f"{RBAC}/namespaces/{namespace}/rolebindings", f"eve-{namespace}"
    await lesser.refused(403, "POST", bindings, binding("admin", user(name), kind="ClusterRole"))
    await lesser.refused(404, "POST", bindings, binding("nowhere", user(name)))
    await rights.role("little", rule("list", "pods"))
    while (answer := await lesser.ask("POST", bindings, binding("little", user("bob")))).status == 404:
        await asyncio.sleep(PAUSE_SECONDS)
    assert answer.status == 201


async def test_the_verbs_escalate_and_bind_lift_that(granting, rights, namespace):
    roles, bindings = (f"{RBAC}/namespaces/{namespace}/{each}" for each in ("roles", "rolebindings"))
    await granting.create(roles, {"metadata": {"name": "wide"}, "rules": [rule("get", "secrets")]})
    while (answer := await granting.ask("POST", bindings, binding("wide", user("bob")))).status == 404:
        await asyncio.sleep(PAUSE_SECONDS)
    assert answer.status == 201


async def test_a_role_that_gathers_takes_all_rights_to_write(rights, speaking, ann, namespace):
    name = await rights.cluster("writer", rule("create", "clusterroles", group=API_GROUP), rule("list", "nodes"))
    await rights.bind_everywhere(name, user(ann))
    await settled(speaking(ann), "/api/v1/nodes")
    said = {"metadata": {"name": f"{namespace}-all"}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    status = await speaking(ann).refused(403, "POST", f"{RBAC}/clusterroles", said)
    assert status["message"].endswith("must have cluster-admin privileges to use the aggregationRule")


async def test_to_speak_for_another_takes_a_right(api, rights, ann, namespace):
    """Asked by a review: these tests speak for others themselves."""
    await rights.role("robots", rule("impersonate", "serviceaccounts", "robot"))
    await rights.bind("robots", user(ann))
    for what, wanted in ((("serviceaccounts", "robot"), True), (("serviceaccounts", "other"), False),
                         (("users", "root"), False)):
        asked = {"namespace": namespace, "verb": "impersonate", "resource": what[0], "name": what[1]}
        spec = {"user": ann, "resourceAttributes": asked}
        while (said := await api.create(
                f"{REVIEWS}/subjectaccessreviews", review("SubjectAccessReview", spec)))["status"]["allowed"] < wanted:
            await asyncio.sleep(PAUSE_SECONDS)
        assert said["status"]["allowed"] is wanted, what


# -- what is well formed

@pytest.mark.parametrize(("kind", "thing", "field"), [
    ("roles", {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}, "rules[0].verbs"),
    ("roles", {"rules": [{"resources": ["pods"], "verbs": ["get"]}]}, "rules[0].apiGroups"),
    ("roles", {"rules": [{"apiGroups": [""], "verbs": ["get"]}]}, "rules[0].resources"),
    ("roles", {"rules": [{"nonResourceURLs": ["/a"], "verbs": ["get"]}]}, "rules[0].nonResourceURLs"),
    ("rolebindings", {"roleRef": {"kind": "Pod", "name": "a"}}, "roleRef.kind"),
    ("rolebindings", {"roleRef": {"kind": "Role", "name": ""}}, "roleRef.name"),
    ("rolebindings", {"roleRef": {"kind": "Role", "name": "a", "apiGroup": "other"}}, "roleRef.apiGroup"),
    ("rolebindings", {"roleRef": {"kind": "Role", "name": "a"}, "subjects": [{"kind": "User", "name": ""}]},
     "subjects[0].name"),
    ("rolebindings", {"roleRef": {"kind": "Role", "name": "a"}, "subjects": [{"kind": "Cat", "name": "a"}]},
     "subjects[0].kind"),
])
async def test_a_role_or_a_binding_that_means_nothing_is_refused(api, namespace, kind, thing, field):
    status = await api.refused(422, "POST", f"{RBAC}/namespaces/{namespace}/{kind}",
                               {"metadata": {"name": "it"}} | thing)
    assert field in [each["field"] for each in status["details"]["causes"]]


async def test_a_service_account_everywhere_is_one_of_a_namespace(api):
    said = binding("view", {"kind": "ServiceAccount", "name": "a"}, kind="ClusterRole")
    status = await api.refused(422, "POST", f"{RBAC}/clusterrolebindings", said)
    assert status["details"]["causes"][0]["field"] == "subjects[0].namespace"


async def test_the_role_of_a_binding_does_not_change(api, namespace):
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    made = await api.create(path, binding("a", {"kind": "User", "name": "ann"}))
    assert made["subjects"] == [user("ann")]
    where = f"{path}/{made['metadata']['name']}"
    status = await api.refused(422, "PATCH", where, {"roleRef": {"name": "b"}}, media=api.MERGE)
    assert status["details"]["causes"][0]["field"] == "roleRef"


async def test_a_name_may_hold_colons(api, namespace):
    made = await api.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": "team:ml:Reader"}})
    assert made["metadata"]["name"] == "team:ml:Reader"


async def test_a_selector_of_roles_is_judged(api, namespace):
    bad = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    said = {"metadata": {"name": f"{namespace}-bad"}, "aggregationRule": {"clusterRoleSelectors": [bad]}}
    await api.refused(422, "POST", f"{RBAC}/clusterroles", said)


# -- reviews

async def test_may_i_says_yes_with_the_reason_and_no_without(rights, speaking, ann, namespace):
    await rights.role("reader", rule("list", "pods"))
    await rights.bind("reader", user(ann))
    await settled(speaking(ann), f"/api/v1/namespaces/{namespace}/pods")
    asked = {"namespace": namespace, "verb": "list", "resource": "pods"}
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    said = await speaking(ann).create(path, review("SelfSubjectAccessReview", {"resourceAttributes": asked}))
    assert said["status"]["allowed"] and said["status"]["reason"].startswith("RBAC: allowed by RoleBinding ")
    assert said["status"]["reason"].endswith(f'of Role "reader" to User "{ann}"')
    spec = {"resourceAttributes": asked | {"verb": "get"}}
    said = await speaking(ann).create(path, review("SelfSubjectAccessReview", spec))
    assert said["status"] == {"allowed": False}
    spec = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    assert (await speaking(ann).create(path, review("SelfSubjectAccessReview", spec)))["status"]["allowed"]


async def test_may_that_user_is_for_who_has_the_right_to_ask(api, speaking, ann, namespace):
    spec = {"user": "bob", "resourceAttributes": {"verb": "list", "resource": "pods"}}
    asked = review("SubjectAccessReview", spec)
    await speaking(ann).refused(403, "POST", f"{REVIEWS}/subjectaccessreviews", asked)
    said = await api.create(f"{REVIEWS}/subjectaccessreviews", asked)
    assert said["status"]["allowed"] is False
    spec = {"user": "bob", "groups": ["system:masters"], "resourceAttributes": {"verb": "*", "resource": "*"}}
    said = await api.create(f"{REVIEWS}/subjectaccessreviews", review("SubjectAccessReview", spec))
    assert said["status"]["allowed"] is True


async def test_a_local_review_asks_about_its_namespace_alone(api, namespace):
    path = f"{REVIEWS}/namespaces/{namespace}/localsubjectaccessreviews"
    spec = {"user": "bob", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": namespace}}
    said = review("LocalSubjectAccessReview", spec) | {"metadata": {"namespace": namespace}}
    assert (await api.create(path, said))["status"]["allowed"] is False
    said["spec"]["resourceAttributes"]["namespace"] = "default"
    await api.refused(422, "POST", path, said)


@pytest.mark.parametrize("spec", [
    {"user": "bob"}, {"resourceAttributes": {"verb": "get"}},
    {"user": "bob", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}}])
async def test_a_review_that_asks_nothing_is_refused(api, spec):
    await api.refused(422, "POST", f"{REVIEWS}/subjectaccessreviews", review("SubjectAccessReview", spec))


async def test_what_may_i_do_lists_my_rules(rights, speaking, ann, namespace):
    await rights.role("reader", rule("list", "pods", "a"))
    await rights.bind("reader", user(ann))
    await settled(speaking(ann), f"/api/v1/namespaces/{namespace}/pods", fieldSelector="metadata.name=a")
    asked = review("SelfSubjectRulesReview", {"namespace": namespace})
    said = (await speaking(ann).create(f"{REVIEWS}/selfsubjectrulesreviews", asked))["status"]
    assert rule("list", "pods", "a") in said["resourceRules"] and said["incomplete"] is False
    assert any("/version" in each["nonResourceURLs"] for each in said["nonResourceRules"])
    asked = review("SelfSubjectRulesReview", {"namespace": "default"})
    said = (await speaking(ann).create(f"{REVIEWS}/selfsubjectrulesreviews", asked))["status"]
    assert all("pods" not in each["resources"] for each in said["resourceRules"])


async def test_who_am_i_names_the_impersonated(speaking, ann):
    said = await speaking(ann, "people").create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    assert said["status"]["userInfo"] == {"username": ann, "groups": ["people", "system:authenticated"]}


async def test_groups_are_named_in_a_header_each(api, ann):
    groups = [("Impersonate-Group", name) for name in ("a, b", "c")]
    headers = [*api.headers.items(), ("Impersonate-User", ann), *groups]
    url = f"{api.server}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    said = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with api.session.post(url, json=said, headers=headers) as answer:
        info = (await answer.json())["status"]["userInfo"]
    assert info["groups"] == ["a, b", "c", "system:authenticated"]


async def test_a_command_in_a_pod_takes_the_verb_create_over_a_websocket_too(rights, speaking, ann, namespace, pods):
    await rights.role("reader", rule("get", "pods pods/exec"))
    await rights.bind("reader", user(ann))
    plain = speaking(ann)
    await settled(plain, f"{pods}/a")
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
    url = f"{plain.server}{pods}/a/exec?command=ls"
    async with plain.session.get(url, headers=plain.headers | upgrade) as answer:
        assert answer.status == 403
    await rights.role("runner", rule("create", "pods/exec"))
    await rights.bind("runner", user(ann))
    status = 403
    while status == 403:
        await asyncio.sleep(PAUSE_SECONDS)
        async with plain.session.get(url, headers=plain.headers | upgrade) as answer:
            status = answer.status
    assert status == 404
