"""Notices to a real HTTP server, from a cluster of this machine."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from fairway.api.objects import Condition, Metadata
from fairway.api.types import EvictionRecord, WorkloadObject, WorkloadSpec, WorkloadStatus
from fairway.controllers.mail import PLACES, can_mail
from fairway.controllers.notify import NOTIFIED, allows, due

from .test_commands import Machine

NOW = 1_795_262_400.0  # 2026-11-21T12:00:00Z


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted; the first posts to /flaky get 503, and /stuck answers when it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict] = []
        self.posts: list[str] = []
        self.free, self.came = threading.Event(), threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}/{path}"

    def events(self, job: str) -> list[str]:
        return [it["event"] for it in self.got if it["workload"] == f"default/job-{job}"]

    def until(self, job: str, *events: str) -> None:
        with self.came:
            assert self.came.wait_for(lambda: self.events(job) == list(events), timeout=60), self.got


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.posts.append(self.path)
        is_refused = self.path == "/flaky" and self.server.posts.count("/flaky") == 1
        if self.path == "/stuck":
            self.server.free.wait(60)
        elif not is_refused:
            with self.server.came:
                self.server.got.append(said)
                self.server.came.notify_all()
        self.send_response(503 if is_refused else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.free.set()
    receiver.shutdown()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    (machine.folder / "settings.yaml").write_text("notifyHosts: 127.0.0.1,mailto\n")
    up(machine)
    yield machine
    machine.run("down")


def up(machine: Machine) -> None:
    machine.run("up", "--detach", "--cpus", "4", "--config", "settings.yaml")


def submit(machine: Machine, name: str, url: str, script: str) -> None:
    machine.run("submit", "--name", name, "--cpus", "100m", "--notify", url, "--", "sh", "-c", script)


def test_a_url_is_told_of_the_start_and_the_end_once_also_across_restarts(machine: Machine, receiver: Receiver) -> None:
    submit(machine, "sad", receiver.url(), "sleep 1; exit 3")
    receiver.until("sad", "started", "failed")
    said = receiver.got[-1]
    assert (said["exitCode"], said["message"], said["user"]) == (3, "failed: exit code 3", "fairway:admin")
    deadline = time.monotonic() + 30
    while "ended:1" not in machine.kubectl("get", "fwl", "job-sad", "-o", "jsonpath={.metadata.annotations}"):
        assert time.monotonic() < deadline
    machine.run("down")
    up(machine)
    submit(machine, "next", receiver.url(), "true")
    receiver.until("next", "started", "finished")
    assert receiver.events("sad") == ["started", "failed"] and receiver.got[-1]["exitCode"] == 0


def test_a_receiver_that_fails_at_first_is_asked_again(machine: Machine, receiver: Receiver) -> None:
    submit(machine, "flaky", receiver.url("flaky"), "sleep 600")
    receiver.until("flaky", "started")
    assert receiver.posts.count("/flaky") == 2
    machine.run("cancel", "flaky")


def test_a_receiver_that_hangs_holds_up_no_job(machine: Machine, receiver: Receiver) -> None:
    submit(machine, "stuck", receiver.url("stuck"), "true")
    machine.run("wait", "stuck")
    submit(machine, "free", receiver.url(), "true")
    receiver.until("free", "started", "finished")
    assert receiver.events("stuck") == []
    receiver.free.set()


def test_a_host_that_the_setting_does_not_name_gets_nothing_and_an_event_says_so(
    machine: Machine, receiver: Receiver
) -> None:
    submit(machine, "inside", receiver.url(host="localhost"), "true")
    machine.run("wait", "inside")
    deadline = time.monotonic() + 30
    while "NotifyRefused" not in (said := machine.kubectl("get", "events", "-o", "wide")):
        assert time.monotonic() < deadline, said
    assert "the setting notifyHosts does not have localhost" in said and receiver.events("inside") == []


def test_a_mail_comes_from_the_start_to_the_end_of_a_job(machine: Machine) -> None:
    if shutil.which("sendmail", path=PLACES):
        pytest.skip("this machine has a sendmail, which would send them away")
    try:
        server = Mails()
    except OSError as error:
        pytest.skip(f"mail is sent to port 25, and that cannot be served here: {error}")
    with server:
        submit(machine, "post", "mailto:ann@example.org", "exit 5")
        with server.came:
            assert server.came.wait_for(lambda: len(server.got) >= 2, timeout=60), server.got
        server.shutdown()
    assert [to for to, _ in server.got] == 2 * ["ann@example.org"]
    assert "Subject: default/job-post started" in server.got[0][1]
    assert "Subject: default/job-post failed" in server.got[1][1] and "failed: exit code 5" in server.got[1][1]


def test_a_machine_that_cannot_mail_says_so_at_submit_and_in_the_status(machine: Machine) -> None:
    if can_mail():
        pytest.skip("this machine can send mail")
    said = machine.run("submit", "--name", "mute", "--cpus", "100m", "--notify", "mailto:ann@example.org", "--", "true")
    assert "--notify: this machine has no sendmail and no SMTP server, so no mail will come" in said
    deadline = time.monotonic() + 60
    while "was not sent" not in (said := machine.run("status", "mute")):
        assert time.monotonic() < deadline, said
    assert re.search(r"^notify: +mailto:ann@example.org: the notice \w+ was not sent: this machine has no", said, re.M)


class Mails(ThreadingTCPServer):
    """SMTP on the port where mail is sent to, as far as one client needs it (RFC 5321)."""

    daemon_threads, allow_reuse_address = True, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 25), _Mail)
        self.got: list[tuple[str, str]] = []
        self.came = threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Mail(StreamRequestHandler):
    server: Mails

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        to, answers = "", {"DATA": b"354 go on", "QUIT": b"221 bye"}
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            to = line.partition("<")[2].partition(">")[0] if verb == "RCPT" else to
            self.wfile.write(answers.get(verb, b"250 ok") + b"\r\n")
            if verb == "DATA":
                text = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
                self.wfile.write(b"250 queued\r\n")
                with self.server.came:
                    self.server.got.append((to, text))
                    self.server.came.notify_all()


def test_an_address_that_is_none_is_refused_at_the_door(machine: Machine) -> None:
    machine.run("submit", "--name", "plain", "--cpus", "100m", "--", "sleep", "600")
    with pytest.raises(AssertionError, match=r"fairway.dev/notify\].*http://…, https://… or mailto:NAME@HOST"):
        machine.kubectl("annotate", "job", "plain", "fairway.dev/notify=file:///etc/passwd")
    machine.run("cancel", "plain")


@pytest.mark.parametrize(
    ("hosts", "address", "is_allowed"),
    [
        ("", "https://a.example.org/x", False),
        ("*", "https://a.example.org/x", True),
        ("b.org, *.example.org", "https://a.example.org:8443/x", True),
        ("*.example.org", "http://example.org.evil.net", False),
        ("a.example.org", "http://a.example.org@evil.net/", False),
        ("*.example.org", "mailto:ann@a.example.org", False),
        ("mailto", "mailto:ann@a.example.org", True),
    ],
)
def test_the_setting_names_hosts_and_mail(hosts: str, address: str, is_allowed: bool) -> None:
    assert allows(hosts, address) == is_allowed


def test_what_is_noted_or_older_than_a_day_is_not_sent() -> None:
    def turned(kind: str, at: str, value: str = "True") -> Condition:
        return Condition(kind, value, last_transition_time=at)

    old, late = (EvictionRecord(f"2026-11-{day}T11:00:00Z", "Reclaimed") for day in (19, 21))
    ends = turned("Running", "2026-11-21T11:30:00Z", "False"), turned("Finished", "2026-11-21T11:30:00Z")
    status = WorkloadStatus("Succeeded", attempt=2, eviction_history=(old, late), conditions=(
        turned("Admitted", "2026-11-21T11:10:00Z"), *ends))  # fmt: skip
    seen = WorkloadObject(Metadata("job-a", "ml"), WorkloadSpec(notify="http://x"), status)
    assert [it.event for it in due(seen, NOW)] == ["evicted", "started", "finished"]
    noted = Metadata("job-a", "ml", annotations={NOTIFIED: "evicted:2026-11-21T11:00:00Z,started:2"})
    assert [it.id for it in due(WorkloadObject(noted, seen.spec, status), NOW)] == ["ended:2"]


def test_a_program_that_ends_before_it_is_seen_to_run_has_started() -> None:
    admitted, finished = (
        Condition(kind, "True", last_transition_time=f"2026-11-21T11:30:0{second}Z")
        for kind, second in (("Admitted", 0), ("Finished", 1))
    )
    meta, spec = Metadata("job-a", "ml"), WorkloadSpec(notify="http://x")
    status = WorkloadStatus("Succeeded", attempt=1, conditions=(admitted, finished))
    assert [it.event for it in due(WorkloadObject(meta, spec, status), NOW)] == ["started", "finished"]
    ended = WorkloadStatus("Failed", reason="ExitCode5", attempt=1, conditions=(admitted, finished))
    assert [it.event for it in due(WorkloadObject(meta, spec, ended), NOW)] == ["started", "failed"]
    failed = WorkloadStatus("Failed", attempt=0, conditions=(finished,))
    assert [it.event for it in due(WorkloadObject(meta, spec, failed), NOW)] == ["failed"]
