"""Logs where some nodes do not answer: what can be read is printed, what cannot is told."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from fairway.cli.printer import Choice, Printer
from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref
from fairway.kube.runs import Run
from fairway.kube.transport import Request, Response

WORKLOAD = Ref(kinds.WORKLOADS, "job-a", "nlp")


def run(rank: int, node: str) -> Run:
    return Run(1, 0, rank, f"a-{rank}", "main", True, node=node)


async def test_ranks_on_a_node_that_does_not_answer_are_told_and_the_others_printed(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    asked: list[str] = []

    async def transport(request: Request) -> Response:
        asked.append(request.path.split("/")[-2])
        if asked[-1] == "a-3":
            raise TimeoutError
        return Response(200, {}, b"hello\n") if asked[-1] == "a-2" else Response(500, {}, b"dial tcp: no route to host")

    printer = Printer(Client(transport, Clock()), WORKLOAD, Choice())
    for one in (run(0, "n1"), run(1, "n1"), run(2, "n2"), run(3, "n3")):
        await printer.print(one, last=1)
    out, told = capfdbinary.readouterr()
    assert out == b"hello\n" and asked == ["a-0", "a-2", "a-3"] and printer.silent == {"n1", "n3"}
    assert told.decode().splitlines() == [
        "== rank 0: its log cannot be read: node n1 does not answer: dial tcp: no route to host",
        "== rank 1: its log cannot be read: node n1 does not answer",
        "== rank 3: its log cannot be read: node n3 does not answer",
    ]


async def test_a_log_that_is_refused_is_an_error() -> None:
    async def transport(request: Request) -> Response:
        return Response(403, {}, b"forbidden")

    with pytest.raises(ApiError):
        await Printer(Client(transport, Clock()), WORKLOAD, Choice()).print(run(0, "n1"), last=1)


async def test_a_log_that_was_cut_is_over_when_its_run_is_not_kept_and_that_is_told(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    asked: list[dict[str, str]] = []

    async def cut() -> AsyncIterator[bytes]:
        yield b"\x02\0\0\0\x0a6.1\nhello\n"
        raise ConnectionResetError

    async def transport(request: Request) -> Response:
        asked.append(dict(request.query))
        return Response(200, {}, cut()) if len(asked) == 1 else Response(404, {}, b"{}")

    one = msgspec.structs.replace(run(0, "n1"), id="u/main/0", started="2026-11-28T09:47:46Z")
    printer = Printer(Client(transport, Clock()), WORKLOAD, Choice())
    await printer.print(one, last=1, more=(("follow", "true"),))
    out, told = capfdbinary.readouterr()
    assert out == b"hello\n" and [it["after"] for it in asked] == ["", "6.1"]
    assert {(it["run"], it["started"]) for it in asked} == {(one.id, one.started)}
    assert told == b"== rank 0: the server no longer keeps this run; the end of its log may be missing\n"
