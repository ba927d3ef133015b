"""Making room, rule by rule: by which means, by what right, who goes, who is spared, moved or protected."""

from builders import NOW, job, meets, node, place_on, plan_of, pod, queue, runs, table

from fairway.engine import State
from fairway.engine.model import Decayed, Disruption, Eviction, Expression, Ledger, Pod, PodAffinity, PodClass, Pool
from fairway.engine.plan import Cause, Evict, Plan

HOUR = 3600.0
EQUAL = queue("a", 4), queue("b", 4)


def each(queue_of: str, *names: str, gpus: float = 2, at: str = "n", **fields):
    """Running workloads of one pod each."""
    return [runs(job(name, queue_of, gpus, **fields), at) for name in names]


PORT = (("0.0.0.0", "TCP", 80),)


def lone(name: str, key: str = "kubernetes.io/hostname", **fields):
    """One that keeps apart from its kind."""
    term = PodAffinity((Expression("app", "In", ("x",)),), key, anti=True)
    return job(name, pod={"labels": (("app", "x"),), "pod_affinity": (term,)}, **fields)


def evicted(*ago: float, by: str = "ns/other"):
    """Evictions, so many seconds ago."""
    return tuple(Eviction(NOW - past, "Reclaimed", "x", by) for past in ago)


MEANS = table(
    ("idle room is used before anybody is taken",
     [node("n", 2), node("m", 2), queue("q"), *each("q", "low"), job("w", gpus=2, priority=9)],
     {"w": "m", "low": "Keep"}),
    ("a move comes before taking back",
     [node("n", 4), node("m", 4), queue("a", 4, consolidates=True), queue("b", 2, consolidates=True),
      *each("b", "r"), *each("b", "s", at="m"), job("w", "a", 4)],
     {"w": "m after s", "s": "Consolidated for w to n", "r": "Keep"}),
    ("taking back comes before preempting",
     [node("n", 8), *EQUAL, *each("a", "own"), *each("b", "r", "s", "t"), job("w", "a", 2, priority=9)],
     {"w": "n after t", "t": "Reclaimed for w", "own": "Keep"}),
    ("beyond its share a queue preempts its own",
     [node("n", 8), queue("a", 2, weight=0), queue("b", 6), *each("a", "own"), *each("b", "r", "s", "t"),
      job("w", "a", 2, priority=9)],
     {"w": "n after own", "own": "Preempted for w", "t": "Keep"}),
    ("where neither does alone, a queue preempts its own and takes back what it is then owed",
     [node("n", 4), queue("a", 4), queue("b", 0), *each("a", "own"), *each("b", "r"), job("w", "a", 4, priority=9)],
     {"w": "n after own r", "own": "Preempted for w", "r": "Reclaimed for w"}),
    ("and no more of its own than it must",
     [node("n", 8), queue("a", 6), queue("b", 2), *each("a", "own", "more", gpus=1), *each("b", *"rst"),
      job("w", "a", 5, priority=9)],
     {"w": "n after own s t", "own": "Preempted for w", "s": "Reclaimed for w", "t": "Reclaimed for w",
      "more": "Keep", "r": "Keep"}),
    ("of what others owe then the small before the large, where the large alone would use up what they owe",
     [node("n", 2), node("m", 4), queue("a", 8), queue("b", 2, weight=0), *each("a", "own", priority=1),
      *each("b", "large", gpus=3, at="m", priority=2), *each("b", "small", gpus=1, at="m"),
      job("w", "a", 2, 3, priority=2)],
     {"w": "m*2+n after large own small"}),
    ("beyond its share it does neither",
     [node("n", 8), *EQUAL, *each("a", "own"), *each("b", *"rst"), job("w", "a", 5, priority=9)],
     {"w": "OverShare", "own": "Keep", "r": "Keep"}),
)

