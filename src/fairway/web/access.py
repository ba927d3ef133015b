"""Who looks, and what that viewer may see.

A request shows a bearer token. The dashboard's own token, which its link carries, stands for the credentials that the
dashboard was started with; any other is the viewer's own and goes to the API server as it is. What a viewer may see is
asked of the API server as that viewer: all namespaces first, else each namespace that holds workloads; it is kept for a
minute. The page can do nothing that the viewer's token cannot.

The dashboard's own token is new with each start. A dashboard with a key, which lasts, tells that to the tabs of its
link; they keep it in memory alone. After a restart a tab asks whoever answers at its address for a proof of the key,
then shows the key and is told the new token. So another program at the same port learns nothing that is good.

A token lies in the session storage of a tab, which a new tab does not have. A tab that is refused asks the other tabs
of its browser and origin over a BroadcastChannel. One answers while its stream is heard, since the port is then the
dashboard's, or, of a dashboard with a key, after a proof. So the page of another program that takes the port is told
nothing. A cookie would go to every port of the host; local storage would outlive the dashboard on disk.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest, digest

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.config import Config
from fairway.kube.transport import Request, Response, Transport

from .workload import Workload
from .world import World, may

FRESH_SECONDS = 60.0
MOST_VIEWERS, MOST_NAMESPACES, AT_ONCE = 1000, 500, 16


class Refused(Exception):
    """The token is not good: one line for the viewer."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a viewer may see. Equal sights see the same page."""

    sees_all: bool = True
    namespaces: frozenset[str] = frozenset()
    sees_nodes: bool = True
    sees_queues: bool = True
    sees_usage: bool = True

    def sees(self, namespace: str) -> bool:
        return self.sees_all or namespace in self.namespaces

    def without(self, before: "Sight", spaces: Collection[str]) -> str:
        """What may be seen no more of what was seen before, in words; "" for nothing."""
        lost = sorted(it for it in spaces if before.sees(it) and not self.sees(it))
        kinds = {"nodes": before.sees_nodes > self.sees_nodes, "queues": before.sees_queues > self.sees_queues,
                 "accounts": before.sees_usage > self.sees_usage}  # fmt: skip
        named = [f"workloads of namespace {it}" for it in lost[:4]]
        named += ["workloads of other namespaces"] * (len(lost) > 4) + [it for it, is_lost in kinds.items() if is_lost]
        return f"you may no longer list {', '.join(named)}; this page names them no more" if named else ""

    def finds(self, text: str, it: Workload) -> bool:
        """Whether a search for the text, of small letters, has the workload."""
        names = it.name, it.user, it.queue, it.namespace
        return self.sees(it.namespace) and any(text in name.lower() for name in names)

    def name(self, it: Workload) -> str:
        """What the viewer is told that a workload is called."""
        return it.name if self.sees(it.namespace) else f"a workload of queue {it.queue}"


@dataclass(slots=True)
class Viewer:
    """`until` when the answers are good; `asked`: the namespaces that were there then."""

    user: str
    client: Client
    sight: Sight
    until: float
    asked: frozenset[str]


class Access:
    """`token`: the dashboard's own; empty where every viewer brings one. `bare`: a transport without credentials.
    `key`: what lasts of the dashboard over restarts; empty of one that does not come back."""

    def __init__(self, world: World, token: str, bare: Transport, key: str = "") -> None:
        self._world, self._token, self._bare, self._key = world, token, bare, key
        self._viewers: dict[bytes, Viewer] = {}

    async def viewer(self, shown: str) -> Viewer:
        """Whoever shows this token; raises Refused."""
        key, now = sha256(shown.encode()).digest(), self._world.client.clock.elapsed()
        known = self._viewers.get(key)
        if known is not None and known.until > now and self._world.namespaces.keys() <= known.asked:
            return known
        if not shown:
            raise Refused("The page needs a token.")
        own = self._world.client
        client = own if self._is_own(shown) else Client(_with(self._bare, shown), own.clock, own.chance)
        try:
            user = await client.whoami()
            await self._world.seen()
            asked = frozenset(self._world.namespaces)
            sight = await self._sight(client, asked)
        except ApiError as error:
            self._viewers.pop(key, None)
            raise Refused(f"The API server does not accept this token: {error.message or error.status}.") from error
        if len(self._viewers) >= MOST_VIEWERS:
            self._viewers.pop(min(self._viewers, key=lambda it: self._viewers[it].until))
        found = self._viewers[key] = Viewer(user, client, sight, now + FRESH_SECONDS, asked)
        return found

    def lasting(self, viewer: Viewer) -> dict[str, str] | None:
        """What keeps a tab of the dashboard's link in use after a restart: the token of now, and the key."""
        is_own = self._key and viewer.client is self._world.client
        return {"token": self._token, "key": self._key} if is_own else None

    def proof(self, words: str) -> bytes:
        """Shows that the dashboard has the key (HMAC-SHA256); nothing of one without."""
        return digest(self._key.encode(), words.encode(), "sha256") if self._key else b""

    def _is_own(self, shown: str) -> bool:
        return any(it and compare_digest(shown.encode(), it.encode()) for it in (self._token, self._key))

    async def _sight(self, client: Client, spaces: Collection[str]) -> Sight:
        everything, *others = await asyncio.gather(
            *(may(client, "list", kind) for kind in (kinds.WORKLOADS, kinds.NODES, kinds.QUEUES, kinds.USAGE_DAYS))
        )
        asked, gate = [] if everything else sorted(spaces)[:MOST_NAMESPACES], asyncio.Semaphore(AT_ONCE)

        async def allows(space: str) -> bool:
            async with gate:
                return await may(client, "list", kinds.WORKLOADS, space)

        answers = await asyncio.gather(*map(allows, asked))
        return Sight(everything, frozenset(space for space, allowed in zip(asked, answers) if allowed), *others)


def bare(config: Config) -> Config:
    """The same server, and nobody in particular: a certificate on the connection would count for more than a token."""
    return replace(config, certificate=b"", key=b"", token="", token_file="", password=None, plugin=None)


def _with(transport: Transport, token: str) -> Transport:
    async def exchange(request: Request) -> Response:
        return await transport(replace(request, headers={**request.headers, "authorization": f"Bearer {token}"}))

    return exchange
