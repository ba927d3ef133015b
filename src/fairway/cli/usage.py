"""`fairway usage`: who held how many GPU-hours, how they were used, and what they cost; read from UsageDays.

What is printed of a closed month follows from its UsageDays alone, which never change again: the CSV is the same to
the byte for ever. CSV figures are in GPU-seconds, exact to the millisecond, so that they can be added up.
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click

from fairway.api.accounts import after, day_of, end_of_month
from fairway.api.scalars import Malformed, duration
from fairway.api.usage import SHOWN, Day, Figures, Usage, hours, plain, shared_until
from fairway.api.usage import usage as added_up
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

from .connect import on_cluster
from .main import Command, Problem, told
from .output import output_option, print_table, show

MONTH = "fairway.dev/month"
CLOSING_SECONDS, LOOK_SECONDS = 60.0, 0.2
HEAD = ["GPU HOURS", "STARTING", "BUSY", "IDLE", "UNKNOWN", "LOST", "TOOK", "COST"]
MORE = ("others", "reserved", "draining", "free", "capacity")
POOLS = ["POOL", "CAPACITY", "BUSY", "IDLE", "UNKNOWN", "STARTING", "RESERVED", "DRAINING", "FREE"]


@dataclass(frozen=True, slots=True)
class Period:
    """The days from `first` to `last`; `title`: what the user named."""

    first: str
    last: str
    title: str
    month: str = ""

    def months(self) -> list[str]:
        """Those it touches."""
        found = [self.first[:7]]
        while found[-1] < self.last[:7]:
            found.append(day_of(end_of_month(found[-1]))[:7])
        return found


@click.command(cls=Command)
@click.option("--since", default="", metavar="30d", help="From the day (UTC) so long ago on; the default.")
@click.option("--period", default="", metavar="2026-11", help="A month, in UTC.")
@click.option("--by", type=click.Choice(["queue", "user", "name", "pool"]), default="queue", show_default=True,
              help="What a line is about; name: that of the job, without counters.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV, in GPU-seconds.")
@click.option("--close", "closing", default="", metavar="2026-11", help="Close a month that is over: it never changes "
              "again, and what is charged later counts in the next.")
@output_option
@on_cluster
async def usage(client: Client, namespace: str, by: str, as_csv: bool, output: str, **said: str) -> None:
    """Who held how many GPU-hours, how they were used, and what they cost.

    LOST is work since the last checkpoint that evictions cost; TOOK, what evictions for it cost others. A pool's
    capacity is all accounted for: what is held is starting, busy, idle or unknown, the rest reserved, draining or
    free."""
    period = _period(client.clock.now(), **said)
    if said["closing"]:
        await _close(client, said["closing"])
    named = Selection(kinds.USAGE_DAYS, labels=f"{MONTH} in ({','.join(period.months())})")
    days = [one for one in await client.list(named, Day) if period.first <= one.spec.day <= period.last]
    found = added_up(days, by)  # type: ignore[arg-type]
    if as_csv:
        click.echo(_csv(found, by), nl=False)
    else:
        show(output, _plain(found, period, days), lambda: _print(found, by))
    is_closed = bool(period.month) and await _is_closed(client, period.month)
    if text := "" if is_closed else _open(period, days, client.clock.now()):
        click.echo(text, err=True)


def _period(now: float, since: str, period: str, closing: str) -> Period:
    if sum(map(bool, (since, period, closing))) > 1:
        raise Problem("--since, --period and --close each name the days: give one of them")
    if month := period or closing:
        try:
            end = end_of_month(month)
        except ValueError as error:
            raise Problem(f"--{'period' if period else 'close'}: found {month!r}; a month such as 2026-11 is "
                          "allowed") from error  # fmt: skip
        if closing and now < end:
            raise Problem(f"{month} is not over: it can be closed from {day_of(end)} on (UTC)", exit_code=1)
        return Period(f"{month}-01", after(day_of(end), -1), month, month)
    with told(Malformed, by="--since: "):
        span = duration(since or "30d")
    return Period(day_of(max(0.0, now - span)), day_of(now), f"since {day_of(max(0.0, now - span))}")


async def _close(client: Client, month: str) -> None:
    """Returns once the controller has closed it."""
    body = {"apiVersion": kinds.FAIRWAY, "kind": "UsageMonth", "metadata": {"name": month}, "spec": {"closed": True}}
    await client.ensure(kinds.USAGE_MONTHS, body)
    end = client.clock.elapsed() + CLOSING_SECONDS
    while not await _is_closed(client, month):
        if client.clock.elapsed() > end:
            raise Problem(f"{month} is not closed yet: no scheduler answered in {CLOSING_SECONDS:.0f} s; "
                          f"`kubectl get usagemonths` says when it is", exit_code=1)  # fmt: skip
        await client.clock.sleep(LOOK_SECONDS)


async def _is_closed(client: Client, month: str) -> bool:
    found = await client.find(Ref(kinds.USAGE_MONTHS, month))
    return bool(found and (found.get("status") or {}).get("closedAt"))


def _open(period: Period, days: Sequence[Day], now: float) -> str:
    """What may still change, in a line."""
    until = shared_until(days)
    if period.month and not until and now >= end_of_month(period.month):
        return f"Nothing was charged in {period.month}."
    so_far = f" Used until {until} is in it." if until else " Nothing is charged yet; that is done every ten minutes."
    if not period.month:
        return f"Whole days (UTC), from {period.first} on.{so_far}"
    return f"{period.month} is open: figures may change.{so_far} `fairway usage --close {period.month}` closes it"


def _exact(amount: int, unit: int) -> str:
    """As a decimal number, without rounding: 1234.5 of 1234500 thousandths."""
    whole, part = divmod(abs(amount), unit)
    digits = str(part).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{'-' if amount < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def _csv(found: Usage, by: str) -> str:
    text, pools = io.StringIO(), {one.name: one for one in found.pools} if by == "pool" else {}
    lines, more = csv.writer(text, lineterminator="\n"), MORE if pools else ()
    named = (*(f"{name}_gpu_seconds" for name in SHOWN[:-1]), "cost", *(f"{name}_gpu_seconds" for name in more))
    lines.writerow([by, "late_of", *named])
    for one in found.lines:
        pool = None if one.late else pools.get(one.name)
        parts = [_exact(getattr(pool, name), 1000) if pool else "" for name in more]
        lines.writerow([one.name, one.late, *_cells(one.figures), *parts])
    return text.getvalue()


def _cells(figures: Figures) -> list[str]:
    return [_exact(getattr(figures, name), 1_000_000 if name == "cost" else 1000) for name in SHOWN]


def _print(found: Usage, by: str) -> None:
    has_cost = any(one.figures.cost for one in found.lines)
    head = [by.upper(), *(HEAD if has_cost else HEAD[:-1])]
    called = _called({one.name for one in found.lines}) if by == "user" else {}
    rows = [[f"{'  ' * one.depth}{called.get(one.name, one.name)}" + (f" (late, of {one.late})" if one.late else ""),
             *_line(one.figures)] for one in found.lines]  # fmt: skip
    if len(rows) > 1:
        rows.append(["TOTAL", *_line(found.total)])
    empty, less = "no GPU time is charged", ("TOOK", "STARTING", "LOST")
    print_table(head, [row[: len(head)] for row in rows], empty=empty, less=less)
    if found.pools and by in ("queue", "pool"):
        click.echo()
        print_table(POOLS, [[one.name, *(hours(getattr(one, name.lower())) for name in POOLS[1:])]
                            for one in found.pools])  # fmt: skip


def _called(users: set[str]) -> dict[str, str]:
    """By whole name the one that other lists print, its last part; of users who share that, the whole name."""
    parts = {user: user.rpartition(":")[2] for user in users}
    shared = Counter(parts.values())
    return {user: part if part and shared[part] == 1 else user for user, part in parts.items()}


def _line(one: Figures) -> list[str]:
    return [*(hours(getattr(one, name)) for name in ("allocated", "starting", "busy", "idle", "unknown", "lost",
                                                      "took")), f"{one.cost / 1_000_000:,.2f}"]  # fmt: skip


def _plain(found: Usage, period: Period, days: Sequence[Day]) -> dict[str, object]:
    lines = [{"name": one.name, "lateOf": one.late or None, "depth": one.depth, **plain(one.figures)}
             for one in found.lines]  # fmt: skip
    until = shared_until(days) or None
    return {"from": period.first, "to": period.last, "until": until, "unit": "GPU-seconds", "lines": lines,
            "total": plain(found.total), "pools": [plain(one) for one in found.pools]}  # fmt: skip
