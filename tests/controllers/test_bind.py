"""Which pod goes to which place."""

from msgspec import convert
from msgspec.structs import replace

from fairway.api.objects import (
    ASSIGNED,
    GROUP_NAME,
    GROUP_SIZE,
    INDEX,
    Metadata,
    PodObject,
    PodSpec,
    PodStatus,
    PodTemplate,
)
from fairway.api.types import PodSetSpec, WorkloadObject, WorkloadSpec
from fairway.api.workloads import Reading, workload
from fairway.controllers.bind import Place, assign, by_podset, places, strays
from fairway.engine import Admission, NodeShare, PodSetPlacement

PLACED = PodSetPlacement("main", (NodeShare("n1", 2, ((0, 1), (2, 3))), NodeShare("n2", 1, ((0, 1),))))
FIRST, SECOND, THIRD = Place("n1", (0, 1)), Place("n1", (2, 3)), Place("n2", (0, 1))


def pod(name: str, *, index: int | None = None, place: Place | None = None, **said: str) -> PodObject:
    notes = {} if index is None else {INDEX: str(index)}
    if place:
        notes[ASSIGNED] = ",".join(map(str, place.devices))
    meta = Metadata(name=name, annotations=notes, deletion_timestamp=said.get("deleted"))
    spec = PodSpec(node_name=place.node if place else "")
    return PodObject(meta, spec, PodStatus(phase=said.get("phase", "Pending")))


def given(*pods: PodObject) -> dict[str, Place]:
    return {one.metadata.name: place for one, place in assign(PLACED, pods)}


def test_places_stand_in_rank_order() -> None:
    assert places(PLACED) == [FIRST, SECOND, THIRD]


def test_a_pod_with_an_index_takes_the_place_of_its_rank() -> None:
    assert given(pod("c", index=0), pod("b", index=2), pod("a", index=1)) == {"c": FIRST, "a": SECOND, "b": THIRD}


def test_pods_without_ranks_fill_the_places_in_order_and_the_rest_waits() -> None:
    assert given(*(pod(name) for name in "dcba")) == {"a": FIRST, "b": SECOND, "c": THIRD}


def test_pods_of_a_group_take_the_places_of_their_ranks_whichever_was_made_first() -> None:
    labels = {GROUP_NAME: "g", GROUP_SIZE: "11"}
    group = [replace(one, metadata=replace(one.metadata, labels=labels)) for one in map(pod, ("w-10", "w-2", "w-1"))]
    assert given(*group) == {"w-1": FIRST, "w-2": SECOND, "w-10": THIRD}


def test_a_bound_pod_keeps_its_very_place() -> None:
    assert given(pod("a", place=SECOND), pod("b"), pod("c")) == {"b": FIRST, "c": THIRD}


def test_an_index_beyond_the_places_takes_one_that_came_free() -> None:
    over = [pod("a", index=0, place=FIRST, phase="Succeeded"), pod("b", index=1, place=SECOND)]
    assert given(*over, pod("c", index=3), pod("d", index=4)) == {"c": FIRST, "d": THIRD}


def test_a_pod_that_is_going_holds_its_place_until_it_is_gone() -> None:
    going = pod("a", index=0, place=FIRST, deleted="2026-01-01T00:00:00Z")
    assert given(going, pod("b", index=0)) == {"b": SECOND}


def test_where_the_kubelet_chooses_devices_a_place_is_a_node() -> None:
    placed = PodSetPlacement("main", (NodeShare("n1", 2),))
    bound = pod("a", place=Place("n1"))
    assert [(one.metadata.name, place) for one, place in assign(placed, [bound, pod("b")])] == [("b", Place("n1"))]


def test_pods_without_a_place_are_strays_the_last_rank_first() -> None:
    smaller = PodSetPlacement("main", (NodeShare("n1", 1),))
    bound = [pod(name, index=index, place=Place("n1")) for index, name in enumerate("abc")]
    gone = pod("d", index=3, place=Place("n1"), phase="Succeeded")
    assert [one.metadata.name for one in strays(smaller, [gone, *reversed(bound)])] == ["b", "c"]


def test_a_pod_on_other_devices_than_those_left_is_a_stray() -> None:
    left = PodSetPlacement("main", (NodeShare("n1", 1, ((0, 1),)),))
    bound = [pod("a", index=0, place=SECOND), pod("b", index=1, place=FIRST)]
    assert [one.metadata.name for one in strays(left, bound)] == ["a"]


def test_a_pod_to_which_the_server_added_tolerations_is_of_the_podset_that_requests_the_same() -> None:
    asked = [{"requests": {"cpu": text}} for text in ("1", "2")]
    podsets = tuple(
        PodSetSpec(name, 1, template=convert({"spec": {"containers": [{"resources": one}]}}, PodTemplate))
        for name, one in zip(("head", "worker"), asked)
    )
    value = workload(WorkloadObject(spec=WorkloadSpec(pod_sets=podsets)), Reading())
    placed = Admission("p", tuple(PodSetPlacement(name, (NodeShare("n1", 1),)) for name in ("head", "worker")))
    spec = {"containers": [{"resources": asked[1]}], "tolerations": [{"key": "gone", "operator": "Exists"}]}
    pod = convert({"metadata": {"name": "a"}, "spec": spec}, PodObject)
    assert [len(own) for _, own in by_podset(placed, value, [pod])] == [0, 1]
