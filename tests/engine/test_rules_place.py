"""Admission and placement, rule by rule, as the plan of a whole cycle; place by place they are in test_place."""

from builders import GPU, amounts, job, judged, meets, node, place_on, plan_of, pod, queue, runs, table, verdicts

from fairway.engine.model import (
    Device,
    Expression,
    Numa,
    Pod,
    PodClass,
    PodSet,
    Pool,
    Quota,
    Segment,
    Share,
    Taint,
    Toleration,
    Topology,
)

HOST = "kubernetes.io/hostname"


def pool(name: str, *levels: str, **fields) -> Pool:
    return Pool(name, (Expression("pool", "In", (name,)),), levels, **fields)


def of(name: str, pool_name: str, gpus: int = 4, **labels):
    return node(name, gpus, labels={"pool": pool_name, **labels})


def per_pool(**owed: int):
    """Guaranteed GPUs of each pool."""
    return tuple(Quota(name, ((GPU, Share(1000 * gpus)),)) for name, gpus in owed.items())


def sets(**podsets):
    return tuple(PodSet(name, count, least, made) for name, (count, least, made) in podsets.items())


GANGS = table(
    ("all or nothing: a gang that lacks one pod gets none",
     [node("n", 4), node("m", 3), queue("q"), runs(job("r", gpus=1), "n"), job("w", gpus=1, count=7)],
     {"w": "NoRoom"}),
    ("every podset gets its minimum, or none gets anything",
     [node("n", 4, cpu=2), queue("q"), job("w", podsets=sets(head=(1, 1, pod(cpu=3)), worker=(2, 2, pod(1)))),
      job("x", podsets=sets(head=(1, 1, pod(cpu=2)), worker=(2, 2, pod(1))))],
     {"w": "NeverFits", "x": "n+n*2"}),
    ("the minimum is enough, and the rest is growth",
     [node("n", 3), queue("q"), job("w", gpus=1, count=8, least=2)], {"w": "n*3"}),
    ("five GPUs between two of 1 to 4 are three and two",
     [node("n", 5), queue("q"), job("a", gpus=1, count=4, least=1), job("b", gpus=1, count=4, least=1)],
     {"a": "n*3", "b": "n*2"}),
    ("all minimums come before any growth",
     [node("n", 5), queue("q"), job("a", gpus=1, count=5, least=1, priority=9), job("b", gpus=1, count=4)],
     {"a": "n", "b": "n*4"}),
    ("those that run grow with those that start, nearest their minimum first",
     [node("n", 6), queue("q"), runs(job("a", gpus=1, count=6, least=1), ("n", 3), devices=((0,), (1,), (2,))),
      job("b", gpus=1, count=6, least=1)], {"a": "Keep", "b": "n*3"}),
    ("nobody grows into room that a gang waits for, if it can have it",
     [node("n", 4), queue("q"), runs(job("a", gpus=1, count=4, least=1), "n", devices=((0,),)), job("b", gpus=3)],
     {"a": "Keep", "b": "n"}),
    ("of one that is elastic in two podsets the one nearest its minimum grows",
     [node("n", 4), queue("q"), job("w", podsets=sets(a=(3, 1, pod(1)), b=(3, 1, pod(1))))], {"w": "n*2+n*2"}),
    ("one podset that cannot grow stops no other",
     [node("n", 4, cpu=3), queue("q"), job("w", podsets=sets(a=(4, 1, pod(cpu=1)), b=(4, 1, pod(1, 0.1))))],
     {"w": "n*2+n*4"}),
    ("podsets stand in the order of the workload, those too that start with growth",
     [node("m", 3), node("n", 2), queue("q"), job("w", podsets=sets(
         a=(3, 0, pod(1, node_selector=((HOST, "m"),))), b=(2, 1, pod(1, node_selector=((HOST, "n"),)))))],
     {"w": "m*3+n*2"}),
    ("the higher priority grows first",
     [node("n", 4), queue("q"), job("a", gpus=1, count=4, least=1), job("b", gpus=1, count=4, least=1, priority=1)],
     {"a": "n", "b": "n*3"}),
    ("whose minimum is none starts with none, and grows",
     [node("n", 3), queue("q"), runs(job("r", gpus=3), "n"), job("w", gpus=1, count=2, least=0)], {"w": ""}),
    ("at once where there is room",
     [node("n", 3), queue("q"), job("w", gpus=1, count=2, least=0)], {"w": "n*2"}),
    ("a limit bounds growth", [node("n", 8), queue("q", 0, 3), job("w", gpus=1, count=8, least=1)], {"w": "n*3"}),
    ("a queue that stops lets nobody grow",
     [node("n", 4), queue("q", stop="StopAdmitting"), runs(job("a", gpus=1, count=4, least=1), "n",
      devices=((0,),))], {"a": "Keep"}),
)


