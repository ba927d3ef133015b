"""Sets of completion indexes, as they are written and as users may write them."""

import pytest

from fairway.api.indexes import MOST, TRIALS, failed_trials, parse_indexes, rank_in, runs_of, show_indexes


@pytest.mark.parametrize("text", ["", "0", "0,2-4", "1-3,7,9-12"])
def test_a_set_is_read_as_it_is_written(text: str) -> None:
    assert show_indexes(parse_indexes(text)) == text


@pytest.mark.parametrize("text", ["$(A)", "-1", "a-b", "3-1", ",,", "9" * 5000, "1.5", "\u0664"])
def test_what_is_no_set_is_none(text: str) -> None:
    assert parse_indexes(text) == frozenset()


def test_a_set_holds_no_more_indexes_than_a_job_may_have() -> None:
    assert len(parse_indexes("0-999999999")) == MOST
    assert parse_indexes("5,900000000-900000009") == {5}


@pytest.mark.parametrize(
    ("text", "index", "number"),
    [("10-12", "1", "11"), ("11,20-22", "2", "21"), ("1-9:2", "4", "9"), ("10-12", "3", "3"), ("x", "2", "2"),
     ("", "", "")],
)  # fmt: skip
def test_a_trial_goes_by_its_number_and_any_other_pod_by_its_index(text: str, index: str, number: str) -> None:
    assert rank_in({TRIALS: text, "batch.kubernetes.io/job-completion-index": index}) == number


@pytest.mark.parametrize("text", ["", "5-3", "a", "1,,2", "1-2:0", "-1"])
def test_numbers_of_trials_that_cannot_be_read_are_none(text: str) -> None:
    assert runs_of(text) == ()


def test_a_trial_has_failed_that_no_retry_of_it_has_mended() -> None:
    ends = [("3", "Failed"), ("3", "Succeeded"), ("4", "Failed"), ("4", "Failed"), ("5", "Succeeded")]
    assert failed_trials(ends) == "1 of 3 trials failed (4)"
    assert failed_trials([(str(at), "Failed") for at in range(40)]) == "40 of 40 trials failed (0-9 and 30 more)"
