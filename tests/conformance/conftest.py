"""Which API server the suite speaks to, and the client that it asks with.

FAIRWAY_CONFORMANCE_KUBECONFIG names a cluster. Without it KUBEBUILDER_ASSETS names a folder with etcd and
kube-apiserver, which are started, with kube-controller-manager where it is there too; without that a bare embedded
server is (serve.py). Tests marked `whole_cluster` need pods that run: they go to the named cluster if it has a ready
node, to the programs of KUBEBUILDER_ASSETS if kube-scheduler is among them, with this machine as a node (kubelet.py),
else to `fairway up`. Every test has a namespace of its own. Nothing here knows how the servers are made, only their
answers.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from yarl import URL

from fairway.clock import Clock
from fairway.kube.config import Credentials, load
from fairway.kube.plain import tls

Thing = dict[str, Any]
HERE = Path(__file__).parent
PATIENCE_SECONDS = 60.0
CONTROLLERS = ",".join((
    "job-controller", "garbage-collector-controller", "namespace-controller", "ttl-after-finished-controller",
    "replicaset-controller", "deployment-controller", "statefulset-controller", "cronjob-controller",
    "clusterrole-aggregation-controller", "serviceaccount-controller"))


@dataclass(frozen=True)
class Cluster:
    """`collects`: owner references and namespaces are acted on. `has_logs`: those of pods can be read. `etcd`: where
    its store can be compacted."""

    kubeconfig: Path
    collects: bool = True
    has_logs: bool = True
    etcd: str = ""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def thing(self) -> Thing:
        return json.loads(self.body)


class Api:
    """Asks, and says what came back. The verbs fail unless the server agrees; `refused` fails unless it does not."""

    MERGE, STRATEGIC, JSON = (
        "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json")

    def __init__(self, session: aiohttp.ClientSession, server: str, headers: dict[str, str], cluster: Cluster) -> None:
        self.session, self.server, self.headers, self.cluster = session, server, headers, cluster

    async def ask(self, method: str, path: str, thing: Any = None, *, media: str = "application/json",
                  accept: str = "application/json", known: bool = True, **query: Any) -> Answer:
        body = thing if isinstance(thing, bytes | None) else json.dumps(thing).encode()
        headers = {"accept": accept} | (self.headers if known else {}) | ({"content-type": media} if body else {})
        async with self.session.request(method, self._url(path, query), data=body, headers=headers) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    def _url(self, path: str, query: dict[str, Any]) -> URL:
        text = urlencode({name.rstrip("_"): value for name, value in query.items() if value is not None})
        return URL(f"{self.server}{path}{'?' + text if text else ''}", encoded=True)

    async def get(self, path: str, **query: Any) -> Thing:
        return await self._agreed("GET", path, **query)

    async def create(self, path: str, thing: Thing, **query: Any) -> Thing:
        return await self._agreed("POST", path, thing, **query)

    async def replace(self, path: str, thing: Thing, **query: Any) -> Thing:
        return await self._agreed("PUT", path, thing, **query)

    async def patch(self, path: str, patch: Any, media: str = MERGE, **query: Any) -> Thing:
        return await self._agreed("PATCH", path, patch, media=media, **query)

    async def delete(self, path: str, options: Thing | None = None, **query: Any) -> Thing:
        return await self._agreed("DELETE", path, options, **query)

    async def _agreed(self, method: str, path: str, thing: Any = None, **how: Any) -> Thing:
        answer = await self.ask(method, path, thing, **how)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body.decode()}"
        return answer.thing

    async def refused(self, code: int, method: str, path: str, thing: Any = None, **how: Any) -> Thing:
        """The Status of a refusal."""
        answer = await self.ask(method, path, thing, **how)
        assert answer.status == code, f"{method} {path}: {answer.status}, not {code}: {answer.body.decode()}"
        status = answer.thing
        assert (status["kind"], status["apiVersion"], status["status"], status["code"]) == (
            "Status", "v1", "Failure", code)
        return status

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = "application/json", **query: Any) -> AsyncIterator["Watch"]:
        headers = {"accept": accept} | self.headers
        async with self.session.get(self._url(path, {"watch": "true"} | query), headers=headers) as answer:
            yield Watch(answer)

    async def until(self, path: str, name: str, test: Callable[[Thing | None], bool]) -> Thing | None:
        """The object called `name` of the collection at `path`, or None, as soon as `test` says yes to it."""
        found = await self.get(path, fieldSelector=f"metadata.name={name}")
        thing = found["items"][0] if found["items"] else None
        version = found["metadata"]["resourceVersion"]
        async with self.watch(path, fieldSelector=f"metadata.name={name}", resourceVersion=version) as changes:
            while not test(thing):
                change = await changes.next()
                thing = None if change["type"] == "DELETED" else change["object"]
        return thing

    async def gone(self, path: str, name: str) -> None:
        await self.until(path, name, lambda thing: thing is None)


class Watch:
    """The events of a watch, one by one; a refusal is its first event."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer, self._rest, self._refused = answer, b"", answer.status >= 400

    async def next(self, seconds: float = PATIENCE_SECONDS) -> Thing:
        event = await asyncio.wait_for(self._read(), seconds)
        assert event is not None, "the watch ended"
        return event

    async def all(self) -> list[Thing]:
        """Every event until the server ends the watch."""
        return [event async for event in self]

    async def __aiter__(self) -> AsyncIterator[Thing]:
        while (event := await asyncio.wait_for(self._read(), PATIENCE_SECONDS)) is not None:
            yield event

    async def _read(self) -> Thing | None:
        if self._refused:
            self._refused = False
            return {"type": "ERROR", "object": await self._answer.json(content_type=None)}
        while b"\n" not in self._rest:
            chunk = await self._answer.content.readany()
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


