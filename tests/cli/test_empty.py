"""Empty values: what a variable of a shell that is not set leaves of an option or a name."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fairway.cli.main import COMMANDS, cli
from fairway.cli.script import Submit


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


EVERY = list(commands(cli))
OPTIONS = [
    (words, name) for words, command in EVERY for it in command.params if isinstance(it, click.Option)
    for name in it.opts if not it.is_flag and it.type is not click.UNPROCESSED
]  # fmt: skip


def test_only_words_of_programs_and_lists_of_variables_may_be_empty() -> None:
    found = {it.name for _, command in EVERY for it in command.params if it.type is click.UNPROCESSED}
    assert found == {"command", "env_only"} and {words[0] for words, _ in EVERY} == COMMANDS.keys()


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_an_option_without_a_value_in_it_is_wrong_use(words: tuple[str, ...], option: str) -> None:
    said = CliRunner().invoke(cli, [*words, option, ""])
    assert said.exit_code == 2 and ": found ''; leave it out, or give " in said.output.splitlines()[-1]


@pytest.mark.parametrize("words", [("why",), ("logs",), ("cancel", "a"), ("cancel", "--forget"), ("exec",), ("shell",),
                                   ("top",), ("wait",), ("modify",), ("status",), ("suspend",)])  # fmt: skip
def test_a_job_without_a_name_is_wrong_use(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(cli, [*words, ""])
    assert said.exit_code == 2 and said.output.splitlines()[-1] == "Error: JOB: found ''; a name is needed"


@pytest.mark.parametrize(("line", "option"), [("#FAIRWAY --after ''", "--after"), ("#FAIRWAY --queue=", "--queue"),
                                              ("#FAIRWAY -q ''", "--queue"),
                                              ("#SBATCH --partition=", "--partition"),
                                              ("#SBATCH -d ''", "--dependency")])  # fmt: skip
def test_an_empty_value_in_a_header_is_told_with_its_line(tmp_path: Path, line: str, option: str) -> None:
    (script := tmp_path / "job.sh").write_text(f"#!/bin/sh\n{line}\ntrue\n")
    said = CliRunner().invoke(cli, ["submit", str(script)])
    assert said.exit_code == 2 and f"{script}: line 2: {option}: found ''; leave it out, or give " in said.output


def test_a_program_gets_its_empty_words() -> None:
    command = next(it for words, it in EVERY if words == ("submit",))
    assert isinstance(command, Submit)
    context = command.make_context("submit", ["--env-only", "", "--", "printf", "", "x"])
    assert context.params["command"] == ("printf", "", "x") and context.params["env_only"] == ("",)
