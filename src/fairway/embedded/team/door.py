"""The Unix socket of a team's box: the kernel says who connects, and that user has a place here.

The first request of a user makes its namespace; a login, and any request once in `FRESH_SECONDS`, renews which queues
its groups open; so are those of users who ask for nothing. Then the request goes on to the server with a token of that
user, as it would come on the other socket.
POST to LOGIN answers such a token, for kubectl, which speaks TLS only; it is good for `LIFE_SECONDS`. Whatever it says,
a user has the groups that the machine lists when the token is used, `FRESH_SECONDS` before at most, and none without an
account. Root and the members of `admins` administer.
"""

import asyncio
import errno
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fairway.api import team
from fairway.embedded.access.identity import AUTHENTICATED, MASTERS, Identity
from fairway.embedded.access.tokens import Tokens
from fairway.embedded.errors import Failure
from fairway.embedded.store import encode
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref, Selection
from fairway.kube.transport import Request, Response, Transport

from .people import Person, person_of
from .rights import BINDINGS, USERS, binding

LOGIN = "/fairway/login"
LIFE_SECONDS, FRESH_SECONDS = 3600.0, 20.0
BACKLOG = 512


def listen(path: Path) -> socket.socket:
    """A socket that every user of the machine may connect to, in a folder where only its owner writes; or OSError."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # whatever the umask says
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _clear(path: Path) -> None:
    """Removes a socket that a killed process left; OSError where one listens there."""
    with suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as other:
        other.connect(str(path))
        raise OSError(errno.EADDRINUSE, "another cluster listens there")
    path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """A user who was let in; `until`: when the machine is asked again, seconds since 1970."""

    identity: Identity
    namespace: str
    queues: tuple[str, ...]
    token: str
    until: float


Answer = Callable[[Client, Client, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Works something out for a user: a client that is the user, one that may read everything, and what is asked; a Failure
or an ApiError where that cannot be. It answers nothing that the user may not know."""


