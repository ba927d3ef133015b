"""Whether a plan fits the ground it is put on: the referee's part on nodes, devices and domains.

Gangs are whole, every node is there, in the pool and takes the pods; no resource and no device is given twice, with
those that leave holding theirs until they are gone; what is asked of groups and of domains is kept.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from fairway.engine.labels import holds, selects, tolerates
from fairway.engine.model import GPU, Node, PodClass, Term
from fairway.engine.plan import Fault, Wait
from fairway.engine.resources import DEVICE, shared
from fairway.engine.snapshot import Snapshot

from .tally import Case, Cell, Held, Layout, cells, devices_in_use, layout_of, memory_of, pods_of

Takers = list[tuple[int, int]]
"""Items in order, and how much each takes of one thing."""


def gangs(starts: Layout) -> Iterator[Fault]:
    """All or nothing: every podset, and none with fewer than its minimum or more than its count."""
    for form in sorted(starts.odd):
        if starts.forms[form].role != "more":
            held = {one.name: one.count for one in starts.forms[form].admission.podsets}
            yield from _blame(starts, form, "Gang", str(held))


def _blame(layout: Layout, form: int, rule: str, detail: str) -> Iterator[Fault]:
    """A fault for each workload of a form that this plan decided."""
    for item in layout.items_of(form):
        if layout.items[item].role != "told":
            yield Fault(layout.items[item].workload.key, rule, detail)


def pools(snapshot: Snapshot, starts: Layout) -> Iterator[Fault]:
    """Every node is there and in the pool."""
    row_of = {pool.name: row for row, pool in enumerate(snapshot.pools)}
    pool = np.array([row_of.get(form[1].pool, -2) for form in starts.forms], np.int64)
    of_row = np.append(snapshot.pool_of, -3)
    for entry in np.flatnonzero(of_row[starts.row] != pool[starts.form]).tolist():
        yield from _blame(starts, int(starts.form[entry]), "Pool", starts.shares[entry].node)


def nodes(case: Case, starts: Layout) -> Iterator[Fault]:
    """Pods start only on nodes that take them."""
    snapshot = case.snapshot
    usable = np.append(snapshot.is_usable, True)
    for entry in np.flatnonzero(~usable[starts.row]).tolist():
        yield from _blame(starts, int(starts.form[entry]), "Node", f"{starts.shares[entry].node} is not usable")
    width = len(snapshot.nodes) + 1
    places = starts.kind * width + starts.row
    picky = [bool(pod.node_selector or pod.affinity or pod.volumes) for pod, _ in starts.kinds]
    for place in sorted(set(places[starts.row >= 0].tolist())):
        kind, row = divmod(place, width)
        node = snapshot.nodes[row]
        if (node.taints or picky[kind]) and (why := unfit(node, starts.kinds[kind][0])):
            for form in sorted(set(starts.form[places == place].tolist())):
                yield from _blame(starts, form, "Node", f"{node.name}: {why}")
    for item in case.special:
        used = {share.node for placement in item.admission.podsets for share in placement.nodes}
        for name in sorted(used.intersection(item.workload.excluded_nodes)) if item.role != "told" else ():
            yield Fault(item.workload.key, "Node", f"{name} is excluded")


def unfit(node: Node, pod: PodClass) -> str:
    """Why a node does not take pods of a class, as Kubernetes would have it; "" when it does."""
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(pod.tolerations, taint):
            return f"taint {taint.key}"
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return "selector"
    if pod.affinity and not any(_matches(term, node, labels) for term in pod.affinity):
        return "affinity"
    if not all(any(_matches(term, node, labels) for term in volume) for volume in pod.volumes):
        return "volume"
    return ""


def _matches(term: Term, node: Node, labels: dict[str, str]) -> bool:
    """All of a term's requirements hold; a term without any matches nothing."""
    return bool(term.expressions or term.fields) and (
        selects(term.expressions, labels) and all(holds(one, node.name) for one in term.fields)
    )


