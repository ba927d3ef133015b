"""Watches: every change once, in order, from where they were asked to begin."""

import asyncio

import pytest


def shown(*events: dict) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"]["name"]) for each in events]


async def version(api, path: str) -> str:
    return (await api.get(path))["metadata"]["resourceVersion"]


async def test_a_watch_shows_what_happens(api, maps):
    async with api.watch(maps, resourceVersion=await version(api, maps)) as changes:
        made = await api.create(maps, {"metadata": {"name": "a"}})
        changed = await api.patch(f"{maps}/a", {"data": {"x": "1"}})
        await api.delete(f"{maps}/a")
        events = [await changes.next() for _ in range(3)]
    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0]["object"] == made and events[1]["object"] == changed
    assert int(events[2]["object"]["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])
    assert events[2]["object"]["data"] == {"x": "1"}


async def test_a_watch_without_a_version_begins_with_what_is_there(api, namespace):
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    await api.create(secrets, {"metadata": {"name": "a"}})
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch(secrets, **query) as changes:
            found, name = [await changes.next()], f"b{len(query)}"
            await api.create(secrets, {"metadata": {"name": name}})
            while found[-1]["object"]["metadata"]["name"] != name:
                found.append(await changes.next())
            assert ("ADDED", "a") in shown(*found) and shown(found[-1]) == [("ADDED", name)]


async def test_a_watch_resumes_where_another_ended(api, maps):
    start = await version(api, maps)
    for index in range(5):
        await api.create(maps, {"metadata": {"name": f"n{index}"}})
    async with api.watch(maps, resourceVersion=start) as changes:
        first = [await changes.next() for _ in range(2)]
    last = first[-1]["object"]["metadata"]["resourceVersion"]
    async with api.watch(maps, resourceVersion=last) as changes:
        rest = [await changes.next() for _ in range(3)]
    assert shown(*first, *rest) == [("ADDED", f"n{index}") for index in range(5)]


async def test_watchers_see_every_change_in_one_order(api, maps):
    start = await version(api, maps)
    await asyncio.gather(*(api.create(maps, {"metadata": {"name": f"n{index}"}}) for index in range(30)))
    seen = []
    for _ in range(2):
        async with api.watch(maps, resourceVersion=start) as changes:
            seen.append([await changes.next() for _ in range(30)])
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in seen[0]]
    assert shown(*seen[0]) == shown(*seen[1]) and versions == sorted(set(versions))
    assert {name for _, name in shown(*seen[0])} == {f"n{index}" for index in range(30)}


async def test_objects_enter_and_leave_a_selection(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start, labelSelector="in=yes") as changes:
        await api.create(maps, {"metadata": {"name": "a"}})
        await api.patch(f"{maps}/a", {"metadata": {"labels": {"in": "yes"}}})
        await api.patch(f"{maps}/a", {"data": {"x": "1"}})
        await api.patch(f"{maps}/a", {"metadata": {"labels": {"in": "no"}}})
        await api.delete(f"{maps}/a")
        await api.create(maps, {"metadata": {"name": "end", "labels": {"in": "yes"}}})
        events = [await changes.next() for _ in range(4)]
    assert shown(*events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "end")]


async def test_a_watch_of_one_object_sees_no_other(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start, fieldSelector="metadata.name=b") as changes:
        for name in "abc":
            await api.create(maps, {"metadata": {"name": name}})
        await api.delete(f"{maps}/b")
        assert shown(await changes.next(), await changes.next()) == [("ADDED", "b"), ("DELETED", "b")]


async def test_a_watch_of_all_namespaces_sees_each(api, maps, namespace):
    start = await version(api, maps)
    async with api.watch("/api/v1/configmaps", resourceVersion=start) as changes:
        await api.create(maps, {"metadata": {"name": "a"}})
        event = await changes.next()
        while event["object"]["metadata"]["namespace"] != namespace:
            event = await changes.next()
    assert event["object"]["metadata"]["name"] == "a"


async def test_a_watch_ends_in_time_with_a_bookmark_to_resume_from(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start, timeoutSeconds=2, allowWatchBookmarks="true") as changes:
        await api.create(maps, {"metadata": {"name": "a"}})
        events = await changes.all()
    assert shown(events[0]) == [("ADDED", "a")]
    for bookmark in events[1:]:
        assert bookmark["type"] == "BOOKMARK" and bookmark["object"]["kind"] == "ConfigMap"
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(
            events[0]["object"]["metadata"]["resourceVersion"])


async def test_a_watch_that_asks_for_no_bookmarks_gets_none(api, maps):
    start = await version(api, maps)
    async with api.watch(maps, resourceVersion=start, timeoutSeconds=1) as changes:
        assert await changes.all() == []


async def test_a_watch_may_show_tables(api, maps):
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api.watch(maps, accept=accept, resourceVersion=await version(api, maps)) as changes:
        await api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        event = await changes.next()
    assert event["type"] == "ADDED" and event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][:2] == ["a", 1]


async def test_a_watch_from_before_compaction_is_told_so(api, maps):
    """From the first version on, or as soon as the server has forgotten it."""
    await api.create(maps, {"metadata": {"name": "a"}})
    for round in range(15):
        async with api.watch(maps, resourceVersion="1") as changes:
            event = await changes.next()
        if event["type"] == "ERROR":
            found = event["object"]
            assert (found["code"], found["reason"]) == (410, "Expired") and "too old" in found["message"]
            return
        await asyncio.gather(*(api.patch(f"{maps}/a", {"data": {f"k{index}": str(round)}}) for index in range(100)))
    pytest.skip("the server remembers more than 1,500 changes")


async def test_a_page_from_before_compaction_is_gone(api, maps, forget):
    for name in "abc":
        await api.create(maps, {"metadata": {"name": name}})
    token = (await api.get(maps, limit=1))["metadata"]["continue"]
    for round in range(15):
        forget(await version(api, maps))
        answer = await api.ask("GET", maps, limit=1, continue_=token)
        if answer.status == 410:
            assert answer.thing["reason"] == "Expired"
            return
        await asyncio.gather(*(api.patch(f"{maps}/a", {"data": {f"k{index}": str(round)}}) for index in range(100)))
    pytest.skip("the server remembers more than 1,500 changes")
