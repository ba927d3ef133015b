"""What a Reservation says of itself, under virtual time: whether it is open, and what it names that is not there."""

from simworld import Thing, World, node
from test_life import START, play

from fairway.api.quantities import time_text
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection

HOUR = 3600


def reservation(**spec: object) -> Thing:
    window = {"start": time_text(START + HOUR), "duration": "1h"}
    meta = {"name": "course"}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": {**window, **spec}}


async def said(world: World) -> tuple[str, str]:
    """Its phase, and what is not valid about it."""
    status = (await world.client.get(Ref(kinds.RESERVATIONS, "course"))).get("status") or {}
    valid = next((it for it in status.get("conditions") or () if it["type"] == "Valid"), {})
    return status.get("phase", ""), valid.get("message", "") if valid.get("status") == "False" else ""


def test_a_reservation_opens_and_closes() -> None:
    async def story(world: World) -> list[str]:
        await world.client.create(kinds.RESERVATIONS, reservation(maintenance=True, nodes=["n1"]))
        phases = []
        for phase, seconds in (("Waiting", 5), ("Open", HOUR + 5), ("Over", HOUR + 5)):
            await world.until(lambda phase=phase: is_said(world, phase, ""), seconds=seconds)  # type: ignore[misc]
            phases.append((await said(world))[0])
        return phases

    assert play(story, node("n1")) == ["Waiting", "Open", "Over"]


def test_what_a_reservation_names_that_does_not_exist_is_told_until_it_does() -> None:
    async def story(world: World) -> list[str]:
        spec = {"queue": "nlp", "nodes": ["n1", "n7"]}
        await world.client.create(kinds.RESERVATIONS, reservation(**spec))
        words = "queue nlp, node n7 do not exist; nothing is reserved there until then"
        await world.until(lambda: is_said(world, "Waiting", words), seconds=5)
        meta = {"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "nlp"}, "spec": {}}
        await world.client.create(kinds.QUEUES, meta)
        words = "node n7 does not exist; nothing is reserved there until then"
        await world.until(lambda: is_said(world, "Waiting", words), seconds=5)
        await world.client.create(kinds.NODES, node("n7"))
        await world.until(lambda: is_said(world, "Waiting", ""), seconds=5)
        events = await world.client.list(Selection(kinds.EVENTS, fields="involvedObject.kind=Reservation"))
        return [it["reason"] for it in events]

    assert set(play(story, node("n1"))) == {"NotFound"}


async def is_said(world: World, phase: str, words: str) -> bool:
    return await said(world) == (phase, words)
