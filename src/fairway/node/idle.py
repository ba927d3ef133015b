"""Which pods of this machine are idle, and since when: the annotation `fairway.dev/idle-since` on each.

A pod is used while one of its GPUs computes (measure.py; those of other makers are asked every GLANCE_SECONDS), while
its processes use BUSY of a CPU or more between two looks, whatever they do, or while one would compute at a look and a
busy machine does not let it: a cell that computes and prints nothing is use, an open page is none. Its processes are
those that carry its mark in their environment, a terminal that was opened beside it (`exec`) included, and all that
these started. A GPU that does not tell how it is used may be used: of such a pod nothing is said. What is said is
written after QUIET looks without use, with the time of the first, and taken back at the first use.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

import psutil

from fairway.api.objects import ASSIGNED, IDLE_SINCE
from fairway.api.quantities import Malformed, time, time_text
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Ref

from .cards import Dealer
from .environment import POD_UID, Pod

LOOK_SECONDS, GLANCE_SECONDS, QUIET, BUSY = 60.0, 10.0, 2, 0.05
PODS, CARDS = "pods", "cards"


@dataclass(slots=True)
class Processes:
    """CPU seconds by pod. `owners`: of each process that was seen, by pid and start, the pod that it is of, or "";
    `runnable`: the pods of which one would compute at that moment, whether a busy machine let it or not."""

    owners: dict[tuple[int, float], str] = field(default_factory=dict)
    runnable: set[str] = field(default_factory=set)

    def used(self) -> dict[str, float]:
        """By uid, what the processes of each pod have used, with those of their children that ended."""
        found: dict[str, float] = {}
        owners: dict[tuple[int, float], str] = {}
        by_pid: dict[int, str] = {}
        runnable: set[str] = set()
        for process in psutil.process_iter(["pid", "ppid", "create_time", "cpu_times", "status"]):
            seen, key = process.info, (process.pid, process.info["create_time"])
            owner = self.owners[key] if key in self.owners else _mark(process) or by_pid.get(seen["ppid"], "")
            owners[key] = by_pid[process.pid] = owner
            if owner and (times := seen["cpu_times"]):
                found[owner] = found.get(owner, 0.0) + sum(times[:4])
                runnable |= {owner} if seen["status"] == psutil.STATUS_RUNNING else set()
        self.owners, self.runnable = owners, runnable
        return found


def _mark(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(POD_UID, ""))
    except (psutil.Error, OSError):
        return ""


@dataclass(slots=True)
class Quiet:
    """What the last look saw. `since`: of pods that are not used, from when on; `looks`: how many have seen them so."""

    at: float | None = None
    cpu: dict[str, float] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)

    def look(self, pods: Iterable[Pod], cpu: Mapping[str, float], gpus: Mapping[int, str], now: float) -> None:
        """`pods` run; `cpu`: seconds that each has used in all; `gpus`: how devices are used, of those that tell."""
        last, quiet = self.at, dict[str, float]()
        for pod in pods:
            uid, notes = pod["metadata"]["uid"], pod["metadata"].get("annotations") or {}
            devices = [int(it) for it in notes.get(ASSIGNED, "").split(",") if it.isdecimal()]
            if last is None and (since := _since(notes)) is not None:  # an earlier life was sure
                quiet[uid], self.looks[uid] = since, QUIET
            elif last is not None and all(gpus.get(it) == "idle" for it in devices) and (
                uid in cpu and uid in self.cpu and cpu[uid] - self.cpu[uid] < BUSY * (now - last)
            ):  # fmt: skip
                quiet[uid] = self.since.get(uid, last)
        self.at, self.cpu, self.since = now, dict(cpu), quiet
        self.looks = {uid: self.looks.get(uid, 0) + 1 for uid in quiet}

    def told(self, pod: Pod) -> str | None:
        """What the annotation of a pod is to be; None: none."""
        uid = pod["metadata"]["uid"]
        return time_text(int(self.since[uid])) if self.looks.get(uid, 0) >= QUIET else None


def _since(notes: Mapping[str, str]) -> float | None:
    """What a pod says of itself, if that is a moment."""
    with suppress(Malformed):
        return time(notes[IDLE_SINCE]) if notes.get(IDLE_SINCE) else None
    return None


Uses = Callable[[], Mapping[int, str]]


async def watch(client: Client, pods: Callable[[], list[Pod]], dealer: Dealer, gpus: Uses) -> None:
    """Tells on the pods that run here since when they are idle, until cancelled."""
    processes, quiet, glances = Processes(), Quiet(), dict[str, float]()

    def glance(now: float) -> float:
        """Notes which cards compute, or do not tell."""
        glances.update({card.uuid: client.clock.elapsed() for card in dealer.cards if card.percent != 0})
        return now + GLANCE_SECONDS

    async def look(key: str) -> float:
        now = client.clock.now()
        if key == CARDS:
            return glance(now)
        running = [it for it in pods() if (it.get("status") or {}).get("phase") == "Running"]
        cpu = await client.clock.in_thread(processes.used) if running else {}
        since = client.clock.elapsed() - LOOK_SECONDS
        cpu = {uid: it for uid, it in cpu.items() if uid not in processes.runnable
               and all(glances.get(card.uuid, -inf) < since for card in dealer.of(uid))}  # fmt: skip
        quiet.look(running, cpu, gpus(), now)
        for pod in running:
            await _tell(client, pod, quiet.told(pod))
        return now + LOOK_SECONDS

    agenda = Agenda(client.clock, client.chance)
    for key in (PODS, *[CARDS] * bool(dealer.cards)):
        agenda.note(key)
    await agenda.run(look)


async def _tell(client: Client, pod: Pod, said: str | None) -> None:
    meta: dict[str, Any] = pod["metadata"]
    if (meta.get("annotations") or {}).get(IDLE_SINCE) != said:
        change = {"metadata": {"uid": meta["uid"], "annotations": {IDLE_SINCE: said}}}
        try:
            await client.patch(Ref(kinds.PODS, meta["name"], meta["namespace"]), change)
        except ApiError as error:
            if error.status not in (404, 409):  # it is gone
                raise
