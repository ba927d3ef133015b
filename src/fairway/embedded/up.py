"""`fairway up`: the embedded cluster in one process, put together from its parts; `down` ends it.

The data directory holds everything: database, identity, kubeconfig, the folders of pods, and `lock`, which the process
holds while it lives; so there is one at a time, and its pid is found through the lock. Whatever ends the process, the
next one finds objects and containers as they are. Ended in order (Ctrl-C, SIGTERM, `down`), it stops the containers
first, each with its grace; they have no outcome by that and are started again by the next `up`, where they keep their
place. Asked a second time, it does not wait for the grace. With LEAVE_PODS it ends without stopping any: they run on,
and the next `up` finds them, as after a kill; so an upgrade or a backup interrupts no work.

What decides is not here: `control` is given a transport to this server, as a user of its own, and run beside the rest.
It sends the requests that it would send to any other server; no socket is between them, since most of what a short job
cost was its TLS.
"""

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fairway import NAMESPACE
from fairway.api.crds import crds
from fairway.api.names import BY_PODMAN
from fairway.api.objects import CAN_PAUSE, GROUP, HOLLOW, TO_DISK, WENT_DOWN
from fairway.clock import Chance, Clock
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Transport
from fairway.node.archive import Bounds
from fairway.node.claim import claimed
from fairway.node.container import stop_all
from fairway.node.containers.engine import EngineError, engine
from fairway.node.downtime import downtime, note_end
from fairway.node.hollow import Hollow
from fairway.node.idle import watch as watch_idle
from fairway.node.isolation.account import tenants
from fairway.node.isolation.limits import hierarchies
from fairway.node.isolation.outside import Mirror, strangers
from fairway.node.machine import Machine, NodesError, beat, gpus, node_of, nodes_of, offered, probe, register
from fairway.node.measure import Looks, used, watch
from fairway.node.packed import attempt_of
from fairway.node.pause.disk import can_save
from fairway.node.podstatus import SHUTDOWN, TERMINAL
from fairway.node.pressure import watch_memory
from fairway.node.runner import Runner
from fairway.settings import MOST_PORTS

from .access.authenticate import by_token
from .access.identity import ADMIN, controller
from .access.tokens import Tokens
from .apps import APPS
from .autoscale.control import Autoscalers
from .database import Database, Unusable
from .datadir import LEAVE_PODS, UpError, held, small_text
from .disk import RESERVE_BYTES
from .gate import CONTROLLER, gate
from .heap import give_back
from .http import HttpServer
from .jobs import Jobs
from .keys import Keys, keys, write_private
from .kinds import builtin_kinds
from .offer import FLAGS, OfferError, remembered
from .registry import Registry
from .server import Server
from .services.carry import Carrier
from .services.control import Services
from .store import Compacted, Key, Store
from .team import ready
from .team.door import Address, Door, Team, listen
from .team.rights import shared

GC_THRESHOLD = (30_000, 7, 50)  # more than a decision on 5,000 that wait makes; at 700, Python's own, it takes a fifth
SWITCH_SECONDS = 0.001  # Python's default of 5 ms is what each commit and request would wait for a decision's thread
OBSERVING_SECONDS, LOOK_SECONDS = 2.0, 0.05
WORKLOADS = f"workloads.{GROUP}"

Control = Callable[[Transport], Awaitable[None]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """`port` 0: the one of last time, if it is free. `cpus`, `memory`, `fake_gpus`, `containers`: what is empty is as
    at the last start, `own` as the machine has it (`offer`): containers are its processes."""

    data_dir: Path
    port: int = 0
    cpus: str = ""
    memory: str = ""
    fake_gpus: str = ""
    containers: str = ""
    nodes: Path | None = None
    job_ttl: float | None = None  # see `gate`
    logs: Bounds | None = None
    team: Team | None = None


async def up(options: Options, *, clock: Clock, chance: Chance, control: Control) -> None:
    """Runs the cluster until it is told to stop; `control` runs from when it is ready."""
    folder = options.data_dir
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_SECONDS)
    with held(folder):
        try:
            said = {name: getattr(options, name) for name in FLAGS}
            with _told(folder):
                options = replace(options, **remembered(folder, said))
                down = downtime(folder, clock.now())  # before the database is touched, whose age tells
            if options.team and options.containers:
                raise OfferError("--containers: a team's pods run as processes of their users; leave out --team, or use"
                                 " --containers processes")
            fakes = int(options.fake_gpus) if options.fake_gpus else None
            if made := engine(options.containers, os.environ, {}):
                await made.tried()
            machine = offered(probe(folder), cpus=options.cpus, memory=options.memory, fake_gpus=fakes)
            hollow = nodes_of(options.nodes, clock.now(), machine=machine.name) if options.nodes else []
            database = Database(str(folder / "state.db"), reserve=RESERVE_BYTES)
        except (Unusable, NodesError, OfferError, EngineError) as error:
            raise UpError(str(error)) from error
        store = Store(database)
        registry = Registry(store, builtin_kinds(), clock, chance, admit=gate(store, clock, job_ttl=options.job_ttl))
        with claimed((*machine.gpus, *machine.cards), folder) as claims:
            for line in claims.missing:
                log.warning("%s", line)
            with _told(folder):
                cluster = _Cluster.of(options, registry, claims.left_of(machine))
            for node in (cluster.node, *hollow) if down.note else ():
                node["metadata"]["annotations"][WENT_DOWN] = down.note
            async with cluster.serve(options.port, hollow):
                await cluster.run(control)


