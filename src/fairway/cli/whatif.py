"""What would be: `submit --dry-run`, and what `why` says would help. Decided here, on what the cluster is now.

The objects that decide are read from the API server, and asked is the policy that the controller says it decides by,
the default where that cannot be read. A Job is added as the server would make it, and nothing is made.
"""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from fairway.api.names import name_of
from fairway.api.scalars import time_text
from fairway.kube import kinds
from fairway.kube.client import ApiError, Client, unless_absent
from fairway.kube.kinds import Kind, Selection
from fairway.kube.transport import Request

from .cancelled import gone
from .connect import allowed, unseen
from .leader import has_worked, lease_of
from .main import told
from .output import clock_time, in_local_time, start
from .verdict import late
from .view import DEFAULT

if TYPE_CHECKING:
    from fairway.api.objects import Part
    from fairway.api.types import WorkloadObject
    from fairway.engine import Policy, Wait, World
    from fairway.offline import Case

Thing = dict[str, Any]


class _Meta(msgspec.Struct, rename={"owners": "ownerReferences"}):
    name: str = ""
    namespace: str = ""
    owners: tuple[msgspec.Raw, ...] = ()


class _Owned(msgspec.Struct):
    metadata: _Meta


DRY_RUN, WHY = "/fairway/dry-run", "/fairway/why"
"""Where a team's server works out for its users what they may not read themselves."""
NO_NODE = "none while no node is ready and schedulable"
READ = (
    (kinds.NAMESPACES, kinds.NODES, kinds.NODE_POOLS, kinds.QUEUES),
    (kinds.RESERVATIONS, kinds.PRIORITY_CLASSES, kinds.DISRUPTION_BUDGETS, kinds.PODS),
    (kinds.WORKLOADS,),
)
"""All that decides but Jobs, and what pods with claims need; read side by side, each part over one connection."""
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
STORED = (*kinds.STORAGE, *kinds.CSI)
"""What pods with claims need."""


