"""Create, read, update, patch, delete: what the API server makes of them, in process."""

import asyncio

import pytest
from inprocess import (
    JOBS,
    JSON_PATCH,
    KINDS,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    Api,
    Refused,
    causes,
    config,
    crd,
    job,
    pod,
    widget,
)
from inprocess import (
    api as make_api,
)

from fairway.clock import Clock, seeded
from fairway.embedded.access.identity import MASTERS, Identity
from fairway.embedded.gate import gate
from fairway.embedded.registry import Admission, Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_a_new_object_gets_what_the_server_gives(api: Api) -> None:
    made = await api.ok("POST", MAPS, config("a", uid="mine", managedFields=[{"manager": "x"}]) | {"data": {"k": "v"}})
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"], meta["namespace"]) == ("ConfigMap", "v1", "default")
    assert meta["uid"] != "mine" and meta["creationTimestamp"].endswith("Z") and "managedFields" not in meta
    assert await api.ok("GET", f"{MAPS}/a") == made


async def test_a_name_is_taken_once_and_generated_names_are_new(api: Api) -> None:
    await api.ok("POST", MAPS, config("a"))
    taken = await api.no(409, "POST", MAPS, config("a"))
    assert (taken["reason"], taken["message"]) == ("AlreadyExists", 'configmaps "a" already exists')
    names = {(await api.ok("POST", MAPS, {"metadata": {"generateName": "x-"}}))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20 and all(name.startswith("x-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(("name", "reason"), [("", "FieldValueRequired"), ("A", "FieldValueInvalid"),
                                              ("a" * 254, "FieldValueInvalid"), ("a/b", "FieldValueInvalid")])
async def test_names_are_dns_names(api: Api, name: str, reason: str) -> None:
    assert causes(await api.no(422, "POST", MAPS, config(name))) == {"metadata.name": reason}


async def test_labels_annotations_and_finalizers_are_checked(api: Api) -> None:
    wrong = config("a", labels={"a b": "x", "ok": "no/slash"}, annotations={"-": "x"}, finalizers=["x y"])
    status = await api.no(422, "POST", MAPS, wrong)
    assert set(causes(status)) == {"metadata.labels", "metadata.annotations", "metadata.finalizers"}
    assert status["message"].startswith('ConfigMap "a" is invalid: [metadata.labels: Invalid value: "a b"')


async def test_what_is_of_the_wrong_type_is_a_bad_request(api: Api) -> None:
    status = await api.no(400, "POST", PODS, pod(containers=[{"name": 5, "image": "i"}]))
    assert "cannot be handled as a Pod" in status["message"] and "spec.containers[0].name" in status["message"]
    await api.no(400, "POST", MAPS, config("a", labels=["x"]))
    await api.no(400, "POST", MAPS, b'{"metadata": ')
    await api.no(400, "POST", MAPS, [1])
    await api.no(400, "POST", MAPS, {"kind": "Secret", "metadata": {"name": "a"}})
    await api.no(400, "POST", MAPS, config("a", namespace="other"))


async def test_unknown_fields_are_dropped_told_or_refused(api: Api) -> None:
    made = await api.ok("POST", PODS, pod("a", bogus=1))
    assert "bogus" not in made["spec"] and 'unknown field \\"spec.bogus\\"' in api.warnings
    await api.ok("POST", PODS, pod("b", bogus=1), fieldValidation="Ignore")
    assert api.warnings == ""
    status = await api.no(400, "POST", PODS, pod("c", bogus=1), fieldValidation="Strict")
    assert 'strict decoding error: unknown field "spec.bogus"' in status["message"]


async def test_a_dry_run_answers_and_changes_nothing(api: Api) -> None:
    made = await api.ok("POST", MAPS, config("a"), dryRun="All")
    assert made["metadata"]["uid"]
    await api.no(404, "GET", f"{MAPS}/a")
    await api.ok("POST", MAPS, config("a"))
    await api.ok("PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, MERGE, dryRun="All")
    await api.ok("DELETE", f"{MAPS}/a", dryRun="All")
    assert "data" not in await api.ok("GET", f"{MAPS}/a")
    await api.no(400, "POST", MAPS, config("b"), dryRun="Some")


async def test_a_write_from_an_old_version_is_a_conflict(api: Api) -> None:
    old = await api.ok("POST", MAPS, config("a"))
    new = await api.ok("PUT", f"{MAPS}/a", old | {"data": {"n": "1"}})
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert (await api.no(409, "PUT", f"{MAPS}/a", old | {"data": {"n": "2"}}))["reason"] == "Conflict"
    other = config("a", uid="another")
    assert "UID in precondition: another" in (await api.no(409, "PUT", f"{MAPS}/a", other))["message"]


async def test_a_write_that_changes_nothing_is_none(api: Api) -> None:
    old = await api.ok("POST", JOBS, job("a"))
    assert await api.ok("PUT", f"{JOBS}/a", old) == old
    assert await api.ok("PATCH", f"{JOBS}/a", {"spec": {"parallelism": 1}}, STRATEGIC) == old


async def test_generation_follows_the_spec_alone(api: Api) -> None:
    await api.ok("POST", JOBS, job("a"))
    labelled = await api.ok("PATCH", f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}}, MERGE)
    reported = await api.ok("PATCH", f"{JOBS}/a/status", {"status": {"active": 1}}, MERGE)
    changed = await api.ok("PATCH", f"{JOBS}/a", {"spec": {"suspend": True}}, MERGE)
    assert [each["metadata"]["generation"] for each in (labelled, reported, changed)] == [1, 1, 2]


