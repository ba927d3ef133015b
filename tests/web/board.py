"""A dashboard over a server in memory, in a few lines: objects in, its address and tokens out.

The server in memory does not judge rights. Where a test is about them, `reviewed` answers access reviews as an
authorizer would, and refuses what it does not allow.
"""

import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import click
import inprocess
import pytest

from fairway import NAMESPACE
from fairway.api.crds import crds
from fairway.api.quantities import time_text
from fairway.cli.main import cli
from fairway.clock import Clock
from fairway.embedded.access.identity import AUTHENTICATED, MASTERS, Identity
from fairway.embedded.team.rights import BINDINGS, USERS, binding, shared
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref
from fairway.kube.transport import Request, Response, Transport
from fairway.web.access import Access
from fairway.web.server import Dashboard
from fairway.web.world import World

Thing = dict[str, Any]
OWN, LINK = "own-token", "link-token"
GPU = "nvidia.com/gpu"
NOW = time_text(time.time() - 600)
"""When what runs began."""
KINDS = {it.name: it for it in (kinds.NODES, kinds.QUEUES, kinds.NODE_POOLS, kinds.WORKLOADS, kinds.JOBS,
                                kinds.LEASES, kinds.NAMESPACES, kinds.PRIORITY_CLASSES, kinds.RESERVATIONS,
                                kinds.USAGE_DAYS, kinds.PODS, kinds.EVENTS)}  # fmt: skip


def node(name: str, gpus: int = 8, *, chooses: bool = True, **spec: Any) -> Thing:
    labels = {"fairway.dev/devices": "Scheduler"} if chooses else {}
    ready = [{"type": "Ready", "status": "True"}]
    offered = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(gpus)}
    status = {"capacity": offered, "allocatable": offered, "conditions": ready}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def queue(name: str, guaranteed: int = 8, **spec: Any) -> Thing:
    quotas = [{"pool": "*", "guaranteed": {GPU: guaranteed}} | spec.pop("quota", {})]
    return {"kind": "Queue", "metadata": {"name": name}, "spec": {"quotas": quotas} | spec}


def revocable(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], dict[str, Any]]:
    """The namespaces that ann may see, asked again at once when some are taken away, and the users of such a board."""
    monkeypatch.setattr("fairway.web.access.FRESH_SECONDS", 0.1)
    allowed = {"nlp", "vision"}
    return allowed, {"users": ("ann",), "allows": lambda user, resource, space: space in allowed}


def workload(key: str, queue: str, gpus: int = 1, **said: Any) -> Thing:
    """`at`: node and devices, as `n1[0,1]`; what is not said otherwise waits."""
    space, _, name = key.partition("/")
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}}
    podset = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queue": queue, "user": said.pop("user", "ann"), "podSets": [podset]} | said.pop("spec", {})
    own = said.pop("status", {})
    status = {"phase": "Pending", "position": 1} | own
    if where := said.pop("at", ""):
        on, _, devices = where.removesuffix("]").partition("[")
        share = {"node": on, "count": 1} | ({"devices": [[int(it) for it in devices.split(",")]]} if devices else {})
        turned = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": NOW}
        conditions = [{"type": it} | turned for it in ("Admitted", "Running")]
        admission = {"pool": "default", "podSets": [{"name": "main", "nodes": [share]}]}
        status = {"phase": "Running", "attempt": 1, "conditions": conditions, "admission": admission} | own
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name.removeprefix("job-"), "uid": f"u-{name}"}
    meta = {"name": name, "namespace": space, "ownerReferences": [owner] if name.startswith("job-") else []}
    return {"kind": "Workload", "metadata": meta, "spec": spec, "status": status}


def lease(renewed: float, namespace: str = "fairway-system") -> Thing:
    spec = {"holderIdentity": "one", "renewTime": time_text(renewed), "leaseDurationSeconds": 15}
    return {"kind": "Lease", "metadata": {"name": "fairway-controller", "namespace": namespace}, "spec": spec}


def understood(line: str) -> None:
    """Raises click's UsageError where the command line does not fit the command that it names."""
    name, *words = shlex.split(line.removeprefix("kubectl ").removeprefix("fairway "))
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, line
    command.make_context(name, words, **cli.context_settings)