def rooms(snapshot: Snapshot, starts: Layout, leaves: Layout) -> Iterator[Fault]:
    """No resource of a node is given twice."""
    count = len(snapshot.nodes)
    free, new = snapshot.free, starts.by_node(count)
    if told := [item for item in starts.items if item.role == "told"]:
        free = free + layout_of(snapshot, told).by_node(count)
    short: list[list[int]] = np.argwhere((new > free) & (new > 0)).tolist()
    for column, row in short:
        takers = sorted(parts(starts, column, row))
        leaving: dict[str, int] = defaultdict(int)
        for item, amount in parts(leaves, column, row):
            leaving[leaves.items[item].workload.key] += amount
        for item in overdrawn(int(free[column, row]), takers, leaving, starts.items):
            detail = f"{snapshot.nodes[row].name} has no more {snapshot.resources[column]}"
            yield Fault(starts.items[item].workload.key, "Room", detail)


def parts(layout: Layout, column: int, row: int) -> Takers:
    """What each item takes of a resource of a node."""
    found: dict[int, int] = defaultdict(int)
    for entry in np.flatnonzero(layout.row == row).tolist():
        if amount := int(layout.needs[layout.kind[entry], column] * layout.count[entry]):
            for item in layout.items_of(int(layout.form[entry])):
                found[item] += amount
    return list(found.items())


def overdrawn(free: int, takers: Takers, leaving: dict[str, int], items: Sequence[Held]) -> list[int]:
    """The items that take what is not there: when those they wait for are gone and all who need no others have started,
    or when all are gone."""
    faulty: list[int] = []
    sound: Takers = []
    for item, amount in takers:
        gone = set(items[item].after)
        given = sum(held for key, held in leaving.items() if key in gone)
        beside = sum(other for one, other in sound if gone.issuperset(items[one].after))
        every = sum(leaving.values()) - sum(other for _, other in sound)
        if items[item].role != "told" and amount > free + min(given - beside, every):
            faulty.append(item)
        else:
            sound.append((item, amount))
    return faulty


def devices(case: Case, starts: Layout) -> Iterator[Fault]:
    """Devices are counted, healthy, whole, in the node, and each given once."""
    snapshot = case.snapshot
    gpu = snapshot.resources.index(GPU)
    concerned = (starts.row >= 0) & ((starts.needs[starts.kind, gpu] > 0) | (starts.given > 0))
    takers: dict[Cell, Takers] = defaultdict(list)
    for entry in np.flatnonzero(concerned).tolist():
        node, form, given = snapshot.nodes[starts.row[entry]], int(starts.form[entry]), starts.shares[entry].devices
        pod, pool = starts.kinds[starts.kind[entry]]
        part = shared(pod, memory_of(snapshot, pool))
        if why := misgiven(node, pod, part, given if len(given) in (0, starts.count[entry]) else ((-1,),)):
            yield from _blame(starts, form, "Device", f"{node.name}: {why}")
            continue
        for indices in given:
            for index in indices:
                takers[int(starts.row[entry]), index] += [(item, part or DEVICE) for item in starts.items_of(form)]
    if takers:
        yield from _given_twice(case, starts, takers)


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


