"""Port-forwarding as its client sees it: SPDY frames in messages, to a process that listens."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest
from kubelet import Kubelet

from fairway.clock import Clock
from fairway.embedded.forward.spdy import Broken, Came, Ended, Opened, Pinged, Session, dictionary
from fairway.embedded.forward.tunnel import Target, _talk

FIN = 1 << 24
ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    while content := client.recv(1 << 16):
        client.sendall(content.upper())
    client.close()
"""


@dataclass
class Client:
    """What kubectl does: it packs headers, and numbers its streams with odd numbers."""

    pack: "zlib._Compress" = field(default_factory=lambda: zlib.compressobj(zdict=dictionary()))

    def open(self, stream: int, *, is_last: bool = False, **headers: str) -> bytes:
        texts = [text.encode() for pair in headers.items() for text in pair]
        plain = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(it)) + it for it in texts)
        block = self.pack.compress(plain) + self.pack.flush(zlib.Z_SYNC_FLUSH)
        return self.control(1, struct.pack(">IIBB", stream, 0, 0, 0) + block, flags=is_last)

    def control(self, kind: int, payload: bytes, *, flags: int = 0) -> bytes:
        return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(payload)) + payload

    def data(self, stream: int, content: bytes, *, is_last: bool = False) -> bytes:
        return struct.pack(">II", stream, is_last * FIN | len(content)) + content


def test_frames_are_read_however_they_are_cut() -> None:
    client, session = Client(), Session()
    sent = (client.open(1, streamtype="error", port="80", is_last=True) + client.open(3, streamtype="data")
            + client.control(4, b"\0\0\0\0") + client.control(6, b"\0\0\0\1") + client.data(3, b"hello", is_last=True)
            + client.control(3, struct.pack(">II", 3, 5)))  # fmt: skip
    events = [event for byte in sent for event in session.receive(bytes([byte]))]
    assert events == [
        Opened(1, {"streamtype": "error", "port": "80"}), Ended(1, False), Opened(3, {"streamtype": "data"}),
        Pinged(client.control(6, b"\0\0\0\1")), Came(3, b"hello"), Ended(3, False), Ended(3, True)]


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert (len(dictionary()), zlib.adler32(dictionary())) == (1423, 0xE3C6A7C2)


@pytest.mark.parametrize("frame", [
    struct.pack(">II", 1, 2 << 20),
    struct.pack(">HHI", 0x8003, 1, 11) + b"\0" * 11,
    struct.pack(">HHI", 0x8003, 1, 2) + b"\0" * 2,
    Client().open(1, x="y" * 70_000),
], ids=["large", "unpacked", "short", "headers"])
def test_what_breaks_the_rules_ends_the_session(frame: bytes) -> None:
    with pytest.raises(Broken):
        Session().receive(frame)


@dataclass
class Talk:
    """A session: what is sent, and what came back by stream."""

    client: Client
    sent: asyncio.Queue[bytes]
    got: AsyncIterator[bytes]
    session: Session = field(default_factory=Session)

    async def until_end(self, stream: int) -> bytes:
        said = b""
        async for message in self.got:
            kind, number, size = (*struct.unpack(">HH", message[:4]), int.from_bytes(message[5:8], "big"))
            if kind == 0 and number == stream:
                said += message[8 : 8 + size]
                if message[4] & 1:
                    return said
        raise AssertionError("the session ended")


@pytest.fixture
def port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    """With a pod that is this process."""
    async def none() -> AsyncIterator[bytes]:
        return
        yield

    kubelet, sent = Kubelet(none), asyncio.Queue[bytes]()
    kubelet.running = {"c": os.getpid()}

    async def incoming() -> AsyncIterator[bytes]:
        while message := await sent.get():
            yield message

    async with aclosing(_talk(Target("default", "web", kubelet, Clock()), incoming())) as got:
        yield Talk(Client(), sent, got)


async def test_a_connection_is_carried_both_ways_and_ends(talk: Talk, port: int) -> None:
    client = talk.client
    headers = {"port": str(port), "requestid": "0"}
    await talk.sent.put(client.open(1, streamtype="error", **headers) + client.open(3, streamtype="data", **headers))
    content = b"hello " * 50_000
    for start in range(0, len(content), 30_000):
        await talk.sent.put(client.data(3, content[start : start + 30_000]))
    await talk.sent.put(client.data(3, b"", is_last=True))
    assert await asyncio.wait_for(talk.until_end(3), 60) == content.upper()


async def test_a_port_on_which_the_pod_does_not_listen_is_told(talk: Talk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:  # of this process, and of no child of it
        headers = {"port": str(foreign.getsockname()[1]), "requestid": "0"}
        opened = [talk.client.open(1, streamtype="error", **headers), talk.client.open(3, streamtype="data", **headers)]
        await talk.sent.put(b"".join(opened))
        assert b"no process of pod web listens on port" in await asyncio.wait_for(talk.until_end(1), 60)
