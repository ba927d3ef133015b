"""Which namespace a Unix user has, and which queues its groups open."""

from typing import Any

import pytest

from fairway.api.team import GROUPS, OPEN, QUEUE, changes, labels_of, space_of


@pytest.mark.parametrize("name", ["ann", "bob-2", "x"])
def test_a_user_has_a_namespace_of_its_name(name: str) -> None:
    assert space_of(name) == name


@pytest.mark.parametrize("name", ["Ann", "ann.lee", "ann_lee", "default", "kube-system", "fairway-x", "-", "a" * 64])
def test_a_name_that_no_namespace_can_have_becomes_one_of_its_own(name: str) -> None:
    space = space_of(name)
    assert space != name.lower() and len(space) <= 63 and space.replace("-", "").isalnum() and space[0] != "-"


def test_two_names_never_share_a_namespace() -> None:
    names = ["ann.lee", "ann_lee", "ann-lee", "Ann-Lee", "ANN-LEE"]
    assert len({space_of(name) for name in names}) == len(names)


def queue(name: str, groups: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {GROUPS: groups}}}


def test_a_group_opens_its_queues_and_the_first_one_is_the_users_own() -> None:
    queues = [queue("idle", "staff vision"), queue("vision", "vision"), queue("speech", "speech"), queue("default")]
    assert labels_of(["ann", "vision", "staff"], queues) == {
        QUEUE: "idle", f"{OPEN}idle": "true", f"{OPEN}vision": "true"}
    assert labels_of(["bob"], queues) == {}


def test_of_the_queues_of_a_group_one_that_guarantees_something_is_its_members_own() -> None:
    owed = {"spec": {"quotas": [{"guaranteed": {"nvidia.com/gpu": 4}}]}}
    idle = {"spec": {"quotas": [{"guaranteed": {"nvidia.com/gpu": 0}}]}}
    queues = [queue("idle", "vision") | idle, queue("nets", "vision") | owed]
    assert labels_of(["vision"], queues)[QUEUE] == "nets"


def test_who_left_a_group_loses_its_labels_and_no_others() -> None:
    before = {f"{OPEN}vision": "true", QUEUE: "vision", f"{OPEN}idle": "true", "team": "red"}
    assert changes(before, {f"{OPEN}idle": "true", QUEUE: "idle"}) == {f"{OPEN}vision": None, QUEUE: "idle"}
