"""The shim alone, as a user who may mount only in a namespace of his own."""

import marshal
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from fairway.node.container import SHIM, inspect

NOBODY, PYTHON = 65534, "/usr/bin/python3"
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def may_play_nobody() -> bool:
    if os.getuid() or not shutil.which("setpriv") or not os.path.exists(PYTHON):
        return False
    return subprocess.run([*AS_NOBODY, "unshare", "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not may_play_nobody(), reason="needs root, setpriv, and user namespaces for others")
def test_without_root_a_mount_point_that_cannot_be_made_lies_in_a_private_mirror(tmp_path: Path):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(0o755)
    folder = tmp_path / "0"
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "file").write_text("V")
    (folder / "scratch").mkdir(parents=True)
    target = "/fairway-test/deep"
    spec = {"argv": ["sh", "-c", f"cat {target}/file; echo x > {target}/new; ls -A /"], "env": {"PATH": "/bin"},
            "folder": "/", "mounts": [(str(tmp_path / "volume"), "", target, False, None)],
            "user": None, "cgroups": [], "hidden": [],
            "scratch": str(folder / "scratch")}
    (folder / "spec").write_bytes(marshal.dumps(spec))
    shim = shutil.copy(SHIM, tmp_path / "shim.py")
    shutil.copy(SHIM.with_name("enclosure.py"), tmp_path)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    nursery = subprocess.Popen([*AS_NOBODY, PYTHON, "-I", "-S", "-E", str(shim)], stdin=its)
    socket.send_fds(ours, [os.fsencode(folder)], [write])
    for end in (ours, its):
        end.close()
    os.close(write)
    assert os.read(read, 1) == b"" and nursery.wait(10) == 0
    while not inspect(folder).is_over:
        time.sleep(0.02)

    assert (inspect(folder).code, inspect(folder).message) == (0, "")
    said = [line.split(" ", 3)[3] for line in next(folder.glob("log.*")).read_text().splitlines()]
    assert said[0].startswith("V") and {said[0][1:], *said[1:]} == {"fairway-test", *os.listdir("/")}
    assert (tmp_path / "volume" / "new").exists() and not os.path.exists("/fairway-test")

