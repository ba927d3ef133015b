"""Scripts that are submitted: options in their headers, and sbatch files."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairway.cli.main import cli
from fairway.cli.program import SLURM
from fairway.cli.sbatch import Import, imported, seconds
from fairway.cli.script import script_of

from .test_commands import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "4")
    yield machine
    machine.run("down")


def read(*lines: str, body: str = "") -> Import:
    header = [f"#SBATCH {line}" for line in lines]
    found = imported("a.sbatch", body, header)
    assert found is not None
    return found


def options(*lines: str, body: str = "") -> dict[str, str]:
    words = read(*lines, body=body).options
    return dict(zip(words[::2], words[1::2]))


@pytest.mark.parametrize(
    ("text", "found"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129_600), ("1-0:30", 88_200), ("1-1:1:1", 90_061),
     ("UNLIMITED", 0), ("0", 0)],
)  # fmt: skip
def test_a_time_of_slurm_is_read_in_all_its_forms(text: str, found: int) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize(
    ("lines", "body", "found"),
    [
        (["-n 4 -c 2"], "", {"--cpus": "8", "--workers": "1"}),
        (["-n 4 -c 2"], "srun a", {"--cpus": "2", "--workers": "4"}),
        (["-N 2", "--ntasks-per-node=4", "--gres=gpu:4", "--mem=8G"], "  srun a",
         {"--cpus": "1", "--workers": "8", "--gpus": "1", "--memory": "2Gi"}),
        (["--gres=gpu:a100:2"], "", {"--cpus": "1", "--workers": "1", "--gpus": "2"}),
        (["--gpus=h100:8", "--cpus-per-gpu=4"], "", {"--cpus": "32", "--workers": "1", "--gpus": "8"}),
        (["--gpus-per-task=2", "-n2"], "srun a", {"--cpus": "1", "--workers": "2", "--gpus": "2"}),
        (["--mem-per-cpu=500M", "-c4"], "", {"--cpus": "4", "--workers": "1", "--memory": "2000Mi"}),
        (["--mem=4000"], "", {"--cpus": "1", "--workers": "1", "--memory": "4000Mi"}),
    ],
)  # fmt: skip
def test_the_size_of_a_worker_is_its_part_of_what_slurm_counts(lines: list[str], body: str, found: dict) -> None:
    assert options(*lines, body=body) == found


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("-t 1-0", "--time-limit", "86400s"), ("-p vision", "--queue", "vision"), ("-a 0-9%2", "--array", "0-9%2"),
        ("--dependency=afterok:one:two", "--after", "two"), ("-D /tmp", "--chdir", "/tmp"),
        ("--signal=B:TERM@120", "--grace", "120s"), ("--mail-user=a@b.example", "--notify", "mailto:a@b.example"),
        ("--export=NONE", "--env-only", ","), ("--export=A,B=2", "--env", "B=2"), ("--export=A,B=2", "--env-only", "A"),
    ],
)  # fmt: skip
def test_a_directive_becomes_the_option_that_means_the_same(line: str, option: str, value: str) -> None:
    assert options(line)[option] == value


def test_what_has_no_effect_and_what_is_not_supported_is_named() -> None:
    found = read(
        "-J a -A x -o %j.out", "--exclusive", "--constraint=a100", "-d afterany:1", "--nonsense=1", "--signal=USR1@60"
    )
    assert found.notes == ("--account", "--output (`fairway logs` prints the output)")
    left = ("--dependency=afterany:1", "--signal=USR1@60", "--exclusive", "--constraint", "--nonsense")
    assert set(found.unsupported) == set(left)


@pytest.mark.parametrize(
    ("line", "is_noted"),
    [("--gres=gpu:a100:1", True), ("--gres=gpu:a100", True), ("--gpus=h100:2", True), ("--gres=gpu:2", False),
     ("-G 2", False)],
)  # fmt: skip
def test_a_type_of_gpu_is_named_as_without_effect(line: str, is_noted: bool) -> None:
    assert [it for it in read(line).notes if "type of GPU" in it] == [
        f"{line} (the type of GPU; a nodeAffinity in -f FILE chooses it)"
    ] * is_noted


@pytest.mark.parametrize(
    ("types", "is_noted"),
    [("ALL", False), ("BEGIN,END,FAIL", False), ("NONE", False), ("END", True), ("begin,fail", True)],
)
def test_a_mail_type_that_asks_for_fewer_mails_than_come_is_named(types: str, is_noted: bool) -> None:
    noted = [it for it in read("--mail-user=a@b.example", f"--mail-type={types}").notes if "--mail-type" in it]
    assert noted == [f"--mail-type={types} (mail comes at the start, at each eviction and at the end)"] * is_noted


@pytest.mark.parametrize(
    ("lines", "told"),
    [("-t soon", "--time=soon: "), ("--mem=much", "--mem=much: "), ("-n x", "--ntasks=x: "), ("-n", "-n needs a value"),
     ("word", "'word' is no option"), ("--gpus=x", "--gpus=x: "), ('--comment="', "line 2: No closing quotation")],
)  # fmt: skip
def test_a_directive_that_cannot_be_read_is_one_line_with_the_file(machine: Machine, lines: str, told: str) -> None:
    (machine.folder / "bad.sh").write_text(f"#!/bin/sh\n#SBATCH {lines}\n")
    said = machine.run("submit", "bad.sh", status=2)
    assert said.startswith("fairway: bad.sh: ") and told in said and said.count("\n") == 1


@pytest.mark.parametrize(("line", "calls"), [
    ("OMP_NUM_THREADS=4 A='x y' srun a", True), ("time srun a", True), ("cd b && srun a", True), ("x=$(srun a)", True),
    ("if ! srun a; then exit; fi", True), ("# srun a", False), ("echo srun a", False), ("srunner a", False),
])  # fmt: skip
def test_a_call_of_srun_is_seen_wherever_a_command_may_stand(line: str, calls: bool) -> None:
    assert options("-n 2", body=f"#!/bin/sh\n  {line}\n")["--workers"] == str(1 + calls)


def test_gpus_that_tasks_cannot_share_out_are_wrong_use(machine: Machine) -> None:
    (machine.folder / "three.sh").write_text("#!/bin/sh\n#SBATCH -n 2 --gpus=3\nsrun true\n")
    assert "3 GPUs cannot be divided by 2 tasks" in machine.run("submit", "three.sh", status=2)


def test_an_sbatch_file_runs_with_its_tasks_and_finds_what_slurm_sets(machine: Machine) -> None:
    (machine.folder / "two.sbatch").write_text(
        "#!/bin/bash\n#SBATCH -J two -n 2 -c 1\n#SBATCH --gpus-per-task=1\n#SBATCH -o x\n"
        "srun -l --cpu-bind none sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS/$SLURM_JOB_ID/$RANK/$SLURM_GPUS; echo $1' "
        "sh '$(id)'\n"
        "srun -n 1 echo once; scontrol show hostnames $SLURM_JOB_NODELIST\n"
    )  # fmt: skip
    said = machine.run("submit", "--name", "two", "--follow", "two.sbatch")
    assert "0/2/two/0/2\n" in said and "1/2/two/1/2\n" in said and said.count("once\n") == 1
    assert said.count("$(id)\n") == 2 and said.count("localhost\n") == 2
    assert "  #SBATCH without effect here: --output (`fairway logs` prints the output)\n" in said


def test_an_sbatch_array_gives_each_task_its_number(machine: Machine) -> None:
    (machine.folder / "array.sh").write_text(
        "#!/bin/sh\n#SBATCH --array=2-6:2\n"
        "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT to $SLURM_ARRAY_TASK_MAX in $1\n"
    )
    machine.run("submit", "--name", "tasks", "array.sh", "here")
    machine.until("tasks", "Succeeded")
    lines = [it for it in machine.run("logs", "tasks").splitlines() if not it.startswith("== ")]
    assert sorted(lines) == [f"{n} of 3 to 6 in here" for n in (2, 4, 6)]


def test_what_would_change_the_meaning_is_refused_unless_it_is_left_out(machine: Machine) -> None:
    (machine.folder / "alone.sh").write_text("#!/bin/sh\n#SBATCH --exclusive\ntrue\n")
    said = machine.run("submit", "alone.sh", status=2)
    assert said == "fairway: alone.sh: #SBATCH --exclusive: not supported; --ignore-unsupported leaves it out\n"
    (machine.folder / "two.sh").write_text("#!/bin/sh\n#SBATCH --exclusive\n#SBATCH --dependency=singleton\ntrue\n")
    said = machine.run("submit", "two.sh", status=2)
    assert said.endswith(": not supported; --ignore-unsupported leaves them out\n") and said.count("\n") == 1
    assert "#SBATCH left out: --exclusive" in machine.run("submit", "--ignore-unsupported", "alone.sh")


def test_the_copy_of_a_slurm_script_runs_not_what_it_became(machine: Machine) -> None:
    path = machine.folder / "copy.sh"
    path.write_text("#!/bin/sh\n#SBATCH -J copy\necho first $0\n")
    machine.run("submit", "--name", "stop", "--gpus", "4", "--", "sleep", "60")
    machine.run("submit", "--name", "copy", "--gpus", "1", "copy.sh")
    path.write_text("echo second\n")
    machine.run("cancel", "stop")
    machine.until("copy", "Succeeded")
    assert "first copy.sh\n" in machine.run("logs", "copy")


def test_options_in_a_header_count_unless_the_command_line_says_otherwise(machine: Machine) -> None:
    (machine.folder / "own.py").write_text(
        "# a script\n#FAIRWAY --cpus 20m --time-limit 2h  # a comment\n\n"
        "#FAIRWAY --retries 2\nprint('it runs')\n#FAIRWAY --gpus 1\n"
    )
    said = machine.run("submit", "--name", "own", "--time-limit", "1h", "--follow", "own.py", "--gpus", "7")
    assert said.startswith("it runs\n")
    made = json.loads(machine.kubectl("get", "job", "own", "-o", "json"))
    assert made["metadata"]["annotations"]["fairway.dev/time-limit"] == "1h" and made["spec"]["backoffLimit"] == 2
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python3", "./own.py", "--gpus", "7"]
    assert container["resources"]["requests"] == {"cpu": "20m"}


def test_a_header_that_is_no_options_is_one_line(machine: Machine) -> None:
    (machine.folder / "odd.sh").write_text("#!/bin/sh\n#FAIRWAY --nothing 1\n")
    said = machine.run("submit", "odd.sh", status=2)
    assert "odd.sh: " in said and "--nothing" in said
    (machine.folder / "odd.sh").write_text("#!/bin/sh\n#FAIRWAY --cpus 1\n#FAIRWAY --time-limt=2h\n")
    assert "odd.sh: line 3: No such option '--time-limt'. Did you mean '--time-limit'?" in machine.run(
        "submit", "odd.sh", status=2
    )
    (machine.folder / "odd.sh").write_text("#!/bin/sh\n#FAIRWAY python3\n")
    assert "odd.sh: " in machine.run("submit", "odd.sh", status=2)


@pytest.mark.parametrize(
    ("name", "text", "is_executable", "argv"),
    [
        ("a.py", "print()", False, ["python3", "./a.py"]),
        ("a.sh", "true", False, ["bash", "./a.sh"]),
        ("a.py", "#!/usr/bin/env python3.11\n", False, ["python3.11", "./a.py"]),
        ("a.sh", "#!/bin/dash -e\n", False, ["/bin/dash", "-e", "./a.sh"]),
        ("a.sh", "#!/bin/sh\n#FAIRWAY --cpus 1\n", True, ["./a.sh"]),
    ],
)
def test_a_script_is_run_by_its_interpreter(
    tmp_path: Path, name: str, text: str, is_executable: bool, argv: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    os.chmod(tmp_path / name, 0o755 if is_executable else 0o644)
    found = script_of(name, str(tmp_path))
    assert found is not None and found.argv([], is_process=True) == argv


def test_to_a_cluster_the_text_of_a_shell_script_goes_along(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo $1\n")
    found = script_of("a.sh", str(tmp_path))
    assert found is not None and found.argv(["x"], is_process=False) == ["bash", "-c", "echo $1\n", "a.sh", "x"]


@pytest.mark.parametrize("name", ["srun", "scontrol"])
def test_the_programs_for_slurm_scripts_are_executable(name: str) -> None:
    assert os.access(SLURM / name, os.X_OK)
    assert subprocess.run(["sh", "-n", SLURM / name]).returncode == 0


@pytest.mark.parametrize("option, ours", [
    ("--time=1:00:00", "--time-limit"), ("--mem=4G", "--memory"), ("-p", "--queue"), ("-c", "--cpus"),
    ("-N", "--workers"), ("--gres=gpu:2", "--gpus"), ("-J", "--name"), ("--partition=a", "--queue"),
    ("-t", "--time-limit"), ("-d", "--after"),
])  # fmt: skip
def test_an_option_of_sbatch_is_answered_with_the_one_that_stands_for_it_here(option: str, ours: str) -> None:
    said = CliRunner().invoke(cli, ["submit", option, "8", "--", "true"])
    word = option.partition("=")[0]
    assert said.exit_code == 2 and f"{word} is an option of sbatch; here it is {ours} " in said.output


@pytest.mark.parametrize("option, told", [
    ("--exclusive", "it is --cpus N --gpus N, all that a node has: `fairway nodes` lists it"),
    ("--nodelist=n1", "it is a nodeAffinity in the pod template of -f FILE"),
    ("--wckey=a", "nothing is like it: leave it out"), ("-L", "nothing is like it: leave it out"),
])  # fmt: skip
def test_an_option_of_sbatch_that_none_stands_for_is_answered_with_what_to_do(option: str, told: str) -> None:
    for command in ("submit", "shell"):
        said = CliRunner().invoke(cli, [command, option, "--", "true"])
        assert said.exit_code == 2 and f" is an option of sbatch; here {told}\n" in said.output