@dataclass(frozen=True, slots=True)
class Team:
    """`socket`: where users come in; `admins`: the Unix group that administers; `answers`: by path."""

    socket: Path
    admins: str
    answers: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens with TLS, the certificate authority of it, in PEM, and the file that names its page."""

    url: str
    authority: str
    page: Path


class Door:
    """`inner` answers who shows a token. `client` writes as a controller."""

    def __init__(self, inner: Transport, client: Client, tokens: Tokens, address: Address, *, team: Team) -> None:
        self._inner, self._client, self._tokens, self._team = inner, client, tokens, team
        self._answering = asyncio.Semaphore(1)  # they take as much as a decision
        self._address = address
        self._entries: dict[int, Entry] = {}
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def handle(self, request: Request) -> Response:
        """The answer to a request that came by the socket: a Transport."""
        assert request.peer is not None
        is_login = (request.method, request.path) == ("POST", LOGIN)
        try:
            entry = await self._entry(request.peer.uid, renew=is_login)
        except Failure as failure:
            return Response(failure.code, {"content-type": "application/json"}, encode(failure.status()))
        if is_login:
            return Response(200, {"content-type": "application/json"}, encode(self._told(entry)))
        if request.method == "POST" and (answer := self._team.answers.get(request.path)):
            return await self._worked_out(answer, entry, request)
        return await self._as(entry)(request)

    async def keep_current(self) -> None:
        """Until cancelled: what its user submitted before it left a group waits in vain, though the user asks for
        nothing more. An account that the machine does not know now keeps what it has: its name service may be away."""
        client = self._client
        while True:
            await client.clock.sleep(FRESH_SECONDS)
            with suppress(ApiError, OSError):
                queues = await client.list(Selection(kinds.QUEUES))
                for space in await client.list(Selection(kinds.NAMESPACES)):
                    await self._keep_current(space["metadata"], queues)

    async def _keep_current(self, meta: dict[str, Any], queues: list[dict[str, Any]]) -> None:
        uid = (meta.get("annotations") or {}).get(team.UID, "")
        person = await self._client.clock.in_thread(partial(person_of, int(uid))) if uid.isdecimal() else None
        if person is None or team.space_of(person.name) != meta["name"]:
            return
        if merged := team.changes(meta.get("labels") or {}, team.labels_of(person.groups, queues)):
            await self._client.patch(Ref(kinds.NAMESPACES, meta["name"]), {"metadata": {"labels": merged}})

    async def renewed(self, who: Identity) -> Identity:
        """A Unix user with the groups that it has now; anybody else as it is. Failure 401 where the account is gone."""
        if USERS not in who.groups:
            return who
        entry = await self._entry(int(who.uid), renew=False)
        if entry.identity.name != who.name:
            raise Failure(401, "Unauthorized", f"the account {who.name} with uid {who.uid} is gone: log in again")
        return entry.identity

    def _as(self, entry: Entry) -> Transport:
        async def exchange(request: Request) -> Response:
            headers = {**request.headers, "authorization": f"Bearer {entry.token}"}
            return await self._inner(replace(request, headers=headers))

        return exchange

    async def _worked_out(self, answer: Answer, entry: Entry, request: Request) -> Response:
        viewer = Client(self._as(entry), self._client.clock, self._client.chance)
        try:
            asked = msgspec.json.decode(request.body, type=dict[str, Any])
            async with self._answering:
                code, body = 200, encode(await answer(viewer, self._client, asked))
        except msgspec.MsgspecError as error:
            code, body = 400, encode(Failure(400, "BadRequest", str(error)).status())
        except Failure as failure:
            code, body = failure.code, encode(failure.status())
        except ApiError as error:
            code, body = error.status, error.body
        return Response(code, {"content-type": "application/json"}, body)

    async def _entry(self, uid: int, *, renew: bool) -> Entry:
        async with self._locks[uid]:
            known = self._entries.get(uid)
            if renew or known is None or not self._is_fresh(known):
                known = self._entries[uid] = await self._let_in(uid)
            return known

    def _is_fresh(self, known: Entry) -> bool:
        """No token is good any more that was signed before the clock was set back."""
        return self._client.clock.elapsed() < known.until and self._tokens.read(known.token) is not None

    async def _let_in(self, uid: int) -> Entry:
        person = await self._client.clock.in_thread(partial(person_of, uid))
        if person is None:
            raise Failure(401, "Unauthorized", f"the user with uid {uid} has no account on this machine")
        namespace, labels = team.space_of(person.name), await self._labels(person)
        await self._make_space(person, namespace, labels)
        await self._client.ensure(BINDINGS, binding(namespace, person.name))
        identity = self._identity(person)
        queues = tuple(sorted(name.removeprefix(team.OPEN) for name in labels if name.startswith(team.OPEN)))
        token = self._tokens.issue(identity, seconds=LIFE_SECONDS)
        return Entry(identity, namespace, queues, token, self._client.clock.elapsed() + FRESH_SECONDS)

    def _identity(self, person: Person) -> Identity:
        is_admin = person.uid == 0 or self._team.admins in person.groups
        groups = (*person.groups, USERS, *[MASTERS] * is_admin, AUTHENTICATED)
        return Identity(person.name, groups, str(person.uid))

    async def _labels(self, person: Person) -> dict[str, str]:
        return team.labels_of(person.groups, await self._client.list(Selection(kinds.QUEUES)))

    async def _make_space(self, person: Person, name: str, labels: dict[str, str]) -> None:
        """The namespace with these labels, made where there is none."""
        owner = {team.OWNER: person.name, team.UID: str(person.uid)}
        ref = Ref(kinds.NAMESPACES, name)
        there = await self._client.find(ref)
        if there is None:
            meta = {"name": name, "labels": labels, "annotations": owner}
            await self._client.create(kinds.NAMESPACES, {"metadata": meta})
            return
        notes = there["metadata"].get("annotations") or {}
        if {key: notes.get(key) for key in owner} != owner:
            raise Failure(403, "Forbidden", _taken(name, person, notes))
        if merged := team.changes(there["metadata"].get("labels") or {}, labels):
            await self._client.patch(ref, {"metadata": {"labels": merged}})

    def _told(self, entry: Entry) -> dict[str, object]:
        """What a user learns by logging in."""
        until = self._client.clock.now() + LIFE_SECONDS - FRESH_SECONDS
        return {"user": entry.identity.name, "namespace": entry.namespace, "queues": list(entry.queues),
                "isAdmin": entry.identity.is_master, "token": entry.token, "until": until,
                "server": self._address.url, "authority": self._address.authority,
                "page": self._page()}

    def _page(self) -> str:
        """Where the live page is; empty while there is none."""
        with suppress(OSError):
            return self._address.page.read_text()
        return ""


def _taken(name: str, person: Person, notes: dict[str, str]) -> str:
    """That a namespace is another user's, or was: a uid that is used again inherits nothing."""
    owner = f"{notes[team.OWNER]} with uid {notes.get(team.UID)}" if team.OWNER in notes else "no Unix user"
    return (f"namespace {name} belongs to {owner}, not to {person.name} with uid {person.uid}; an administrator "
            f"deletes it, or changes its annotations {team.OWNER} and {team.UID}")
