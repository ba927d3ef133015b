"""Arrays and sweeps: which trials there are, and on a real cluster that each runs once with its own arguments."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from fairway.cli.array import USUAL_AT_ONCE, array_of, launcher, spread, sweep_of
from fairway.cli.main import Problem

from .test_commands import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "2")
    yield machine
    machine.run("down")


def outputs(trials, **more) -> list[str]:
    """What each trial prints, by its launcher alone."""

    def run(index: int) -> str:
        environment = {"JOB_COMPLETION_INDEX": str(index), "RANK": str(index), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            launcher(trials, **more), env=environment, capture_output=True, text=True, check=True
        ).stdout

    return [run(index) for index in range(trials.count)]


@pytest.mark.parametrize(
    ("text", "numbers", "at_once"),
    [("0-3", [0, 1, 2, 3], 0), ("1-9:4%2", [1, 5, 9], 2), ("0,3,7", [0, 3, 7], 0), ("5", [5], 0),
     ("0-1,10-20:5", [0, 1, 10, 15, 20], 0)],
)  # fmt: skip
def test_an_array_has_the_trials_that_it_names(text: str, numbers: list[int], at_once: int) -> None:
    trials = array_of(text, ["sh", "-c", 'echo "$FAIRWAY_ARRAY_TASK_ID"'])
    assert [int(it) for it in outputs(trials)] == numbers and trials.at_once == at_once


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1-", "0-3%0", "0-3%", "0-100000", "1,1", "0-5,3", "1-9:0", "-1", "٣"]
)
def test_an_array_that_cannot_be_is_wrong_use(text: str) -> None:
    with pytest.raises(Problem, match="--array: "):
        array_of(text, ["true"])


def test_a_sweep_is_every_combination_and_the_last_argument_turns_fastest() -> None:
    trials = sweep_of(["echo", "--lr={0.1,0.01}", "{1..3}", "x{a,}y{3..1..2}"])
    assert trials.count == 2 * 3 * 4
    made = [it.strip() for it in outputs(trials)]
    assert made[:5] == ["--lr=0.1 1 xay3", "--lr=0.1 1 xay1", "--lr=0.1 1 xy3", "--lr=0.1 1 xy1", "--lr=0.1 2 xay3"]
    assert len(set(made)) == trials.count and trials.lines()[1] == "     1  echo --lr=0.1 1 xay1"


@pytest.mark.parametrize("words", [["echo", "a"], ["echo", "{1..0..0}"], ["echo", "{1..200000}"], ["{1..999}"] * 3,
                                   ["{1..99999}" * 3]])
def test_a_sweep_that_is_none_or_too_large_is_wrong_use(words: list[str]) -> None:
    with pytest.raises(Problem, match="--sweep: "):
        sweep_of(words)


def test_no_character_of_an_argument_means_anything_to_the_launcher() -> None:
    words = ["it's", 'a "b"', "$HOME `id` $(id)", "a\nb", "*", "", "\\n", "{", "-n", "%s", "é"]
    trials = sweep_of(["python3", "-c", "import sys; print(sys.argv[1:])", *words, "{1,$(id)}"])
    assert outputs(trials) == [f"{[*words, last]}\n" for last in ("1", "$(id)")]


def test_a_trial_stands_alone() -> None:
    assert outputs(array_of("0-1", ["sh", "-c", "echo [$RANK]"])) == ["[]\n", "[]\n"]


def test_two_hundred_trials_run_once_each(machine: Machine) -> None:
    script = 'echo "$FAIRWAY_ARRAY_TASK_ID" >> ran'
    said = machine.run("submit", "--name", "many", "--array", "0-199", "--cpus", "50m", "--", "sh", "-c", script)
    assert said.startswith("many queued in default")
    machine.run("wait", "many")
    ran = (machine.folder / "ran").read_text().split()
    assert sorted(map(int, ran)) == list(range(200))
    status = json.loads(machine.kubectl("get", "job", "many", "-o", "json"))["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (200, "0-199")


def test_no_trial_is_lost_when_an_array_is_suspended(machine: Machine) -> None:
    script = "test -e go || exec sleep 600"
    machine.run("submit", "--name", "held", "--array", "0-3", "--cpus", "100m", "--", "sh", "-c", script)
    machine.until("held", "Running")
    machine.run("suspend", "held")
    machine.until("held", "Suspended")
    (machine.folder / "go").touch()
    machine.run("resume", "held")
    assert machine.run("wait", "held")
    status = json.loads(machine.kubectl("get", "job", "held", "-o", "json"))["status"]
    assert (status["succeeded"], status["completedIndexes"], status.get("failedIndexes", "")) == (4, "0-3", "")


def test_an_array_is_one_elastic_job(machine: Machine) -> None:
    machine.run("submit", "--name", "wide", "--array", "0-9%4", "--cpus", "1", "--", "true")
    made = json.loads(machine.kubectl("get", "job", "wide", "-o", "json"))
    spec = made["spec"]
    assert (spec["completions"], spec["completionMode"], spec["backoffLimitPerIndex"]) == (10, "Indexed", 0)
    assert made["metadata"]["annotations"]["fairway.dev/min-count"] == "1"
    machine.until("wide", "Succeeded")
    said = machine.run("status", "wide")
    assert "\npodsets:   main (1 CPU)\n" in said and "\nplaced:" not in said


def test_a_dry_run_of_a_sweep_lists_its_trials(machine: Machine) -> None:
    said = machine.run("submit", "--sweep", "--dry-run", "--", "echo", "{1..3}")
    assert said.startswith("     0  echo 1\n     1  echo 2\n     2  echo 3\nwould start now")


@pytest.mark.parametrize("words", ["--array 0-3 --sweep", "--array 0-3 --workers 2", "--array x"])
def test_what_does_not_go_with_an_array_is_wrong_use(machine: Machine, words: str) -> None:
    assert machine.run("submit", *words.split(), "--", "echo", "{1,2}", status=2).count("\n") == 1


@pytest.mark.parametrize(("text", "at_once"), [("0-9", 10), ("0-99999", USUAL_AT_ONCE), ("0-99999%2000", 2_000)])
def test_a_thousand_trials_run_at_once_unless_another_number_is_asked_for(text: str, at_once: int) -> None:
    made: dict = {"metadata": {}, "spec": {}}
    spread(made, array_of(text, ["true"]), retries=0)
    assert made["spec"]["parallelism"] == at_once


def test_trials_go_by_their_numbers_and_a_failed_array_says_which_failed(machine: Machine) -> None:
    program = ("sh", "-c", "echo trial $FAIRWAY_ARRAY_TASK_ID; exit $((FAIRWAY_ARRAY_TASK_ID % 2))")
    words = "array failed: 2 of 3 trials failed (11,21); the first with exit code 1"
    said = machine.run("submit", "--array", "11,20,21", "--name", "array", "--cpus", "100m", "--follow", "--", *program,
                       status=1)  # fmt: skip
    assert "[20] trial 20\n" in said and words in said
    assert "trial 11\n" in machine.run("logs", "array", "--rank", "11")
    said = machine.run("logs", "array", "--rank", "0", status=1)
    assert said.endswith("; it has attempt 1, ranks 11 to 21 and container main\n")
    assert words in machine.run("wait", "array", status=1)
    machine.run("cancel", "--forget", "array")
    assert "trial 20\n" in machine.run("logs", "array", "--rank", "20")
