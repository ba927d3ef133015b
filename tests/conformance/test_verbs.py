"""get, create, update, delete, deletecollection: what they answer, and what they refuse."""

import asyncio

import pytest


def named(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_a_created_object_gets_what_every_object_has(api, maps, namespace):
    answer = await api.ask("POST", maps, named("a", x="1"))
    made, about = answer.thing, answer.thing["metadata"]
    assert answer.status == 201 and answer.headers["content-type"].startswith("application/json")
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"x": "1"})
    assert (about["name"], about["namespace"]) == ("a", namespace)
    assert about["uid"] and about["resourceVersion"] and about["creationTimestamp"].endswith("Z")
    assert await api.get(f"{maps}/a") == made


async def test_names_are_generated(api, maps):
    made = [await api.create(maps, {"metadata": {"generateName": "gen-"}}) for _ in range(3)]
    names = [each["metadata"]["name"] for each in made]
    assert len(set(names)) == 3 and all(name.startswith("gen-") and len(name) == 9 for name in names)
    assert made[0]["metadata"]["generateName"] == "gen-"


async def test_a_name_is_needed(api, maps):
    status = await api.refused(422, "POST", maps, {"metadata": {}})
    assert status["reason"] == "Invalid"
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert "name or generateName is required" in status["message"]


async def test_a_name_is_given_once(api, maps):
    await api.create(maps, named("a"))
    status = await api.refused(409, "POST", maps, named("a"))
    assert status["reason"] == "AlreadyExists" and status["message"] == 'configmaps "a" already exists'
    assert status["details"]["name"] == "a" and status["details"]["kind"] == "configmaps"


async def test_what_is_not_there_is_not_found(api, maps):
    for method in ("GET", "DELETE"):
        status = await api.refused(404, method, f"{maps}/none")
        assert status["reason"] == "NotFound" and status["message"] == 'configmaps "none" not found'
    status = await api.refused(404, "PATCH", f"{maps}/none", {"data": {}}, media=api.MERGE)
    assert status["reason"] == "NotFound"
    status = await api.refused(404, "GET", "/apis/batch/v1/namespaces/default/jobs/none-such")
    assert status["message"] == 'jobs.batch "none-such" not found' and status["details"]["group"] == "batch"


async def test_unknown_paths_are_not_found(api, namespace):
    for path in (f"/api/v1/namespaces/{namespace}/whales", "/apis/nope/v1/whales", "/apis/batch/v9/jobs"):
        answer = await api.ask("GET", path)
        assert answer.status == 404, path


async def test_a_namespace_must_exist(api):
    status = await api.refused(404, "POST", "/api/v1/namespaces/none-such/configmaps", named("a"))
    assert status["message"] == 'namespaces "none-such" not found'


async def test_a_list_in_a_namespace_that_is_not_there_is_empty(api):
    assert (await api.get("/api/v1/namespaces/none-such/configmaps"))["items"] == []


async def test_an_update_replaces_the_whole_object(api, maps):
    made = await api.create(maps, named("a", x="1"))
    changed = await api.replace(f"{maps}/a", {**named("a", y="2")})
    assert changed["data"] == {"y": "2"}
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


async def test_an_update_that_changes_nothing_writes_nothing(api, maps):
    made = await api.create(maps, named("a", x="1"))
    again = await api.replace(f"{maps}/a", made)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_stale_updates_conflict(api, maps):
    made = await api.create(maps, named("a", x="1"))
    await api.replace(f"{maps}/a", {**made, "data": {"x": "2"}})
    status = await api.refused(409, "PUT", f"{maps}/a", {**made, "data": {"x": "3"}})
    assert status["reason"] == "Conflict"
    assert "the object has been modified; please apply your changes to the latest version" in status["message"]
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "4"}}
    await api.refused(409, "PATCH", f"{maps}/a", stale, media=api.MERGE)
    assert (await api.get(f"{maps}/a"))["data"] == {"x": "2"}


async def test_of_writers_that_race_one_wins(api, maps):
    made = await api.create(maps, named("a"))
    answers = await asyncio.gather(*(
        api.ask("PUT", f"{maps}/a", {**made, "data": {"x": str(index)}}) for index in range(8)))
    assert sorted(each.status for each in answers) == [200] + [409] * 7


async def test_an_update_of_another_uid_conflicts(api, maps):
    made = await api.create(maps, named("a"))
    other = {**made, "metadata": {**made["metadata"], "uid": "0a0a0a0a-0000-4000-8000-000000000000"}}
    del other["metadata"]["resourceVersion"]
    status = await api.refused(409, "PUT", f"{maps}/a", other)
    assert status["reason"] == "Conflict"


async def test_an_update_of_nothing_is_not_found(api, maps):
    status = await api.refused(404, "PUT", f"{maps}/none", named("none"))
    assert status["reason"] == "NotFound"