@dataclass(frozen=True, slots=True)
class _Cluster:
    folder: Path
    server: Server
    keys: Keys
    node: dict[str, Any]
    runner: Runner
    client: Callable[[str], Client]
    transport: Transport  # of what decides
    tokens: Tokens
    team: Team | None
    own_gpus: frozenset[int]  # not pretended ones

    @classmethod
    def of(cls, options: Options, registry: Registry, machine: Machine) -> "_Cluster":
        clock, chance, folder = registry.clock, registry.chance, options.data_dir
        own = keys(folder, now=clock.now(), chance=chance)
        tokens = Tokens(own.signing, clock, chance)
        server = Server(registry, authenticators=[by_token({own.token: ADMIN})], tokens=tokens)

        def client(name: str) -> Client:
            return Client(server.spoken_by(controller(name)), clock, chance)

        node, pods = node_of(machine, clock.now()), folder / "pods"
        pods.mkdir(mode=0o700, exist_ok=True)
        tenant, limits = tenants(client("runner")) if options.team else None, hierarchies()
        node["status"]["conditions"].append(limits.condition(clock.now()))
        if options.containers:
            node["status"]["nodeInfo"]["containerRuntimeVersion"] = BY_PODMAN
        if can_save(of_others=options.team):
            node["metadata"]["annotations"][CAN_PAUSE] = TO_DISK
        if limits.missing:
            log.warning("%s", limits.missing)
        files = {it.index: it.file for it in gpus() if it.file} if options.team or options.containers else {}
        runner = Runner(client("runner"), node, pods, base=os.environ, bounds=options.logs,
                        tenant=tenant, limits=limits, device_files=files if options.team else {}, cards=machine.cards,
                        engine=engine(options.containers, os.environ, files))  # fmt: skip
        server.kubelet = runner
        return cls(folder, server, own, node, runner, client, server.spoken_by(CONTROLLER),
                   tokens, options.team, frozenset(it.index for it in machine.gpus if it.uuid))  # fmt: skip

    @asynccontextmanager
    async def serve(self, port: int, hollow: Sequence[dict[str, Any]]) -> AsyncIterator[None]:
        """Serves, with what every cluster has."""
        await self.server.start()
        http, door = await self._listen(port), None
        try:
            door = _opened_door(self.team)
            async with asyncio.TaskGroup() as tasks:
                tending = [tasks.create_task(self.server.tend())]
                client = self.client("setup")
                for definition in crds():
                    await _apply(client, kinds.DEFINITIONS, definition)
                await _apply(client, kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}, "spec": {}})
                for node in (self.node, *hollow):
                    await register(client, node)
                if self.team and door:
                    users = await self._let_users_in(self.team, http, door)
                    tending.append(tasks.create_task(users.keep_current()))
                yield
                for task in tending:
                    task.cancel()
        finally:
            await http.stop()
            if self.team and door:
                self.team.socket.unlink(missing_ok=True)

    async def _let_users_in(self, team: Team, http: HttpServer, listener: socket.socket) -> Door:
        """Answers the users of the machine on this socket."""
        client = self.client("setup")
        for kind, thing in shared():
            await _apply(client, kind, thing)
        address = Address(f"https://127.0.0.1:{http.port}", self.keys.authority, self.folder / "page")
        door = Door(self.server.handle, client, self.tokens, address, team=team)
        self.server.renew = door.renewed
        http.open(listener, door.handle)
        return door

    async def _listen(self, port: int) -> HttpServer:
        """On `port`, else on the one of last time, so that copies of the kubeconfig stay good, else on any."""
        for each in [port] if port else [_last_port(self.folder), 0]:
            http = HttpServer(self.server, tls=self.keys.tls(), port=each)
            try:
                await http.start()
            except OSError as error:
                if each == port or not each:
                    why = f"port {each} cannot be used: {error.strerror}; choose another with --port"
                    raise UpError(why) from error
                continue
            with _told(self.folder):
                write_private(self.folder / "port", str(http.port))
                self.keys.write_kubeconfig(http.port)
            return http
        raise AssertionError("the last try returns or raises")

    async def run(self, control: Control) -> None:
        """Until a signal says to stop; then the containers are stopped, unless it was LEAVE_PODS."""
        stopping, leaving = self._heeded()
        parts = await self._parts(control)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(part) for part in parts]
            with suppress(TimeoutError, Compacted):
                await self.runner.clock.within(OBSERVING_SECONDS, self._observe())
            write_private(self.folder / "ready", str(os.getpid()))
            ready.tell()
            await self.server.registry.store.full_disk()
            await stopping.wait()
            for task in running:
                task.cancel()
        if not leaving.is_set():
            await self.runner.clock.in_thread(self._stop)
            note_end(self.folder / "pods", self.runner.clock.now())

    def _stop(self, at_most: float | None = None) -> None:
        """Ends the containers; each has its own grace, but not more seconds than these."""
        stop_all(self.folder / "pods", SHUTDOWN, at_most=at_most)

    def _heeded(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Set when a signal says to stop; when one says to leave the containers. A second one ends those at once."""
        stopping, leaving, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        def asked() -> None:
            if stopping.is_set():
                loop.run_in_executor(None, self._stop, 0.0)
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup means it
                loop.add_signal_handler(number, asked)
        loop.add_signal_handler(LEAVE_PODS, lambda: (leaving.set(), stopping.set()))
        return stopping, leaving

    async def _parts(self, control: Control) -> list[Coroutine[Any, Any, None]]:
        """All that runs beside the server. What others use of the GPUs is told before any is given away."""
        name, nodes = self.node["metadata"]["name"], await self.client("hollow").list(Selection(kinds.NODES))
        hollow = {it["metadata"]["name"] for it in nodes if HOLLOW in (it["metadata"].get("annotations") or {})}
        mirror = Mirror(self.client("node"), name, self.own_gpus, partial(strangers, pods=self.folder / "pods"))
        await mirror.tell(await self.runner.clock.in_thread(used))
        carrier, looks = Carrier(self.client("service-proxy"), self.runner), Looks()
        return [
            Jobs(self.client("job-controller")).run(),
            *(make(self.client(f"{make.kind.name.lower()}-controller")).run() for make in APPS),
            self.runner.run(),
            carrier.run(),
            Autoscalers(self.client("horizontal-pod-autoscaler")).run(),
            Services(self.client("endpoint-controller"), carrier.carry).run(),
            Hollow(self.client("hollow"), hollow.__contains__).run(),
            beat(self.client("node"), name),
            watch_memory(self.client("node"), name),
            *([watch(self.client("node"), name, looks, mirror.tell)] if self.own_gpus else ()),
            watch_idle(self.client("node"), self.runner.pods, self.runner.dealer, lambda: looks.uses),
            give_back(self.runner.clock, lambda: self.server.registry.store.revision),
            self._decided(control),
        ]

    async def _decided(self, control: Control) -> None:
        """Runs `control` when pods that ended while this cluster was down are known to have: what it sees running then
        was lost with the machine."""
        with suppress(TimeoutError):
            await self.runner.clock.within(OBSERVING_SECONDS, self._looked())
        await control(self.transport)

    async def _looked(self) -> None:
        await self.runner.informer.synced.wait()
        await self.runner.agenda.settled()

    async def _observe(self) -> None:
        """Until what ended while this cluster was down is over by its status, which lists show."""
        store = self.server.registry.store
        began = store.revision
        await self._looked()
        pods = (msgspec.json.decode(it.value) for it in store.since(began, "pods") if not it.gone)
        ended = {_workload_of(pod) for pod in pods if pod["status"].get("phase") in TERMINAL}
        ended -= set(map(_workload_of, self.runner.pods()))
        while any(_is_running(store, key) for key in ended):
            await self.runner.clock.sleep(LOOK_SECONDS)


def _workload_of(pod: dict[str, Any]) -> Key:
    return Key(WORKLOADS, pod["metadata"]["namespace"], attempt_of(pod).partition("/")[0])


def _is_running(store: Store, workload: Key) -> bool:
    entry = store.get(workload)
    return entry is not None and msgspec.json.decode(entry.value).get("status", {}).get("phase") == "Running"


def _opened_door(team: Team | None) -> socket.socket | None:
    """The socket of a team's users; None where there is no team."""
    try:
        return listen(team.socket) if team else None
    except OSError as error:
        assert team is not None
        raise UpError(f"{team.socket} cannot be the team's socket: {error.strerror}") from error


async def _apply(client: Client, kind: kinds.Kind, value: dict[str, Any]) -> None:
    """Makes an object, or makes the one there is the same."""
    try:
        await client.create(kind, value)
    except ApiError as error:
        if error.status != 409:
            raise
        meta = value["metadata"]
        changed = {name: part for name, part in value.items() if name != "metadata"}
        await client.patch(Ref(kind, meta["name"], meta.get("namespace", "")), changed)


def _last_port(folder: Path) -> int:
    """The port of last time; 0 where the file holds none."""
    last = small_text(folder / "port")
    is_port = re.fullmatch("[0-9]{1,5}", last, re.ASCII) and int(last) <= MOST_PORTS
    return int(last) if is_port else 0


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Makes a file that cannot be read or written one line."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or folder
        raise UpError(f"{where} cannot be used: {error.strerror}; move it away, or check the disk and the permissions "
                      f"of {folder}") from error
