"""Which user a request comes from: the first authenticator that knows decides, then whom the user speaks for.

An Authenticator reads a request and answers an Identity, or None where the request carries nothing that it knows. More
of them may be added, such as one for what a transport knows of the peer. A server without any answers everybody as
the administrator: it is for a process that asks itself.

With the headers Impersonate-User, -Group, -Uid and -Extra-KEY a user speaks for another; each of these is asked of
`check` with the verb `impersonate`. Where a header came more than once, its values are lines of one.
"""

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from fairway.embedded.access.ask import Ask
from fairway.embedded.access.identity import ACCOUNT, ADMIN, AUTHENTICATED, Identity, account
from fairway.embedded.errors import Failure
from fairway.kube.transport import Request

AUTHENTICATION = "authentication.k8s.io"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"

Authenticator = Callable[[Request], Identity | None]
Check = Callable[[Identity, Ask], None]
"""Raises the Failure of a user who may not."""


def identify(authenticators: Sequence[Authenticator], request: Request) -> Identity:
    """Who asks. Failure 401 where nobody knows."""
    who = ADMIN if not authenticators else known(authenticators, request)
    if who is None:
        raise Failure(401, "Unauthorized", "Unauthorized")
    return who


def speaker(who: Identity, check: Check, request: Request) -> Identity:
    """The user that the request is to be answered for: the one that it names, else `who`, who asks. Failure 403 where
    that user may not speak for the other."""
    if not any(name.startswith("impersonate-") for name in request.headers):
        return who
    for ask in _asks(request.headers):
        check(who, ask)
    return _other(request.headers)


def known(authenticators: Sequence[Authenticator], request: Request) -> Identity | None:
    """The first answer of these."""
    return next((found for each in authenticators if (found := each(request))), None)


def bearer(request: Request) -> str:
    """The token that the request carries; empty where it carries none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def by_token(users: Mapping[str, Identity]) -> Authenticator:
    """Knows these tokens; each is compared, so that the time does not tell which one is near."""
    known = [(token.encode(), who) for token, who in users.items()]

    def authenticator(request: Request) -> Identity | None:
        given, found = bearer(request).encode(), None
        for token, who in known:
            if hmac.compare_digest(token, given):
                found = who
        return found

    return authenticator


def _asks(headers: Mapping[str, str]) -> Iterator[Ask]:
    """What it takes to speak for the user of these headers."""
    user = headers.get(USER, "")
    if not user:
        raise Failure(400, "BadRequest", "an Impersonate header without Impersonate-User: name the user")
    if user.startswith(ACCOUNT):
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        yield Ask("impersonate", resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield Ask("impersonate", resource="users", name=user)
    for group in _lines(headers, GROUP):
        yield Ask("impersonate", resource="groups", name=group)
    for uid in _lines(headers, UID):
        yield Ask("impersonate", AUTHENTICATION, "uids", name=uid)
    for key, values in _extra(headers).items():
        for value in values:
            yield Ask("impersonate", AUTHENTICATION, "userextras", key, name=value)


def _other(headers: Mapping[str, str]) -> Identity:
    user, groups = headers[USER], _lines(headers, GROUP)
    if not groups and user.startswith(ACCOUNT):
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        groups = account(namespace, name).groups
    if AUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return Identity(user, groups, headers.get(UID, ""), _extra(headers))


def _extra(headers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {unquote(name.removeprefix(EXTRA)): _lines(headers, name) for name in headers if name.startswith(EXTRA)}


def _lines(headers: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, headers.get(name, "").split("\n")))
