"""Strategic merge: keyed lists, and the directives that kubectl writes."""

import asyncio
import time

import msgspec
import pytest
from inprocess import MAPS, MERGE, STRATEGIC, Api

from fairway.embedded.errors import Failure
from fairway.embedded.patch import APPLY, JSON, merge, strategic


def containers(*names: str, **more: object) -> list[dict]:
    return [{"name": name, "image": f"{name}:1", **more} for name in names]


@pytest.mark.parametrize(("target", "patch", "result"), [
    ({"containers": containers("a", "b")}, {"containers": [{"name": "b", "image": "new"}, {"name": "c"}]},
     {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "new"}, {"name": "c"}]}),
    ({"containers": containers("a", "b")}, {"containers": [{"name": "a", "$patch": "delete"}]},
     {"containers": containers("b")}),
    ({"containers": containers("a", "b")}, {"containers": [{"$patch": "replace"}, {"name": "c"}]},
     {"containers": [{"name": "c"}]}),
    ({"containers": containers("a", "b", "c")}, {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]},
     {"containers": containers("c", "a", "b")}),
    ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
    ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
    ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
    ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
                                  "$setElementOrder/finalizers": ["c", "b"]}, {"finalizers": ["c", "b"]}),
    ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
    ({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
    ({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {}),
    ({"labels": {"a": "1"}}, {"labels": None}, {}),
    ({"volumes": [{"name": "v", "emptyDir": {}}]},
     {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]},
     {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
    ({}, {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": None}]}]}},
     {"spec": {"containers": [{"name": "a", "env": [{"name": "X"}]}]}}),
    ({"ports": [{"containerPort": 80, "name": "a"}]}, {"ports": [{"containerPort": 80, "protocol": "UDP"}]},
     {"ports": [{"containerPort": 80, "name": "a", "protocol": "UDP"}]}),
    ({"ports": [{"port": 80}]}, {"ports": [{"port": 80, "targetPort": 8080}]},
     {"ports": [{"port": 80, "targetPort": 8080}]}),
])
def test_a_strategic_merge(target: dict, patch: dict, result: dict) -> None:
    assert strategic(target, patch) == result


def test_an_element_without_its_key_is_refused() -> None:
    with pytest.raises(Failure) as refusal:
        strategic({"containers": containers("a")}, {"containers": [{"name": "a"}, {"image": "x"}]})
    assert refusal.value.code == 400


@pytest.mark.parametrize("directive", ["$retainKeys", "$deleteFromPrimitiveList/args", "$setElementOrder/args"])
@pytest.mark.parametrize("said", [None, 1, "a", {"a": 1}])
def test_a_directive_that_is_no_list_is_refused_by_its_name(directive: str, said: object) -> None:
    with pytest.raises(Failure) as refusal:
        strategic({"args": ["a"]}, {directive: said})
    assert refusal.value.code == 400
    assert f"{directive}: a list is needed" in refusal.value.message


@pytest.mark.parametrize("patch", [
    {"$retainKeys": [{}, "args"]}, {"$deleteFromPrimitiveList/args": [{}, None]}, {"$setElementOrder/args": [{}, []]},
    {"$deleteFromPrimitiveList/count": ["a"], "count": 1}, {"$setElementOrder/count": ["a"], "count": 1},
])
def test_a_directive_names_what_is_not_there(patch: dict) -> None:
    assert strategic({"args": ["a"], "count": 1}, patch)["args"] == ["a"]


@pytest.mark.parametrize("patch", [{"containers": ["a"]}, {"containers": [{"name": {}}]}, {"replicas": [1]}])
async def test_a_strategic_merge_of_no_legal_elements_is_refused(api: Api, patch: dict) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers("a")}}}
    path = "/apis/apps/v1/namespaces/default/deployments"
    await api.ok("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    change = {"spec": patch if "replicas" in patch else {"template": {"spec": patch}}}
    status, _ = await api.ask("PATCH", f"{path}/a", change, STRATEGIC)
    assert status in (400, 422)


@pytest.mark.parametrize(("target", "patch", "result"), [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"a": None}, {}), ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}), ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
])
def test_a_merge_patch_is_as_rfc_7396_says(target: dict, patch: dict, result: dict) -> None:
    assert merge(target, patch) == result


