"""Whether a plan fits the ground it is put on: gangs, pools, nodes, room, devices and domains.

Room of those that leave counts only for whom they leave (`after`), and only when they are all gone; until then they
hold it. Of several that together take too much, those decided last are at fault.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from operator import attrgetter

import numpy as np

from fairway.engine import (
    DEVICE,
    GPU,
    NAME,
    Node,
    PodClass,
    Snapshot,
    Term,
    Wait,
    holds,
    implied,
    selects,
    shared,
    tolerates,
)

from .layout import DECIDED, LEAVES, Item, memory_of
from .plan_view import PlanView, pods_of

Found = Iterator[tuple[str, str]]  # keys of workloads that break a rule, and how


def gangs(view: PlanView) -> Found:
    for form in sorted(view.laid.odd):
        for item in (view.laid.items[at] for at in view.laid.members[form]):
            if item.role in ("new", "moved"):
                yield item.key, str({one.name: one.count for one in item.admission.podsets})


def pools(view: PlanView) -> Found:
    laid, rows = view.laid, {pool.name: row for row, pool in enumerate(view.snapshot.pools)}
    pool = np.array([rows.get(form.admission.pool, -2) for form in laid.forms], np.int64)
    for item, entry in laid.decided(np.append(view.snapshot.pool_of, -3)[laid.row] != pool[laid.form]):
        yield item.key, f"{laid.shares[entry].node} is not in it"
    is_choosy = any(queue.pools for queue in view.snapshot.queues.values())
    for item in view.starts if is_choosy else view.special:
        listed = (item[0].pools, next((queue.pools for queue in view.path(item[0]) if queue.pools), ()))
        if item.role in ("new", "moved") and any(names and item.admission.pool not in names for names in listed):
            yield item.key, f"{item.admission.pool} is not allowed"


def nodes(view: PlanView) -> Found:
    laid, snapshot = view.laid, view.snapshot
    is_tainted = np.array([row >= 0 and bool(snapshot.nodes[row].taints) for row in laid.row.tolist()], np.bool_)
    is_picky = np.array([bool(pod.node_selector or pod.affinity or pod.volumes) for pod, _ in laid.kinds], np.bool_)
    for item, entry in laid.decided(~np.append(snapshot.is_usable, True)[laid.row]):
        node, pod = snapshot.nodes[laid.row[entry]], laid.kinds[laid.kind[entry]][0]
        if not node.is_up or any(not tolerates(pod.tolerations, taint) for taint in implied(node)):
            yield item.key, f"{node.name} is not usable"
    for item, entry in laid.decided((is_tainted | is_picky[laid.kind]) & (laid.row >= 0)):
        node = snapshot.nodes[laid.row[entry]]
        if why := unfit(node, laid.kinds[laid.kind[entry]][0]):
            yield item.key, f"{node.name}: {why}"


def unfit(node: Node, pod: PodClass) -> str:
    """Why a node does not take pods of a class, as Kubernetes would have it; "" when it does."""
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(pod.tolerations, taint):
            return f"taint {taint.key}"
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return "selector"
    if pod.affinity and not _matches(pod.affinity, node, labels):
        return "affinity"
    return "" if all(_matches(terms, node, labels) for terms in pod.volumes) else "volume"


def _matches(terms: Sequence[Term], node: Node, labels: dict[str, str]) -> bool:
    """One of the terms holds; a term without requirements matches nothing."""
    return any(
        (term.expressions or term.fields) and selects(term.expressions, labels)
        and all(holds(one, node.name) for one in term.fields)
        for term in terms
    )


# Room and devices


def rooms(view: PlanView) -> Found:
    snapshot, count = view.snapshot, len(view.snapshot.nodes)
    for key, cell in overdrawn(view, range(snapshot.free.size)):
        yield key, f"{snapshot.nodes[cell % count].name} has no more {snapshot.resources[cell // count]}"


def overdrawn(view: PlanView, cells: range) -> Iterator[tuple[str, int]]:
    """Items that take what is not there, and of which cell: when those they wait for are gone and all that need no
    others have started, or when all are gone."""
    if not view.is_short.any():
        return
    is_short = view.is_short.copy()
    is_short[: cells.start] = is_short[cells.stop :] = False
    for cell, takers in view.laid.takers(is_short).items():
        free, leaving, waiting = int(view.free[cell]), defaultdict[str, int](int), list[tuple[int, tuple[str, ...]]]()
        takes = [(view.laid.items[at], amount) for at, amount in takers]
        for item, amount in takes:
            leaving[item.key] += amount * (item.role in LEAVES)
        every, at_once = sum(leaving.values()), 0
        for item, amount in takes:
            gone = set(item.after)
            given = sum(leaving[key] for key in gone & leaving.keys())
            beside = at_once + sum(other for other, after in waiting if gone.issuperset(after)) if gone else at_once
            if item.role in DECIDED and amount > free + min(given - beside, every):
                yield item.key, cell
            elif item.role not in LEAVES:
                every -= amount
                at_once += 0 if item.after else amount
                waiting += [(amount, item.after)] if item.after else []


def devices(view: PlanView) -> Found:
    laid, snapshot = view.laid, view.snapshot
    asked = laid.needs[laid.kind, snapshot.resources.index(GPU)] > 0
    for item, entry in laid.decided((laid.row >= 0) & (asked | (laid.given > 0))):
        node, share, (pod, pool) = snapshot.nodes[laid.row[entry]], laid.shares[entry], laid.kinds[laid.kind[entry]]
        given = share.devices if len(share.devices) in (0, share.count) else ((-1,),)
        if why := misgiven(node, pod, shared(pod, memory_of(snapshot, pool)), given):
            yield item.key, f"{node.name}: {why}"
    first, (_, slots) = snapshot.free.size, snapshot.device_free.shape
    for key, cell in overdrawn(view, range(first, len(view.free))):
        node = snapshot.nodes[(cell - first) // slots]
        yield key, f"{node.name} device {node.devices[(cell - first) % slots].index} is taken"


def misgiven(node: Node, pod: PodClass, part: int, given: tuple[tuple[int, ...], ...]) -> str:
    """What is wrong with the devices of some pods on a node; "" if nothing is."""
    asked = 1 if part else dict(pod.requests).get(GPU, 0) // DEVICE
    if node.chooser == "Kubelet":
        return "devices are not ours to choose" if any(given) else "nobody here divides a device" if part else ""
    if not given and (not asked or node.chooser == "Claim"):
        return ""
    if not given or any(len(set(indices)) != asked or len(indices) != asked for indices in given):
        return f"{asked} devices for each pod"
    fit = {device.index for device in node.devices if device.is_healthy and not device.is_partitioned}
    broken = {index for indices in given for index in indices} - fit
    return f"no whole, healthy device {min(broken)}" if broken else ""


def alignments(view: PlanView) -> Found:
    laid, snapshot, (_, slots) = view.laid, view.snapshot, view.snapshot.device_free.shape
    kept = {name for wait in view.of(Wait) if wait.held for name in wait.held.nodes}
    is_idle = view.free - view.taken == DEVICE
    for item, entry in laid.decided((laid.given > 0) & (laid.row >= 0)):
        row, pod = int(laid.row[entry]), laid.kinds[laid.kind[entry]][0]
        node, first = snapshot.nodes[row], snapshot.free.size + row * slots
        idle = {one.index for slot, one in enumerate(node.devices) if is_idle[first + slot]}
        for own in laid.shares[entry].devices:
            spare = () if node.name in kept or snapshot.reservations else idle
            if why := misaligned(node, pod, own, spare):
                yield item.key, f"{node.name}: {why}"


def misaligned(node: Node, pod: PodClass, own: Sequence[int], idle: Collection[int]) -> str:
    """Devices of several groups though one is required, or though a single group, with idle ones, would have done."""
    chosen = [one for one in node.devices if one.index in own]
    offered = [one for one in node.devices if one.index in idle or one.index in own]
    numas = {one.numa for one in chosen}
    if pod.alignment_required and chosen:
        if len(numas) > 1 or -1 in numas:
            return "not in one NUMA group"
        limits = [dict(one.capacity) for one in node.numa if one.index in numas]
        short = [name for name, amount in pod.requests for one in limits if one.get(name, amount) < amount]
        return f"its NUMA group has no such {short[0]}" if short else ""
    for group in (attrgetter("nvlink"), attrgetter("numa")):
        if len(set(map(group, chosen))) <= 1:
            return ""
        if any(count >= len(own) for one, count in Counter(map(group, offered)).items() if one >= 0):
            return "one group would have done"
    return ""


# Domains


def topologies(view: PlanView) -> Found:
    snapshot = view.snapshot
    bound = {id(podsets) for podsets in view.laid.podsets
             if any(one.topology.required or one.topology.segments for one in podsets)}
    for item in view.starts if bound else view.special:
        if (item[0].topology.required or id(item[0].podsets) in bound) and item.role != "told":
            pool = item.admission.pool
            for level in sorted({level for level, names in blocks(item) if is_split(snapshot, pool, level, names)}):
                yield item.key, f"not in one {level}"


def blocks(item: Item) -> Iterator[tuple[str, list[str]]]:
    """Levels, and the nodes of pods that belong into one domain of them."""
    placements = (item.whole or item.admission).podsets
    ranks = {placement.name: [node for node, _ in pods_of(placement)] for placement in placements}
    yield item.workload.topology.required, list(chain(*ranks.values()))
    for podset in item.workload.podsets:
        names, own = ranks.get(podset.name, []), podset.topology
        for level, size in ((own.required, len(names)), *((one.level, one.size) for one in own.segments)):
            yield from ((level, names[at : at + size]) for at in range(0, len(names), size or 1))


def is_split(snapshot: Snapshot, pool: str, level: str, names: Sequence[str]) -> bool:
    """Whether nodes are not in one domain. A domain is told by its labels from the widest level down; a node without
    the level's label is in none."""
    levels = next((one.levels for one in snapshot.pools if one.name == pool), ())
    if not level or level not in levels:
        return bool(level)
    upper, domains = levels[: levels.index(level) + 1], set()
    for name in {name for name in names if name in snapshot.row_of}:
        labels = {NAME: name, **dict(snapshot.nodes[snapshot.row_of[name]].labels)}
        domains.add(tuple(labels.get(one) for one in upper) if level in labels else None)
    return len(domains) > 1 or None in domains
