"""Lists: selectors, pages, and the versions they are taken at."""

import base64
import json

import pytest


def names(found: dict) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"] if each["metadata"]["name"] != "kube-root-ca.crt"]


@pytest.fixture
async def colors(api, maps) -> str:
    """Five ConfigMaps with labels."""
    red, blue = {"color": "red"}, {"color": "blue"}
    labels = {"a": {**red, "size": "1"}, "b": blue, "c": red, "d": {"size": "2"}, "e": {}}
    for name, each in labels.items():
        await api.create(maps, {"metadata": {"name": name, "labels": each}})
    return maps


async def test_a_list_says_what_it_is_of(api, colors):
    found = await api.get(colors)
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(found["metadata"]["resourceVersion"]) > 0 and names(found) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(("selector", "chosen"), [
    ("color=red", "ac"), ("color==red", "ac"), ("color!=red", "bde"), ("color", "abc"), ("!color", "de"),
    ("color in (red,blue)", "abc"), ("color notin (red)", "bde"), ("color=red,size", "a"), ("color=red,size!=1", "c"),
    ("size in (1, 2),color", "a"), ("color=green", ""), ("size>1", "d"), ("size<2", "a")])
async def test_labels_select(api, colors, selector, chosen):
    found = names(await api.get(colors, labelSelector=selector))
    assert "".join(found) == chosen


@pytest.mark.parametrize("selector", ["color in red", "=x", "color in (red", "a=b=c", "-x=1"])
async def test_selectors_that_cannot_be_read_are_refused(api, maps, selector):
    status = await api.refused(400, "GET", maps, labelSelector=selector)
    assert status["reason"] == "BadRequest"


async def test_fields_select(api, colors, namespace):
    assert names(await api.get(colors, fieldSelector="metadata.name=b")) == ["b"]
    assert "b" not in names(await api.get(colors, fieldSelector="metadata.name!=b"))
    everywhere = await api.get("/api/v1/configmaps", fieldSelector=f"metadata.namespace={namespace},metadata.name=c")
    assert names(everywhere) == ["c"]
    status = await api.refused(400, "GET", colors, fieldSelector="data.x=1")
    assert "data.x" in status["message"] and "field" in status["message"]


async def test_pods_are_selected_by_node_and_phase(api, pods):
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    await api.create(pods, {"metadata": {"name": "free"}, "spec": spec})
    await api.create(pods, {"metadata": {"name": "bound"}, "spec": {**spec, "nodeName": "n1"}})
    assert names(await api.get(pods, fieldSelector="spec.nodeName=n1")) == ["bound"]
    assert names(await api.get(pods, fieldSelector="spec.nodeName=")) == ["free"]
    assert names(await api.get(pods, fieldSelector="status.phase=Pending,spec.nodeName!=n1")) == ["free"]
    assert "free" not in names(await api.get(pods, fieldSelector="status.phase!=Pending"))
    await api.ask("DELETE", f"{pods}/bound", gracePeriodSeconds=0)


async def test_a_long_list_comes_in_pages(api, maps):
    for index in range(7):
        await api.create(maps, {"metadata": {"name": f"p{index}", "labels": {"page": "yes"}}})
    first = await api.get(maps, limit=3, labelSelector="page=yes")
    await api.create(maps, {"metadata": {"name": "p9", "labels": {"page": "yes"}}})
    await api.delete(f"{maps}/p6")
    second = await api.get(maps, limit=3, labelSelector="page=yes", continue_=first["metadata"]["continue"])
    third = await api.get(maps, limit=3, labelSelector="page=yes", continue_=second["metadata"]["continue"])
    assert [names(each) for each in (first, second, third)] == [["p0", "p1", "p2"], ["p3", "p4", "p5"], ["p6"]]
    assert not third["metadata"].get("continue")
    versions = {each["metadata"]["resourceVersion"] for each in (first, second, third)}
    assert len(versions) == 1


