"""Worlds to test decisions on: strategies that mix every feature, a printer, and what a plan makes of a world.

`worlds()` gives small clusters: queues up to three deep with quotas, limits, percentages and priorities, several pools,
nodes with grouped devices and each kind of chooser, topology, taints, gangs, elastic podsets, fractions, running
workloads that hold consistent room (a first fit of its own), leaving and promised ones, reservations. A failing world
prints as a few lines. `after(world, plan)` carries a plan out with time frozen and everybody who leaves gone.
"""

import random
from collections import defaultdict
from dataclasses import replace

from hypothesis import strategies as st

from fairway.engine.model import (
    Admission,
    Decayed,
    Device,
    Ended,
    Eviction,
    Expression,
    Node,
    NodeShare,
    Numa,
    Pod,
    PodAffinity,
    PodClass,
    PodSet,
    PodSetPlacement,
    Pool,
    Preference,
    Queue,
    Quota,
    Reservation,
    Running,
    Segment,
    Share,
    Spread,
    Taint,
    Term,
    Toleration,
    Topology,
    Workload,
    World,
)
from fairway.engine.plan import Admit, Evict, Finish, Plan, Resize, Verdict, Wait
from fairway.engine.resources import DEVICE, shared
from fairway.referee.placement import unfit

GIB = 1 << 30
NOW = 1_000_000.0
ZONE, RACK, HOST = "zone", "rack", "kubernetes.io/hostname"
LEVELS = (ZONE, RACK, HOST)


