"""Informers under a virtual clock, against a server that is a function: what it lists and streams is written here."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec
import pytest

from fairway.clock import VirtualClock, seeded
from fairway.kube.client import WATCH_SECONDS, Client
from fairway.kube.informer import Informer
from fairway.kube.kinds import NODES, PODS, Selection
from fairway.kube.transport import Request, Response

Change = tuple[str | None, str | None]


class Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str


class Pod(msgspec.Struct):
    metadata: Meta
    spec: dict[str, Any] = {}


def pod(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version), "uid": uid}, "spec": {}}


class Script:
    """Answers each list and each watch with the next of what was written for it, and keeps what was asked."""

    def __init__(self, clock: VirtualClock, *, lists: list[Any], watches: list[Any]) -> None:
        self.clock, self.lists, self.watches = clock, lists, watches
        self.asked: list[tuple[float, str]] = []

    async def __call__(self, request: Request) -> Response:
        query = dict(request.query)
        if "watch" in query:
            self.asked.append((self.clock.now(), f"watch {query['resourceVersion']}"))
            events = self.watches.pop(0) if self.watches else None
            return Response(200, {}, self._stream(events))
        self.asked.append((self.clock.now(), "list"))
        answer = self.lists.pop(0)
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, int):
            return Response(answer, {}, msgspec.json.encode({"code": answer, "reason": "Said", "message": "no"}))
        version, items = answer
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": version}, "items": items}))

    async def _stream(self, events: list[Any] | None) -> AsyncIterator[bytes]:
        for event in events or ():
            if isinstance(event, OSError):
                raise event
            yield msgspec.json.encode({"type": event[0], "object": event[1]}) + b"\n"
            await asyncio.sleep(0)
        if events is None:
            await asyncio.sleep(WATCH_SECONDS)


def observe(*, lists: list[Any], watches: list[Any], seconds: float = 10) -> tuple[Script, Informer[Pod], list[Change]]:
    """Runs an informer of pods for `seconds`; what it asked, what it holds, and the changes it told (name@version)."""
    clock = VirtualClock()
    script, told = Script(clock, lists=lists, watches=watches), []

    def text(it: Pod | None) -> str | None:
        return it and f"{it.metadata.name}@{it.metadata.resource_version}"

    async def story() -> Informer[Pod]:
        client = Client(script, clock, seeded(1))
        informer = Informer(client, Selection(PODS), shape=Pod, changed=lambda a, b: told.append((text(a), text(b))))
        await stopped_after(clock, seconds, informer.run)
        return informer

    return script, clock.run(story()), told


async def stopped_after(clock: VirtualClock, seconds: float, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    task = asyncio.create_task(run())
    await clock.sleep(seconds)
    assert not task.done(), task.exception()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_list_then_the_watch_from_its_version() -> None:
    script, informer, told = observe(
        lists=[("5", [pod("a", 1)])], watches=[[("ADDED", pod("b", 6)), ("DELETED", pod("a", 7))], None]
    )
    assert [what for _, what in script.asked][:2] == ["list", "watch 5"]
    assert told == [(None, "a@1"), (None, "b@6"), ("a@1", None)]
    assert list(informer.store) == ["ns/b"]
    assert informer.synced.is_set()


def test_an_object_that_does_not_fit_keeps_no_other_from_being_seen() -> None:
    odd = {**pod("odd", 2), "spec": []}
    _, informer, told = observe(
        lists=[("5", [odd, pod("a", 1)])],
        watches=[[("ADDED", {**pod("odd", 6), "spec": []}), ("MODIFIED", pod("odd", 7)),
                  ("MODIFIED", {**pod("odd", 8), "spec": []})], None],
    )  # fmt: skip
    assert told == [(None, "a@1"), (None, "odd@7"), ("odd@7", None)]
    assert list(informer.store) == ["ns/a"] and informer.synced.is_set()


def test_a_cut_watch_goes_on_from_the_last_version_seen_and_lists_nothing() -> None:
    cut = [("ADDED", pod("a", 6)), ConnectionError("cut")]
    script, _, told = observe(lists=[("5", [])], watches=[cut, [("MODIFIED", pod("a", 8))], None])
    assert [what for _, what in script.asked][:3] == ["list", "watch 5", "watch 6"]
    assert told == [(None, "a@6"), ("a@6", "a@8")]


def test_a_bookmark_moves_the_version_and_tells_nothing() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "90"}})
    script, _, told = observe(lists=[("5", [])], watches=[[bookmark], None])
    assert [what for _, what in script.asked] == ["list", "watch 5", "watch 90"]
    assert told == []


TOO_LARGE = {"reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}


@pytest.mark.parametrize("said", [{"code": 410, "reason": "Expired"}, {"code": 504, **TOO_LARGE}])
def test_too_old_or_too_large_a_version_lists_anew_and_tells_what_was_missed(said: dict[str, Any]) -> None:
    gone = ("ERROR", {"kind": "Status", **said})
    first, second = ("5", [pod("a", 1), pod("b", 2)]), ("50", [pod("b", 2), pod("c", 40)])
    script, _, told = observe(lists=[first, second], watches=[[gone], None])
    assert [what for _, what in script.asked] == ["list", "watch 5", "list", "watch 50"]
    assert told == [(None, "a@1"), (None, "b@2"), ("a@1", None), (None, "c@40")]


def test_an_object_made_again_under_its_name_is_told_as_gone_and_come() -> None:
    gone = ("ERROR", {"kind": "Status", "code": 410})
    lists = [("5", [pod("a", 1, uid="old")]), ("50", [pod("a", 40, uid="new")])]
    _, _, told = observe(lists=lists, watches=[[gone], None])
    assert told == [(None, "a@1"), ("a@1", None), (None, "a@40")]


def test_a_server_that_is_away_is_asked_again_ever_more_slowly() -> None:
    away = [ConnectionError("away")] * 6
    script, informer, _ = observe(lists=[*away, ("1", [])], watches=[], seconds=60)
    moments = [at for at, what in script.asked if what == "list"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert len(pauses) == 6
    assert all(0.25 * 2**n <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses))
    assert informer.synced.is_set()


@pytest.mark.parametrize("status", [401, 403, 404, 410, 500, 503])
def test_a_refused_list_is_tried_again(status: int) -> None:
    _, informer, told = observe(lists=[status, ("1", [pod("a", 1)])], watches=[])
    assert told == [(None, "a@1")]
    assert informer.synced.is_set()


def test_a_watch_that_ends_at_once_is_not_asked_in_a_tight_loop() -> None:
    script, _, _ = observe(lists=[("5", [])], watches=[[] for _ in range(100)], seconds=10)
    assert len(script.asked) < 10


def test_objects_may_be_read_as_plain_values() -> None:
    clock = VirtualClock()
    script = Script(clock, lists=[("1", [{"metadata": {"name": "n1", "resourceVersion": "1"}, "x": 3}])], watches=[])

    async def story() -> dict[str, dict[str, Any]]:
        informer = Informer(
            Client(script, clock), Selection(NODES), shape=dict[str, Any], changed=lambda old, new: None
        )
        await stopped_after(clock, 1, informer.run)
        return informer.store

    assert clock.run(story())["n1"]["x"] == 3
