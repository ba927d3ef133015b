"""Carries connections: from the address and port of a Service to a ready pod behind it, to each in turn.

Pods share this machine's addresses, so a pod that listens on all of them at the Service's own port is reached without
help. For any other this process listens at the Service's address, as soon as a pod listens and only so long: it must
never hold the port that a pod is about to take. UDP is not carried.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from fairway.clock import Clock
from fairway.embedded.logs import Kubelet
from fairway.kube.client import Client
from fairway.kube.events import About, Events
from fairway.node.processes import ANY, listening

from .address import HEADLESS
from .control import SERVICES, Backend, Service

SOON_SECONDS, LATER_SECONDS = 0.5, 5.0
CHUNK_BYTES = 64 << 10
CONNECT_SECONDS = 10.0
Place = tuple[str, int]


@dataclass(slots=True)
class Gate:
    """Where this process listens for a Service; `goals`: where pods do; `fault`: why it cannot listen, as told."""

    clock: Clock
    goals: list[Place] = field(default_factory=list)
    server: asyncio.Server | None = None
    fault: str = ""
    turn: "count[int]" = field(default_factory=count)

    async def open(self, place: Place) -> None:
        """Raises OSError where it cannot listen there."""
        self.server = await asyncio.start_server(self._serve, *place)

    def close(self) -> None:
        if self.server:
            self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(self.turn)
        try:
            for goal in [self.goals[(first + step) % len(self.goals)] for step in range(len(self.goals))]:
                with suppress(OSError, TimeoutError):
                    far, near = await self.clock.within(CONNECT_SECONDS, asyncio.open_connection(*goal))
                    await asyncio.gather(_copy(reader, near), _copy(far, writer))
                    return
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the one side says no more, which the other is told."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


class Carrier:
    """All gates of this machine, by Service and then by where they are."""

    def __init__(self, client: Client, kubelet: Kubelet) -> None:
        self.clock, self.kubelet = client.clock, kubelet
        self.events = Events(client, "service-proxy")
        self._gates: dict[str, dict[Place, Gate]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.events.run()
        finally:
            for gates in self._gates.values():
                for gate in gates.values():
                    gate.close()

    async def carry(self, one: Service, pods: Sequence[Backend]) -> float | None:
        """Opens and closes the gates of a Service; returns when to look again where pods may begin to listen."""
        meta, address = one.metadata, one.spec.get("clusterIP") or HEADLESS
        gates = self._gates.setdefault(f"{meta.namespace}/{meta.name}", {})
        goals = await self._goals(one, pods) if address != HEADLESS else {}
        for place in [it for it in gates if it not in goals or not goals[it]]:
            gates.pop(place).close()
        for place, found in goals.items():
            if found:
                gates.setdefault(place, Gate(self.clock)).goals = found
                await self._open(one, place, gates[place])
        if not gates:
            del self._gates[f"{meta.namespace}/{meta.name}"]
        is_open = all(place in gates and gates[place].server for place in goals)
        return self.clock.now() + (LATER_SECONDS if is_open else SOON_SECONDS) if goals and pods else None

    async def _goals(self, one: Service, pods: Sequence[Backend]) -> dict[Place, list[Place]]:
        """Where the pods listen, for each place at which the Service is; none where it is reached without help."""
        shims = [list(self.kubelet.shims(it.metadata.namespace, it.metadata.name).values()) for it in pods]
        heard = await self.clock.in_thread(lambda: [listening(it) for it in shims])
        goals: dict[Place, list[Place]] = {}
        for port in one.spec.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                continue
            numbers = [it.port(port.get("targetPort", port["port"])) for it in pods]
            found = [(ports[number], number) for ports, number in zip(heard, numbers) if number in ports]
            is_direct = any(where in ANY and number == port["port"] for where, number in found)
            place = one.spec["clusterIP"], port["port"]
            goals[place] = [] if is_direct else [(ANY.get(where, where), number) for where, number in found]
        return goals

    async def _open(self, one: Service, place: Place, gate: Gate) -> None:
        """Opens a gate that is not open. An event tells why it cannot be, once for each cause."""
        if gate.server:
            return
        try:
            await gate.open(place)
        except OSError as error:
            hint = "; ports below 1024 need root: choose another" if isinstance(error, PermissionError) else ""
            fault = f"cannot listen on {place[0]}:{place[1]}: {error.strerror}{hint}"
            if fault != gate.fault:
                gate.fault, meta = fault, one.metadata
                about = About(SERVICES, meta.name, meta.uid, meta.namespace)
                self.events.tell(about, "FailedListen", fault, is_warning=True)
