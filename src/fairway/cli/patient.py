"""A client for what goes on as long as a job does: `wait`, `logs -f`, `submit --follow`, `ls --watch`.

The server may be restarted meanwhile, and the jobs go on without it. What is read and finds no server is asked for
again until one answers, for AWAY_SECONDS at most; then the command ends, whatever it would do about an error of a
connection. It is said once that the server is away, and once that it is back.
"""

from fairway.kube.client import ApiError, Client
from fairway.kube.transport import Request, Response

from .main import Problem
from .printer import say

AWAY_SECONDS, PAUSE_SECONDS = 600.0, 0.5


class Patient(Client):
    """Asks as `client` does."""

    def __init__(self, client: Client) -> None:
        super().__init__(client.transport, client.clock, client.chance)
        self._since: float | None = None  # when a request first found no server

    async def _answer(self, request: Request) -> Response:
        while True:
            try:
                answer = await super()._answer(request)
                break
            except (ApiError, ConnectionError) as error:
                if request.method != "GET" or not _is_away(request, error):
                    raise
                if ("watch", "true") in request.query:  # a new list is due: the next server may be a restored one
                    raise ConnectionError(str(error)) from error
                self._wait(error)
            await self.clock.sleep(PAUSE_SECONDS)
        if self._since is not None:
            self._since = None
            say("the server is back")
        return answer

    def _wait(self, error: Exception) -> None:
        """Says at first that it is away; raises Problem if it is for too long."""
        if self._since is None:
            self._since = self.clock.elapsed()
            say("the server does not answer; this goes on when it is back, Ctrl-C ends it")
        if self.clock.elapsed() >= self._since + AWAY_SECONDS:
            raise Problem(f"no server for {AWAY_SECONDS:.0f} seconds: {error}", exit_code=1)


def _is_away(request: Request, error: ApiError | ConnectionError) -> bool:
    """Whether no server answers, or one is just stopping. A 503 to a request for a pod's log is about its node."""
    is_of_node = request.path.startswith("/api/") and request.path.endswith("/log")
    return isinstance(error, ConnectionError) or (error.status == 503 and not is_of_node)
