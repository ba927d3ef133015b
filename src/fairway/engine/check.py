"""The referee: every way in which a plan would break the cluster or a promise, item by item.

Written from the promises alone; it knows nothing of how a plan is made, and shares no code with what makes it. A fault
is a real breach: where the promises leave a choice, every choice passes. Of several workloads that together take
too much, those decided last are at fault. Room of those that leave counts only for whom they leave (`after`), and only
when they are all gone; until then they hold it. The rules of queues are in `audit`, those of victims and
time in `appeal`.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from .appeal import afters, evictions, finishes, holds, reservations, resizes
from .audit import budgets, cores, doors, limits, tree_of
from .model import GPU, Expression, Node, PodClass, Running, Term
from .plan import Admit, Evict, Fault, Finish, Keep, Plan, Resize, Wait
from .resources import DEVICE, shared
from .snapshot import Snapshot
from .tally import Case, Cell, Held, Layout, case_of, cells, devices_in_use, layout_of, memory_of, pods_of

RULES = (
    "Total",  # every pending and every running workload has exactly one verdict, and nobody else has one
    "Kind",  # a verdict that the workload's state allows; what was promised is said again, unchanged
    "Gang",  # every podset, each between its minimum and its count
    "Pool",  # a pool that is there, and every node in it
    "Node",  # usable, tainted with nothing untolerated, selected, near its volumes, not excluded
    "Room",  # no resource of a node is taken twice, pod slots included
    "Device",  # as many devices as asked, there, whole, healthy, taken once; none where others choose
    "Alignment",  # one NUMA group where that is required; one group where one would have done
    "Topology",  # inside one domain of the required level; segments inside theirs
    "Door",  # the queue is there, a leaf, open to it; it is active, backs off no more, came after what succeeded
    "Reason",  # a wait gives the first reason that holds
    "Limit",  # at most the limit, at every ancestor
    "Guaranteed",  # the non-preemptible within what is guaranteed, at every ancestor
    "Budget",  # nothing left to overrun
    "After",  # it waits only for those who leave
    "Resize",  # within minCount..count; who stays, stays where it is
    "Finish",  # at its time limit, or after a failure
    "Victim",  # taken by a right, and not protected
    "Vain",  # taken for somebody who is admitted after it
    "Needed",  # were it spared, there would not be room
    "Share",  # reclaimed within the asker's share, from above what the loser is due
    "Hold",  # nobody delays a hold
    "Reserved",  # nobody stays into a reservation of others
)


def check(snapshot: Snapshot, plan: Plan) -> list[Fault]:
    """The faults of a plan; none in a plan that may be carried out."""
    case = case_of(snapshot, plan)
    tree = tree_of(snapshot)
    starts, leaves = layout_of(snapshot, case.starts), layout_of(snapshot, case.leaves)
    return [
        *total(case),
        *kinds(case),
        *gangs(starts),
        *pools(snapshot, starts),
        *nodes(snapshot, starts),
        *rooms(snapshot, starts, leaves),
        *devices(case, starts, leaves),
        *topologies(snapshot, starts),
        *doors(case, tree),
        *limits(case, tree, starts),
        *cores(case, tree),
        *budgets(case, tree),
        *afters(case),
        *resizes(case),
        *finishes(case, tree),
        *evictions(case, tree),
        *holds(case, tree),
        *reservations(case, tree),
    ]


def total(case: Case) -> Iterator[Fault]:
    """Each pending and each running workload gets exactly one verdict."""
    known = case.waiting.keys() | case.running.keys()
    if len(case.verdicts) < len(case.plan.verdicts):
        seen: set[str] = set()
        for verdict in case.plan.verdicts:
            if verdict.workload in seen:
                yield Fault(verdict.workload, "Total", "more than one verdict")
            seen.add(verdict.workload)
    for key in sorted(known - case.verdicts.keys()):
        yield Fault(key, "Total", "no verdict")
    for key in sorted(case.verdicts.keys() - known):
        yield Fault(key, "Total", "unknown workload")


def kinds(case: Case) -> Iterator[Fault]:
    """Pending: Admit, Wait, or Finish for what it came after. Running: Keep, Evict, Resize, Finish; leaving: Keep."""
    for verdict in case.plan.verdicts:
        one = case.running.get(verdict.workload)
        if one is None:
            fits = isinstance(verdict, Admit | Wait | Finish)
        elif one.is_leaving:
            fits = isinstance(verdict, Keep)
        elif one.is_promised:
            fits = isinstance(verdict, Evict | Finish) or _is_said_again(case, one, verdict)
        else:
            fits = isinstance(verdict, Keep | Evict | Resize | Finish)
        if not fits:
            yield Fault(verdict.workload, "Kind", type(verdict).__name__)


def _is_said_again(case: Case, one: Running, verdict: object) -> bool:
    """The same admission, after those that are still there."""
    there = {key for key in one.waits_for if key in case.running}
    return isinstance(verdict, Admit) and verdict.admission == one.admission and set(verdict.after) == there


def gangs(starts: Layout) -> Iterator[Fault]:
    """All or nothing: every podset, and none with fewer than its minimum or more than its count."""
    for form, item in enumerate(starts.forms):
        held = {placement.name: placement.count for placement in item.whole.podsets}
        podsets = item.workload.podsets
        if len(held) == len(item.whole.podsets) == len(podsets) and all(
            podset.min_count <= held.get(podset.name, -1) <= podset.count for podset in podsets
        ):
            continue
        yield from _blame(starts, form, "Gang", str(held))


def _blame(layout: Layout, form: int, rule: str, detail: str) -> Iterator[Fault]:
    """A fault for each workload of a form that this plan decided."""
    for item in layout.items_of(form):
        if layout.items[item].is_fresh:
            yield Fault(layout.items[item].workload.key, rule, detail)


def pools(snapshot: Snapshot, starts: Layout) -> Iterator[Fault]:
    """Every node is there and in the pool."""
    row_of = {pool.name: row for row, pool in enumerate(snapshot.pools)}
    pool = np.array([row_of.get(form.admission.pool, -2) for form in starts.forms], np.int64)
    of_row = np.append(snapshot.pool_of, -3)
    for entry in np.flatnonzero(of_row[starts.row] != pool[starts.form]):
        yield from _blame(starts, starts.form[entry], "Pool", starts.shares[entry].node)


def nodes(snapshot: Snapshot, starts: Layout) -> Iterator[Fault]:
    """Pods start only on nodes that take them."""
    usable = np.append(snapshot.is_usable, True)
    for entry in np.flatnonzero(~usable[starts.row]):
        yield from _blame(starts, starts.form[entry], "Node", f"{starts.shares[entry].node} is not usable")
    code = starts.kind * (len(snapshot.nodes) + 1) + starts.row + 1
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    for place, entry in enumerate(first.tolist()):
        row = int(starts.row[entry])
        if row >= 0 and (why := unfit(snapshot.nodes[row], starts.kinds[starts.kind[entry]][0])):
            for other in np.flatnonzero(back == place):
                yield from _blame(starts, starts.form[other], "Node", f"{snapshot.nodes[row].name}: {why}")
    for item in starts.items:
        if item.workload.excluded_nodes and item.is_fresh:
            used = {share.node for placement in item.admission.podsets for share in placement.nodes}
            for name in sorted(used.intersection(item.workload.excluded_nodes)):
                yield Fault(item.workload.key, "Node", f"{name} is excluded")


def unfit(node: Node, pod: PodClass) -> str:
    """Why a node does not take pods of a class, as Kubernetes would have it; "" when it does."""
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(
            one.effect in ("", taint.effect)
            and (one.key == taint.key or (not one.key and one.operator == "Exists"))
            and (one.operator == "Exists" or one.value == taint.value)
            for one in pod.tolerations
        ):
            return f"taint {taint.key}"
    if not (pod.node_selector or pod.affinity or pod.volumes):
        return ""
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return "selector"
    if pod.affinity and not any(matches(term, node, labels) for term in pod.affinity):
        return "affinity"
    if not all(any(matches(term, node, labels) for term in volume) for volume in pod.volumes):
        return "volume"
    return ""


def matches(term: Term, node: Node, labels: dict[str, str]) -> bool:
    """All of a term's requirements hold; a term without any matches nothing."""
    return bool(term.expressions or term.fields) and (
        all(passes(one, labels.get(one.key)) for one in term.expressions)
        and all(passes(one, node.name) for one in term.fields)
    )


