"""Which API server, and who we are to it: kubeconfig files, or the service account of the pod we run in.

`load` merges several files as kubectl does (of two entries with one name the first counts). Nothing is asked of the
server here. `Credentials` gives the headers of a request: a token as written, a token file read again every minute
(service account tokens are renewed in place), or what an exec plugin printed, until it expires.
"""

import asyncio
import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from fairway.clock import Clock

from . import manifest

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_VERSION = "client.authentication.k8s.io/v1"
UNIX = "unix:"
REREAD_SECONDS = 60.0
EARLY_SECONDS = 30.0  # a token is renewed this long before it expires


class ConfigError(Exception):
    """No usable kubeconfig: one line, that says which file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Exec:
    """A credential plugin: a program that prints an ExecCredential."""

    command: tuple[str, ...]
    environ: tuple[tuple[str, str], ...] = ()
    api_version: str = EXEC_VERSION
    folder: str = "."


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """`server` has no slash at its end; `unix:PATH` is a Unix socket, which needs no credentials. Certificates are PEM.
    `server_name`: whom the certificate must name."""

    server: str
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    token_file: str = ""
    password: tuple[str, str] | None = None
    plugin: Exec | None = None
    is_insecure: bool = False
    server_name: str = ""
    namespace: str = "default"

    @property
    def socket(self) -> str:
        """The path of the Unix socket; empty where the server is elsewhere."""
        return self.server.removeprefix(UNIX) if self.server.startswith(UNIX) else ""


def files(environ: Mapping[str, str], chosen: str = "") -> list[Path]:
    """The kubeconfig files that count: the one chosen, else those of KUBECONFIG, else ~/.kube/config."""
    if chosen:
        return [Path(chosen)]
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environ.get("HOME", "~"), ".kube", "config").expanduser()]


def load(paths: Sequence[Path], context: str = "") -> Config:
    """The cluster and user of `context`, or of the current one. Files that do not exist are passed over."""
    read = [(path, _read(path)) for path in paths if _is_there(path)]
    if not read:
        raise ConfigError(f"{', '.join(map(str, paths))}: no such kubeconfig; start a cluster with `fairway up`")
    name = context or next((str(it["current-context"]) for _, it in read if it.get("current-context")), "")
    if not name:
        raise ConfigError(f"{read[0][0]}: no current-context; choose one with --context")
    _, chosen = _entry(read, "contexts", name)
    folder, cluster = _entry(read, "clusters", str(chosen.get("cluster", "")))
    owner, user = _entry(read, "users", str(chosen["user"])) if chosen.get("user") else (folder, {})
    return _config(_Part(cluster, folder), _Part(user, owner), str(chosen.get("namespace") or "default"))


def in_cluster(environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Config | None:
    """The service account of the pod this runs in; None outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").exists():
        return None
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authority=(account / "ca.crt").read_bytes(),
        token_file=str(account / "token"),
        namespace=(account / "namespace").read_text().strip(),
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        content = next(iter(manifest.load(path)), None)
    except manifest.Unreadable as error:
        raise ConfigError(f"kubeconfig cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: is not a kubeconfig")
    return content


def _entry(read: Sequence[tuple[Path, dict[str, Any]]], part: str, name: str) -> tuple[Path, dict[str, Any]]:
    for path, content in read:
        for entry in content.get(part) or ():
            if entry.get("name") == name:
                return path.parent, entry.get(part.removesuffix("s")) or {}
    raise ConfigError(f"{read[0][0]}: no {part.removesuffix('s')} named {name!r}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A cluster or user of a kubeconfig; paths in it are relative to the file's folder."""

    values: dict[str, Any]
    folder: Path

    def text(self, name: str) -> str:
        return str(self.values.get(name) or "")

    def content(self, name: str) -> bytes:
        """What `<name>-data` holds in base64, or the file `<name>`; empty without either."""
        try:
            if self.values.get(f"{name}-data"):
                return base64.b64decode(self.values[f"{name}-data"])
            return (self.folder / self.values[name]).read_bytes() if self.values.get(name) else b""
        except (OSError, binascii.Error) as error:
            raise ConfigError(f"{name} in {self.folder}: {error}") from error


def _config(cluster: _Part, user: _Part, namespace: str) -> Config:
    if not cluster.text("server"):
        raise ConfigError(f"a cluster in {cluster.folder} names no server")
    return Config(
        server=cluster.text("server").rstrip("/"),
        authority=cluster.content("certificate-authority"),
        certificate=user.content("client-certificate"),
        key=user.content("client-key"),
        token=user.text("token"),
        token_file=str(user.folder / user.text("tokenFile")) if user.text("tokenFile") else "",
        password=(user.text("username"), user.text("password")) if user.text("username") else None,
        plugin=_plugin(user.values["exec"], user.folder) if user.values.get("exec") else None,
        is_insecure=bool(cluster.values.get("insecure-skip-tls-verify")),
        server_name=cluster.text("tls-server-name"),
        namespace=namespace,
    )


def _plugin(values: dict[str, Any], folder: Path) -> Exec:
    return Exec(
        command=(str(values["command"]), *map(str, values.get("args") or ())),
        environ=tuple((str(it["name"]), str(it["value"])) for it in values.get("env") or ()),
        api_version=str(values.get("apiVersion") or EXEC_VERSION),
        folder=str(folder),
    )


@dataclass(slots=True)
class Credentials:
    """The current answer to "who are you"; asked again when it has run out."""

    config: Config
    clock: Clock
    _token: str = ""
    _certificate: tuple[bytes, bytes] | None = None
    _until: float = 0.0

    async def headers(self) -> dict[str, str]:
        await self._renew()
        if self.config.password and not self._token:
            pair = ":".join(self.config.password).encode()
            return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def certificate(self) -> tuple[bytes, bytes] | None:
        """The client certificate and its key."""
        await self._renew()
        if self.config.certificate:
            return self.config.certificate, self.config.key
        return self._certificate

    async def _renew(self) -> None:
        now = self.clock.elapsed()
        if now < self._until:
            return
        if self.config.token_file:
            self._token, self._until = Path(self.config.token_file).read_text().strip(), now + REREAD_SECONDS
        elif self.config.plugin and not self.config.token:
            await self._run(self.config.plugin)
        else:
            self._token, self._until = self.config.token, float("inf")

    async def _run(self, plugin: Exec) -> None:
        asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environ = {**os.environ, **dict(plugin.environ), "KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                *plugin.command, env=environ, cwd=plugin.folder, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            printed, _ = await process.communicate()
            if process.returncode:
                raise ConfigError(f"credential plugin {plugin.command[0]} ended with exit status {process.returncode}")
            status = msgspec.json.decode(printed, type=_ExecCredential).status
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"credential plugin {plugin.command[0]}: {error}") from error
        self._token = status.token
        pair = (status.certificate.encode(), status.key.encode())
        self._certificate = pair if all(pair) else None
        expiry = status.expiry.timestamp() - EARLY_SECONDS if status.expiry else float("inf")
        self._until = max(expiry - self.clock.offset(), self.clock.elapsed() + EARLY_SECONDS)


class _ExecStatus(
    msgspec.Struct,
    rename={"expiry": "expirationTimestamp", "certificate": "clientCertificateData", "key": "clientKeyData"},
):
    token: str = ""
    certificate: str = ""
    key: str = ""
    expiry: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _ExecStatus