def _given_twice(case: Case, starts: Layout, takers: dict[Cell, Takers]) -> Iterator[Fault]:
    """Each device is enough for all that stand, leave and start; and one group is used where one would have done."""
    snapshot, used = case.snapshot, devices_in_use(case)
    leaving: dict[Cell, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gone in case.leaves:
        for cell, amount in cells(snapshot, gone):
            leaving[cell][gone.workload.key] += amount
    for cell, wanted in takers.items():
        for item in overdrawn(DEVICE - used[cell], sorted(wanted), leaving[cell], starts.items):
            detail = f"{snapshot.nodes[cell[0]].name} device {cell[1]} is taken"
            yield Fault(starts.items[item].workload.key, "Device", detail)
        used[cell] += sum(amount for _, amount in wanted)
    kept = {share.node for wait in case.of(Wait) if wait.held for one in wait.held.podsets for share in one.nodes}
    for entry in np.flatnonzero((starts.given > 0) & (starts.row >= 0)).tolist():
        row = int(starts.row[entry])
        node, pod = snapshot.nodes[row], starts.kinds[starts.kind[entry]][0]
        is_kept = node.name in kept or snapshot.reservations
        for own in starts.shares[entry].devices:
            whole = own if is_kept else tuple(
                one.index for one in node.devices if one.is_healthy and not one.is_partitioned
                and (one.index in own or not used[row, one.index]))
            if why := misaligned(node, pod, own, whole):
                yield from _blame(starts, int(starts.form[entry]), "Alignment", f"{node.name}: {why}")


def misaligned(node: Node, pod: PodClass, own: Sequence[int], whole: Sequence[int]) -> str:
    """Devices of several groups though one is required, or though `whole` ones of a single group would have done."""
    device_of = {device.index: device for device in node.devices}
    chosen = [device_of[index] for index in own if index in device_of]
    numas = {device.numa for device in chosen}
    if pod.alignment_required and chosen:
        if len(numas) > 1 or -1 in numas:
            return "not in one NUMA group"
        offered = [dict(one.capacity) for one in node.numa if one.index in numas]
        short = [name for name, amount in pod.requests for one in offered if one.get(name, amount) < amount]
        return f"its NUMA group has no such {short[0]}" if short else ""
    for groups in ({one.index: one.nvlink for one in node.devices}, {one.index: one.numa for one in node.devices}):
        known = [groups[index] for index in whole if groups[index] >= 0]
        if len({groups[device.index] for device in chosen}) <= 1:
            return ""
        if any(known.count(group) >= len(own) for group in known):
            return "one group would have done"
    return ""


def topologies(case: Case, starts: Layout) -> Iterator[Fault]:
    """All podsets inside one domain of the workload's level, each inside one of its own, segments inside theirs."""
    snapshot = case.snapshot
    alike = {id(form[0].podsets): form[0].podsets for form in starts.forms}
    bound = {key for key, podsets in alike.items()
             if any(one.topology.required or one.topology.segments for one in podsets)}
    for item in case.starts if bound else case.special:
        level = item[0].topology.required
        if not (level or id(item[0].podsets) in bound) or item.role == "told":
            continue
        admission = item.whole or item.admission
        ranks = {placement.name: [node for node, _ in pods_of(placement)] for placement in admission.podsets}
        blocks = [(level, [node for names in ranks.values() for node in names])] if level else []
        for podset in item.workload.podsets:
            names, size = ranks.get(podset.name, []), len(ranks.get(podset.name, []))
            for inner, width in (
                (podset.topology.required, size), *((one.level, one.size) for one in podset.topology.segments)
            ):
                blocks += [(inner, names[at : at + width]) for at in range(0, size, width or 1)] if inner else []
        for level in sorted({level for level, names in blocks if is_split(snapshot, admission.pool, level, names)}):
            yield Fault(item.workload.key, "Topology", f"not in one {level}")


def is_split(snapshot: Snapshot, pool: str, level: str, names: Sequence[str]) -> bool:
    """Whether nodes are not in one domain. A domain is told by its labels from the widest level down; a node without
    the level's label is in none."""
    levels = next((one.levels for one in snapshot.pools if one.name == pool), ())
    if level not in levels:
        return True
    upper = levels[: levels.index(level) + 1]
    domains = set()
    for name in {name for name in names if name in snapshot.row_of}:
        labels = dict(snapshot.nodes[snapshot.row_of[name]].labels)
        domains.add(tuple(labels.get(one) for one in upper) if level in labels else None)
    return len(domains) > 1 or None in domains
