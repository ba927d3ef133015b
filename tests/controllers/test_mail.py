"""Notices by mail: to a real SMTP server on a socket, and to a sendmail that is a program."""

import smtplib
import socket
import threading
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from fairway.controllers.mail import can_mail, mail

SAID = {"workload": "ns/job-train", "event": "failed", "message": "failed: exit code 3 — größer"}


class Server(ThreadingTCPServer):
    """SMTP as far as one client needs it (RFC 5321). Takes mail for anybody but nobody@example.org."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("localhost", 0), Session)
        self.mails: list[tuple[str, bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Session(StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        self._say("220 here")
        to = ""
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            verb = verb.upper()
            if verb == "RCPT" and "nobody@" in rest:
                self._say("550 no such user")
            elif verb == "RCPT":
                to = rest.partition("<")[2].rstrip(">")
                self._say("250 ok")
            elif verb == "DATA":
                self._say("354 go on")
                lines = list(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append((to, b"".join(it.removeprefix(b".") for it in lines)))
                self._say("250 queued")
            else:
                self._say("221 bye" if verb == "QUIT" else "250 ok")
            if verb == "QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        server.shutdown()


def check(message: bytes) -> None:
    read = message_from_bytes(message, policy=default)
    assert (read["To"], read["Subject"]) == ("ann@example.org", "ns/job-train failed")
    assert read.get_content().replace("\r\n", "\n").startswith("failed: exit code 3 — größer\n\n{\n")


def test_a_notice_is_mailed_through_the_smtp_server_of_the_machine(server: Server, tmp_path: Path) -> None:
    assert mail("ann@example.org", SAID, places=str(tmp_path), port=server.server_address[1]) == ""
    [(to, message)] = server.mails
    assert to == "ann@example.org"
    check(message)


def test_a_mail_that_the_server_refuses_is_an_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(smtplib.SMTPRecipientsRefused, match="no such user"):
        mail("nobody@example.org", SAID, places=str(tmp_path), port=server.server_address[1])


def test_a_machine_without_mail_says_so(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    said = mail("ann@example.org", SAID, places=str(tmp_path), port=port)
    assert said == "this machine has no sendmail and no SMTP server"
    assert not can_mail(places=str(tmp_path), port=port)


def test_a_machine_with_an_smtp_server_can_mail(server: Server, tmp_path: Path) -> None:
    assert can_mail(places=str(tmp_path), port=server.server_address[1])


def test_a_notice_is_mailed_by_sendmail_where_there_is_one(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat > {tmp_path}/mail\n')
    program.chmod(0o700)
    assert mail("ann@example.org", SAID, places=str(tmp_path)) == ""
    assert can_mail(places=str(tmp_path))
    assert (tmp_path / "asked").read_text() == "-i -- ann@example.org\n"
    check((tmp_path / "mail").read_bytes())
