"""Leader election against the embedded server, under a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from faults import Machine

from fairway import TOLD
from fairway.api.quantities import time
from fairway.clock import Clock, VirtualClock, seeded
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Registry
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube.client import Client
from fairway.kube.kinds import LEASES, Ref
from fairway.kube.lease import Election
from fairway.kube.transport import Request, Response

LEASE = Ref(LEASES, "leader", "kube-system")
START = 1_800_000_000.0


class Link:
    """The way of one candidate to the server; it can be cut, or bring no answer to a write, or bring writes late and
    without an answer. `since_read`: what happens once between a read and what follows it."""

    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self.server, self.clock, self.is_cut, self.is_mute, self.is_late = server, clock, False, False, False
        self.since_read: Callable[[], Awaitable[Any]] | None = None
        self.late: list[asyncio.Task[None]] = []

    async def __call__(self, request: Request) -> Response:
        if self.is_cut:
            raise ConnectionError("cut")
        if self.is_late and request.method != "GET":
            self.late.append(asyncio.create_task(self._late(request)))
            await asyncio.Event().wait()
        answer = await self.server.handle(request)
        if request.method == "GET" and (happens := self.since_read):
            self.since_read = None
            await happens()
        if self.is_mute and request.method != "GET":
            await asyncio.Event().wait()
        return answer

    async def _late(self, request: Request) -> None:
        await self.clock.sleep(0.3)
        await self.server.handle(request)


class Candidate:
    def __init__(self, server: Server, clock: Clock, identity: str) -> None:
        self.link = Link(server, clock)
        self.election = Election(Client(self.link, clock, seeded(1)), LEASE, identity=identity, term=15.0)
        self.task = asyncio.create_task(self.election.run())

    async def crash(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def leads(self) -> bool:
        return self.election.is_leader()


def play(story: Callable[[Server, VirtualClock], Awaitable[Any]]) -> Any:
    clock = VirtualClock(START)

    async def run() -> Any:
        server = Server(Registry(Store(), builtin_kinds(), clock, seeded(2)))
        await server.start()
        return await story(server, clock)

    return clock.run(run())


def test_one_of_two_leads_and_the_other_follows_when_it_crashes() -> None:
    async def story(server: Server, clock: VirtualClock) -> list[tuple[bool, bool]]:
        one, two = Candidate(server, clock, "one"), Candidate(server, clock, "two")
        await clock.sleep(60)
        seen = [(one.leads, two.leads)]
        await one.crash()
        await clock.sleep(5)
        seen.append((one.leads, two.leads))
        await clock.sleep(15)
        seen.append((one.leads, two.leads))
        await two.crash()
        return seen

    assert play(story) == [(True, False), (True, False), (False, True)]


def test_the_same_identity_renews_at_once() -> None:
    async def story(server: Server, clock: VirtualClock) -> float:
        one = Candidate(server, clock, "machine")
        await clock.sleep(1)
        await one.crash()
        began, again = clock.now(), Candidate(server, clock, "machine")
        await again.election.acquired.wait()
        await again.crash()
        return clock.now() - began

    assert play(story) == 0.0


def test_who_takes_the_lease_knows_until_when_another_worked() -> None:
    async def story(server: Server, clock: VirtualClock) -> list[float]:
        one = Candidate(server, clock, "machine")
        await one.election.acquired.wait()
        await one.election.begin()
        await clock.sleep(10)
        await one.crash()
        for _ in range(2):  # the first one never begins
            two = Candidate(server, clock, "machine")
            await two.election.acquired.wait()
            await clock.sleep(3)
            await two.crash()
        await two.election.begin()
        await two.election.release()
        three = Candidate(server, clock, "another")
        await three.election.acquired.wait()
        await three.crash()
        return [each.election.worked_until - START for each in (one, two, three)]

    assert play(story) == [float("inf"), 7.5, 16.0]


def test_what_a_holder_did_not_tell_is_known_until_it_leaves_in_order() -> None:
    async def story(server: Server, clock: VirtualClock) -> list[float]:
        untold = []
        for _ in range(3):
            one = Candidate(server, clock, "machine")
            await one.election.acquired.wait()
            untold.append(one.election.told_until)
            await one.election.begin(**{TOLD: "2026-11-01T00:00:00Z"})
            await one.crash()
        await one.election.release()
        two = Candidate(server, clock, "machine")
        await two.election.acquired.wait()
        await two.crash()
        return [*untold, two.election.told_until]

    known = time("2026-11-01T00:00:00Z")
    assert play(story) == [float("inf"), known, known, float("inf")]


def test_what_is_noted_on_a_lease_stays_when_it_is_renewed() -> None:
    async def story(server: Server, clock: VirtualClock) -> dict[str, str]:
        one = Candidate(server, clock, "one")
        await one.election.acquired.wait()
        await one.election.client.patch(LEASE, {"metadata": {"annotations": {"note": "kept"}}})
        await clock.sleep(60.0)
        held = await one.election.client.get(LEASE)
        await one.crash()
        return held["metadata"]["annotations"]

    assert play(story) == {"note": "kept"}


def test_a_lease_given_up_is_taken_within_a_second() -> None:
    async def story(server: Server, clock: VirtualClock) -> float:
        one, two = Candidate(server, clock, "one"), Candidate(server, clock, "two")
        await clock.sleep(10)
        await one.crash()
        await one.election.release()
        began = clock.now()
        await two.election.acquired.wait()
        await two.crash()
        assert not one.leads
        return clock.now() - began

    assert play(story) <= 1.0


def test_a_lease_is_given_up_though_no_answer_said_that_it_is_held() -> None:
    async def story(server: Server, clock: VirtualClock) -> list[str]:
        holders = []
        one, two = Candidate(server, clock, "one"), Candidate(server, clock, "two")
        for it in (one, two):
            it.link.is_mute = True
        await clock.sleep(0.1)
        for it in (two, one):  # that of the first was taken
            await it.crash()
            it.link.is_mute = False
            await it.election.release()
            assert not it.leads
            holders.append((await it.election.client.get(LEASE))["spec"]["holderIdentity"])
        return holders

    assert play(story) == ["one", ""]


def test_two_never_lead_at_once_while_links_are_cut_and_mended() -> None:
    async def story(server: Server, clock: VirtualClock) -> tuple[int, set[str]]:
        both, leaders = 0, set()
        candidates = {name: Candidate(server, clock, name) for name in ("one", "two")}
        for step in range(600):
            candidates["one"].link.is_cut = step % 120 > 60
            candidates["two"].link.is_cut = step % 70 > 50
            await clock.sleep(0.5)
            leads = [name for name, it in candidates.items() if it.leads]
            both += len(leads) > 1
            leaders.update(leads)
        for it in candidates.values():
            await it.crash()
        return both, leaders

    assert play(story) == (0, {"one", "two"})


def test_two_never_lead_at_once_though_the_clock_of_one_is_set_back_while_it_is_cut_off() -> None:
    async def story(server: Server, clock: VirtualClock) -> int:
        machine, both = Machine(clock), 0
        one = Candidate(server, machine, "one")
        await one.election.acquired.wait()
        two = Candidate(server, clock, "two")
        one.link.is_cut, machine.offset = True, -60.0
        for _ in range(200):
            await clock.sleep(0.5)
            both += one.leads and two.leads
        for it in (one, two):
            await it.crash()
        return both

    assert play(story) == 0


def test_a_leader_that_cannot_renew_stops_after_two_thirds_of_the_term() -> None:
    async def story(server: Server, clock: VirtualClock) -> float:
        one = Candidate(server, clock, "one")
        await one.election.acquired.wait()
        one.link.is_cut, began = True, clock.now()
        while one.leads:
            await clock.sleep(0.1)
        await one.crash()
        return clock.now() - began

    assert 9.9 <= play(story) <= 10.2


def test_a_lease_is_given_up_though_it_is_written_late() -> None:
    async def story(server: Server, clock: VirtualClock) -> str:
        one = Candidate(server, clock, "one")
        one.link.is_late = True
        await clock.sleep(0.1)
        await one.crash()
        one.link.is_late = False
        await one.election.release()
        await asyncio.gather(*one.link.late)
        return (await one.election.client.get(LEASE))["spec"]["holderIdentity"]

    assert play(story) == ""


def test_a_lease_is_given_up_though_a_note_is_written_on_it_meanwhile() -> None:
    async def story(server: Server, clock: VirtualClock) -> str:
        one = Candidate(server, clock, "one")
        await one.election.acquired.wait()
        await one.crash()
        one.link.since_read = one.election.begin
        await one.election.release()
        return (await one.election.client.get(LEASE))["spec"]["holderIdentity"]

    assert play(story) == ""
