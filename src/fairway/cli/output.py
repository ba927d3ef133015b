"""How answers are printed: tables for people, JSON and YAML for programs.

A table is plain text in columns, as kubectl prints; nothing is left out or cut when the output is no terminal.
"""

import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

Row = Sequence[object]
MOMENT, NEAR_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), 3600.0
MOST_ROWS = 40
GAP, LEAST = 3, 16
"""Blanks between columns; the least width of the last one."""


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    forms = click.Choice(["table", "json", "yaml"])
    return click.option("-o", "--output", type=forms, default="table", show_default=True, help="The format.")(command)


def listing_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The formats of a list."""
    forms = click.Choice(["table", "wide", "name", "json", "yaml"])
    return click.option("-o", "--output", type=forms, default="table", show_default=True,
                        help="The format; wide leaves out no column, name prints names only.")(command)  # fmt: skip


def is_agreed(question: str) -> bool:
    """The answer of a user on a terminal. Ctrl-C ends the command at once: asyncio would only take note of it, and so
    would Python where it comes just before the answer is read."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def print_names(things: Iterable[Mapping[str, Any]]) -> None:
    click.echo("".join(f"{it['metadata']['name']}\n" for it in things), nl=False)


def show(output: str, value: Any, table: Callable[[], None]) -> None:
    """`value` as JSON or YAML, or what `table` prints."""
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    elif output == "yaml":
        import msgspec
        import yaml

        plain = msgspec.json.decode(msgspec.json.encode(value))
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        table()


def print_table(head: Sequence[str], rows: Sequence[Row], *, empty: str = "", less: Sequence[str] = ()) -> None:
    """Rows under their heads; for none the sentence `empty`, on standard error."""
    if empty and not rows:
        click.echo(empty, err=True)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    first, *others = table(head, rows, width=width, less=less)
    click.echo("\n".join([click.style(first, bold=True), *others]))


def print_some(head: Sequence[str], rows: Sequence[Row]) -> None:
    """The last rows of a table of which there may be thousands, and how many are left out."""
    print_table(head, rows[-MOST_ROWS:])
    if len(rows) > MOST_ROWS:
        click.echo(f"the last {MOST_ROWS} of {len(rows):,}; -o json lists all", err=True)


def table(head: Sequence[str], rows: Sequence[Row], *, width: int = 0, less: Sequence[str] = ()) -> list[str]:
    """The lines of a table. With a `width` no line is longer: first the columns named in `less` are left out in turn,
    then the last column is cut, but WHY is wrapped inside its own column."""
    cells = [list(head), *(["" if cell is None else plain(str(cell)) for cell in row] for row in rows)]
    cells = [row + [""] * (len(head) - len(row)) for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells)]
    kept = list(range(len(head)))
    for name in less:
        if width and sum(widths[at] + GAP for at in kept[:-1]) + LEAST > width and name in head:
            kept = [at for at in kept if head[at] != name]
    used = sum(widths[at] + GAP for at in kept[:-1])
    room = max(LEAST, width - used) if width else 0
    lines = []
    for row in cells:
        front = "".join(row[at].ljust(widths[at] + GAP) for at in kept[:-1])
        last = _wrapped(row[kept[-1]], room, is_cut=head[kept[-1]] != "WHY")
        lines += [((" " * used if at else front) + part).rstrip() for at, part in enumerate(last)]
    return [line if not width or len(line) <= width else line[: width - 1] + "…" for line in lines]


def plain(text: str) -> str:
    """With what steers a terminal written out: another user may have named it."""
    return text if text.isprintable() else "".join(
        it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)  # fmt: skip


def _wrapped(text: str, room: int, *, is_cut: bool) -> list[str]:
    if not room or len(text) <= room:
        return [text]
    return [text[: room - 1] + "…"] if is_cut else textwrap.wrap(text, room)


def no_leaf(queue: str, below: Sequence[str]) -> str:
    return f"--queue: {queue} holds no workloads, only the queues below it: {', '.join(below)}"