async def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    old = await api.ok("POST", JOBS, job("a") | {"status": {"active": 9}})
    assert old["status"] == {}
    new = await api.ok("PUT", f"{JOBS}/a/status", old | {"status": {"active": 1}, "spec": {}})
    assert new["status"] == {"active": 1} and new["spec"] == old["spec"]
    kept = await api.ok("PUT", f"{JOBS}/a", old | {"metadata": {"name": "a", "labels": {"x": "y"}}})
    assert kept["status"] == {"active": 1}
    assert (await api.ok("GET", f"{JOBS}/a/status"))["status"] == {"active": 1}
    await api.no(404, "GET", f"{MAPS}/a/status")


async def test_the_three_patches_and_what_is_no_patch(api: Api) -> None:
    await api.ok("POST", PODS, pod("a"))
    path = f"{PODS}/a"
    merged = await api.ok("PATCH", path, {"metadata": {"labels": {"a": "1", "b": "2"}}}, MERGE)
    assert merged["metadata"]["labels"] == {"a": "1", "b": "2"}
    edited = await api.ok("PATCH", path, [{"op": "remove", "path": "/metadata/labels/a"}], JSON_PATCH)
    assert edited["metadata"]["labels"] == {"b": "2"}
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    assert (await api.ok("PATCH", path, image, STRATEGIC))["spec"]["containers"][0]["command"] == ["sleep", "1"]
    wrong = [{"op": "test", "path": "/metadata/name", "value": 7}]
    assert (await api.no(422, "PATCH", path, wrong, JSON_PATCH))["message"].endswith(
        'our request: {"op":"test","path":"/metadata/name","value":7} fails')
    await api.no(400, "PATCH", path, {"not": "a list"}, JSON_PATCH)
    await api.no(422, "PATCH", path, {}, "application/apply-patch+yaml")
    await api.no(409, "PATCH", path, {"metadata": {"resourceVersion": "1"}}, MERGE)
    await api.no(400, "PATCH", path, {"metadata": {"name": "b"}}, MERGE)


async def test_many_writers_of_one_object_lose_nothing(api: Api) -> None:
    await api.ok("POST", MAPS, config("a"))

    async def add(number: int) -> None:
        await api.ok("PATCH", f"{MAPS}/a", {"data": {str(number): "x"}}, MERGE)

    async def count(number: int) -> None:
        while True:
            old = await api.ok("GET", f"{MAPS}/a")
            old["data"] = {**old.get("data", {}), "count": str(int(old.get("data", {}).get("count", "0")) + 1)}
            await asyncio.sleep(0)
            if (await api.ask("PUT", f"{MAPS}/a", old))[0] == 200:
                return

    await asyncio.gather(*map(add, range(50)), *map(count, range(20)))
    data = (await api.ok("GET", f"{MAPS}/a"))["data"]
    assert data["count"] == "20" and len(data) == 51