class Told(World):
    """A world that prints as a few lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n" + show(self)

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(repr(self))


FEATURES = (
    "pools", "levels", "labels", "taints", "unusable", "broken", "mig", "numa", "tree", "quotas", "limits",
    "shares", "doors", "protection", "consolidation", "stop", "gangs", "elastic", "topology", "segments",
    "fractions", "memory", "affinity", "social", "alignment", "nonpreemptible", "time", "history", "excluded",
    "besides", "leaving", "promised", "reservations", "budgets", "depth", "orders", "chained", "waits",
    "lost",
)


class Dice:
    """Throws for one thing of a world: only the features that the world has turn up."""

    def __init__(self, seed: int, features: frozenset[str]) -> None:
        self.random, self.features = random.Random(seed), features

    def some(self, feature: str, per_cent: int) -> bool:
        return self.random.random() * 100 < per_cent and feature in self.features

    def pick(self, *values):
        return values[int(self.random.random() * len(values))]


@st.composite
def worlds(draw, *, salt: int = 0, features: tuple[str, ...] = FEATURES):
    """Drawn are the sizes, which features there are, and a seed for each thing: few draws, which shrink well."""
    seed = st.integers(0, (1 << 20) - 1).map(lambda drawn: drawn * 16 + salt)
    is_dense = draw(st.booleans())  # half the worlds have few features: then more of the rest happens
    flags = draw(st.binary(min_size=len(features), max_size=len(features)))  # a byte each, in one draw
    on = frozenset(name for name, flag in zip(features, flags) if flag & 1 and (flag & 2 or is_dense))
    if "levels" not in on:
        on -= {"topology", "segments"}
    dice = lambda least, most: [Dice(one, on) for one in draw(st.lists(seed, min_size=least, max_size=most))]  # noqa: E731
    one = Dice(draw(seed), on)
    pools = _pools(one)
    nodes = tuple(_node(throw, index) for index, throw in enumerate(dice(1, 5)))
    queues: list[Queue] = []
    for throw in dice(1, 5):
        queues.append(_queue(throw, queues))
    leaves = [queue.name for queue in queues if queue.name not in {other.parent for other in queues}]
    throws = dice(1, 14)
    names = [f"ns/w{index}" for index in range(len(throws))]
    workloads = [_workload(throw, key, leaves, names) for key, throw in zip(names, throws)]
    pods = tuple(_pod(one, index) for index in range(2) if one.some("besides", 30))
    running, pending = _seat(one, World(NOW, nodes, pools, pods=pods), workloads)
    reservations = (_reservation(one, leaves, nodes),) if one.some("reservations", 40) else ()
    ended = (Ended("ns/gone", True), Ended("ns/failed", False)) if one.some("chained", 80) else ()
    return Told(NOW, nodes, pools, tuple(queues), tuple(pending), tuple(running), pods, reservations, ended=ended)


def _pools(dice: Dice) -> tuple[Pool, ...]:
    def of(name: str, selector: tuple[Expression, ...] = ()) -> Pool:
        return Pool(
            name, selector, LEVELS if dice.some("levels", 90) else (),
            hold_depth=-1 if dice.some("depth", 40) else None,
            strategy="Spread" if dice.some("levels", 15) else "Binpack",
            eviction_gpus=2000 if dice.some("protection", 25) else None,
        )
    if dice.some("pools", 60):
        return tuple(of(name, (Expression("pool", "In", (name,)),)) for name in ("a", "b"))
    return (of("a"),) if "levels" in dice.features or dice.pick(True, False) else ()


def _node(dice: Dice, index: int) -> Node:
    some, pick, name = dice.some, dice.pick, f"n{index}"
    labels = {HOST: name, "pool": pick("a", "b"), ZONE: pick("z0", "z1"), RACK: pick("r0", "r1")}
    if some("labels", 20):
        del labels[RACK]
    if some("affinity", 40):
        labels["disk"] = "ssd"
    gpus = pick(4, 4, 8, 2, 0)
    capacity = {"cpu": pick(8000, 16000), "memory": 64 * GIB, "pods": 4 if some("broken", 30) else 110}
    devices, numa, chooser = (), (), "Kubelet"
    if gpus:
        capacity["nvidia.com/gpu"] = gpus * DEVICE
        labels["nvidia.com/gpu.memory"] = pick("81920", "40960")
        chooser = pick("Scheduler", "Scheduler", "Kubelet", "Claim")
    if gpus and chooser != "Kubelet":
        half = max(1, gpus // 2)
        devices = tuple(Device(at, numa=at // half, nvlink=at // half if gpus > 2 else -1,
                               memory=int(labels["nvidia.com/gpu.memory"]) << 20,
                               is_partitioned=some("mig", 10), is_healthy=not some("broken", 10)) for at in range(gpus))
        if some("numa", 50):
            numa = tuple(Numa(at, (("cpu", capacity["cpu"] // 2),)) for at in (0, 1))
    if gpus and some("mig", 40):
        capacity["nvidia.com/mig-1g.10gb"] = 7
    return Node(
        name, tuple(sorted(labels.items())), tuple(sorted(capacity.items())),
        taints=(Taint("gpu", "yes", pick("NoSchedule", "NoExecute")),) if some("taints", 30) else (),
        is_ready=not some("unusable", 15), is_unschedulable=some("unusable", 15), is_unhealthy=some("unusable", 15),
        chooser=chooser, devices=devices, numa=numa,
    )


def _queue(dice: Dice, before: list[Queue]) -> Queue:
    some, pick = dice.some, dice.pick
    roots = [one.name for one in before if not one.parent]
    parents = [one.name for one in before if not one.parent or one.parent in roots]
    pools = ("*", "a") if some("quotas", 20) else pick(("*",), ("*",), ("*",), ("a",), ())
    return Queue(
        f"q{len(before)}", pick(*parents) if parents and some("tree", 60) else "",
        tuple(_quota(dice, pool) for pool in pools),
        priority=pick(0, 0, 1),
        order=pick("FIFO", "FairUsers", "LeastAttained", "ShortestFirst") if some("orders", 40) else "Priority",
        pools=pick(("a",), ("b", "a")) if some("doors", 10) else (),
        namespaces=frozenset({"other"}) if some("doors", 2) else None, max_priority=1 if some("doors", 5) else None,
        allows_nonpreemptible=False if some("doors", 5) else None,
        min_runtime=3600.0 if some("protection", 30) else pick(None, 0.0, 0.0),
        preempt_min_runtime=600.0 if some("protection", 20) else None,
        max_evictions=1 if some("protection", 20) else None, default_time_limit=7200.0 if some("time", 20) else None,
        max_wait=600.0 if some("time", 20) else None, consolidates=True if some("consolidation", 50) else None,
        budget=36000 if some("budgets", 30) else None,
        stop=pick("StopAdmitting", "Drain") if some("stop", 8) else "None", created=float(len(before)),
    )


def _quota(dice: Dice, pool: str) -> Quota:
    some, pick = dice.some, dice.pick
    def amounts(*choices: int) -> tuple[tuple[str, Share], ...]:
        gpu = Share(pick(250, 500, 1000), is_relative=True) if some("shares", 30) else Share(pick(*choices) * DEVICE)
        return (("cpu", Share(pick(0, 4000, 16000))), ("nvidia.com/gpu", gpu))[not some("quotas", 40):]
    limit = amounts(4, 8, 1) if some("limits", 40) else ()
    return Quota(pool, amounts(0, 2, 4, 8), limit, weight=float(pick(1, 1, 2, 0)))


def _workload(dice: Dice, key: str, leaves: list[str], names: list[str]) -> Workload:
    some, pick = dice.some, dice.pick
    sets = tuple(_podset(dice, name) for name in (("main", "side") if some("gangs", 20) else ("main",)))
    bound = Topology(required=pick(RACK, ZONE)) if some("topology", 15) else Topology()
    return Workload(
        key, "lost" if some("doors", 2) else pick(*leaves), sets, user=pick("ann", "bob"),
        priority=pick(0, 0, 1, 2), preemptible=not some("nonpreemptible", 25), submitted=NOW - 5000 + int(key[4:]),
        pools=pick(("a",), ("b", "a")) if some("pools", 20) else (), topology=bound,
        expected_runtime=600.0 if some("time", 30) else None,
        time_limit=float(pick(300, 4000)) if some("time", 50) else None,
        deadline=NOW + 600 if some("time", 15) else None,
        restart=pick("Gang", "Pod"), checkpoint_interval=300.0 if some("time", 20) else None,
        after=(pick("ns/gone", "ns/failed", *names),) if some("chained", 15) else (),
        is_active=not some("waits", 5), backs_off_until=NOW + 60 if some("waits", 8) else None,
        refused="Room" if some("waits", 2) else "",
        excluded_nodes=("n0",) if some("excluded", 30) else (),
        evictions=(Eviction(NOW - 60, "Preempted", "q0", pick(*names)),) if some("history", 30) else (),
        attained=float(pick(0, 4000)),
    )


def _podset(dice: Dice, name: str) -> PodSet:
    some, pick = dice.some, dice.pick
    count = pick(2, 3, 4, 6) if some("gangs", 40) else 1
    if some("elastic", 40):
        count = pick(2, 3, 4)
        least = pick(1, count // 2)
    else:
        least = count
    level, topology = pick(RACK, ZONE, HOST), Topology()
    if some("topology", 30):
        topology = pick(Topology(required=level), Topology(preferred=level), Topology(required=ZONE, preferred=RACK))
    if count % 2 == 0 and least == count and some("segments", 40):
        topology = Topology(segments=(Segment(level, 2),))
    return PodSet(name, count, least, _pod_class(dice), topology)


def _pod_class(dice: Dice) -> PodClass:
    some, pick = dice.some, dice.pick
    requests = {"cpu": pick(1000, 1000, 4000, 0)}
    fraction = memory = 0
    if some("fractions", 30):
        fraction = pick(500, 250, 700)
    elif some("memory", 15):
        memory = pick(20, 60) * GIB
    elif some("mig", 20):
        requests["nvidia.com/mig-1g.10gb"] = 1
    else:
        requests["nvidia.com/gpu"] = pick(1, 1, 1, 2, 4, 0) * DEVICE
    whole = requests.get("nvidia.com/gpu", 0)
    spread = Spread(1, pick(ZONE, HOST), (Expression("app", "In", ("x",)),), hard=pick(True, True, False))
    other = (Expression("app", "In", (pick("x", "y"),)),)
    affinity = PodAffinity(other, pick(HOST, ZONE), anti=pick(True, False), weight=pick(None, None, None, 5))
    another = PodAffinity(other, pick(HOST, ZONE), anti=not affinity.anti)  # it wants its like near, and not too near
    return PodClass(
        "ns", tuple(sorted((key, value) for key, value in requests.items() if value)), (("app", pick("x", "y")),),
        node_selector=(("disk", "ssd"),) if some("affinity", 15) else (),
        affinity=(Term((Expression("zone", pick("In", "NotIn"), ("z0",)),)),) if some("affinity", 20) else (),
        preferences=(Preference(10, Term((Expression("rack", "In", ("r1",)),))),) if some("affinity", 20) else (),
        tolerations=(Toleration("gpu", "Exists"),) if some("taints", 50) else (),
        pod_affinity=(affinity, another)[: pick(1, 1, 2)] if some("social", 20) else (),
        spread=(spread,) if some("social", 15) else (),
        host_ports=(("0.0.0.0", "TCP", 8080),) if some("social", 10) else (),
        gpu_fraction=fraction, gpu_memory=memory, alignment_required=bool(whole) and some("alignment", 30),
    )


def _pod(dice: Dice, index: int) -> Pod:
    pod = PodClass("kube-system", (("cpu", dice.pick(500, 2000)),), (("app", "x"),))
    return Pod(f"kube-system/p{index}", "n0", pod, is_leaving=dice.pick(True, False, False))


def _reservation(dice: Dice, leaves: list[str], nodes: tuple[Node, ...]) -> Reservation:
    place = dice.pick({"nodes": (nodes[0].name,)}, {"pool": "a", "amount": (("nvidia.com/gpu", 4000),)})
    return Reservation("res", NOW + dice.pick(-600, 600, 86000), 3600.0, queue=dice.pick("", *leaves), **place)


# Who runs already


class Room:
    """What is left of nodes and devices, for a first fit."""

    def __init__(self, world: World) -> None:
        self.nodes = {node.name: node for node in world.nodes}
        self.free = {node.name: dict(node.capacity) for node in world.nodes}
        self.devices = {
            node.name: {one.index: DEVICE for one in node.devices if one.is_healthy and not one.is_partitioned}
            for node in world.nodes
        }
        for node in world.nodes:
            if node.devices:
                self.free[node.name]["nvidia.com/gpu"] = DEVICE * len(self.devices[node.name])
        for pod in world.pods:  # who stands is not asked whether it may
            self.charge(NodeShare(pod.node, 1), pod.pod)

    def charge(self, share: NodeShare, pod: PodClass) -> None:
        """Pods stand there, whether they fit or not."""
        if share.node not in self.free:
            return
        free, part = self.free[share.node], shared(pod, 40960 << 20)
        need = {**dict(pod.requests), "pods": 1, **({"nvidia.com/gpu": part} if part else {})}
        for key, amount in need.items():
            free[key] = free.get(key, 0) - amount * share.count
        for index in (index for given in share.devices for index in given):
            self.devices[share.node][index] = self.devices[share.node].get(index, 0) - (part or DEVICE)

    def take(self, name: str, pod: PodClass) -> tuple[int, ...] | None:
        """The devices a pod gets on a node, () if none; None: it does not fit."""
        node, free = self.nodes[name], self.free[name]
        part = shared(pod, 40960 << 20)
        need = {**dict(pod.requests), "pods": 1, **({"nvidia.com/gpu": part} if part else {})}
        if any(free.get(key, 0) < amount for key, amount in need.items()) or unfit(node, pod):
            return None
        given: tuple[int, ...] = ()
        wanted = 1 if part else need.get("nvidia.com/gpu", 0) // DEVICE
        if wanted and (part or node.chooser != "Kubelet"):
            chosen = tuple(at for at, left in self.devices[name].items() if left >= (part or DEVICE))[:wanted]
            if len(chosen) < wanted or node.chooser == "Kubelet":
                return None
            for at in chosen:
                self.devices[name][at] -= part or DEVICE
            given = chosen if part or node.chooser == "Scheduler" else ()
        for key, amount in need.items():
            free[key] = free.get(key, 0) - amount
        return given


def seated(world: World) -> Room:
    """What is left when all who run are where they are; what is unlike a first fit's world is taken as it is."""
    room = Room(world)
    for one in world.running:
        pods = {podset.name: podset.pod for podset in one.workload.podsets}
        for placement in one.admission.podsets:
            for share in placement.nodes:
                room.charge(share, pods[placement.name])
    return room


