"""Kubernetes quantities, Go durations and RFC 3339 times as people write them → exact numbers, seconds, and back.

What cannot be read raises `Malformed`, which `within` gives its field path on the way out; the path is put together
only when something is wrong. This module imports nothing heavy, so that every command may use it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Rest = TypeVarTuple("Rest")

LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()

_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ei": 1 << 60, "Pi": 1 << 50, "Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10}
_NUMBER = r"(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})"
_QUANTITY = re.compile(rf"([+-]?){_NUMBER}(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?\d{{1,3}}))", re.A)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(rf"{_NUMBER}(ns|us|µs|ms|s|m|h|d)", re.A)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.A)


class Malformed(ValueError):
    """A value that cannot be read: the path of its field, what was found and what is allowed."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field.removesuffix(':')}: {message}" if field else message)
        self.field, self.message = field, message


def within(path: str, read: Callable[[*Rest], T], *values: *Rest) -> T:
    """`read(*values)`, a complaint of which is told under `path`; one that ends in a colon names the object."""
    try:
        return read(*values)
    except Malformed as error:
        joint = "" if not (path and error.field) or error.field[0] == "[" else " " if path[-1] == ":" else "."
        raise Malformed(error.message, f"{path}{joint}{error.field}") from None


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction:
    """The number that a quantity says, without rounding."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise Malformed(f"found {shown(text)}; a quantity such as 500m, 2, 64Gi or 1e3 is allowed")
    sign, digits, suffix, exponent = found.groups()
    if sign == "-" and Fraction(digits):
        raise Malformed(f"found {shown(text)}; a quantity that is not negative is allowed")
    if suffix in BINARY:
        return Fraction(digits) * BINARY[suffix]
    return Fraction(f"{digits}e{exponent or _POWERS[suffix or '']}")


def shown(value: object) -> str:
    """A value found, as an error says it: quoted, and not too long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def duration(value: str) -> float:
    """Seconds of a Go duration; `7d` too."""
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        if value == "0":
            return 0.0
        raise Malformed(f"found {shown(value)}; a duration such as 90s, 10m, 1h30m or 7d is allowed")
    return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def duration_text(seconds: float) -> str:
    """Seconds as the shortest Go duration, in whole seconds."""
    hours, rest = divmod(round(seconds), 3600)
    parts = ((hours, "h"), (rest // 60, "m"), (rest % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def shorter(limit: str, deadline: int) -> str:
    """A time limit as it is said ("": none); that of `deadline` seconds, if any, where that is the shorter."""
    try:
        is_said = bool(limit) and duration(limit) <= deadline
    except Malformed:
        is_said = True  # its reader complains
    return limit if is_said or deadline <= 0 else duration_text(deadline)


@lru_cache(maxsize=4096)
def time(value: str) -> float:
    """Seconds since the epoch of an RFC 3339 time."""
    try:
        if not _TIME.fullmatch(value):
            raise ValueError
        return datetime.fromisoformat(value.upper()).timestamp()
    except ValueError:
        raise Malformed(f"found {shown(value)}; a time such as 2026-11-21T14:20:00Z is allowed") from None


@lru_cache(maxsize=4096)
def time_text(moment: float) -> str:
    """An RFC 3339 time; a part of a second shows only where there is one."""
    text = datetime.fromtimestamp(max(0.0, min(moment, LATEST)), UTC).isoformat(timespec="microseconds")
    return text[:-6].rstrip("0").rstrip(".") + "Z"
