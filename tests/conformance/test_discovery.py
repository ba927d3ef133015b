"""What clients ask first: discovery, OpenAPI, version, health; and protobuf and tables, which kubectl asks for."""

import base64
import json

import pytest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
GVK = "x-kubernetes-group-version-kind"


async def test_groups_lead_to_resources(api):
    assert "v1" in (await api.get("/api"))["versions"]
    groups = {each["name"]: each for each in (await api.get("/apis"))["groups"]}
    assert {"apps", "batch", "scheduling.k8s.io", "coordination.k8s.io", "policy", "apiextensions.k8s.io",
            "authorization.k8s.io", "authentication.k8s.io"} <= groups.keys()
    for name in ("batch", "policy"):
        version = groups[name]["preferredVersion"]["groupVersion"]
        assert (await api.get(f"/apis/{version}"))["groupVersion"] == version
    core = {each["name"]: each for each in (await api.get("/api/v1"))["resources"]}
    assert core["pods"]["shortNames"] == ["po"] and core["pods"]["namespaced"] and not core["nodes"]["namespaced"]
    assert {"pods/status", "pods/binding", "pods/eviction", "pods/exec", "pods/log", "nodes/status"} <= core.keys()
    assert set(core["pods"]["verbs"]) == {
        "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


async def test_all_groups_come_at_once_to_who_asks_so(api):
    for path, name in (("/api", ""), ("/apis", "batch")):
        answer = await api.ask("GET", path, accept=AGGREGATED)
        found = answer.thing
        assert found["kind"] == "APIGroupDiscoveryList" and "as=APIGroupDiscoveryList" in answer.headers["content-type"]
        group = next(each for each in found["items"] if each["metadata"].get("name", "") == name)
        assert group["versions"][0]["freshness"] == "Current" and group["versions"][0]["resources"]


async def test_openapi_leads_from_the_index_to_documents(api):
    paths = (await api.get("/openapi/v3"))["paths"]
    assert {"api/v1", "apis/batch/v1"} <= paths.keys()
    address, _, digest = paths["apis/batch/v1"]["serverRelativeURL"].partition("?hash=")
    assert digest
    document = (await api.ask("GET", address, hash=digest)).thing
    patch = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert patch[GVK] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert "fieldValidation" in {each["name"] for each in patch["parameters"]}
    job = document["components"]["schemas"]["io.k8s.api.batch.v1.Job"]
    assert job[GVK] == [{"group": "batch", "version": "v1", "kind": "Job"}]
    containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"


async def test_openapi_v2_is_there_in_protobuf(api):
    answer = await api.ask("GET", "/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


async def test_the_server_says_its_version_and_health(api):
    version = await api.get("/version")
    assert version["major"] == "1" and int(version["minor"].rstrip("+")) >= 27
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.ask("GET", path)
        assert (answer.status, answer.body) == (200, b"ok")


async def test_lists_and_objects_come_as_tables(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    for path in (maps, f"{maps}/a"):
        table = (await api.ask("GET", path, accept=TABLE)).thing
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert int(table["metadata"]["resourceVersion"]) > 0
        assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Data", "Age"]
        row = next(each for each in table["rows"] if each["cells"][0] == "a")
        assert row["cells"][1] == 1 and row["object"]["kind"] == "PartialObjectMetadata"
        assert row["object"]["metadata"]["name"] == "a"


async def test_tables_carry_whole_objects_or_none_where_asked(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    whole = (await api.ask("GET", maps, accept=TABLE, includeObject="Object", fieldSelector="metadata.name=a")).thing
    assert whole["rows"][0]["object"]["data"] == {"x": "1"}
    none = (await api.ask("GET", maps, accept=TABLE, includeObject="None", fieldSelector="metadata.name=a")).thing
    assert not none["rows"][0].get("object")


@pytest.mark.parametrize(("path", "columns"), [
    ("/api/v1/pods", "Name Ready Status Restarts Age"), ("/api/v1/nodes", "Name Status Roles Age Version"),
    ("/api/v1/namespaces", "Name Status Age"), ("/apis/batch/v1/jobs", "Name Status Completions Duration Age"),
    ("/apis/coordination.k8s.io/v1/leases", "Name Holder Age"), ("/api/v1/secrets", "Name Type Data Age"),
    ("/api/v1/events", "Last_Seen Type Reason Object Message"), ("/apis/apps/v1/deployments",
                                                                "Name Ready Up-to-date Available Age"),
    ("/api/v1/services", "Name Type Cluster-IP External-IP Port(s) Age"),
    ("/apis/autoscaling/v2/horizontalpodautoscalers", "Name Reference Targets MinPods MaxPods Replicas Age"),
    ("/apis/policy/v1/poddisruptionbudgets", "Name Min_Available Max_Unavailable Allowed_Disruptions Age")])
async def test_each_kind_has_its_columns(api, path, columns):
    table = (await api.ask("GET", path, accept=TABLE)).thing
    shown = [each["name"].replace(" ", "_") for each in table["columnDefinitions"] if each["priority"] == 0]
    assert shown == columns.split()


PROTOBUF = "application/vnd.kubernetes.protobuf"
CONFIG_MAP = base64.b64decode("azhzAAoPCgJ2MRIJQ29uZmlnTWFwEi0KGAoIc2V0dGluZ3MSABoAIgAqADIAOABCABIGCgFhEgFiEgkKBWVtcHR5"
                              "EgAaACIA")


async def test_kubectl_posts_protobuf(api, maps):
    answer = await api.ask("POST", maps, CONFIG_MAP, media=PROTOBUF, fieldValidation="Strict")
    assert answer.status == 201, answer.body
    assert answer.thing["data"] == {"a": "b", "empty": ""} and answer.thing["metadata"]["name"] == "settings"


async def test_damaged_protobuf_is_refused(api, maps):
    for body in (b"k8s\0", CONFIG_MAP[:-9], b"nothing"):
        answer = await api.ask("POST", maps, body, media=PROTOBUF)
        assert answer.status in (400, 415), body


async def test_documents_are_json(api):
    for path in ("/api", "/apis", "/apis/batch", "/apis/batch/v1", "/version"):
        answer = await api.ask("GET", path)
        assert answer.headers["content-type"].startswith("application/json") and json.loads(answer.body)
    assert (await api.get("/openapi/v3"))["paths"]
