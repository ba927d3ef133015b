"""Every command of docs/start/box-for-a-team.md runs as it is written, by the user that the page names, with users and
groups that are there for this test alone."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from teambox import change, environ, interpreter, needs_users

pytestmark = [needs_users, pytest.mark.kubectl]
PAGE = (Path(__file__).parents[2] / "docs" / "start" / "box-for-a-team.md").read_text()
USERS, GROUPS = ("ann", "bob", "cho", "dan", "sue"), ("vision", "speech", "fairway-admin")
ELSEWHERE = {
    "sudo python3 -m venv /opt/fairway && sudo /opt/fairway/bin/pip install .": "what is under test is installed",
    "sudo ln -s /opt/fairway/bin/fairway /usr/local/bin/fairway": "what is under test is on the path",
    "fairway install --systemd | sudo tee /etc/systemd/system/fairway.service": "test_systemd.py verifies the unit",
    "sudo systemctl daemon-reload": "systemd does not run where tests do",
    "sudo systemctl enable --now fairway": "systemd does not run where tests do",
}
SUDO = """case $1 in
user*|group*|gpasswd)
  for _ in $(seq 100); do
    said=$("$@" 2>&1) && exit
    case $said in *"cannot lock"*) ;; *) break;; esac
  done
  echo "$said" >&2; exit 1;;
esac
exec "$@\""""
"""As root it has only to run what follows; the databases of users are locked while another test changes them."""
TEXT = re.compile(r"\bAs (\w+)[^`]*?:\n\n```sh\n(.*?)```|```sh\n(.*?)```|`((?:sudo|kubectl delete)[^`\n]+)`", re.DOTALL)
"""A block of a user, a block of root, or a line in the text: kubectl's is the administrator's."""


def commands() -> Iterator[tuple[str, str]]:
    """User and line, in the order of the page."""
    for user, own, block, line in TEXT.findall(PAGE):
        who = user or ("sue" if line.startswith("kubectl") else "root")
        yield from ((who, each) for each in (own or block or line).splitlines() if each not in ELSEWHERE)


def test_what_is_not_run_is_there() -> None:
    assert ELSEWHERE.keys() <= {line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
                                for line in block.splitlines()}


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder that all users may enter, with programs `fairway` and `sudo`."""
    folder = Path(tempfile.mkdtemp(prefix="fairway-page-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    for name, text in {"fairway": f'exec {interpreter()} -m fairway.cli.main "$@"', "sudo": SUDO}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    yield folder
    subprocess.run([interpreter(), "-m", "fairway.cli.main", "down", "--data-dir", str(folder / "data")],
                   env=environ(str(folder)), check=False)
    for user in USERS:
        change("userdel", own(user), fine=False)  # the page removes some itself, and no home with them
        shutil.rmtree(f"/home/{own(user)}", ignore_errors=True)
    for group in GROUPS:
        change("groupdel", own(group), fine=False)
    shutil.rmtree(folder)


def own(name: str) -> str:
    return f"p{os.getpid()}{name}"


def test_the_page_is_true(machine: Path) -> None:
    options = f"--data-dir {machine}/data --cpus 4 --fake-gpus 8 --admin-group {own('fairway-admin')}"
    said = {}
    for user, line in commands():
        mine = re.sub(rf"\b({'|'.join((*USERS, *GROUPS))})\b", lambda it: own(it[0]), line)
        said[user, line] = run(machine, user, mine.replace("up --team", f"up --team {options}"))
    assert re.search(rf"{own('vision')} +{own('vision')} +4 +1\n", said["root", "fairway team ls"])
    assert "train" in said["ann", "fairway ls"] and "sweep" in said["sue", "fairway ls -A"]
    assert said["bob", "kubectl logs job/hello"] == "hello\n"


def run(machine: Path, user: str, line: str) -> str:
    home = str(machine) if user == "root" else f"/home/{own(user)}"
    env = environ(home) | {"FAIRWAY_SOCKET": f"{machine}/run/api.sock", "KUBECONFIG": ""}
    env["PATH"] = f"{machine}/bin:/usr/sbin:/sbin:{env['PATH']}"
    words = ["bash", "-euo", "pipefail", "-c", line]
    as_user = [] if user == "root" else ["setpriv", "--reuid", own(user), "--regid", own(user), "--init-groups"]
    found = subprocess.run([*as_user, *words], env=env, cwd=home, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, f"{user}: {line}: {found.returncode}: {found.stdout}{found.stderr}"
    return found.stdout