def place(room: Room, pool: str, workload: Workload, names: list[str]) -> Admission | None:
    """A first fit of at least the minimum of each podset; None where it does not fit (room is spoilt then)."""
    podsets = []
    for podset in workload.podsets:
        shares: list[NodeShare] = []
        for name in names:
            given: list[tuple[int, ...]] = []
            while sum(share.count for share in shares) + len(given) < podset.count:
                got = room.take(name, podset.pod)
                if got is None:
                    break
                given.append(got)
            if given:
                shares.append(NodeShare(name, len(given), tuple(given) if any(given) else ()))
        if sum(share.count for share in shares) < podset.min_count:
            return None
        podsets.append(PodSetPlacement(podset.name, tuple(shares)))
    return Admission(pool, tuple(podsets))


def _seat(dice: Dice, world: World, workloads: list[Workload]) -> tuple[list[Running], list[Workload]]:
    """Some of the workloads run, as far as a first fit finds room for them."""
    room, running, pending = Room(world), [], []
    for workload in workloads:
        is_plain = not workload.topology.required and not any(
            one.topology.required or one.topology.segments or one.pod.pod_affinity or one.pod.spread
            or one.pod.host_ports or one.pod.alignment_required for one in workload.podsets)
        pool = dice.pick(*(one.name for one in world.pools)) if world.pools else "default"
        chosen = next((one for one in world.pools if one.name == pool), Pool(pool))
        names = [node.name for node in world.nodes if _selects(chosen, node)]
        admission = None
        if is_plain and dice.pick(True, False):
            spare = copied(room)
            admission = place(spare, pool, workload, names)
            room = spare if admission else room
        if admission is None:
            pending.append(workload)
            continue
        running.append(_running(dice, workload, admission))
    return running, pending


