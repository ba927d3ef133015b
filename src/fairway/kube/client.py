"""The API client: verbs of the Kubernetes API as methods, over any Transport.

It keeps three rules. An answer of 400 and more is an `ApiError`; everything that leaves open whether the server acted
(no connection, a cut one, no answer in time) is an `OSError` (TimeoutError is one), so that a caller knows when to
read back. A 429 that says when to come back was not acted upon: it is tried again here. Objects go in as plain
values and come out as the msgspec type asked for (default: dict). It does not cache, and decides nothing.
"""

import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, overload

import msgspec

from fairway.clock import Chance, Clock

from .kinds import Kind, Ref, Selection
from .transport import Messages, Request, Response, Transport

T = TypeVar("T")

REQUEST_SECONDS = 30.0
WATCH_SECONDS = 300
PAGE = 500
LINE_BYTES = 8 << 20
TRIES = 5
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The server said no. `reason` is Kubernetes' word (NotFound, Conflict, Expired …), `body` what it sent, `causes`
    what it says of single fields."""

    def __init__(self, status: int, reason: str = "", message: str = "", body: bytes = b"") -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message, self.body = status, reason, message, body
        self.causes: list[Cause] = []

    @classmethod
    def of(cls, status: int, body: bytes) -> "ApiError":
        try:
            said = msgspec.json.decode(body, type=_Status)
        except msgspec.MsgspecError:
            return cls(status, "", body[:200].decode(errors="replace"), body)
        error = cls(status or said.code, said.reason, said.message, body)
        error.causes = (said.details and said.details.causes) or []
        return error

    @property
    def is_of_other_times(self) -> bool:
        """Whether the version asked for is forgotten, or not reached, as after a restore: a new list is due."""
        return self.status == 410 or any(one.reason == "ResourceVersionTooLarge" for one in self.causes)


class Cause(msgspec.Struct):
    """A fault of one field of what was sent; `reason`: Kubernetes' word for it."""

    field: str = ""
    message: str = ""
    reason: str = ""


class _Details(msgspec.Struct):
    causes: list[Cause] | None = None


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _ListMeta(msgspec.Struct, rename={"version": "resourceVersion", "next": "continue"}):
    version: str = ""
    next: str = ""


class Page(msgspec.Struct):
    """A part of a list; the items are not decoded yet."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch; the object is not decoded yet."""

    type: str
    object: msgspec.Raw


Events = AsyncGenerator[Event, None]


