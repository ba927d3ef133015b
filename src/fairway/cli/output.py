"""How answers are printed: tables for people, JSON and YAML for programs.

A table is plain text in columns, as kubectl prints; nothing is cut when the output is no terminal.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

Row = Sequence[object]


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    forms = click.Choice(["table", "json", "yaml"])
    return click.option("-o", "--output", type=forms, default="table", show_default=True, help="The format.")(command)


def show(output: str, value: Any, table: Callable[[], None]) -> None:
    """`value` as JSON or YAML, or what `table` prints."""
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        table()


def print_table(head: Sequence[str], rows: Sequence[Row], *, empty: str = "") -> None:
    """Rows under their heads; for none the word `empty`, to whoever looks on."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for name in head:
        table.add_column(name, no_wrap=name != "WHY", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    if empty and not rows:
        click.echo(empty, err=True)
    else:
        width = None if sys.stdout.isatty() else 10_000
        Console(highlight=False, markup=False, width=width).print(table)


def span(seconds: float) -> str:
    """A duration in its largest one or two units, as kubectl prints ages: 45s, 12m, 3h20m, 5d."""
    whole = max(0, int(seconds))
    if whole < 7200:
        return f"{whole}s" if whole < 120 else f"{whole // 60}m"
    minutes = f"{whole % 3600 // 60}m" if whole % 3600 >= 60 else ""
    return f"{whole // 3600}h{minutes}" if whole < 172_800 else f"{whole // 86_400}d"


def age(stamp: str | None, now: float) -> str:
    return span(now - seconds(stamp)) if stamp else ""


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def start(forecast: dict[str, Any] | None, now: float) -> str:
    """A forecast: `14:20–16:05`, with `~` where it is rough, open where its end is not in sight."""
    if not forecast:
        return ""
    early, late = clock_time(forecast.get("p50"), now), clock_time(forecast.get("p90"), now)
    return f"{'~' if forecast.get('rough') else ''}{early}{'' if early == late else '–' + (late or '…')}"


def clock_time(stamp: str | None, now: float) -> str:
    """A moment to come, in local time: 14:20 today, else with the day."""
    if not stamp:
        return ""
    moment, today = datetime.fromisoformat(stamp).astimezone(), datetime.fromtimestamp(now).astimezone()
    return moment.strftime("%H:%M" if moment.date() == today.date() else "%b %d %H:%M")
