"""Worlds in six lines: short ways to write nodes, queues, workloads and who runs where; tables of worked examples."""

import pytest

from fairway.engine import decide, snapshot_of
from fairway.engine.model import (
    GPU,
    Admission,
    Disruption,
    Ended,
    Node,
    NodeShare,
    Pod,
    PodClass,
    PodSet,
    PodSetPlacement,
    Pool,
    Queue,
    Quota,
    Reservation,
    Running,
    Share,
    Workload,
    World,
    amounts,
)
from fairway.engine.plan import Admit, Evict, Plan, Resize, Verdict, Wait
from fairway.engine.policy import Policy
from fairway.referee import check

NOW = 1_000_000.0
GIB = 2**30


def milli(count: float) -> int:
    return round(count * 1000)


def node(name: str, gpus: int = 0, *, cpu: float = 64, memory: int = 512, chooser: str = "Scheduler", **fields) -> Node:
    offers = {"cpu": milli(cpu), "memory": memory * GIB, "pods": fields.pop("pods", 110)}
    if gpus:
        offers[GPU] = milli(gpus)
    labels = tuple(sorted({"kubernetes.io/hostname": name, **fields.pop("labels", {})}.items()))
    return Node(name, labels, amounts(offers), chooser=chooser, **fields)


def quantity(text: float | str) -> Share:
    """`8` devices or CPUs; `"25%"` of what is live."""
    if isinstance(text, str):
        return Share(round(float(text.removesuffix("%")) * 10), is_relative=True)
    return Share(milli(text))


def queue(name: str, guaranteed=None, limit=None, *, weight: float = 1.0, pool: str = "*", cpu=None, **fields) -> Queue:
    """`guaranteed` and `limit` are GPUs; `cpu` is (guaranteed, limit) of CPUs; with neither it is ungoverned."""
    owed = {GPU: quantity(guaranteed)} if guaranteed is not None else {}
    most = {GPU: quantity(limit)} if limit is not None else {}
    if cpu is not None:
        owed |= {"cpu": quantity(cpu[0])}
        most |= {"cpu": quantity(cpu[1])} if cpu[1] is not None else {}
    quotas = (Quota(pool, tuple(sorted(owed.items())), tuple(sorted(most.items())), weight),) if owed or most else ()
    fields.setdefault("min_runtime", 0.0)
    return Queue(name, quotas=fields.pop("quotas", quotas), **fields)


def pod(gpus: float = 0, cpu: float = 0, **fields) -> PodClass:
    requests = {name: amount for name, amount in ((GPU, milli(gpus)), ("cpu", milli(cpu))) if amount}
    return PodClass(requests=amounts(requests), **fields)


def job(name: str, queue="q", gpus: float = 0, count=1, *, least: int | None = None, **fields) -> Workload:
    """`count` pods of so many GPUs each, at least `least` of them."""
    of = pod(gpus, fields.pop("cpu", 0), **fields.pop("pod", {}))
    podsets = fields.pop("podsets", (PodSet("main", count, count if least is None else least, of),))
    return Workload(f"ns/{name}", queue, podsets, **fields)


def place_on(*where: tuple[str, int], devices=(), pool: str = "default") -> Admission:
    given = iter(devices)
    shares = tuple(
        NodeShare(name, count, tuple(next(given) for _ in range(count)) if devices else ()) for name, count in where
    )
    return Admission(pool, (PodSetPlacement("main", shares),))


def runs(workload: Workload, *where: tuple[str, int] | str, devices=(), since=None, **fields) -> Running:
    """It runs there; a node's name alone means one pod."""
    shares = [(one, 1) if isinstance(one, str) else one for one in where]
    pool = fields.pop("pool", "default")
    return Running(workload, place_on(*shares, devices=devices, pool=pool), admitted_at=since, **fields)


KINDS = {
    "nodes": Node, "pools": Pool, "queues": Queue, "pending": Workload, "running": Running, "pods": Pod,
    "reservations": Reservation, "disruptions": Disruption, "ended": Ended,
}


def world(*things, now: float = NOW, **fields) -> World:
    """Sorted by kind: nodes, pools, queues, waiting and running workloads, and what else a world is made of."""
    sorted_ = {name: tuple(one for one in things if isinstance(one, kind)) for name, kind in KINDS.items()}
    return World(now, **{**sorted_, **fields})


def plan_of(*things, policy: Policy | None = None, **fields) -> Plan:
    return decide(snapshot_of(world(*things, **fields)), policy or Policy())


def verdicts(plan: Plan) -> dict[str, Verdict]:
    return {verdict.workload.removeprefix("ns/"): verdict for verdict in plan.verdicts}


def told(plan: Plan) -> dict[str, str]:
    """In a word for each workload: where it starts (`n1+n2`, `n1 after v`), why it waits, what becomes of it."""
    return {verdict.workload.removeprefix("ns/"): _word(verdict) for verdict in plan.verdicts}


def judged(*things, policy: Policy | None = None, **fields) -> dict[str, str]:
    """What is told of a world by a plan in which the referee finds no fault."""
    policy = policy or Policy()
    snapshot = policy.seen(snapshot_of(world(*things, **fields)))
    plan = decide(snapshot, policy)
    assert check(snapshot, plan) == [], told(plan)
    return told(plan)


def table(*rows):
    """Worked examples: a sentence, the things of a world, and what is told of those workloads that matter."""
    cases = [pytest.param(things, expected, id=sentence) for sentence, things, expected in rows]
    return pytest.mark.parametrize(("things", "expected"), cases)


def meets(things, expected: dict[str, str]) -> None:
    """The plan says just that of these workloads."""
    found = judged(*things)
    assert {name: found.get(name) for name in expected} == expected, found


def _word(verdict: Verdict) -> str:
    match verdict:
        case Admit():
            nodes = "+".join(_node(share) for one in verdict.admission.podsets for share in one.nodes)
            after = " ".join(sorted(key.removeprefix("ns/") for key in verdict.after))
            return f"{nodes} after {after}" if after else nodes
        case Wait():
            return str(verdict.reason)
        case Evict():
            whom = f" for {verdict.beneficiary.removeprefix('ns/')}" if verdict.beneficiary else ""
            to = f" to {_word(Admit('', verdict.admission))}" if verdict.admission else ""
            return f"{verdict.cause}{whom}{to}"
        case Resize():
            return " ".join(f"{was[1]}->{now[1]}" for was, now in zip(verdict.before, verdict.after))
        case _:
            return type(verdict).__name__


def _node(share: NodeShare) -> str:
    return share.node if share.count == 1 else f"{share.node}*{share.count}"
