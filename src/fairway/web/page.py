"""What is sent to a browser: a page as a frame and lists of rows, and what changed between two of them.

A view gives a `Page`. Its frame is HTML with empty elements for the lists; a list maps keys to rows, in their order.
`difference` names only the rows that changed, so an open page costs what happens in it. Templates escape everything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fairway.api.figures import span
from fairway.api.quantities import time_text
from fairway.api.usage import hours

from .access import Sight

CODE, LINK = re.compile(r"`([^`]+)`"), re.compile(r"\[([^]]+)\]\([^)]+\)")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
WINDOW = 200
"""Rows of a list that are sent at once."""


@dataclass(frozen=True, slots=True)
class Page:
    """`values`: what each row was drawn from; not sent."""

    title: str
    frame: str
    lists: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def whole(self) -> dict[str, Any]:
        lists = {name: {"order": list(rows), "rows": dict(rows)} for name, rows in self.lists.items()}
        return {"title": self.title, "frame": self.frame, "lists": lists}


EMPTY = Page("", "")


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for: the path without its first slash, and the query. `before`: the page as it was drawn last."""

    path: str
    query: Mapping[str, str]
    sight: Sight
    now: float
    before: Page = EMPTY

    def get(self, name: str) -> str:
        return self.query.get(name, "").strip()

    def link(self, **change: object) -> str:
        """This address with another query; what is empty is left out."""
        query = {name: str(text) for name, text in (dict(self.query) | change).items() if text not in ("", None)}
        return f"/{self.path}" + (f"?{urlencode(query)}" if query else "")


def difference(old: Page, new: Page) -> dict[str, Any] | None:
    """What makes the new page of the old one; None where they are equal."""
    lists = {}
    for name, rows in new.lists.items():
        before = old.lists.get(name, {})
        changed = {key: text for key, text in rows.items() if before.get(key) != text}
        moved = {"order": list(rows)} if list(before) != list(rows) else {}
        if changed or moved:
            lists[name] = {"rows": changed} | moved
    frame = {"frame": new.frame} if new.frame != old.frame else {}
    if not lists and not frame:
        return None
    return {"title": new.title, "lists": lists} | frame


def drawn(
    view: str, title: str, facts: Mapping[str, Any], values: Mapping[str, Mapping[str, Any]], before: Page = EMPTY
) -> Page:
    """A page of the templates of a view: VIEW.html is the frame, the macro `row` of VIEW_row.html draws each row. A row
    whose value is as `before` is not drawn again."""
    lists = {}
    for name, rows in values.items():
        row = _templates().get_template(f"{view}_row.html").module.row  # type: ignore[attr-defined]
        texts, known = before.lists.get(name, {}), before.values.get(name, {})
        lists[name] = {
            key: texts[key] if key in texts and known[key] == it else " ".join(str(row(it)).split())
            for key, it in rows.items()
        }
    return Page(title, fragment(view, facts), lists, values)


def fragment(template: str, facts: Mapping[str, Any]) -> str:
    """A part of a page that is fetched by itself; `shell` is the page before anything is known."""
    return _templates().get_template(f"{template}.html").render(**facts)


def window(ask: Ask, items: list[Any], most: int = WINDOW) -> dict[str, Any]:
    """A part of many rows, and the links to the parts beside it."""
    text = ask.get("from")
    asked = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
    start = min(asked, max(0, len(items) - 1)) // most * most
    end = min(start + most, len(items))
    return {
        "items": items[start:end], "total": len(items), "first": start + 1 if items else 0, "last": end,
        "back": ask.link(**{"from": start - most or ""}) if start else "",
        "next": ask.link(**{"from": end}) if end < len(items) else "",
    }  # fmt: skip


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("fairway.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"span": span, "number": number, "moment": time_text, "timed": timed, "hours": hours,
                      "marked": marked, "ranges": ranges, "counted": counted}  # fmt: skip
    return made


def number(value: float) -> str:
    return f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order, those that follow each other joined: 0–2, 4, 6–7."""
    runs = [[it for _, it in run] for _, run in groupby(enumerate(numbers), lambda at: at[1] - at[0])]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def counted(value: float, word: str) -> str:
    return f"{number(value)} {word}{'' if value == 1 else 's'}"


def timed(text: str) -> Markup:
    """A sentence whose timestamps a browser writes in its local time."""
    return Markup(STAMP.sub(r'<time datetime="\g<0>">\g<0></time>', str(escape(text))))


def marked(text: str) -> Markup:
    """A paragraph of Markdown: its code as such, of its links the words."""
    return Markup(CODE.sub(r"<code>\1</code>", LINK.sub(r"\1", str(escape(text)))))
