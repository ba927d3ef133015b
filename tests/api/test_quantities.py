"""Quantities, durations and times: read as Kubernetes reads them, written as it writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import quantities
from fairway.api.quantities import Malformed, duration, duration_text, format, parse, share, time, time_text, within
from fairway.engine.model import Share


@pytest.mark.parametrize(
    "text, resource, amount",
    [
        ("1", "cpu", 1000),
        ("500m", "cpu", 500),
        ("0.1", "cpu", 100),
        ("1.5", "cpu", 1500),
        (".5", "cpu", 500),
        ("100u", "cpu", 1),
        ("1n", "cpu", 1),
        ("0", "cpu", 0),
        ("0.5", "nvidia.com/gpu", 500),
        (8, "nvidia.com/gpu", 8000),
        ("64Gi", "memory", 64 * 2**30),
        ("1Ki", "memory", 1024),
        ("1.5Gi", "memory", 3 * 2**29),
        ("1G", "memory", 10**9),
        ("1e3", "memory", 1000),
        ("1E3", "memory", 1000),
        ("12e-1", "memory", 2),
        ("100m", "memory", 1),
        ("+5", "pods", 5),
        (1, "cpu", 1000),
        (0.25, "cpu", 250),
        ("1Ei", "memory", quantities.LARGEST),
        ("1e99", "memory", quantities.LARGEST),
    ],
)
def test_a_quantity_becomes_whole_base_units(text, resource, amount):
    assert parse(text, resource) == amount


@pytest.mark.parametrize(
    "text", ["", " 1", "1 Gi", "x", "1gi", "1e", "--1", "1.2.3", "1e1000", "٣", "NaN", "inf", "1_000"]
)
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(Malformed, match="a quantity such as"):
        parse(text)


def test_a_negative_quantity_is_refused():
    with pytest.raises(Malformed, match="found '-4'; a quantity that is not negative is allowed"):
        parse("-4", "cpu")
    with pytest.raises(Malformed, match="not negative"):
        parse(-1, "cpu")


@pytest.mark.parametrize(
    "amount, resource, text",
    [
        (8000, "nvidia.com/gpu", "8"),
        (500, "nvidia.com/gpu", "500m"),
        (1500, "cpu", "1500m"),
        (0, "cpu", "0"),
        (64 * 2**30, "memory", "64Gi"),
        (1536 * 2**20, "memory", "1536Mi"),
        (2**50, "memory", "1Pi"),
        (1000, "memory", "1000"),
        (7, "nvidia.com/mig-1g.5gb", "7"),
        (0, "memory", "0"),
        (2048, "pods", "2048"),
    ],
)
def test_an_amount_is_written_as_kubernetes_writes_it(amount, resource, text):
    assert format(amount, resource) == text


@given(
    st.integers(0, quantities.LARGEST), st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi"])
)
def test_what_is_written_reads_the_same(amount, resource):
    assert parse(format(amount, resource), resource) == amount


@given(st.one_of(st.text(max_size=20), st.integers(), st.floats()))
def test_any_value_is_read_or_refused(value):
    try:
        assert 0 <= parse(value, "memory") <= quantities.LARGEST
    except Malformed as refused:
        assert "found" in refused.message


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("7d", 604800),
        ("1d12h", 129600),
        ("1.5h", 5400),
        ("0", 0),
        ("0s", 0),
        ("250ms", 0.25),
        ("1us", 1e-6),
    ],
)
def test_a_duration_is_read(text, seconds):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "1 h", "-5s", "h", "1y", "1h30", "s5"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(Malformed, match="a duration such as"):
        duration(text)


@given(st.integers(0, 10**9))
def test_a_duration_that_is_written_reads_the_same(seconds):
    assert duration(duration_text(seconds)) == seconds


def test_times_are_read_with_zone_and_part_of_a_second():
    assert time("2026-11-21T14:20:00Z") == time("2026-11-21T16:20:00+02:00") == 1795270800
    assert time("2026-11-21t14:20:00.25z") == 1795270800.25


@pytest.mark.parametrize(
    "text", ["", "2026-11-21", "2026-13-01T00:00:00Z", "14:20", "2026-11-21T14:20:00", "now", "²026-11-21T14:20:00Z"]
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(Malformed, match="a time such as"):
        time(text)


@given(st.integers(0, 4 * 10**9))
def test_a_time_that_is_written_reads_the_same(moment):
    assert time(time_text(moment)) == moment
    assert len(time_text(moment)) == len("2026-11-21T14:20:00Z")


def test_a_time_beyond_the_calendar_is_the_last_there_is():
    assert time_text(1e18) == "9999-12-31T23:59:59Z"


def test_a_share_is_absolute_or_a_part_of_capacity():
    assert share("8", "nvidia.com/gpu") == Share(8000)
    assert share("25%", "cpu") == Share(250, is_relative=True)
    assert share("12.5%", "cpu") == Share(125, is_relative=True)
    with pytest.raises(Malformed):
        share("-5%", "cpu")


def test_a_complaint_tells_the_whole_path():
    with pytest.raises(Malformed) as told:
        within("Queue q:", within, "spec", within, "[0]", parse, "x")
    assert str(told.value) == "Queue q: spec[0]: found 'x'; a quantity such as 500m, 2, 64Gi or 1e3 is allowed"
