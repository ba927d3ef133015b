"""Asks the probes of containers that run, and runs their hooks. What it finds is for the runner to act on.

A container with a `postStart` hook has not started until that is done; then its startup probe is asked, then the two
others. After a restart of Fairway a container is as its status says until the probes tell otherwise; the hook is run
again only where the file `hooked` in the attempt's folder does not say that it was done. Nothing is asked of a
container that is to stop: its `preStop` hook runs first, in the time of its grace; it keeps at least MIN_SECONDS.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairway.clock import Clock
from fairway.kube import kinds
from fairway.kube.events import About, Events
from fairway.node.container import Attempt
from fairway.node.environment import Container, Pod

from .action import Place, perform
from .probe import HEALTHY, HOOK_FAILED, UNHEALTHY, Health, Probe, Tally, hook_of, probes_of

MIN_SECONDS = 2.0


@dataclass(slots=True)
class Kept:
    """A container that is watched. `ends_at`: until when it may take its time to stop, once it is to."""

    about: About
    place: Place
    health: Health
    asking: list[asyncio.Task[None]] = field(default_factory=list)
    leaving: asyncio.Task[None] | None = None
    ends_at: float | None = None

    def rest(self) -> None:
        """Asks no more."""
        for task in self.asking:
            task.cancel()
        self.asking.clear()


class Keeper:
    """`changed` is called with a pod's uid when the health of one of its containers changed."""

    def __init__(self, clock: Clock, events: Events, changed: Callable[[str], None]) -> None:
        self.clock, self.events, self._changed = clock, events, changed
        self._kept: dict[Path, Kept] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled; what it is asked for is done while it runs."""
        async with asyncio.TaskGroup() as self._tasks:
            await self.clock.until(None)

    def look(self, pod: Pod, running: Mapping[str, tuple[Container, Attempt]]) -> dict[str, Health]:
        """The health of the containers of a pod that run, by name."""
        meta, now = pod["metadata"], {attempt.folder for _, attempt in running.values()}
        for folder in [it for it in self._kept if it.parts[-4] == meta["uid"] and it not in now]:
            self._forget(folder)
        for name, (container, attempt) in running.items():
            if attempt.folder not in self._kept and (probes_of(container) or hook_of(container, "postStart")):
                about = About(kinds.PODS, meta["name"], meta["uid"], meta["namespace"])
                place = Place(container, attempt, self.clock)
                kept = self._kept[attempt.folder] = Kept(about, place, _first(pod, name, place))
                self._begin(kept, self._watch(kept))
            if attempt.is_asked and attempt.folder in self._kept:
                self._kept[attempt.folder].rest()
        return {name: self._kept[it.folder].health for name, (_, it) in running.items() if it.folder in self._kept}

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        for folder in [it for it in self._kept if it.parts[-4] == uid]:
            self._forget(folder)

    def farewell(self, about: About, place: Place, grace: float) -> float | None:
        """The seconds that a container has from its SIGTERM on; None while its `preStop` hook runs, after which
        `changed` is called."""
        hook, folder, now = hook_of(place.container, "preStop"), place.attempt.folder, self.clock.elapsed()
        if folder in self._kept:
            self._kept[folder].rest()
        if hook is None or not place.attempt.is_running or grace <= 0:
            return grace
        kept = self._kept.setdefault(folder, Kept(about, place, HEALTHY))
        kept.ends_at = now + grace if kept.ends_at is None else min(kept.ends_at, now + grace)
        if kept.leaving is None:
            assert self._tasks is not None
            kept.leaving = self._tasks.create_task(self._leave(kept, hook, grace))
        left = kept.ends_at - now
        return max(left, MIN_SECONDS) if kept.leaving.done() or left <= 0 else None

    def _begin(self, kept: Kept, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        kept.asking.append(self._tasks.create_task(work))

    def _forget(self, folder: Path) -> None:
        kept = self._kept.pop(folder)
        kept.rest()
        if kept.leaving:
            kept.leaving.cancel()

    def _say(self, kept: Kept, health: Health) -> None:
        if health != kept.health:
            kept.health = health
            self._changed(kept.about.uid)

    async def _leave(self, kept: Kept, hook: Mapping[str, Any], grace: float) -> None:
        if why := await perform(hook, kept.place, grace):
            self.events.tell(kept.about, "FailedPreStopHook", f"PreStopHook failed: {why}", is_warning=True)
        self._changed(kept.about.uid)

    async def _watch(self, kept: Kept) -> None:
        probes = probes_of(kept.place.container)
        if not await self._has_begun(kept):
            return
        if "startup" in probes and not kept.health.is_started:
            async with aclosing(self._verdicts(kept, probes["startup"], None)) as verdicts:
                if not await anext(verdicts):
                    self._condemn(kept, probes["startup"])
                    return
        is_ready = kept.health.is_ready or "readiness" not in probes
        self._say(kept, replace(kept.health, is_started=True, is_ready=is_ready))
        if "readiness" in probes:
            self._begin(kept, self._watch_readiness(kept, probes["readiness"]))
        if "liveness" in probes:
            async with aclosing(self._verdicts(kept, probes["liveness"], True)) as verdicts:
                await anext(verdicts)
            self._condemn(kept, probes["liveness"])

    async def _has_begun(self, kept: Kept) -> bool:
        """Runs `postStart`; whether it succeeded, now or before."""
        hook, mark = hook_of(kept.place.container, "postStart"), kept.place.attempt.folder / "hooked"
        if hook is None or mark.exists():
            return True
        if why := await perform(hook, kept.place, None):
            self.events.tell(kept.about, HOOK_FAILED, f"PostStartHook failed: {why}", is_warning=True)
            self._say(kept, replace(kept.health, fault=HOOK_FAILED))
            return False
        with suppress(OSError):  # on a full disk the next life repeats it
            mark.touch(mode=0o600)
        return True

    async def _watch_readiness(self, kept: Kept, probe: Probe) -> None:
        async with aclosing(self._verdicts(kept, probe, kept.health.is_ready)) as verdicts:
            async for verdict in verdicts:
                self._say(kept, replace(kept.health, is_ready=verdict))

    def _condemn(self, kept: Kept, probe: Probe) -> None:
        name = kept.place.container["name"]
        self.events.tell(kept.about, "Killing", f"Container {name} failed {probe.name} probe, will be restarted")
        self._say(kept, replace(kept.health, is_ready=False, fault=UNHEALTHY, grace=probe.grace))

    async def _verdicts(self, kept: Kept, probe: Probe, first: bool | None) -> AsyncIterator[bool]:
        """Each change of what a probe says; it is asked for as long as somebody wants to know."""
        tally = Tally(probe, first)
        left = (kept.place.attempt.started_at or 0.0) + probe.delay - self.clock.now()
        await self.clock.sleep(min(left, probe.delay))  # more is left only if the clock was set back
        while True:
            why = await perform(probe.action, kept.place, probe.timeout)
            if why:
                text = f"{probe.name.capitalize()} probe failed: {why}"
                self.events.tell(kept.about, UNHEALTHY, text, is_warning=True)
            if tally.add(not why):
                yield not why
            await self.clock.sleep(probe.period)


def _first(pod: Pod, name: str, place: Place) -> Health:
    """How a container is that is not watched yet: as its status says of this very attempt, else not started."""
    status = pod.get("status") or {}
    said = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    own = next((it for it in said if it["name"] == name and it.get("containerID") == place.attempt.id), {})
    return Health(bool(own.get("started")), bool(own.get("ready")))
