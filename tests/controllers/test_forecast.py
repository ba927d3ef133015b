"""How far off forecasts were, as a queue remembers it."""

from fairway.api.types import ForecastAccuracy
from fairway.controllers.forecast import MEMORY, accuracy
from fairway.outlook.calibration import Outcome


def test_an_accuracy_is_the_mean_of_what_came_nearest_first() -> None:
    outcomes = [Outcome("1d", 50.0, True), Outcome("10m", 10.0, True), Outcome("10m", 30.0, False)]
    assert accuracy((), outcomes) == (ForecastAccuracy("10m", 2, 20.0, 0.5), ForecastAccuracy("1d", 1, 50.0, 1.0))


def test_outcomes_add_to_what_is_remembered() -> None:
    assert accuracy((ForecastAccuracy("1h", 3, 40.0, 1.0),), [Outcome("1h", 0.0, False)]) == (
        ForecastAccuracy("1h", 4, 30.0, 0.75),
    )


def test_what_is_long_past_fades() -> None:
    old = (ForecastAccuracy("1h", 10_000, 100.0, 0.0),)
    (one,) = accuracy(old, [Outcome("1h", 0.0, True)] * 4 * MEMORY)
    assert one.starts == 10_000 + 4 * MEMORY and one.error < 3.0 and one.coverage > 0.97


def test_an_accuracy_waits_for_the_start() -> None:
    assert accuracy((), [Outcome("1h", None, False)]) == ()
    told = [Outcome("1h", None, False), Outcome("1h", 80.0, False, was_learned=True)]
    assert accuracy((), told) == (ForecastAccuracy("1h", 1, 80.0, 0.0),)