class Client:
    def __init__(self, transport: Transport, clock: Clock, chance: Chance | None = None) -> None:
        self.transport, self.clock, self.chance = transport, clock, chance or Chance()

    @overload
    async def get(self, ref: Ref) -> dict[str, Any]: ...
    @overload
    async def get(self, ref: Ref, shape: type[T]) -> T: ...
    async def get(self, ref: Ref, shape: Any = dict) -> Any:
        return msgspec.json.decode(await self.call(Request("GET", ref.path())), type=shape)

    async def find(self, ref: Ref) -> dict[str, Any] | None:
        """The object; None where there is none, or its kind is not served."""
        return await unless_absent(self.get(ref))

    async def resources(self, group_version: str) -> list[dict[str, Any]]:
        """What is served of a version of a group; nothing where it is not."""
        said: dict[str, Any] | None = await unless_absent(self.read(f"/apis/{group_version}"))
        return list(said["resources"]) if said else []

    async def read(self, path: str) -> Any:
        """The JSON at a path that is no object's."""
        return msgspec.json.decode(await self.call(Request("GET", path)))

    async def pages(self, selection: Selection) -> AsyncGenerator[Page, None]:
        """A list, page by page, all of one moment (`metadata.version`)."""
        query = (*selection.query(), ("limit", str(PAGE)))
        token = ""
        while True:
            more = (("continue", token),) if token else ()
            page = msgspec.json.decode(await self.call(Request("GET", selection.path(), query + more)), type=Page)
            yield page
            token = page.metadata.next
            if not token:
                return

    @overload
    async def list(self, selection: Selection) -> builtins.list[dict[str, Any]]: ...
    @overload
    async def list(self, selection: Selection, shape: type[T]) -> builtins.list[T]: ...
    async def list(self, selection: Selection, shape: Any = dict) -> Any:
        return [
            msgspec.json.decode(item, type=shape)
            async for page in self.pages(selection)
            for item in page.items or ()
        ]

    async def create(
        self, kind: Kind, value: dict[str, Any], *, namespace: str = "", dry_run: bool = False, is_strict: bool = False
    ) -> dict[str, Any]:
        """Made in `namespace`, or in the one the object names; with `dry_run` what would be, and nothing is made;
        with `is_strict` a field that the kind does not have is an error."""
        path = kind.path(namespace or value["metadata"].get("namespace", ""))
        query = (("dryRun", "All"),) * dry_run + (("fieldValidation", "Strict"),) * is_strict
        return await self._send(Request("POST", path, query), value)

    async def ensure(self, kind: Kind, value: dict[str, Any]) -> None:
        """Made, unless one of its name is there."""
        try:
            await self.create(kind, value)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def update(self, ref: Ref, value: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Replaced whole; conditional on the resourceVersion that `value` carries, if any."""
        return await self._send(Request("PUT", ref.path(subresource)), value)

    async def patch(self, ref: Ref, change: Any, *, subresource: str = "", form: str = MERGE) -> dict[str, Any]:
        """A merge patch unless `form` says otherwise; conditional if it sets metadata.resourceVersion."""
        return await self._send(Request("PATCH", ref.path(subresource), headers={"content-type": form}), change)

    async def delete(self, ref: Ref, *, uid: str = "", version: str = "", grace: int | None = None) -> None:
        """With `uid`, only that very object, with `version` as it was then; what is gone already is no error."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if wanted := {key: it for key, it in (("uid", uid), ("resourceVersion", version)) if it}:
            options["preconditions"] = wanted
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await unless_absent(self._send(Request("DELETE", ref.path()), options))

    async def bind(self, pod: Ref, node: str, *, uid: str, annotations: dict[str, str] | None = None) -> None:
        """The very pod gets its node; the annotations are put on it in the same write."""
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": uid, "annotations": annotations or {}}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self._send(Request("POST", pod.path("binding")), body)

    async def whoami(self) -> str:
        """The user that the server takes us for."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        return str((await self._send(Request("POST", path), review))["status"]["userInfo"]["username"])

    async def watch(self, selection: Selection, version: str, *, bound: int = LINE_BYTES) -> Events:
        """What happened since `version`, bookmarks included; ends when the server ends it. An ERROR event is raised."""
        asked = (
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_SECONDS)),
        )
        answer = await self._answer(Request("GET", selection.path(), selection.query() + asked))
        async with aclosing(lines(answer.body, bound)) as read:
            async for line in read:
                event = msgspec.json.decode(line, type=Event)
                if event.type == "ERROR":
                    raise ApiError.of(0, bytes(event.object))
                yield event

    async def logs(self, pod: Ref, *, query: tuple[tuple[str, str], ...] = ()) -> AsyncGenerator[bytes, None]:
        """Chunks of the log; `query` as Kubernetes names it: follow, container, tailLines, previous …"""
        answer = await self._answer(Request("GET", pod.path("log"), query))
        async with aclosing(_chunks(answer.body)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def converse(self, request: Request) -> tuple[str, Callable[[Messages], Messages]]:
        """Opens a WebSocket: its subprotocol, and what makes of our messages the server's."""
        response = await self.clock.within(REQUEST_SECONDS, self.transport(request))
        if response.talk is None:
            raise ApiError.of(response.status, await _whole(response.body))
        return response.headers.get("sec-websocket-protocol", ""), response.talk

    async def rest(self, seconds: float) -> None:
        """Before a request is sent again: for so long, or somewhat less."""
        await self.clock.sleep(self.chance.jitter(seconds))

    async def call(self, request: Request) -> bytes:
        """One exchange with a whole body; the way to anything that has no method here."""
        return await _whole((await self._answer(request)).body)

    async def _send(self, request: Request, value: Any) -> dict[str, Any]:
        headers = {"content-type": "application/json", **request.headers}
        sent = Request(request.method, request.path, request.query, headers, msgspec.json.encode(value))
        return msgspec.json.decode(await self.call(sent), type=dict[str, Any])

    async def _answer(self, request: Request) -> Response:
        for left in reversed(range(TRIES)):
            response = await self.clock.within(REQUEST_SECONDS, self.transport(request))
            if response.status < 400:
                return response
            body, pause = await _whole(response.body), _retry_after(response)
            if pause is None or not left:
                raise ApiError.of(response.status, body)
            await self.rest(2 * pause)
        raise AssertionError("the last try returns or raises")


async def unless_absent(asked: Awaitable[T]) -> T | None:
    """What is asked of the server; None where it has no such thing."""
    try:
        return await asked
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _retry_after(response: Response) -> float | None:
    """Seconds after which a throttled request may be sent again."""
    said = response.headers.get("retry-after", "")
    return float(said) if response.status == 429 and said.isdecimal() else None


async def _chunks(body: bytes | AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(body, bytes):
        yield body
        return
    try:
        async for chunk in body:
            yield chunk
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            await close()


async def _whole(body: bytes | AsyncIterator[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join([chunk async for chunk in _chunks(body)])


async def lines(chunks: bytes | AsyncIterator[bytes], bound: int = LINE_BYTES) -> AsyncGenerator[bytes, None]:
    """The chunks' bytes cut at newlines, empty lines left out. A last line that was cut off is dropped: it is no
    event. A line over `bound` bytes is a ConnectionError, before it fills the memory."""
    held = bytearray()
    async with aclosing(_chunks(chunks)) as read:
        async for chunk in read:
            held += chunk
            if b"\n" in chunk:  # a long line is not searched again with each of its chunks
                *whole, held = held.split(b"\n")
                for line in filter(None, whole):
                    yield bytes(line)
            if len(held) > bound:
                raise ConnectionError(f"a line of the stream is longer than {bound} bytes")
