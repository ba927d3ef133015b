"""What names mean."""

import pytest

from fairway.api.names import ranks


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("w-0 w-1 w-10 w-2", [0, 1, 10, 2]),
        ("b-1 a-0", [1, 0]),
        ("left right", [0, 1]),
        ("w-0 v-0", [1, 0]),
        ("w-11 w-12", [0, 1]),
        ("w-1 other", [1, 0]),
    ],
)
def test_the_rank_is_the_number_a_name_ends_in_where_that_tells_all_apart_else_its_place(
    names: str, told: list[int]
) -> None:
    assert ranks(names.split(), "11") == dict(zip(names.split(), told))


def test_a_size_that_is_no_number_is_that_of_those_who_are_there() -> None:
    assert ranks(["w-1", "w-0"], "many") == {"w-0": 0, "w-1": 1}
