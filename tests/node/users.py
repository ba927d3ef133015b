"""Unix users of this machine, made for a test and removed after it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

TRIES = 100

needs_users = pytest.mark.skipif(
    bool(os.getuid()) or not shutil.which("useradd") or os.system("unshare -m true 2>/dev/null") != 0,
    reason="needs root, useradd and private mount namespaces",
)


@contextmanager
def users(*names: str) -> Iterator[Sequence[pwd.struct_passwd]]:
    """Users of these names with homes (0700) that all may pass to."""
    above = tempfile.mkdtemp(prefix="fairway-homes-", dir="/tmp")
    os.chmod(above, 0o755)
    try:
        for name in names:
            run("useradd", "-m", "-d", f"{above}/{name}", "-s", "/bin/sh", name)
            os.chmod(f"{above}/{name}", 0o700)
        yield [pwd.getpwnam(name) for name in names]
    finally:
        for name in names:
            run("userdel", name)
        shutil.rmtree(above)


def run(*command: str) -> None:
    """The databases of users are locked while another test changes them; then it is tried again."""
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, text=True)
        if "cannot lock" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
