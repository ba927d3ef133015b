"""What /metrics says."""

import asyncio
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from fairway.controllers.metrics import Metrics
from fairway.engine import (
    Admission,
    Expression,
    Fault,
    Node,
    NodeShare,
    Plan,
    PodClass,
    PodSet,
    PodSetPlacement,
    Pool,
    Reason,
    Running,
    Wait,
    Workload,
    World,
    amounts,
    snapshot_of,
)
from fairway.kube.transport import Request, Response


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Value by name and label values."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    found = [it for one in families for it in one.samples]
    return {(it.name, *(it.labels[key] for key in sorted(it.labels))): it.value for it in found}


def workload(name: str) -> Workload:
    return Workload(f"ns/{name}", "q", (PodSet("main", 1, 1, PodClass(requests=amounts({"nvidia.com/gpu": 1000}))),))


def test_gauges_are_what_the_last_cycle_saw() -> None:
    metrics = Metrics()
    offers = amounts({"cpu": 4000, "nvidia.com/gpu": 4000, "pods": 10})
    here = Admission("default", (PodSetPlacement("main", (NodeShare("n1", 1),)),))
    snapshot = snapshot_of(
        World(
            nodes=(Node("n1", capacity=offers), Node("n2", capacity=offers)),
            pending=(workload("a"), workload("b")),
            running=(Running(workload("r"), here, 0.0),),
        )
    )
    plan = Plan((Wait("ns/a", Reason.NO_ROOM), Wait("ns/b", Reason.OVER_LIMIT)), {("q", "default", "cpu"): 7})
    metrics.show(snapshot, plan, {("q", "default", "nvidia.com/gpu"): 1000})
    said = samples(metrics)
    assert said["fairway_pending_workloads", "q", "NoRoom"] == said["fairway_pending_workloads", "q", "OverLimit"] == 1
    assert said["fairway_running_workloads", "q"] == 1
    assert said["fairway_allocated", "default", "q", "nvidia.com/gpu"] == 1000
    assert said["fairway_share", "default", "q", "cpu"] == 7
    assert said["fairway_capacity", "default", "nvidia.com/gpu"] == 8000
    assert said["fairway_fragmentation", "default"] == 3 / 7
    metrics.show(snapshot, Plan(), {})
    assert ("fairway_pending_workloads", "q", "NoRoom") not in samples(metrics)


def test_what_nothing_limits_has_no_capacity() -> None:
    metrics, name = Metrics(), "attachable-volumes-csi-disks"
    limited, free = Node("n1", capacity=amounts({name: 3})), Node("n2")
    pools = tuple(Pool(one, (Expression("metadata.name", "In", (one,)),)) for one in ("n1", "n2"))
    labelled = (replace(one, labels=(("metadata.name", one.name),)) for one in (limited, free))
    metrics.show(snapshot_of(World(nodes=tuple(labelled), pools=pools)), Plan(), {})
    found = {key[1] for key in samples(metrics) if key[0] == "fairway_capacity" and key[2] == name}
    assert found == {"n1"}


def test_refused_items_and_requests_are_counted() -> None:
    metrics = Metrics()
    metrics.refuse([Fault("ns/a", "Room"), Fault("ns/b", "Room")])

    async def server(request: Request) -> Response:
        if request.path == "/lost":
            raise ConnectionError
        return Response(409, {}, b"")

    async def ask() -> None:
        counted = metrics.counted(server)
        await counted(Request("GET", "/"))
        await asyncio.gather(counted(Request("GET", "/lost")), return_exceptions=True)

    asyncio.run(ask())
    said = samples(metrics)
    assert said["fairway_refused_items_total", "Room"] == 2
    assert said["fairway_api_requests_total", "409"] == said["fairway_api_requests_total", "none"] == 1
