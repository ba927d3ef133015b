"""What the page sees: in virtual time, from a server in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import inprocess
import pytest

from fairway.api.crds import crds
from fairway.clock import VirtualClock
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response
from fairway.web import now, operations
from fairway.web.access import Sight
from fairway.web.page import Ask, Page
from fairway.web.topic import BATCH_SECONDS, REST, Topic, Topics
from fairway.web.world import UNSEEN_SECONDS, World


def test_it_watches_while_somebody_looks_and_begins_anew_with_the_next() -> None:
    clock = VirtualClock(1_000_000.0)

    async def story() -> None:
        api = inprocess.api(clock=clock)
        await api.server.start()
        client = Client(api.server.handle, clock)
        for definition in crds():
            await client.create(kinds.DEFINITIONS, definition)
        world = World(client, "default")
        for _ in range(2):
            await world.seen()
            assert "system-cluster-critical" in world.priorities
            await clock.sleep(UNSEEN_SECONDS - 1)
            assert world.is_watching
            await clock.sleep(2)
            assert not world.is_watching
        await api.store.close()

    clock.run(story())


def test_a_cluster_without_fairway_is_seen_once_it_is_installed() -> None:
    clock = VirtualClock(1_000_000.0)

    async def story() -> None:
        api = inprocess.api(clock=clock)
        await api.server.start()
        client = Client(api.server.handle, clock)
        world = World(client, "default")
        with pytest.raises(TimeoutError):
            await world.seen()
        for definition in crds():
            await client.create(kinds.DEFINITIONS, definition)
        await world.seen()
        await world.stop()
        await api.store.close()

    clock.run(story())


def test_a_stream_falls_silent_while_the_api_server_is_away_and_goes_on_when_it_is_back() -> None:
    clock = VirtualClock(1_000_000.0)

    async def story() -> tuple[list[float], float, str]:
        api = inprocess.api(clock=clock)
        await api.server.start()
        client, away = Client(api.server.handle, clock), False
        for definition in crds():
            await client.create(kinds.DEFINITIONS, definition)

        async def transport(request: Request) -> Response:
            if away:
                raise ConnectionRefusedError
            return cut(await api.server.handle(request))

        def cut(response: Response) -> Response:
            async def chunks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
                async for chunk in body:
                    if away:
                        return
                    yield chunk

            return response if isinstance(response.body, bytes) else replace(response, body=chunks(response.body))

        world = World(Client(transport, clock), "default")
        await world.seen()
        topics = Topics(world, {"now": now.page})
        topic = topics.find(Ask("now", {}, Sight(), clock.now()))
        assert topic is not None
        told: list[float] = []

        async def listen() -> None:
            async for _ in topics.follow(topic, ""):
                told.append(clock.now())

        listener = asyncio.create_task(listen())
        await clock.sleep(10)
        away = True
        while not world.is_away:
            await clock.sleep(1)
        since, said = clock.now(), operations.page(world, Ask("operations", {}, Sight(), clock.now())).frame
        await clock.sleep(60)
        silent = [moment for moment in told if since + 1 < moment]
        away = False
        while told[-1] <= since + 60:
            await clock.sleep(1)
        listener.cancel()
        await world.stop()
        await api.store.close()
        return silent, told[-1] - since, said

    silent, again, said = clock.run(story())
    assert silent == [] and again > 60
    assert "! API errors" in said and "cannot be read: " in said and "kubectl get --raw /readyz?verbose" in said


async def test_a_page_is_left_still_for_what_it_costs_to_draw_and_not_for_how_long_a_busy_machine_took() -> None:
    class Busy(VirtualClock):
        """Each look at the time is a minute later."""

        moment = work = 0.0

        def elapsed(self) -> float:
            self.moment += 60.0
            return self.moment

        def spent(self) -> float:
            self.work += 0.1
            return self.work

    async def unheard(request: Request) -> Response:
        return Response(404, {}, b"{}")

    world = World(Client(unheard, Busy()), "default")
    one = Topic(world, lambda world, ask: Page("one", "two"), Ask("now", {}, Sight(), 0.0))
    await one.refresh()
    assert one.pause == BATCH_SECONDS, "the first drawing takes longer than others"
    await one.refresh()
    assert one.pause == pytest.approx(REST * 0.1)
