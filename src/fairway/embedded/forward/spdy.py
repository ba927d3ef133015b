"""SPDY/3.1 as far as port-forwarding needs it: the server's side of one session, without any I/O.

`receive` takes bytes as they come and returns what happened; `reply`, `data`, `reset` return bytes to be sent. Flow
control is left out, as kubectl leaves it out: a session is slowed by whoever does not read its bytes. A peer that
breaks the rules raises Broken.
"""

import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
CONTROL, FIN = 0x80030000, 1
REFUSED = 3
MOST_BYTES, HEADER_BYTES = 1 << 20, 1 << 16


def dictionary() -> bytes:
    """What both sides' compressors of headers begin with, by the protocol's definition."""
    names = (*WORDS.split(), "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
    return b"".join(len(it).to_bytes(4, "big") + it.encode() for it in names) + TEXT.encode()


class Broken(Exception):
    """What came is no SPDY, or too much of it."""


class Opened(NamedTuple):
    stream: int
    headers: dict[str, str]


class Came(NamedTuple):
    stream: int
    content: bytes


class Ended(NamedTuple):
    """Nothing more comes on it; with `is_reset` nothing may be sent either."""

    stream: int
    is_reset: bool


class Pinged(NamedTuple):
    answer: bytes


Event = Opened | Came | Ended | Pinged


@dataclass(slots=True)
class Session:
    rest: bytes = b""
    _unpack: "zlib._Decompress" = field(default_factory=lambda: zlib.decompressobj(zdict=dictionary()))
    _pack: "zlib._Compress" = field(default_factory=lambda: zlib.compressobj(zdict=dictionary()))

    def receive(self, content: bytes) -> list[Event]:
        self.rest += content
        found: list[Event] = []
        while len(self.rest) >= 8:
            head, size = struct.unpack(">II", self.rest[:8])
            flags, size = size >> 24, size & 0xFFFFFF
            if size > MOST_BYTES:
                raise Broken(f"a frame of {size} bytes")
            if len(self.rest) < 8 + size:
                break
            payload, self.rest = self.rest[8 : 8 + size], self.rest[8 + size :]
            found += self._control(head - CONTROL, flags, payload) if head >> 31 else self._came(head, flags, payload)
        return found

    def reply(self, stream: int) -> bytes:
        """Takes a stream that the client opened."""
        block = self._pack.compress(struct.pack(">I", 0)) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        return _control(SYN_REPLY, struct.pack(">I", stream) + block)

    def _came(self, stream: int, flags: int, payload: bytes) -> list[Event]:
        found: list[Event] = [Came(stream, payload)] if payload else []
        return [*found, Ended(stream, False)] if flags & FIN else found

    def _control(self, kind: int, flags: int, payload: bytes) -> list[Event]:
        """Settings, headers that come later, windows and farewells change nothing here."""
        try:
            if kind == SYN_STREAM:
                stream = struct.unpack_from(">I", payload)[0]
                opened: list[Event] = [Opened(stream, self._headers(payload[10:]))]
                return [*opened, Ended(stream, False)] if flags & FIN else opened
            if kind == RST_STREAM:
                return [Ended(struct.unpack_from(">I", payload)[0], True)]
        except struct.error as error:
            raise Broken("a frame is cut short") from error
        return [Pinged(_control(PING, payload))] if kind == PING else []

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._unpack.decompress(block, HEADER_BYTES)
        except zlib.error as error:
            raise Broken(f"headers that cannot be read: {error}") from error
        if self._unpack.unconsumed_tail:
            raise Broken("too many headers")
        (count,), place, texts = struct.unpack_from(">I", plain), 4, []
        for _ in range(2 * count):
            (size,) = struct.unpack_from(">I", plain, place)
            texts.append(plain[place + 4 : place + 4 + size].decode(errors="replace"))
            place += 4 + size
        return {name.lower(): text for name, text in zip(texts[::2], texts[1::2])}


def data(stream: int, content: bytes, *, is_last: bool = False) -> bytes:
    return struct.pack(">II", stream, is_last << 24 | len(content)) + content


def reset(stream: int) -> bytes:
    """Refuses a stream."""
    return _control(RST_STREAM, struct.pack(">II", stream, REFUSED))


def _control(kind: int, payload: bytes) -> bytes:
    return struct.pack(">II", CONTROL | kind, len(payload)) + payload