def passes(one: Expression, found: str | None) -> bool:
    if one.operator in ("Gt", "Lt"):
        try:
            left, right = int(found or ""), int(one.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if one.operator == "Gt" else left < right
    if one.operator in ("Exists", "DoesNotExist"):
        return (found is not None) == (one.operator == "Exists")
    return (found in one.values) == (one.operator == "In")


Takers = list[tuple[int, int]]
"""Items in order, and how much each takes of one thing."""


def rooms(snapshot: Snapshot, starts: Layout, leaves: Layout) -> Iterator[Fault]:
    """No resource of a node is given twice."""
    count = len(snapshot.nodes)
    told = layout_of(snapshot, [item for item in starts.items if not item.is_fresh])
    free = snapshot.free + told.by_node(count)
    new = starts.by_node(count)
    givers: dict[int, list[int]] = defaultdict(list)
    for entry, row in enumerate(leaves.row.tolist()):
        givers[row].append(entry)
    short: list[list[int]] = np.argwhere((new > free) & (new > 0)).tolist()
    for column, row in short:
        takers: Takers = []
        for entry in np.flatnonzero((starts.row == row) & (starts.needs[starts.kind, column] > 0)).tolist():
            amount = int(starts.needs[starts.kind[entry], column] * starts.count[entry])
            takers += [(item, amount) for item in starts.items_of(starts.form[entry])]
        leaving: dict[str, int] = defaultdict(int)
        for entry in givers[row]:
            amount = int(leaves.needs[leaves.kind[entry], column] * leaves.count[entry])
            for item in leaves.items_of(leaves.form[entry]):
                leaving[leaves.items[item].workload.key] += amount
        for item in overdrawn(int(free[column, row]), takers, leaving, starts.items):
            detail = f"{snapshot.nodes[row].name} has no more {snapshot.resources[column]}"
            yield Fault(starts.items[item].workload.key, "Room", detail)


def overdrawn(free: int, takers: Takers, leaving: dict[str, int], items: Sequence[Held]) -> list[int]:
    """The fresh items that take what is not there: when those they wait for are gone and all who need no others have
    started, or when all are gone."""
    faulty: list[int] = []
    sound: Takers = []
    for item, amount in sorted(takers):
        gone = set(items[item].after)
        given = sum(held for key, held in leaving.items() if key in gone)
        beside = sum(other for one, other in sound if gone.issuperset(items[one].after))
        every = sum(leaving.values()) - sum(other for _, other in sound)
        if items[item].is_fresh and amount > free + min(given - beside, every):
            faulty.append(item)
        else:
            sound.append((item, amount))
    return faulty


def devices(case: Case, starts: Layout, leaves: Layout) -> Iterator[Fault]:
    """Devices are counted, healthy, whole, in the node, and each taken once."""
    snapshot = case.snapshot
    gpu = snapshot.resources.index(GPU)
    concerned = np.flatnonzero((starts.row >= 0) & ((starts.needs[starts.kind, gpu] > 0) | (starts.given > 0)))
    takers: dict[Cell, Takers] = defaultdict(list)
    for entry in concerned.tolist():
        node, form = snapshot.nodes[starts.row[entry]], int(starts.form[entry])
        pod, pool = starts.kinds[starts.kind[entry]]
        part = shared(pod, memory_of(snapshot, pool))
        if why := misgiven(node, pod, part, starts.shares[entry].devices, int(starts.count[entry])):
            yield from _blame(starts, form, "Device", f"{node.name}: {why}")
            continue
        items = starts.items_of(form)
        for indices in starts.shares[entry].devices:
            for index in indices:
                takers[int(starts.row[entry]), index] += [(item, part or DEVICE) for item in items]
    if takers:
        yield from _taken_twice(case, starts, leaves, takers)


def misgiven(node: Node, pod: PodClass, part: int, given: tuple[tuple[int, ...], ...], count: int) -> str:
    """What is wrong with the devices of some pods on a node; "" if nothing is."""
    asked = 1 if part else dict(pod.requests).get(GPU, 0) // DEVICE
    if node.chooser == "Kubelet":
        return "devices are not ours to choose" if any(given) else "nobody here divides a device" if part else ""
    if not given and (not asked or node.chooser == "Claim"):
        return ""
    if len(given) != count or any(len(set(indices)) != asked or len(indices) != asked for indices in given):
        return f"{asked} devices for each of {count} pods"
    fit = {device.index for device in node.devices if device.is_healthy and not device.is_partitioned}
    broken = {index for indices in given for index in indices} - fit
    return f"no whole, healthy device {min(broken)}" if broken else ""


def _taken_twice(case: Case, starts: Layout, leaves: Layout, takers: dict[Cell, Takers]) -> Iterator[Fault]:
    """Shared and whole devices, with what stands, leaves and starts; then whether one group would have done."""
    snapshot = case.snapshot
    used = devices_in_use(case)
    leaving: dict[Cell, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gone in leaves.items:
        for cell, amount in cells(snapshot, gone.workload, gone.admission):
            leaving[cell][gone.workload.key] += amount
    for cell, wanted in takers.items():
        for item in overdrawn(DEVICE - used[cell], wanted, leaving[cell], starts.items):
            detail = f"{snapshot.nodes[cell[0]].name} device {cell[1]} is taken"
            yield Fault(starts.items[item].workload.key, "Device", detail)
        used[cell] += sum(amount for _, amount in wanted)
    yield from _misaligned(case, starts, used)


def _misaligned(case: Case, starts: Layout, used: dict[Cell, int]) -> Iterator[Fault]:
    """Devices of one group where one is required; or would have done, unless room on the node is kept for others."""
    snapshot = case.snapshot
    kept = {share.node for verdict in case.plan.verdicts if isinstance(verdict, Wait) and verdict.held
            for placement in verdict.held.podsets for share in placement.nodes}
    for entry in np.flatnonzero((starts.given > 0) & (starts.row >= 0)).tolist():
        row = int(starts.row[entry])
        node, pod = snapshot.nodes[row], starts.kinds[starts.kind[entry]][0]
        for own in starts.shares[entry].devices:
            whole = own if node.name in kept or snapshot.reservations else tuple(
                one.index for one in node.devices if one.is_healthy and not one.is_partitioned
                and (one.index in own or not used[row, one.index]))
            if why := misaligned(node, pod, own, whole):
                yield from _blame(starts, int(starts.form[entry]), "Alignment", f"{node.name}: {why}")


def misaligned(node: Node, pod: PodClass, own: Sequence[int], whole: Sequence[int]) -> str:
    """Devices of several groups though one is required, or though `whole` ones of a single group would have done."""
    device_of = {device.index: device for device in node.devices}
    chosen = [device_of[index] for index in own if index in device_of]
    numas = {device.numa for device in chosen}
    if not chosen:
        return ""
    if pod.alignment_required:
        if len(numas) > 1 or -1 in numas:
            return "not in one NUMA group"
        offered = {one.index: dict(one.capacity) for one in node.numa}
        lacking = [name for name, amount in pod.requests
                   for numa in numas & offered.keys() if offered[numa].get(name, amount) < amount]
        return f"its NUMA group has no such {lacking[0]}" if lacking else ""
    for groups in ({one.index: one.nvlink for one in node.devices}, {one.index: one.numa for one in node.devices}):
        known = [groups[index] for index in whole if groups[index] >= 0]
        if len({groups[device.index] for device in chosen}) == 1 and groups[chosen[0].index] >= 0:
            return ""
        if any(known.count(group) >= len(own) for group in known):
            return "one group would have done"
    return ""


def topologies(snapshot: Snapshot, starts: Layout) -> Iterator[Fault]:
    """All podsets inside one domain of the workload's level, each inside one of its own, segments inside theirs."""
    for form, item in enumerate(starts.forms):
        named = {placement.name: placement for placement in item.whole.podsets}
        for podset in item.workload.podsets:
            if not (podset.topology.required or podset.topology.segments) or podset.name not in named:
                continue
            names = [node for node, _ in pods_of(named[podset.name])]
            blocks = [(podset.topology.required, names)] if podset.topology.required else []
            for segment in podset.topology.segments:
                blocks += [(segment.level, names[start : start + segment.size])
                           for start in range(0, len(names), segment.size)]
            for level in {level for level, block in blocks if is_split(snapshot, item.whole.pool, level, block)}:
                yield from _blame(starts, form, "Topology", f"{podset.name} is not in one {level}")
    for item in starts.items:
        level = item.workload.topology.required
        if level and item.is_fresh:
            names = [share.node for placement in item.whole.podsets for share in placement.nodes]
            if is_split(snapshot, item.whole.pool, level, names):
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
