"""What the page sees: in virtual time, from a server in memory."""

import inprocess
import pytest

from fairway.api.crds import crds
from fairway.clock import VirtualClock
from fairway.kube import kinds
from fairway.kube.client import Client
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
