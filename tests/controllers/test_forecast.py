"""How far off forecasts were, as a queue remembers it."""

from math import inf

from msgspec.structs import replace

from fairway.api.quantities import time
from fairway.api.types import Forecast, ForecastAccuracy, WorkloadObject, WorkloadStatus
from fairway.controllers.forecast import MEMORY, accuracy, moved_on, written
from fairway.outlook import Forecast as Of
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


def test_a_forecast_whose_first_time_has_passed_moves_on_to_its_second_and_then_to_none() -> None:
    said = WorkloadObject(status=WorkloadStatus(forecast=Forecast("2026-11-21T14:20:00Z", "2026-11-21T16:05:00Z")))
    assert moved_on(said, time("2026-11-21T14:19:00Z")) == said.status
    later = moved_on(said, time("2026-11-21T14:21:00Z"))
    assert later.forecast == Forecast("2026-11-21T16:05:00Z", "2026-11-21T16:05:00Z", rough=True)
    assert moved_on(replace(said, status=later), time("2026-11-21T16:06:00Z")).forecast is None


def test_a_forecast_is_told_to_the_second() -> None:
    assert written(Of(p50=1_795_000_000.2, p90=inf)) == Forecast("2026-11-18T11:06:41Z", "")
