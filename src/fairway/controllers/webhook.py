"""The door of a cluster: admission reviews of its API server answered over HTTPS, by the rules of `api/admission.py`.

`/mutate` completes an object and refuses what cannot be; `/validate` sees what is about to be stored and only refuses.
Both are the one function `admit`, the same as on the embedded server. Which objects are sent here is said by the
webhook configurations (deploy/webhook.yaml): a user's object is sent only if it is managed, or was. Every replica
answers, whether it decides or not. Until the queues are known nothing is let in; the API server then
refuses managed objects, and no others.
"""

import base64
import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from fairway import LEASE
from fairway.api import priorities
from fairway.api.admission import ACCOUNTS, Refused, Review, Said, Thing, admit
from fairway.api.objects import GROUP, IDLE_SINCE, MANAGED, QUEUE
from fairway.api.review import part
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client

from .certificates import Certificates
from .metrics import DoorMetrics
from .view import View

MOST_BYTES, STOP_SECONDS = 16 << 20, 1.0
Address = tuple[str, int]
log = logging.getLogger(__name__)


class _Kind(msgspec.Struct, frozen=True):
    kind: str
    group: str = ""


class User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: _Kind
    operation: str
    namespace: str = ""
    user_info: User = User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Asked(msgspec.Struct, frozen=True):
    request: _Request


class Door:
    """`view`: of the present life of the controllers, None until it has its first list. `waits_for` says why it is not
    served, and is empty once it is."""

    def __init__(self, client: Client, namespace: str, address: Address) -> None:
        self._client, self._address = client, address
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificates = Certificates(client, namespace, address[0], self._tls)
        self._trusted = {f"system:serviceaccount:{namespace}:{LEASE}"}
        self.view: View | None = None
        self.metrics = DoorMetrics()
        self.waits_for = "the webhook has no certificate yet"

    async def run(self) -> None:
        """Serves from the first certificate on, until cancelled. A port that is taken is told, and all else works."""
        with suppress(ApiError, OSError):  # an old API server does not tell, or not to everybody
            self._trusted.add(await self._client.whoami())
        await self._certificates.have()
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address, ssl_context=self._tls).start()
            self.waits_for = ""
            log.info("the webhook is served on port %s", self._address[1])
        except OSError as error:
            self.waits_for = f"the webhook is not served: {error}"
            log.error("%s", self.waits_for)
        try:
            await self._certificates.keep()
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.path not in ("/mutate", "/validate") or request.method != "POST":
            return web.Response(status=404)
        started = self._client.clock.elapsed()
        told = await self._told(request)
        self.metrics.requests.labels(request.path, str(told.status)).inc()
        self.metrics.seconds.observe(self._client.clock.elapsed() - started)
        return told

    async def _told(self, request: web.BaseRequest) -> web.Response:
        if self.view is None:
            return web.Response(status=503, text="the controller is starting")
        try:
            asked = msgspec.json.decode(await _body(request), type=_Asked).request
        except msgspec.MsgspecError as error:
            return web.Response(status=400, text=f"no AdmissionReview: {error}")
        told = await self._judged(asked, completes=request.path == "/mutate")
        if not told["allowed"]:
            self.metrics.refused.labels(asked.kind.kind).inc()
        said = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": told}
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")

    async def _judged(self, asked: _Request, *, completes: bool) -> dict[str, Any]:
        """The response; where an object names a priority of the system, or what measures pods writes since when one is
        idle, the API server says whether that user is an administrator."""
        review = self._review(asked)
        if _measures(review) and await is_administrator(self._client, asked.user_info):
            review = replace(review, is_trusted=True)
        try:
            if not _speaks_for_others(review):
                priorities.check(review.new, review.old, review.namespace, review.lookup)
        except Refused as refused:
            if not await is_administrator(self._client, asked.user_info):
                return {"uid": asked.uid, "allowed": False, "status": _status(refused, review)}
        return answer(asked, review, completes=completes)

    def _review(self, asked: _Request) -> Review:
        new, old = msgspec.json.decode(asked.object) or {}, msgspec.json.decode(asked.old_object)
        is_sent = not any(QUEUE in ((it or {}).get("metadata", {}).get("labels") or {}) for it in (new, old))
        return Review(
            operation=asked.operation,
            group=asked.kind.group,
            kind=asked.kind.kind,
            namespace=asked.namespace,
            new=new,
            old=old,
            user=asked.user_info.username,
            is_trusted=asked.user_info.username in self._trusted,
            now=self._client.clock.now(),
            lookup=partial(self._lookup, is_managed=is_sent),
        )

    def _lookup(self, kind: str, name: str, *, is_managed: bool) -> Said | None:
        """`is_managed`: of its namespace the API server knows that, since it asks about what has no label itself."""
        view = self.view
        assert view is not None
        stores = {"Queue": view.queues, "NodePool": view.pools, "Node": view.nodes, "Namespace": view.namespaces,
                  "Workload": view.workloads}
        found: Any = stores[kind].get(name)
        said: dict[str, Any] = msgspec.to_builtins(found) if found else {}
        if kind == "Namespace" and is_managed:
            said = {"metadata": {"labels": {**said.get("metadata", {}).get("labels", {}), MANAGED: "true"}}}
        return said or None