def fault(queue: Mapping[str, Any]) -> str:
    """Why its parents lead to no root; "" where they do."""
    told = (queue.get("status") or {}).get("conditions") or ()
    why = next((it for it in told if it["type"] == "Valid" and it["status"] == "False"), None)
    return f"queue {queue['metadata']['name']} is not valid, nothing in it starts: {why['message']}" if why else ""


def near(word: str, names: Any) -> str:
    """What there is instead, the likeliest first."""
    from difflib import get_close_matches

    likely = get_close_matches(word, sorted(names), n=1)
    meant = f"; did you mean {likely[0]}?" if likely else ";"
    return f"{meant} there are: {', '.join(sorted(names)) or 'none'}"


def span(seconds: float) -> str:
    """A duration in its largest one or two units, as kubectl prints ages: 45s, 12m, 3h20m, 5d."""
    whole = max(0, int(seconds))
    if whole < 7200:
        return f"{whole}s" if whole < 120 else f"{whole // 60}m"
    minutes = f"{whole % 3600 // 60}m" if whole % 3600 >= 60 else ""
    return f"{whole // 3600}h{minutes}" if whole < 172_800 else f"{whole // 86_400}d"


def lasted(seconds: float) -> str:
    """How long something took, below two seconds in tenths, of which it took one at least: 0.3s, 45s, 12m."""
    return f"{max(1, round(seconds * 10)) / 10:g}s" if seconds < 2 else span(seconds)


def age(stamp: str | None, now: float) -> str:
    return span(now - seconds(stamp)) if stamp else ""


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def start(forecast: dict[str, Any] | None, now: float) -> str:
    """A forecast: `14:20–16:05`, with `~` where it is rough, open where its end is not in sight. Once the first time
    has passed it is `by 16:05`, once both have it is none: it was wrong, and a new one is on its way."""
    times = [seconds(text) for name in ("p50", "p90") if (text := (forecast or {}).get(name))]
    if not forecast or not times or max(times) < now - FRESH_SECONDS:
        return ""
    early, late = [*(clock_time(max(it, now), now) for it in times), "…"][:2]
    if times[0] < now - FRESH_SECONDS:
        return f"{'~' if forecast.get('rough') else ''}by {late}"
    return f"{'~' if forecast.get('rough') else ''}{early}{'' if early == late else '–' + late}"


FAR_DAYS, LAST_DAY = 300, datetime(9999, 12, 30).timestamp()
FRESH_SECONDS = 60.0
"""How old a forecast of `now` may be: it is made once a minute at most."""


def clock_time(moment: str | float | None, now: float) -> str:
    """A moment, as a timestamp or in seconds since the epoch, in local time: 14:20 today, else with the day; the day
    alone, with its year, where it is far."""
    if not moment:
        return ""
    at, today = (_local(it) for it in (seconds(moment) if isinstance(moment, str) else moment, now))
    near = "%H:%M" if at.date() == today.date() else "%b %d %H:%M"
    return at.strftime(near if abs(at - today).days < FAR_DAYS else "%Y-%m-%d")


def _local(moment: float) -> datetime:
    """What is beyond the calendar is its last day, what is before the epoch its first."""
    return datetime.fromtimestamp(min(max(moment, 86400.0), LAST_DAY))


def in_local_time(message: str, now: float, *, how_soon: bool = False) -> str:
    """A message with its moments as tables show them; of those within an hour to the second, and `how_soon`."""

    def told(found: re.Match[str]) -> str:
        at = seconds(found[0])
        if abs(at - now) >= NEAR_SECONDS:
            return clock_time(at, now)
        return f"{_local(at):%H:%M:%S}" + f", in {span(at - now)}" * (how_soon and at > now)

    return MOMENT.sub(told, plain(message))


def moment_of_day(stamp: str) -> str:
    """A moment in the past, in local time, to the second."""
    return _local(seconds(stamp)).strftime("%H:%M:%S")


def size(count: int) -> str:
    """Bytes in their largest whole unit: 812B, 12Ki, 38Mi."""
    for unit in ("B", "Ki", "Mi"):
        if count < 1 << 10:
            return f"{count}{unit}"
        count >>= 10
    return f"{count}Gi"
