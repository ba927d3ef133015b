"""What claims mean for placement."""

from dataclasses import replace
from typing import Any

import pytest

from fairway.api.decode import decode
from fairway.api.objects import (
    ATTACHED,
    CapacityObject,
    ClaimObject,
    CsiDriverObject,
    NodeObject,
    PodTemplate,
    StorageClassObject,
    VolumeObject,
)
from fairway.api.pods import Surroundings, pod_class
from fairway.api.volumes import Storage, reaches
from fairway.engine import Expression, PodClass, Term, means

Thing = dict[str, Any]
LOCAL: Thing = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
MADE: Thing = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "disks"}
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
ZONES = (ZONE, REGION, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
OUTSIDE = Term(tuple(Expression(key, "DoesNotExist") for key in ZONES))


def in_zone(*values: str) -> Term:
    return Term((Expression("zone", "In", values),))


def storage(claims: Thing, volumes: Thing | None = None, **classes: Thing) -> Storage:
    """Claims by name, in namespace ns: spec, or the whole of it; volumes by name."""
    seen = {name: one if "spec" in one else {"spec": one} for name, one in claims.items()}
    whole = {name: one if "spec" in one else {"spec": one} for name, one in (volumes or {}).items()}

    def named(name: str, one: Thing, **more: str) -> Thing:
        return {**one, "metadata": {"name": name, **more, **one.get("metadata", {})}}

    return Storage(
        {f"ns/{name}": decode(named(name, one, namespace="ns", uid=name), ClaimObject) for name, one in seen.items()},
        {name: decode(named(name, one), VolumeObject) for name, one in whole.items()},
        {name: decode(named(name, one), StorageClassObject) for name, one in classes.items()},
    )


def measured(known: Storage, *said: Thing) -> Storage:
    """With a driver that measures its storage, and the capacities of class made that it reports."""
    driver = decode({"metadata": {"name": "disks"}, "spec": {"storageCapacity": True}}, CsiDriverObject)
    told = [decode({"storageClassName": "made", **one}, CapacityObject) for one in said]
    return replace(known, drivers={"disks": driver}, capacities={str(at): one for at, one in enumerate(told)})


def read(
    known: Storage | None, *volumes: Thing, name: str = "", limited: tuple[str, ...] = (), shared: tuple[str, ...] = ()
) -> PodClass:
    """A pod that uses claim `c`, or these volumes; some node limits the volumes of these drivers; `shared` claims."""
    said = list(volumes) or [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    template = decode({"metadata": {"name": name}, "spec": {"volumes": said}}, PodTemplate)
    limits = frozenset(ATTACHED + one for one in limited)
    return pod_class(template, "ns", Surroundings(known, limited=limits, shared=frozenset(shared)))


def at(*zones: str, **said: Any) -> Thing:
    """The spec of a volume of class local in these zones."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [one]}]} for one in zones]
    there = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zones else {}
    return (
        {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}} | there | said
    )


ASKS: Thing = {
    "storageClassName": "local",
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}


def test_a_bound_claim_brings_the_affinity_of_its_volume_and_may_be_exclusive():
    claim = {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}
    found = read(storage({"c": claim}, {"v": at("a")}))
    assert (found.volumes, found.exclusive, found.unready) == (((in_zone("a"),),), ("ns/c",), ())


def test_zones_in_the_labels_of_a_volume_bind_unless_the_node_has_none():
    labels = {ZONE: "a__b", REGION: "x", "other": "y"}
    found = read(storage({"c": {"volumeName": "v"}}, {"v": {"spec": {}, "metadata": {"labels": labels}}}))
    zone, region = (Term((Expression(ZONE, "In", ("a", "b")),)), Term((Expression(REGION, "In", ("x",)),)))
    assert found.volumes == ((zone, OUTSIDE), (region, OUTSIDE))


@pytest.mark.parametrize(
    ("claims", "volumes", "why"),
    [
        ({}, {}, "ClaimMissing"),
        ({"c": {"spec": ASKS, "metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}}, {"v": at()}, "ClaimMissing"),
        ({"c": {"volumeName": "gone"}}, {}, "ClaimUnbound"),
        ({"c": {"spec": {"volumeName": "v"}, "status": {"phase": "Pending"}}}, {"v": at()}, "ClaimUnbound"),
        ({"c": {**ASKS, "storageClassName": "unknown"}}, {"v": at()}, "ClaimUnbound"),
        ({"c": ASKS}, {}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(capacity={"storage": "512Mi"})}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(accessModes=["ReadOnlyMany"])}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(volumeMode="Block")}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(storageClassName="made")}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(claimRef={"namespace": "ns", "name": "other"})}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": at(claimRef={"namespace": "ns", "name": "c", "uid": "of-before"})}, "ClaimUnbound"),
        ({"c": ASKS}, {"v": {"spec": at(), "status": {"phase": "Released"}}}, "ClaimUnbound"),
        ({"c": {**ASKS, "selector": {"matchLabels": {"tier": "fast"}}}}, {"v": at()}, "ClaimUnbound"),
    ],
)
def test_a_claim_without_a_volume_to_be_had_keeps_its_pod_waiting(claims, volumes, why):
    assert read(storage(claims, volumes, local=LOCAL, made=MADE)).unready == ((why, "c"),)


@pytest.mark.parametrize(
    ("claim", "volumes", "where"),
    [
        (ASKS, {"v": at("a"), "w": at("b"), "x": at("c", storageClassName="made")}, (in_zone("a"), in_zone("b"))),
        (ASKS, {"v": at("a"), "w": at()}, None),
        (ASKS, {"v": at("a"), "w": at("b", claimRef={"namespace": "ns", "name": "c"})}, (in_zone("b"),)),
        ({**ASKS, "storageClassName": "made"}, {}, None),
        ({**ASKS, "storageClassName": "zonal"}, {"v": at("a", storageClassName="zonal")}, (in_zone("a"), in_zone("b"))),
    ],
)  # fmt: skip
def test_a_claim_that_waits_for_its_first_pod_takes_it_where_a_volume_is_or_is_made(claim, volumes, where):
    labels = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    known = storage({"c": claim}, volumes, local=LOCAL, made=MADE, zonal={**MADE, "allowedTopologies": labels})
    found = read(known)
    assert (found.volumes, found.unready) == (() if where is None else (where,), ())


def test_pods_that_share_a_claim_agree_in_what_tells_its_places_apart() -> None:
    """Where its volume is once, a free volume or one that is made in one of several zones, all of them go."""
    local = storage({"c": ASKS}, {"v1": at("a"), "v2": at("b")}, local=LOCAL)
    (term,) = read(local, shared=("ns/c",)).pod_affinity
    own = read(local, shared=("ns/c",))
    assert (term.topology_key, term.weight, term.anti) == ("zone", None, False) and means(term, own, own)
    assert read(local).pod_affinity == () and read(local, shared=("ns/other",)).pod_affinity == ()
    one_place = storage({"c": ASKS}, {"v1": at("a")}, local=LOCAL)
    assert read(one_place, shared=("ns/c",)).pod_affinity == ()
    bound = storage({"c": {"volumeName": "v1"}}, {"v1": at("a"), "v2": at("b")}, local=LOCAL)
    assert read(bound, shared=("ns/c",)).pod_affinity == ()


def test_once_a_node_was_selected_the_class_makes_the_volume_there():
    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    claims = {"c": {"spec": {**ASKS, "storageClassName": "made"}, **selected}}
    there = (Term(fields=(Expression("metadata.name", "In", ("n1",)),)),)
    assert read(storage(claims, {"v": at("a", storageClassName="made")}, made=MADE)).volumes == (there,)
    labels = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    zonal = storage(claims, made={**MADE, "allowedTopologies": labels})
    assert read(zonal).volumes == ((in_zone("b"),), there)
    assert read(storage({"c": {"spec": ASKS, **selected}}, {"v": at("a")}, local=LOCAL)).unready == (
        ("ClaimUnbound", "c"),
    )


def test_the_smallest_volume_comes_first():
    known = storage({"c": ASKS}, {"big": at(capacity={"storage": "1Ti"}), "small": at(), "same": at()}, local=LOCAL)
    assert [one.metadata.name for one in known.fitting(known.claims["ns/c"])] == ["same", "small", "big"]


def test_a_claim_that_a_pod_makes_for_itself_is_named_after_it_and_read_from_the_template_before():
    inline = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": ASKS}}}
    known = storage({"p-scratch": {"volumeName": "w"}}, {"v": at("a"), "w": at("b")}, local=LOCAL)
    assert read(known, inline, name="p").volumes == ((in_zone("b"),),)
    assert read(known, inline, name="q").unready == (("ClaimMissing", "q-scratch"),)
    assert read(known, inline).volumes == ((in_zone("a"), in_zone("b")),)


def test_each_claim_is_a_volume_of_its_driver_where_some_node_limits_that():
    claims = {"c": {"volumeName": "v"}, "d": {"volumeName": "w"}, "e": {**ASKS, "storageClassName": "made"}}
    known = storage(claims, {"v": at(csi={"driver": "disks"}), "w": at(csi={"driver": "files"})}, made=MADE)
    uses = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in (*claims, "none")]
    twice = {"name": "again", "persistentVolumeClaim": {"claimName": "c"}}
    inline = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claims["e"]}}}
    assert read(known, *uses, twice, inline, limited=("disks",)).attaches == ((f"{ATTACHED}disks", 3),)
    assert read(known, *uses).attaches == ()


def test_a_claim_that_is_being_deleted_is_attached_yet():
    gone = {"spec": {"volumeName": "v"}, "metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}
    found = read(storage({"c": gone}, {"v": at(csi={"driver": "disks"})}), limited=("disks",))
    assert (found.attaches, found.unready) == (((f"{ATTACHED}disks", 1),), (("ClaimMissing", "c"),))


def on(labels: Thing, capacity: str = "1Gi", **more: Any) -> Thing:
    return {"nodeTopology": {"matchLabels": labels}, "capacity": capacity, **more}


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ([on({"zone": "a"}), on({"zone": "b"}, "2Gi"), on({"zone": "c"}, "1023Mi")], (in_zone("a", "b"),)),
        ([on({"zone": "a"}, maximumVolumeSize="1Mi"), on({"zone": "b"}, maximumVolumeSize="1Gi")], (in_zone("b"),)),
        ([on({"zone": "a"}), on({}), on({"zone": "b"}, storageClassName="other")], None),
        (
            [on({"zone": "a"}), on({"row": "x", "zone": "b"})],
            (in_zone("a"), Term((Expression("row", "In", ("x",)), Expression("zone", "In", ("b",))))),
        ),
        (
            [on({"row": row, "zone": zone}) for row, zone in ("xa", "ya", "zb")],
            (
                Term((Expression("row", "In", ("x", "y")), Expression("zone", "In", ("a",)))),
                Term((Expression("row", "In", ("z",)), Expression("zone", "In", ("b",)))),
            ),
        ),
    ],
)  # fmt: skip
def test_a_volume_is_made_where_its_driver_has_room_for_it(said, where):
    found = read(measured(storage({"c": {**ASKS, "storageClassName": "made"}}, made=MADE), *said))
    assert (found.volumes, found.unready) == (() if where is None else (where,), ())


def test_a_volume_is_made_where_both_its_class_and_the_room_for_it_allow():
    labels = [{"matchLabelExpressions": [{"key": "row", "values": [one]}]} for one in "xy"]
    known = storage({"c": {**ASKS, "storageClassName": "made"}}, made={**MADE, "allowedTopologies": labels})
    rows = [Term((Expression("row", "In", (one,)), *in_zone("a").expressions)) for one in "xy"]
    assert read(measured(known, on({"zone": "a"}))).volumes == (tuple(rows),)


def test_what_no_storage_is_large_enough_for_is_told_with_figures():
    known = storage({"c": {**ASKS, "storageClassName": "made"}}, made=MADE)
    full = measured(known, on({"zone": "a"}, "512Mi"), {"capacity": "1Ti"})
    assert read(full).unready == (
        ("ClaimUnbound", "c, which asks for 1 GiB; class made has room for 512 MiB at most"),
    )
    assert read(measured(known)).unready[0][1].endswith("1 GiB; no CSIStorageCapacity of class made is of any nodes")
    free = replace(full, volumes=storage({}, {"v": at("b", storageClassName="made")}).volumes)
    assert read(free).volumes == ((in_zone("b"),),)


def test_of_any_size_is_what_says_none_or_has_a_node_already_or_a_driver_that_does_not_measure():
    asks, there = {**ASKS, "storageClassName": "made"}, {"volume.kubernetes.io/selected-node": "n1"}
    assert read(measured(storage({"c": {"storageClassName": "made"}}, made=MADE))).unready == ()
    assert read(measured(storage({"c": {"spec": asks, "metadata": {"annotations": there}}}, made=MADE))).unready == ()
    assert read(measured(storage({"c": asks}, made={**MADE, "provisioner": "files"}))).unready == ()
    assert read(measured(storage({"c": asks}, made={"provisioner": "disks"}))).unready == (("ClaimUnbound", "c"),)


def test_without_knowledge_of_storage_claims_do_not_bind():
    assert read(None).unready == ()


@pytest.mark.parametrize(("zones", "is_there"), [((), True), (("a",), True), (("b", "a"), True), (("b",), False)])
def test_a_volume_reaches_the_nodes_of_its_affinity(zones, is_there):
    (volume,) = storage({}, {"v": at(*zones)}).volumes.values()
    node = decode({"metadata": {"name": "n", "labels": {"zone": "a"}}}, NodeObject)
    assert reaches(volume, node.metadata.name, node.metadata.labels) == is_there
