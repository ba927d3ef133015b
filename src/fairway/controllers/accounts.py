"""UsageDays are kept here: what each queue's workloads used, day by day, and what the pools had beside it.

A queue has a turn every ten minutes, all at the same moments, and soon when a deletion waits for its charge. A turn
charges what the mark of each workload lacks, in one write of a UsageDay over the version last seen, so that a write
that arrives late is refused; whatever fails, the object is read anew. A workload keeps its finalizer until all it used
is charged; its mark goes when that is seen. Two days later a UsageDay is settled: nothing more is charged to it, and no
life of the controllers reads further back. Days that are past are charged in their order.

A UsageMonth closes its month: what is still to be charged of it is, then each of its days is marked closed, then the
month says so. What comes later is a row of the first open day, with the day that it is of. UsageDays are not watched:
there are many, and nobody else writes them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from itertools import islice

import msgspec
from msgspec.structs import replace

from fairway.api import accounts
from fairway.api.accounts import Claim, Terms, after, begin_of, day_of, used_in
from fairway.api.decode import change
from fairway.api.nodes import downtime, uses
from fairway.api.objects import FINALIZER, Metadata
from fairway.api.quantities import Malformed, exact, time, time_text
from fairway.api.queues import lineage
from fairway.api.types import VERSION, EvictionRecord, UsageDayObject, UsageDaySpec, UsageDayStatus, WorkloadObject
from fairway.api.workloads import key_of
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection

from .held import used
from .means import Means
from .meter import Meter

SAMPLE_SECONDS, HURRIED_SECONDS, LAST_SECONDS = 30.0, 0.5, 5.0
FIRST_SECONDS = 10.0  # until what the pools have is first written: a start has more urgent things to ask
SETTLED_DAYS, LONGEST_GAP_DAYS, AT_ONCE = 2, 31, 200
DAY, MONTH, POOLS, USES = "fairway.dev/day", "fairway.dev/month", "/pools", "/uses"
LONGEST_NAME = 240
CAPACITY = ""
"""Instead of a queue: what the pools had."""
Owed = tuple[Claim, Counter[str], tuple[EvictionRecord, ...]]
Make = Callable[[UsageDayStatus], UsageDayStatus]


@dataclass(slots=True)
class Book:
    """The UsageDays of a queue as last written or read; None where there is none. `mark`: to which all was charged."""

    mark: float = 0.0
    days: dict[str, UsageDayObject | None] = field(default_factory=dict)

    def settled(self) -> str:
        """The last day that is settled, "" for none."""
        return max((day for day, one in self.days.items() if one is not None and one.status.settled), default="")

    def settles(self) -> float | None:
        """When the first of them is to be settled."""
        days = [day for day, one in self.days.items() if one is not None and not one.status.settled]
        return begin_of(after(min(days), SETTLED_DAYS + 1)) if days else None

    def left(self, claim: Claim, day: str) -> tuple[Counter[str], tuple[EvictionRecord, ...]]:
        """What is still to be charged of a claim of a day: it may be noted on that day, and late on others."""
        seen = ((at, one) for at, one in self.days.items() if one is not None)
        marks = (one.status.marks.get(accounts.mark_key(claim, "" if at == day else day)) for at, one in seen)
        return accounts.left(claim, marks)


@dataclass(frozen=True, slots=True)
class Bill:
    """What is charged in one write. `late`: the closed day that it is of. `live`: uids whose marks are kept. `period`:
    when the one began that it is of."""

    owed: tuple[Owed, ...]
    late: str
    terms: Terms
    live: frozenset[str]
    until: str
    period: float

    def charge(self, status: UsageDayStatus) -> UsageDayStatus:
        """With as much of it as there is room for marks."""
        marks = {key: mark for key, mark in status.marks.items() if key.partition("/")[0] in self.live}
        room, fits = accounts.MOST_MARKS - len(marks), []
        for claim, pools, lost in self.owed:
            is_new = accounts.mark_key(claim, self.late) not in marks
            if not is_new or room > 0:
                room -= is_new
                fits.append((claim, self.late, pools, lost))
        more = sum((pools for _, late, pools, _ in fits if not late), Counter[str]())
        recent = accounts.with_recent(status.recent, self.period, more)
        return accounts.charged(replace(status, marks=marks, until=self.until, recent=recent), fits, self.terms)


class Accounts:
    def __init__(self, means: Means, meter: Meter) -> None:
        self.means, self.meter = means, meter
        self.agenda = Agenda(means.client.clock, means.client.chance)
        self._books: defaultdict[str, Book] = defaultdict(Book)
        self._keys: defaultdict[str, set[str]] = defaultdict(set)  # of workloads that have used something of a queue
        self._closed: set[str] = set()
        self._has_begun, self._runs_from = False, 0.0

    async def run(self) -> None:
        """Until cancelled."""
        self._runs_from = self.means.now()
        self.agenda.note(POOLS, self._runs_from + FIRST_SECONDS)
        for key in (USES, *self._keys, *(f"{MONTH}/{one}" for one in self.means.view.months)):
            self.agenda.note(key)
        try:
            await self.means.take_turns(self.agenda, self._turn)
        finally:
            if self.means.election.is_leader():  # once this life is over nothing else knows what pools had since then
                with suppress(ApiError, OSError, TimeoutError):
                    await self.means.client.clock.within(LAST_SECONDS, self._write_capacity(self.means.now()))

    def note(self, old: WorkloadObject | None, new: WorkloadObject | None) -> None:
        """A Workload changed: its queues are to be charged for it with their others."""
        self.meter.note(old, new)
        for said in filter(None, (old, new)):
            for queue in _queues_of(said):
                self._keys[queue].add(key_of(said.metadata))
        if new is not None and new.status.admission is not None:
            self.agenda.note(new.spec.queue, _next(self.means.now()))
        if old is not None and new is None:
            for queue in _queues_of(old):
                self._keys[queue].discard(key_of(old.metadata))

    def note_month(self, month: str) -> None:
        """A UsageMonth has come, or changed."""
        self.agenda.note(f"{MONTH}/{month}")

    def must_charge(self, said: WorkloadObject) -> bool:
        """Whether a workload that is over or deleted is still to be charged; if so its queues get a turn."""
        waits = False
        for day, queue, claim in self._claims(said, self.means.now()):
            book = self._books[queue]
            left = book.left(claim, day)
            if day > book.settled() and (day not in book.days or any(left)):
                waits, now = True, self.means.now()
                is_too_much = any(amount < 0 for amount in left[0].values())
                hurries = is_too_much or said.metadata.is_going
                self.agenda.note(queue, now + HURRIED_SECONDS if hurries else _next(now))
        return waits

    @staticmethod
    def _claims(said: WorkloadObject, now: float) -> Iterator[tuple[str, str, Claim]]:
        """What is over may have been charged until its end was known: it claims nothing of the days since, too."""
        if said.status.attempt and FINALIZER in said.metadata.finalizers:
            served = used(said, now=now).served
            days = dict(served.days) if served else {}
            if served and said.status.is_over:
                day = day_of(time(served.until))
                while day <= day_of(now):
                    days[day] = {said.spec.queue: {}, **days.get(day, {})}
                    day = after(day, 1)
            yield from accounts.claims(said, days)

    async def _turn(self, key: str) -> float | None:
        now = self.means.now()
        if key.startswith(f"{MONTH}/"):
            return await self._close(key.removeprefix(f"{MONTH}/"), now)
        if key == USES:
            view = self.means.view
            told = {name: own for name, node in view.nodes.items() if (own := uses(node))}
            self.meter.sample(now, view.workloads.values(), told)
            return now + SAMPLE_SECONDS
        if key == POOLS:
            await self._write_capacity(now)
            return _next(now)
        await self._charge(key, now)
        ours = self._ours(key)
        for one in ours:
            if _ends(one):
                self.means.tend(key_of(one.metadata))
        return _next(now) if ours else self._books[key].settles()

    def _ours(self, queue: str) -> list[WorkloadObject]:
        """The workloads that may owe something to a queue."""
        seen = self.means.view.workloads
        self._keys[queue] &= seen.keys()
        found = [seen[key] for key in self._keys[queue]]
        return [one for one in found if FINALIZER in one.metadata.finalizers and one.status.attempt]

    async def _charge(self, queue: str, now: float) -> None:
        """All that is owed to a queue, day by day in their order; then days that are long over are settled."""
        claims: defaultdict[str, list[Claim]] = defaultdict(list)
        live, book, today, mark = set(), self._books[queue], day_of(now), accounts.mark_of(now)
        period = mark if book.mark == mark else mark - accounts.PERIOD_SECONDS
        for number, one in enumerate(self._ours(queue)):
            live.add(accounts.account_of(one))
            if number % AT_ONCE == AT_ONCE - 1:
                await self.means.client.clock.sleep(0.0)  # others have their turns, however many there are
            for day, at, claim in self._claims(one, now if _ends(one) else mark):
                if at == queue:
                    claims[day].append(claim)
        await self._load(queue, min([*claims, today]), today)
        for day in sorted(claims):
            if day <= book.settled():
                continue
            owed = [(claim, *book.left(claim, day)) for claim in claims[day]]
            owed = [one for one in owed if one[1] or one[2]]
            late = day if owed and self._is_closed(book, day) else ""
            amounts = {claim.uid: max(0, pools.total()) for claim, pools, _ in owed if day >= day_of(mark - 1)}
            terms = Terms(self._prices(), self.meter.taken(amounts, mark), self._takers(owed))
            begin = min(period, begin_of(after(day)) - accounts.PERIOD_SECONDS)
            bill = Bill(tuple(owed), late, terms, frozenset(live), time_text(mark), begin)
            if owed:
                await self._write(queue, today if late else day, bill.charge)
            if any(any(book.left(claim, day)) for claim in claims[day]):
                return  # its marks are full: some of the workloads have to go first
        book.mark = mark
        await self._settle(queue, today)

    def _is_closed(self, book: Book, day: str) -> bool:
        """Whether nothing more can be written of a day; a month that is being closed takes no new day."""
        month = self.means.view.months.get(day[:7])
        is_closed = day[:7] in self._closed or (month is not None and bool(month.status.closed_at))
        seen = book.days[day]
        return seen.status.closed if seen is not None else is_closed

    async def _load(self, queue: str, first: str, last: str) -> None:
        """Reads the days that are not known yet, back to `first` or one that is settled."""
        book, day = self._books[queue], last
        while day >= max(first, book.settled()):
            if day not in book.days:
                found = await self.means.client.find(Ref(kinds.USAGE_DAYS, name_of(queue, day)))
                book.days[day] = msgspec.convert(found, UsageDayObject) if found else None
            day = after(day, -1)

    def _prices(self) -> dict[str, Fraction]:
        found = {}
        for name, pool in self.means.view.pools.items():
            with suppress(Malformed):  # the pool says so
                found[name] = Fraction(exact(str(pool.spec.cost_per_gpu_hour or 0)))
        return found

    def _takers(self, owed: Iterable[Owed]) -> dict[str, str]:
        seen, keys = self.means.view.workloads, {one.beneficiary for *_, lost in owed for one in lost}
        return {key: seen[key].spec.user for key in keys if key in seen}

    async def _write(self, queue: str, day: str, make: Make) -> None:
        """Writes the status that `make` makes of the UsageDay, which is made where there is none. Whatever goes wrong,
        what is there is read anew by the next turn."""
        book = self._books[queue]
        try:
            seen = book.days[day] or await self._made(queue, day)
            patch = change(seen.status, make(seen.status))
            if patch:
                meta = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
                place, said = Ref(kinds.USAGE_DAYS, seen.metadata.name), {"metadata": meta, "status": patch}
                answer = await self.means.client.patch(place, said, subresource="status")
                book.days[day] = msgspec.convert(answer, UsageDayObject)
        except BaseException:
            book.days.pop(day, None)
            raise

    async def _made(self, queue: str, day: str) -> UsageDayObject:
        spec = UsageDaySpec(day, queue, tuple(islice(lineage(self.means.view.queues, queue), 1, None)))
        meta = Metadata(name_of(queue, day), labels={DAY: day, MONTH: day[:7]})
        value = {"apiVersion": VERSION, "kind": "UsageDay", **msgspec.to_builtins(UsageDayObject(meta, spec))}
        return msgspec.convert(await self.means.client.create(kinds.USAGE_DAYS, value), UsageDayObject)

    async def _settle(self, queue: str, today: str) -> None:
        """What is long over takes no more, and needs no marks."""
        book = self._books[queue]
        for day in sorted(book.days):
            one = book.days[day]
            if one is not None and after(day, SETTLED_DAYS) < today and not one.status.settled:
                await self._write(queue, day, lambda status: replace(status, settled=True, marks={}))
        for day in [day for day in book.days if day < book.settled()]:
            del book.days[day]

    async def _begin(self) -> None:
        """Capacity is counted on from where it was written to, on one of the last days, else from the start."""
        day = today = day_of(self.means.now())
        until, days = "", self._books[CAPACITY].days
        while not until and day > after(today, -LONGEST_GAP_DAYS):
            await self._load(CAPACITY, day, today)
            one, day = days.get(day), after(day, -1)
            until = one.status.until if one else ""
        found = {name: downtime(node) for name, node in self.means.view.nodes.items()}
        if not self._has_begun:  # by a turn that came between
            downs = {name: down for name, down in found.items() if down}
            self.meter.begin(time(until) if until else self._runs_from, downs)
        self._has_begun = True

    async def _write_capacity(self, now: float) -> None:
        if not self._has_begun:
            await self._begin()
        for day, make in list(self.meter.since(now)):
            await self._load(CAPACITY, day, day)
            if not self._is_closed(self._books[CAPACITY], day):
                await self._write(CAPACITY, day, make)
            self.meter.told(day)
        await self._settle(CAPACITY, day_of(now))

    async def _close(self, month: str, now: float) -> float | None:
        """A month that is over: charges what is left of it, then closes each of its days, then says so."""
        seen = self.means.view.months.get(month)
        try:
            end = accounts.end_of_month(month)
        except ValueError:
            return None
        if seen is None or not seen.spec.closed or seen.status.closed_at or now < end:
            return end if seen and now < end else None
        for queue in sorted(self._keys):
            await self._charge(queue, now)
        await self._write_capacity(now)
        self._closed.add(month)
        for thing in await self.means.client.list(Selection(kinds.USAGE_DAYS, labels=f"{MONTH}={month}")):
            one = msgspec.convert(thing, UsageDayObject)
            book = self._books[one.spec.queue]
            book.days[one.spec.day] = one
            await self._write(one.spec.queue, one.spec.day, lambda status: replace(status, closed=True))
            if one.status.settled:
                del book.days[one.spec.day]
        await self.means.patch(kinds.USAGE_MONTHS, seen, {"status": {"closedAt": time_text(int(now))}})
        return None


def name_of(queue: str, day: str) -> str:
    """Of the UsageDay of a queue and day; a name that would be too long ends with a sum of it."""
    if len(queue) > LONGEST_NAME:
        queue = f"{queue[: LONGEST_NAME - 9]}-{sha256(queue.encode()).hexdigest()[:8]}"
    return f"{day}.{queue}" if queue else day


def _queues_of(said: WorkloadObject) -> set[str]:
    """The queues that it may owe something."""
    return used_in(said) | {one.queue for one in said.status.eviction_history if one.lost}


def _next(now: float) -> float:
    """When all are charged next."""
    return accounts.mark_of(now) + accounts.PERIOD_SECONDS


def _ends(said: WorkloadObject) -> bool:
    return said.status.is_over or said.metadata.is_going
