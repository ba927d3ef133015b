"""The three patches."""

import pytest


@pytest.fixture
async def path(api, maps) -> str:
    """A ConfigMap to patch."""
    await api.create(maps, {"metadata": {"name": "a", "labels": {"l": "1", "m": "2"}}, "data": {"x": "1", "y": "2"}})
    return f"{maps}/a"


async def test_a_merge_patch_merges_objects_and_removes_what_is_null(api, path):
    patched = await api.patch(path, {"data": {"x": None, "z": "3"}, "metadata": {"labels": {"l": "9"}}})
    assert patched["data"] == {"y": "2", "z": "3"}
    assert patched["metadata"]["labels"] == {"l": "9", "m": "2"}


async def test_a_json_patch_is_a_list_of_operations(api, path):
    patched = await api.patch(path, [
        {"op": "test", "path": "/data/x", "value": "1"}, {"op": "remove", "path": "/data/x"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "3"},
        {"op": "replace", "path": "/data/y", "value": "5"}, {"op": "copy", "from": "/data/y", "path": "/data/w"},
        {"op": "move", "from": "/data/w", "path": "/data/v"},
    ], api.JSON)
    assert patched["data"] == {"y": "5", "v": "5"} and patched["metadata"]["labels"]["a/b"] == "3"


@pytest.mark.parametrize("operations", [
    [{"op": "test", "path": "/data/x", "value": "7"}], [{"op": "remove", "path": "/data/none"}],
    [{"op": "replace", "path": "/none/such", "value": 1}]])
async def test_a_json_patch_that_does_not_apply_changes_nothing(api, path, operations):
    before = await api.get(path)
    add = {"op": "add", "path": "/data/new", "value": "1"}
    status = await api.refused(422, "PATCH", path, [add, *operations], media=api.JSON)
    assert status["reason"] == "Invalid"
    assert await api.get(path) == before


@pytest.mark.parametrize("body", [b"{", b"7"])
async def test_bodies_that_are_no_patches_are_refused(api, path, body):
    for media in (api.MERGE, api.JSON, api.STRATEGIC):
        assert (await api.ask("PATCH", path, body, media=media)).status in (400, 422), media


async def test_a_patch_that_changes_nothing_writes_nothing(api, path):
    before = await api.get(path)
    for media in (api.MERGE, api.STRATEGIC):
        after = await api.patch(path, {"data": {"x": "1"}}, media)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_patch_cannot_change_what_an_object_is(api, path):
    before = await api.get(path)
    status = await api.refused(400, "PATCH", path, {"metadata": {"name": "b"}}, media=api.MERGE)
    assert "name" in status["message"]
    for change in ({"uid": "0a0a0a0a-0000-4000-8000-000000000000"}, {"namespace": "default"}):
        assert (await api.ask("PATCH", path, {"metadata": change}, media=api.MERGE)).status in (400, 409, 422)
    after = await api.patch(path, {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}})
    assert after["metadata"]["creationTimestamp"] == before["metadata"]["creationTimestamp"]


@pytest.fixture
async def template(api, namespace) -> str:
    """A PodTemplate: lists of every sort, and nobody who acts on it."""
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    spec = {"containers": [{"name": "a", "image": "one", "env": env}, {"name": "b", "image": "two"}],
            "tolerations": [{"key": "k", "operator": "Exists"}]}
    templates = f"/api/v1/namespaces/{namespace}/podtemplates"
    await api.create(templates, {"metadata": {"name": "t"}, "template": {"spec": spec}})
    return f"{templates}/t"


def spec_of(thing: dict) -> dict:
    return thing["template"]["spec"]


async def test_a_strategic_patch_merges_lists_by_their_key(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {"containers": [
        {"name": "a", "env": [{"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}]}}}, api.STRATEGIC))
    by_name = {each["name"]: each for each in patched["containers"]}
    assert set(by_name) == {"a", "b"} and by_name["a"]["image"] == "one"
    assert {each["name"]: each["value"] for each in by_name["a"]["env"]} == {"X": "1", "Y": "9", "Z": "3"}


async def test_a_strategic_patch_deletes_elements_by_their_key(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {"containers": [
        {"name": "b", "$patch": "delete"}]}}}, api.STRATEGIC))
    assert [each["name"] for each in patched["containers"]] == ["a"]


async def test_a_strategic_patch_replaces_what_it_is_told_to(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {"containers": [
        {"name": "c", "image": "three"}, {"$patch": "replace"}]}}}, api.STRATEGIC))
    assert [each["name"] for each in patched["containers"]] == ["c"]


async def test_a_strategic_patch_replaces_lists_without_a_key(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {"tolerations": [
        {"key": "other", "operator": "Exists"}]}}}, api.STRATEGIC))
    assert [each["key"] for each in patched["tolerations"]] == ["other"]


async def test_a_merge_patch_replaces_every_list(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {"containers": [
        {"name": "c", "image": "three"}]}}}))
    assert [each["name"] for each in patched["containers"]] == ["c"]


async def test_a_strategic_patch_keeps_the_order_that_it_is_told(api, template):
    patched = spec_of(await api.patch(template, {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "three"}]}}}, api.STRATEGIC))
    assert [each["name"] for each in patched["containers"]] == ["c", "b", "a"]


async def test_finalizers_are_united_and_taken_away_one_by_one(api, maps):
    await api.create(maps, {"metadata": {"name": "f", "finalizers": ["example.com/one"]}})
    try:
        more = await api.patch(f"{maps}/f", {"metadata": {"finalizers": ["example.com/two"]}}, api.STRATEGIC)
        assert sorted(more["metadata"]["finalizers"]) == ["example.com/one", "example.com/two"]
        less = await api.patch(f"{maps}/f", {"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["example.com/one"]}}, api.STRATEGIC)
        assert less["metadata"]["finalizers"] == ["example.com/two"]
    finally:
        await api.patch(f"{maps}/f", {"metadata": {"finalizers": None}})


async def test_conditions_merge_by_their_type(api, namespace):
    nodes = "/api/v1/nodes"
    await api.create(nodes, {"metadata": {"name": namespace}, "spec": {"unschedulable": True}})
    try:
        for kind in ("Ready", "DiskPressure"):
            patched = await api.patch(f"{nodes}/{namespace}/status", {"status": {"conditions": [
                {"type": kind, "status": "False"}]}}, api.STRATEGIC)
        assert {each["type"] for each in patched["status"]["conditions"]} >= {"Ready", "DiskPressure"}
    finally:
        await api.delete(f"{nodes}/{namespace}")
