"""Commands say where no scheduler decides; tests/kubernetes asks the same of a real cluster."""

from types import SimpleNamespace

import pytest
from simworld import SETTINGS, cluster, job
from test_life import START

from fairway import NAMESPACE
from fairway.cli.leader import idle, warn
from fairway.cli.main import Problem
from fairway.cli.mistakes import check
from fairway.cli.view import view_of
from fairway.cli.whatif import policy_of
from fairway.clock import VirtualClock, seeded
from fairway.engine import Policy
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.settings import policy_of as by_settings


@pytest.mark.parametrize("namespace", [NAMESPACE, "another"])
def test_where_no_scheduler_decides_it_is_said_and_since_when(namespace: str) -> None:
    clock = VirtualClock(START)

    async def run() -> list[str]:
        async with cluster(clock, seeded(1)) as world:
            await world.client.ensure(kinds.NAMESPACES, {"metadata": {"name": namespace}})
            told = [await idle(world.client)]
            settings = SETTINGS.__class__(namespace=namespace, identity="it")
            for _ in range(2):
                world.start(settings=settings)
                await world.until(lambda: decides(world.client))
                await clock.sleep(100)
                told.append(await idle(world.client))
                await world.crash()
                told.append(await idle(world.client))  # a standby may take over yet
            await clock.sleep(100)
            return [*told, await idle(world.client)]

    first, *rest, last = clock.run(run())
    assert first.startswith("no scheduler has decided yet: no controller runs on this cluster; ")
    assert rest == ["", "", "", ""] and last.startswith("no scheduler has decided since ")


def test_a_fairway_that_was_moved_to_another_namespace_is_found_where_it_is_now() -> None:
    clock = VirtualClock(START)

    async def run() -> str:
        async with cluster(clock, seeded(1)) as world:
            for namespace in (NAMESPACE, "another"):
                await world.client.ensure(kinds.NAMESPACES, {"metadata": {"name": namespace}})
                world.start(settings=SETTINGS.__class__(namespace=namespace, identity="it"))
                await world.until(lambda: decides(world.client))
                await clock.sleep(100)
                told = await idle(world.client)
                await world.crash()
                await clock.sleep(100)
            return told

    assert clock.run(run()) == ""


def test_queue_default_is_missed_only_once_a_controller_has_had_time_to_make_it() -> None:
    clock = VirtualClock(START)

    async def run() -> None:
        order = SimpleNamespace(priority=None, image=None, dry_run=False, wait_anyway=False)
        async with cluster(clock, seeded(1)) as world:
            await world.client.ensure(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
            before = await view_of(world.client, order)
            await check(world.client, before, [job("new")], order)
            world.start(settings=SETTINGS.__class__(identity="it"))
            await world.until(lambda: decides(world.client))
            await clock.sleep(100)
            await world.client.delete(Ref(kinds.QUEUES, "default"))
            with pytest.raises(Problem, match=r"there is no queue 'default'; .* --wait-anyway queues it all"):
                await check(world.client, await view_of(world.client, order), [job("new")], order)
            order.wait_anyway = True
            await check(world.client, await view_of(world.client, order), [job("new")], order)

    clock.run(run())


def test_the_cluster_of_a_machine_is_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    """It has an API server a moment before its scheduler leads."""
    clock = VirtualClock(START)

    async def run() -> None:
        async with cluster(clock, seeded(1)) as world:
            await warn(world.client)

    clock.run(run())
    assert capsys.readouterr().err == ""


def test_what_a_cluster_decides_by_is_read_off_the_lease_wherever_it_is() -> None:
    clock, chosen = VirtualClock(START), SETTINGS.__class__(namespace="another", identity="it", policy="fifo")

    async def run() -> Policy:
        async with cluster(clock, seeded(1)) as world:
            await world.client.ensure(kinds.NAMESPACES, {"metadata": {"name": "another"}})
            world.start(settings=chosen)
            await world.until(lambda: decides(world.client))
            return await world.until(lambda: told(world.client))

    async def told(client: Client) -> Policy | None:
        """The policy, once it is another than the default."""
        found = await policy_of(client)
        return found if found != by_settings(SETTINGS) else None

    assert clock.run(run()) == by_settings(chosen)


async def decides(client: object) -> bool:
    return not await idle(client)  # type: ignore[arg-type]