async def test_a_body_must_fit_its_path(api, maps):
    await api.create(maps, named("a"))
    status = await api.refused(400, "PUT", f"{maps}/a", named("b"))
    assert status["reason"] == "BadRequest" and "the name of the object (b)" in status["message"]
    elsewhere = named("c")
    elsewhere["metadata"]["namespace"] = "default"
    status = await api.refused(400, "POST", maps, elsewhere)
    assert "namespace" in status["message"]
    await api.refused(400, "POST", maps, {**named("d"), "kind": "Secret"})
    await api.refused(400, "POST", maps, {**named("d"), "apiVersion": "v2"})


async def test_resource_versions_are_not_given_by_creators(api, maps):
    asked = named("a")
    asked["metadata"]["resourceVersion"] = "7"
    answer = await api.ask("POST", maps, asked)
    assert answer.status in (400, 500)
    assert "resourceVersion should not be set on objects to be created" in answer.thing["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"not json"])
async def test_bodies_that_are_no_objects_are_refused(api, maps, body):
    status = await api.refused(400, "POST", maps, body)
    assert status["reason"] == "BadRequest"


async def test_unknown_media_types_are_refused(api, maps):
    await api.create(maps, named("a"))
    answer = await api.ask("POST", maps, b"a: b", media="text/plain")
    assert answer.status == 415
    answer = await api.ask("PATCH", f"{maps}/a", {"data": {}}, media="application/json")
    assert answer.status == 415


async def test_verbs_that_a_path_does_not_have_are_not_allowed(api, maps, namespace):
    for method, path in (("POST", f"{maps}/a"), ("PUT", maps), ("PATCH", maps),
                         ("POST", f"/api/v1/namespaces/{namespace}/pods/a"), ("DELETE", "/api/v1/configmaps")):
        answer = await api.ask(method, path, {})
        assert answer.status == 405 and answer.thing["reason"] == "MethodNotAllowed", (method, path)


async def test_a_delete_answers_what_it_deleted(api, maps):
    made = await api.create(maps, named("a"))
    status = await api.delete(f"{maps}/a")
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"]["name"] == "a" and status["details"]["uid"] == made["metadata"]["uid"]
    await api.refused(404, "GET", f"{maps}/a")


async def test_deletes_hold_to_their_preconditions(api, maps):
    made = await api.create(maps, named("a"))
    for wrong in ({"uid": "0a0a0a0a-0000-4000-8000-000000000000"}, {"resourceVersion": "1"}):
        status = await api.refused(409, "DELETE", f"{maps}/a", {"preconditions": wrong})
        assert status["reason"] == "Conflict"
    about = made["metadata"]
    await api.delete(f"{maps}/a", {"preconditions": {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}})
    await api.refused(404, "GET", f"{maps}/a")


async def test_a_collection_is_deleted_by_selector(api, maps):
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await api.create(maps, {"metadata": {"name": name, "labels": {"color": color}}})
    await api.delete(maps, labelSelector="color=red")
    left = [each["metadata"]["name"] for each in (await api.get(maps))["items"]]
    assert "b" in left and not {"a", "c"} & set(left)
    await api.delete(maps, fieldSelector="metadata.name=b")
    await api.refused(404, "GET", f"{maps}/b")


async def test_objects_of_the_whole_cluster_have_no_namespace(api, namespace):
    name = f"{namespace}-class"
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = await api.create(path, {"metadata": {"name": name}, "value": 7})
    try:
        assert "namespace" not in made["metadata"] and made["value"] == 7
        assert made["preemptionPolicy"] == "PreemptLowerPriority"
        answer = await api.ask("POST", f"/apis/scheduling.k8s.io/v1/namespaces/{namespace}/priorityclasses", {})
        assert answer.status == 404
    finally:
        await api.delete(f"{path}/{name}")


async def test_a_dry_run_answers_as_if_and_writes_nothing(api, maps):
    made = await api.create(maps, named("a", x="1"), dryRun="All")
    assert made["metadata"]["uid"] and made["data"] == {"x": "1"}
    await api.refused(404, "GET", f"{maps}/a")
    kept = await api.create(maps, named("a", x="1"))
    changed = await api.patch(f"{maps}/a", {"data": {"x": "2"}}, dryRun="All")
    assert changed["data"] == {"x": "2"}
    await api.delete(f"{maps}/a", dryRun="All")
    await api.delete(f"{maps}/a", {"dryRun": ["All"]})
    assert await api.get(f"{maps}/a") == kept
    await api.refused(409, "POST", maps, named("a"), dryRun="All")
    answer = await api.ask("POST", maps, named("b"), dryRun="Perhaps")
    assert answer.status in (400, 422)


async def test_labels_and_annotations_are_texts(api, maps):
    asked = named("a")
    asked["metadata"]["labels"] = {"x": 1}
    answer = await api.ask("POST", maps, asked)
    assert answer.status in (400, 422)
    asked["metadata"]["labels"] = {"x": "not a label!"}
    status = await api.refused(422, "POST", maps, asked)
    assert status["details"]["causes"][0]["field"].startswith("metadata.labels")