# -- clusters

@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    named, assets = os.environ.get("FAIRWAY_CONFORMANCE_KUBECONFIG"), os.environ.get("KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        if named:
            yield Cluster(Path(named))
        elif assets:
            yield stack.enter_context(_kube_apiserver(Path(assets), folder))
        else:
            yield stack.enter_context(_embedded([sys.executable, str(HERE / "serve.py"), str(folder)]))


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that runs pods."""
    if os.environ.get("FAIRWAY_CONFORMANCE_KUBECONFIG"):
        cluster = request.getfixturevalue("cluster")
        if not asyncio.run(_has_ready_node(cluster)):
            pytest.skip("the cluster has no ready node")
        yield cluster
    elif assets := os.environ.get("KUBEBUILDER_ASSETS"):
        with _kubernetes(Path(assets), tmp_path_factory.mktemp("whole")) as cluster:
            yield cluster
    else:
        program = [sys.executable, "-m", "fairway.cli.main", "up", "--port", "0", "--cpus", "4", "--memory", "4Gi"]
        with _embedded([*program, "--data-dir", str(tmp_path_factory.mktemp("whole"))]) as cluster:
            yield cluster


@contextmanager
def _embedded(command: list[str]) -> Iterator[Cluster]:
    """Served by a program that prints its kubeconfig's path, and ends with its standard input or at a signal."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            words = (word for line in process.stdout for word in line.split())
            path = next((Path(word) for word in words if word.endswith("kubeconfig")), None)
            if path is None:
                pytest.fail(f"{' '.join(command)} ended before it served")
            yield Cluster(path)
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@contextmanager
def _kube_apiserver(assets: Path, folder: Path) -> Iterator[Cluster]:
    client, peer, secure = _free_ports(3)
    etcd, key = f"http://127.0.0.1:{client}", folder / "accounts.key"
    key.write_bytes(rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()))
    (folder / "tokens.csv").write_text('secret,admin,admin,"system:masters"\n')
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "it", "user": {"token": "secret"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))
    commands = (
        [assets / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", etcd,
         "--advertise-client-urls", etcd, "--listen-peer-urls", f"http://127.0.0.1:{peer}"],
        [assets / "kube-apiserver", "--etcd-servers", etcd, "--secure-port", str(secure),
         "--cert-dir", folder / "certs", "--authorization-mode", "RBAC", "--token-auth-file", folder / "tokens.csv",
         "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
         "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/24",
         "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"])
    manager = assets / "kube-controller-manager"
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(_program(folder, *command))
        asyncio.run(_ready(kubeconfig))
        if manager.exists():
            stack.enter_context(_program(
                folder, manager, "--kubeconfig", kubeconfig, "--leader-elect=false", "--secure-port=0",
                "--use-service-account-credentials=false", f"--controllers={CONTROLLERS}"))
        yield Cluster(kubeconfig, collects=manager.exists(), has_logs=False, etcd=etcd)


@contextmanager
def _kubernetes(assets: Path, folder: Path) -> Iterator[Cluster]:
    """A control plane, and this machine as its node."""
    if not (assets / "kube-scheduler").exists():
        pytest.skip("a bare API server runs no pods")
    with _kube_apiserver(assets, folder) as cluster, _program(
        folder, assets / "kube-scheduler", "--kubeconfig", cluster.kubeconfig, "--leader-elect=false",
        "--secure-port=0"), _program(folder, sys.executable, HERE / "kubelet.py", cluster.kubeconfig, folder / "node"):
        end = time.monotonic() + PATIENCE_SECONDS
        while not asyncio.run(_has_ready_node(cluster)):
            assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
        yield cluster


@contextmanager
def _program(folder: Path, *command: object) -> Iterator[None]:
    """Runs beside the tests."""
    with open(folder / "log", "a") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@asynccontextmanager
