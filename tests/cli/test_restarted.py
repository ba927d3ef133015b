"""The server is restarted under commands that go on as long as a job does: nothing is lost, and nothing said twice."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from fairway.cli.main import Problem
from fairway.cli.patient import AWAY_SECONDS
from fairway.cli.rows import Filter
from fairway.cli.watch import watch
from fairway.clock import VirtualClock
from fairway.kube.client import Client
from fairway.kube.transport import Request, Response
from fairway.node.lock import holder

from .test_commands import Machine, heeds_ctrl_c

AWAY = "== the server does not answer; this goes on when it is back, Ctrl-C ends it\n"
BACK = "== the server is back\n"
UP = ("up", "--detach", "--cpus", "4", "--fake-gpus", "2")
COUNTS = "at=0; until test -e stop; do echo line $at; at=$((at + 1)); sleep 0.02; done; echo line $at; exit 7"
Start = Callable[..., "Started"]


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run(*UP)
    yield machine
    machine.run("down")


@pytest.fixture
def start(machine: Machine) -> Iterator[Start]:
    """Starts a command; it is killed if it is not over when the test is."""
    all: list[Started] = []

    def begun(*words: str) -> Started:
        all.append(Started(machine, *words))
        return all[-1]

    yield begun
    for one in all:
        one.process.kill()
        one.process.wait()


class Started:
    """A command that runs, its output in a file."""

    def __init__(self, machine: Machine, *words: str) -> None:
        self.out = machine.folder / f"{words[0]}.out"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairway", *words], env=machine.environment, stdout=out, stderr=subprocess.PIPE,
                text=True, cwd=machine.folder, preexec_fn=heeds_ctrl_c
            )  # fmt: skip

    def prints(self, text: str) -> None:
        """Returns when it has printed the text."""
        deadline = time.monotonic() + 60
        while text not in self.out.read_text():
            assert time.monotonic() < deadline, f"{text!r} was not printed: {self.out.read_text()}"
            time.sleep(0.05)

    def watches(self) -> None:
        """Returns when it has two connections open, for Workloads and for pods."""
        deadline = time.monotonic() + 60
        while len(psutil.Process(self.process.pid).net_connections()) < 2:
            assert time.monotonic() < deadline, "it watches nothing"
            time.sleep(0.05)

    def says(self, line: str) -> None:
        """Returns when it has said the line on standard error."""
        assert self.process.stderr is not None
        while (said := self.process.stderr.readline()) != line:
            assert said, f"{line!r} was not said"

    def ends(self) -> tuple[int, str, str]:
        """Exit code, all that was printed, and what was said since."""
        code = self.process.wait(timeout=60)
        assert self.process.stderr is not None
        return code, self.out.read_text(), self.process.stderr.read()


def killed(machine: Machine) -> None:
    server = holder(machine.folder / "fairway" / "lock")
    assert server
    os.kill(server, signal.SIGKILL)


def test_a_follower_prints_each_line_once_over_a_crash_of_the_server(machine: Machine, start: Start) -> None:
    one = start("submit", "--name", "long", "--follow", "--", "sh", "-c", COUNTS)
    one.prints("line 9\n")
    killed(machine)
    one.says(AWAY)
    machine.run(*UP)
    one.says(BACK)
    (machine.folder / "stop").touch()
    code, text, rest = one.ends()
    assert text == "".join(f"line {at}\n" for at in range(text.count("\n")))
    assert (code, rest) == (7, "fairway: long failed: exit code 7\n")


def test_what_waits_or_watches_goes_on_over_a_crash_of_the_server(machine: Machine, start: Start) -> None:
    machine.run("submit", "--name", "long", "--", "sh", "-c", "until test -e stop; do sleep 0.02; done")
    machine.until("long", "Running")
    waits, watches = start("wait", "long"), start("ls", "--watch")
    watches.prints("long")
    for one in (waits, watches):
        one.watches()
    killed(machine)
    for one in (waits, watches):
        one.says(AWAY)
    machine.run(*UP)
    for one in (waits, watches):
        one.says(BACK)
    (machine.folder / "stop").touch()
    code, said, rest = waits.ends()
    assert (code, rest) == (0, "") and said.startswith("long finished after ")
    watches.prints("finished")
    watches.process.send_signal(signal.SIGINT)
    assert watches.ends()[0] == 130


def test_what_follows_or_waits_goes_on_over_a_restore_from_a_backup(machine: Machine, start: Start) -> None:
    machine.run("submit", "--name", "long", "--", "sh", "-c", COUNTS)
    machine.until("long", "Running")
    data, backup = machine.folder / "fairway", machine.folder / "backup"
    machine.run("down", "--keep-pods")
    shutil.copytree(data, backup, ignore=shutil.ignore_patterns("pods"))
    machine.run(*UP)
    follows, waits = start("logs", "-f", "long"), start("wait", "long")
    follows.prints("line 9\n")
    waits.watches()
    for number in range(3):
        machine.run("submit", "--name", f"later-{number}", "--", "true")
    machine.run("down")
    data.rename(machine.folder / "before")
    backup.rename(data)
    machine.run(*UP)
    deadline = time.monotonic() + 60
    while follows.out.read_text().count("line 0\n") < 2:
        assert time.monotonic() < deadline, "the log does not go on"
        time.sleep(0.05)
    (machine.folder / "stop").touch()
    (code, _, said), (other, *_) = follows.ends(), waits.ends()
    assert code in (0, 7) and other == 7 and "Traceback" not in said and "resource version" not in said


def test_ctrl_c_ends_a_command_that_waits_for_the_server(machine: Machine, start: Start) -> None:
    machine.run("submit", "--name", "long", "--", "sh", "-c", "echo here; sleep 300")
    one = start("logs", "-f", "long")
    one.prints("here")
    machine.run("down")
    one.says(AWAY)
    one.process.send_signal(signal.SIGINT)
    code, _, rest = one.ends()
    assert code == 130 and "Traceback" not in rest
    machine.run(*UP)


def test_a_command_ends_when_no_server_comes_for_ten_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    async def nothing(request: Request) -> Response:
        raise ConnectionRefusedError("refused")

    clock = VirtualClock()
    with pytest.raises(Problem, match="no server for 600 seconds: refused"):
        clock.run(watch(Client(nothing, clock), "", Filter()))
    assert clock.now() >= AWAY_SECONDS
    assert capsys.readouterr().err == AWAY
