"""When a GPU counts as busy, and when as idle."""

from fairway.node.measure import LOOKS, Looks, Use


def use(percent: int, *pids: int) -> Use:
    return Use(0, percent, 0, 80 << 30, pids)


def test_a_device_without_a_process_is_idle() -> None:
    looks = Looks()
    assert looks.said([use(0)]) == "0=idle"
    assert looks.said([use(70)]) == "0=idle"


def test_a_process_that_computes_makes_it_busy_and_a_short_rest_leaves_it_so() -> None:
    looks = Looks()
    said = [looks.said([use(percent, 17)]) for percent in (0, 90, *[0] * LOOKS)]
    assert said == ["0=idle", *["0=busy"] * LOOKS, "0=idle"]


def test_the_end_of_its_process_makes_it_idle_at_once() -> None:
    looks = Looks()
    assert [looks.said([use(90, 17)]), looks.said([use(0)])] == ["0=busy", "0=idle"]
