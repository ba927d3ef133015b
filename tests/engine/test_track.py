"""What came of forecasts: what is kept, when it is learned from, and what for."""

import numpy as np
import pytest
from builders import job

from fairway.outlook import Forecast
from fairway.outlook.calibration import SOON, Calibration, Outcome, horizon, learned, stretched


def test_how_far_ahead_it_was_told_is_a_word() -> None:
    assert [horizon(seconds) for seconds in (-5, 600, 601, 3600, 86_400, 1e9)] == [
        "10m", "10m", "1h", "1h", "1d", "longer",
    ]  # fmt: skip


def test_the_first_from_each_distance_is_what_counts() -> None:
    track, line = Calibration(), [job("a")]
    for now, p50 in ((0.0, 5_000.0), (1_000.0, 4_500.0), (1_100.0, 5_000.0)):
        track.tell(now, line, {"ns/a": Forecast(p50, p50 + 100)})
    assert track.started("ns/a", 4_600.0) == [Outcome("6h", 400.0, True), Outcome("1h", 100.0, True)]
    assert track.started("ns/a", 4_700.0) == [] and not track


def test_who_waits_beyond_its_p90_is_late_once() -> None:
    track = Calibration()
    track.tell(0.0, [job("a")], {"ns/a": Forecast(700.0, 900.0)})
    assert track.waits_on("ns/a", 900.0) == track.waits_on("ns/b", 900.0) == []
    late, again = track.waits_on("ns/a", 901.0), track.waits_on("ns/a", 902.0)
    assert (late, again) == ([Outcome("1h", None, False)], [])
    (end,) = track.started("ns/a", 1_000.0)
    assert end == Outcome("1h", 300.0, False, was_learned=True)
    assert learned(1.0, late) == learned(1.0, [*late, end]) == stretched(1.0, is_late=True)


def test_who_starts_at_once_was_in_time() -> None:
    track = Calibration()
    track.tell(0.0, [job("a")], {"ns/a": Forecast(0.0, 0.0)})
    assert [one.is_covered for one in track.started("ns/a", SOON)] == [True]


def test_what_was_told_to_many_of_a_queue_at_once_counts_as_one() -> None:
    track, line = Calibration(), [*(job(f"j{n}") for n in range(8)), job("b", queue="other")]
    track.tell(0.0, line, {one.key: Forecast(60.0, 90.0) for one in line})
    outcomes = [one for each in line[:8] for one in track.started(each.key, 100.0)]
    assert [one.part for one in outcomes] == [1 / 8] * 8
    assert learned(1.0, outcomes) == pytest.approx(stretched(1.0, is_late=True))
    assert [one.part for one in track.started(line[8].key, 100.0)] == [1.0]


def test_who_will_not_start_is_forgotten() -> None:
    track = Calibration()
    track.tell(0.0, [job("a"), job("b")], {"ns/a": Forecast(60.0, 90.0)})
    assert list(track) == ["ns/a"]
    track.forget("ns/a")
    assert not track and track.waits_on("ns/a", 100.0) == []


def test_a_stretch_settles_where_nine_in_ten_start_by_p90() -> None:
    waits, stretch, in_time = np.random.default_rng(7).exponential(100.0, 4_000), 1.0, 0
    for wait in waits:
        is_late = bool(wait > 30.0 * stretch)  # the runs said 30 s
        in_time += not is_late
        stretch = stretched(stretch, is_late=is_late)
    assert in_time / len(waits) == pytest.approx(0.9, abs=0.02)