def _running(dice: Dice, workload: Workload, admission: Admission) -> Running:
    workload = replace(workload, after=(), backs_off_until=None, is_active=True)
    if dice.some("leaving", 20):
        return Running(workload, admission, NOW - 1000, is_leaving=True, leaving_since=NOW - 5)
    if dice.some("promised", 10):
        return Running(workload, admission, None, is_promised=True)
    running = Running(workload, admission, dice.pick(NOW - 1000.0, NOW - 10.0, NOW - 5000.0, None))
    return _less(running) if dice.some("lost", 40) and workload.restart == "Pod" else running


def _less(one: Running) -> Running:
    """Without its last pod, if it has more."""
    first, *others = one.admission.podsets
    *shares, last = first.nodes
    if first.count < 2:
        return one
    if last.count > 1:
        shares.append(replace(last, count=last.count - 1, devices=last.devices[:-1]))
    admission = replace(one.admission, podsets=(replace(first, nodes=tuple(shares)), *others))
    return replace(one, admission=admission, lost=((first.name, 1),), lost_since=NOW - 10)


def copied(room: Room) -> Room:
    copy = object.__new__(Room)
    copy.nodes = room.nodes
    copy.free = {name: dict(free) for name, free in room.free.items()}
    copy.devices = {name: dict(devices) for name, devices in room.devices.items()}
    return copy