def _measures(review: Review) -> bool:
    """Whether it changes since when a pod is idle."""
    before, now = (part(it, "metadata", "annotations").get(IDLE_SINCE) for it in (review.old, review.new))
    return review.kind == "Pod" and review.operation == "UPDATE" and before != now


def _speaks_for_others(review: Review) -> bool:
    """Whether it passes on what an owner says that was let in: a controller of Kubernetes, or an operator."""
    own = f"{ACCOUNTS}{review.namespace}:"
    return review.is_trusted or (review.user.startswith(ACCOUNTS) and not review.user.startswith(own))


async def is_administrator(client: Client, user: User) -> bool:
    """Whether RBAC lets a user `admit` workloads, as it lets administrators; who cannot be asked about, may not."""
    may = {"group": GROUP, "resource": "workloads", "verb": "admit"}
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
    form = {"apiVersion": kinds.REVIEWS.group_version, "kind": kinds.REVIEWS.name, "metadata": {}}
    with suppress(ApiError):
        said = await client.create(kinds.REVIEWS, {**form, "spec": {**spec, "resourceAttributes": may}})
        return bool(said["status"]["allowed"])
    return False


async def _body(request: web.BaseRequest) -> bytes:
    """What was sent, as long as it is no longer than any object can be with the one before it."""
    body = await request.content.read(MOST_BYTES)
    while not request.content.at_eof() and len(body) < MOST_BYTES:
        body += await request.content.read(MOST_BYTES - len(body))
    return body


def answer(asked: _Request, review: Review, *, completes: bool) -> dict[str, Any]:
    """The response of an AdmissionReview: let in, with what is to be changed if it `completes` it, or refused."""
    try:
        made, warnings = admit(review)
    except Refused as refused:
        return {"uid": asked.uid, "allowed": False, "status": _status(refused, review)}
    told: dict[str, Any] = {"uid": asked.uid, "allowed": True}
    if warnings:
        told["warnings"] = warnings
    if completes and (patch := list(changes(msgspec.json.decode(asked.object) or {}, made))):
        told |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return told


def _status(refused: Refused, review: Review) -> dict[str, Any]:
    """As Kubernetes refuses, so that clients say of which object it is."""
    code, reason = (403, "Forbidden") if refused.forbidden else (422, "Invalid")
    causes = [{"field": field, "reason": word, "message": message} for field, word, message in refused.causes]
    about = {"name": part(review.new, "metadata").get("name") or "", "group": review.group, "kind": review.kind}
    return {"code": code, "reason": reason, "message": str(refused), "details": {**about, "causes": causes}}


def changes(before: Mapping[str, Any], after: Thing, path: str = "") -> Iterator[dict[str, Any]]:
    """The JSON patch from one object to the other; a list that differs is replaced whole."""
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, now in after.items():
        here, was = f"{path}/{_escaped(key)}", before.get(key)
        if isinstance(now, dict) and isinstance(was, dict):
            yield from changes(was, now, here)
        elif key not in before or was != now:
            yield {"op": "add", "path": here, "value": now}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def address(text: str) -> Address:
    """HOST:PORT as its parts; a host in brackets is an IPv6 address. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"found {text!r}; HOST:PORT is allowed, as in 0.0.0.0:9443")
    return host.strip("[]"), int(port)
