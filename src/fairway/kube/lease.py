"""Leader election on a coordination Lease: of several controllers, one writes.

The holder renews every quarter of the term, and may write until two thirds of a term after its last renewal was *sent*;
others take over a whole term after they last saw the lease change, by their own clock. So two never write at once as
long as clocks run at the same speed; they need not agree on the time, and may be set at will. The same identity renews
at once: a restart on one machine waits for nobody. Leaving in order gives the lease up, and the next one, which looks
every second, takes it; a crash lets it run out. The lease also says until when a holder has worked, which one that took
it and crashed before it began has not. Kubernetes reads times of a lease with six digits of the second only.
"""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from fairway import TOLD, WORKED
from fairway.api.quantities import time

from .client import ApiError, Client, unless_absent
from .kinds import Ref

TERM_SECONDS, FOLLOW_SECONDS, RELEASE_SECONDS, LOOK_SECONDS = 15.0, 1.0, 2.0, 0.05
log = logging.getLogger(__name__)


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    """What is kept of others' words on it."""

    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Lease(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class Election:
    """Ask `is_leader()` before every write. `worked_until`: when another last worked; `told_until`: what it noted of
    TOLD; `was_left`: in order. `leads_from`: when the lease was last taken; 0.0 for never."""

    def __init__(self, client: Client, lease: Ref, *, identity: str, term: float = TERM_SECONDS) -> None:
        self.client, self.lease, self.identity, self.term = client, lease, identity, term
        self.acquired = asyncio.Event()
        self._asked = self._renewed = float("-inf")
        self._offset = client.clock.offset()
        self._works, self.was_left = False, False
        self.worked_until = self.told_until = float("inf")
        self._seen, self.leads_from = ("", float("-inf")), 0.0

    def is_leader(self) -> bool:
        return self._is_recent(self._renewed)

    def _is_recent(self, moment: float) -> bool:
        return self.client.clock.elapsed() - moment <= self.term * 2 / 3

    async def begin(self, **notes: str | None) -> None:
        """Notes on the lease that its holder works from now on, and what else is given. Not to have noted it harms
        nothing."""
        self._works = True
        said = {WORKED: micro_time(self.client.clock.now()), **notes}
        with suppress(ApiError, OSError):
            await self.client.patch(self.lease, {"metadata": {"annotations": said}})

    async def run(self) -> None:
        """Holds the lease, or tries to; until cancelled, when it gives it up."""
        try:
            while True:
                try:
                    await self._turn()
                except (ApiError, OSError, msgspec.MsgspecError) as error:
                    self._asked = self._renewed if isinstance(error, ApiError) else self._asked  # it was answered
                    log.warning("lease %s: %s", self.lease.name, str(error) or type(error).__name__)
                if self.acquired.is_set() and not self.is_leader():
                    self.acquired.clear()
                    log.warning("lease %s is lost", self.lease.name)
                pause = self.term / 4
                await self.client.clock.sleep(pause if self.acquired.is_set() else min(pause, FOLLOW_SECONDS))
        finally:
            self.acquired.clear()

    async def release(self) -> None:
        """Gives the lease up if it is ours, also where no answer said so yet: the next one need not wait."""
        is_open, self._renewed = self._asked > self._renewed, float("-inf")
        if self._is_recent(self._asked):
            with suppress(ApiError, OSError):
                await self.client.clock.within(RELEASE_SECONDS, self._until_given_up(is_open=is_open))

    async def _until_given_up(self, *, is_open: bool) -> None:
        """What was cut off may still be written: a conflict is tried again, an open request waited for."""
        while True:
            try:
                if await self._give_up() or not is_open:
                    return
            except ApiError as error:
                if error.status != 409 and not (error.status == 404 and is_open):
                    raise
            await self.client.clock.sleep(LOOK_SECONDS)

    async def _give_up(self) -> bool:
        """Whether it was ours."""
        found = await self.client.get(self.lease, _Lease)
        if found.spec.holder_identity != self.identity:
            return False
        until = self.client.clock.elapsed() + self._offset  # by the clock that what it did was told with
        worked = {WORKED: micro_time(until), TOLD: None} if self._works else {}
        seen = {"resourceVersion": found.metadata.resource_version, "annotations": worked}
        await self.client.patch(self.lease, {"metadata": seen, "spec": {"holderIdentity": ""}})
        return True

    async def _turn(self) -> None:
        now, began = self.client.clock.now(), self.client.clock.elapsed()
        found = await unless_absent(self.client.get(self.lease, _Lease))
        if found is None:
            first, self._asked = self._object(now, _Lease(_Meta(), _Spec())), began
            await self.client.create(self.lease.kind, first, namespace=self.lease.namespace)
        elif not self._may_take(found, began):
            return
        else:
            self._asked = began
            await self.client.update(self.lease, self._object(now, found))
            if not self.acquired.is_set():
                notes = found.metadata.annotations
                self.worked_until = _moment(notes.get(WORKED) or found.spec.acquire_time)
                self.told_until = _moment(notes.get(TOLD))
                self.was_left = found.spec.holder_identity == ""
        self._renewed = began
        self.leads_from = self.leads_from if self.acquired.is_set() else now
        self.acquired.set()

    def _may_take(self, found: _Lease, now: float) -> bool:
        if found.spec.holder_identity in (None, "", self.identity):
            return True
        if self._seen[0] != found.metadata.resource_version:
            self._seen = (found.metadata.resource_version, now)
        return now - self._seen[1] > (found.spec.lease_duration_seconds or self.term)

    def _object(self, now: float, found: _Lease) -> dict[str, object]:
        before, moment = found.spec, micro_time(now)
        ours = before.holder_identity == self.identity
        spec = _Spec(
            holder_identity=self.identity,
            lease_duration_seconds=round(self.term),
            acquire_time=before.acquire_time if ours else moment,
            renew_time=moment,
            lease_transitions=(before.lease_transitions or 0) + (0 if ours else 1),
        )
        worked = {WORKED: moment} if self._works else {}
        meta = replace(found.metadata, annotations={**found.metadata.annotations, **worked})
        return {
            "apiVersion": self.lease.kind.group_version,
            "kind": self.lease.kind.name,
            "metadata": {
                "name": self.lease.name, "namespace": self.lease.namespace, **msgspec.to_builtins(meta),
            },
            "spec": msgspec.to_builtins(spec),
        }


def _moment(said: str | None) -> float:
    return time(said) if said else float("inf")


def micro_time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
