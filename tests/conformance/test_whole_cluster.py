"""What only a cluster that runs pods can show: jobs counted, logs read, exit codes told, grace kept."""

import asyncio
import json
import re

import pytest

pytestmark = pytest.mark.whole_cluster


def pod(name: str, script: str, **spec) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "containers": [container(script)], "terminationGracePeriodSeconds": 2} | spec}


def container(script: str, **more) -> dict:
    return {"name": "c", "image": "busybox:1.36", "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}} | more


def job(name: str, script: str, template: dict | None = None, **spec) -> dict:
    inner = {"restartPolicy": "Never", "containers": [container(script)], "terminationGracePeriodSeconds": 2}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": inner | (template or {})}} | spec}


def holds(kind: str):
    """Whether a condition of that kind is true."""
    def test(thing: dict | None) -> bool:
        found = (thing or {}).get("status", {}).get("conditions") or ()
        return any(each["type"] == kind and each["status"] == "True" for each in found)
    return test


def has_ended(thing: dict | None) -> bool:
    return thing["status"].get("phase") in ("Succeeded", "Failed")


def runs(thing: dict | None) -> bool:
    return thing["status"].get("phase") == "Running"


def reason(thing: dict, kind: str) -> str:
    return next(each["reason"] for each in thing["status"]["conditions"] if each["type"] == kind)


async def pods_of(api, pods: str, name: str) -> list[dict]:
    return (await api.get(pods, labelSelector=f"job-name={name}"))["items"]


@pytest.fixture
async def node(api) -> str:
    """A node that really runs its pods."""
    for each in (await api.get("/api/v1/nodes"))["items"]:
        spec = each.get("spec", {})
        if holds("Ready")(each) and not spec.get("taints") and not spec.get("unschedulable"):
            return each["metadata"]["name"]
    pytest.skip("no node takes every pod")


@pytest.fixture
async def alone(api) -> str:
    """A namespace in which jobs and pods are not queued."""
    about = {"generateName": "conformance-", "labels": {"fairway.dev/managed": "false"}}
    name = (await api.create("/api/v1/namespaces", {"metadata": about}))["metadata"]["name"]
    yield name
    await api.ask("DELETE", f"/api/v1/namespaces/{name}")


# -- pods

async def test_a_pod_runs_to_its_end_and_tells_its_exit_code(api, pods):
    await api.create(pods, pod("good", "echo hello; exit 0"))
    await api.create(pods, pod("bad", "exit 3"))
    good, bad = [await api.until(pods, name, has_ended) for name in ("good", "bad")]
    assert (good["status"]["phase"], bad["status"]["phase"]) == ("Succeeded", "Failed")
    ended = [each["status"]["containerStatuses"][0]["state"]["terminated"] for each in (good, bad)]
    assert [each["exitCode"] for each in ended] == [0, 3]
    assert [each["reason"] for each in ended] == ["Completed", "Error"]
    assert ended[0]["startedAt"] and ended[0]["finishedAt"]
    assert good["spec"]["nodeName"] and holds("PodScheduled")(good) and good["status"]["startTime"]


@pytest.mark.usefixtures("logs")
async def test_logs_are_read_whole_and_by_their_tail(api, pods):
    await api.create(pods, pod("a", "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2"))
    await api.until(pods, "a", has_ended)
    whole = (await api.ask("GET", f"{pods}/a/log", accept="*/*")).body.decode()
    assert [f"line {index}" in whole for index in range(1, 6)] == [True] * 5 and "oops" in whole
    tail = (await api.ask("GET", f"{pods}/a/log", accept="*/*", tailLines=2)).body.decode()
    assert len(tail.splitlines()) == 2
    few = (await api.ask("GET", f"{pods}/a/log", accept="*/*", limitBytes=6)).body
    assert len(few) == 6
    stamped = (await api.ask("GET", f"{pods}/a/log", accept="*/*", timestamps="true")).body.decode()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d) ", stamped)


@pytest.mark.usefixtures("logs")
async def test_a_followed_log_comes_as_it_is_written_and_ends_with_the_container(api, pods):
    await api.create(pods, pod("a", "echo first; sleep 1; echo last"))
    await api.until(pods, "a", runs)
    answer = await asyncio.wait_for(api.ask("GET", f"{pods}/a/log", accept="*/*", follow="true"), 30)
    assert answer.body.decode().split() == ["first", "last"]


