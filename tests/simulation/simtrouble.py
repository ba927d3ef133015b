"""What goes wrong around the controllers, and what users change their minds about, drawn by a seed beforehand. All is
well again when the faults end."""

import random
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from faults import Faults, Machine
from simload import Ask
from simworld import KINDS, Thing, World

from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection

Trouble = Coroutine[Any, Any, None]
LENGTH, FAR = 60.0, 60.0
OVER = ("Succeeded", "Failed")
STOPS = ({"fairway.dev/active": "false"}, {"fairway.dev/paused": "true"})


def troubles(world: World, chance: random.Random, nodes: Sequence[Thing], asks: Sequence[Ask]) -> list[Trouble]:
    """Of nodes, of the door, and of what is submitted."""
    found: list[Trouble] = []
    for thing in nodes:
        if chance.random() < 0.4:
            kind = chance.choice((_stops, _stops, _vanishes, _is_cordoned, _drains))
            found.append(kind(world, thing, _window(chance)))
    for ask in asks:
        if chance.random() < 0.15:
            found.append(_is_suspended(world, ask, _window(chance), chance.choice(STOPS)))
        elif ask.kind == "Job" and chance.random() < 0.15:
            found.append(_is_changed(world, ask, _window(chance), chance.choice(("high", "low"))))
    if chance.random() < 0.15:
        found.append(door_is_down(world, _window(chance)))
    return found


def _window(chance: random.Random) -> tuple[float, float]:
    return chance.uniform(0, LENGTH), chance.uniform(1, LENGTH)


async def _stops(world: World, thing: Thing, window: tuple[float, float]) -> None:
    await _fails(world, thing, window, is_gone=False)


async def _vanishes(world: World, thing: Thing, window: tuple[float, float]) -> None:
    await _fails(world, thing, window, is_gone=True)


async def _fails(world: World, thing: Thing, window: tuple[float, float], *, is_gone: bool) -> None:
    start, length = window
    await world.clock.sleep(start)
    await world.fail(thing, is_gone=is_gone)
    await world.clock.sleep(length)
    await world.heal(thing)


async def _is_cordoned(world: World, thing: Thing, window: tuple[float, float]) -> None:
    await _marked(world, thing, window, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}})


async def _drains(world: World, thing: Thing, window: tuple[float, float]) -> None:
    notes = [{"metadata": {"annotations": {"fairway.dev/unhealthy": it}}} for it in ("ecc", None)]
    await _marked(world, thing, window, *notes)


async def _marked(world: World, thing: Thing, window: tuple[float, float], *changes: Thing) -> None:
    for pause, change in zip(window, changes):
        await world.clock.sleep(pause)
        await world.client.patch(Ref(kinds.NODES, thing["metadata"]["name"]), change)


async def _is_suspended(world: World, ask: Ask, window: tuple[float, float], stops: Thing) -> None:
    """Or paused, or first the one and then the other."""
    resumed = {"fairway.dev/active": "true", "fairway.dev/paused": None}
    for pause, said in zip(window, (stops, resumed)):
        await world.clock.sleep(pause)
        await _annotate(world, ask, said)


async def _is_changed(world: World, ask: Ask, window: tuple[float, float], name: str) -> None:
    for pause, said in zip(window, (name, None)):
        await world.clock.sleep(pause)
        await _annotate(world, ask, {"fairway.dev/priority-class": said})


async def _annotate(world: World, ask: Ask, notes: Thing) -> None:
    """What its user says, again and again while it is being made again; nothing where it is not there yet."""
    for _ in range(60):
        try:
            await world.client.patch(Ref(KINDS[ask.kind], ask.name, "default"), {"metadata": {"annotations": notes}})
            return
        except ApiError as error:
            assert error.status == 404
            await world.clock.sleep(5)


async def door_is_down(world: World, window: tuple[float, float]) -> None:
    for pause, is_down in zip(window, (True, False)):
        await world.clock.sleep(pause)
        world.door.is_down = is_down


async def submit(world: World, ask: Ask) -> None:
    """Its user tries again while nobody opens the door."""
    for thing in ask.things:
        while True:
            try:
                await world.apply(thing)
                break
            except ApiError as error:
                assert error.status == 500
                await world.clock.sleep(5)


async def cancel(world: World, ask: Ask, at: float) -> None:
    """Its user deletes all of it, again where it was being made again."""
    await world.clock.sleep(at)
    for _ in range(20):
        for thing in ask.things:
            await world.client.delete(Ref(KINDS[ask.kind], thing["metadata"]["name"], "default"))
        await world.clock.sleep(10)
        if await world.phase(ask.workload) in ("", *OVER):
            return


def of_replica(chance: random.Random, faults: Faults, start: float) -> None:
    """It cannot reach the server for a while."""
    begin = start + chance.uniform(5, LENGTH)
    faults.outage = begin, begin + chance.choice((5, 20, 60))


async def jump(clock: Machine, chance: random.Random) -> None:
    """The administrator of its machine sets its clock, back or forth, and in the end right."""
    for ahead in (chance.choice((-FAR, -5.0, 5.0, FAR)), 0.0):
        await clock.sleep(chance.uniform(5, LENGTH))
        clock.ahead = ahead


def cpus(it: Thing) -> int:
    return int(it["spec"]["containers"][0]["resources"]["requests"]["cpu"])


async def bind_where_there_is_room(world: World, room: Mapping[str, int], chance: random.Random) -> None:
    """Another scheduler that counts the pods which have a node, as kube-scheduler does, and is slower or quicker."""
    while True:
        free, open_ = dict(room), []
        for it in await world.client.list(Selection(kinds.PODS)):
            if it["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            if it["spec"].get("nodeName"):
                free[it["spec"]["nodeName"]] -= cpus(it)
            elif not it["spec"].get("schedulingGates") and it["spec"]["schedulerName"] == "default-scheduler":
                open_.append(it)
        for it in open_:
            tied = it["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
            fits = [name for name in free if free[name] >= cpus(it) and tied in (None, name)]
            if fits:
                meta, name = it["metadata"], chance.choice(fits)
                await world.clock.sleep(chance.uniform(0.0, 0.1))
                with suppress(ApiError):
                    await world.client.bind(Ref(kinds.PODS, meta["name"], meta["namespace"]), name, uid=meta["uid"])
                break
        else:
            await world.server.registry.store.changed("pods")
