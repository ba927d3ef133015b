"""`fairway submit --sync DIR`: the files of a folder go to a cluster with the job, and are unpacked before each start.

They are packed into a Secret that the Job owns, which holds 1 MiB; an init container with the program's own image
unpacks them with `tar` into the folder in which the program starts. What goes along is what git tracks; outside of a
repository all that no .gitignore leaves out. On the cluster of this machine a program runs in its folder as it is.
"""

import gzip
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from fairway.api.ends import SYNC

from .main import Problem

Thing = dict[str, Any]
MOST_BYTES = 1 << 20
FOLDER, PACKED, FILE = "/workspace", "/fairway-files", "files.tgz"
WORK, FILES = "fairway-work", "fairway-files"
HELP = "leave them out by .gitignore or `git rm --cached`, or put them on a volume: docs/start/submit-to-a-cluster.md"


def packed(folder: str) -> dict[str, bytes]:
    """The files of a folder as a Secret holds them; raises a Problem where they are too much, or none."""
    names = tracked(Path(folder))
    if not names:
        raise Problem(f"--sync: git tracks no file in {folder}; `git add` those that the program needs")
    text = io.BytesIO()
    with gzip.GzipFile(fileobj=text, mode="wb", mtime=0) as outer, tarfile.open(fileobj=outer, mode="w") as archive:
        for name in names:
            archive.add(Path(folder, name), arcname=name, recursive=False, filter=_of_nobody)
    if text.tell() > MOST_BYTES:
        sizes = sorted(((Path(folder, name).lstat().st_size, name) for name in names), reverse=True)
        large = ", ".join(f"{name} ({size / MOST_BYTES:.1f} MiB)" for size, name in sizes[:3])
        found = f"{len(names)} files of {folder} have {text.tell() / MOST_BYTES:.1f} MiB packed, and 1 MiB goes along"
        raise Problem(f"--sync: {found}; the largest are {large}: {HELP}", exit_code=1)
    return {FILE: text.getvalue()}


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever unpacks it owns it."""
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    return member


def tracked(folder: Path) -> list[str]:
    """What git tracks below a folder and is there; outside of a repository what it would not ignore."""
    if not folder.is_dir():
        raise Problem(f"--sync: there is no folder {str(folder)!r}")
    inside = _git(folder, "rev-parse", "--is-inside-work-tree")
    with tempfile.TemporaryDirectory() as empty:
        if inside.returncode:
            _git(folder, "init", "--quiet", "--bare", empty)
            found = _git(folder, f"--git-dir={empty}", "--work-tree=.", "ls-files", "-z", "-o", "--exclude-standard")
        else:
            found = _git(folder, "ls-files", "-z")
    if found.returncode:
        raise Problem(f"--sync: git does not tell the files of {folder}: {found.stderr.decode().strip()}")
    names = [name for name in found.stdout.decode("utf-8", "surrogateescape").split("\0") if name]
    return sorted(name for name in names if Path(folder, name).is_symlink() or Path(folder, name).is_file())


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True)
    except FileNotFoundError as error:
        raise Problem("--sync: needs git, which tells the files that go along") from error


def unpack(template: Thing, secret: str) -> None:
    """Has the pods of a template unpack the Secret into the folder in which their program starts."""
    spec = template["spec"]
    main = spec["containers"][0]
    folder = main.setdefault("workingDir", FOLDER)
    work = {"name": WORK, "mountPath": folder}
    main["volumeMounts"] = [*(main.get("volumeMounts") or ()), work]
    files = {"name": FILES, "mountPath": PACKED, "readOnly": True}
    step = {"name": SYNC, "image": main["image"], "volumeMounts": [work, files],
            "command": ["tar", "-xzf", f"{PACKED}/{FILE}", "-C", folder],
            "terminationMessagePolicy": "FallbackToLogsOnError"}  # fmt: skip
    asked = main.get("resources") or {}  # it runs before the program, in the same room
    step["resources"] = {part: {name: own[name] for name in ("cpu", "memory") if name in own}
                         for part, own in asked.items()}  # fmt: skip
    spec["initContainers"] = [*(spec.get("initContainers") or ()), step]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": WORK, "emptyDir": {}},
                       {"name": FILES, "secret": {"secretName": secret}}]  # fmt: skip
