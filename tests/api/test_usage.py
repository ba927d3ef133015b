"""Accounts add up: whatever is charged, and however often, no GPU-millisecond is lost or counted twice."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.api import accounts
from fairway.api.accounts import Claim, Split, Terms, charged, left, spans, unknown, with_use
from fairway.api.types import EvictionRecord, PoolDay, UsageDaySpec, UsageDayStatus, UsageRow
from fairway.api.usage import Day, Told, hours, shared_until, usage

AMOUNTS = st.integers(0, 10**9)
CLAIMS = st.builds(
    Claim,
    uid=st.sampled_from("abcdef"),
    user=st.sampled_from(("ann", "bob")),
    name=st.sampled_from(("job-x", "job-y")),
    pools=st.dictionaries(st.sampled_from(("h100", "a100")), AMOUNTS, max_size=2),
)
FREE = Terms()
SPLITS = st.builds(Split, AMOUNTS, AMOUNTS, AMOUNTS)


def charge(status: UsageDayStatus, claim: Claim, terms: Terms = FREE) -> UsageDayStatus:
    return charged(status, [(claim, "", *left(claim, [status.marks.get(claim.uid)]))], terms)


@settings(deadline=None)
@given(st.lists(st.tuples(CLAIMS, SPLITS), max_size=30))
def test_what_is_in_the_rows_is_what_was_claimed_last(story: list[tuple[Claim, Split]]) -> None:
    """A claim may shrink: an eviction can be seen late."""
    status, last = UsageDayStatus(), dict[str, Claim]()
    for claim, split in story:
        status = charge(status, claim, Terms(seen={claim.uid: split}))
        status = charge(status, claim)  # again, as after a crash
        last[claim.uid] = claim
    claimed: Counter[str] = Counter()
    for claim in last.values():
        claimed.update(claim.pools)
    rows: Counter[str] = Counter()
    for row in status.rows:
        rows[row.pool] += row.allocated
    assert +rows == +claimed


@settings(deadline=None)
@given(st.lists(st.tuples(CLAIMS, SPLITS), max_size=30))
def test_the_parts_of_a_row_are_never_more_than_the_whole(story: list[tuple[Claim, Split]]) -> None:
    status = UsageDayStatus()
    for claim, split in story:
        status = charge(status, claim, Terms(seen={claim.uid: split}))
    for row in status.rows:
        assert min(row.starting, row.busy, row.idle) >= 0
        assert row.allocated < 0 or unknown(row) >= 0


@settings(deadline=None)
@given(st.floats(0, 4e9), st.lists(st.tuples(st.integers(0, 8000), st.floats(0, 10**6)), max_size=8))
def test_days_add_up_to_the_whole(start: float, steps: list[tuple[int, float]]) -> None:
    days, total = {}, 0
    for held, length in steps:
        days = with_use(days, ("q", "p"), held, start=start, end=start + length)
        total += held * length
        start += length
    found = sum(amount for own in days.values() for amount in own["q"].values())
    assert abs(found - total) <= 1 + len(steps)
    assert all(end - begin <= 86_400 for _, begin, end in spans(start, start + 10**6))


def test_the_smallest_rows_are_merged_and_no_sum_changes() -> None:
    status = UsageDayStatus()
    owed = [Claim(str(n), f"user{n}", f"job-{n}", {"p": 1000 + n}) for n in range(2 * accounts.MOST_ROWS)]
    status = charged(status, [(one, "", *left(one, [])) for one in owed], Terms())
    assert len(status.rows) <= accounts.MOST_ROWS
    assert sum(row.allocated for row in status.rows) == sum(1000 + n for n in range(2 * accounts.MOST_ROWS))
    assert {row.user for row in status.rows} > {"user3999", accounts.OTHERS}
    smaller = replace(owed[0], pools={"p": 400})
    again = charge(status, smaller)
    assert sum(row.allocated for row in status.rows) - sum(row.allocated for row in again.rows) == 600


def test_an_eviction_counts_once_by_victim_and_by_taker() -> None:
    record = EvictionRecord("2026-11-23T10:00:00Z", "Reclaimed", "b", "ns/taker", "a", 5000)
    claim = Claim("u", "ann", "job-x", {"p": 9000}, (record,))
    terms = Terms(takers={"ns/taker": "bob"})
    status = charge(charge(UsageDayStatus(), claim, terms), claim, terms)
    days = [Day(spec=UsageDaySpec("2026-11-23", "a"), status=Told(rows=status.rows, losses=status.losses))]
    assert [(it.name, it.figures.lost, it.figures.took) for it in usage(days, "user").lines] == [
        ("ann", 5000, 0), ("bob", 0, 5000),
    ]  # fmt: skip
    assert [(it.name, it.figures.lost, it.figures.took) for it in usage(days, "queue").lines] == [
        ("a", 5000, 0), ("b", 0, 5000),
    ]  # fmt: skip
    assert [(it.name, it.figures.lost, it.figures.took) for it in usage(days, "name").lines] == [
        ("taker", 0, 5000), ("x", 5000, 0),
    ]  # fmt: skip


def test_a_price_is_that_of_the_time_of_the_charge() -> None:
    claim = Claim("u", "ann", "job-x", {"p": 3_600_000})
    status = charge(UsageDayStatus(), claim, Terms({"p": Fraction("2.5")}))
    status = charge(status, replace(claim, pools={"p": 7_200_000}), Terms({"p": Fraction("1")}))
    assert [row.cost for row in status.rows] == [3_500_000]


POOL = st.builds(PoolDay, *[st.integers(0, 10**6)] * 4)


@settings(deadline=None)
@given(st.lists(st.tuples(CLAIMS, POOL, st.sampled_from((("a", ("root",)), ("b", ("root",)), ("c", ())))), max_size=20))
def test_parents_and_pools_add_up(story: list[tuple[Claim, PoolDay, tuple[str, tuple[str, ...]]]]) -> None:
    days = []
    for number, (claim, pool, (queue, parents)) in enumerate(story):
        status, day = charge(UsageDayStatus(), claim), f"2026-11-{number + 1:02}"
        days += [Day(spec=UsageDaySpec(day, queue, parents), status=Told(rows=status.rows)),
                 Day(spec=UsageDaySpec(day), status=Told(pools={"h100": pool}))]  # fmt: skip
    found = usage(days, "queue")
    held = {it.name: it.figures.allocated for it in found.lines}
    assert held.get("root", 0) == held.get("a", 0) + held.get("b", 0)
    assert found.total.allocated == held.get("root", 0) + held.get("c", 0)
    assert [it.depth for it in found.lines if it.name in ("a", "b")] == [1] * len({"a", "b"} & held.keys())
    for pool in found.pools:
        parts = pool.starting + pool.busy + pool.idle + pool.unknown + pool.reserved + pool.draining + pool.free
        assert parts == pool.capacity and pool.free >= 0
    for by in ("user", "name", "pool"):
        assert sum(it.figures.allocated for it in usage(days, by).lines) == found.total.allocated



def test_hours_are_told_with_one_digit_and_small_amounts_with_three() -> None:
    amounts = (0, 400, 40_000, 120_000, 359_000, 360_000, 5_400_000, 3_600_000_000, -40_000)
    said = ["0", "<0.001", "0.011", "0.033", "0.100", "0.1", "1.5", "1,000.0", "-0.011"]
    assert [hours(it) for it in amounts] == said


def test_accounts_hold_until_the_mark_of_the_capacity_and_what_is_beyond_it_counts_as_capacity() -> None:
    """A queue that was charged since, of what ended, does not say until when all is in the sums."""
    row = UsageRow("ann", "x", "p", allocated=900)
    mark = "2026-11-23T10:00:00Z"
    status = Told(mark, (row,), recent={"2026-11-23T09:50:00Z": {"p": 600}, mark: {"p": 300}})
    pools = Told("2026-11-23T10:00:07Z", pools={"p": PoolDay(2000)}, recent={mark: {"p": 50}})
    days = [Day(spec=UsageDaySpec(mark[:10], "a"), status=status), Day(spec=UsageDaySpec(mark[:10]), status=pools)]
    assert shared_until(days) == mark
    (pool,) = usage(days, "pool").pools
    assert (pool.free, pool.capacity) == (2000 - 50 - 600, 2000 - 50 + 300)
