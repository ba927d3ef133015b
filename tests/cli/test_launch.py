"""A program of several ranks on a cluster: its Job, its Service, and which failures end it."""

from types import SimpleNamespace
from typing import Any

import pytest
from simworld import World, cluster, node

from fairway.cli.job import amend
from fairway.cli.launch import service_of
from fairway.cli.program import program_of
from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.kinds import Ref

Thing = dict[str, Any]
OPTIONS = dict.fromkeys(
    ("script", "array", "sweep", "min_workers", "elastic", "queue", "workers", "cpus", "retries", "gpus", "memory",
     "grace", "priority", "kind", "time_limit", "deadline", "checkpoint_interval", "expected_runtime", "preemptible",
     "idle_timeout", "topology", "after", "notify", "requeue_on", "chdir", "file",
     "labels")
)  # fmt: skip


def job(*command: str, name: str = "train", **said: Any) -> Thing:
    """The Job of a submission with these options."""
    usual = {**OPTIONS, "usual": "default", "image": "trainer:1", "command": command or ("python", "train.py")}
    order = SimpleNamespace(**{**usual, **said})
    program = program_of(order, is_here=False, is_process=False)
    made = program.job(order, name, "default")
    amend(made, order)
    program.finish(made, order)
    return made


def environment(job: Thing) -> dict[str, str]:
    found = job["spec"]["template"]["spec"]["containers"][0].get("env", ())
    return {it["name"]: it.get("value") or it["valueFrom"]["fieldRef"]["fieldPath"] for it in found}


def test_each_rank_finds_its_number_and_the_first_by_the_names_that_it_has_on_one_machine() -> None:
    made = job(workers=4, gpus="8")
    assert made["spec"]["completionMode"] == "Indexed" and made["spec"]["template"]["spec"]["subdomain"] == "train"
    assert environment(made) == {
        "RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']", "WORLD_SIZE": "4",
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500",
    }  # fmt: skip


def test_a_single_worker_needs_no_service_and_no_rank() -> None:
    made = job()
    assert environment(made) == {} and "subdomain" not in made["spec"]["template"]["spec"]


def test_a_service_does_not_begin_with_a_digit() -> None:
    made = job(name="4b", workers=2)
    assert made["spec"]["template"]["spec"]["subdomain"] == "job-4b"
    assert environment(made)["MASTER_ADDR"] == "4b-0.job-4b"


def test_torchrun_needs_no_option() -> None:
    said = environment(job("torchrun", "train.py", workers=4, gpus="8"))
    assert said == {
        "PET_NPROC_PER_NODE": "8", "PET_NNODES": "4", "PET_MASTER_ADDR": "train-0.train", "PET_MASTER_PORT": "29500",
        "PET_NODE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    }  # fmt: skip


def test_an_elastic_torchrun_meets_where_the_first_rank_is() -> None:
    said = environment(job("torchrun", "train.py", workers=4, min_workers=2, elastic="torchrun", gpus="1"))
    assert (said["PET_NNODES"], said["PET_RDZV_ENDPOINT"]) == ("2:4", "train-0.train:29500")


def outcome(spec: Thing, code: int | None, *, disturbed: bool = False) -> str:
    """What Kubernetes makes of a pod that failed: the action of the first rule that it matches."""
    for rule in spec["podFailurePolicy"]["rules"]:
        on = rule.get("onExitCodes")
        by_code = on and code is not None and (code in on["values"]) == (on["operator"] == "In")
        if by_code or ("onPodConditions" in rule and disturbed):
            return str(rule["action"])
    return "Count"


@pytest.mark.parametrize(
    "retries, code, disturbed, action",
    [
        (0, 1, False, "FailJob"),
        (0, 143, False, "Ignore"),
        (0, 137, True, "Ignore"),
        (0, None, False, "Count"),
        (3, 1, False, "Count"),
        (3, 1, True, "Ignore"),
    ],
)
def test_only_the_programs_own_failures_end_a_job(retries: int, code: int | None, disturbed: bool, action: str) -> None:
    spec = job(workers=4, retries=retries)["spec"]
    assert outcome(spec, code, disturbed=disturbed) == action
    assert spec["backoffLimit"] == (12 if retries else 6)


def test_what_is_requeued_on_request_comes_first() -> None:
    spec = job(workers=2, requeue_on="75")["spec"]
    assert outcome(spec, 75) == "Ignore" and outcome(spec, 1) == "FailJob"


def test_a_submission_is_accepted_whole_and_its_service_goes_with_its_job() -> None:
    async def run() -> tuple[list[Thing], Thing, list[Thing]]:
        async with cluster(clock, seeded(1), node("n1", cpu=8, gpus=4)) as world:
            world.start()
            made = await world.client.create(kinds.JOBS, job(workers=4, gpus="1"))
            service = service_of(made)
            assert service
            await world.client.create(kinds.SERVICES, service)
            await world.until(lambda: world.is_in("job-train", "Running"))
            pods = await world.pods()
            found = await world.client.get(Ref(kinds.SERVICES, "train", "default"))
            await world.delete(kinds.JOBS, "train")
            return pods, found, await world.until(lambda: gone(world))

    async def gone(world: World) -> bool:
        return not await world.client.list(kinds.Selection(kinds.SERVICES, "default"))

    clock = VirtualClock(1_800_000_000.0)
    pods, service, went = clock.run(run())
    labels = service["spec"]["selector"].items()
    assert all(labels <= pod["metadata"]["labels"].items() for pod in pods) and went
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"train-{rank}" for rank in range(4)]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
