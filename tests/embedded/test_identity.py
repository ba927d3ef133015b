"""Who asks the embedded server: tokens, whom a user may speak for, and what else an authenticator may know."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from inprocess import MAPS, Api, config
from inprocess import api as make_api

from fairway.clock import VirtualClock, seeded
from fairway.embedded.access.authenticate import Authenticator, by_token
from fairway.embedded.access.identity import ADMIN, MASTERS, Identity, account
from fairway.embedded.access.tokens import Tokens
from fairway.embedded.server import Server
from fairway.kube.transport import Peer, Request

ANN = Identity("ann", ("people", "system:authenticated"), "u-1", {"fairway.dev/shell": ("bash",)})
NOW = 1_000_000.0
ROOT = Identity("root", (MASTERS, "system:authenticated"))


def bears(token: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} | {name.replace("_", "-"): text for name, text in headers.items()}


def request(peer: Peer | None = None, **headers: str) -> Request:
    return Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", (), headers, b"{}", peer)


async def whoami(server: Server, asked: Request) -> Any:
    await server.start()
    answer = await server.handle(asked)
    assert isinstance(answer.body, bytes)
    said = json.loads(answer.body)
    return said["status"]["userInfo"] if answer.status == 201 else said


def served(*authenticators: Authenticator, tokens: Tokens | None = None) -> Server:
    return Server(make_api().registry, authenticators=authenticators or [by_token({})], tokens=tokens)


def signing(now: float) -> Tokens:
    return Tokens(b"k" * 32, VirtualClock(now), seeded(1))


@pytest.fixture
def tokens() -> Tokens:
    return signing(NOW)


async def test_a_signed_token_is_its_user_with_all_that_is_known(tokens: Tokens) -> None:
    said = await whoami(served(tokens=tokens), request(**bears(tokens.issue(ANN, seconds=60))))
    assert said == {"username": "ann", "uid": "u-1", "groups": ["people", "system:authenticated"],
                    "extra": {"fairway.dev/shell": ["bash"]}}


async def test_a_signed_token_is_good_until_it_expires() -> None:
    asked = request(**bears(signing(NOW).issue(ANN, seconds=60)))
    assert (await whoami(served(tokens=signing(NOW + 59)), asked))["username"] == "ann"
    assert (await whoami(served(tokens=signing(NOW + 60)), asked))["reason"] == "Unauthorized"


def forged(tokens: Tokens) -> Sequence[str]:
    good = tokens.issue(ANN, seconds=60)
    head, body, sign = good.split(".")
    other = Tokens(b"x" * 32, VirtualClock(NOW), seeded(1)).issue(ROOT, seconds=60)
    elsewhere = tokens.issue(ANN, seconds=60, claims={"aud": ["vault"]})
    mixed = f"{head}.{other.split('.')[1]}.{sign}"
    return other, mixed, f"{head}.{body}.", f"{head}.{body}", "", "a.b.c", "é", elsewhere


async def test_no_other_token_is_taken_for_it(tokens: Tokens) -> None:
    for token in forged(tokens):
        said = await whoami(served(tokens=tokens), request(**bears(token)))
        assert said["code"] == 401, token


async def test_a_transport_may_know_its_peer() -> None:
    def by_peer(asked: Request) -> Identity | None:
        return Identity(f"uid-{asked.peer.uid}") if asked.peer else None

    server = served(by_token({"secret": ROOT}), by_peer)
    assert (await whoami(server, request(Peer(pid=7, uid=1000, gid=1000))))["username"] == "uid-1000"
    assert (await whoami(server, request(**bears("secret"))))["username"] == "root"
    assert (await whoami(server, request()))["code"] == 401


async def test_without_an_authenticator_everybody_is_the_administrator(api: Api) -> None:
    assert (await whoami(api.server, request()))["username"] == ADMIN.name


async def test_a_master_speaks_for_others() -> None:
    server = served(by_token({"secret": ROOT}))
    asked = bears("secret", impersonate_user="bob", impersonate_group="a\nb", impersonate_uid="7",
                  impersonate_extra_team="x")
    said = await whoami(server, request(**asked))
    assert said == {"username": "bob", "uid": "7", "groups": ["a", "b", "system:authenticated"],
                    "extra": {"team": ["x"]}}
    said = await whoami(server, request(**bears("secret", impersonate_user="system:serviceaccount:ns:robot")))
    assert said["groups"] == list(account("ns", "robot").groups)


@pytest.mark.parametrize(("headers", "what"), [
    ({"impersonate_user": "bob"}, 'users "bob" is forbidden: User "ann" cannot impersonate resource "users" in API '
                                  'group "" at the cluster scope'),
    ({"impersonate_user": "system:serviceaccount:ns:robot"}, 'serviceaccounts "robot" is forbidden: User "ann" cannot '
     'impersonate resource "serviceaccounts" in API group "" in the namespace "ns"'),
])
async def test_a_plain_user_speaks_for_nobody_else(headers: dict[str, str], what: str) -> None:
    said = await whoami(served(by_token({"secret": ANN})), request(**bears("secret", **headers)))
    assert (said["code"], said["message"]) == (403, what)


async def test_to_speak_for_a_group_takes_a_user() -> None:
    said = await whoami(served(by_token({"secret": ROOT})), request(**bears("secret", impersonate_group="a")))
    assert said["code"] == 400


async def test_a_part_of_the_process_needs_no_token() -> None:
    api = make_api(tokens={"secret": ROOT})
    await api.server.start()
    speaks = api.server.spoken_by(ROOT)
    answer = await speaks(Request("POST", MAPS, (), {}, json.dumps(config()).encode()))
    assert answer.status == 201
