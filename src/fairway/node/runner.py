"""The runner: pods bound to this machine, run as processes of it. What a kubelet is elsewhere.

It holds nothing that it could not find again: what runs is known from the folders on disk (container.py), what should
run from the API server, and each look at a pod brings the two together: start what is next, stop what must end, watch
shims, write the status, and confirm a deletion when nothing of the pod runs any more. Killed at any moment, the next
one goes on from there: shims and their containers do not depend on it.

Containers are processes of this machine, and images are ignored; with `engine` they are containers of their images
(containers/engine.py). With `tenant` each pod runs as the user whom that names,
closed to other users; without, all run as the user of this process, and nothing closes them to each other.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from fairway.api.indexes import rank_in
from fairway.api.objects import ASSIGNED, BEGAN
from fairway.api.quantities import time
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.client import STRATEGIC, ApiError, Client
from fairway.kube.events import About, Events
from fairway.kube.informer import Informer
from fairway.kube.kinds import Ref, Selection
from fairway.kube.runs import PAUSE_ENDED

from .archive import Archive, Bounds, Origin, Run, origin_of, read_origin, retire, write_origin
from .cards import Card, Dealer
from .container import (
    LOST,
    Attempt,
    Nursery,
    history,
    inspect,
    keep_loss,
    note_loss,
    note_unwoken,
    prepare,
    stop,
    sweep,
)
from .containers.engine import Engine
from .environment import Container, Pod, Unusable, controller_of, gang_of
from .execute import Execution, Order
from .health.action import Place
from .health.keeper import MIN_SECONDS, Keeper
from .health.probe import HEALTHY, Health
from .isolation.account import Tenant
from .isolation.limits import Hierarchies
from .isolation.outside import is_mirror
from .logs import Gap, LogOptions, Piece, dropped, read_log
from .names import Names
from .packed import Packed, attempt_of, packed, unpacked
from .pause.disk import DiskError
from .pause.look import freeze, last_begun, restoring
from .pause.stand import STILL, Stand, asked, stand_of, write_stand
from .podstatus import AGAIN, DELETED, NOT_WOKEN, REFUSED, TERMINAL, Next, Sight, next_of, status_of
from .resize import RESIZED, is_agreed, is_leaving, size_of, size_run, voice
from .spec import Specs, grace_of

WORKLOADS = Selection(kinds.WORKLOADS)
AGAIN_SECONDS, PAUSE_SECONDS, SOON_SECONDS = 10.0, 1.0, 0.1
TIDY_SECONDS, HOUR = 60.0, 3600.0
FORCED_SECONDS = 2.0
FREEZING_SECONDS = 0.02
log = logging.getLogger(__name__)


class Runner:
    """`node`: the Node object of this machine. `folder` holds everything of the pods; `base` is the environment of
    which children see a part; what is kept of pods that are gone is beside it, in `logs`. `device_files`: by index, the
    files of GPUs that only pods with this GPU see."""

    def __init__(
        self,
        client: Client,
        node: dict[str, Any],
        folder: Path,
        *,
        base: Mapping[str, str],
        bounds: Bounds | None = None,
        tenant: Tenant | None = None,
        limits: Hierarchies | None = None,
        device_files: Mapping[int, str] | None = None,
        cards: Sequence[Card] = (),
        engine: Engine | None = None,
    ) -> None:
        self.client, self.clock, self.folder = client, client.clock, folder
        self.node: str = node["metadata"]["name"]
        self.limits, self.dealer = limits or Hierarchies({}), Dealer(cards, folder)
        self.archive = Archive(folder, folder.with_name("logs"), bounds or Bounds())
        self.events = Events(client, "runner")
        self.agenda = Agenda(client.clock, client.chance)
        self.keeper = Keeper(client.clock, self.events, self.agenda.note)
        here = Selection(kinds.PODS, fields=f"spec.nodeName={node['metadata']['name']}")
        self.informer = Informer[Pod](client, here, shape=dict, changed=self._changed, slim=packed)
        self._pods: dict[str, Pod] = {}
        self._reported: dict[str, dict[str, Any]] = {}  # by uid, the status that it is to have
        self.names = Names(client, folder / "hosts", self._unpacked, is_closed=tenant is not None)
        self.specs = Specs(
            client, folder, node["status"]["capacity"], base, self.names,
            tenant=tenant, limits=self.limits, device_files=device_files or {}, dealer=self.dealer, engine=engine,
            over=lambda: [uid for uid, it in self._pods.items() if isinstance(it, Packed)],
        )  # fmt: skip
        self._nursery = Nursery()
        self._starting: dict[tuple[str, str], float] = {}  # (uid, container) → until when nothing is to be done
        self._watched: dict[int, int] = {}  # pid of a shim → its pidfd
        self._swept: set[Path] = set()

    async def run(self) -> None:
        """Until cancelled; the containers run on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.informer.run())
                tasks.create_task(self.events.run())
                tasks.create_task(self.keeper.run())
                tasks.create_task(self._tidy())
                tasks.create_task(self.names.informer.run())
                await self.informer.synced.wait()
                await self.names.informer.synced.wait()
                for left in self.folder.glob("*-*"):
                    self.agenda.note(left.name)
                await self.agenda.run(self._look)
        finally:
            for pid in list(self._watched):
                self._unwatch(pid)
            self._nursery.close()

    def pod_log(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> tuple[Gap | None, AsyncIterator[Piece]] | None:
        """The log of a pod's container, of its last run or of the one before, and what is missing at its beginning;
        None where nothing has run."""
        pod = self.informer.store.get(f"{namespace}/{name}")
        attempts = history(self._place(pod, container)) if pod else ()
        chosen = attempts[:-1] if options.previous else attempts
        options = replace(options, follow=options.follow and not options.previous)
        run = chosen[-1].folder if chosen else None
        return (dropped(run), read_log([run], options, self.clock)) if run else None

    def run_log(self, run: Run, options: LogOptions) -> AsyncIterator[Piece]:
        return read_log(self.archive.places_of(run), options, self.clock)

    async def runs(self, namespace: str, workload: str, uid: str = "", *, pod: str = "") -> list[Run]:
        """All runs of a workload that are kept; of the latest that had the name, unless `uid` tells which. `pod`: the
        uid of the one whose runs are read alone."""
        uid = uid or next(reversed(self.archive.uids(namespace, workload)), "")
        if pod:
            return await self.clock.in_thread(partial(self.archive.runs_of_pod, namespace, workload, uid, pod))
        live = [pod for pod, said in self._pods.items() if f"/{uid}/" in attempt_of(said)]
        leaving = [it.name for it in self.folder.glob("*-*") if it.name not in self._pods]
        return await self.clock.in_thread(partial(self.archive.runs, namespace, workload, uid, [*live, *leaving]))

    def shims(self, namespace: str, name: str) -> dict[str, int]:
        """The pids of the shims of a pod's containers that run; none where it is not a pod of this machine."""
        pod = self.informer.store.get(f"{namespace}/{name}")
        with suppress(FileNotFoundError):  # it goes while we look
            lasts = {it["name"]: history(self._place(pod, it["name"]))[-1:] for it in _containers(pod)} if pod else {}
            return {name: it.pid for name, found in lasts.items() for it in found if it.is_running}
        return {}

    def execute(self, namespace: str, name: str, container: str, order: Order) -> Execution | None:
        """A command beside a container that runs; None where it does not."""
        pod = self.informer.store.get(f"{namespace}/{name}")
        attempts = history(self._place(pod, container)) if pod else ()
        return Execution(attempts[-1], order, self.clock) if attempts and attempts[-1].is_running else None

    def lacks_devices(self, namespace: str, name: str, container: str) -> bool:
        """Whether a container is paused, or about to be, whose pod was given GPUs: they are others' meanwhile."""
        pod = self.informer.store.get(f"{namespace}/{name}")
        if not pod or ASSIGNED not in (pod["metadata"].get("annotations") or {}):
            return False
        lasts = history(self._place(pod, container))[-1:]
        return any(asked(it.folder).step or stand_of(it.folder).step for it in lasts)

    def pods(self) -> list[Pod]:
        """Those bound here that are not over."""
        return [it for it in self._pods.values() if not isinstance(it, Packed)]

    async def _tidy(self) -> None:
        """Keeps logs within their bounds; asks once an hour which workloads there still are."""
        asked_at = -inf
        while True:
            await self.clock.sleep(TIDY_SECONDS)
            uids, now = None, self.clock.now()
            if self.clock.elapsed() - asked_at >= HOUR:
                made = [it["metadata"] for it in await self.client.list(WORKLOADS)]
                began = {(it.get("annotations") or {}).get(BEGAN, "") for it in made}
                uids = {it["uid"] for it in made} | began | self._pods.keys()  # a bare pod may be its own Workload
                asked_at = self.clock.elapsed()
            try:
                await self.clock.in_thread(partial(self.archive.tidy, uids, now))
            except OSError as error:
                log.warning("the logs of earlier runs are not within their bounds: %s; trying again", error)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        if is_mirror(pod["metadata"]):
            return
        if new:
            self._pods[uid] = new
        else:
            self._pods.pop(uid, None)
        if voice(old) != voice(new):
            self._note_gang(pod)
        if not (old and new and self._is_no_news(old, new)):
            self.agenda.note(uid)
        if new is None or isinstance(new, Packed):
            self._reported.pop(uid, None)

    def _is_no_news(self, old: Pod, new: Pod) -> bool:
        """Whether a look would do nothing: it shows what we wrote, or the pod is over and stays."""
        if isinstance(old, Packed) and isinstance(new, Packed):
            return not is_leaving(new)
        said = self._reported.get(new["metadata"]["uid"])
        shows = said is not None and _is_part(said, new.get("status") or {})
        return shows and _of_others(old, said) == _of_others(new, said)

    def _unpacked(self) -> Iterator[Pod]:
        return (it for it in self._pods.values() if type(it) is dict)

    def _place(self, pod: Pod, container: str) -> Path:
        return self.folder / pod["metadata"]["uid"] / "containers" / container

    async def _look(self, uid: str) -> float | None:
        if uid not in self._pods:
            return await self._clear(uid)
        pod = unpacked(self._pods[uid])
        until = max((until for (other, _), until in self._starting.items() if other == uid), default=0.0)
        if (held := until + self.clock.offset()) > self.clock.now():  # until it has started nobody can tell what runs
            for _, it in self._running((pod,)) if is_leaving(pod) else ():
                stop(it, grace_of(pod), DELETED)
            return held if held < inf else self.clock.now() + PAUSE_SECONDS if is_leaving(pod) else None
        histories = {it["name"]: history(self._place(pod, it["name"])) for it in _containers(pod)}
        await self._mind(uid, histories)
        frozen, moves_on = freeze(pod, histories, lambda: self._frozen_with(pod))
        health = self._health(pod, dict.fromkeys(histories, ()) if frozen else histories)  # frozen it answers no probe
        sight = Sight(pod, histories, self.clock.now(), health=health, frozen=frozen)
        ahead = next_of(sight)
        if size := size_of(pod):
            ahead = self._resized(pod, ahead, size)
        self._stop(sight, ahead)
        refused = await self._start_all(sight, ahead)
        if ahead.start and not refused:
            return None  # a look comes when they have started
        await self._report(replace(sight, refused=refused), ahead)
        times = [ahead.again_at, sight.now + AGAIN_SECONDS if refused else None, self._soon(histories)]
        times.append(sight.now + FREEZING_SECONDS if moves_on else None)
        return min((at for at in times if at is not None), default=None)

    def _health(self, pod: Pod, histories: Mapping[str, Sequence[Attempt]]) -> dict[str, Health]:
        lasts = {it["name"]: (it, last) for it in _containers(pod) for last in histories[it["name"]][-1:]}
        return self.keeper.look(pod, {name: each for name, each in lasts.items() if each[1].is_running})

    def _frozen_with(self, pod: Pod) -> list[Stand]:
        """How far the attempts of all pods of its workload are."""
        own = attempt_of(pod)
        those = [it for it in self._pods.values() if own and attempt_of(it) == own and not isinstance(it, Packed)]
        return [stand_of(it.folder) for _, it in self._running(those or [pod])]

    def _resized(self, pod: Pod, ahead: Next, size: str) -> Next:
        """Stops the gang where this pod runs with another number of ranks; lets nothing start while two are about."""
        own = self._running((pod,))
        if not ahead.start and all(size_run(it) == size for _, it in own):
            return ahead
        gang = [self._pods[uid] for uid in self._gang(pod)]
        others = [(it, last) for it, last in self._running(gang) if size_run(last) != size]
        if any(size_run(it) != size for _, it in own):
            for it, last in others:
                if not last.is_asked:
                    stop(last, grace_of(it), RESIZED)
        may_start = not others and is_agreed(gang) and not is_leaving(pod)
        return replace(ahead, start=ahead.start if may_start else ())

    def _running(self, pods: Iterable[Pod]) -> list[tuple[Pod, Attempt]]:
        """The attempts of their containers that run, or are about to."""
        names = [(pod, it["name"]) for pod in pods for it in _containers(pod)]
        lasts = [(pod, history(self._place(pod, name))[-1:]) for pod, name in names]
        return [(pod, it) for pod, found in lasts for it in found if it.pid]

    def _soon(self, histories: Mapping[str, Sequence[Attempt]]) -> float | None:
        """Shims that an earlier life has just launched do not tell us when they have started."""
        is_starting = any(it and it[-1].pid and not it[-1].is_running for it in histories.values())
        return self.clock.now() + SOON_SECONDS if is_starting else None

    async def _mind(self, uid: str, histories: Mapping[str, Sequence[Attempt]]) -> None:
        """Watches what runs; what a lost attempt left behind ends before anything else is done."""
        for attempts in histories.values():
            last = attempts[-1] if attempts else None
            if last and last.pid:
                self._watch(uid, last)
            elif last and (last.reason == LOST or not last.is_over) and last.folder not in self._swept:
                keep_loss(last)
                await self.clock.in_thread(partial(sweep, last.folder))
                self._swept.add(last.folder)

    def _watch(self, uid: str, attempt: Attempt) -> None:
        if attempt.pid in self._watched:
            return
        try:
            file = os.pidfd_open(attempt.pid)
        except ProcessLookupError:
            self.agenda.note(uid)
            return
        self._watched[attempt.pid] = file
        asyncio.get_running_loop().add_reader(file, self._ended, uid, attempt)

    def _ended(self, uid: str, attempt: Attempt) -> None:
        self._unwatch(attempt.pid)
        note_loss(attempt.folder, self.clock.now())
        if pod := self._pods.get(uid):
            self._note_gang(pod)
        self.agenda.note(uid)

    def _note_gang(self, pod: Pod) -> None:
        """A look at the ranks that may wait for this one, or are to stop with it."""
        for each in self._gang(pod) if size_of(pod) else ():
            self.agenda.note(each)

    def _gang(self, pod: Pod) -> list[str]:
        """The pods of its workload, those with it that their Job owns no longer."""
        own = attempt_of(pod).rpartition("/")[0]
        return [uid for uid, it in self._pods.items() if own and attempt_of(it).rpartition("/")[0] == own]

    def _unwatch(self, pid: int) -> None:
        file = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(file)
        os.close(file)

    def _stop(self, sight: Sight, ahead: Next) -> None:
        about = _about(sight.pod)
        for container in _containers(sight.pod):
            if (name := container["name"]) not in ahead.stop:
                continue
            last, grace = sight.histories[name][-1], _grace_of(sight, name)
            if not last.is_asked:
                grace = self.keeper.farewell(about, Place(container, last, self.clock), grace)
                if grace is None:
                    continue
                self.events.tell(about, "Killing", f"Stopping container {name}")
            stop(last, grace, ahead.why)

    async def _start_all(self, sight: Sight, ahead: Next) -> dict[str, Unusable]:
        """Starts containers; those that cannot be made as they are written, and why."""
        refused = {}
        for container in ahead.start:
            try:
                await self._start(sight.pod, container, sight.histories[container["name"]])
            except Unusable as error:
                refused[container["name"]] = error
                if not _is_told(sight.before, str(error)):
                    self.events.tell(_about(sight.pod), "Failed", f"Error: {error}", is_warning=True)
        return refused

    async def _start(self, pod: Pod, container: Container, attempts: Sequence[Attempt]) -> None:
        spec = await self.specs.of(pod, container)
        uid, name = pod["metadata"]["uid"], container["name"]
        self._note(pod, spec["env"])
        begun = last_begun(attempts)
        for old in attempts[:-1]:
            if old is not begun:
                retire(old)
        is_ours = bool(attempts) and (attempts[-1].stopped in AGAIN or attempts[-1].reason in REFUSED)
        plan = await self._restoring(pod, begun)
        spec |= plan
        place = prepare(self._place(pod, name), attempts, spec, is_own=not is_ours)
        if begun:  # what could not be restored begins anew in the same place
            write_stand(place, replace(stand_of(begun.folder), step=STILL) if plan else Stand())
        pipe = self._nursery.launch(place)
        self._starting[uid, name] = inf
        self._swept.discard(place)
        pause = PAUSE_SECONDS * 2 ** (plan["restore"]["tries"] if plan else 0)
        asyncio.get_running_loop().add_reader(pipe, self._started, place, pipe, pause)
        self.events.tell(_about(pod), "Started", f"Started container {name}")

    async def _restoring(self, pod: Pod, last: Attempt | None) -> dict[str, Any]:
        """What a shim has to do more where its processes are on disk; nothing where they are lost."""
        about, what = _owner(pod), "its processes could not be restored"
        if last is None:
            return {}
        try:
            plan = await self.clock.in_thread(partial(restoring, last))
        except DiskError as error:
            await self.clock.in_thread(partial(note_unwoken, last, str(error), NOT_WOKEN))
            again = "it starts again from its last checkpoint"
            self.events.tell(about, NOT_WOKEN, f"{what}: {error}; {again}", is_warning=True)
            return {}
        if plan and (why := plan["restore"]["why"]):
            self.events.tell(about, NOT_WOKEN, f"{what} yet: {why}; this is tried again", is_warning=True)
        return plan

    def _note(self, pod: Pod, env: Mapping[str, str]) -> None:
        """Writes what the pod is of, before it first runs."""
        own = self.folder / pod["metadata"]["uid"]
        rank = rank_in(pod["metadata"].get("annotations") or {}) or (env["RANK"] if gang_of(pod) else "")
        if not (own / "origin").exists() and (said := origin_of(pod, rank)):
            write_origin(own, said)

    def _started(self, place: Path, pipe: int, pause: float) -> None:
        """The process runs, or its shim is gone; where it did not come so far, another waits `pause` seconds."""
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)
        uid, _, name, _ = place.parts[-4:]
        del self._starting[uid, name]
        if inspect(place).started_at is None:
            self._starting[uid, name] = self.clock.elapsed() + pause
        self.agenda.note(uid)

    async def _report(self, sight: Sight, ahead: Next) -> None:
        """Writes the status if it changed; confirms the deletion when nothing runs any more."""
        meta, status = sight.pod["metadata"], status_of(sight, ahead)
        place = Ref(kinds.PODS, meta["name"], meta["namespace"])
        if type(self._pods.get(meta["uid"])) is dict:
            self._reported[meta["uid"]] = status
        is_forgotten = sight.before.get("phase") in TERMINAL and not any(sight.histories.values())
        try:
            if not is_forgotten and not _is_part(status, sight.before):
                change = {"metadata": {"uid": meta["uid"]}, "status": status}
                await self.client.patch(place, change, subresource="status", form=STRATEGIC)
            if "deletionTimestamp" in meta and not ahead.stop and meta.get("deletionGracePeriodSeconds") != 0:
                await self.client.delete(place, uid=meta["uid"], grace=0)
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another of that name: the informer will tell
                raise

    async def _clear(self, uid: str) -> None:
        """Ends and forgets a pod that the server no longer knows."""
        own = self.folder / uid
        self.keeper.forget(uid)
        histories = {it.name: history(it) for it in (own / "containers").glob("*")}
        await self._mind(uid, histories)
        running = [attempts[-1] for attempts in histories.values() if attempts and attempts[-1].pid]
        for attempt in running:
            stop(attempt, FORCED_SECONDS, DELETED)
        names = [which for which in self._starting if which[0] == uid]
        if not running and not any(self._starting[which] == inf for which in names):
            for which in names:
                del self._starting[which]
            said = read_origin(own)
            why = await self._ended_by(said, histories) if said else ""
            await self.clock.in_thread(partial(self.archive.take, own, why))
            self.limits.sweep(uid)

    async def _ended_by(self, said: Origin, histories: Mapping[str, Sequence[Attempt]]) -> str:
        """Why the workload of a pod ended the attempt that the pod was of: an eviction, or how it failed."""
        if not any(it.stopped == DELETED for attempts in histories.values() for it in attempts):
            return ""
        found = await self.client.find(Ref(kinds.WORKLOADS, said.workload, said.namespace))
        if found is None:
            return ""
        status = found.get("status") or {} if found["metadata"]["uid"] == said.uid else {}
        began = min(it.started_at or inf for attempts in histories.values() for it in attempts)
        is_held = any(it["type"] == "Admitted" and it["status"] == "True" for it in status.get("conditions") or ())
        past = () if is_held and status.get("attempt") == said.attempt else status.get("evictionHistory") or ()
        last = next((it for it in past if time(it["time"]) >= int(began) and not it.get("paused")), {})
        why = PAUSE_ENDED if last.get("unpaused") else last.get("reason", "")
        return str(why or (status.get("reason", "") if status.get("phase") == "Failed" else ""))


