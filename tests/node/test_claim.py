"""A GPU belongs to one cluster of the machine at a time. Each cluster here is a process of its own."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from test_cards import card

from fairway.node.cards import XE
from fairway.node.claim import FOLDER, claimed
from fairway.node.machine import Gpu

CLUSTER = """
import os, sys
from pathlib import Path
from fairway.node.claim import claimed
from fairway.node.machine import Gpu
name, place, user, *indices = sys.argv[1:]
os.setuid(int(user)) if int(user) else None
with claimed([Gpu(int(it), "H100", 80, uuid=f"GPU-{it}") for it in indices], Path(name), [Path(place)]) as claims:
    print(*(gpu.index for gpu in claims.gpus), *claims.missing, sep="\\n", end="\\n\\n", flush=True)
    sys.stdin.read()
"""
NOBODY = 65_534


@contextmanager
def cluster(place: Path, name: str, indices: Sequence[int], *, user: int = 0) -> Iterator[tuple[subprocess.Popen, str]]:
    """A process that claims those GPUs, and what it said."""
    command = [sys.executable, "-c", CLUSTER, name, str(place), str(user), *map(str, indices)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, "".join(iter(process.stdout.readline, "\n"))
    process.communicate()


def gpu(index: int) -> Gpu:
    return Gpu(index, "H100", 80, uuid=f"GPU-{index}")


def test_the_second_cluster_offers_what_the_first_one_left(tmp_path: Path):
    with cluster(tmp_path, "/home/ann/data", [0, 1]) as (first, said):
        assert said == "0\n1\n"
        with cluster(tmp_path, "/home/ben/data", [0, 1, 2]) as (_, said):
            assert said.splitlines() == ["2", *(f"GPU {n} (GPU-{n}) is not offered: the cluster of /home/ann/data (pid "
                                                f"{first.pid}) holds it" for n in (0, 1))]
    with cluster(tmp_path, "/home/ben/data", [0, 1, 2]) as (_, said):
        assert said == "0\n1\n2\n"


def test_a_killed_cluster_holds_nothing(tmp_path: Path):
    with cluster(tmp_path, "a", [0]) as (first, _):
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with cluster(tmp_path, "b", [0]) as (_, said):
            assert said == "0\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")
@pytest.mark.parametrize("users", [(0, NOBODY), (NOBODY, 0), (NOBODY, NOBODY - 1)])
def test_clusters_of_different_users_meet(users: tuple[int, int]):
    first, second = users
    with TemporaryDirectory() as name:  # the folders above tmp_path are for one user only
        place = Path(name)
        place.chmod(0o777)
        with cluster(place, "a", [0], user=first), cluster(place, "b", [0, 1], user=second) as (_, said):
            assert said.startswith("1\nGPU 0")


def test_a_cluster_that_can_use_fewer_folders_meets_the_others(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with cluster(tmp_path / "two", "a", [0]), claimed([gpu(0)], Path("b"), [tmp_path / "one", tmp_path / "two"]) as got:
        assert not got.gpus
        with cluster(tmp_path / "one", "c", [0]) as (_, said):
            assert said == "0\n"  # a GPU that was not got is locked nowhere


def test_links_of_other_users_are_not_followed(tmp_path: Path):
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "lock" / FOLDER).mkdir(parents=True)
    (tmp_path / "lock" / FOLDER / "GPU-0").symlink_to(tmp_path / "theirs")
    os.link(tmp_path / "theirs", tmp_path / "lock" / FOLDER / "GPU-1")
    os.mkfifo(tmp_path / "lock" / FOLDER / "GPU-2")
    with claimed([gpu(0), gpu(1), gpu(2)], Path("b"), [tmp_path / "lock"]) as got:
        assert len(got.gpus) == 3
    assert (tmp_path / "theirs").read_text() == "precious"
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / FOLDER).symlink_to(tmp_path)
    with claimed([gpu(0)], Path("b"), [tmp_path / "link"]) as got:
        assert got.gpus and "not locked" in got.missing[0]
    assert not (tmp_path / "GPU-0").exists()


def test_the_shared_folder_is_for_everybody_and_a_uuid_cannot_leave_it(tmp_path: Path):
    with claimed([Gpu(0, "H100", 80, uuid="../../GPU-x")], Path("b"), [tmp_path]) as got:
        assert got.gpus and not got.missing
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o1777
    assert [it.name for it in (tmp_path / FOLDER).iterdir()] == ["______GPU-x"]


def test_fake_gpus_need_no_lock(tmp_path: Path):
    fakes = [Gpu(0, "fake", 80)]
    with claimed(fakes, Path("a"), [tmp_path]), claimed(fakes, Path("b"), [tmp_path]) as got:
        assert len(got.gpus) == 1 and not got.missing and not list(tmp_path.iterdir())


SEES = 'mount -t tmpfs none /sys/class && ln -s "$0/class/drm" /sys/class/drm && exec "$@"'
"""Runs a command that finds the cards of a tree, in a mount namespace of its own."""


class Home:
    """One of several clusters of this machine, each of which finds the cards of one tree."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder, self.tree = folder, tree

    def run(self, *words: str) -> str:
        command = ["unshare", "-m", "sh", "-c", SEES, str(self.tree), sys.executable, "-m", "fairway", *words]
        around = {**os.environ, "XDG_DATA_HOME": str(self.folder), "KUBECONFIG": ""}
        return subprocess.run(command, env=around, capture_output=True, text=True, check=True).stdout

    def offers(self) -> str:
        [node] = json.loads(self.run("nodes", "-o", "json"))["items"]
        return node["status"]["allocatable"].get(XE, "0")


@pytest.mark.skipif(os.system("unshare -m mount -t tmpfs none /sys/class 2>/dev/null") != 0, reason="needs mounts")
def test_of_two_clusters_that_run_one_alone_offers_a_gpu(tmp_path: Path) -> None:
    address = f"{os.getpid() % 65_536:04x}:8c:00.0"  # this test may run twice at a time
    card(tmp_path / "sys", 0, address, "xe", vendor="0x8086", device="0xe20b")
    first, second = (Home(tmp_path / name, tmp_path / "sys") for name in "ab")
    try:
        for each in (first, second):
            each.run("up", "--detach", "--cpus", "1")
        assert (first.offers(), second.offers()) == ("1", "0")
        log = (second.folder / "fairway" / "up.log").read_text()
        assert f"GPU 0 ({address}) is not offered: the cluster of {first.folder}/fairway (pid " in log
        for each in (first, second):
            each.run("down")
        second.run("up", "--detach")
        assert second.offers() == "1"
    finally:
        for each in (first, second):
            subprocess.run([sys.executable, "-m", "fairway", "down", "--data-dir", each.folder / "fairway"])
