"""A turnstile lets a bounded number in, by rank, and loses no place to whoever gives up."""

import asyncio

import pytest

from fairway.kube.turnstile import AT_ONCE, Turnstile, side_by_side


async def enter(gate: Turnstile, name: str, rank: float, order: list[str], leave: asyncio.Event) -> None:
    async with gate.turn(rank):
        order.append(name)
        await leave.wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_whoever_waits_goes_in_by_rank_then_in_the_order_of_asking() -> None:
    gate, order, leave = Turnstile(2), list[str](), asyncio.Event()
    names = (("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0), ("urgent", -1.0))
    async with asyncio.TaskGroup() as tasks:
        for name, rank in names:
            tasks.create_task(enter(gate, name, rank, order, leave))
        await settled()
        assert order == ["a", "b"]
        leave.set()
    assert order == ["a", "b", "urgent", "c", "d"]


async def test_whoever_gives_up_takes_no_place_with_it() -> None:
    gate, order, leave, never = Turnstile(1), list[str](), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(enter(gate, "first", 0.0, order, leave))
    others = [asyncio.create_task(enter(gate, name, 0.0, order, never)) for name in ("x", "y")]
    await settled()
    others[0].cancel()
    leave.set()
    await first
    await settled()
    others[1].cancel()
    await asyncio.gather(*others, return_exceptions=True)
    async with gate.turn():
        order.append("last")
    assert order == ["first", "y", "last"]


async def test_one_that_is_let_in_as_it_gives_up_makes_room_for_the_next() -> None:
    gate, order, never = Turnstile(1), list[str](), asyncio.Event()
    async with gate.turn():
        waiting = [asyncio.create_task(enter(gate, name, 0.0, order, never)) for name in ("x", "y")]
        await settled()
    waiting[0].cancel()  # its turn has come, and it does not know yet
    await settled()
    assert order == ["y"]
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_side_by_side_no_more_than_so_many_are_under_way() -> None:
    under_way, most, done = 0, 0, list[int]()

    async def one(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done.append(number)

    await side_by_side(one(number) for number in range(3 * AT_ONCE))
    assert most == AT_ONCE
    assert sorted(done) == list(range(3 * AT_ONCE))


async def test_after_a_failure_nothing_more_is_begun_and_what_was_under_way_ends_first() -> None:
    ended = list[int]()

    async def one(number: int) -> None:
        if number == 1:
            raise ValueError("the second")
        await settled()
        ended.append(number)

    with pytest.raises(ValueError, match="the second"):
        await side_by_side(one(number) for number in range(3 * AT_ONCE))
    assert ended == [0]