async def test_a_page_says_how_many_are_left(api, namespace):
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    for index in range(5):
        await api.create(secrets, {"metadata": {"name": f"s{index}"}})
    found = await api.get(secrets, limit=2)
    assert found["metadata"]["remainingItemCount"] == 3
    assert not (await api.get(secrets, limit=5))["metadata"].get("continue")


@pytest.mark.parametrize("token", ["nonsense", base64.urlsafe_b64encode(b'{"v": 1, "after": [1]}').decode()])
async def test_a_continue_token_that_is_none_is_refused(api, maps, token):
    status = await api.refused(400, "GET", maps, limit=1, continue_=token)
    assert "continue key is not valid" in status["message"]


async def test_a_list_at_zero_or_not_older_than_is_good_enough(api, colors):
    made = await api.get(f"{colors}/a")
    version = made["metadata"]["resourceVersion"]
    assert "a" in names(await api.get(colors, resourceVersion=version))
    assert "a" in names(await api.get(colors, resourceVersion=version, resourceVersionMatch="NotOlderThan"))
    assert (await api.get(colors, resourceVersion="0"))["kind"] == "ConfigMapList"


async def test_an_exact_list_is_as_it_was(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    before = await api.get(maps)
    await api.patch(f"{maps}/a", {"data": {"x": "2"}})
    await api.create(maps, {"metadata": {"name": "b"}})
    version = before["metadata"]["resourceVersion"]
    found = await api.get(maps, resourceVersion=version, resourceVersionMatch="Exact")
    assert found["metadata"]["resourceVersion"] == version and names(found) == ["a"]
    assert next(each for each in found["items"] if each["metadata"]["name"] == "a")["data"] == {"x": "1"}


async def test_versions_and_their_match_must_make_sense(api, maps):
    for query in ({"resourceVersionMatch": "Exact"}, {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
                  {"resourceVersion": "1", "resourceVersionMatch": "Sometimes"}):
        status = await api.refused(422, "GET", maps, **query)
        assert status["reason"] == "Invalid" and "resourceVersionMatch" in status["message"]
    assert (await api.ask("GET", maps, resourceVersion="yesterday")).status in (400, 422)


async def test_versions_of_the_future_are_refused_in_time(api, maps):
    now = int((await api.get(maps))["metadata"]["resourceVersion"])
    answer = await api.ask("GET", maps, resourceVersion=str(now + 1_000_000))
    assert answer.status == 504 and answer.thing["reason"] == "Timeout"
    assert "Too large resource version" in answer.body.decode()


async def test_a_get_shows_what_was_written_just_before(api, maps):
    for index in range(20):
        made = await api.create(maps, {"metadata": {"name": f"n{index}"}})
        assert (await api.get(f"{maps}/n{index}")) == made
        assert f"n{index}" in names(await api.get(maps))


async def test_lists_and_objects_come_as_metadata_alone(api, colors):
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    answer = await api.ask("GET", colors, accept=accept, labelSelector="color=red")
    found = answer.thing
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert names(found) == ["a", "c"] and set(found["items"][0]) <= {"kind", "apiVersion", "metadata"}
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    one = (await api.ask("GET", f"{colors}/a", accept=accept)).thing
    assert one["kind"] == "PartialObjectMetadata" and one["metadata"]["labels"]["color"] == "red" and "data" not in one


async def test_clients_that_accept_anything_or_more_than_json_get_json(api, maps):
    for accept in ("*/*", "application/vnd.kubernetes.protobuf;q=0.1,application/json"):
        answer = await api.ask("GET", maps, accept=accept)
        assert answer.status == 200
        if answer.headers["content-type"].startswith("application/json"):
            assert json.loads(answer.body)["kind"] == "ConfigMapList"
    for accept in ("text/csv", "application/*"):
        assert (await api.ask("GET", maps, accept=accept)).status == 406
