"""What a controller needs before it starts: the definitions of its kinds, and the namespace of its lease.

Where something is missing it says so in one line, once, and waits: it may well be applied a moment later.
"""

import logging
from collections.abc import Callable

from fairway.api.crds import KINDS
from fairway.api.objects import GROUP
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import FAIRWAY, Ref

WAIT_SECONDS = 2.0
INSTALL = "run `fairway install | kubectl apply -f -`"
log = logging.getLogger(__name__)


async def missing(client: Client, namespace: str) -> list[str]:
    """The objects that the cluster lacks, each by kind and name. ApiError, OSError: it cannot be asked."""
    served = {it["name"] for it in await client.resources(FAIRWAY)}
    found = [f"CustomResourceDefinition {it.plural}.{GROUP}" for it in KINDS if it.plural not in served]
    if not await client.list(Ref(kinds.NAMESPACES, namespace).alone()):
        found.append(f"Namespace {namespace}")
    return found


async def installed(client: Client, namespace: str, note: Callable[[str], None]) -> None:
    """Returns once nothing is missing. `note` gets what it waits for."""
    before = ""
    while lacks := await _lacks(client, namespace):
        note(lacks)
        if lacks != before:
            log.warning("%s", lacks)
        before = lacks
        await client.clock.sleep(WAIT_SECONDS)


async def _lacks(client: Client, namespace: str) -> str:
    try:
        found = await missing(client, namespace)
    except (ApiError, OSError) as error:
        return f"the API server does not tell what is installed: {error}; trying again"
    return f"missing on this cluster: {', '.join(found)}; {INSTALL}; waiting for it" if found else ""
