"""What a bare pod stands for."""

from msgspec.structs import replace

from fairway.api.alone import workload_of_pod
from fairway.api.objects import ATTEMPT, POOL, QUEUE, SCHEDULER, Metadata, PodObject, PodSpec, Volume, VolumeUse
from fairway.api.types import WorkloadSpec


def pod(name: str, **notes: str) -> PodObject:
    about = Metadata(name=name, namespace="ml", uid=f"uid-{name}", labels={QUEUE: "research"}, annotations=notes)
    return PodObject(about, PodSpec(scheduler_name=SCHEDULER))


def asked(said: PodObject) -> WorkloadSpec:
    made = workload_of_pod(said)
    assert made is not None
    return made.spec


def with_volumes(said: PodObject, *volumes: Volume) -> PodObject:
    return replace(said, spec=replace(said.spec, volumes=volumes))


def test_pods_alike_share_what_they_ask_for_whatever_the_volumes_of_their_tokens_are_called():
    first, second = (with_volumes(pod(name), Volume(f"kube-api-access-{name}")) for name in "ab")
    assert asked(first) is asked(second)


def test_what_a_pod_claims_is_of_that_pod_alone():
    first, second = (with_volumes(pod(name), Volume("data", VolumeUse(f"claim-{name}"))) for name in "ab")
    assert asked(first).pod_sets != asked(second).pod_sets


def test_what_an_annotation_asks_for_is_of_that_pod_alone():
    notes = {"fairway.dev/expected-runtime": "1h"}
    assert (asked(pod("a", **notes)).expected_runtime, asked(pod("b")).expected_runtime) == ("1h", "")


def test_what_binding_writes_on_a_pod_changes_nothing_of_what_it_asks_for():
    bound = pod("a", **{ATTEMPT: "pod-a/uid-a/1", POOL: "default"})
    assert asked(replace(bound, spec=replace(bound.spec, node_name="n1"))) is asked(pod("a"))


def test_a_pod_that_asks_for_memory_of_a_gpu_has_a_workload_which_keeps_how_much_of_one_that_is():
    assert workload_of_pod(pod("a", **{"fairway.dev/gpu-memory": "20Gi"})) is None