@pytest.mark.usefixtures("logs")
async def test_a_container_restarts_and_its_last_log_is_kept(api, pods):
    await api.create(pods, pod("a", "echo try; sleep 0.5; exit 1", restartPolicy="OnFailure"))
    again = await api.until(pods, "a", lambda thing: any(
        each["restartCount"] for each in thing["status"].get("containerStatuses") or ()))
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert (await api.ask("GET", f"{pods}/a/log", accept="*/*", previous="true")).body.decode() == "try\n"


@pytest.mark.usefixtures("logs")
async def test_init_containers_run_first(api, pods):
    shared = {"volumes": [{"name": "v", "emptyDir": {}}]}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/shared"}]}
    await api.create(pods, pod("a", "cat /shared/word", **shared, containers=[container("cat /shared/word", **mounts)],
                               initContainers=[container("echo before > /shared/word", name="i", **mounts)]))
    ended = await api.until(pods, "a", has_ended)
    if ended["status"]["containerStatuses"][0]["state"].get("terminated"):
        assert (await api.ask("GET", f"{pods}/a/log", accept="*/*")).body == b"before\n"


@pytest.mark.usefixtures("logs")
async def test_the_environment_comes_from_values_fields_and_maps(api, pods, maps):
    await api.create(maps, {"metadata": {"name": "m"}, "data": {"k": "from-map"}})
    env = [{"name": "PLAIN", "value": "plain"}, {"name": "TWICE", "value": "$(PLAIN)$(PLAIN)"},
           {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
           {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
    await api.create(pods, pod("a", "", containers=[container("echo $PLAIN $TWICE $NAME $MAP", env=env)]))
    await api.until(pods, "a", has_ended)
    assert (await api.ask("GET", f"{pods}/a/log", accept="*/*")).body == b"plain plainplain a from-map\n"


@pytest.mark.usefixtures("logs")
async def test_a_deleted_pod_gets_its_signal_and_its_grace(api, pods):
    await api.create(pods, pod("a", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done",
                               terminationGracePeriodSeconds=20))
    await api.until(pods, "a", runs)
    async with api.session.get(f"{api.server}{pods}/a/log?follow=true", headers=api.headers) as log:
        assert await log.content.readline() == b"up\n"
        await api.delete(f"{pods}/a")
        rest = await asyncio.wait_for(log.content.read(), 15)
        assert b"bye\n" in rest  # the shell may speak of its child's end first
    await api.gone(pods, "a")


async def test_a_pod_that_ignores_its_signal_is_killed_after_its_grace(api, pods):
    await api.create(pods, pod("a", "trap '' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=1))
    await api.until(pods, "a", runs)
    await api.delete(f"{pods}/a")
    await asyncio.wait_for(api.gone(pods, "a"), 20)
    assert (await api.ask("GET", f"{pods}/a")).status == 404


# -- jobs

async def test_a_job_completes(api, jobs, pods):
    await api.create(jobs, job("j", "true", completions=3, parallelism=2))
    done = await api.until(jobs, "j", holds("Complete"))
    assert done["status"]["succeeded"] == 3 and done["status"]["completionTime"] and done["status"]["startTime"]
    found = await pods_of(api, pods, "j")
    assert len(found) == 3 and {each["status"]["phase"] for each in found} == {"Succeeded"}
    owner = found[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", done["metadata"]["uid"], True)


@pytest.mark.usefixtures("logs")
async def test_an_indexed_job_runs_each_index_once(api, jobs, pods):
    await api.create(jobs, job("j", "echo $JOB_COMPLETION_INDEX", completions=3, parallelism=3,
                               completionMode="Indexed"))
    done = await api.until(jobs, "j", holds("Complete"))
    assert done["status"]["completedIndexes"] == "0-2"
    indexes = {each["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: each
               for each in await pods_of(api, pods, "j")}
    assert set(indexes) == {"0", "1", "2"}
    for index, each in indexes.items():
        log = await api.ask("GET", f"{pods}/{each['metadata']['name']}/log", accept="*/*")
        assert log.body.decode().strip() == index


async def test_a_job_fails_after_its_last_try(api, jobs, pods):
    await api.create(jobs, job("j", "exit 1", backoffLimit=0))
    failed = await api.until(jobs, "j", holds("Failed"))
    assert failed["status"]["failed"] == 1 and reason(failed, "Failed") == "BackoffLimitExceeded"
    assert len(await pods_of(api, pods, "j")) == 1


async def test_a_job_fails_at_its_deadline(api, jobs, pods):
    await api.create(jobs, job("j", "sleep 100", activeDeadlineSeconds=1))
    failed = await api.until(jobs, "j", holds("Failed"))
    assert reason(failed, "Failed") == "DeadlineExceeded"


async def test_a_job_goes_when_its_time_to_live_is_over(api, jobs):
    await api.create(jobs, job("j", "true", ttlSecondsAfterFinished=1))
    await api.until(jobs, "j", lambda thing: thing is None or holds("Complete")(thing))
    await api.gone(jobs, "j")
    assert (await api.ask("GET", f"{jobs}/j")).status == 404


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(api, alone, node):
    jobs, pods = f"/apis/batch/v1/namespaces/{alone}/jobs", f"/api/v1/namespaces/{alone}/pods"
    await api.create(jobs, job("j", "sleep 100", {"nodeName": node}, suspend=True))
    await api.until(jobs, "j", holds("Suspended"))
    assert await pods_of(api, pods, "j") == []
    await api.patch(f"{jobs}/j", {"spec": {"suspend": False}})
    await api.until(jobs, "j", lambda thing: thing["status"].get("active") == 1)
    first, = await pods_of(api, pods, "j")
    await api.patch(f"{jobs}/j", {"spec": {"suspend": True}})
    await api.gone(pods, first["metadata"]["name"])
    suspended = await api.until(jobs, "j", holds("Suspended"))
    assert not suspended["status"].get("active") and not suspended["status"].get("failed")
    await api.delete(f"{jobs}/j", {"propagationPolicy": "Background"})


async def test_a_deleted_job_takes_its_pods_along(api, jobs, pods):
    await api.create(jobs, job("j", "sleep 100"))
    await api.until(jobs, "j", lambda thing: thing["status"].get("active") == 1)
    one, = await pods_of(api, pods, "j")
    await api.delete(f"{jobs}/j", {"propagationPolicy": "Background"})
    await api.gone(pods, one["metadata"]["name"])
    assert await pods_of(api, pods, "j") == []


# -- with kubectl

@pytest.mark.kubectl
@pytest.mark.usefixtures("logs")
def test_kubectl_follows_a_job_from_file_to_log(kubectl):
    assert "job.batch/j created" in kubectl.apply(job("j", "echo hello from the job"))
    assert "condition met" in kubectl("wait", "job/j", "--for=condition=complete", "--timeout=30s")
    assert kubectl("logs", "job/j") == "hello from the job\n"
    assert kubectl("get", "job", "j").splitlines()[1].split()[:3] == ["j", "Complete", "1/1"]
    assert kubectl("get", "pods", "-l", "job-name=j").splitlines()[1].split()[1:3] == ["0/1", "Completed"]
    assert re.search(r"Pods Statuses:\s+0 Active .* / 1 Succeeded / 0 Failed", kubectl("describe", "job", "j"))
    assert 'job.batch "j" deleted' in kubectl("delete", "job", "j")


@pytest.mark.kubectl
@pytest.mark.usefixtures("logs")
def test_kubectl_follows_and_ends_a_pod(kubectl):
    kubectl.apply(pod("p", "echo first; sleep 1; echo last; sleep 100"))
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=30s")
    with kubectl.start("logs", "-f", "p") as following:
        assert [following.stdout.readline() for _ in range(2)] == ["first\n", "last\n"]
    assert kubectl("logs", "p", "--tail=1") == "last\n"
    assert kubectl("get", "pod", "p").splitlines()[1].split()[1:3] == ["1/1", "Running"]
    printed = kubectl("describe", "pod", "p")
    assert re.search(r"Normal\s+Started", printed) and re.search(r"State:\s+Running", printed)
    assert 'pod "p" deleted' in kubectl("delete", "pod", "p")


@pytest.mark.kubectl
def test_kubectl_shows_the_node(kubectl, node):
    assert kubectl("get", "node", node).splitlines()[1].split()[1] == "Ready"
    printed = kubectl("describe", "node", node)
    assert re.search(r"Ready\s+True", printed) and "Allocatable:" in printed and "Allocated resources:" in printed
    assert json.loads(kubectl("get", "node", node, "-o", "json"))["status"]["allocatable"]["cpu"]


async def test_a_pod_whose_job_is_gone_waits_for_no_job_controller_and_can_be_deleted(api, jobs, pods):
    await api.create(jobs, job("left", "exec sleep 1000"))
    await api.until(jobs, "left", lambda thing: thing["status"].get("ready") == 1)
    (own,) = await pods_of(api, pods, "left")
    name = own["metadata"]["name"]
    await api.delete(f"{jobs}/left", {"propagationPolicy": "Orphan"})
    left = await api.until(pods, name, lambda thing: not thing["metadata"].get("finalizers"))
    assert not left["metadata"].get("ownerReferences") and "deletionTimestamp" not in left["metadata"]
    await api.delete(f"{pods}/{name}", {"gracePeriodSeconds": 1})
    await api.gone(pods, name)
