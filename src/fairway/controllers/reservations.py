"""What Reservations show: whether a window is open, and what they name that does not exist.

A Reservation may be made before its queue, pool or nodes are; nothing is kept for it there until they are. Its status
is written when what it names comes or goes, and when a window opens or closes. Nothing is decided here.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from fairway.api import queues
from fairway.api.conditions import missing
from fairway.api.decode import change
from fairway.api.quantities import Malformed
from fairway.api.types import ReservationObject, ReservationStatus
from fairway.engine import occurrence
from fairway.kube import kinds
from fairway.kube.agenda import Agenda
from fairway.kube.events import About
from fairway.kube.kinds import Kind

from . import status as life
from .means import Means
from .status import Said

NAMES = (kinds.QUEUES, kinds.NODE_POOLS, kinds.NODES)
DEFAULT = "default"
"""The pool of a cluster without NodePools."""


class Reservations:
    def __init__(self, means: Means) -> None:
        self.means = means
        self.agenda = Agenda(means.client.clock, means.client.chance)

    async def run(self) -> None:
        """Until cancelled."""
        await self.means.take_turns(self.agenda, self._turn)

    def note(self, kind: Kind, name: str, *, is_new: bool) -> None:
        """An object changed; `is_new`: it came or went."""
        if kind is kinds.RESERVATIONS:
            self.agenda.note(name)
        elif is_new and kind in NAMES:
            for one in self.means.view.reservations:
                self.agenda.note(one)

    async def _turn(self, name: str) -> float | None:
        seen = self.means.view.reservations.get(name)
        if seen is None:
            return None
        try:
            when = occurrence(queues.reservation(seen), now := self.means.now())
        except Malformed:
            return None  # the door refuses such, where there is one
        made = self._status(seen, "Over" if when is None else "Waiting" if now < when[0] else "Open")
        if patch := change(seen.status, made):
            await self.means.patch(kinds.RESERVATIONS, seen, {"status": patch})
            self._warn(seen, made)
        return None if when is None else when[0] if now < when[0] else when[1]

    def _status(self, seen: ReservationObject, phase: str) -> ReservationStatus:
        words = missing(list(self._absent(seen)))
        said = Said("NotFound", words) if words else Said("Valid")
        told = life.told(seen.status, "Valid", said, now=self.means.now(), value=str(not words))
        return replace(told, phase=phase)

    def _absent(self, seen: ReservationObject) -> Iterator[str]:
        view, spec = self.means.view, seen.spec
        if spec.queue and spec.queue not in view.queues:
            yield f"queue {spec.queue}"
        if spec.pool and spec.pool not in view.pools and (spec.pool != DEFAULT or view.pools):
            yield f"pool {spec.pool}"
        yield from (f"node {name}" for name in spec.nodes if name not in view.nodes)

    def _warn(self, seen: ReservationObject, made: ReservationStatus) -> None:
        """An event where it names what is not there."""
        for one in made.conditions:
            if one.type == "Valid" and one.status == "False":
                about = About(kinds.RESERVATIONS, seen.metadata.name, seen.metadata.uid)
                self.means.events.tell(about, one.reason, one.message, is_warning=True)
