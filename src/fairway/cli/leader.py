"""Whether a scheduler decides on a cluster: the lease that its controller renews says so, and until when one did.

Commands that show what waits say in a line of their own where none does, on standard error: what they print is then as
old as the last decision. Clocks differ and a standby takes over within seconds, so a while is allowed for; where the
reader may not see the lease nothing is said.
"""

from typing import Any

import click

from fairway import LEASE, NAMESPACE, WORKED
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

from .connect import allowed, unseen
from .output import clock_time, seconds

PATIENCE_SECONDS = 30.0
OUR_OWN = "+fairway"  # ends the version of the API server of `fairway up`
Thing = dict[str, Any]


async def leader(client: Client, namespace: str) -> str:
    """The identity of the controller that holds the lease and renews it, a pod's name inside the cluster; "": none."""
    lease = await client.find(Ref(kinds.LEASES, LEASE, namespace))
    return str(lease["spec"]["holderIdentity"]) if lease and _is_held(lease, client.clock.now()) else ""


def _is_held(lease: Thing | None, now: float) -> bool:
    spec: Thing = lease["spec"] if lease else {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return False
    return bool(seconds(spec["renewTime"]) + (spec.get("leaseDurationSeconds") or 0) >= now)


async def warn(client: Client) -> None:
    """Says on standard error that no scheduler decides, where that is so. That of `fairway up` comes and goes with its
    API server: one that answers has just been started, at worst."""
    line = await idle(client)
    if line and not (await client.read("/version"))["gitVersion"].endswith(OUR_OWN):
        click.echo(line, err=True)


async def idle(client: Client) -> str:
    """That no scheduler decides, and since when; "" where one does, or its reader may not know."""
    lease: Thing | None = {}
    with unseen():
        lease = await lease_of(client)
    if lease == {}:
        return ""
    todo = "`fairway install --check` says what is missing"
    if lease is None or not lease["spec"].get("renewTime"):
        return f"no scheduler has decided yet: no controller runs on this cluster; {todo}"
    spec, now = lease["spec"], client.clock.now()
    said = (lease["metadata"].get("annotations") or {}).get(WORKED) or spec["renewTime"]
    term = spec.get("leaseDurationSeconds") or 0 if spec.get("holderIdentity") else 0
    if max(seconds(said), seconds(spec["renewTime"])) + term + PATIENCE_SECONDS >= now:
        return ""
    return f"no scheduler has decided since {clock_time(said, now)}: no controller runs on this cluster; {todo}"


async def has_worked(client: Client) -> bool:
    """Whether its controller has worked for so long that it has made what it makes at its start; False where its reader
    may not know."""
    with unseen():
        lease = await lease_of(client) or {"metadata": {}, "spec": {}}
        worked = (lease["metadata"].get("annotations") or {}).get(WORKED)
        began = lease["spec"].get("acquireTime")
        return bool(worked and began) and seconds(worked) - seconds(began) > PATIENCE_SECONDS
    return False


async def lease_of(client: Client) -> Thing | None:
    """The controller's. Where Fairway is installed in a namespace of another name, who may see all leases finds it: of
    several the one that was renewed last."""
    usual = await client.find(Ref(kinds.LEASES, LEASE, NAMESPACE))
    if _is_held(usual, client.clock.now()):
        return usual
    found = await allowed(client.list(Ref(kinds.LEASES, LEASE).alone()))
    last = max(found or (), key=lambda it: str(it["spec"].get("renewTime") or ""), default=None)
    return usual if found is None else last
