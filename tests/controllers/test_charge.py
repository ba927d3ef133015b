"""What a workload is charged: the integral of what it held, exactly, whatever its life was like."""

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from fairway.api.objects import Container, Metadata, PodSpec, PodTemplate, Resources
from fairway.api.quantities import time_text
from fairway.api.types import PodSetSpec, WorkloadObject, WorkloadSpec
from fairway.api.workloads import Reading, running, workload
from fairway.controllers import status as life
from fairway.controllers.held import served
from fairway.controllers.queues import use_of
from fairway.controllers.status import Said
from fairway.engine import Admission, Eviction, NodeShare, PodSetPlacement
from fairway.engine.resources import counts_of, gpus_of

EACH = {"cpu": 2000, "nvidia.com/gpu": 1000}
POD = PodSpec(containers=(Container("main", Resources({"cpu": 2, "nvidia.com/gpu": 1}),),))
SPEC = WorkloadSpec(pod_sets=(PodSetSpec("main", 8, 1, PodTemplate(spec=POD)),))
NEW = WorkloadObject(Metadata(name="w", namespace="ns", uid="u", creation_timestamp="2026-01-01T00:00:00Z"), SPEC)
START = 1_800_000_000


def on(pool: str, pods: int) -> Admission:
    return Admission(pool, (PodSetPlacement("main", (NodeShare("n1", pods),)),))


def act(said: WorkloadObject, verb: str, pool: str, pods: int, now: float) -> WorkloadObject:
    """What controllers write for a verdict."""
    if verb == "admit":
        return replace(said, status=life.admit(said.status, on(pool, pods), Said("Admitted"), now=now))
    status = served(said, now=now)
    if verb == "resize":
        return replace(said, status=life.resize(status, on(pool, pods)))
    gone = life.evict(status, Eviction(now, "Preempted", "q", "ns/b"), Said("Preempted"))
    return replace(said, status=life.leave(gone, now=now))


@pytest.mark.parametrize("seed", range(60))
def test_the_charge_is_the_integral_of_what_was_held(seed: int) -> None:
    chance = Random(seed)
    said, now, spent, held = NEW, START, Counter[tuple[str, str]](), ("", 0)
    for _ in range(chance.randrange(1, 12)):
        verb = chance.choice(["resize", "evict"]) if held[1] else "admit"
        pool = held[0] or chance.choice(["a", "b"])
        pods = chance.randrange(1, 9)
        said = act(said, verb, pool, pods, now)
        held = ("", 0) if verb == "evict" else (pool, pods)
        seconds = chance.randrange(5000)
        spent.update({(held[0], name): amount * held[1] * seconds for name, amount in EACH.items() if held[1]})
        now += seconds
        if held[1]:
            value = running(said, workload(said, Reading()))
            gpus = gpus_of(value.workload.podsets, counts_of(value.workload.podsets, value.admission))
            attained = value.workload.attained + gpus * (now - (value.admitted_at or 0.0))
            assert attained * 1000 == sum(it for (_, name), it in spent.items() if name == "nvidia.com/gpu")
    deleted = replace(said, metadata=replace(said.metadata, deletion_timestamp=time_text(now)))
    over = replace(said, status=life.finish(served(said, now=now), Said("Done"), succeeded=True, now=now))
    for one in (over, deleted):
        use = use_of(one, float(now))
        assert use is not None and +Counter(use.spent) == +spent