async def test_paths_and_methods_that_are_not_served(api: Api) -> None:
    for path in ("/nowhere", "/apis/none/v1/things", "/api/v1/namespaces/default/nothings", "/api/v1/pods/a",
                 f"{PODS}/a/nothing"):
        assert (await api.no(404, "GET", path))["reason"] == "NotFound"
    for method, path in (("POST", f"{PODS}/a"), ("PUT", PODS), ("POST", "/api/v1/pods"), ("DELETE", "/api/v1/pods")):
        assert (await api.no(405, method, path, {}))["reason"] == "MethodNotAllowed"
    await api.ok("POST", PODS, pod("a"))
    for part in ("proxy", "portforward"):
        assert (await api.no(501, "POST", f"{PODS}/a/{part}"))["reason"] == "NotImplemented"
    assert "kubectl exec" in (await api.no(501, "PATCH", f"{PODS}/a/ephemeralcontainers", {}))["message"]
    assert "does not run" in (await api.no(400, "POST", f"{PODS}/a/attach"))["message"]
    await api.no(415, "POST", MAPS, config("a"), "text/html")
    await api.no(406, "GET", MAPS, accept="application/vnd.kubernetes.protobuf")


# -- lists

async def test_a_list_is_chosen_by_labels_and_fields(api: Api) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": ""}), ("c", {})):
        await api.ok("POST", PODS, pod(name, labels=labels))
    await api.ok("POST", f"{PODS}/b/binding", {"target": {"kind": "Node", "name": "n"}})
    for selector, names in (("x", "ab"), ("!x", "c"), ("x=1", "a"), ("x!=1", "bc"), ("x in (1,2),y", "b"),
                            ("x notin (1)", "bc"), ("x>1", "b"), ("x==2", "b"), ("", "abc")):
        assert await api.names(PODS, labelSelector=selector) == list(names), selector
    for selector, names in (("metadata.name=a", "a"), ("spec.nodeName=n", "b"), ("spec.nodeName=", "ac"),
                            ("status.phase!=Pending", ""), ("metadata.namespace=default,spec.nodeName!=n", "ac")):
        assert await api.names("/api/v1/pods", fieldSelector=selector) == list(names), selector
    assert "field label not supported: x" in (await api.no(400, "GET", PODS, fieldSelector="x=y"))["message"]
    await api.no(400, "GET", PODS, labelSelector="a b")


async def test_pages_are_of_one_moment(api: Api) -> None:
    for name in "abcde":
        await api.ok("POST", MAPS, config(name))
    first = await api.ok("GET", MAPS, limit=2)
    await api.ok("DELETE", f"{MAPS}/d")
    await api.ok("POST", MAPS, config("cc"))
    assert first["metadata"]["remainingItemCount"] == 3
    second = await api.ok("GET", MAPS, limit=2, continue_=first["metadata"]["continue"])
    third = await api.ok("GET", MAPS, limit=2, continue_=second["metadata"]["continue"])
    names = [each["metadata"]["name"] for page in (first, second, third) for each in page["items"]]
    assert names == list("abcde") and "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    await api.no(400, "GET", MAPS, continue_="nonsense")


async def test_pages_of_a_namespace_and_of_a_name_leave_out_the_others(api: Api) -> None:
    spaces = ("a", "a-b", "a0")
    for space in spaces:
        await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        for name in "xyz":
            await api.ok("POST", MAPS.replace("default", space), config(name) | {"metadata": {"name": name}})
    for space in spaces:
        place = MAPS.replace("default", space)
        first = await api.ok("GET", place, limit=1)
        rest = await api.ok("GET", place, limit=5, continue_=first["metadata"]["continue"])
        found = [(it["metadata"]["namespace"], it["metadata"]["name"]) for it in (*first["items"], *rest["items"])]
        assert first["metadata"]["remainingItemCount"] == 2 and found == [(space, name) for name in "xyz"]
        assert await api.names(place, fieldSelector="metadata.name=y") == ["y"]
    assert await api.names("/api/v1/configmaps", fieldSelector="metadata.name=y") == ["y"] * 3


