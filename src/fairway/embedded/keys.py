"""What a server shows and asks for: its certificate, its token, the key that it signs other tokens with, and the
kubeconfig that tells kubectl of the first two.

They are made once and kept in the data directory (0700; each file 0600), so that a kubeconfig stays good over
restarts. The certificate is signed by a CA of its own, whose key is forgotten at once; when it nears its end both are
made anew. kubectl sends no token over plain HTTP, so there is TLS on loopback too.
"""

import base64
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

import yaml

from fairway.clock import Chance
from fairway.kube import certificate
from fairway.kube.certificate import Served

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOKEN = re.compile(r"[!-~]{1,1000}")  # what a header can carry
_DAYS = 3650
SIGNING_BYTES = 32
FILES = ("ca.crt", "server.crt", "server.key")


@dataclass(frozen=True, slots=True)
class Keys:
    directory: Path
    token: str
    authority: str  # the CA's certificate, PEM
    signing: bytes  # of tokens

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        return context

    def write_kubeconfig(self, port: int) -> Path:
        """The kubeconfig of this server on that port; answers where it is."""
        path = self.directory / "kubeconfig"
        write_private(path, yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "fairway",
            "clusters": [{"name": "fairway", "cluster": {
                "server": f"https://127.0.0.1:{port}",
                "certificate-authority-data": base64.b64encode(self.authority.encode()).decode()}}],
            "users": [{"name": "fairway", "user": {"token": self.token}}],
            "contexts": [{"name": "fairway", "context": {"cluster": "fairway", "user": "fairway"}}],
        }, sort_keys=False))
        return path


def keys(directory: Path, *, now: float, chance: Chance) -> Keys:
    """What is in the directory, made where it is absent."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    token = directory / "token"
    if not token.exists() or not _TOKEN.fullmatch(token.read_text(errors="replace").strip()):
        write_private(token, chance.token())
    signing = directory / "signing.key"
    if not signing.exists() or len(signing.read_bytes()) < SIGNING_BYTES:
        write_private(signing, chance.token())
    if not _is_valid(directory, now):
        _make_certificates(directory, now)
    authority = (directory / "ca.crt").read_text()
    return Keys(directory, token.read_text().strip(), authority, signing.read_bytes())


def write_private(path: Path, text: str) -> None:
    """Writes the file as a whole, for its owner only."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _is_valid(directory: Path, moment: float) -> bool:
    try:
        files = Served(*((directory / name).read_text() for name in FILES))
    except (OSError, UnicodeDecodeError):
        return False
    return certificate.is_good(files, LOOPBACK, now=moment)


def _make_certificates(directory: Path, moment: float) -> None:
    made = certificate.make(LOOPBACK, now=moment, days=_DAYS)
    for name, text in zip(reversed(FILES), (made.key, made.certificate, made.authority)):
        write_private(directory / name, text)