async def dry_run(client: Client, job: Thing, namespace: str) -> tuple[Thing, list[str]]:
    """When and where the Job would start, and who would have to go: as data, and in a line or two. Where the user may
    not see the cluster, a server that answers for it is asked."""
    try:
        answer, world = await answered(client, client, job, namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        said = await asked(client, DRY_RUN, {"job": {**job, "metadata": {**job["metadata"], "namespace": namespace}}})
        if said is None:
            raise
        return said["answer"], said["lines"]
    return answer, lines_of(answer, world)


async def asked(client: Client, path: str, what: Thing) -> Thing | None:
    """What a team's server works out for its users; None from any other server."""
    headers = {"content-type": "application/json"}
    try:
        return msgspec.json.decode(await client.call(Request("POST", path, (), headers, msgspec.json.encode(what))))
    except ApiError as error:
        if error.status not in (403, 404, 405):
            raise
        return None


async def answered(client: Client, reader: Client, job: Thing, namespace: str) -> tuple[Thing, "World"]:
    """How the Job, if `client` sent it, would be decided now on what `reader` may see; and that."""
    job = await client.create(kinds.JOBS, job, namespace=namespace, dry_run=True, is_strict=True)
    known, policy = await asyncio.gather(_known(reader), policy_of(reader))
    from fairway.api.workloads import key_of
    from fairway.offline import Case

    key = f"{namespace}/{name_of('Job', job['metadata']['name'])}"
    left = {id(it) for it in _workloads(known) if key_of(it.metadata) == key}  # by an older Job of the name, on its way
    known = [it for it in known if id(it) not in left]
    world = await _world(reader, known, [*await _jobs(reader, known), job])
    case = Case(world, policy, key)
    return await client.clock.in_thread(lambda: _answer(case)), world


def _answer(case: "Case") -> Thing:
    answer, ours = case.answer(), case.ours
    deadline = time_text(ours.deadline) if ours.deadline else ""
    lengths = ours.expected_runtime or 0.0, ours.time_limit or 0.0
    line = late(deadline, answer.get("forecast") or {}, lengths, case.world.now)
    return answer | {"caveats": [*_unbounded(case, case.wait), *[line] * bool(line)]}


async def would_help(client: Client, key: str, *, is_foretold: bool) -> list[str]:
    """What would let the waiting workload start now, else sooner, and why it has no forecast; nothing where its user
    may not see the cluster."""
    return (await explained(client, key, is_foretold=is_foretold))["lines"]


async def explained(client: Client, key: str, *, is_foretold: bool) -> Thing:
    """The same as `lines`; where it waits, with the `reason`, `message` and `position` of a decision now, since those
    that are written may be a minute old, and `caveats`: what that message does not promise."""
    try:
        known, policy = await asyncio.gather(_known(client), policy_of(client))
        is_known = any(f"{it.metadata.namespace}/{it.metadata.name}" == key for it in _workloads(known))
        world = await _world(client, known, [] if is_known else await _jobs(client, known))
    except ApiError as error:
        if error.status == 403:
            return await asked(client, WHY, {"key": key, "isForetold": is_foretold}) or {"lines": []}
        raise
    from fairway.offline import Case

    case = Case(await _marked(client, known, world, key), policy, key)
    said = await client.clock.in_thread(lambda: _decided(case))
    changes, sooner = await client.clock.in_thread(case.helps)
    starts = NO_NODE if not has_usable_node(world) else ""
    if not (starts or is_foretold):
        starts = await client.clock.in_thread(lambda: _outlook(case))
    more = [*changes, *_sooner(sooner, world.now), *[f"forecast: {starts}"] * bool(starts)]
    return said | {"lines": more}


async def foreseen(client: Client, key: str, change: Mapping[str, str]) -> Thing:
    """How the workload would be decided now if its spec said `change`, as Case.answer says; empty where the user may
    not see the cluster, too."""
    from fairway.api.types import WorkloadObject
    from fairway.api.workloads import key_of
    from fairway.offline import Case

    try:
        known, policy = await asyncio.gather(_known(client), policy_of(client))
    except ApiError as error:
        if error.status == 403:
            return {}
        raise
    for at, it in enumerate(known):
        if isinstance(it, WorkloadObject) and key_of(it.metadata) == key:
            known[at] = msgspec.structs.replace(it, spec=msgspec.structs.replace(it.spec, **change))
    case = Case(await _world(client, known, []), policy, key)
    return await client.clock.in_thread(case.answer)


async def _marked(client: Client, known: "list[Part]", world: "World", key: str) -> "World":
    """With the names of what the workload comes after marked, where the last workload of that name was cancelled."""
    from fairway.api.names import CANCELLED, called

    ours = next((it for it in world.pending if it.key == key and it.after), None)
    if ours is None:
        return world
    there = {it.key for it in world.pending}
    for meta in (it.metadata for it in _workloads(known)):
        refs = ((ref.kind, ref.name) for ref in meta.owner_references)
        there |= {f"{meta.namespace}/{name}" for name in called(meta.name, refs)}
    left = await gone(client, key.partition("/")[0]) - there
    marked = replace(ours, after=tuple(f"{it}{CANCELLED}" if it in left else it for it in ours.after))
    return replace(world, pending=tuple(marked if it is ours else it for it in world.pending))


def _decided(case: "Case") -> Thing:
    """Why the workload waits, as is decided now; empty where it does not."""
    from fairway.api.conditions import waiting

    wait = case.wait
    if wait is None:
        return {}
    caveats = [*_alone_over(wait), *_unbounded(case, wait)]
    message = waiting(wait, case.ours, case.queues)
    return {"reason": str(wait.reason), "message": message, "position": wait.position, "caveats": caveats}


def _alone_over(wait: "Wait") -> list[str]:
    """Of what is over a bound of its queue by itself."""
    bound = {"OverLimit": "limit", "OverGuaranteed": "guarantee"}.get(str(wait.reason))
    is_alone = bound and (wait.facts.missing or 0) > sum((wait.facts.used or {}).values())
    line = f"it is over the {bound} by itself: it starts only where it asks for less, or the {bound} is raised"
    return [line] * bool(is_alone)


def _unbounded(case: "Case", wait: "Wait | None") -> list[str]:
    """Of a time from which on room is kept: what holds it without a time limit, and so may hold it for longer."""
    from fairway.api.conditions import names
    from fairway.engine import QueueTree, counts_of, snapshot_of

    if wait is None or wait.held is None or not wait.is_guess:
        return []
    tree, lacks, free = QueueTree(snapshot_of(case.world), case.policy), wait.facts.resource, []
    for one in case.world.running:
        podsets = one.workload.podsets
        held = tree.amounts(podsets, counts_of(podsets, one.admission), one.admission.pool).get(lacks, not lacks)
        if one.admission.nodes & wait.held.nodes and held and tree.time_limit(one.workload) is None:
            free.append(one.workload.key)
    has = "have" if len(free) > 1 else "has"
    line = f"that time is a guess: {names(free, case.ours, case.queues)} {has} no time limit"
    return [line] * bool(free)


def _outlook(case: "Case") -> str:
    """When it starts, where the controller has not told yet: after a burst of work it rests for minutes."""
    ours = next((it for it in case.world.running if it.workload.key == case.key), None)
    if ours and ours.is_leaving:  # an evicted one is not admitted any more, as a promised one is not yet
        return f"none while it is being evicted{'' if ours.moves_to else ': it waits again once it has stopped'}"
    if ours and ours.is_promised:
        return "starts as soon as what is evicted for it has stopped"
    why, now = case.unforeseen(), case.world.now
    starts = "" if why or case.is_long() else start(case.foretold(), now)
    return f"starts {starts}" if starts else f"none: {why}" if why else "none yet: the next one is on its way"


async def policy_of(client: Client) -> "Policy":
    """The one that the cluster's controller says on its lease that it decides by; the default where none is told."""
    try:
        lease = await lease_of(client)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        lease = None
    return await client.clock.in_thread(lambda: _policy(lease))  # which waits for the engine, as `_known` need not


def _policy(lease: Thing | None) -> "Policy":
    from fairway.api.scalars import duration
    from fairway.settings import DECIDES_BY, Settings, SettingsError, policy_of, settings_of

    notes = (lease or {"metadata": {}})["metadata"].get("annotations") or {}
    try:
        return policy_of(settings_of(json.loads(notes.get(DECIDES_BY, "{}")), duration))
    except (SettingsError, ValueError):
        return policy_of(Settings())


async def _known(client: Client) -> "list[Part]":
    """What the API server has of READ; the controller decides on no more. It is sent while the engine is imported."""
    async def those(part: tuple[Kind, ...]) -> list[list[msgspec.Raw]]:
        return [await client.list(Selection(kind), msgspec.Raw) for kind in part]

    lists = asyncio.gather(*map(those, READ))
    sent, forms = await asyncio.gather(lists, client.clock.in_thread(lambda: _forms(chain.from_iterable(READ))))
    read = map(msgspec.json.Decoder, forms)
    known = [one.decode(it) for one, them in zip(read, chain.from_iterable(sent)) for it in them]
    return [*known, *_alone(known)]


def _forms(of: Iterable[Kind]) -> "list[type[Part]]":
    """Loads the engine: without numpy's threads for linear algebra, which take longer to start than they save."""
    before = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = before or "1"
    from fairway.offline import FORMS

    if before is None:
        del os.environ[BLAS_THREADS]
    return [FORMS[kind.group_version.rpartition("/")[0], kind.name] for kind in of]


async def _storage(client: Client) -> "list[Part] | None":
    """Claims, volumes and their classes, None where the user may not see all of them; of CSI what the user may see."""
    lists = [client.list(Selection(kind), form) for kind, form in zip(STORED, _forms(STORED))]
    own = len(kinds.STORAGE)
    with unseen():
        found = await asyncio.gather(*map(unless_absent, lists[:own]), *map(allowed, map(unless_absent, lists[own:])))
        return [one for them in found for one in them or ()]
    return None


def _use_claims(known: "list[Part]", jobs: list[Thing]) -> bool:
    """Whether a pod of these uses a claim; raises Malformed."""
    from fairway.api.decode import cleaned, decode
    from fairway.api.objects import PodObject, PodTemplate
    from fairway.api.volumes import claims_of

    pods = (it for it in known if isinstance(it, PodObject))
    written = (podset.template for it in _workloads(known) for podset in it.spec.pod_sets)
    to_come = (decode(cleaned(it["spec"]["template"]), PodTemplate) for it in jobs)
    return any(any(claims_of(it)) for it in chain(pods, written, to_come))


def _alone(known: "list[Part]") -> "list[Part]":
    """What bare pods stand for that have no Workload."""
    from fairway.api.alone import workload_of_pod
    from fairway.api.objects import QUEUE, PodObject
    from fairway.api.workloads import key_of

    own = [workload_of_pod(it) for it in known if isinstance(it, PodObject) and QUEUE in it.metadata.labels]
    written = {key_of(it.metadata) for it in _workloads(known)}
    return [it for it in own if it and key_of(it.metadata) not in written]


def _workloads(known: "list[Part]") -> "list[WorkloadObject]":
    from fairway.api.types import WorkloadObject

    return [it for it in known if isinstance(it, WorkloadObject)]


async def _jobs(client: Client, known: "list[Part]") -> list[Thing]:
    """The Jobs for which no Workload stands yet; of thousands the others are not decoded."""
    stand = {
        (it.metadata.namespace, ref.name)
        for it in _workloads(known) for ref in it.metadata.owner_references if ref.kind == "Job"
    }  # fmt: skip
    jobs = await client.list(Selection(kinds.JOBS), msgspec.Raw)
    return [msgspec.json.decode(raw) for raw in jobs if not _stands(raw, stand)]


async def _world(client: Client, known: "list[Part]", jobs: list[Thing]) -> "World":
    """What is known, with Jobs."""
    from fairway.api.scalars import Malformed
    from fairway.offline import read

    things = ({**it, "apiVersion": kinds.JOBS.group_version, "kind": kinds.JOBS.name} for it in jobs)
    with told(Malformed):
        known = [*known, *await _unmade(client, known)]
        storage = await _storage(client) if _use_claims(known, jobs) else []
        now = float(int(client.clock.now()))
        return read([*known, *(storage or ()), *things], now=now, is_live=True, has_storage=storage is not None)


async def _unmade(client: Client, known: "list[Part]") -> "list[Part]":
    """Queue `default` where it is not there yet, but about to be made."""
    from fairway.api.types import QueueObject

    if any(isinstance(it, QueueObject) and it.metadata.name == DEFAULT for it in known) or await has_worked(client):
        return []
    return [msgspec.convert({"metadata": {"name": DEFAULT}}, QueueObject)]


def _stands(job: msgspec.Raw, those: set[tuple[str, str]]) -> bool:
    """Whether a Workload stands for it, and nothing above it matters."""
    meta = msgspec.json.decode(job, type=_Owned).metadata
    return not meta.owners and (meta.namespace, meta.name) in those


def lines_of(said: Thing, world: "World") -> list[str]:
    message = in_local_time(said["message"], world.now)
    caveats = [f"  {in_local_time(one, world.now)}" for one in said["caveats"]]
    if said["verdict"] == "Wait":
        nothing = "no start is in sight" if has_usable_node(world) else NO_NODE
        starts = f"starts {start(said['forecast'], world.now)}" if said["forecast"] else nothing
        others = [f"  {one}" for one in _sooner(said["sooner"], world.now)]
        return [f"would wait: {said['reason']}: {message}", f"  forecast: {starts}", *caveats, *others]
    if said["verdict"] == "Admit":
        message = f"would start {'' if said['after'] else 'now '}{message.removeprefix('starts ')}"
    victims = {"evict": said["wouldEvict"], "shrink": said["wouldShrink"]}
    return [message, *(f"  it would {verb} {names}" for verb, names in victims.items() if names), *caveats]


def has_usable_node(world: "World") -> bool:
    return any(one.is_up and one.is_ready and not one.is_unschedulable for one in world.nodes)


def _sooner(found: Thing | None, now: float) -> list[str]:
    return [f"in queue {found['queue']} it would start at about {clock_time(found['at'], now)}"] if found else []
