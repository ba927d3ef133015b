"""What keeps an object that is deleted, and what goes with it."""

import pytest


def owned_by(owner: dict, name: str, **more) -> dict:
    about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
             "uid": owner["metadata"]["uid"]}
    return {"metadata": {"name": name, "ownerReferences": [about | more]}}


async def test_finalizers_keep_an_object_until_the_last_is_gone(api, maps):
    await api.create(maps, {"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})
    leaving = await api.delete(f"{maps}/a")
    assert leaving["kind"] == "ConfigMap" and leaving["metadata"]["deletionTimestamp"]
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(f"{maps}/a", {"metadata": {"finalizers": ["example.com/two"]}})
    still = await api.get(f"{maps}/a")
    assert still["metadata"]["deletionTimestamp"] == leaving["metadata"]["deletionTimestamp"]
    await api.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
    await api.refused(404, "GET", f"{maps}/a")


async def test_an_object_that_is_leaving_can_be_written_but_gets_no_new_finalizers(api, maps):
    await api.create(maps, {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    await api.delete(f"{maps}/a")
    written = await api.patch(f"{maps}/a", {"data": {"x": "1"}})
    assert written["data"] == {"x": "1"}
    more = {"metadata": {"finalizers": ["example.com/one", "example.com/new"]}}
    status = await api.refused(422, "PATCH", f"{maps}/a", more, media=api.MERGE)
    assert "no new finalizers can be added if the object is being deleted" in status["message"]
    await api.patch(f"{maps}/a", {"metadata": {"finalizers": None}})


async def test_a_second_delete_of_a_leaving_object_changes_nothing(api, maps):
    await api.create(maps, {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    first, second = [await api.delete(f"{maps}/a") for _ in range(2)]
    assert first["metadata"]["deletionTimestamp"] == second["metadata"]["deletionTimestamp"]
    await api.patch(f"{maps}/a", {"metadata": {"finalizers": None}})


async def test_watchers_see_the_leaving_and_the_end(api, maps):
    await api.create(maps, {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    start = (await api.get(maps))["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=start) as changes:
        await api.delete(f"{maps}/a")
        await api.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
        leaving = await changes.next()
        last = await changes.next()
    assert leaving["type"] == "MODIFIED" and leaving["object"]["metadata"]["deletionTimestamp"]
    assert last["type"] in ("DELETED", "MODIFIED")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_go_with_their_owner(api, maps, collecting, policy):
    owner = await api.create(maps, {"metadata": {"name": "owner"}})
    await api.create(maps, owned_by(owner, "child", blockOwnerDeletion=True))
    grandchild = owned_by(await api.get(f"{maps}/child"), "grandchild")
    await api.create(maps, grandchild)
    await api.delete(f"{maps}/owner", {"propagationPolicy": policy})
    for name in ("owner", "child", "grandchild"):
        await api.gone(maps, name)
    assert (await api.ask("GET", f"{maps}/child")).status == 404


async def test_foreground_deletion_ends_the_owner_last(api, maps, collecting):
    owner = await api.create(maps, {"metadata": {"name": "owner"}})
    child = owned_by(owner, "child", blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.com/held"]
    await api.create(maps, child)
    leaving = await api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"})
    assert leaving["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.until(maps, "child", lambda thing: "deletionTimestamp" in thing["metadata"])
    assert (await api.get(f"{maps}/owner"))["metadata"]["deletionTimestamp"]
    await api.patch(f"{maps}/child", {"metadata": {"finalizers": None}})
    await api.gone(maps, "owner")


async def test_orphans_stay_and_lose_their_owner(api, maps, collecting):
    owner = await api.create(maps, {"metadata": {"name": "owner"}})
    await api.create(maps, owned_by(owner, "child"))
    await api.delete(f"{maps}/owner", {"propagationPolicy": "Orphan"})
    await api.gone(maps, "owner")
    orphan = await api.until(maps, "child", lambda thing: not thing["metadata"].get("ownerReferences"))
    assert "deletionTimestamp" not in orphan["metadata"]


async def test_a_dependent_with_another_owner_stays(api, maps, collecting):
    owners = [await api.create(maps, {"metadata": {"name": name}}) for name in ("one", "two")]
    child = owned_by(owners[0], "child")
    child["metadata"]["ownerReferences"] += owned_by(owners[1], "child")["metadata"]["ownerReferences"]
    await api.create(maps, child)
    await api.create(maps, owned_by(owners[0], "marker"))
    await api.delete(f"{maps}/one", {"propagationPolicy": "Background"})
    await api.gone(maps, "marker")
    left = await api.until(maps, "child", lambda thing: len(thing["metadata"]["ownerReferences"]) == 1)
    assert left["metadata"]["ownerReferences"][0]["name"] == "two"


async def test_a_dependent_of_an_owner_that_never_was_goes(api, maps, collecting):
    never = {"apiVersion": "v1", "kind": "ConfigMap",
             "metadata": {"name": "never", "uid": "0a0a0a0a-0000-4000-8000-000000000000"}}
    await api.create(maps, owned_by(never, "child"))
    await api.gone(maps, "child")
    assert (await api.ask("GET", f"{maps}/child")).status == 404


async def test_a_namespace_takes_what_is_in_it_along(api, collecting):
    name = (await api.create("/api/v1/namespaces", {
        "metadata": {"generateName": "conformance-", "labels": {"fairway.dev/managed": "false"}}}))["metadata"]["name"]
    maps = f"/api/v1/namespaces/{name}/configmaps"
    await api.create(maps, {"metadata": {"name": "held", "finalizers": ["example.com/one"]}})
    await api.create(maps, {"metadata": {"name": "free"}})
    await api.delete(f"/api/v1/namespaces/{name}")
    leaving = await api.until("/api/v1/namespaces", name, lambda thing: thing["status"]["phase"] == "Terminating")
    assert leaving["metadata"]["deletionTimestamp"]
    await api.gone(maps, "free")
    status = await api.refused(403, "POST", maps, {"metadata": {"name": "late"}})
    assert "because it is being terminated" in status["message"]
    await api.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
    await api.gone("/api/v1/namespaces", name)
    assert (await api.get(maps))["items"] == []


def pod(name: str, **spec) -> dict:
    return {"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i", "command": ["sleep", "100"]}], "schedulerName": "nobody"} | spec}


async def test_a_pod_without_a_node_goes_at_once(api, pods):
    await api.create(pods, pod("a"))
    await api.delete(f"{pods}/a")
    await api.refused(404, "GET", f"{pods}/a")


async def test_a_pod_on_a_node_is_given_its_grace(api, pods, unattended):
    await api.create(pods, pod("a", nodeName="no-such-node", terminationGracePeriodSeconds=17))
    leaving = await api.delete(f"{pods}/a")
    assert leaving["kind"] == "Pod" and leaving["metadata"]["deletionGracePeriodSeconds"] == 17
    shorter = await api.delete(f"{pods}/a", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = await api.delete(f"{pods}/a", {"gracePeriodSeconds": 60})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.delete(f"{pods}/a", {"gracePeriodSeconds": 0})
    await api.refused(404, "GET", f"{pods}/a")


async def test_delete_options_may_stand_in_the_query(api, pods, unattended):
    await api.create(pods, pod("a", nodeName="no-such-node"))
    await api.delete(f"{pods}/a", gracePeriodSeconds=0)
    await api.refused(404, "GET", f"{pods}/a")


async def test_unknown_propagation_policies_are_refused(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    answer = await api.ask("DELETE", f"{maps}/a", {"propagationPolicy": "Whatever"})
    assert answer.status in (400, 422) and (await api.ask("GET", f"{maps}/a")).status == 200
