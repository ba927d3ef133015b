"""Quantities as Kubernetes shows them: `2` is "2", `1000m` is "1", `0.5Gi` is "512Mi", `1e4` is "10e3".

The unit stays of its sort: binary (Ki), decimal (k, m) or an exponent. The number is the smallest whole one, so two
texts that mean the same in one sort of unit are shown alike.
"""

from fractions import Fraction
from functools import lru_cache

from fairway.api.scalars import BINARY, Malformed, exact, shown

DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
ALLOWED = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Malformed for what is no quantity. One below zero stays as it is: whether it is legal is asked elsewhere."""
    try:
        value = exact(text.removeprefix("-"))
    except Malformed as error:
        raise Malformed(f"found {shown(text)}; {ALLOWED}") from error
    if text[0] == "-" and value:
        return text
    if text[-1] == "i" and value.denominator == 1 and value >= 1024:
        size = next((size for size in BINARY.values() if value % size == 0), 1)
        unit = next((unit for unit, each in BINARY.items() if each == size), "")
        return f"{value // size}{unit}"
    has_exponent = text[-1].isdecimal() and "e" in text.lower()
    number, power = _whole(value)
    return f"{number}{f'e{power}' * bool(power) if has_exponent else DECIMAL[power]}"


def _whole(value: Fraction) -> tuple[int, int]:
    """The smallest whole number and the power of ten, by steps of a thousand, that make the value; a part of a
    billionth is rounded up."""
    nanos, power = -int(-value * 10**9 // 1), -9
    while power < 18 and nanos % 1000 == 0 and nanos:
        nanos, power = nanos // 1000, power + 3
    return (nanos, power) if nanos else (0, 0)