@dataclass
class Board:
    """`address` of the dashboard; `client` is the administrator's, of the API server."""

    address: str
    client: Client
    session: aiohttp.ClientSession
    world: World
    asked: list[Request]

    async def put(self, *things: Thing) -> None:
        """Makes the objects, or gives those that are there this spec and status."""
        for thing in things:
            kind, meta = KINDS[thing["kind"]], thing["metadata"]
            ref = Ref(kind, meta["name"], meta.get("namespace", ""))
            whole = {"apiVersion": kind.group_version} | {it: thing[it] for it in thing if it != "status"}
            if await self.client.find(ref) is None:
                await self.client.create(kind, whole, namespace=ref.namespace)
            else:
                await self.client.patch(ref, whole)
            if "status" in thing:
                found = await self.client.get(ref)
                await self.client.update(ref, found | {"status": thing["status"]}, subresource="status")

    async def stream(self, view: str, token: str = LINK, last: str = "") -> AsyncIterator[tuple[str, str, Thing]]:
        """The messages of a stream: number, kind, content."""
        headers = {"authorization": f"Bearer {token}"} | ({"last-event-id": last} if last else {})
        async with self.session.get(f"{self.address}/stream", params={"at": view}, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            held = b""
            async for chunk in answer.content.iter_any():
                *parts, held = (held + chunk).split(b"\n\n")
                for part in parts:
                    fields = dict(line.split(": ", 1) for line in part.decode().split("\n"))
                    yield fields.get("id", ""), fields["event"], json.loads(fields["data"])

    async def page(self, view: str, token: str = LINK) -> str:
        """All that a viewer is sent first, as one text."""
        stream = self.stream(view, token)
        try:
            async for _, kind, content in stream:
                assert kind == "page"
                rows = [row for part in content["lists"].values() for row in part["rows"].values()]
                return "\n".join([content["frame"], *rows])
        finally:
            await stream.aclose()
        raise AssertionError("the stream ended")

    async def act(self, action: str, *keys: str, value: str = "", token: str = LINK) -> tuple[int, Thing]:
        asked = {"action": action, "workloads": list(keys), "value": value}
        headers = {"authorization": f"Bearer {token}"}
        async with self.session.post(f"{self.address}/act", json=asked, headers=headers) as answer:
            return answer.status, await answer.json()


Allows = Callable[[str, str, str], bool]
"""User, resource and namespace ("" for all) → whether that user may list and change it."""


def reviewed(transport: Transport, users: Mapping[str, str], allows: Allows) -> Transport:
    async def exchange(request: Request) -> Response:
        user = users.get(request.headers.get("authorization", "").removeprefix("Bearer "), "admin")
        if request.path.endswith("/selfsubjectaccessreviews"):
            said = json.loads(request.body)["spec"]["resourceAttributes"]
            allowed = user == "admin" or allows(user, said["resource"], said.get("namespace", ""))
            body = json.dumps({"status": {"allowed": allowed}}).encode()
            return Response(201, {"content-type": "application/json"}, body)
        parts = request.path.split("/namespaces/")
        space = parts[1].partition("/")[0] if len(parts) > 1 else ""
        if user != "admin" and space and not allows(user, "workloads", space):
            body = json.dumps({"code": 403, "reason": "Forbidden", "message": f"{user} may not"}).encode()
            return Response(403, {"content-type": "application/json"}, body)
        return await transport(request)

    return exchange


@asynccontextmanager
async def board(
    *things: Thing, users: Iterable[str] = (), allows: Allows | None = None, homes: Mapping[str, str] | None = None,
    **serve: Any
) -> AsyncIterator[Board]:
    """A user's token is the user's name. `homes`: user → namespace; these have the rights of a team's machine, which
    the API server knows, and no others."""
    names = {OWN: "admin"} | {name: name for name in users}
    known = {token: Identity(name, (MASTERS,)) for token, name in names.items()}
    known |= {name: Identity(name, (USERS, AUTHENTICATED)) for name in homes or ()}
    api, asked = inprocess.api(tokens=known), list[Request]()
    await api.server.start()
    handle = reviewed(api.server.handle, names, allows) if allows else api.server.handle

    async def noted(request: Request) -> Response:
        asked.append(request)
        return await handle(request)

    def own(transport: Transport) -> Transport:
        async def exchange(request: Request) -> Response:
            headers = {**request.headers, "authorization": f"Bearer {OWN}"}
            return await transport(Request(request.method, request.path, request.query, headers, request.body))

        return exchange

    client = Client(own(api.server.handle), Clock())
    for definition in crds():
        await client.create(kinds.DEFINITIONS, definition)
    world = World(Client(own(noted), Clock()), "default")
    dashboard = Dashboard(world, Access(world, LINK, noted), **serve)
    async with dashboard.serve() as address, aiohttp.ClientSession() as session:
        made = Board(address, client, session, world, asked)
        own = {NAMESPACE} if homes else set[str]()
        spaces = sorted(own | {it["metadata"]["namespace"] for it in things if "namespace" in it["metadata"]})
        await made.put(*({"kind": "Namespace", "metadata": {"name": it}} for it in spaces if it != "default"), *things)
        for kind, thing in shared() if homes else ():
            await client.ensure(kind, thing)
        for user, space in (homes or {}).items():
            await client.ensure(BINDINGS, binding(space, user))
        yield made
    await api.store.close()
