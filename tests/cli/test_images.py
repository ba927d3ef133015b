"""`submit --image` on a machine whose containers podman runs: what it finds is the image's, as on a cluster."""

import json
import re
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


def test_an_image_that_is_missing_is_named_wherever_its_job_is_asked_for(machine: Machine) -> None:
    machine.run("submit", "--name", "absent", "--image", "localhost/absent:1", "--", "true")
    words = "ErrImageNeverPull: image 'localhost/absent:1' is not on this machine"
    while words not in machine.run("why", "absent"):
        assert machine.workload("absent")["phase"] in ("Pending", "Admitted")
    assert re.search(f"starting .* {words}", machine.run("ls", "absent"))
    assert re.search("ErrImageNeverPull\nmessage: +image 'localhost/absent:1' is not", machine.run("status", "absent"))
    machine.run("cancel", "absent")


def test_a_bare_pod_without_its_image_says_so_too(machine: Machine) -> None:
    pod = {"metadata": {"name": "bare", "labels": {"fairway.dev/queue": "default"}}, "apiVersion": "v1", "kind": "Pod",
           "spec": {"containers": [{"name": "main", "image": "localhost/absent:1"}]}}  # fmt: skip
    (machine.folder / "bare.json").write_text(json.dumps(pod))
    machine.run("submit", "-f", "bare.json")
    while "ErrImageNeverPull: image 'localhost/absent:1'" not in machine.run("ls", "bare"):
        assert "running" not in machine.run("ls", "bare")
    machine.run("cancel", "bare")


def test_a_program_that_the_image_lacks_is_told_with_the_words_of_podman(machine: Machine) -> None:
    words = ("--image", IMAGE, "--follow", "--", "/nope")
    said = machine.run("submit", "--name", "lacks", *words, status=128)
    told = r'failed: .*exec: "/nope": .*no such file or directory.* \(exit code 128\)'
    assert re.search(f"fairway: lacks {told}", said)
    assert re.search(f"state: +{told}", machine.run("status", "lacks"))


def test_an_image_without_tar_is_told_where_files_are_to_be_unpacked(machine: Machine) -> None:
    (machine.folder / "own").mkdir()
    (machine.folder / "own" / "file").touch()
    words = ("--image", IMAGE, "--sync", "own", "--follow", "--", "/bin/cat", "file")
    said = machine.run("submit", "--name", "synced", *words, status=128)
    told = "failed: the image has no tar, which --sync needs: "
    assert re.search(rf'fairway: synced {told}.*exec: "tar".*not found.* \(exit code 128\)\n', said)
    assert told in machine.run("status", "synced") and told in machine.run("ls", "--all", "synced")


def test_up_does_not_start_where_podman_cannot_run_a_container(machine: Machine) -> None:
    other = Machine(machine.folder / "other")
    (other.folder / "etc").mkdir(parents=True)
    (other.folder / "etc" / "containers.conf").write_text('[engine]\nruntime = "nope"\n')
    other.environment |= {"CONTAINERS_CONF": str(other.folder / "etc" / "containers.conf")}
    said = other.run("up", "--detach", "--containers", "podman", status=1)
    assert 'podman cannot run a container here: default OCI runtime "nope" not found' in said
    assert said.count("\n") == 1 and "use --containers processes" in said
