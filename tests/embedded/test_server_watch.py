"""Watches: from where they start, what they show, when they end."""

import asyncio
from collections.abc import AsyncIterator, Callable

from inprocess import MAPS, MERGE, PODS, Api, Thing, config, pod
from inprocess import api as make_api

from fairway.clock import VirtualClock

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def short(event: Thing) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


async def until(events: AsyncIterator[Thing], count: int) -> list[tuple[str, str]]:
    return [short(await anext(events)) for _ in range(count)]


def virtually(scenario: Callable[[Api], object]) -> None:
    """Runs the scenario on a server whose time passes only when nothing else can happen."""
    clock = VirtualClock(1_000_000.0)

    async def main() -> None:
        made = make_api(clock=clock)
        await made.server.start()
        await scenario(made)

    clock.run(main())


async def test_without_a_version_it_begins_with_what_there_is(api: Api) -> None:
    await api.ok("POST", MAPS, config("a"))
    events = api.watch(MAPS)
    assert await until(events, 1) == [("ADDED", "a")]
    await api.ok("POST", MAPS, config("b"))
    await api.ok("PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, MERGE)
    await api.ok("DELETE", f"{MAPS}/a")
    assert await until(events, 3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
    await events.aclose()


async def test_from_a_version_it_shows_what_came_after(api: Api) -> None:
    first = await api.ok("POST", MAPS, config("a"))
    await api.ok("POST", MAPS, config("b"))
    gone = await api.ok("POST", MAPS, config("c"))
    await api.ok("DELETE", f"{MAPS}/c")
    events = api.watch(MAPS, resourceVersion=first["metadata"]["resourceVersion"])
    assert await until(events, 2) == [("ADDED", "b"), ("ADDED", "c")]
    last = await anext(events)
    assert short(last) == ("DELETED", "c")
    assert int(last["object"]["metadata"]["resourceVersion"]) > int(gone["metadata"]["resourceVersion"])
    await events.aclose()


async def test_entering_and_leaving_a_selection_is_coming_and_going(api: Api) -> None:
    for name in "ab":
        await api.ok("POST", PODS, pod(name, labels={"x": "1"} if name == "a" else {}))
    labelled, on_node = api.watch(PODS, labelSelector="x"), api.watch(PODS, fieldSelector="spec.nodeName=n")
    named = api.watch(f"{PODS}/b")
    assert await until(labelled, 1) == [("ADDED", "a")]
    assert await until(named, 1) == [("ADDED", "b")]
    await api.ok("PATCH", f"{PODS}/b", {"metadata": {"labels": {"x": "2"}}}, MERGE)
    await api.ok("PATCH", f"{PODS}/a", {"metadata": {"labels": {"x": None}}}, MERGE)
    await api.ok("POST", f"{PODS}/b/binding", {"target": {"name": "n"}})
    await api.ok("PATCH", f"{PODS}/b", {"metadata": {"labels": {"x": None}}}, MERGE)
    assert await until(labelled, 4) == [("ADDED", "b"), ("DELETED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert await until(on_node, 1) == [("ADDED", "b")]
    assert {kind for kind, _ in await until(named, 3)} == {"MODIFIED"}
    for each in (labelled, on_node, named):
        await each.aclose()


async def test_a_watcher_sees_every_write_of_many_writers_in_order(api: Api) -> None:
    start = str(api.store.revision)
    events = api.watch(MAPS, resourceVersion=start)
    await asyncio.gather(*(api.ok("POST", MAPS, config(f"c{index}")) for index in range(200)))
    versions = [int((await anext(events))["object"]["metadata"]["resourceVersion"]) for _ in range(200)]
    assert versions == sorted(set(versions))
    await events.aclose()


async def test_what_comes_while_a_chunk_is_taken_is_not_left_lying(api: Api) -> None:
    events = api.watch(MAPS)
    await api.ok("POST", MAPS, config("a"))
    for name in "abcde":  # the watch rests in its last chunk while the next write is made
        assert await asyncio.wait_for(until(events, 1), 5) == [("ADDED", name)]
        await api.ok("POST", MAPS, config(chr(ord(name) + 1)))
    await events.aclose()


async def test_a_table_is_watched_as_rows(api: Api) -> None:
    await api.ok("POST", PODS, pod("a"))
    events = api.watch(PODS, accept=TABLE)
    event = await anext(events)
    assert event["type"] == "ADDED" and event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]
    await events.aclose()


async def test_what_is_compacted_is_an_error_of_410() -> None:
    made = make_api(keep=5)
    await made.server.start()
    await made.ok("POST", MAPS, config("a"))
    slow = made.watch(MAPS)
    assert await until(slow, 1) == [("ADDED", "a")]
    for number in range(20):
        await made.ok("PATCH", f"{MAPS}/a", {"data": {"n": str(number)}}, MERGE)
    for events in (slow, made.watch(MAPS, resourceVersion="1")):
        error = await anext(events)
        assert error["type"] == "ERROR" and (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
        assert [event async for event in events] == []


async def test_streaming_lists_are_refused_so_that_clients_fall_back(api: Api) -> None:
    status = await api.no(422, "GET", MAPS, watch=1, sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
    assert status["reason"] == "Invalid"


async def test_closing_the_store_ends_every_watch(api: Api) -> None:
    async def follow() -> list[Thing]:
        return [event async for event in api.watch(MAPS)]

    watchers = [asyncio.ensure_future(follow()) for _ in range(20)]
    await asyncio.sleep(0)
    await api.store.close()
    assert await asyncio.gather(*watchers) == [[]] * 20
    await api.no(503, "POST", MAPS, config("a"))


def test_bookmarks_tell_how_far_it_came_and_the_time_ends_it() -> None:
    async def scenario(api: Api) -> None:
        await api.ok("POST", MAPS, config("a"))
        start = api.registry.clock.now()
        other = api.watch(MAPS, timeoutSeconds=100, allowWatchBookmarks="true", resourceVersion=api.store.revision)
        plain = api.watch(MAPS, timeoutSeconds=100, resourceVersion=api.store.revision)
        await api.ok("POST", PODS, pod("a"))
        marks = [event async for event in other]
        assert {event["type"] for event in marks} == {"BOOKMARK"}
        assert [event async for event in plain] == []
        assert marks[-1]["object"]["metadata"]["resourceVersion"] == str(api.store.revision)
        assert marks[-1]["object"]["kind"] == "ConfigMap"
        assert api.registry.clock.now() - start == 200

    virtually(scenario)
