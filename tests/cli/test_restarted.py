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
ENDS = "echo line 0; until test -e stop; do sleep 0.02; done; seq -f 'line %g' 1 400; exit 7"
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


@pytest.mark.parametrize(("words", "workers"), [("submit --follow", 1), ("logs -f", 2)])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_follower_prints_the_rest_of_what_ended_while_the_server_was_away(
    machine: Machine, start: Start, words: str, workers: int, crashes: bool
) -> None:
    job = ("--name", "long", "--workers", str(workers), "--", "sh", "-c", ENDS)
    if words == "logs -f":
        machine.run("submit", *job)
        machine.until("long", "Running")
    one = start(*words.split(), *(["long"] if words == "logs -f" else job))
    ranks = [f"[{rank}] " for rank in range(workers)] if workers > 1 else [""]
    for rank in ranks:
        one.prints(f"{rank}line 0\n")
    killed(machine) if crashes else machine.run("down", "--keep-pods")
    one.says(AWAY)
    (machine.folder / "stop").touch()
    while len([*machine.folder.glob("fairway/pods/*/containers/*/*/exit")]) < workers:
        time.sleep(0.05)
    machine.run(*UP)
    one.says(BACK)
    code, text, _ = one.ends()
    assert sorted(text.splitlines()) == sorted(f"{rank}line {at}" for rank in ranks for at in range(401))
    assert code == (0 if words == "logs -f" else 7)


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


@pytest.mark.parametrize("is_cut", [False, True])
def test_what_follows_or_waits_goes_on_over_a_restore_from_a_backup(
    machine: Machine, start: Start, is_cut: bool
) -> None:
    """`is_cut`: the follower finds its log cut when the run that was started again has its id already."""
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
    if is_cut:
        follows.process.send_signal(signal.SIGSTOP)
        killed(machine)
        machine.run(*UP)
    machine.run("down")
    data.rename(machine.folder / "before")
    backup.rename(data)
    machine.run(*UP)
    deadline = time.monotonic() + 60
    while not [*data.glob("pods/*/containers/*/*/started")]:
        assert time.monotonic() < deadline, "the job is not started again"
        time.sleep(0.05)
    follows.process.send_signal(signal.SIGCONT)
    while follows.out.read_text().count("line 0\n") < 2:
        assert time.monotonic() < deadline, "the log does not go on"
        time.sleep(0.05)
    (machine.folder / "stop").touch()
    (code, _, said), (other, *_) = follows.ends(), waits.ends()
    assert code in (0, 7) and other == 7 and "Traceback" not in said and "resource version" not in said
    assert ("== rank 0: the server no longer keeps this run; the end of its log may be missing\n" in said) == is_cut


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