def _containers(pod: Pod) -> list[Container]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _grace_of(sight: Sight, name: str) -> float:
    """What is left of the pod's grace where it is deleted: sidecars stop last."""
    meta, health = sight.pod["metadata"], sight.health.get(name, HEALTHY)
    grace = meta.get("deletionGracePeriodSeconds")
    if grace is None:
        return float(grace_of(sight.pod) if health.grace is None else health.grace)
    if not any(it["name"] == name for it in sight.inits):
        return float(grace)
    return max(time(meta["deletionTimestamp"]) - sight.now, min(grace, MIN_SECONDS))


def _about(pod: Pod) -> About:
    meta = pod["metadata"]
    return About(kinds.PODS, meta["name"], meta["uid"], meta["namespace"])


def _owner(pod: Pod) -> About:
    """What controls the pod; the pod itself where nothing does."""
    if not (it := controller_of(pod)):
        return _about(pod)
    kind = kinds.Kind(it["kind"], it["kind"], it["apiVersion"])
    return About(kind, it["name"], it["uid"], pod["metadata"]["namespace"])


def _is_told(status: Mapping[str, Any], message: str) -> bool:
    """Whether a status says already that a container waits for this."""
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any((it["state"].get("waiting") or {}).get("message") == message for it in states)


def _of_others(pod: Pod, said: dict[str, Any]) -> tuple[Any, ...]:
    """What others say in a pod: all but what we `said` in its status."""
    status, ours = pod.get("status") or {}, {it["type"] for it in said["conditions"]}
    conditions = [it for it in status.get("conditions") or () if it["type"] not in ours]
    about = {**pod["metadata"], "resourceVersion": "", "managedFields": ()}
    return about, pod["spec"], conditions, {name: value for name, value in status.items() if name not in said}


def _is_part(new: Any, old: Any) -> bool:
    """Whether a patch with `new` would leave `old` as it is; conditions count by type."""
    if isinstance(new, dict) and isinstance(old, dict):
        return all(_is_part(value, old.get(key)) for key, value in new.items())
    if isinstance(new, list) and new and isinstance(new[0], dict) and "type" in new[0]:
        return all(any(_is_part(it, other) for other in old or ()) for it in new)
    return bool(new == old)