@GANGS
def test_gangs_and_growth(things, expected) -> None:
    meets(things, expected)


POOLS = table(
    ("without a word any pool will do, the first by name first",
     [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q"), job("w", gpus=1)], {"w": "m"}),
    ("pools are tried in the order of the workload",
     [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q"), job("w", gpus=1, pools=("y", "x"))], {"w": "n"}),
    ("or of the queue", [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q", pools=("y", "x")),
     job("w", gpus=1)], {"w": "n"}),
    ("the first that fits within guaranteed goes before one where it would borrow",
     [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q", quotas=per_pool(x=0, y=2)), job("w", gpus=2)],
     {"w": "n"}),
    ("the first that fits by borrowing goes before one where room must be made",
     [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q", quotas=per_pool(x=4, y=0)),
      runs(job("low", gpus=4), "m", pool="x"), job("w", gpus=4, priority=1)], {"w": "n", "low": "Keep"}),
    ("room is made in the first pool where it can be made",
     [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q"),
      runs(job("low", gpus=4, preemptible=False), "m", pool="x"), runs(job("free", gpus=4), "n", pool="y"),
      job("w", gpus=4, priority=1)], {"w": "n after free", "low": "Keep"}),
    ("a gang stands in one pool", [pool("x"), pool("y"), of("n", "y"), of("m", "x"), queue("q"),
     job("w", gpus=1, count=8)], {"w": "NeverFits"}),
    ("a pool that its queue does not allow is not used",
     [pool("x"), pool("y"), of("m", "x"), queue("q", pools=("y",)), job("w", gpus=1, pools=("x",))],
     {"w": "NotAllowed"}),
    ("a pool that is not there", [node("n", 4), queue("q"), job("w", gpus=1, pools=("x",))], {"w": "NeverFits"}),
    ("a node in two pools belongs to the first by name",
     [Pool("b"), Pool("a"), node("n", 4), queue("q"), job("v", gpus=1, pools=("b",)), job("w", gpus=1, pools=("a",))],
     {"v": "NeverFits", "w": "n"}),
    ("a pool that may grow makes nothing impossible",
     [pool("x", max_nodes=2, shape=((GPU, 4000), ("cpu", 64000))), of("m", "x"), queue("q"), job("v", gpus=4, count=2),
      job("w", gpus=4, count=3)], {"v": "NoRoom", "w": "NeverFits"}),
)


@POOLS
def test_pools(things, expected) -> None:
    meets(things, expected)


RACKS = pool("x", "block", "rack", HOST)


def rack(name: str, *, block: str = "b", gpus: int = 4, nodes: int = 2):
    return [of(f"{name}{at}", "x", gpus, rack=name, block=block) for at in range(nodes)]


def bound(name: str, gpus: float, count: int, topology: Topology, **fields):
    """The podset is bound, not the workload."""
    return job(name, podsets=(PodSet("main", count, count, pod(gpus), topology),), **fields)


def within(level: str, preferred: str = "") -> Topology:
    return Topology(required=level, preferred=preferred)


DOMAINS = table(
    ("a required level holds all pods", [RACKS, *rack("r"), *rack("s", nodes=3), queue("q"),
     bound("w", 4, 3, within("rack"))], {"w": "s0+s1+s2"}),
    ("of domains that fit the one with the least room", [RACKS, *rack("r", nodes=3), *rack("s"), queue("q"),
     bound("w", 4, 2, within("rack"))], {"w": "s0+s1"}),
    ("where no domain holds all it waits", [RACKS, *rack("r"), *rack("s"), queue("q"), bound("w", 4, 3,
     within("rack"))], {"w": "NeverFits"}),
    ("an unknown level is told", [RACKS, *rack("r"), queue("q"), bound("w", 4, 1, within("zone"))],
     {"w": "LevelUnknown"}),
    ("a preferred level splits over the fewest", [RACKS, *rack("r"), *rack("s"), *rack("t", nodes=1), queue("q"),
     bound("w", 4, 4, Topology(preferred="rack"))], {"w": "r0+r1+s0+s1"}),
    ("preferred inside required: a node of the rack, if one holds all",
     [RACKS, *rack("r", gpus=2), *rack("s", gpus=4, nodes=1), queue("q"), bound("w", 1, 4, within("rack", HOST))],
     {"w": "s0*4"}),
    ("preferred climbs: no node holds all, so the rack does",
     [RACKS, *rack("r", gpus=2), *rack("s", gpus=3, nodes=1), queue("q"), bound("w", 1, 4, within("rack", HOST))],
     {"w": "r0*2+r1*2"}),
    ("the workload's topology binds all podsets together",
     [RACKS, *rack("r"), *rack("s", nodes=3), queue("q"), job("w", topology=within("rack"),
      podsets=sets(a=(1, 1, pod(4)), b=(2, 2, pod(4))))], {"w": "s2+s0+s1"}),
    ("each podset's own lies inside it",
     [RACKS, *rack("r"), *rack("s"), *rack("t", block="c", nodes=3), queue("q"), job("w", topology=within("block"),
      podsets=(PodSet("a", 2, 2, pod(4), within("rack")), PodSet("b", 2, 2, pod(4), within("rack"))))],
     {"w": "r0+r1+s0+s1"}),
    ("equal values under different parents are different domains",
     [RACKS, *(of(f"n{at}", "x", rack="same", block=f"b{at}") for at in (1, 2)), queue("q"),
      bound("w", 4, 2, within("rack"))], {"w": "NeverFits"}),
    ("a node without the label is in no domain",
     [RACKS, of("a", "x"), *rack("r", nodes=1, gpus=8), queue("q"), bound("w", 4, 1, within("rack"))], {"w": "r0"}),
    ("nodes that cannot run the pod are no room of a domain",
     [RACKS, *rack("r", nodes=1), of("r9", "x", 0, rack="r", block="b"), *rack("s"), queue("q"),
      bound("w", 4, 2, within("rack"))], {"w": "s0+s1"}),
    ("segments stand in domains of their own, ranks in order",
     [RACKS, *rack("r"), *rack("s"), queue("q"), bound("w", 4, 4, Topology(segments=(Segment("rack", 2),)))],
     {"w": "r0+r1+s0+s1"}),
    ("inner segments divide outer ones",
     [RACKS, *rack("r", gpus=2), *rack("s", gpus=2), queue("q"),
      bound("w", 1, 8, Topology(segments=(Segment("rack", 4), Segment(HOST, 2))))], {"w": "r0*2+r1*2+s0*2+s1*2"}),
    ("small pods that ask for nothing leave big domains whole",
     [RACKS, *rack("r", nodes=2), *rack("s", nodes=2), queue("q"), runs(job("old", gpus=4), "s0", pool="x"),
      job("w", gpus=1)], {"w": "s1"}),
    ("of nodes that hold as many pods the one with the fewest free GPUs",
     [pool("x", HOST), of("n1", "x", 8), of("n2", "x", 8), queue("q"), runs(job("r", gpus=1), "n2", pool="x"),
      job("w", gpus=5), job("whole", gpus=8)], {"w": "n2", "whole": "n1"}),
    ("of racks that hold as many pods the one with the fewest free GPUs",
     [RACKS, *rack("r", gpus=8), *rack("s", gpus=8), queue("q"), runs(job("old", gpus=1), "s0", pool="x"),
      bound("w", 5, 2, within("rack"))], {"w": "s0+s1"}),
    ("a pod without GPUs keeps off nodes that have some, where there are levels, too",
     [pool("x", HOST), node("a", 4, cpu=32, labels={"pool": "x"}), node("b", cpu=64, labels={"pool": "x"}),
      node("c", cpu=32, labels={"pool": "x"}), queue("q"), job("w", cpu=32)], {"w": "c"}),
    ("what the workload prefers binds podsets of one pod each",
     [RACKS, *rack("r", nodes=1), *rack("s"), queue("q"), job("w", topology=Topology(preferred="rack"),
      podsets=sets(a=(1, 1, pod(4)), b=(1, 1, pod(4))))], {"w": "s0+s1"}),
    ("of domains that could be made whole the one with the lower priorities is",
     [RACKS, *rack("r"), *rack("s"), queue("q"),
      *(runs(job(name, gpus=4, priority=at), where, pool="x")
        for name, where, at in (("a", "r0", 1), ("b", "r1", 3), ("c", "s0", 1), ("d", "s1", 2))),
      bound("w", 4, 2, within("rack"), priority=9)],
     {"w": "s0+s1 after c d", "a": "Keep", "b": "Keep", "c": "Preempted for w", "d": "Preempted for w"}),
    ("room is made in one domain",
     [RACKS, *rack("r"), *rack("s"), queue("q"), runs(job("a", gpus=4), "r0", pool="x"),
      runs(job("b", gpus=4), "s0", pool="x"),
      runs(job("c", gpus=4), "s1", pool="x"), bound("w", 4, 2, within("rack"), priority=1)],
     {"w": "r0+r1 after a", "a": "Preempted for w", "b": "Keep", "c": "Keep"}),
)


@DOMAINS
def test_topology(things, expected) -> None:
    meets(things, expected)


def half(name: str, part: int = 500, **fields):
    return job(name, pod={"gpu_fraction": part}, **fields)


def memory(name: str, gib: int, **fields):
    return job(name, pod={"gpu_memory": gib * 2**30}, **fields)


MIB80 = {"nvidia.com/gpu.memory": str(80 * 1024)}
PARTS = table(
    ("a fraction goes first to the shared device with the least room that fits",
     [node("a", 2), node("b", 2), queue("q"), runs(half("r", 300), "a", devices=((1,),)),
      runs(half("s", 600), "b", devices=((0,),)), half("w", 400)], {"w": "b"}),
    ("so do fractions of inference, which are spread by the GPU",
     [node("a", 2), node("b", 2), queue("q", 4), runs(half("s", 300), "a", devices=((1,),)),
      *(half(name, 600, kind="Inference", submitted=at) for at, name in enumerate("tu")),
      half("v", 400, kind="Inference", submitted=3)], {"t": "a", "u": "b", "v": "b"}),
    ("so does a gang in a pool that spreads", [Pool("default", strategy="Spread"), node("a", 1), node("b", 2),
     node("c", 2), queue("q"), runs(half("s"), "a", devices=((0,),)), half("w", count=7)], {"w": "a+b*4+c*2"}),
    ("a fraction takes a free GPU where no shared one has room",
     [node("a", 2), queue("q"), runs(half("s", 600), "a", devices=((0,),)), half("w", 500)], {"w": "a"}),
    ("a fraction needs a node that tells devices apart", [node("a", 2, chooser="Kubelet"), queue("q"), half("w")],
     {"w": "NoDevice"}),
    ("a shared device is no whole one",
     [node("a", 1), queue("q"), runs(half("s", 100), "a", devices=((0,),)), job("w", gpus=1)], {"w": "NoRoom"}),
    ("GPU memory counts as its part of the smallest GPU of the pool",
     [node("a", 1, labels=MIB80), queue("q"), memory("v", 50), memory("w", 40)], {"v": "a", "w": "NoRoom"}),
    ("three thirds of its memory fill a GPU", [node("a", 1, labels={"nvidia.com/gpu.memory": str(24 * 1024)}),
     queue("q"), *(memory(name, 8) for name in "uvwx")], {"u": "a", "v": "a", "w": "a", "x": "NoRoom"}),
    ("what is a little more than a third fits twice", [node("a", 1, labels={"nvidia.com/gpu.memory": str(24 * 1024)}),
     queue("q"), *(job(name, pod={"gpu_memory": 8 * 2**30 + 2**20}) for name in "uvw")],
     {"u": "a", "v": "a", "w": "NoRoom"}),
    ("GPU memory that nobody knows fits nowhere", [node("a", 1), queue("q"), memory("w", 4)], {"w": "NoDevice"}),
)


@PARTS
def test_parts_of_gpus(things, expected) -> None:
    meets(things, expected)


GROUPED = tuple(Device(at, numa=at // 2, nvlink=at // 2) for at in range(4))
LOOSE = tuple(Device(at) for at in range(4))
STRICT = {"alignment_required": True}


def kubelet(name: str, *free: int):
    """Eight GPUs, in groups of four; so many of each are free."""
    groups = (Numa(at, amounts({GPU: 4000}), amounts({GPU: one * 1000})) for at, one in enumerate(free))
    return node(name, 8, chooser="Kubelet", numa=tuple(groups))


def rest(name: str, count: int):
    """Workloads of two GPUs, and maybe one of a single one, that run there."""
    sizes = [2] * (count // 2) + [1] * (count % 2)
    return [runs(job(f"r{at}-{name}", gpus=size), name) for at, size in enumerate(sizes)]


ALIGNED = table(
    ("alignment that is required tries other nodes before it fails",
     [node("a", 4, devices=GROUPED), node("b", 4, devices=GROUPED), queue("q"),
      *(runs(job(f"r{at}", gpus=1), "a", devices=((at,),)) for at in (0, 2)), job("w", gpus=2, pod=STRICT)],
     {"w": "b"}),
    ("where no group holds it, it waits",
     [node("a", 4, devices=GROUPED), queue("q"), *(runs(job(f"r{at}", gpus=1), "a", devices=((at,),)) for at in (0, 2)),
      job("w", gpus=2, pod=STRICT)], {"w": "NoDevice"}),
    ("where the kubelet chooses, what its node topology says is free counts",
     [kubelet("a", 2, 2), kubelet("b", 4, 1), queue("q"), *rest("a", 4), *rest("b", 3), job("w", gpus=4, pod=STRICT)],
     {"w": "b"}),
    ("and who must go for it gives back what may be of one group",
     [kubelet("a", 1, 1), queue("q"), *rest("a", 6), job("w", gpus=4, pod=STRICT, priority=1)],
     {"w": "a after r1-a r2-a"}),
    ("where no group has so many free it waits for a device, though the node has more",
     [kubelet("a", 2, 3), queue("q"), *rest("a", 3), job("w", gpus=4, pod=STRICT)], {"w": "NoDevice"}),
    ("groups that nobody knows are no group", [node("a", 4, devices=LOOSE), queue("q"), job("w", gpus=2, pod=STRICT)],
     {"w": "NoDevice"}),
    ("a single device needs no group that is known",
     [node("a", 4, devices=LOOSE), queue("q"), job("w", gpus=1)], {"w": "a"}),
)


@ALIGNED
def test_alignment(things, expected) -> None:
    meets(things, expected)


def test_whole_gpus_come_from_one_group() -> None:
    things = [node("a", 4, devices=GROUPED), queue("q"), runs(job("r", gpus=1), "a", devices=((0,),)), job("w", gpus=2)]
    assert judged(*things)["w"] == "a"
    assert verdicts(plan_of(*things))["w"].admission == place_on(("a", 1), devices=((2, 3),))


TAINT = (Taint("gpu", "yes", "NoSchedule"),)
KUBE = table(
    ("pods of others are used room",
     [node("a", 4), queue("q"), Pod("x/y", "a", PodClass(requests=((GPU, 2000),))), job("w", gpus=3)],
     {"w": "NoRoom"}),
    ("a taint keeps out who does not tolerate it",
     [node("a", 4, taints=TAINT), node("b", 8), queue("q"), job("v", gpus=1),
      job("w", gpus=1, pod={"tolerations": (Toleration("gpu", "Exists"),)})], {"v": "b", "w": "a"}),
    ("a pod without requests takes a pod slot", [node("a", cpu=0, memory=0, pods=1), queue("q"), job("v"), job("w")],
     {"v": "a", "w": "NoRoom"}),
    ("a pod without requests stands where more is used than there is",
     [node("a", cpu=1), queue("q"), Pod("x/y", "a", PodClass(requests=(("cpu", 2000),))), job("v"), job("w", count=2)],
     {"v": "a", "w": "a*2"}),
    ("a pod without GPUs keeps off nodes that have some", [node("a", 4, cpu=8), node("b", cpu=64), queue("q"),
     job("w", cpu=1)], {"w": "b"}),
    ("of nodes that fit the one with the fewest free GPUs", [node("a", 8), node("b", 4), queue("q"),
     job("w", gpus=2)], {"w": "b"}),
    ("a pool that spreads takes the emptiest", [Pool("default", strategy="Spread"), node("a", 4), node("b", 8),
     queue("q"), job("w", gpus=2)], {"w": "b"}),
    ("inference is spread by itself", [node("a", 4), node("b", 8), queue("q", 8),
     job("w", gpus=2, kind="Inference", preemptible=False)], {"w": "b"}),
    ("host ports clash", [node("a", 4), queue("q"), *(job(name, gpus=1, pod={"host_ports": (("", "TCP", 80),)})
     for name in "vw")], {"v": "a", "w": "Fragmented"}),
)


@KUBE
def test_constraints_of_kubernetes(things, expected) -> None:
    meets(things, expected)
