"""Whose a signed token is; and the tokens of service accounts, as `kubectl create token` asks for them.

A token of a service account is that account's for a time, at most until the account is gone, or the pod, Secret or Node
that it is bound to; one of the same name that comes later is another. What is signed for another audience than this
server is no key to it, but a TokenReview tells the one it is for whose it is.
"""

from typing import Any

import msgspec

from fairway.api.quantities import time_text
from fairway.embedded.access.authenticate import bearer
from fairway.embedded.access.identity import Identity, account
from fairway.embedded.access.tokens import ISSUER, Claims, Tokens
from fairway.embedded.call import Call
from fairway.embedded.errors import Cause, Failure, bad_request, conflict, invalid, not_found, wrong
from fairway.embedded.registry import Registry
from fairway.embedded.store import Entry, Key, Store, encode
from fairway.kube.transport import Request, Response

Thing = dict[str, Any]
BOUND = "kubernetes.io"
"""The claim of a service account's token that says what it is bound to."""
CREDENTIAL = "authentication.kubernetes.io/"
HOUR, LEAST_SECONDS, MOST_SECONDS = 3600, 600, 1 << 32
_HOLDERS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class Signed:
    """Reads what `tokens` signed; `user` is an Authenticator."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens

    def user(self, request: Request) -> Identity | None:
        return self.whose(bearer(request), ISSUER)

    def whose(self, token: str, audience: str) -> Identity | None:
        """Whose a token for that audience is; None where it is not good, or what it is bound to is gone."""
        claims = self._tokens.read(token)
        if claims is None or audience not in claims["aud"]:
            return None
        extra = {key: tuple(values) for key, values in claims["extra"].items()}
        who = Identity(claims["sub"], tuple(claims["groups"]), claims["uid"], extra)
        return who if BOUND not in claims or self._is_there(claims) else None

    def _is_there(self, claims: Claims) -> bool:
        bound = dict(claims[BOUND])
        space = bound.pop("namespace")
        return all(_uid(self._store.get(_key(kind, space, each["name"]))) == each["uid"]
                   for kind, each in bound.items())


def _key(kind: str, namespace: str, name: str) -> Key:
    return Key(f"{kind}s", "" if kind == "node" else namespace, name)


def _uid(entry: Entry | None) -> str:
    return str(msgspec.json.decode(entry.value)["metadata"]["uid"]) if entry else ""


def grant(registry: Registry, tokens: Tokens, call: Call) -> Response:
    """The answer to a TokenRequest for a service account."""
    thing, owner = call.thing(), registry.current(call.resource, call.key)
    spec = thing.get("spec") if isinstance(thing.get("spec"), dict) else {}
    assert spec is not None
    seconds, now = _seconds(spec), registry.clock.now()
    bound = _bound(registry, call, spec.get("boundObjectRef"))
    name, audiences = {"name": call.name, "uid": owner["metadata"]["uid"]}, spec.get("audiences") or [ISSUER]
    credential = registry.chance.uid()
    extra = {f"{CREDENTIAL}credential-id": [f"JTI={credential}"]} | {
        f"{CREDENTIAL}{kind}-{field}": [text] for kind, each in bound.items() if kind != "secret"
        for field, text in each.items()}
    token = tokens.issue(account(call.namespace, call.name, name["uid"]), seconds=seconds, claims={
        "aud": audiences, "jti": credential, "extra": extra,
        BOUND: {"namespace": call.namespace, "serviceaccount": name, **bound}})
    meta = {"name": call.name, "namespace": call.namespace, "creationTimestamp": time_text(int(now))}
    answer = {
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": meta,
        "spec": spec | {"audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": time_text(int(now) + seconds)},
    }  # fmt: skip
    return Response(201, {"content-type": "application/json"}, encode(answer))


def _seconds(spec: Thing) -> int:
    asked = spec.get("expirationSeconds")
    seconds = HOUR if asked is None else asked
    if type(seconds) is not int:
        raise bad_request(f"spec.expirationSeconds: found {seconds!r}; a whole number is needed")
    if seconds < LEAST_SECONDS:
        raise _invalid(wrong("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    if seconds > MOST_SECONDS:
        raise _invalid(wrong("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    return seconds


def _bound(registry: Registry, call: Call, ref: Thing | None) -> dict[str, Thing]:
    """The object that the token is bound to, as a claim."""
    if not ref:
        return {}
    kind, name = ref.get("kind", ""), ref.get("name", "")
    resource = registry.catalog.find("", "v1", _HOLDERS.get(kind, ""))
    if resource is None or ref.get("apiVersion") not in (None, "", "v1"):
        raise bad_request(f"cannot bind token for serviceaccount to a {kind!r}: Pod, Secret or Node is allowed")
    entry = registry.store.latest(_key(kind.lower(), call.namespace, name))
    if entry is None:
        raise not_found(resource.kind, name)
    found = msgspec.json.decode(entry.value)
    if kind == "Pod" and (found["spec"].get("serviceAccountName") or "default") != call.name:
        raise bad_request(f'cannot bind token for serviceaccount "{call.name}" to pod running with different '
                          "serviceaccount name.")
    uid = found["metadata"]["uid"]
    if ref.get("uid") not in (None, "", uid):
        raise conflict(resource.kind, name, why=f"the UID in the bound object reference ({ref['uid']}) does not match "
                                                f"the UID in record. The object might have been deleted and then "
                                                f"recreated")
    return {kind.lower(): {"name": name, "uid": uid}}


def _invalid(cause: Cause) -> Failure:
    return invalid("TokenRequest", "authentication.k8s.io", "", causes=[cause])
