"""The embedded API server: `handle` answers a request. No sockets; `http` adapts it to them.

It is a Transport: tests, simulation and the controllers of the same process may call it directly, under any clock. A
write is answered when it is committed, in the order in which writes were staged; reads see what is committed. Who
asks, its authenticators tell; controllers of the same process use `spoken_by`.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from fairway.api.objects import CANCELLED
from fairway.embedded import attach, execute, logs, metrics, reading, scale, subresources, writing
from fairway.embedded.access import accounts, reviews, roles, sight
from fairway.embedded.access.ask import asked
from fairway.embedded.access.authenticate import Authenticator, identify, known, speaker
from fairway.embedded.access.identity import ACCOUNT, ADMIN, Identity
from fairway.embedded.access.tokens import ISSUER, Tokens
from fairway.embedded.budgets import keep_counts
from fairway.embedded.call import APPLY_YAML, Call, read
from fairway.embedded.collect import Collector
from fairway.embedded.database import Full
from fairway.embedded.discovery import discover
from fairway.embedded.disk import usage
from fairway.embedded.errors import Failure, bad_request, method_not_allowed, no_such_path
from fairway.embedded.forward import tunnel
from fairway.embedded.gate import CONTROLLER
from fairway.embedded.patch import configuration
from fairway.embedded.registry import Registry, Write
from fairway.embedded.store import TooLarge, encode
from fairway.kube.transport import Request, Response, Transport

log = logging.getLogger(__name__)
_SYSTEM = f"{ACCOUNT}kube-system:"
GROWING = ("pods", "events", "events.events.k8s.io")
RECORD = encode(CANCELLED)  # the reason of an event that lists of what ended need
SEATS = 2  # writes of controllers at once while a person's is under way; each commit serves as many
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HEALTH = ("/healthz", "/livez", "/readyz")
_LATER = {
    "proxy": "`kubectl port-forward` leads to a port of a pod",
    "ephemeralcontainers": "`kubectl exec` runs a program in a pod",
    "resize": "a pod keeps what it requests; change what makes it, or make it anew",
}

_STREAMS: Mapping[str, logs.Verb] = {
    "pods/exec": execute.execute, "pods/attach": attach.attach, "pods/portforward": tunnel.forward,
}

Verb = Callable[[Registry, Call], Response]
_ONE: Mapping[str, Verb] = {"GET": reading.get, "PUT": writing.update, "PATCH": writing.patch, "DELETE": writing.delete}
_MANY: Mapping[str, Verb] = {"GET": reading.list_, "POST": writing.create, "DELETE": writing.delete_collection}
_PARTS: Mapping[str, Mapping[str, Verb]] = {
    "status": {"GET": reading.get, "PUT": writing.update, "PATCH": writing.patch},
    "binding": {"POST": subresources.bind}, "eviction": {"POST": subresources.evict},
    "finalize": {"PUT": writing.update},
    "scale": {"GET": scale.read, "PUT": scale.replace, "PATCH": scale.patch},
}


class Server:
    """`authenticators`: asked in turn who asks, and last `tokens`, who signs those of service accounts; where there are
    none, everybody is the administrator. `kubelet`: what runs pods and has their logs; `renew`: what knows the
    groups that a user has now, whatever its token says, or raises a Failure. Both are set once they are made."""

    def __init__(self, registry: Registry, *, authenticators: Sequence[Authenticator] = (),
                 tokens: Tokens | None = None) -> None:
        self.registry = registry
        self.kubelet: logs.Kubelet | None = None
        self.renew: Callable[[Identity], Awaitable[Identity]] | None = None
        self._tokens = tokens or Tokens(registry.chance.token().encode(), registry.clock, registry.chance)
        self._signed = accounts.Signed(registry.store, self._tokens)
        self._authenticators = (*authenticators, self._signed.user) if authenticators else ()
        self._is_full = False
        self._people, self._seats = 0, asyncio.Semaphore(SEATS)

    async def start(self) -> None:
        """Makes what every cluster has, where it is absent."""
        for name in NAMESPACES:
            await self._make("", "namespaces", {"metadata": {"name": name}})
        for name, value in _CLASSES.items():
            await self._make("scheduling.k8s.io", "priorityclasses", {"metadata": {"name": name}, "value": value})
        await roles.begin(self.registry)

    async def tend(self) -> None:
        """Until the store closes: removes dependents of what is gone, counts for budgets, gathers rules of roles."""
        async with asyncio.TaskGroup() as group:
            group.create_task(Collector(self.registry).run())
            group.create_task(keep_counts(self.registry))
            group.create_task(roles.keep_aggregated(self.registry))

    async def handle(self, request: Request) -> Response:
        return await self._safe(request, None)

    def spoken_by(self, who: Identity) -> Transport:
        """For a part of this process, which is known without a token."""
        async def exchange(request: Request) -> Response:
            return await self._safe(request, who)

        return exchange

    async def _safe(self, request: Request, who: Identity | None) -> Response:
        try:
            who = who or speaker(await self._asker(request), self.registry.access.check, request)
            return await self._answer(request, who)
        except (Failure, TooLarge, RecursionError) as error:
            failure = _failure(error)
            headers = {"content-type": "application/json"}
            if "retryAfterSeconds" in (failure.details or {}):
                headers["retry-after"] = "1"
            return Response(failure.code, headers, encode(failure.status()))

    async def _asker(self, request: Request) -> Identity:
        who = identify(self._authenticators, request)
        return await self.renew(who) if self.renew else who

    async def _answer(self, request: Request, who: Identity) -> Response:
        self._check(request, who)
        if request.path in _HEALTH:
            return Response(200, {"content-type": "text/plain"}, b"ok")
        if told := await metrics.answer(self.registry, request, self.kubelet):
            return told
        call = read(request, self.registry.catalog, who)
        if call is None:
            found = discover(self.registry.catalog.kinds(), request.path, request.headers, request.query)
            if found is None:
                raise no_such_path()
            if request.method != "GET":
                raise method_not_allowed()
            return found
        if call.method == "GET" and (read_log := logs.served(call)):
            return await read_log(self.registry, call, self.kubelet)
        if call.method == "POST" and not (call.resource.kind.stored or call.name):
            return reviews.answer(self.registry.access, call, self._whose)
        if (call.method, call.resource.name, call.subresource) == ("POST", "serviceaccounts", "token"):
            return accounts.grant(self.registry, self._tokens, call)
        if call.method in ("GET", "POST") and (stream := _STREAMS.get(f"{call.resource.name}/{call.subresource}")):
            return await stream(self.registry, call, self.kubelet)
        verb = _verb(call)
        if (call.method, call.media) == ("PATCH", APPLY_YAML):  # on a thread a large one holds up no other request
            said = await self.registry.clock.in_thread(partial(configuration, request.body))
            call = replace(call, request=replace(request, body=encode(said)))
        if call.method == "GET":
            return sight.narrowed(self.registry.access, call, verb(self.registry, call))
        async with self._lane(who.name):
            return await self._written(verb, call)

    def _whose(self, token: str, audience: str) -> Identity | None:
        """Whose a token is that was given to that audience."""
        if audience != ISSUER:
            return self._signed.whose(token, audience)
        asks = Request("GET", "/", (), {"authorization": f"Bearer {token}"})
        return known((*self._authenticators, self._signed.user), asks)

    def _check(self, request: Request, who: Identity) -> None:
        """Raises the Failure of a user who may not ask this."""
        if who.is_master:
            return
        ask = asked(request)
        self.registry.access.check(who, ask)
        if ask.whole in _STREAMS and ask.verb == "get":  # over a WebSocket it is a GET, and does as much
            self.registry.access.check(who, replace(ask, verb="create"))

    async def _written(self, verb: Verb, call: Call) -> Response:
        if self.registry.store.closed:
            raise Failure(503, "ServiceUnavailable", "the server is shutting down")
        if verb is writing.create:
            await self._check_disk(call)
        response = verb(self.registry, call)
        await self._committed()
        return response

    async def _check_disk(self, call: Call) -> None:
        """Refuses what grows on a full disk: objects of people, and of controllers GROWING, but no record of an end."""
        if not _is_controller(call.user) or (call.resource.name in GROWING and RECORD not in call.request.body):
            folder, was_full = await self.registry.store.full_disk(), self._is_full
            self._is_full = folder is not None
            if folder is not None:
                if not was_full:
                    log.warning("the disk of %s is full: nothing new is created until there is space", folder)
                used = await self.registry.clock.in_thread(partial(usage, folder, call.namespace))
                how = f"cancel jobs, or free files (rm -r {folder}/logs/NAMESPACE/WORKLOAD, of a job that is deleted)"
                why = f"the disk is full and nothing new is created; {how}: {used}"
                raise Failure(507, "InsufficientStorage", why)

    @asynccontextmanager
    async def _lane(self, user: str) -> AsyncIterator[None]:
        """Lets a write begin: at once for a person; in turn for a controller while a person's write is under way.

        All share one event loop, and hundreds of controller writes at once would delay each person's by their sum."""
        if _is_controller(user):
            async with self._seats if self._people else nullcontext():
                yield
            return
        self._people += 1
        try:
            yield
        finally:
            self._people -= 1

    async def _committed(self) -> None:
        try:
            await self.registry.store.committed()
        except Full as error:
            raise Failure(507, "InsufficientStorage", str(error)) from error
        except sqlite3.Error as error:
            raise Failure(500, "InternalError", f"the write did not happen: {error}") from error

    async def _make(self, group: str, plural: str, thing: dict[str, Any]) -> None:
        resource = self.registry.catalog.find(group, "v1", plural)
        assert resource is not None
        if self.registry.store.get(self.registry.key(resource, thing)) is None:
            self.registry.create(thing, Write(resource, ADMIN))
            await self.registry.store.committed()


def _is_controller(user: str) -> bool:
    return user == CONTROLLER.name or user.startswith(_SYSTEM)


def _failure(error: Failure | TooLarge | RecursionError) -> Failure:
    if isinstance(error, TooLarge):
        return Failure(413, "RequestEntityTooLarge", str(error))
    return error if isinstance(error, Failure) else bad_request("the request is nested too deeply")


def _verb(call: Call) -> Verb:
    kind, method = call.resource.kind, call.method
    if not kind.stored:
        verbs: Mapping[str, Verb] = {}
    elif not call.subresource:
        verbs = _ONE if call.name else _MANY
        if method == "GET" and call.flag("watch"):
            return reading.watch
        if not call.name and method in ("POST", "DELETE") and kind.namespaced and not call.namespace:
            raise method_not_allowed()
    elif call.subresource in _LATER and kind.plural == "pods":
        raise Failure(501, "NotImplemented", f"{call.subresource}: not served; {_LATER[call.subresource]}")
    elif call.subresource in kind.subresources:
        verbs = _PARTS.get(call.subresource, {})
    else:
        raise no_such_path()
    if method not in verbs:
        raise method_not_allowed()
    return verbs[method]