def _selects(pool: Pool, node: Node) -> bool:
    labels = dict(node.labels)
    return all(labels.get(one.key) in one.values for one in pool.selector)


# What a plan makes of a world


def after(world: World, plan: Plan) -> World:
    """The world when the plan is carried out: who leaves is gone, who was promised runs, and no time has passed."""
    running = {one.workload.key: one for one in world.running}
    pending = {one.key: one for one in world.pending}
    ended = list(world.ended)
    charged: dict[tuple[str, str], int] = defaultdict(int)
    queue_of = {one.key: one.queue for one in (*world.pending, *(one.workload for one in world.running))}
    for key, one in list(running.items()):
        if one.is_leaving:
            del running[key]
            if one.moves_to is not None:
                running[key] = Running(one.workload, one.moves_to, world.now)
    for verdict in plan.verdicts:
        key = verdict.workload
        match verdict:
            case Admit():
                workload = pending.pop(key, None) or running[key].workload
                running[key] = Running(workload, verdict.admission, world.now, backfilled_for=verdict.backfilled_for)
            case Evict():
                one = running.pop(key)
                charged[one.workload.queue, one.admission.pool] += gpus(one.workload, one.admission)
                by = queue_of.get(verdict.beneficiary, "")
                evicted = replace(one.workload, evictions=(
                    *one.workload.evictions, Eviction(world.now, verdict.cause, by, verdict.beneficiary)))
                if verdict.admission is not None:
                    running[key] = Running(evicted, verdict.admission, world.now)
                else:
                    pending[key] = evicted
            case Resize():
                running[key] = replace(running[key], admission=verdict.admission, lost=(), lost_since=None)
            case Finish():
                pending.pop(key, None)
                running.pop(key, None)
                ended.append(Ended(key, succeeded=False))
    return Told(
        world.now, world.nodes, world.pools, tuple(_charge(one, charged, world.now) for one in world.queues),
        tuple(pending.values()), tuple(running.values()), tuple(one for one in world.pods if not one.is_leaving),
        world.reservations, world.disruptions, tuple(ended),
    )


