"""What a user may store in a namespace of a team's box."""

from typing import Any

import pytest

from fairway.api.admission import Refused
from fairway.embedded.access.allowance import BYTES, DATA, OBJECTS, Allowance, Asked
from fairway.embedded.access.identity import ADMIN, Identity, controller
from fairway.embedded.store import Key, Store

ANN = Identity("ann")
JOB_CONTROLLER = controller("job-controller")


def thing(name: str, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ann"}, "data": "x" * size}


class Space:
    """A namespace with these bounds."""

    def __init__(self, **most: int) -> None:
        self.store, self.notes = Store(keep=5), {f"fairway.dev/most-{name}": str(it) for name, it in most.items()}
        self.allowance = Allowance(self.store)

    def write(self, resource: str, new: dict[str, Any], who: Identity = ANN) -> None:
        key = Key(resource, "ann", new["metadata"]["name"])
        old = {**new, "data": ""} if self.store.latest(key) else None
        self.allowance.check(Asked(who, resource, "ann", self.notes, new, old))
        self.store.put(key, new)


def test_a_user_is_refused_more_objects_than_the_namespace_allows_and_told_what_to_do() -> None:
    space = Space(objects=12)
    for number in range(12):  # more than the log keeps
        space.write("jobs.batch", thing(f"job-{number}"))
    with pytest.raises(Refused) as refused:
        space.write("jobs.batch", thing("more"))
    assert refused.value.forbidden
    assert "12 objects are in namespace ann, and 1 more would be over the 12 that fairway.dev/most-objects" in str(
        refused.value)
    assert "delete what is over, or ask an administrator: kubectl annotate" in str(refused.value)


def test_what_is_deleted_makes_room_and_events_never_count() -> None:
    space = Space(objects=2)
    for name in ("one", "two"):
        space.write("jobs.batch", thing(name))
        space.write("events", thing(name))
    with pytest.raises(Refused):
        space.write("jobs.batch", thing("three"))
    space.store.remove(Key("jobs.batch", "ann", "one"), thing("one"))
    space.write("jobs.batch", thing("three"))
    assert space.allowance.held("ann")[OBJECTS] == 2


def test_an_event_of_a_user_is_small_and_goes_when_it_is_deleted() -> None:
    space = Space()
    space.write("events", thing("large", 20_000), JOB_CONTROLLER)
    space.write("events", thing("one", 16_000))
    with pytest.raises(Refused, match="and may have 16384"):
        space.write("events.events.k8s.io", thing("two", 17_000))
    with pytest.raises(Refused, match=r"metadata\.finalizers"):
        space.write("events", {"metadata": {"name": "stays", "finalizers": ["a/b"]}})


def test_bytes_are_bounded_however_few_the_objects_and_an_update_counts_what_it_adds() -> None:
    space = Space(bytes=10_000)
    space.write("jobs.batch", thing("large", 9_000))
    with pytest.raises(Refused, match=BYTES):
        space.write("jobs.batch", thing("more", 9_000))
    space.write("jobs.batch", thing("small"))
    with pytest.raises(Refused, match=BYTES):
        space.write("jobs.batch", thing("small", 2_000))
    space.write("jobs.batch", thing("small"))


def test_the_data_of_configmaps_and_secrets_has_a_bound_of_its_own() -> None:
    space = Space(data=10_000)
    space.write("configmaps", thing("config", 6_000))
    with pytest.raises(Refused, match=DATA):
        space.write("secrets", thing("secret", 6_000))
    space.write("jobs.batch", thing("job", 20_000))


def test_a_controller_makes_no_pods_beyond_the_bound_but_writes_all_else_and_an_administrator_is_free() -> None:
    space = Space(objects=1)
    space.write("jobs.batch", thing("job"))
    with pytest.raises(Refused):
        space.write("pods", thing("pod"), JOB_CONTROLLER)
    space.write("workloads.fairway.dev", thing("job"), JOB_CONTROLLER)
    space.write("jobs.batch", thing("other"), ADMIN)


def test_a_bound_that_is_no_number_is_the_default() -> None:
    space = Space()
    space.notes[OBJECTS] = "many"
    space.write("jobs.batch", thing("job"))
