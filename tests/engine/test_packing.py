"""Unlike pods on unlike nodes: found where there is a way, not found where there is none."""

from itertools import product
from random import Random

import pytest
from builders import job, judged, node, pod, queue

from fairway.engine.model import PodSet, Pool, Topology
from fairway.engine.packing import Alike, Packing

ZONES = Pool("default", levels=("zone", "kubernetes.io/hostname"))


def drawn(seed: int) -> tuple[list[list[int]], list[Alike]]:
    """Three nodes of two resources and two zones, and up to seven pods in three podsets; one may be bound to a zone."""
    chance = Random(seed)
    free, zones = [[chance.randint(0, 4), chance.randint(0, 4)] for _ in range(3)], [0, 0, 1]
    podsets = []
    for at in range(3):
        needs = tuple((column, amount) for column in (0, 1) if (amount := chance.randint(0, 2)))
        room = [chance.choice((0, 1, 3, 3)) for _ in free]
        domain = zones if chance.random() < 0.3 else [0, 0, 0]
        podsets.append(Alike(chance.randint(1, 2 + (not at)), needs, room, domain))
    return free, podsets


def is_right(rows: tuple[int, ...], free: list[list[int]], podsets: list[Alike]) -> bool:
    pods = [one for one in podsets for _ in range(one.size)]
    used = [[sum(dict(one.needs).get(at, 0) for one, row in zip(pods, rows) if row == node) for at in (0, 1)]
            for node in range(len(free))]  # fmt: skip
    owns = [[row for one, row in zip(pods, rows) if one is podset] for podset in podsets]
    has_room = all(own.count(row) <= one.room[row] for one, own in zip(podsets, owns) for row in own)
    is_together = all(len({one.domain[row] for row in own}) == 1 for one, own in zip(podsets, owns))
    return has_room and is_together and all(a <= b for one, most in zip(used, free) for a, b in zip(one, most))


@pytest.mark.parametrize("seed", range(100))
def test_a_way_is_found_where_there_is_one_and_nowhere_else(seed: int) -> None:
    free, podsets = drawn(seed)
    count = sum(one.size for one in podsets)
    exists = any(is_right(rows, free, podsets) for rows in product(range(3), repeat=count))
    packing = Packing([row.copy() for row in free], podsets)
    assert packing.is_found() == exists
    assert not exists or is_right(tuple(packing.rows), free, podsets)


def podset(name: str, count: int, gpus: int, cpu: int = 0, **fields) -> PodSet:
    return PodSet(name, count, count, pod(gpus, cpu), **fields)


def test_podsets_that_no_order_places_are_placed_all_the_same() -> None:
    zones = {"n0": (1, 8, "A"), "n1": (4, 4, "A"), "n2": (1, 2, "A"), "n4": (2, 8, "B")}
    nodes = (node(name, gpus, cpu=cpu, labels={"zone": zone}) for name, (gpus, cpu, zone) in zones.items())
    gang = podset("a", 2, 2, 2), podset("b", 3, 1, 2, topology=Topology("zone"))
    assert judged(ZONES, *nodes, queue("q"), job("w", podsets=gang))["w"] == "n1+n4+n0+n1+n2"


def test_where_no_way_is_left_the_podsets_never_fit() -> None:
    nodes = node("n0", 4, cpu=4), node("n1", 2, cpu=8), node("n2", 4, cpu=4)
    gang = podset("a", 2, 1, 2), podset("b", 4, 1), podset("c", 4, 1, 3)
    assert judged(*nodes, queue("q"), job("w", podsets=gang))["w"] == "NeverFits"