async def test_the_rules_of_resource_versions(api: Api) -> None:
    made = await api.ok("POST", MAPS, config("a"))
    version = made["metadata"]["resourceVersion"]
    await api.ok("POST", MAPS, config("b"))
    assert await api.names(MAPS, resourceVersion=version) == ["a", "b"]
    assert await api.names(MAPS, resourceVersion=version, resourceVersionMatch="Exact") == ["a"]
    assert await api.names(MAPS, resourceVersion="0") == ["a", "b"]
    future = await api.no(504, "GET", MAPS, resourceVersion="999999")
    assert future["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    await api.no(400, "GET", MAPS, resourceVersion="abc")
    await api.no(422, "GET", MAPS, resourceVersionMatch="Exact")
    await api.no(422, "GET", MAPS, resourceVersion="0", resourceVersionMatch="Exact")


async def test_a_page_after_compaction_is_410() -> None:
    made = make_api(keep=5)
    await made.server.start()
    for name in "abc":
        await made.ok("POST", MAPS, config(name))
    token = (await made.ok("GET", MAPS, limit=1))["metadata"]["continue"]
    for number in range(20):
        await made.ok("PATCH", f"{MAPS}/a", {"data": {"n": str(number)}}, MERGE)
    assert (await made.no(410, "GET", MAPS, limit=1, continue_=token))["reason"] == "Expired"


async def test_tables_and_metadata_are_other_views(api: Api) -> None:
    await api.ok("POST", PODS, pod("a"))
    table = await api.ok("GET", PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert table["kind"] == "Table" and table["rows"][0]["cells"][0] == "a" and table["metadata"]["resourceVersion"]
    partial = await api.ok("GET", PODS, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    assert partial["kind"] == "PartialObjectMetadataList" and set(partial["items"][0]) == {
        "kind", "apiVersion", "metadata"}


# -- deletion

async def test_finalizers_keep_an_object_until_they_are_gone(api: Api) -> None:
    await api.ok("POST", MAPS, config("a", finalizers=["example.com/x"]))
    standing = await api.ok("DELETE", f"{MAPS}/a")
    assert standing["kind"] == "ConfigMap" and standing["metadata"]["deletionTimestamp"]
    denied = await api.no(422, "PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/y"]}}, MERGE)
    assert causes(denied) == {"metadata.finalizers": "FieldValueForbidden"}
    await api.ok("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE)
    await api.no(404, "GET", f"{MAPS}/a")


async def test_a_pod_on_a_node_goes_after_its_grace_and_any_other_at_once(api: Api) -> None:
    await api.ok("POST", PODS, pod("waits"))
    gone = await api.ok("DELETE", f"{PODS}/waits")
    assert gone["status"] == "Success" and gone["details"]["kind"] == "pods" and gone["details"]["uid"]
    await api.ok("POST", PODS, pod("runs", terminationGracePeriodSeconds=7))
    await api.ok("POST", f"{PODS}/runs/binding", {"target": {"name": "n"}})
    leaving = (await api.ok("DELETE", f"{PODS}/runs"))["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 7
    longer = (await api.ok("DELETE", f"{PODS}/runs", {"gracePeriodSeconds": 60}))["metadata"]
    shorter = (await api.ok("DELETE", f"{PODS}/runs", {"gracePeriodSeconds": 2}))["metadata"]
    assert (longer["deletionGracePeriodSeconds"], shorter["deletionGracePeriodSeconds"]) == (7, 2)
    await api.ok("DELETE", f"{PODS}/runs", {"gracePeriodSeconds": 0})
    await api.no(404, "GET", f"{PODS}/runs")


async def test_preconditions_of_a_delete(api: Api) -> None:
    made = (await api.ok("POST", MAPS, config("a")))["metadata"]
    await api.no(409, "DELETE", f"{MAPS}/a", {"preconditions": {"uid": "another"}})
    await api.no(409, "DELETE", f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    await api.ok("DELETE", f"{MAPS}/a", {"preconditions": {"uid": made["uid"]}})
    assert (await api.no(404, "DELETE", f"{MAPS}/a"))["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name in "abc":
        await api.ok("POST", MAPS, config(name, labels={"x": name}))
    deleted = await api.ok("DELETE", MAPS, labelSelector="x in (a,b)")
    assert [each["metadata"]["name"] for each in deleted["items"]] == ["a", "b"]
    assert await api.names(MAPS) == ["c"]


async def test_there_is_nothing_in_an_absent_or_ending_namespace(api: Api) -> None:
    status = await api.no(404, "POST", "/api/v1/namespaces/none/configmaps", config("a"))
    assert status["message"] == 'namespaces "none" not found'
    await api.ok("POST", "/api/v1/namespaces", config("ending"))
    ending = await api.ok("DELETE", "/api/v1/namespaces/ending")
    assert ending["status"]["phase"] == "Terminating"
    status = await api.no(403, "POST", "/api/v1/namespaces/ending/configmaps", config("a"))
    assert causes(status) == {"metadata.namespace": "NamespaceTerminating"}
    await api.no(403, "DELETE", "/api/v1/namespaces/default")


# -- built-in kinds

async def test_a_pod_is_completed_as_kubernetes_does(api: Api) -> None:
    made = await api.ok("POST", PODS, pod("a", containers=[
        {"name": "m", "image": "busybox", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
         "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        volumes=[{"name": "v", "configMap": {"name": "c"}}]))
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "Always", "ClusterFirst", 30)
    assert (spec["serviceAccountName"], spec["priority"]) == ("default", 0)
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert container["imagePullPolicy"] == "Always"
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert spec["volumes"][0]["configMap"]["defaultMode"] == 420
    assert made["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


@pytest.mark.parametrize(("spec", "wrong"), [
    ({"containers": []}, {"spec.containers": "FieldValueRequired"}),
    ({"containers": [{"name": "A", "image": "i"}]}, {"spec.containers[0].name": "FieldValueInvalid"}),
    ({"containers": [{"name": "a"}]}, {"spec.containers[0].image": "FieldValueRequired"}),
    ({"restartPolicy": "Maybe"}, {"spec.restartPolicy": "FieldValueNotSupported"}),
    ({"tolerations": [{"operator": "Equal"}]}, {"spec.tolerations[0].operator": "FieldValueInvalid"}),
    ({"nodeName": "n", "schedulingGates": [{"name": "g"}]}, {"spec.nodeName": "FieldValueForbidden"}),
    ({"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
     {"spec.containers[0].volumeMounts[0].name": "FieldValueNotFound"}),
    ({"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
     {"spec.containers[0].resources.requests": "FieldValueInvalid"}),
    ({"containers": [{"name": "a", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
     {"spec.containers[0].resources.limits": "FieldValueRequired"}),
    ({"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "-1"}}}]},
     {"spec.containers[0].resources.limits[cpu]": "FieldValueInvalid",
      "spec.containers[0].resources.requests[cpu]": "FieldValueInvalid"}),
])
async def test_what_no_pod_may_say(api: Api, spec: dict, wrong: dict) -> None:
    assert causes(await api.no(422, "POST", PODS, pod("a", **spec))) == wrong


async def test_a_pod_hardly_changes(api: Api) -> None:
    await api.ok("POST", PODS, pod("a", schedulingGates=[{"name": "g"}], nodeSelector={"a": "b"}))
    path = f"{PODS}/a"
    assert causes(await api.no(422, "PATCH", path, {"spec": {"priority": 5}}, MERGE)) == {"spec": "FieldValueForbidden"}
    await api.no(422, "PATCH", path, {"spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}, MERGE)
    await api.no(422, "PATCH", path, {"spec": {"nodeSelector": {"a": "c"}}}, MERGE)
    await api.ok("PATCH", path, {"spec": {"nodeSelector": {"c": "d"}, "tolerations": [{"operator": "Exists"}]}}, MERGE)
    await api.ok("PATCH", path, {"spec": {"schedulingGates": []}}, MERGE)
    await api.no(422, "PATCH", path, {"spec": {"nodeSelector": {"e": "f"}}}, MERGE)


async def test_a_priority_class_gives_pods_their_priority(api: Api) -> None:
    await api.ok("POST", CLASSES, config("low") | {"value": 5, "globalDefault": True})
    await api.ok("POST", CLASSES, config("high") | {"value": 1000})
    made = [await api.ok("POST", PODS, pod("a")), await api.ok("POST", PODS, pod("b", priorityClassName="high"))]
    assert [(each["spec"]["priority"], each["spec"]["priorityClassName"]) for each in made] == [
        (5, "low"), (1000, "high")]
    status = await api.no(403, "POST", PODS, pod("c", priorityClassName="none"))
    assert "no PriorityClass with name none was found" in status["message"]
    assert "must not be provided" in (await api.no(403, "POST", PODS, pod("c", priority=7)))["message"]
    await api.no(403, "POST", CLASSES, config("second") | {"value": 1, "globalDefault": True})
    await api.no(422, "PATCH", f"{CLASSES}/high", {"value": 7}, MERGE)
    await api.no(422, "POST", CLASSES, config("huge") | {"value": 2_000_000_000})


async def test_a_job_is_completed_and_hardly_changes(api: Api) -> None:
    made = await api.ok("POST", JOBS, job("a", suspend=True))
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["completionMode"]) == (
        1, 1, 6, "NonIndexed")
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "a"
    path = f"{JOBS}/a"
    for change in ({"completions": 2}, {"selector": {"matchLabels": {"a": "b"}}}, {"completionMode": "Indexed"},
                   {"template": {"spec": {"restartPolicy": "OnFailure"}}}):
        await api.no(422, "PATCH", path, {"spec": change}, MERGE)
    await api.ok("PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, MERGE)
    await api.ok("PATCH", path, {"spec": {"suspend": False, "parallelism": 3}}, MERGE)
    await api.no(422, "PATCH", path, {"spec": {"template": {"spec": {"nodeSelector": {"a": "c"}}}}}, MERGE)


async def test_what_no_job_may_say(api: Api) -> None:
    always = {"spec": {"containers": [{"name": "m", "image": "i"}]}}
    status = await api.no(422, "POST", JOBS, job("a", template=always))
    assert causes(status) == {"spec.template.spec.restartPolicy": "FieldValueRequired"}
    status = await api.no(422, "POST", JOBS, job("a", parallelism=-1, completionMode="Indexed"))
    assert causes(status) == {"spec.parallelism": "FieldValueInvalid", "spec.completions": "FieldValueRequired"}


async def test_secrets_and_config_maps(api: Api) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    made = await api.ok("POST", secrets, config("a") | {"stringData": {"k": "v"}, "data": {"x": "eA=="}})
    assert made["data"] == {"k": "dg==", "x": "eA=="} and made["type"] == "Opaque" and "stringData" not in made
    await api.no(422, "POST", secrets, config("b") | {"data": {"k": "not base64!"}})
    await api.ok("POST", MAPS, config("fixed") | {"immutable": True, "data": {"a": "b"}})
    await api.no(422, "PATCH", f"{MAPS}/fixed", {"data": {"a": "c"}}, MERGE)
    await api.no(422, "POST", MAPS, config("b") | {"data": {"a/b": "c"}})


async def test_an_event_is_in_the_namespace_of_what_it_is_about(api: Api) -> None:
    await api.ok("POST", "/api/v1/namespaces", config("other"))
    for space, own, another in (("default", {}, {"namespace": "other"}), ("other", {"namespace": "other"}, {})):
        events = f"/api/v1/namespaces/{space}/events"
        await api.ok("POST", events, config("a") | {"involvedObject": own})
        status = await api.no(422, "POST", events, config("b") | {"involvedObject": another})
        assert causes(status) == {"involvedObject.namespace": "FieldValueInvalid"}
        changed = {"involvedObject": {"namespace": another.get("namespace")}}
        await api.no(422, "PATCH", f"{events}/a", changed, MERGE)


@pytest.mark.parametrize(("rule", "field"), [
    ({}, ""), ({"succeededIndexes": "3"}, ".succeededIndexes"), ({"succeededIndexes": "a"}, ".succeededIndexes"),
    ({"succeededIndexes": "0-1", "succeededCount": 3}, ".succeededCount"), ({"succeededCount": 4}, ".succeededCount"),
])  # fmt: skip
async def test_a_success_policy_names_indexes_that_the_job_has(api: Api, rule: dict, field: str) -> None:
    made = job("a", completionMode="Indexed", completions=3, successPolicy={"rules": [rule]})
    status = await api.no(422, "POST", JOBS, made)
    assert list(causes(status)) == [f"spec.successPolicy.rules[0]{field}"]
    made["spec"]["completionMode"] = "NonIndexed"
    assert list(causes(await api.no(422, "POST", JOBS, made))) == ["spec.successPolicy"]


async def test_kinds_that_nothing_acts_on_are_kept_with_a_warning(api: Api) -> None:
    sets = "/apis/apps/v1/namespaces/default/daemonsets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    await api.ok("POST", sets, config("d") | {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
    assert api.warnings.startswith('299 - "daemonsets.apps are kept as data here')
    assert await api.names(sets) == ["d"]


async def test_fields_that_nothing_acts_on_are_named_in_a_warning(api: Api) -> None:
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    made = job("a", completionMode="Indexed", completions=2, backoffLimitPerIndex=1, podFailurePolicy=policy,
               podReplacementPolicy="Failed")
    made["spec"]["template"]["spec"] |= {"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}
    spec = (await api.ok("POST", JOBS, made))["spec"]
    assert spec["backoffLimit"] == 2**31 - 1
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    ignored = ("podReplacementPolicy", "template.spec.securityContext.sysctls")
    assert api.warnings.count("nothing acts on it") == len(ignored) and all(
        f"spec.{name} is kept as data here" in api.warnings for name in ignored)
    await api.ok("POST", PODS, pod("q"))
    assert api.warnings == ""


async def test_no_warning_says_that_nothing_acts_on_the_user_of_a_pod(api: Api) -> None:
    made = pod("p", securityContext={"runAsUser": 0})
    made["spec"]["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": False, "privileged": True}
    await api.ok("POST", PODS, made)
    assert "spec.securityContext.runAsUser: without a container engine" in api.warnings
    assert api.warnings.count("nothing acts on it") == 1 and "allowPrivilegeEscalation" not in api.warnings
    assert "spec.containers[0].securityContext.privileged is kept as data here" in api.warnings


async def test_admission_completes_warns_and_refuses() -> None:
    seen: list[tuple] = []

    def admit(asked: Admission) -> tuple[dict, list[str]]:
        seen.append((asked.operation, asked.kind.kind, asked.namespace, asked.user, asked.old is None))
        if asked.new.get("data", {}).get("bad"):
            cause = ("data[bad]", "FieldValueInvalid", "Invalid value: no")
            raise Refused([cause], forbidden="403" in asked.new["data"])
        asked.new.setdefault("data", {})["seen"] = "yes"
        return asked.new, ["mind the gap"]

    api = make_api(admit=admit)
    await api.server.start()
    seen.clear()
    assert (await api.ok("POST", MAPS, config("a")))["data"] == {"seen": "yes"} and "mind the gap" in api.warnings
    assert causes(await api.no(422, "POST", MAPS, config("b") | {"data": {"bad": "x"}})) == {
        "data[bad]": "FieldValueInvalid"}
    await api.no(403, "PATCH", f"{MAPS}/a", {"data": {"bad": "x", "403": ""}}, MERGE)
    await api.no(404, "GET", f"{MAPS}/b")
    assert [each[0] for each in seen] == ["CREATE", "CREATE", "UPDATE"] and seen[2][1:] == (
        "ConfigMap", "default", "fairway:admin", False)


async def test_tokens_are_asked_on_every_route_and_name_the_user() -> None:
    api = make_api(tokens={"secret": Identity("ann", (MASTERS,))})
    await api.server.start()
    for path in (PODS, "/api", "/readyz", "/openapi/v3", "/nowhere"):
        assert (await api.no(401, "GET", path))["reason"] == "Unauthorized"


async def test_who_am_i_and_may_i(api: Api) -> None:
    me = await api.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert me["status"]["userInfo"]["username"] == "fairway:admin"
    asked = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    answer = await api.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
    assert answer["status"]["allowed"] is True
    await api.no(405, "GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")


# -- custom resources

async def test_a_definition_is_served_at_once_and_its_objects_are_shaped(api: Api) -> None:
    spec = {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "port": {"x-kubernetes-int-or-string": True}, "gone": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "inner": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 3}}}}}
    made = await api.ok("POST", CRDS, crd(spec=spec, subresources={"status": {}}))
    assert {each["type"]: each["status"] for each in made["status"]["conditions"]} == {
        "NamesAccepted": "True", "Established": "True"}
    path = "/apis/example.com/v1/namespaces/default/widgets"
    thing = widget("a") | {"spec": {"size": 2, "port": "http", "gone": None, "free": {"x": {"y": 1}}, "junk": 1},
                           "status": {"phase": "Done"}}
    made = await api.ok("POST", path, thing)
    assert made["spec"] == {"size": 2, "port": "http", "gone": None, "free": {"x": {"y": 1}}, "color": "red",
                              "inner": {"deep": 3}}
    assert "status" not in made and made["metadata"]["generation"] == 1
    wrong = widget("b") | {"spec": {"size": 0, "color": "green", "port": 1.5, "tags": ["x", "x"]}}
    assert causes(await api.no(422, "POST", path, wrong)) == {
        "spec.size": "FieldValueInvalid", "spec.color": "FieldValueNotSupported", "spec.port": "FieldValueTypeInvalid",
        "spec.tags[1]": "FieldValueDuplicate"}
    assert causes(await api.no(422, "POST", path, widget("b") | {"spec": {}})) == {"spec.size": "FieldValueRequired"}
    await api.no(415, "PATCH", f"{path}/a", {}, STRATEGIC)
    await api.ok("PATCH", f"{path}/a/status", {"status": {"phase": "Done"}}, MERGE)
    assert await api.names("/apis/example.com/v1/widgets") == ["a"]


async def test_definitions_that_are_refused_or_not_established(api: Api) -> None:
    wrong = crd()
    wrong["metadata"]["name"] = "other.example.com"
    wrong["spec"]["versions"][0]["storage"] = False
    assert set(causes(await api.no(422, "POST", CRDS, wrong))) == {"metadata.name", "spec.versions"}
    await api.ok("POST", CRDS, crd())
    clash = crd("widgetz")
    clash["spec"]["names"]["kind"] = "Widget"
    made = await api.ok("POST", CRDS, clash)
    assert {each["type"]: each["status"] for each in made["status"]["conditions"]} == {
        "NamesAccepted": "False", "Established": "False"}
    await api.no(404, "GET", "/apis/example.com/v1/widgetz")


async def test_a_fraction_for_a_number_or_a_string_is_refused_with_the_way_to_write_it(api: Api) -> None:
    either = {"x-kubernetes-int-or-string": True}
    await api.ok("POST", CRDS, crd(spec={"type": "object", "properties": {"hours": either}}))
    path = "/apis/example.com/v1/namespaces/default/widgets"
    status = await api.no(422, "POST", path, widget("a") | {"spec": {"hours": 0.01}})
    assert status["message"].endswith('of type integer,string: "number"; write a fraction as a string: "0.01"')
    await api.ok("POST", path, widget("a") | {"spec": {"hours": "0.01"}})


async def test_cel_rules_are_said_not_to_run(api: Api) -> None:
    rules = {"type": "object", "x-kubernetes-validations": [{"rule": "false"}], "properties": {"a": {"type": "string"}}}
    await api.ok("POST", CRDS, crd(spec=rules))
    assert "are not run" in api.warnings
    await api.ok("POST", "/apis/example.com/v1/namespaces/default/widgets", widget("a") | {"spec": {"a": "b"}})


async def test_all_versions_of_a_kind_are_the_same_objects(api: Api) -> None:
    thing = crd()
    second = thing["spec"]["versions"][0] | {"name": "v2", "storage": False}
    thing["spec"]["versions"].append(second)
    await api.ok("POST", CRDS, thing)
    await api.ok("POST", "/apis/example.com/v1/namespaces/default/widgets", widget("a") | {"spec": {"size": 1}})
    other = await api.ok("GET", "/apis/example.com/v2/namespaces/default/widgets/a")
    assert other["apiVersion"] == "example.com/v2" and other["spec"] == {"size": 1}


async def test_a_finished_job_is_kept_for_a_while_unless_it_says_how_long():
    clock = Clock()
    store = Store()
    made = Api(Server(Registry(store, KINDS, clock, seeded(1), admit=gate(store, clock, job_ttl=3600.0))))
    await made.server.start()
    first = await made.ok("POST", JOBS, job("a"))
    assert first["spec"]["ttlSecondsAfterFinished"] == 3600
    own = await made.ok("POST", JOBS, job("b", ttlSecondsAfterFinished=5))
    assert own["spec"]["ttlSecondsAfterFinished"] == 5


@pytest.mark.parametrize(("rolling", "code"), [
    ({"maxSurge": "x%"}, 422), ({"maxUnavailable": "-5%"}, 422), ({"maxUnavailable": "150%"}, 422),
    ({"maxSurge": -1}, 422), ({"maxSurge": "150%", "maxUnavailable": 1}, 201), ({}, 201),
])  # fmt: skip
async def test_a_rolling_update_is_bounded_by_numbers_and_percentages(
    api: Api, rolling: dict[str, object], code: int
) -> None:
    container = {"name": "main", "image": "none", "command": ["sleep", "1"]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "strategy": {"rollingUpdate": rolling}}
    path = "/apis/apps/v1/namespaces/default/deployments"
    status, _ = await api.ask("POST", path, config("d") | {"spec": spec})
    assert status == code


async def test_a_job_has_no_more_indexes_than_its_controller_can_look_at(api: Api) -> None:
    container = {"name": "main", "image": "none", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": 100_001, "template": template}
    await api.no(422, "POST", "/apis/batch/v1/namespaces/default/jobs", config("j") | {"spec": spec})
