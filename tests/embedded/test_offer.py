"""What `fairway up` was told to offer is offered again by the next."""

from pathlib import Path

import pytest

from fairway.embedded.offer import OfferError, remembered

NOTHING = {"cpus": "", "memory": "", "fake_gpus": "", "containers": ""}


def test_what_one_start_is_told_holds_for_the_next(tmp_path: Path) -> None:
    said = {"cpus": "4", "memory": "", "fake_gpus": "8", "containers": "podman"}
    assert remembered(tmp_path, said) == said
    assert remembered(tmp_path, NOTHING) == said
    assert (tmp_path / "offer.json").stat().st_mode & 0o077 == 0


def test_a_later_word_replaces_the_earlier_and_own_takes_it_back(tmp_path: Path, caplog) -> None:
    remembered(tmp_path, NOTHING | {"cpus": "4", "memory": "1Gi", "fake_gpus": "8"})
    changed = NOTHING | {"cpus": "2", "memory": "1Gi"}
    assert remembered(tmp_path, NOTHING | {"cpus": "2", "fake_gpus": "own"}) == changed
    (told,) = [one.getMessage() for one in caplog.records]
    assert told.startswith("offered as at an earlier start: --memory 1Gi; ") and "--memory own" in told
    assert remembered(tmp_path, NOTHING) == changed


def test_an_engine_is_remembered_and_taken_back(tmp_path: Path, caplog) -> None:
    remembered(tmp_path, NOTHING | {"containers": "podman"})
    assert remembered(tmp_path, NOTHING) == NOTHING | {"containers": "podman"}
    assert caplog.messages == ["as at an earlier start: --containers podman; take it back with --containers processes"]
    assert remembered(tmp_path, NOTHING | {"containers": "own"}) == NOTHING


@pytest.mark.parametrize("text", ["{", '{"gpus": "2"}', '{"cpus": "many"}', '{"fake_gpus": 8}', '{"containers": "x"}'])
def test_a_file_that_says_something_else_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "offer.json").write_text(text)
    with pytest.raises(OfferError, match=r"offer.json does not hold what this machine offers; remove it$"):
        remembered(tmp_path, NOTHING)
