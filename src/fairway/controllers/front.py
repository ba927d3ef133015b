"""What the controller serves over HTTP, on the port of its settings: `/metrics`, and the probes of a kubelet.

    /healthz   200 as long as the process answers at all
    /readyz    200 once every informer has its first list, and the webhook is served if it is to be; a standby is ready
               too. Before, 503 and what it waits for

It serves for as long as the process lives; what it shows is that of the present life of the controllers.
"""

import asyncio
import logging
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from fairway.settings import Settings

from .view import View
from .webhook import Door

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
STOP_SECONDS = 1.0
log = logging.getLogger(__name__)


class Front:
    """`exposition` gives what /metrics shows; `waits_for` says why the controllers are not ready, and is empty once
    they are. `door`: the webhook, where there is one."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._shown = settings, ""
        self.exposition: Callable[[], bytes] = bytes
        self.waits_for = "starting"
        self.door: Door | None = None

    def ready(self, view: View) -> None:
        """This life of the controllers sees the cluster."""
        self.waits_for = ""
        if self.door:
            self.door.view = view

    async def serve(self) -> None:
        """On http://host:port, until cancelled; an empty host is any. A request for metrics shows the token, if there
        is one. On loopback only a loopback name is answered: a page in a browser cannot make another name lead here and
        read it. Where port or token cannot be had nothing is served, and all else works."""
        settings = self._settings
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        try:
            file = settings.metrics_token_file
            self._shown = f"Bearer {Path(file).read_text().strip()}" if file else ""
            await web.TCPSite(runner, settings.metrics_host or None, settings.metrics_port).start()
            await asyncio.get_running_loop().create_future()
        except OSError as error:
            log.error("metrics are not served: %s", error)
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if self._settings.metrics_host in LOOPBACK and request.host.rpartition(":")[0] not in LOOPBACK:
            return web.Response(status=421)
        match request.path:
            case "/healthz":
                return web.Response(text="ok\n")
            case "/readyz":
                waits_for = self.waits_for or (self.door.waits_for if self.door else "")
                return web.Response(status=503 if waits_for else 200, text=f"{waits_for or 'ok'}\n")
        if self._shown and not compare_digest(request.headers.get("Authorization", "").encode(), self._shown.encode()):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        if request.path != "/metrics":
            return web.Response(status=404)
        said = self.exposition() + (self.door.metrics.exposition() if self.door else b"")
        return web.Response(body=said, headers={"Content-Type": CONTENT_TYPE_LATEST})
