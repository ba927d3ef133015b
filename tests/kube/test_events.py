"""Events are written beside the work; in a burst none is lost without being counted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fairway.clock import VirtualClock, seeded
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.events import BOUND, About, Events
from fairway.kube.kinds import Selection
from fairway.kube.transport import Request, Response

Thing = dict[str, Any]


class Told:
    """Events over a way to a server that answers with `status` first, for so many requests."""

    def __init__(self, server: Server, clock: VirtualClock, failing: int = 0, status: int = 500) -> None:
        self.server, self.failing, self.status, self.lost = server, failing, status, 0
        self.client = Client(server.handle, clock, seeded(1))
        self.events = Events(Client(self._answer, clock, seeded(1)), "test", self._lose)

    async def _answer(self, request: Request) -> Response:
        self.failing -= 1
        return await self.server.handle(request) if self.failing < 0 else Response(self.status, {}, b"{}")

    def _lose(self, count: int) -> None:
        self.lost += count

    def tell(self, name: str, message: str = "it starts", namespace: str = "default") -> None:
        self.events.tell(About(kinds.JOBS, name, f"uid-{name}", namespace), "Admitted", message)

    async def written(self) -> list[Thing]:
        """What there is once all that was told is written."""
        task = asyncio.create_task(self.events.run())
        await self.events.client.clock.sleep(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await self.client.list(Selection(kinds.EVENTS))


def play(story: Callable[[Server, VirtualClock], Awaitable[Any]]) -> Any:
    clock = VirtualClock(1_800_000_000.0)

    async def run() -> Any:
        server = Server(Registry(Store(), builtin_kinds(), clock, seeded(2)))
        await server.start()
        return await story(server, clock)

    return clock.run(run())


def test_each_object_of_a_burst_has_its_event_and_the_same_again_only_counts() -> None:
    async def story(server: Server, clock: VirtualClock) -> list[Thing]:
        told = Told(server, clock)
        for name in ("a", "b", "a", "a"):
            told.tell(name)
        told.tell("a", "it starts again")
        return await told.written()

    found = {(it["involvedObject"]["name"], it["message"]): it["count"] for it in play(story)}
    assert found == {("a", "it starts"): 3, ("b", "it starts"): 1, ("a", "it starts again"): 1}


def test_what_is_more_than_may_wait_is_added_up_by_namespace_and_reason() -> None:
    async def story(server: Server, clock: VirtualClock) -> tuple[list[Thing], int]:
        told = Told(server, clock)
        for index in range(BOUND + 500):
            told.tell(f"job-{index}")
        return await told.written(), told.lost

    found, lost = play(story)
    summary, = [it for it in found if it["count"] > 1]
    assert summary["message"] == "it starts (and 499 more of jobs in default)"
    assert summary["involvedObject"]["name"] == f"job-{BOUND}"
    assert (sum(it["count"] for it in found), lost) == (BOUND + 500, 0)


def test_what_the_server_cannot_take_now_is_sent_again() -> None:
    async def story(server: Server, clock: VirtualClock) -> tuple[int, int]:
        told = Told(server, clock, failing=20)
        for index in range(50):
            told.tell(f"job-{index}")
        return len(await told.written()), told.lost

    assert play(story) == (50, 0)


def test_what_is_refused_or_left_over_is_counted() -> None:
    async def story(server: Server, clock: VirtualClock) -> tuple[int, int]:
        refused, cut = Told(server, clock, failing=1, status=403), Told(server, clock, failing=10_000)
        for told in (refused, cut):
            for index in range(3):
                told.tell(f"job-{index}")
        left = len(await refused.written())
        await cut.written()
        return left, refused.lost * 10 + cut.lost

    assert play(story) == (2, 13)
