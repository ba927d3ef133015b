"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler; its nodes pretend.

The programs come from the folder that KUBEBUILDER_ASSETS names. Nothing is kept. Everybody speaks with a token of
their own, so that the server knows the Job controller, kube-scheduler, Fairway and a user from each other.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fairway.api.crds import crds
from fairway.clock import Chance, Clock
from fairway.controllers.run import run
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import load
from fairway.kube.kinds import Kind, Selection
from fairway.kube.plain import plain_transport
from fairway.kube.transport import Request
from fairway.node.hollow import Hollow
from fairway.settings import Settings

Thing = dict[str, Any]
PATIENCE_SECONDS = 60.0
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ROLE_BINDINGS = Kind("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io/v1", is_namespaced=False)
ROLES = Kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io/v1", is_namespaced=False)
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
FAIRWAY = "system:serviceaccount:fairway-system:fairway-controller"
USERS = {
    "admin": ("admin", "system:masters"), "ann": ("ann", "people"), "fairway": (FAIRWAY, "system:serviceaccounts"),
    "scheduler": ("system:kube-scheduler", ""), "manager": ("system:kube-controller-manager", ""),
}  # fmt: skip
"""Token → user and group."""
AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [FAIRWAY]}, {"level": "None"}],
}  # fmt: skip
CONTROLLERS = (
    "job-controller", "replicaset-controller", "deployment-controller", "garbage-collector-controller",
    "namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
    "persistentvolume-binder-controller", "ephemeral-volume-controller",
)  # fmt: skip


def missing() -> str:
    """Why there can be no control plane; "" where there can."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return "needs KUBEBUILDER_ASSETS, a folder with " + ", ".join(NEEDED)
    lacks = [name for name in NEEDED if not Path(folder, name).exists()]
    return f"KUBEBUILDER_ASSETS lacks {', '.join(lacks)}" if lacks else ""


@dataclass(frozen=True)
class Plane:
    """`kubeconfig(token)`: the file that speaks as a user of USERS."""

    folder: Path
    assets: Path

    def kubeconfig(self, token: str = "admin") -> Path:
        return self.folder / f"{token}.kubeconfig"

    @property
    def audit(self) -> Path:
        """A line of JSON for each request of a service account."""
        return self.folder / "audit.log"

    @asynccontextmanager
    async def client(self, token: str = "admin") -> AsyncIterator[Client]:
        async with plain_transport(load([self.kubeconfig(token)])) as transport:
            yield Client(transport, Clock())

    @contextmanager
    def program(self, name: str, *arguments: str) -> Iterator[None]:
        """One of the control plane's programs, until the end of the block."""
        with ExitStack() as stack:
            _start(stack, self, [name, *arguments])
            yield

    def scheduler(self) -> Any:
        return self.program("kube-scheduler", "--kubeconfig", str(self.kubeconfig("scheduler")), "--leader-elect=false",
                            "--secure-port=0")  # fmt: skip


def _start(stack: ExitStack, plane: Plane, command: Sequence[str]) -> None:
    program = [str(plane.assets / command[0]), *command[1:]]
    log = stack.enter_context((plane.folder / f"{command[0]}.log").open("a"))
    process = subprocess.Popen(program, stdout=log, stderr=log, start_new_session=True)

    def end() -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()

    stack.callback(end)


