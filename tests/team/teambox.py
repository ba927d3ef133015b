"""A team's box for tests: Unix users and groups of this machine, a cluster that lets them in, and its commands as they
give them. All of it is removed afterwards.

Users cannot run the Python of root's home: `interpreter` is one that they can, with the same packages.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ASK = Path(__file__).with_name("ask.py").read_text()
SOURCE = Path(__file__).parents[2] / "src"
TRIES = 100
NOBODY = 65_534


@cache
def interpreter() -> str:
    """A Python that other users can run; empty where there is none."""
    for each in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            found = subprocess.run([each, "-c", "import aiohttp, fairway"], env=environ("/"), cwd="/", user=NOBODY,
                                   capture_output=True)
            if found.returncode == 0:
                return each
    return ""


def environ(home: str) -> dict[str, str]:
    path = os.pathsep.join((str(SOURCE), sysconfig.get_path("purelib")))
    return {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": path}


needs_users = pytest.mark.skipif(
    bool(os.getuid()) or not shutil.which("useradd") or not interpreter(),
    reason="needs root, useradd, and a Python that other users can run",
)


@dataclass(frozen=True)
class Box:
    """`users`: short name → account; `groups`: short name → group."""

    folder: Path
    users: Mapping[str, pwd.struct_passwd]
    groups: Mapping[str, str]

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "api.sock"

    def name(self, user: str) -> str:
        return self.users[user].pw_name

    def home(self, user: str) -> Path:
        return Path(self.users[user].pw_dir)

    def ask(self, user: str, *requests: Sequence[object]) -> list[tuple[int, Any]]:
        """What the server answers a user on the socket; a request: method, path, body, headers. Status and body."""
        found = self.tried(user, interpreter(), "-c", ASK, str(self.socket), said=json.dumps(requests))
        assert found.returncode == 0, found.stderr
        return [(status, body) for status, body in json.loads(found.stdout)]

    def run(self, user: str, *command: str, fine: bool = True) -> str:
        """What a program of a user prints."""
        found = self.tried(user, *command)
        assert not fine or found.returncode == 0, f"{command}: {found.returncode}: {found.stdout}{found.stderr}"
        return found.stdout + found.stderr

    def tried(self, user: str, *command: str, said: str = "") -> subprocess.CompletedProcess[str]:
        own = pwd.getpwnam("root") if user == "root" else self.users[user]
        home = str(self.folder) if user == "root" else own.pw_dir
        words = [interpreter(), "-m", "fairway.cli.main", *command[1:]] if command[0] == "fairway" else list(command)
        groups = [] if user == "root" else os.getgrouplist(own.pw_name, own.pw_gid)
        env = environ(home) | {"FAIRWAY_SOCKET": str(self.socket)}
        return subprocess.run(words, env=env, cwd=home, user=own.pw_uid, group=own.pw_gid, extra_groups=groups,
                              capture_output=True, text=True, timeout=100, input=said)


@contextmanager
def box(users: Mapping[str, Sequence[str]]) -> Iterator[Box]:
    """A cluster of these users and the groups that each is in, by short names; `admin` administers."""
    mark = f"fw{os.getpid()}"
    groups = {each: f"{mark}{each}" for each in sorted({it for every in users.values() for it in every})}
    folder = Path(tempfile.mkdtemp(prefix="fairway-team-", dir="/tmp"))
    folder.chmod(0o755)
    names = {each: f"{mark}{each}" for each in users}
    made = Box(folder, {}, groups)
    try:
        for group in groups.values():
            change("groupadd", group)
        for each, name in names.items():
            change("useradd", "-m", "-d", str(folder / name), "-G", ",".join(groups[it] for it in users[each]), name)
            (folder / name).chmod(0o700)
        made = Box(folder, {each: pwd.getpwnam(name) for each, name in names.items()}, groups)
        data = ["--data-dir", str(folder / "data")]
        admins = ["--admin-group", f"{mark}admin"]
        made.run("root", "fairway", "up", "--team", "--detach", *data, *admins, "--cpus", "4", "--fake-gpus", "4")
        yield made
        made.run("root", "fairway", "down", *data)
    finally:
        for name in names.values():
            change("userdel", name, fine=False)
        for group in groups.values():
            change("groupdel", group, fine=False)
        shutil.rmtree(folder)


def change(*command: str, fine: bool = True) -> None:
    """The databases of users are locked while another test changes them; then it is tried again."""
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, text=True)
        if "cannot lock" not in done.stderr:
            break
    assert done.returncode == 0 or not fine, done.stderr
