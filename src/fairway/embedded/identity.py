"""What a server shows and asks for: its certificate, its token, and the kubeconfig that tells kubectl of both.

They are made once and kept in the data directory (0700; each file 0600), so that a kubeconfig stays good over
restarts. The certificate is signed by a CA of its own, whose key is forgotten at once; when it nears its end both are
made anew. kubectl sends no token over plain HTTP, so there is TLS on loopback too.
"""

import base64
import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from fairway.clock import Chance

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOKEN = re.compile(r"[!-~]{1,1000}")  # what a header can carry
_YEARS, _RENEW = timedelta(days=3650), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Identity:
    directory: Path
    token: str
    authority: str  # the CA's certificate, PEM

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


def identity(directory: Path, *, now: float, chance: Chance) -> Identity:
    """What is in the directory, made where it is absent."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    token = directory / "token"
    if not token.exists() or not _TOKEN.fullmatch(token.read_text(errors="replace").strip()):
        write_private(token, chance.token())
    moment = datetime.fromtimestamp(now, UTC)
    if not _is_valid(directory, moment):
        _make_certificates(directory, moment)
    return Identity(directory, token.read_text().strip(), (directory / "ca.crt").read_text())


def write_private(path: Path, text: str) -> None:
    """Writes the file as a whole, for its owner only."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _is_valid(directory: Path, moment: datetime) -> bool:
    from cryptography import exceptions, x509

    try:
        certificates = [x509.load_pem_x509_certificate((directory / name).read_bytes())
                        for name in ("ca.crt", "server.crt")]
        certificates[1].verify_directly_issued_by(certificates[0])
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            directory / "server.crt", directory / "server.key")
    except (OSError, ValueError, exceptions.InvalidSignature):
        return False
    return all(
        each.not_valid_before_utc <= moment < each.not_valid_after_utc - _RENEW for each in certificates)


def _make_certificates(directory: Path, moment: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def certificate(name: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key)
                .serial_number(x509.random_serial_number())
                .not_valid_before(moment - timedelta(days=1)).not_valid_after(moment + _YEARS)
                .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True))

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(LOOPBACK[0]), *(x509.IPAddress(ipaddress.ip_address(each)) for each in LOOPBACK[1:])]
    root = certificate("fairway-ca", "fairway-ca", authority.public_key()).sign(authority, hashes.SHA256())
    leaf = (certificate("fairway", "fairway-ca", own.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(authority, hashes.SHA256()))
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key = own.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    write_private(directory / "server.key", key.decode())
    write_private(directory / "server.crt", leaf.public_bytes(encoding).decode())
    write_private(directory / "ca.crt", root.public_bytes(encoding).decode())