RIGHTS = table(
    ("only a strictly lower priority is preempted",
     [node("n", 2), queue("q"), *each("q", "low", priority=1), job("w", gpus=2, priority=1)],
     {"w": "NoRoom", "low": "Keep"}),
    ("preempting stays within the queue",
     [node("n", 2), queue("q"), queue("r"), *each("r", "low"), job("w", gpus=2, priority=9)],
     {"w": "NoRoom", "low": "Keep"}),
    ("preempting frees an ancestor's limit",
     [node("n", 8), queue("p", 0, 2), queue("q", 0, parent="p"), *each("q", "low"), job("w", gpus=2, priority=9)],
     {"w": "n after low", "low": "Preempted for w"}),
    ("a parent is transparent for what its quotas do not name: its child takes back GPUs from the parent's sibling",
     [node("n", 8), queue("p", cpu=(10, None)), queue("a", 2, parent="p"), queue("b", 2), *each("b", *"rstu"),
      job("w", "a", 2)],
     {"w": "n after u", "u": "Reclaimed for w", "r": "Keep"}),
    ("what a sibling borrowed is taken back under the limit of both",
     [node("n", 16), queue("p", 8, 8), queue("a", 4, parent="p"), queue("b", 4, parent="p"), *each("b", *"rstu"),
      job("w", "a", 4)],
     {"w": "n after t u", "t": "Reclaimed for w", "u": "Reclaimed for w", "r": "Keep", "s": "Keep"}),
    ("a queue's own limit is not freed by taking from others",
     [node("n", 8), queue("a", 4, 4), queue("b", 4), *each("a", "x", "y"), *each("b", "r", "s"), job("w", "a", 2)],
     {"w": "OverLimit", "r": "Keep", "s": "Keep"}),
    ("the asking leaf must be within its share of every governed resource",
     [node("n", 8, cpu=16), queue("a", 4, cpu=(2, None), weight=0), queue("b", 4, cpu=(14, None)),
      runs(job("r", "b", 8, cpu=4), "n"), job("w", "a", 4, cpu=4)],
     {"w": "OverShare", "r": "Keep"}),
    ("what is not governed does not stop it from taking back",
     [node("n", 8, cpu=16), *EQUAL, runs(job("r", "b", 8, cpu=4), "n"), job("w", "a", 4, cpu=13)],
     {"w": "n after r", "r": "Reclaimed for w"}),
    ("one big gang is taken back by whoever is owed a part of it",
     [node("n", 8), *EQUAL, runs(job("r", "b", 1, 8), ("n", 8)), job("w", "a", 1)],
     {"w": "n after r", "r": "Reclaimed for w"}),
    ("within its guarantee a queue takes what another has above its guarantee, be it within its share",
     [node("n", 8), queue("a", 4), queue("b", 2), queue("free"), *each("free", "x", "y"), *each("b", "r", "s"),
      job("w", "a", 2)],
     {"w": "n after s", "s": "Reclaimed for w", "r": "Keep"}),
    ("beyond its guarantee it takes nothing that is another's share",
     [node("n", 8), queue("a", 0), queue("b", 0), queue("free"), *each("free", "x", "y"), *each("b", "r", "s"),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep", "s": "Keep"}),
    ("each victim is judged after those before it were subtracted",
     [node("n", 8), queue("a", 6), queue("b", 2), queue("c", 0), *each("b", "b1", "b2"), *each("c", "c1", "c2"),
      job("w", "a", 6)],
     {"w": "n after b2 c1 c2", "b1": "Keep", "b2": "Reclaimed for w"}),
    ("small victims do not use up what their queues may lose, where only large ones make enough room",
     [node("n", 6), node("m", 3), queue("t0", 4), queue("t1", 3), queue("t2", 4), queue("c", 4, parent="t2"),
      *each("t0", "v1", gpus=1), *each("t0", "v2"), *each("t0", "v3", at="m"), *each("t1", "w1", gpus=1),
      *each("t1", "w2"), *each("t1", "w3", gpus=1, at="m"), job("w", "c", 4)],
     {"w": "n after v2 w2", "v2": "Reclaimed for w", "w2": "Reclaimed for w", "v1": "Keep", "w1": "Keep"}),
    ("nor do large ones that are cheap, where a gang needs all that its queue may take",
     [node("n", 6), node("m", 4), queue("a", 9), queue("c", 3), queue("d", 2), *each("d", "v1", at="m"),
      runs(job("g", "c", 2, 2), "n", "m"), *each("d", "v2", gpus=4, submitted=1), job("w", "a", 3, 3)],
     {"w": "m+n*2 after g v1 v2"}),
    ("a branch above its share takes nothing from one that would then be less saturated",
     [node("n", 12), queue("p", 4, weight=0), queue("c1", 2, parent="p"), queue("c2", 2, parent="p"),
      queue("r", 7, weight=0), *each("c2", "x", "y", preemptible=False), *each("r", *"stuv"), job("w", "c1", 2)],
     {"w": "NoRoom", "v": "Keep"}),
    ("priority does not save from being taken back",
     [node("n", 4), queue("a", 2), queue("b", 2), *each("b", "r", priority=5), *each("b", "s", priority=9),
      job("w", "a", 2, priority=-1)],
     {"w": "n after r", "r": "Reclaimed for w"}),
    ("an ungoverned queue takes nothing back and gives nothing back",
     [node("n", 4), queue("a"), queue("b", 0), *each("b", "r", "s"), job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("idle-time work gives way to whoever is owed room",
     [node("n", 4), queue("a", 0), queue("idle", 0, weight=0), *each("idle", "r", "s"), job("w", "a", 4)],
     {"w": "n after r s", "r": "Reclaimed for w", "s": "Reclaimed for w"}),
    ("idle-time work takes nothing back",
     [node("n", 4), queue("a", 0), queue("idle", 0, weight=0), *each("a", "r", "s"), job("w", "idle", 2)],
     {"w": "OverShare", "r": "Keep"}),
    ("what is not preemptible is taken by nobody",
     [node("n", 4), queue("a", 4), queue("b", 0), *each("b", "r", "s", preemptible=False), job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("of what is not preemptible the pods above its minimum are given back",
     [node("n", 4), queue("a", 2), queue("b", 2), runs(job("r", "b", 1, 4, least=2, preemptible=False), ("n", 4)),
      job("w", "a", 2)],
     {"w": "n after r", "r": "4->2"}),
    ("growth makes nobody leave",
     [node("n", 4), queue("a", 4), queue("b", 0), *each("b", "r", gpus=3), runs(job("e", "a", 1, 4, least=1), "n")],
     {"e": "Keep", "r": "Keep"}),
)

CHOICE = table(
    ("surplus of a higher priority goes before the core of a lower one",
     [node("n", 4), queue("q"), runs(job("e", gpus=1, count=3, least=1, priority=5), ("n", 3)),
      *each("q", "low", gpus=1), job("w", gpus=2, priority=9)],
     {"e": "3->1", "low": "Keep", "w": "n after e"}),
    ("no more surplus is taken than is needed",
     [node("n", 4), queue("q"), runs(job("e", gpus=1, count=4, least=1), ("n", 4)), job("w", gpus=1, priority=9)],
     {"e": "4->3", "w": "n after e"}),
    ("of queues without a share the one that holds more gives first",
     [node("n", 6), queue("a", 6), queue("c", 0, weight=0), queue("d", 0, weight=0),
      *each("c", "c1", "c2", gpus=1, last_checkpoint=NOW - 60), *each("d", *"rstu", gpus=1), job("w", "a", 1)],
     {"w": "n after u", "u": "Reclaimed for w", "c2": "Keep"}),
    ("a parent whose quotas name CPUs alone does not make its child give first",
     [node("n", 6), queue("a", 3), queue("p", cpu=(9, None)), queue("c", 1, weight=0, parent="p"),
      queue("d", 1, weight=0), *each("c", "c1", "c2", gpus=1), *each("d", *"rstu", gpus=1), job("w", "a", 1)],
     {"w": "n after u", "u": "Reclaimed for w", "c2": "Keep"}),
    ("the queue most above its share gives first, whatever the priorities",
     [node("n", 8), queue("a", 4), queue("b", 2), queue("c", 2), *each("b", "b1", priority=0),
      *each("b", "b2", gpus=1, priority=0), *each("c", "c1", "c2", priority=9), runs(job("c3", "c", 1), "n"),
      job("w", "a", 1)],
     {"c3": "Reclaimed for w", "b2": "Keep", "w": "n after c3"}),
    ("a victim gives its surplus alone where another gives the rest",
     [node("n", 4), queue("q"), runs(job("r", gpus=2, submitted=1), "n"), runs(job("e", gpus=1, count=2, least=1,
      submitted=2), ("n", 2)), job("w", gpus=1, count=4, least=3, priority=9)],
     {"e": "2->1", "r": "Preempted for w", "w": "n*3 after e r"}),
    ("what goes for a limit may make room enough",
     [node("n", 4), node("m", 2), queue("q", 4, 4), *each("q", "r", gpus=1, at="m"),
      *each("q", "x", gpus=1, priority=9), runs(job("t", gpus=1, count=2), "m", "n"), job("w", gpus=2, priority=9)],
     {"t": "Preempted for w", "r": "Keep", "w": "n after t"}),
    ("what must go for a share is not moved",
     [node("n", 4), node("m", 2), queue("a", 3), queue("b", 2), queue("c", 4), *each("a", "r", gpus=1, priority=1),
      *each("b", "s", gpus=3), job("w", "a", 4, priority=3)],
     {"w": "n after r s", "r": "Preempted for w", "s": "Reclaimed for w"}),
    ("of one queue the lower priority goes first",
     [node("n", 4), queue("a", 2), queue("b", 2), *each("b", "r", priority=1), *each("b", "s"), job("w", "a", 2)],
     {"s": "Reclaimed for w", "r": "Keep"}),
    ("of one priority the one goes that loses less work",
     [node("n", 4), queue("q"), runs(job("old", gpus=2), "n", since=NOW - 1800), runs(job("new", gpus=2), "n",
      since=NOW - 900), job("w", gpus=2, priority=9)],
     {"new": "Preempted for w", "old": "Keep"}),
    ("a checkpoint makes a workload cheap",
     [node("n", 4), queue("q"), runs(job("old", gpus=2, last_checkpoint=NOW - 60), "n", since=NOW - 1800),
      runs(job("new", gpus=2), "n", since=NOW - 900), job("w", gpus=2, priority=9)],
     {"old": "Preempted for w", "new": "Keep"}),
    ("what a restart takes is part of the price",
     [node("n", 4), queue("q"), runs(job("slow", gpus=2, restart_seconds=2000), "n", since=NOW - 60),
      runs(job("fast", gpus=2), "n", since=NOW - 900), job("w", gpus=2, priority=9)],
     {"fast": "Preempted for w", "slow": "Keep"}),
    ("no more than an hour of work counts, then the youngest goes",
     [node("n", 4), queue("q"), runs(job("b", gpus=2, submitted=10), "n", since=NOW - 90 * HOUR),
      runs(job("a", gpus=2, submitted=5), "n", since=NOW - 2 * HOUR), job("w", gpus=2, priority=9)],
     {"b": "Preempted for w", "a": "Keep"}),
    ("a gang that falls below its minimum goes whole",
     [node("n", 4), queue("q"), runs(job("g", gpus=1, count=4, least=3), ("n", 4)), job("w", gpus=2, priority=9)],
     {"g": "Preempted for w", "w": "n after g"}),
    ("a gang goes whole, on all its nodes",
     [node("n", 2), node("m", 2), queue("q"), runs(job("g", gpus=2, count=2), "n", "m"), job("w", gpus=2, priority=9)],
     {"g": "Preempted for w"}),
)

NEED = table(
    ("whoever is not needed is spared",
     [node("n", 4), queue("q"), *each("q", "r", "s"), job("w", gpus=2, priority=9)],
     {"r": "Keep", "s": "Preempted for w"}),
    ("nobody goes unless the whole gang starts",
     [node("n", 4), queue("q"), *each("q", "r"), *each("q", "fixed", preemptible=False),
      job("w", gpus=1, count=3, priority=9)],
     {"w": "NoRoom", "r": "Keep"}),
    ("a victim that fits elsewhere is moved, without anybody's leave",
     [node("n", 4), node("m", 2), queue("q"), *each("q", "low"), job("w", gpus=4, priority=9)],
     {"w": "n after low", "low": "Preempted for w to m"}),
    ("an elastic victim is moved as small as it may be",
     [node("n", 4), node("m", 1), queue("q"), runs(job("e", gpus=1, count=2, least=1), ("n", 2)),
      job("w", gpus=4, priority=9)],
     {"w": "n after e", "e": "Preempted for w to m"}),
    ("for room that is coming free nobody is evicted",
     [node("n", 2), node("m", 2), queue("q"), runs(job("going", gpus=2), "n", is_leaving=True, leaving_since=NOW),
      *each("q", "low", at="m"), job("w", gpus=2, priority=9)],
     {"w": "n after going", "going": "Keep", "low": "Keep"}),
    ("who keeps apart from one that leaves waits for it, though there is room beside it",
     [node("n", 4), queue("q"), runs(lone("going"), "n", is_leaving=True, leaving_since=NOW), lone("w"), job("v")],
     {"w": "n after going", "v": "n"}),
    ("a host port is not free before its holder has gone",
     [node("n", 4), queue("q"), Pod("x/p", "n", PodClass(host_ports=PORT), is_leaving=True),
      Pod("x/o", "n", PodClass(), is_leaving=True), job("w", pod={"host_ports": PORT})], {"w": "n after x/p"}),
    ("of those that leave a zone it waits for whom it cannot bear, no others",
     [*(node(name, 4, labels={"zone": "z"}) for name in "nm"), node("o", 1, labels={"zone": "y"}), queue("q"),
      runs(lone("a", key="zone"), "n", is_leaving=True), runs(job("b"), "m", is_leaving=True),
      runs(lone("c", key="zone"), "o", is_leaving=True), lone("w", key="zone", gpus=2)], {"w": "m after a"}),
    ("who is evicted takes its port along, and another that leaves its own",
     [node("n", 2), node("m", 1), queue("q"), runs(job("low", gpus=2), "n"),
      runs(job("going", pod={"host_ports": PORT}), "n", is_leaving=True, leaving_since=NOW),
      job("w", gpus=2, priority=9, pod={"host_ports": PORT})], {"w": "n after going low", "low": "Preempted for w"}),
    ("what was promised is said again until the last has gone",
     [node("n", 2), queue("q"), runs(job("w", gpus=2), "n", is_promised=True, waits_for=("ns/going",)),
      runs(job("going", gpus=2), "n", is_leaving=True, leaving_since=NOW), job("more", gpus=2, priority=1)],
     {"w": "n after going", "going": "Keep", "more": "NoRoom"}),
    ("a gang takes free room and the room of victims together",
     [node("n", 4), node("m", 4), queue("q"), *each("q", "low"), job("w", gpus=2, count=4, priority=9)],
     {"w": "m*2+n*2 after low", "low": "Preempted for w"}),
)

LATELY = NOW - 60
SHELTER = table(
    ("minRuntime protects from being taken back",
     [node("n", 4), queue("a", 0), queue("b", 0, min_runtime=600), runs(job("r", "b", 4), "n", since=LATELY),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("minRuntime does not protect surplus",
     [node("n", 4), queue("a", 0), queue("b", 0, min_runtime=600),
      runs(job("r", "b", 1, 4, least=1), ("n", 4), since=LATELY), job("w", "a", 2)],
     {"w": "n after r", "r": "4->2"}),
    ("minRuntime does not protect from being preempted",
      [node("n", 4), queue("q", min_runtime=600), runs(job("r", gpus=4), "n", since=LATELY),
      job("w", gpus=2, priority=1)],
     {"r": "Preempted for w"}),
    ("minRuntime protects from being moved",
     [node("n", 4), node("m", 4), queue("q", consolidates=True, min_runtime=600),
      *(runs(job(name, gpus=2), at, since=LATELY) for name, at in (("r", "n"), ("s", "m"))), job("w", gpus=4)],
     {"w": "Fragmented", "r": "Keep", "s": "Keep"}),
    ("ten minutes are protected where nobody says anything",
     [node("n", 4), queue("a", 0), queue("b", 0, min_runtime=None), runs(job("r", "b", 4), "n", since=NOW - 599),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("after ten minutes they are not",
     [node("n", 4), queue("a", 0), queue("b", 0, min_runtime=None), runs(job("r", "b", 4), "n", since=NOW - 600),
      job("w", "a", 2)],
     {"w": "n after r", "r": "Reclaimed for w"}),
    ("nor before, from who stays within its guarantee",
     [node("n", 4), queue("a", 2), queue("b", 0, min_runtime=None), runs(job("r", "b", 4), "n", since=LATELY),
      job("w", "a", 2)],
     {"w": "n after r", "r": "Reclaimed for w"}),
    ("minRuntime that is set protects from that, too",
     [node("n", 4), queue("a", 2), queue("b", 0, min_runtime=600), runs(job("r", "b", 4), "n", since=LATELY),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("who was admitted at a time unknown is not protected",
     [node("n", 4), queue("a", 0), queue("b", 0, min_runtime=None), runs(job("r", "b", 4), "n"), job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("minRuntime is found one step below the common ancestor",
     [node("n", 4), queue("d", 0, min_runtime=600), queue("a", 0), queue("b", 0, parent="d", min_runtime=0),
      runs(job("r", "b", 4), "n", since=LATELY), job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("0s below switches it off between those below",
     [node("n", 4), queue("d", 0, min_runtime=600), queue("a", 0, parent="d"),
      queue("b", 0, parent="d", min_runtime=0), runs(job("r", "b", 4), "n", since=LATELY), job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("preemptMinRuntime protects from being preempted",
     [node("n", 4), queue("q", preempt_min_runtime=600), runs(job("r", gpus=4), "n", since=LATELY),
      job("w", gpus=2, priority=1)],
     {"w": "NoRoom", "r": "Keep"}),
    ("preemptMinRuntime does not protect from being taken back",
     [node("n", 4), queue("a", 2), queue("b", 2, preempt_min_runtime=600), runs(job("r", "b", 4), "n", since=LATELY),
      job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("who was evicted six times in a day stays",
     [node("n", 4), queue("a", 0), queue("b", 0), *each("b", "r", gpus=4, evictions=evicted(*range(1, 7))),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("whom nobody may evict is not evicted once",
     [node("n", 4), queue("a", 0), queue("b", 0, max_evictions=0), *each("b", "r", gpus=4), job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
    ("evictions of more than a day ago count no more",
     [node("n", 4), queue("a", 0), queue("b", 0), *each("b", "r", gpus=4, evictions=evicted(90000, *range(1, 6))),
      job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("moves are no evictions",
     [node("n", 4), queue("a", 0), queue("b", 0, max_evictions=1),
      *each("b", "r", gpus=4, evictions=(Eviction(NOW - 9, "Consolidated", "x", "ns/other"),)), job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("often evicted is no protection against who stays within its guarantee",
     [node("n", 4), queue("a", 2), queue("b", 2), *each("b", "r", gpus=4, evictions=evicted(*range(1, 7))),
      job("w", "a", 2)],
     {"r": "Reclaimed for w"}),
    ("who is like one of the pair may part it",
     [node("n", 4), queue("q"), *each("q", "r", gpus=4, evictions=evicted(1800, by="ns/v")),
      job("v", gpus=4, priority=1), job("w", gpus=4, priority=1, submitted=1)],
     {"v": "NoRoom", "w": "n after r", "r": "Preempted for w"}),
    ("the same pair is not parted twice within an hour, whatever is guaranteed",
     [node("n", 4), queue("a", 2), queue("b", 2), *each("b", "r", gpus=4, evictions=evicted(1800, by="ns/w")),
      job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep"}),
)


def emptied(gpus: float) -> Ledger:
    """So many GPUs were evicted from the pool just now."""
    return Ledger(evicted=(("default", Decayed(gpus * 1000, NOW)),))


TOKENS = table(
    ("with an empty bucket nobody is evicted",
     [node("n", 4), Pool("default", eviction_gpus=4000), queue("a", 2), queue("b", 2, ledger=emptied(4)),
      *each("b", "r", "s"), job("w", "a", 2)],
     {"w": "NoRoom", "r": "Keep", "s": "Keep"}),
    ("one gang may overdraw the bucket",
     [node("n", 4), Pool("default", eviction_gpus=1000), queue("a", 2), queue("b", 2), *each("b", "g", gpus=4),
      job("w", "a", 2)],
     {"g": "Reclaimed for w"}),
    ("surplus that is given back is not counted, and is given with an empty bucket, too",
     [node("n", 4), Pool("default", eviction_gpus=4000), queue("a", 2), queue("b", 2, ledger=emptied(4)),
      runs(job("e", "b", 1, 4, least=1), ("n", 4)), job("w", "a", 2)],
     {"w": "n after e"}),
    ("without a budget there is no bucket",
     [node("n", 4), Pool("default"), queue("a", 2), queue("b", 2, ledger=emptied(4)), *each("b", "r", "s"),
      job("w", "a", 2)],
     {"s": "Reclaimed for w"}),
)

SPREAD = node("n", 4), node("m", 4)
MOVES = table(
    ("nothing moves where the asking queue does not allow it",
     [*SPREAD, queue("q"), queue("r", consolidates=True), *each("r", "x"), *each("r", "y", at="m"), job("w", gpus=4)],
     {"w": "Fragmented", "x": "Keep", "y": "Keep"}),
    ("nothing moves for what is not preemptible",
     [*SPREAD, queue("q", 8, consolidates=True), *each("q", "x"), *each("q", "y", at="m"),
      job("w", gpus=4, preemptible=False)],
     {"w": "Fragmented", "x": "Keep", "y": "Keep"}),
    ("consolidation never shrinks",
     [*SPREAD, queue("q", consolidates=True), *each("q", "x", gpus=3),
      runs(job("e", gpus=1, count=2, least=1), ("m", 2)), job("w", gpus=4)],
     {"w": "NoRoom", "e": "Keep", "x": "Keep"}),
    ("the fewest GPUs move, whosoever they are",
     [*SPREAD, queue("q", consolidates=True), *each("q", "x", gpus=2), *each("q", "y", gpus=1, at="m", priority=5),
      job("w", gpus=4)],
     {"w": "m after y", "y": "Consolidated for w to n", "x": "Keep"}),
    ("moved are workloads of any queues that allow it, of higher priority too",
     [*SPREAD, queue("q", consolidates=True), queue("r", consolidates=True), *each("r", "x", priority=9),
      *each("r", "y", gpus=1, at="m", priority=9), job("w", gpus=4)],
     {"w": "m after y", "y": "Consolidated for w to n"}),
    ("PodDisruptionBudgets are kept",
     [*SPREAD, queue("q", consolidates=True), Disruption("ns/x", (Expression("app", "In", ("x",)),), 0),
      *each("q", "x", "z", gpus=1, pod={"namespace": "ns", "labels": (("app", "x"),)}),
      *each("q", "y", gpus=1, at="m", pod={"namespace": "ns", "labels": (("app", "x"),)}), job("w", gpus=4)],
     {"w": "Fragmented", "y": "Keep"}),
    ("who may be moved is, where a budget keeps who would be cheaper",
     [*SPREAD, queue("q", consolidates=True), Disruption("ns/y", (Expression("app", "In", ("y",)),), 0),
      *each("q", "x"), *each("q", "y", gpus=1, at="m", pod={"namespace": "ns", "labels": (("app", "y"),)}),
      job("w", gpus=4)],
     {"w": "n after x", "x": "Consolidated for w to m", "y": "Keep"}),
    ("a victim of preemption is moved where its queue allows no moves",
     [*SPREAD, queue("q", consolidates=False), *each("q", "x"), *each("q", "y", at="m"),
      job("w", gpus=4, priority=9)],
     {"y": "Preempted for w to n", "w": "m after y"}),
    ("moves do not count among a day's evictions",
     [*SPREAD, queue("q", consolidates=True, max_evictions=0), *each("q", "x"), *each("q", "y", at="m"),
      job("w", gpus=4)],
     {"w": "m after y", "y": "Consolidated for w to n"}),
    ("moves count in the bucket",
     [*SPREAD, Pool("default", eviction_gpus=4000), queue("q", consolidates=True, ledger=emptied(4)), *each("q", "x"),
      *each("q", "y", at="m"), job("w", gpus=4)],
     {"w": "Fragmented", "x": "Keep", "y": "Keep"}),
)


@MEANS
def test_by_which_means(things, expected) -> None:
    meets(things, expected)


@RIGHTS
def test_by_what_right(things, expected) -> None:
    meets(things, expected)


@CHOICE
def test_who_goes(things, expected) -> None:
    meets(things, expected)


@NEED
def test_only_what_is_needed(things, expected) -> None:
    meets(things, expected)


@SHELTER
def test_who_is_protected(things, expected) -> None:
    meets(things, expected)


@TOKENS
def test_the_budget_of_evictions(things, expected) -> None:
    meets(things, expected)


@MOVES
def test_who_is_moved(things, expected) -> None:
    meets(things, expected)


def test_a_node_is_overdrawn_by_what_is_there_but_not_by_what_waits_there_for_others():
    state = State()
    leaves = runs(job("leaves", gpus=3), "n", is_leaving=True, moves_to=place_on(("n", 1)))
    waits = runs(job("waits", gpus=3), "n", is_promised=True, waits_for=("ns/leaves",))
    state.observe(node("n", 4), leaves, waits)
    state.snapshot(NOW)
    assert not state.is_overdrawn("n")
    state.observe(Pod("ns/stranger", "n", pod(gpus=2)))
    assert state.is_overdrawn("n")


def test_a_workload_finds_its_node_overdrawn_only_by_what_it_asks_for():
    state, trains, counts = State(), runs(job("trains", gpus=3), "n"), runs(job("counts", cpu=1), "n")
    state.observe(node("n", 4, cpu=8), trains, counts, Pod("ns/stranger", "n", pod(gpus=2)))
    state.snapshot(NOW)
    assert state.is_overdrawn("n", "ns/trains") and not state.is_overdrawn("n", "ns/counts")
    state.observe(Pod("ns/another", "n", pod(cpu=8)))
    assert state.is_overdrawn("n", "ns/counts")


def test_a_move_that_was_done_before_it_was_looked_at_is_assumed_no_longer():
    state, moves = State(), runs(job("moves", gpus=1), "n", since=NOW - 10)
    state.observe(node("n", 4), node("m", 4), moves)
    state.assume(Plan((Evict("ns/moves", Cause.NODE_LOST, admission=place_on(("m", 1))),)))
    state.observe(moves)
    assert state.assumes("ns/moves")
    state.observe(runs(job("moves", gpus=1), "m", since=NOW))
    assert not state.assumes("ns/moves")


def test_the_end_of_a_minimum_runtime_wakes_nothing_where_its_queue_may_lose_nothing():
    young = runs(job("young", "b", gpus=2), "n", since=NOW - 10)
    waits, queues = job("waits", "a", gpus=2), (queue("a", 4), queue("b", 0, min_runtime=600.0))
    assert plan_of(node("n", 2), *queues, young, waits).again_at == NOW + 590
    assert plan_of(node("n", 2), queue("a", 4), queue("b", 2, min_runtime=600.0), young, waits).again_at is None