@contextmanager
def control_plane(folder: Path, *, is_bare: bool = False, more: Sequence[str] = ()) -> Iterator[Plane]:
    """With the definitions of Fairway's kinds, its namespace, and a user that may do what an ordinary one may; bare:
    with nothing of it. `more`: controllers beside the usual ones."""
    plane = Plane(folder, Path(os.environ["KUBEBUILDER_ASSETS"]))
    client, peer, secure = free_ports(3)
    etcd, key = f"http://127.0.0.1:{client}", folder / "accounts.key"
    key.write_bytes(rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()))
    lines = [f'{token},{user},{token},"{group}"' for token, (user, group) in USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
    (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
    for token in USERS:
        plane.kubeconfig(token).write_text(yaml.safe_dump(_kubeconfig(token, f"https://127.0.0.1:{secure}")))
    with ExitStack() as stack:
        _start(stack, plane, [
            "etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync"])
        _start(stack, plane, [
            "kube-apiserver", "--etcd-servers", etcd, "--secure-port", str(secure), "--bind-address", "127.0.0.1",
            "--cert-dir", str(folder / "certs"), "--authorization-mode", "RBAC",
            "--audit-policy-file", str(folder / "audit.yaml"), "--audit-log-path", str(plane.audit),
            "--token-auth-file", str(folder / "tokens.csv"), "--service-cluster-ip-range", "10.0.0.0/24",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", str(key), "--service-account-signing-key-file", str(key),
            "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"])
        asyncio.run(_ready(plane))
        _start(stack, plane, [
            "kube-controller-manager", "--kubeconfig", str(plane.kubeconfig("manager")), "--leader-elect=false",
            "--secure-port=0", "--use-service-account-credentials", "--service-account-private-key-file", str(key),
            "--controllers", ",".join((*CONTROLLERS, *more))])
        if not is_bare:
            asyncio.run(_prepare(plane))
        yield plane


def _kubeconfig(token: str, server: str) -> Thing:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }  # fmt: skip


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


async def until(holds: Callable[[], Awaitable[Any]], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """What `holds` says once it says something."""
    clock = Clock()
    end = clock.now() + seconds
    while not (said := await holds()):
        if clock.now() > end:
            raise TimeoutError(f"not so within {seconds} s")
        await clock.sleep(0.1)
    return said


async def _ready(plane: Plane) -> None:
    async with plane.client() as client:

        async def answers() -> bool:
            with suppress(ApiError, OSError):
                return bool(await client.call(Request("GET", "/readyz")))
            return False

        await until(answers)


async def _prepare(plane: Plane) -> None:
    async with plane.client() as client:
        for one in crds():
            await client.create(kinds.DEFINITIONS, one)
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "fairway-system"}})
        for name, user, role in (("fairway-tests", FAIRWAY, "cluster-admin"), ("people", "ann", "edit-all")):
            await client.create(ROLE_BINDINGS, _binding(name, user, role))
        await client.create(ROLES, {"metadata": {"name": "edit-all"}, "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": list(VERBS)}]})

        async def serves() -> bool:
            with suppress(ApiError):
                for kind in (kinds.QUEUES, kinds.WORKLOADS, kinds.NODE_POOLS, kinds.RESERVATIONS):
                    await client.list(Selection(kind))
                return True
            return False

        await until(serves)


def _binding(name: str, user: str, role: str) -> Thing:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }  # fmt: skip


def node(name: str, *, cpu: int = 8, gpus: int = 0) -> Thing:
    capacity = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": ready},
    }  # fmt: skip


@asynccontextmanager
async def nodes(client: Client, *made: Thing) -> AsyncIterator[None]:
    """These nodes, whose pods run for as long as their annotation says."""
    for one in made:
        await client.create(kinds.NODES, one)
        await client.patch(
            kinds.Ref(kinds.NODES, one["metadata"]["name"]), {"status": one["status"]}, subresource="status")
    try:
        async with played(client):
            yield
    finally:
        for one in made:
            await client.delete(kinds.Ref(kinds.NODES, one["metadata"]["name"]))


@asynccontextmanager
async def played(client: Client) -> AsyncIterator[None]:
    """Pods on any node run and end meanwhile."""
    task = asyncio.create_task(Hollow(client, lambda name: True).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def fairway(
    plane: Plane, settings: Settings | None = None, *, webhook: tuple[str, int] | None = None
) -> AsyncIterator[None]:
    """The controllers, and their webhook where it has an address."""
    async with plain_transport(load([plane.kubeconfig("fairway")])) as transport:
        task = asyncio.create_task(run(transport, settings or Settings(), Clock(), Chance(), webhook=webhook))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