async def _connected(cluster: Cluster) -> AsyncIterator[Api]:
    config = load([cluster.kubeconfig])
    credentials = Credentials(config, Clock())
    connector = aiohttp.TCPConnector(ssl=tls(config, await credentials.certificate()) or False, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=2 * PATIENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Api(session, config.server, await credentials.headers(), cluster)


async def _ready(kubeconfig: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    async with _connected(Cluster(kubeconfig)) as api:
        while time.monotonic() < end:
            try:
                if (await api.ask("GET", "/readyz")).status == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
    pytest.fail("kube-apiserver did not become ready")


async def _has_ready_node(cluster: Cluster) -> bool:
    async with _connected(cluster) as api:
        return await _runs_pods(api)


async def _runs_pods(api: Api) -> bool:
    nodes = (await api.get("/api/v1/nodes"))["items"]
    return any(each["type"] == "Ready" and each["status"] == "True"
               for node in nodes for each in node.get("status", {}).get("conditions", ()))


# -- what tests ask for

@pytest.fixture
def asked(request: pytest.FixtureRequest) -> Cluster:
    """The cluster of this test."""
    marked = request.node.get_closest_marker("whole_cluster")
    return request.getfixturevalue("whole" if marked else "cluster")


@pytest.fixture
def collecting(asked: Cluster) -> None:
    if not asked.collects:
        pytest.skip("a bare kube-apiserver does not act on owner references, namespaces and roles")


@pytest.fixture
def logs(asked: Cluster) -> None:
    if not asked.has_logs:
        pytest.skip("there is no kubelet to read logs from")


@pytest.fixture
async def api(asked: Cluster) -> AsyncIterator[Api]:
    async with _connected(asked) as connected:
        yield connected


@pytest.fixture
async def unattended(api: Api) -> None:
    if await _runs_pods(api):
        pytest.skip("where pods run, those of nodes that are not there are taken away")


@pytest.fixture
async def namespace(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A new namespace; where no pods are to run, one that Fairway leaves alone."""
    labels = {} if request.node.get_closest_marker("whole_cluster") else {"fairway.dev/managed": "false"}
    made = await api.create("/api/v1/namespaces", {"metadata": {"generateName": "conformance-", "labels": labels}})
    yield made["metadata"]["name"]
    await api.ask("DELETE", f"/api/v1/namespaces/{made['metadata']['name']}")


@pytest.fixture
def maps(namespace: str) -> str:
    """The ConfigMaps of the test's namespace: where nothing else writes."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


@pytest.fixture
def forget(asked: Cluster) -> Callable[[str], None]:
    """Makes a kube-apiserver's etcd forget what was before that version; other servers forget by themselves."""
    def compact(version: str) -> None:
        if asked.etcd:
            body = json.dumps({"revision": version, "physical": True}).encode()
            request = UrlRequest(f"{asked.etcd}/v3/kv/compaction", body, {"content-type": "application/json"})
            urlopen(request, timeout=10).close()

    return compact


# -- kubectl

@dataclass(frozen=True)
class Kubectl:
    program: str
    minor: int
    cluster: Cluster
    namespace: str
    home: Path

    @contextmanager
    def start(self, *words: str, **environ: str) -> Iterator[subprocess.Popen]:
        """Runs beside what is done in the meantime, half a minute at most, and is ended with it."""
        command = [self.program, f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={self.namespace}",
                   "--request-timeout=30s", *words]
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], **environ}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=environ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def __call__(self, *words: str, stdin: str = "", code: int = 0, **environ: str) -> str:
        """What it printed, warnings and errors too; fails unless it ends with that code."""
        with self.start(*words, **environ) as process:
            out, err = process.communicate(stdin, timeout=2 * PATIENCE_SECONDS)
        assert process.returncode == code, f"kubectl {' '.join(words)}: {process.returncode}\n{out}{err}"
        return out + err

    def apply(self, *things: Thing, code: int = 0) -> str:
        return self("apply", "-f", "-", stdin="\n".join(map(json.dumps, things)), code=code)


@pytest.fixture(scope="session")
def program() -> tuple[str, int]:
    """kubectl, and which minor version it is."""
    found = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if not found:
        pytest.skip("there is no kubectl on the PATH")
    told = subprocess.run([found, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(told.stdout)["clientVersion"]
    minor = int(version["minor"].rstrip("+"))
    if minor < 27:
        pytest.skip(f"kubectl {version['gitVersion']} is older than 1.27")
    return found, minor


@pytest.fixture
async def kubectl(program: tuple[str, int], asked: Cluster, namespace: str, home: Path) -> Kubectl:
    return Kubectl(*program, asked, namespace, home)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it discovered."""
    return tmp_path_factory.mktemp("home")
