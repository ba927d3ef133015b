"""Containers of images in a cluster of a user's own: by that user's rootless podman, with a real user."""

import json
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from engines import IMAGE
from teambox import environ, interpreter, needs_users
from users import users

pytestmark = needs_users
TESTS = Path(__file__).parents[1] / "node"
PREPARE = f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from engines import Absent, podman
try:
    print(json.dumps(podman(Path.home() / "podman")))
except Absent as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture
def ann() -> Iterator[pwd.struct_passwd]:
    with users(f"fwroot{psutil.Process().pid}") as (one,):
        (Path(one.pw_dir) / "podman").mkdir()
        subprocess.run(["chown", "-R", f"{one.pw_uid}:{one.pw_gid}", one.pw_dir], check=True)
        yield one
        for process in psutil.process_iter(["uids"]):  # podman's own, which holds its namespaces
            if process.info["uids"].real == one.pw_uid:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait()


def run(ann: pwd.struct_passwd, env: dict[str, str], *command: str) -> str:
    found = subprocess.run(command, env=env, cwd=ann.pw_dir, user=ann.pw_uid, group=ann.pw_gid, extra_groups=[],
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
    return found.stdout


def test_root_in_a_container_of_a_plain_user_is_that_user_outside(ann: pwd.struct_passwd) -> None:
    env = environ(ann.pw_dir) | {"FAIRWAY_SOCKET": f"{ann.pw_dir}/none"}
    found = json.loads(run(ann, env, interpreter(), "-c", PREPARE))
    if isinstance(found, str):
        pytest.skip(f"podman does not run for a plain user here: {found}")
    fairway, env = [interpreter(), "-m", "fairway.cli.main"], env | found
    run(ann, env, *fairway, "up", "--detach", "--containers", "podman", "--cpus", "2")
    try:
        program = ["/bin/sh", "-c", "cat /proc/self/uid_map; echo $WHO"]
        said = run(ann, env, *fairway, "submit", "--follow", "--image", IMAGE, "--", *program)
        assert re.search(rf"^ *0 +{ann.pw_uid} +1$", said, re.MULTILINE) and said.endswith("image\n"), said
    finally:
        run(ann, env, *fairway, "down")
