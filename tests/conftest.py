"""No test passes over a fault of our own: an agenda logs it and goes on, since that is best for users."""

import logging
from collections.abc import Iterator

import pytest


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def faults() -> Iterator[list[logging.LogRecord]]:
    """What agendas log of faults; a test that wants one takes it out."""
    kept, log = Kept(), logging.getLogger("fairway.kube.agenda")
    log.addHandler(kept)
    yield kept.records
    log.removeHandler(kept)
    assert [it.getMessage() + str(it.exc_info) for it in kept.records] == []
