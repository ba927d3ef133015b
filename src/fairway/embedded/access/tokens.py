"""Tokens that this server signs: a user, with groups, until a time. They are not stored; the key is, with the data.

A token is a JSON Web Token (RFC 7519) signed with HMAC-SHA256, since only this server reads it. What it says of Unix
groups is as old as it is: the server asks the machine anew (`team/door`).
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from fairway.clock import Chance, Clock
from fairway.embedded.access.identity import Identity

ISSUER = "https://kubernetes.default.svc"
"""The audience of the server itself too."""

Claims = dict[str, Any]


class Tokens:
    """`key`: at least 32 bytes, known to this server alone."""

    def __init__(self, key: bytes, clock: Clock, chance: Chance) -> None:
        self._key, self._clock, self._chance = key, clock, chance

    def issue(self, who: Identity, *, seconds: float, claims: Mapping[str, Any] | None = None) -> str:
        """A token that is `who` for that long; `claims` are said beside, or instead."""
        now = int(self._clock.now())
        said = {
            "iss": ISSUER, "aud": [ISSUER], "sub": who.name, "iat": now, "nbf": now, "exp": now + int(seconds),
            "jti": self._chance.uid(), "groups": who.groups, "uid": who.uid, "extra": dict(who.extra),
        }  # fmt: skip
        parts = b".".join(_encoded(msgspec.json.encode(each)) for each in (_HEADER, said | dict(claims or {})))
        return (parts + b"." + _encoded(self._signature(parts))).decode()

    def read(self, token: str) -> Claims | None:
        """What a token of this server says that is good now; None for any other."""
        parts, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_decoded(signature), self._signature(parts.encode())):
                return None
            claims: Claims = msgspec.json.decode(_decoded(parts.partition(".")[2]))
        except (ValueError, binascii.Error, msgspec.DecodeError):
            return None
        return claims if claims["nbf"] <= self._clock.now() < claims["exp"] else None

    def _signature(self, parts: bytes) -> bytes:
        return hmac.digest(self._key, parts, hashlib.sha256)


_HEADER = {"alg": "HS256", "typ": "JWT"}


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