async def test_who_changes_what_was_applied_is_named_by_its_user_where_it_says_no_more(api: Api) -> None:
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    apply = "application/apply-patch+yaml"
    await api.ok("PATCH", f"{MAPS}/a", thing, apply, fieldManager="one")
    changed = await api.ok("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, MERGE)
    assert [each["manager"] for each in changed["metadata"]["managedFields"]] == ["admin"]
    same = await api.ok("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, MERGE)
    assert same == changed


async def test_what_was_never_applied_has_managers_from_its_first_apply_on(api: Api) -> None:
    made = await api.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert "managedFields" not in made["metadata"]
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"y": "1"}}
    applied = await api.ok("PATCH", f"{MAPS}/a", thing, "application/apply-patch+yaml", fieldManager="one")
    assert [each["manager"] for each in applied["metadata"]["managedFields"]] == ["one", "before-first-apply"]


async def test_a_large_apply_in_yaml_holds_up_no_other_request(api: Api) -> None:
    data = "".join(f"  k{number}: value {number}\n" for number in range(15_000))
    thing = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n{data}".encode()
    media = "application/apply-patch+yaml"
    applied = asyncio.create_task(api.ok("PATCH", f"{MAPS}/a", thing, media, fieldManager="one"))
    await asyncio.sleep(0)
    assert await api.names(MAPS) == []
    assert not applied.done()
    assert len((await applied)["data"]) == 15_000


@pytest.mark.parametrize("patch, left", [
    ({"finalizers": [f"a/{number}" for number in range(30_000)]}, 30_000),
    ({"$deleteFromPrimitiveList/finalizers": [f"a/{number}" for number in range(1, 20_000)]}, 1),
    ({"$retainKeys": ["finalizers", *(f"k{number}" for number in range(20_000))], "finalizers": []}, 8_000),
    ({"$setElementOrder/finalizers": [f"a/{number}" for number in range(20_000)]}, 8_000),
])
def test_long_lists_are_merged_in_the_time_of_their_length(patch: dict, left: int) -> None:
    before = {"finalizers": [f"a/{number}" for number in range(8_000)]} | {f"k{number}": 1 for number in range(20_000)}
    at = time.process_time()
    assert len(strategic(before, patch)["finalizers"]) == left
    assert time.process_time() - at < 1


async def test_a_patch_has_at_most_ten_thousand_operations(api: Api) -> None:
    await api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    test = {"op": "test", "path": "/metadata/name", "value": "a"}
    await api.ok("PATCH", f"{MAPS}/a", [test] * 10_000, JSON)
    said = await api.no(413, "PATCH", f"{MAPS}/a", [test] * 10_001, JSON)
    assert said["message"] == "the allowed maximum operations in a JSON patch is 10000, got 10001"


FLOW = ",".join(f"k{number}: v" for number in range(240_000))


@pytest.mark.parametrize("body", [
    f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{{FLOW}}}".encode(),
    msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                         "data": {f"k{number}": "v" for number in range(200_000)}}),
    b"[" + b"[]," * 1_000_000 + b"]",
])
async def test_what_would_be_read_for_long_is_too_large_to_apply(api: Api, body: bytes) -> None:
    at = time.thread_time()  # of the loop, which serves all others
    await api.no(413, "PATCH", f"{MAPS}/a", body, APPLY, fieldManager="one")
    assert time.thread_time() - at < 2


async def test_a_definition_of_forty_thousand_lines_is_applied_in_yaml(api: Api) -> None:
    head = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: jobs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Job, plural: jobs}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
"""
    body = head + "".join(f"          p{number}:\n            type: string\n" for number in range(20_000))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobs.example.com"
    for _ in range(2):
        made = await api.ok("PATCH", path, body.encode(), APPLY, fieldManager="one")
    assert [it["manager"] for it in made["metadata"]["managedFields"]] == ["one"]


async def test_what_has_too_many_fields_is_written_without_managers_and_not_applied(api: Api) -> None:
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    await api.ok("PATCH", f"{MAPS}/a", thing, APPLY, fieldManager="one")
    large = await api.ok("PATCH", f"{MAPS}/a", {"data": {f"k{number}": "v" for number in range(30_000)}}, MERGE)
    assert "managedFields" not in large["metadata"]
    assert "20000 fields" in (await api.no(413, "PATCH", f"{MAPS}/a", thing, APPLY, fieldManager="one"))["message"]


async def test_what_is_applied_no_more_goes_in_the_time_of_its_length(api: Api) -> None:
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    many = thing | {"metadata": {"name": "a", "finalizers": [f"a/{number}" for number in range(8_000)]}}
    await api.ok("PATCH", f"{MAPS}/a", many, APPLY, fieldManager="one")
    at = time.thread_time()
    assert "finalizers" not in (await api.ok("PATCH", f"{MAPS}/a", thing, APPLY, fieldManager="one"))["metadata"]
    assert time.thread_time() - at < 2
