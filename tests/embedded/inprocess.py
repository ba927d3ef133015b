"""An embedded server in this process, asked without sockets."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from fairway.api.admission import Refused
from fairway.clock import Clock, seeded
from fairway.embedded.access.authenticate import by_token
from fairway.embedded.access.identity import Identity
from fairway.embedded.database import Database
from fairway.embedded.kinds import builtin_kinds
from fairway.embedded.registry import Admit, Registry, admit_all
from fairway.embedded.server import Server
from fairway.embedded.store import Store
from fairway.kube.transport import Request

Thing = dict[str, Any]
KINDS = builtin_kinds()
PODS, JOBS, MAPS = ("/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs",
                    "/api/v1/namespaces/default/configmaps")
MERGE, STRATEGIC, JSON_PATCH = (
    "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json")


class Api:
    """`ask` answers (status, object); `ok` fails where the server refuses; `no` fails unless it answers that code."""

    def __init__(self, server: Server) -> None:
        self.server, self.registry, self.store = server, server.registry, server.registry.store
        self.warnings: str = ""

    async def ask(self, method: str, path: str, thing: Any = None, media: str = "application/json",
                  **query: Any) -> tuple[int, Any]:
        accept = query.pop("accept", "application/json")
        body = thing if isinstance(thing, bytes) else json.dumps(thing).encode() if thing is not None else b""
        asked = tuple((name.rstrip("_"), str(value)) for name, value in query.items())
        response = await self.server.handle(
            Request(method, path, asked, {"content-type": media, "accept": accept}, body))
        self.warnings = response.headers.get("warning", "")
        if not isinstance(response.body, bytes):
            return response.status, response.body
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.status, json.loads(response.body) if is_json else response.body

    async def ok(self, method: str, path: str, thing: Any = None, media: str = "application/json", **query: Any) -> Any:
        status, answer = await self.ask(method, path, thing, media, **query)
        assert status < 300, f"{method} {path}: {answer}"
        return answer

    async def no(self, code: int, method: str, path: str, thing: Any = None, media: str = "application/json",
                 **query: Any) -> Thing:
        status, answer = await self.ask(method, path, thing, media, **query)
        assert status == code, f"{method} {path}: {status} {answer}"
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", code)
        return answer

    async def names(self, path: str, **query: Any) -> list[str]:
        return [each["metadata"]["name"] for each in (await self.ok("GET", path, **query))["items"]]

    async def watch(self, path: str, **query: Any) -> AsyncIterator[Thing]:
        _, stream = await self.ask("GET", path, watch="1", **query)
        async with aclosing(stream):
            async for chunk in stream:
                for line in chunk.splitlines():
                    yield json.loads(line)


def api(*, database: Database | None = None, clock: Clock | None = None, admit: Admit = admit_all,
        keep: int = 10_000, tokens: Mapping[str, Identity] | None = None) -> Api:
    """`tokens`: token → user; without them everybody is the administrator."""
    registry = Registry(Store(database, keep=keep), KINDS, clock or Clock(), seeded(1), admit=admit)
    return Api(Server(registry, authenticators=[by_token(tokens)] if tokens else ()))


def pod(name: str = "p", **spec: Any) -> Thing:
    labels = spec.pop("labels", {})
    return {"metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "1"]}]} | spec}


def job(name: str = "j", **spec: Any) -> Thing:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    return {"metadata": {"name": name}, "spec": {"template": template} | spec}


def config(name: str = "c", **meta: Any) -> Thing:
    return {"metadata": {"name": name} | meta}


def widget(name: str = "c", *, version: str = "v1", **meta: Any) -> Thing:
    return {"apiVersion": f"example.com/{version}", "kind": "Widget"} | config(name, **meta)


def crd(plural: str = "widgets", *, scope: str = "Namespaced", spec: Thing | None = None, **version: Any) -> Thing:
    schema = {"type": "object", "properties": {"spec": spec or {"type": "object", "properties": {
        "size": {"type": "integer"}}}, "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}
    return {"metadata": {"name": f"{plural}.example.com"},
            "spec": {"group": "example.com", "scope": scope,
                     "names": {"plural": plural, "kind": plural.capitalize().removesuffix("s")},
                     "versions": [{"name": "v1", "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": schema}} | version]}}


def causes(status: Thing) -> dict[str, str]:
    """Field → the word for what is wrong with it."""
    return {each["field"]: each["reason"] for each in status["details"]["causes"]}


__all__ = ["Refused"]
