"""A serving certificate of our own: made with a CA of its own, whose key is forgotten at once.

So nothing but that one certificate is ever signed by it, and a new certificate comes with a new CA. Text is PEM, times
are seconds since the epoch.
"""

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

RENEW_DAYS = 30


@dataclass(frozen=True, slots=True)
class Served:
    """`authority`: the CA's certificate, maybe with earlier ones after it; `key` is that of `certificate`."""

    authority: str
    certificate: str
    key: str

    def load(self, context: ssl.SSLContext) -> None:
        """Connections from now on are served with it."""
        load(context, self.certificate.encode(), self.key.encode())


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The ssl module reads certificates from files alone; they last for the moment of reading."""
    with tempfile.TemporaryDirectory(prefix="fairway-") as folder:
        paths = [Path(folder, name) for name in ("certificate", "key")]
        for path, content in zip(paths, (certificate, key)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        context.load_cert_chain(paths[0], paths[1])


def make(names: Sequence[str], *, now: float, days: int) -> Served:
    """For these host names and addresses, good from a day ago, since clocks differ, until `days` from now."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import ExtendedKeyUsage, SubjectAlternativeName
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    span = datetime.fromtimestamp(now, UTC), days
    root = _builder("fairway-ca", authority.public_key(), span).sign(authority, hashes.SHA256())
    leaf = (_builder("fairway", own.public_key(), span)
            .add_extension(SubjectAlternativeName([_name(each) for each in names]), critical=False)
            .add_extension(ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(authority, hashes.SHA256()))  # fmt: skip
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key = own.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    return Served(root.public_bytes(encoding).decode(), leaf.public_bytes(encoding).decode(), key.decode())


def _builder(name: str, key: object, span: tuple[datetime, int]) -> "x509.CertificateBuilder":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, "fairway-ca"))
    (now, days) = span
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(by)
            .public_key(key)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(name == "fairway-ca", path_length=None), critical=True))  # fmt: skip


def _name(text: str) -> "x509.GeneralName":
    from cryptography import x509

    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    return x509.DNSName(text)


def is_good(served: Served, names: Sequence[str], *, now: float) -> bool:
    """Whether it is of its CA and its key, for all these names, and good for a while."""
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        own = x509.load_pem_x509_certificate(served.certificate.encode())
        root = x509.load_pem_x509_certificates(served.authority.encode())[0]
        own.verify_directly_issued_by(root)
        is_its_key = load_pem_private_key(served.key.encode(), None).public_key() == own.public_key()
        known = set(own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, TypeError, exceptions.InvalidSignature, x509.ExtensionNotFound):
        return False
    moment, rest = datetime.fromtimestamp(now, UTC), timedelta(days=RENEW_DAYS)
    lasts = all(it.not_valid_before_utc <= moment < it.not_valid_after_utc - rest for it in (own, root))
    return is_its_key and lasts and known.issuperset(map(_name, names))
