"""How many replicas an autoscaler wants, by what pods use."""

from fractions import Fraction

import pytest

from fairway.embedded.autoscale.wanted import Use, bounded, wanted


def uses(*percents: int | None) -> list[Use]:
    """Of pods that should use 100 each."""
    return [Use(None if it is None else Fraction(it), Fraction(100)) for it in percents]


@pytest.mark.parametrize(("seen", "replicas"), [
    (uses(100, 100), 2), (uses(109, 109), 2), (uses(150, 150), 3), (uses(200), 2), (uses(30, 30, 30), 1),
    (uses(91, 92), 2), (uses(None, None), 2), ([], 3),
], ids=str)
def test_the_number_follows_from_the_use(seen: list[Use], replicas: int) -> None:
    assert wanted(len(seen) or 3, seen) == replicas


def test_pods_that_are_not_measured_neither_raise_nor_lower_the_number() -> None:
    assert wanted(2, uses(180, None)) == 2
    assert wanted(2, uses(300, None)) == 3
    assert wanted(3, uses(20, None, None)) == 3


def test_wishes_keep_within_bounds_and_one_step() -> None:
    assert bounded(2, [3, 5], least=1, most=4) == 4
    assert bounded(1, [100], least=1, most=100) == 5
    assert bounded(10, [100], least=1, most=100) == 20
    assert bounded(2, [1], least=2, most=4) == 2
    assert bounded(9, [], least=1, most=4) == 4
