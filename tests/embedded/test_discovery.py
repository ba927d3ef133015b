"""Discovery and OpenAPI as clients read them, without a server."""

import json

from fairway.embedded.discovery import discover
from fairway.embedded.kinds import builtin_kinds, kind_of_crd

KINDS = builtin_kinds()
AGGREGATED = ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
              "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json")
GVK = "x-kubernetes-group-version-kind"


def ask(path: str, *, kinds=KINDS, accept: str = "application/json", query: tuple = ()):
    answer = discover(kinds, path, {"accept": accept}, query)
    return None if answer is None else json.loads(answer.body)


def ships(*, crew: str = "integer") -> tuple:
    schema = {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"crew": {"type": crew, "description": "How many sail it."}}}}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}}} for name in ("v1alpha1", "v1", "v1beta1", "v2beta1", "old")]
    return kind_of_crd({"spec": {
        "group": "sea.example.com", "scope": "Namespaced", "versions": versions,
        "names": {"kind": "Ship", "plural": "ships", "shortNames": ["sh"], "categories": ["all"]}}})


def test_groups_and_versions_lead_to_resources():
    assert ask("/api")["versions"] == ["v1"]
    groups = {group["name"]: group for group in ask("/apis")["groups"]}
    assert groups["batch"]["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert ask("/apis/batch")["kind"] == "APIGroup"
    jobs = {each["name"]: each for each in ask("/apis/batch/v1")["resources"]}["jobs"]
    assert (jobs["kind"], jobs["singularName"], jobs["namespaced"], jobs["categories"]) == ("Job", "job", True, ["all"])
    assert set(jobs["verbs"]) == {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}


def test_subresources_are_listed_with_what_they_take():
    pods = {each["name"]: each for each in ask("/api/v1")["resources"]}
    assert pods["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert pods["pods/log"]["verbs"] == ["get"] and pods["pods/binding"]["kind"] == "Binding"
    assert (pods["pods/eviction"]["group"], pods["pods/eviction"]["kind"]) == ("policy", "Eviction")
    assert "configmaps/status" not in pods


def test_what_is_not_there_is_not_answered():
    for path in ("/api/v2", "/apis/nope", "/apis/batch/v2", "/api/v1/pods", "/openapi/v3/apis/nope/v1", "/healthz"):
        assert ask(path) is None, path


def test_aggregated_discovery_says_the_same():
    for path, place in (("/api", ""), ("/apis", "batch")):
        answer = discover(KINDS, path, {"accept": AGGREGATED})
        assert answer.headers["content-type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        found = json.loads(answer.body)
        assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
        version = next(each for each in found["items"] if each["metadata"]["name"] == place)["versions"][0]
        plain = ask("/api/v1" if path == "/api" else "/apis/batch/v1")["resources"]
        named = [name for each in version["resources"] for name in (
            each["resource"], *(f"{each['resource']}/{sub['subresource']}" for sub in each["subresources"]))]
        assert named == [each["name"] for each in plain]


def test_clients_that_know_only_the_older_aggregated_form_get_it():
    old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    assert ask("/apis", accept=old)["apiVersion"] == "apidiscovery.k8s.io/v2beta1"


def test_reviews_can_only_be_created():
    reviews = {each["kind"]: each["verbs"] for each in ask("/apis/authorization.k8s.io/v1")["resources"]}
    assert reviews["SelfSubjectAccessReview"] == ["create"] == reviews["SelfSubjectRulesReview"]


def test_versions_are_preferred_as_in_kubernetes():
    group = ask("/apis/sea.example.com", kinds=(*KINDS, *ships()))
    assert [each["version"] for each in group["versions"]] == ["v1", "v2beta1", "v1beta1", "v1alpha1", "old"]
    assert group["preferredVersion"]["version"] == "v1"


def test_the_index_of_openapi_has_every_group_and_leads_to_documents():
    index = ask("/openapi/v3")["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/apiextensions.k8s.io/v1"} <= index.keys()
    for place, entry in index.items():
        path, _, digest = entry["serverRelativeURL"].partition("?hash=")
        assert path == f"/openapi/v3/{place}" and len(digest) == 32
        answer = discover(KINDS, path, {}, (("hash", digest),))
        assert "immutable" in answer.headers["cache-control"] and json.loads(answer.body)["openapi"] == "3.0.0"
    assert "cache-control" not in discover(KINDS, "/openapi/v3/api/v1", {}, (("hash", "other"),)).headers


def test_every_reference_in_a_document_leads_somewhere():
    for place in ask("/openapi/v3")["paths"]:
        text = discover(KINDS, f"/openapi/v3/{place}", {}).body.decode()
        schemas = json.loads(text)["components"]["schemas"]
        named = {each.split('"')[0] for each in text.split('"$ref":"#/components/schemas/')[1:]}
        assert named and named <= schemas.keys(), place


def test_patches_name_their_kind_and_take_field_validation():
    paths = ask("/openapi/v3/apis/batch/v1")["paths"]
    patch = paths["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert patch[GVK] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert "fieldValidation" in {each["name"] for each in patch["parameters"] if each["in"] == "query"}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


def test_merge_keys_stand_in_the_document():
    schemas = ask("/openapi/v3/api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (containers["x-kubernetes-patch-merge-key"], containers["x-kubernetes-patch-strategy"]) == ("name", "merge")
    assert containers["items"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}
    assert schemas["io.k8s.api.core.v1.Pod"][GVK] == [{"group": "", "version": "v1", "kind": "Pod"}]


def test_custom_kinds_are_documented_under_their_reversed_group():
    document = ask("/openapi/v3/apis/sea.example.com/v1", kinds=(*KINDS, *ships()))
    ship = document["components"]["schemas"]["com.example.sea.v1.Ship"]
    assert ship[GVK] == [{"group": "sea.example.com", "version": "v1", "kind": "Ship"}]
    assert ship["properties"]["spec"]["properties"]["crew"]["description"] == "How many sail it."
    assert ship["properties"]["metadata"]["$ref"].endswith("v1.ObjectMeta")
    patch = document["paths"]["/apis/sea.example.com/v1/namespaces/{namespace}/ships/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_a_changed_definition_changes_the_address_of_its_document_and_no_other():
    def index(kinds):
        return {place: entry["serverRelativeURL"] for place, entry in ask("/openapi/v3", kinds=kinds)["paths"].items()}

    first, second = index((*KINDS, *ships())), index((*KINDS, *ships(crew="string")))
    changed = {place for place in first if first[place] != second[place]}
    assert changed == {f"apis/sea.example.com/{version}" for version in ("v1", "v1alpha1", "v1beta1", "v2beta1", "old")}


def test_openapi_v2_is_empty_and_typed():
    answer = discover(KINDS, "/openapi/v2", {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})
    assert answer.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert answer.body == b""
    assert ask("/openapi/v2")["swagger"] == "2.0"


def test_the_version_is_one_that_clients_can_read():
    version = ask("/version")
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


def test_the_structure_of_the_built_in_kinds_carries_no_texts():
    def texts(node, at=""):
        if isinstance(node, dict):
            yield from (f"{at}.{key}" for key in ("description",) if isinstance(node.get(key), str))
            for key, value in node.items():
                yield from texts(value, f"{at}.{key}")

    assert [text for kind in KINDS for text in texts(kind.schema)] == []


def test_kinds_share_their_pod_spec_and_know_what_they_are():
    by_name = {(kind.group, kind.kind): kind for kind in KINDS}
    pod, job = by_name["", "Pod"], by_name["batch", "Job"]
    template = job.schema["properties"]["spec"]["properties"]["template"]
    assert template["properties"]["spec"] is pod.schema["properties"]["spec"]
    assert pod.subresources == {
        "status", "attach", "binding", "eviction", "exec", "log", "portforward"} and job.acted_on
    assert not by_name["apps", "DaemonSet"].acted_on and not by_name["", "Node"].namespaced
    assert by_name["", "Endpoints"].plural == "endpoints" and by_name["policy", "PodDisruptionBudget"].short == ("pdb",)
