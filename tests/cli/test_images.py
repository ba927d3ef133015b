"""`submit --image` on a machine whose containers podman runs: what it finds is the image's, as on a cluster."""

from collections.abc import Iterator

import pytest
from engines import IMAGE, Absent, podman

from .test_commands import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    try:
        machine.environment |= podman(tmp_path_factory.mktemp("podman")) | {"HOME": str(machine.folder), "OWN": "word"}
    except Absent as error:
        pytest.skip(f"podman does not run here: {error}")
    machine.run("up", "--detach", "--cpus", "2", "--containers", "podman")
    yield machine
    machine.run("down")


def test_a_program_in_an_image_finds_the_folder_and_the_variables_of_the_image(machine: Machine) -> None:
    script = 'echo "$PWD, $WHO, $(echo ${OWN:-none}), $GIVEN"; test -e /bin/busybox'
    words = ("--image", IMAGE, "--env", "GIVEN=yes", "--follow", "--", "/bin/sh", "-c", script)
    assert "/, image, none, yes\n" in machine.run("submit", "--name", "inside", *words)
    assert "/tmp\n" in machine.run("submit", "--chdir", "/tmp", "--image", IMAGE, "--follow", "--", "pwd")


def test_what_names_no_image_is_a_process_of_the_machine_beside_it(machine: Machine) -> None:
    said = machine.run("submit", "--name", "outside", "--follow", "--", "sh", "-c", 'echo "$PWD, $OWN"')
    assert f"{machine.folder}, word\n" in said


def test_a_failure_of_a_program_in_an_image_ends_its_job_as_that_of_a_process(machine: Machine) -> None:
    words = ("--image", IMAGE, "--follow", "--", "/bin/sh", "-c", "exit 143")
    machine.run("submit", "--name", "ended", *words, status=143)
    assert "\nretries:" not in machine.run("status", "ended")
