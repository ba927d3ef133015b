"""The page over HTTP, on loopback unless told otherwise.

    /                the shell of every view: no data, so anybody may have it
    /static/NAME     script, styles, icon
    /stream?at=VIEW  one stream per tab: the view, then each change, as numbered server-sent events
    /log, /detail    of one workload: what a rank writes; events, YAML and attempts
    /helps           what would let one that waits start sooner
    /say             what an action on workloads would do: what is lost, its choices, its kubectl line; of one workload
                     what would be decided of it, if that is asked for
    /act             an action on workloads, with the viewer's own rights
    /submit          tries what a viewer would submit, or makes it, with those rights
    /proof?of=WORDS  whether this is the dashboard that a tab knew before a cut; see access

All but the first two and the last show a bearer token in a header: no cookie, so no other page can act for a viewer. On
loopback a request must name a loopback host; scripts and styles come from here alone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from aiohttp import web

from fairway.kube.client import ApiError

from . import log, now, operations, queues, submit, timeline, usage, waiting, workload_page
from .access import Access, Refused, Viewer
from .act import act, dialog
from .page import Ask, fragment
from .topic import PACKED, Message, Topics
from .world import World

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                               "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store",
}  # fmt: skip
STATIC = {"fairway.css": "text/css", "fairway.js": "text/javascript", "icon.svg": "image/svg+xml"}
VIEWS = {
    "now": now.page, "waiting": waiting.page, "find": waiting.find, "queues": queues.page, "timeline": timeline.page,
    "operations": operations.page, "usage": usage.page, "submit": submit.page, "workload": workload_page.page,
    "runbook": operations.runbook,
}  # fmt: skip
MENU = [(name, name.capitalize()) for name in VIEWS if name not in ("find", "workload", "runbook")]
STOP_SECONDS = 0.5
Answer = Callable[[web.Request, Viewer], Awaitable[web.StreamResponse | str | dict[str, Any]]]
"""A str is HTML, a dict JSON."""


class Dashboard:
    """`host` is the address to listen on; `port` 0: any free one, `serve` tells which."""

    def __init__(
        self, world: World, access: Access, *, desk: submit.Desk | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._world, self._access, self._desk, self._host, self._port = world, access, desk, host, port
        self._topics = Topics(world, VIEWS)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serves while the block lasts; gives its address. OSError where the port is taken."""
        application = web.Application(middlewares=[self._guard])
        application.add_routes([
            web.get("/static/{name}", _static), web.get("/healthz", _health),
            web.get("/stream", self._known(self._stream)), web.get("/detail", self._known(self._detail)),
            web.get("/log", self._known(self._log)), web.get("/helps", self._known(self._helps)),
            web.post("/say", self._known(self._say)), web.post("/act", self._known(self._act)),
            web.post("/submit", self._known(self._submit)),
            web.get("/proof", self._proof), web.get("/{path:.*}", self._shell),
        ])  # fmt: skip
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=STOP_SECONDS, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
            self._port = runner.addresses[0][1]
            yield f"http://{self._host}:{self._port}"
        finally:
            await self._world.stop()
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
                     ) -> web.StreamResponse:  # fmt: skip
        host, _, port = request.headers.get("Host", "").rpartition(":")
        if self._host in LOOPBACK and (host not in LOOPBACK or port != str(self._port)):
            raise web.HTTPForbidden(text=f"use http://127.0.0.1:{self._port}\n")
        return await handler(request)

    def _known(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The answer to a viewer whose token is good."""

        async def answered(request: web.Request) -> web.StreamResponse:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            try:
                viewer = await self._access.viewer(token if scheme.lower() == "bearer" else "")
                said = await answer(request, viewer)
                if isinstance(said, str):
                    return web.Response(text=said, content_type="text/html", headers=HEADERS)
                return web.json_response(said, headers=HEADERS) if isinstance(said, dict) else said
            except Refused as error:
                return _said(401, str(error))
            except (msgspec.MsgspecError, submit.Unfit) as error:
                return _said(400, str(error))
            except ApiError as error:
                return _said(error.status, error.message or str(error))
            except TimeoutError:
                return _said(503, "the cluster is not seen yet: its API server is away, or Fairway is not installed")
            except OSError as error:
                return _said(503, f"the API server does not answer: {error}")

        return answered

    async def _shell(self, request: web.Request) -> web.Response:
        if (name := request.path.strip("/").partition("/")[0]) not in VIEWS:
            raise web.HTTPFound("/now") if not name else web.HTTPNotFound(text="no such page\n")
        return web.Response(text=fragment("shell", {"menu": MENU}), content_type="text/html", headers=HEADERS)

    async def _stream(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        at = urlsplit(request.query.get("at", ""))
        path, query = at.path.strip("/"), dict(parse_qsl(at.query))
        is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
        outgoing = web.StreamResponse(headers=HEADERS | {"content-type": "text/event-stream"})
        if is_packed:
            outgoing.headers["content-encoding"] = "gzip"
        token = request.headers["Authorization"].partition(" ")[2]
        last = request.headers.get("Last-Event-ID", "")

        async def send(message: Message) -> None:
            await outgoing.write(message.packed if is_packed else message.text)

        with suppress(ConnectionError):  # a viewer that leaves
            while (topic := self._topics.find(Ask(path, query, viewer.sight, 0.0))) is not None:
                async with aclosing(self._topics.follow(topic, last)) as messages:  # type: ignore[type-var]
                    async for message in messages:
                        if not outgoing.prepared:
                            await outgoing.prepare(request)
                            await outgoing.write(PACKED * is_packed)
                            if lasting := self._access.lasting(viewer):
                                await send(Message("own", lasting))
                        await send(message)
                        try:
                            seen, viewer = viewer.sight, await self._access.viewer(token)
                        except Refused as error:
                            await send(Message("refused", {"message": str(error)}))
                            return outgoing
                        if viewer.sight != seen:
                            if lost := viewer.sight.without(seen, self._world.namespaces):
                                await send(Message("rights", {"message": f"Your rights have changed: {lost}"}))
                            break
                last = ""
            return _said(404, f"there is no view {path!r}")
        return outgoing

    async def _proof(self, request: web.Request) -> web.Response:
        """For the port too: a program at another one that hands the question on shows nothing by the answer."""
        return web.Response(body=self._access.proof(f"{request.query.get('of', '')} {self._port}"), headers=HEADERS)

    async def _detail(self, request: web.Request, viewer: Viewer) -> str:
        return await workload_page.detail(self._world, viewer.sight, viewer.client, request.query.get("workload", ""))

    async def _log(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """Lines of JSON: those of the run that is asked for, else of the first rank of the last attempt."""
        it = workload_page.seen(self._world, viewer.sight, request.query.get("workload", ""))
        runs = await workload_page.runs(viewer.client, it) if it else []
        wanted, tail = request.query.get("run", ""), request.query.get("tail", "")
        run = next((one for one in runs if workload_page.run_name(one) == wanted or not wanted), None)
        if it is None or run is None:
            return _said(404, "nothing is written yet" if it else "no such workload")
        outgoing = web.StreamResponse(headers=HEADERS | {"content-type": "application/x-ndjson"})
        await outgoing.prepare(request)
        with suppress(ConnectionError):
            lines = log.follow(viewer.client, it.key, run, int(tail) if tail.isdecimal() else 0)
            async with aclosing(lines) as parts:  # type: ignore[type-var]
                async for part in parts:
                    await outgoing.write(msgspec.json.encode(part) + b"\n")
        return outgoing

    async def _helps(self, request: web.Request, viewer: Viewer) -> dict[str, Any]:
        """What would let a workload start sooner: decided now, of all that the dashboard sees."""
        it = workload_page.seen(self._world, viewer.sight, request.query.get("workload", ""))
        foretold, own = bool(it and it.forecast[0]), self._world.client
        lines = await self._desk.helps(own, it.key, foretold) if it and self._desk else []
        return {"message": "; ".join(lines) or "nothing that is known"}

    async def _submit(self, request: web.Request, viewer: Viewer) -> web.Response | dict[str, Any]:
        if self._desk is None:
            return _said(404, "this page cannot submit; `fairway submit` can")
        return await submit.submit(self._world, self._desk, viewer, await _asked(request))

    async def _say(self, request: web.Request, viewer: Viewer) -> str:
        return await dialog(self._world, viewer.sight, await _asked(request), self._desk and self._desk.foreseen)

    async def _act(self, request: web.Request, viewer: Viewer) -> dict[str, Any]:
        return {"done": await act(self._world, viewer.sight, viewer.client, await _asked(request))}


async def _asked(request: web.Request) -> dict[str, Any]:
    return msgspec.json.decode(await request.read(), type=dict[str, Any])


def _said(status: int, text: str) -> web.Response:
    return web.json_response({"message": " ".join(text.split())}, status=status, headers=HEADERS)


async def _health(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound(text="no such file\n")
    body = (files("fairway.web") / "static" / name).read_bytes()
    return web.Response(body=body, content_type=STATIC[name], headers=HEADERS)
