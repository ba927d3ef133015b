"""Notices: Fairway notifies the address that a workload names when the workload starts, is evicted, and ends.

An address is an http(s) URL, which gets a small JSON document, or `mailto:NAME@HOST`. Which are allowed the setting
`notifyHosts` says: the controller may reach what users may not. What is sent is noted on the Workload afterwards, so
that a restart sends nothing twice; a crash between the two may, and the `id` of the notice tells. Why the last one was
not sent is noted there too. Notices have turns of their own: none holds up a decision or a write of one.
"""

import smtplib
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from urllib.parse import urlsplit

import aiohttp

from fairway.api import conditions
from fairway.api.quantities import time, time_text
from fairway.api.types import WorkloadObject
from fairway.api.workloads import condition, key_of
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.kinds import ref

from .mail import mail
from .means import Means
from .status import Said, since

NOTIFIED, FAILED = "fairway.dev/notified", "fairway.dev/notify-failed"
MOST_NOTED, DAY_SECONDS = 24, 86_400.0
WIDTH, TRIES, FIRST_SECONDS, SEND_SECONDS = 8, 3, 1.0, 5.0
FAILURES = (OSError, aiohttp.ClientError, smtplib.SMTPException, subprocess.SubprocessError, ValueError)
AGAIN = frozenset((408, 425, 429))  # besides 5xx: the receiver may take it later


@dataclass(frozen=True, slots=True)
class Notice:
    id: str
    event: str
    at: float
    reason: str = ""
    message: str = ""


def due(seen: WorkloadObject, now: float) -> list[Notice]:
    """What there is to tell of a workload and is not noted as sent, the oldest first; nothing older than a day."""
    status, noted = seen.status, seen.metadata.annotations.get(NOTIFIED, "").split(",")
    found = [Notice(f"evicted:{it.time}", "evicted", time(it.time), it.reason) for it in status.eviction_history]
    ended = since(status, "Finished") if status.is_over else None
    ran, began = condition(status.conditions, "Running"), since(status, "Running")
    if began is None and ended is not None:
        ran_to_the_end = ran and ran.last_transition_time == time_text(ended)
        has_code = status.phase == "Succeeded" or status.reason.startswith("ExitCode")
        if ran_to_the_end or has_code:  # a short program may end before it is seen to run
            began = since(status, "Admitted")
    if began is not None:
        found.append(Notice(f"started:{status.attempt}", "started", began))
    if ended is not None:
        event = "finished" if status.phase == "Succeeded" else "failed"
        found.append(Notice(f"ended:{status.attempt}", event, ended, status.reason, status.message))
    recent = [it for it in found if it.id not in noted and it.at > now - DAY_SECONDS]
    return sorted(recent, key=lambda it: it.at)


def allows(hosts: str, address: str) -> bool:
    """Whether the setting `notifyHosts` lets notices go to an address; `mailto` is the host of all mail."""
    return any(fnmatchcase(host_of(address), one.strip()) for one in hosts.split(",") if one.strip())


def host_of(address: str) -> str:
    """Raises ValueError for what is no URL."""
    parts = urlsplit(address)
    return parts.scheme if parts.scheme == "mailto" else parts.hostname or ""


class Notices:
    def __init__(self, means: Means) -> None:
        self.means = means
        self.agenda = Agenda(means.client.clock, means.client.chance, width=WIDTH)
        self._sent: defaultdict[str, list[str]] = defaultdict(list)  # by key, until the note of it is seen

    def note(self, seen: WorkloadObject) -> None:
        """A workload came or changed."""
        if seen.spec.notify:
            self.agenda.note(key_of(seen.metadata))

    async def run(self) -> None:
        """Until cancelled."""
        await self.agenda.run(self._turn)

    async def _turn(self, key: str) -> None:
        seen = self.means.view.workloads.get(key)
        if seen is None or not seen.spec.notify or not self.means.election.is_leader():
            self._sent.pop(key, None)
            return
        failed = seen.metadata.annotations.get(FAILED)
        for notice in due(seen, self.means.now()):
            if f"{seen.metadata.uid}/{notice.id}" not in self._sent[key]:
                failure = await self._send(seen, notice)
                failed = failure.message if failure else None
                if failure:
                    self.means.tell(self.means.cases.case(key).owner, failure, is_warning=True)
                self._sent[key].append(f"{seen.metadata.uid}/{notice.id}")
        before = seen.metadata.annotations.get(NOTIFIED, "").split(",")
        sent = [one.removeprefix(f"{seen.metadata.uid}/") for one in self._sent.pop(key, ())]
        if news := [one for one in sent if one not in before]:
            self._sent[key] = [f"{seen.metadata.uid}/{one}" for one in news]
            await self._keep(seen, [*before, *news], failed)

    async def _keep(self, seen: WorkloadObject, ids: list[str], failed: str | None) -> None:
        """Notes on the Workload what was sent, and why the last notice was not; over whatever else is written
        meanwhile."""
        noted = [one for one in ids if one][-MOST_NOTED:]
        meta = {"uid": seen.metadata.uid, "annotations": {NOTIFIED: ",".join(noted), FAILED: failed}}
        await self.means.client.patch(ref(kinds.WORKLOADS, key_of(seen.metadata)), {"metadata": meta})

    async def _send(self, seen: WorkloadObject, notice: Notice) -> Said | None:
        """What went wrong; None once it is sent."""
        address, word = seen.spec.notify, "NotifyFailed"
        try:
            if allows(self.means.settings.notify_hosts, address):
                failure = await self._delivered(address, self._document(seen, notice))
            else:
                word, failure = "NotifyRefused", f"the setting notifyHosts does not have {host_of(address)}"
        except ValueError as error:
            failure = str(error)
        return Said(word, f"the notice {notice.event} was not sent: {failure}") if failure else None

    async def _delivered(self, address: str, said: Mapping[str, object]) -> str:
        """What went wrong, after a few tries; empty once it is delivered."""
        clock, failure = self.means.client.clock, ""
        for number in range(TRIES):
            if number:
                await clock.sleep(FIRST_SECONDS * 3 ** (number - 1))
            try:
                if address.startswith("mailto:"):
                    return await clock.in_thread(partial(mail, address.removeprefix("mailto:"), said))
                code = await clock.within(SEND_SECONDS, _post(address, said))
            except FAILURES as error:
                failure = f"{type(error).__name__}: {error}".removesuffix(": ")
                continue
            if code < 300:
                return ""
            failure = f"answer {code}"
            if code < 500 and code not in AGAIN:
                return failure
        return failure

    def _document(self, seen: WorkloadObject, notice: Notice) -> Mapping[str, object]:
        meta, exits = seen.metadata, conditions.first_exit(self.means.cases.case(key_of(seen.metadata)).pods)
        code = {"finished": 0, "failed": exits[1].exit_code if exits else None}.get(notice.event)
        return {
            "id": f"{meta.uid}/{notice.id}", "workload": key_of(meta), "queue": seen.spec.queue, "user": seen.spec.user,
            "event": notice.event, "reason": notice.reason, "message": notice.message, "exitCode": code,
            "attempt": seen.status.attempt, "time": time_text(notice.at),
        }  # fmt: skip


async def _post(url: str, said: Mapping[str, object]) -> int:
    """The status of the answer. A redirect is not followed: it could lead anywhere."""
    timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(url, json=said, allow_redirects=False) as answer,
    ):
        return answer.status
