"""Sets of completion indexes, as they are written and as users may write them."""

import pytest

from fairway.api.indexes import MOST, parse_indexes, show_indexes


@pytest.mark.parametrize("text", ["", "0", "0,2-4", "1-3,7,9-12"])
def test_a_set_is_read_as_it_is_written(text: str) -> None:
    assert show_indexes(parse_indexes(text)) == text


@pytest.mark.parametrize("text", ["$(A)", "-1", "a-b", "3-1", ",,", "9" * 5000, "1.5", "\u0664"])
def test_what_is_no_set_is_none(text: str) -> None:
    assert parse_indexes(text) == frozenset()


def test_a_set_holds_no_more_indexes_than_a_job_may_have() -> None:
    assert len(parse_indexes("0-999999999")) == MOST
    assert parse_indexes("5,900000000-900000009") == {5}
