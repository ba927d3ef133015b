"""Runs as commands show them."""

import pytest

from fairway.kube.runs import Run


@pytest.mark.parametrize(("reason", "words"), [("OnDisk", "paused on disk"), ("NotWoken", "did not wake from a pause")])
def test_a_run_that_a_pause_ended_says_so(reason: str, words: str) -> None:
    run = Run(1, 0, 0, "a", "main", is_default=True, exit_code=137, reason=reason)
    assert run.ending == words