def gpus(workload: Workload, admission: Admission) -> int:
    """Milli-GPU that an admission holds, as far as requests say."""
    pods = {one.name: one.pod for one in workload.podsets}
    each = {name: dict(pod.requests).get("nvidia.com/gpu", 0) + pod.gpu_fraction for name, pod in pods.items()}
    return sum(placement.count * each[placement.name] for placement in admission.podsets)


def _charge(queue: Queue, charged: dict[tuple[str, str], int], now: float) -> Queue:
    evicted = dict(queue.ledger.evicted)
    for (name, pool), amount in charged.items():
        if name == queue.name and amount:
            before = evicted.get(pool, Decayed(0.0, now)).value
            evicted[pool] = Decayed(before + amount, now)
    return replace(queue, ledger=replace(queue.ledger, evicted=tuple(sorted(evicted.items()))))


# Printing


def show(world: World) -> str:
    """A world in about six lines; what is as usual is left out."""
    lines = [
        "nodes    " + " | ".join(_show_node(node) for node in world.nodes),
        "pools    " + " | ".join(_differences(one, Pool(one.name)) for one in world.pools),
        "queues   " + " | ".join(_show_queue(one) for one in world.queues),
        "pending  " + " | ".join(_show_workload(one) for one in world.pending),
        "running  " + " | ".join(_show_running(one) for one in world.running),
        "besides  " + " | ".join(map(str, (*world.pods, *world.reservations, *world.disruptions, *world.ended))),
    ]
    return "\n".join(lines)


