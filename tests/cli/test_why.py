"""`why` and `submit --dry-run` where nothing can start: answered at once, with the reason and without a forecast."""

import json
import resource
from collections.abc import Iterator

import pytest

from .test_commands import Machine

MOST_CPU = 1.5  # seconds; 0.5 alone on the machine, minutes where a forecast plays on


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "2")
    yield machine
    machine.run("down")


def cpu(machine: Machine, *words: str) -> tuple[str, float]:
    """What a command prints, and the CPU seconds that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = machine.run(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_behind_many_short_jobs_on_a_cordoned_node_the_answer_is_quick_and_no_forecast(machine: Machine) -> None:
    names = [f"short-{letter}" for letter in "abcdefghij"]
    for name in names:
        machine.run("submit", "--name", name, "--cpus", "100m", "--", "true")
    machine.run("wait", *names)
    node = json.loads(machine.run("nodes", "-o", "json"))["items"][0]["metadata"]["name"]
    machine.kubectl("cordon", node)
    said = machine.run("submit", "--name", "w5", "--cpus", "0", "--", "true")
    assert "waits: NoRoom: needs 1 pod slot; 0 of 1 node: 1 cordoned" in said
    for words in (("why", "w5"), ("submit", "--dry-run", "--cpus", "0", "--", "true")):
        said, seconds = cpu(machine, *words)
        assert "1 cordoned" in said and "forecast: starts" not in said and seconds < MOST_CPU, (said, seconds)
