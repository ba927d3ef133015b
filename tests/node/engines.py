"""podman for the tests beside it, with storage and an image of its own; where it does not run, its words."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

IMAGE = "localhost/fairway-test:1"
APPLETS = ("sh", "sleep", "echo", "cat", "env", "pwd")
SECONDS = 60


class Absent(Exception):
    """Why podman does not run here."""


def podman(folder: Path) -> dict[str, str]:
    """The environment of a podman that has IMAGE: entry point `/bin/echo entry`, arguments `by default`."""
    busybox = shutil.which("busybox")
    if not shutil.which("podman") or busybox is None:
        raise Absent("podman or busybox is not installed")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **_configured(folder)}
    changes = ['ENTRYPOINT ["/bin/echo", "entry"]', 'CMD ["by", "default"]', "ENV WHO=image"]
    _asked(["podman", "import", *(it for each in changes for it in ("-c", each)), "-", IMAGE], env, _root(busybox))
    _asked(["podman", "run", "--rm", "--network", "host", "--ipc", "host", IMAGE], env)
    return env


def _configured(folder: Path) -> dict[str, str]:
    """Storage below the folder that needs no kernel module; limits as they are, since a test may not raise them."""
    runtime = "runc" if shutil.which("runc") else "crun"
    texts = {
        "CONTAINERS_CONF": f'[containers]\ndefault_ulimits = []\n[engine]\nruntime = "{runtime}"\n',
        "CONTAINERS_STORAGE_CONF": f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/all"\nrunroot = "{folder}/run"\n',
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


def _root(busybox: str) -> bytes:
    """An archive with the root of the image."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name in ("tmp", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return made.getvalue()


def _asked(command: list[str], env: dict[str, str], given: bytes = b"") -> None:
    done = subprocess.run(command, input=given, env=env, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise Absent(done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "without a word")