def _differences(value: object, usual: object) -> str:
    """The fields in which a value is not as usual."""
    found = [str(getattr(value, "name", ""))]
    for field in value.__dataclass_fields__:  # type: ignore[attr-defined]
        if getattr(value, field) != getattr(usual, field):
            found.append(f"{field}={getattr(value, field)}")
    return " ".join(found)


def _brief(amounts: tuple[tuple[str, int], ...]) -> str:
    short = {"nvidia.com/gpu": "gpu", "memory": "mem"}
    return ",".join(f"{short.get(key, key)}={value}" for key, value in amounts)


def _show_node(node: Node) -> str:
    labels = ",".join(f"{key}={value}" for key, value in node.labels if key != HOST)
    usual = Node(node.name, node.labels, node.capacity, devices=node.devices)
    odd = "".join(f" !{one.index}" for one in node.devices if one.is_partitioned or not one.is_healthy)
    groups = f" devices={len(node.devices)}{odd}" if node.devices else ""
    return f"{_differences(node, usual)} {_brief(node.capacity)} {labels}{groups}"


def _show_queue(queue: Queue) -> str:
    usual = Queue(queue.name, parent=queue.parent, quotas=queue.quotas, created=queue.created)
    def shares(found: tuple[tuple[str, Share], ...]) -> str:
        return _brief(tuple((key, f"{one.amount / 10}%" if one.is_relative else one.amount) for key, one in found))
    quotas = " ".join(
        f"[{one.pool} {shares(one.guaranteed)} <{shares(one.limit)} w{one.weight:g}]" for one in queue.quotas
    )
    return f"{_differences(queue, usual)}{'<' + queue.parent if queue.parent else ''} {quotas}"


def _show_workload(workload: Workload) -> str:
    usual = Workload(workload.key, workload.queue, workload.podsets, submitted=workload.submitted)
    pods = " + ".join(map(_show_podset, workload.podsets))
    return f"{_differences(workload, usual)} {workload.key}@{workload.queue} {pods}".strip()


def _show_podset(podset: PodSet) -> str:
    odd = _differences(podset.pod, PodClass(podset.pod.namespace, podset.pod.requests, podset.pod.labels)).strip()
    odd += _differences(podset.topology, Topology())
    return f"{podset.name}:{podset.min_count}..{podset.count}x{{{_brief(podset.pod.requests)}}} {odd}".rstrip()


def _show_running(one: Running) -> str:
    usual = Running(one.workload, one.admission, one.admitted_at)
    since = f" since -{NOW - one.admitted_at:g}" if one.admitted_at is not None else ""
    where = show_admission(one.admission)
    return f"{_show_workload(one.workload)} on {where}{since} {_differences(one, usual)}".rstrip()


def show_admission(admission: Admission | None) -> str:
    if admission is None:
        return "nowhere"
    return f"{admission.pool}: " + "; ".join(
        f"{share.node}x{share.count}{list(share.devices) if share.devices else ''}"
        for placement in admission.podsets for share in placement.nodes
    )


def show_plan(plan: Plan) -> str:
    """A plan in one line."""
    def one(verdict: Verdict) -> str:
        match verdict:
            case Admit():
                behind = f" backfilled for {verdict.backfilled_for}" if verdict.backfilled_for else ""
                return f"on {show_admission(verdict.admission)} after {verdict.after}{behind}"
            case Wait():
                if verdict.starts_at is None:
                    return str(verdict.reason)
                return f"{verdict.reason} until +{verdict.starts_at - NOW:g} on {show_admission(verdict.held)}"
            case Evict():
                return f"{verdict.cause} for {verdict.beneficiary} to {show_admission(verdict.admission)}"
            case Resize():
                return f"to {verdict.after} for {verdict.beneficiary} on {show_admission(verdict.admission)}"
            case Finish():
                return verdict.ending
        return ""
    return " | ".join(f"{type(verdict).__name__} {verdict.workload[3:]} {one(verdict)}" for verdict in plan.verdicts)
