"""The one call of gRPC that a probe makes, grpc.health.v1.Health/Check, in as much of HTTP/2 as it takes.

Of the answer only the message is read: field 1, a number, of which 1 is SERVING. Its headers are skipped, so nothing
here needs to unpack any.
"""

import asyncio
import struct
from collections.abc import AsyncIterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY = 0, 1, 3, 4, 6, 7
ACK = END_STREAM = 1
END_HEADERS, PADDED = 4, 8
MOST_BYTES = 1 << 16
SERVING = b"\x08\x01"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
STATES = {b"": "UNKNOWN", b"\x08\x02": "NOT_SERVING", b"\x08\x03": "SERVICE_UNKNOWN"}


async def check(streams: Streams, authority: str, service: str) -> str:
    """Empty where the service (empty: the server) is serving, else why not. OSError where it cannot be asked."""
    reader, writer = streams
    try:
        writer.write(PREFACE + _frame(SETTINGS, 0, b"", stream=0) + _asked(authority, service))
        content = b""
        async for kind, flags, payload in _frames(reader, writer):
            if kind == DATA:
                content += payload[1 : len(payload) - payload[0]] if flags & PADDED and payload else payload
            if kind in (RESET, GO_AWAY):
                return "the server refuses the call grpc.health.v1.Health/Check"
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
        message = content[5:]  # before it: whether it is compressed, and its length
        if content and message == SERVING:
            return ""
        return f"the service is {STATES.get(message, 'unknown')}" if content else "the server does not know the service"
    finally:
        writer.close()


def _asked(authority: str, service: str) -> bytes:
    headers = {":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Check", ":authority": authority,
               "content-type": "application/grpc", "te": "trailers"}  # fmt: skip
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())
    message = b"\x0a" + _text(service) if service else b""
    body = struct.pack(">BI", 0, len(message)) + message
    return _frame(HEADERS, END_HEADERS, block) + _frame(DATA, END_STREAM, body)


def _text(text: str) -> bytes:
    """With its length before it, in one byte: what a probe names is short."""
    content = text.encode()[:126]
    return bytes([len(content)]) + content


def _frame(kind: int, flags: int, payload: bytes, *, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def _frames(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[tuple[int, int, bytes]]:
    """Kind, flags and payload of what the server sends; its settings and pings are acknowledged."""
    while True:
        try:
            head = await reader.readexactly(9)
            length = int.from_bytes(head[:3], "big")
            if length > MOST_BYTES:
                raise ConnectionError("the answer is no HTTP/2")
            payload = await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the connection ended before there was an answer") from error
        kind, flags = head[3], head[4]
        if kind in (SETTINGS, PING) and not flags & ACK:
            writer.write(_frame(kind, ACK, payload if kind == PING else b"", stream=0))
        yield kind, flags, payload
