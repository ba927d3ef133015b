"""The runner with real processes, on a server in memory."""

import asyncio
import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from box import Box, machine
from cluster import until

from fairway.api.objects import ASSIGNED, ATTEMPT, ELASTIC, RELEASED, WORLD_SIZE
from fairway.kube import kinds
from fairway.kube.kinds import Kind, Ref, Selection
from fairway.node import container
from fairway.node.container import SHIM, holder, inspect, stop_all
from fairway.node.logs import files_of
from fairway.node.podstatus import SHUTDOWN

CONFIG_MAPS, SECRETS = Kind("ConfigMap", "configmaps"), Kind("Secret", "secrets")
INDEX = "batch.kubernetes.io/job-completion-index"
try:
    os.pidfd_open(os.getpid())
except (AttributeError, OSError):
    pytest.skip("needs pidfds: Linux 5.3 or later", allow_module_level=True)


def may_mount() -> bool:
    return os.system("unshare -m true 2>/dev/null || unshare -rm true 2>/dev/null") == 0


def lives(pid: str) -> bool:
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this system allows no private mount namespace")


async def test_a_pod_runs_and_its_exit_code_is_told(box: Box):
    await box.run("a", "echo out; echo err >&2; exit 3")
    status = await box.phase("a", "Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert status["podIP"] == status["hostIP"] == "127.0.0.1" and "startTime" in status
    assert sorted((await box.log("a")).split()) == ["err", "out"]


async def test_a_pod_that_runs_is_ready_and_one_that_succeeded_is_not(box: Box):
    await box.run("a", "sleep 0.3")
    running_status = await box.phase("a", "Running")
    ended = await box.phase("a", "Succeeded")

    def conditions(status: dict[str, Any]) -> dict[str, str]:
        return {it["type"]: it["status"] for it in status["conditions"]}

    kinds_of = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    assert conditions(running_status) == dict.fromkeys(kinds_of, "True")
    assert conditions(ended)["Ready"] == "False" and conditions(ended)["PodScheduled"] == "True"
    assert [it.get("reason") for it in ended["conditions"] if it["type"] == "Ready"] == ["PodCompleted"]
    assert ended["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"


async def test_what_another_writes_over_a_pods_status_is_written_again(box: Box):
    await box.run("a", "sleep 60")
    await box.phase("a", "Running")
    await box.client.patch(Ref(kinds.PODS, "a", "default"), {"status": {"phase": "Pending"}}, subresource="status")
    await box.phase("a", "Running")


async def test_a_pod_is_looked_at_when_it_changes_and_not_for_what_was_written_of_it(box: Box):
    """From its start to its end: it came, its process started, its process ended."""
    looks = list[str]()
    look = box.runner._look

    async def counted(uid: str) -> float | None:
        looks.append(uid)
        return await look(uid)

    box.runner._look = counted  # type: ignore[method-assign]
    made = await box.run("a", "sleep 0.2")
    await box.phase("a", "Succeeded")
    place = Ref(kinds.PODS, "a", "default")
    seen = await box.client.patch(place, {"metadata": {"annotations": {"seen": "yes"}}})
    await box.runner.informer.caught_up(seen)
    assert looks == [made["metadata"]["uid"]] * 3


async def test_a_command_that_does_not_exist_is_a_start_error(box: Box):
    await box.run("a", "", container={"command": ["no-such-program"]})
    ended = (await box.phase("a", "Failed"))["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "no-such-program" in ended["message"]


async def test_a_container_without_a_command_waits_with_a_hint(box: Box):
    await box.run("a", "", container={"command": None})
    waiting = await box.state("a", "waiting")
    assert waiting["reason"] == "CreateContainerConfigError" and "engine" in waiting["message"]


async def test_the_environment_is_an_allow_list_and_what_the_pod_says(box: Box):
    await box.keep(CONFIG_MAPS, "cm", A="1", B="2")
    await box.keep(SECRETS, "s", KEY=base64.b64encode(b"hush").decode())
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "A"}}},
        {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "Z", "optional": True}}},
        {"name": "HUSH", "valueFrom": {"secretKeyRef": {"name": "s", "key": "KEY"}}},
        {"name": "BOTH", "value": "$(ONE)-$(P_B)-$(UNKNOWN)-$$(ONE)"},
    ]
    container = {"command": ["env"], "env": env, "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}],
                 "resources": {"limits": {"cpu": "1500m"}}}
    await box.run("a", "", labels={"team": "nlp"}, container=container)
    said = dict(line.split("=", 1) for line in (await box.said("a")).splitlines())
    assert said["HOME"] == "/home/ann" and said["HOSTNAME"] == "a" and said["CUDA_VISIBLE_DEVICES"] == ""
    assert (said["NAME"], said["TEAM"], said["CPUS"], said["MIB"]) == ("a", "nlp", "2", "4096")
    assert (said["ONE"], said["HUSH"], said["BOTH"]) == ("1", "hush", "1-2-$(UNKNOWN)-$(ONE)")
    assert not {"NONE", "AWS_SECRET_ACCESS_KEY", "API_TOKEN"} & said.keys()


async def test_a_missing_config_map_is_told_and_waited_for(box: Box):
    await box.run("a", "", container={"command": ["true"], "envFrom": [{"configMapRef": {"name": "later"}}]})
    waiting = await box.state("a", "waiting")
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "later" not found'}


async def test_arguments_are_expanded(box: Box):
    env = [{"name": "WORD", "value": "x"}]
    await box.run("a", "", container={"command": ["echo", "$(WORD)"], "args": ["$(WORD)s", "$$(WORD)"], "env": env})
    assert await box.said("a") == "x xs $(WORD)\n"


LONG, CONFIG = "x" * 100_000, {"valueFrom": {"configMapKeyRef": {"name": "large", "key": "A"}}}


@pytest.mark.parametrize(("container", "named"), [
    ({"env": [{"name": f"A{i}", "value": f"$(A{i - 1})$(A{i - 1})" if i else "x"} for i in range(40)]}, "env 'A17'"),
    ({"env": [{"name": f"A{i}", **CONFIG} for i in range(40)]}, "env up to 'A20'"),
    ({"envFrom": [{"prefix": f"P{i}", "configMapRef": {"name": "large"}} for i in range(40)]}, "env up to 'P20A'"),
    ({"env": [{"name": "A", **CONFIG}], "args": ["$(A)$(A)"]}, "an argument"),
    ({"env": [{"name": "A", **CONFIG}], "args": ["$(A)"] * 30}, "the arguments"),
    ({"args": ["$(" * 100_000]}, "an argument"),
    ({"env": [{"name": "A", **CONFIG}], "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}]},
     "subPathExpr"),
])
async def test_what_no_program_can_be_started_with_is_refused_before_it_is_made(
    box: Box, container: dict[str, Any], named: str
):
    await box.keep(CONFIG_MAPS, "large", A=LONG)
    await box.run("a", "true", container=container, volumes=[{"name": "v", "emptyDir": {}}])
    waiting = await box.state("a", "waiting")
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith(f"{named}: ") and len(waiting["message"]) < 200


async def test_each_container_sees_its_own_devices(box: Box):
    def asks(name: str, gpus: int) -> dict[str, Any]:
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        script = f"echo {name}=$CUDA_VISIBLE_DEVICES"
        return {"name": name, "image": "i", "command": ["sh", "-c", script], "resources": limits}

    containers = [asks("one", 1), asks("none", 0), asks("two", 2)]
    await box.run("a", "", annotations={ASSIGNED: "0,3,5"}, containers=containers)
    await box.phase("a", "Succeeded")
    said = [await box.log("a", container=name) for name in ("one", "none", "two")]
    assert said == ["one=0\n", "none=\n", "two=3,5\n"]


async def test_members_of_a_gang_find_each_other(box: Box):
    script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT"
    for name, group in (("w-0", "g"), ("w-1", "g"), ("v-0", "h"), ("v-1", "h")):
        labels = {"fairway.dev/group": group, "fairway.dev/group-size": "2"}
        await box.run(name, f"sleep 0.2; {script}", labels=labels)
    said = {name: (await box.said(name)).split() for name in ("w-0", "w-1", "v-0", "v-1")}
    assert [said[name][0] for name in ("w-0", "w-1", "v-0", "v-1")] == ["0/2", "1/2"] * 2
    assert said["w-0"][1:] == said["w-1"][1:] and said["v-0"][1:] == said["v-1"][1:]
    assert said["w-0"][2].startswith("127.0.0.1:") and said["w-0"][2] != said["v-0"][2]


async def test_pods_of_an_indexed_job_have_ranks_and_keep_their_port(box: Box):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1-2", "controller": True}
    for name, index in (("j-0-a", 0), ("j-1-a", 1), ("j-0-b", 0)):
        made = await box.client.create(kinds.PODS, {
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner],
                         "annotations": {INDEX: str(index), WORLD_SIZE: "2"}},
            "spec": {"restartPolicy": "Never", "nodeName": "here", "containers": [
                {"name": "m", "image": "i", "command": ["sh", "-c", "echo $RANK $WORLD_SIZE $MASTER_PORT"]}]},
        })  # fmt: skip
        assert made["metadata"]["name"] == name
    said = [(await box.said(name)).split() for name in ("j-0-a", "j-1-a", "j-0-b")]
    assert [it[:2] for it in said] == [["0", "2"], ["1", "2"], ["0", "2"]]
    assert len({it[2] for it in said}) == 1


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup that may use 50 MB; a process joins it by writing its number into `cgroup.procs`."""
    root = Path("/sys/fs/cgroup/memory" if Path("/sys/fs/cgroup/memory").is_dir() else "/sys/fs/cgroup")
    own = root / f"fairway-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if root.name == "memory" else "memory.max"
    try:
        own.mkdir()
        (own / limit).write_text("50000000")
    except OSError:
        pytest.skip("no cgroup can be made here")
    yield own
    own.rmdir()


async def test_without_limits_a_sigkill_is_perhaps_for_want_of_memory_where_the_kernel_killed_something(
    box: Box, small_cgroup: Path
):
    greedy = f"echo 0 > {small_cgroup}/cgroup.procs; exec {sys.executable} -c 'bytearray(300_000_000)'"
    for name, script in {"a": greedy, "b": f"({greedy}); kill -9 $$$$", "c": "kill -9 $$$$"}.items():
        await box.run(name, script)
        await box.state(name, "terminated")
    ends = {name: await box.state(name, "terminated") for name in "abc"}
    assert {(end["exitCode"], end["reason"]) for end in ends.values()} == {(137, "Error")}
    perhaps = "killed by SIGKILL, perhaps for want of memory"
    assert {name: end.get("message", "") for name, end in ends.items()} == {"a": perhaps, "b": perhaps, "c": ""}


async def test_without_a_working_directory_a_pod_has_one_of_its_own(box: Box, tmp_path: Path):
    await box.run("a", "pwd; ls | wc -l")
    await box.run("b", "pwd", container={"workingDir": str(tmp_path)})
    place, count = (await box.said("a")).split()
    assert place.startswith(str(box.folder)) and count == "0"
    assert (await box.said("b")).strip() == str(tmp_path)


async def test_init_containers_run_one_by_one_before_the_others(box: Box, tmp_path: Path):
    def step(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "image": "i", "command": ["sh", "-c", f"echo {name} >> {tmp_path}/order"], **more}

    sidecar = {**step("side"), "restartPolicy": "Always"}
    sidecar["command"] = ["sh", "-c", f"echo side >> {tmp_path}/order; sleep 100"]
    status = await box.run("a", f"echo main >> {tmp_path}/order", initContainers=[step("one"), sidecar, step("two")],
                           terminationGracePeriodSeconds=60)
    status = await box.phase("a", "Succeeded")
    assert (tmp_path / "order").read_text().split() == ["one", "side", "two", "main"]
    assert [it["state"]["terminated"]["exitCode"] for it in status["initContainerStatuses"]] == [0, 143, 0]


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(box: Box, tmp_path: Path):
    init = {"name": "one", "image": "i", "command": ["false"]}
    await box.run("a", f"touch {tmp_path}/ran", initContainers=[init])
    status = await box.phase("a", "Failed")
    assert not (tmp_path / "ran").exists()
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


async def test_what_fails_is_started_again_after_a_pause(box: Box, tmp_path: Path):
    await box.run("a", f"echo x >> {tmp_path}/starts; exit 1", restartPolicy="OnFailure")

    async def backs_off() -> Any:
        [status] = (await box.status("a")).get("containerStatuses") or [{}]
        return status if (status.get("state") or {}).get("waiting", {}).get("reason") == "CrashLoopBackOff" else None

    status = await until(box.client, 20, backs_off)
    assert status["restartCount"] == 1 and status["lastState"]["terminated"]["exitCode"] == 1
    assert (tmp_path / "starts").read_text() == "x\nx\n"  # the first time at once
    assert (await box.status("a"))["phase"] == "Running"


async def test_logs_can_be_followed_cut_and_dated(box: Box):
    await box.run("a", "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done")
    await box.phase("a", "Running")
    assert (await box.log("a", follow="true")).split("\n")[:5] == [f"line {number}" for number in range(1, 6)]
    assert await box.log("a", tailLines="2") == "line 4\nline 5\n"
    assert await box.log("a", limitBytes="6") == "line 1"
    first = (await box.log("a", timestamps="true")).splitlines()[0]
    assert first.endswith("Z line 1") and first.startswith("20")
    assert await box.log("a", sinceSeconds="3600") == await box.log("a")


async def test_a_followed_log_ends_with_the_last_words_of_its_pod(box: Box):
    await box.run("a", "trap 'echo bye; exit' TERM; echo up; sleep 100 & wait")
    await box.phase("a", "Running")
    following = box.client.logs(Ref(kinds.PODS, "a", "default"), query=(("follow", "true"),))
    assert await anext(following) == b"up\n"
    await box.client.delete(Ref(kinds.PODS, "a", "default"))
    await box.gone("a")
    assert [chunk async for chunk in following] == [b"bye\n"]


async def test_the_log_of_the_attempt_before_is_kept(box: Box, tmp_path: Path):
    script = f"echo life $(wc -l < {tmp_path}/lives); echo x >> {tmp_path}/lives; [ $(wc -l < {tmp_path}/lives) -gt 1 ]"
    (tmp_path / "lives").touch()
    await box.run("a", f"{script} && sleep 100 || exit 1", restartPolicy="OnFailure", terminationGracePeriodSeconds=1)

    async def lives_again() -> bool:
        statuses = (await box.status("a")).get("containerStatuses") or [{}]
        return bool(statuses[0].get("restartCount") and "running" in statuses[0]["state"] and await box.log("a"))

    await until(box.client, 20, lives_again)
    assert (await box.log("a"), await box.log("a", previous="true")) == ("life 1\n", "life 0\n")


async def test_a_long_log_is_rotated_and_read_as_one(box: Box):
    await box.run("a", "i=0; while [ $i -lt 16 ]; do head -c 1048575 /dev/zero | tr '\\0' x; echo $i; i=$((i+1)); done")
    pod = await box.client.get(Ref(kinds.PODS, "a", "default"))
    text = await box.said("a")
    assert [line.strip("x") for line in text.splitlines()] == [str(number) for number in range(16)]
    assert len(files_of(box.attempt(pod))) == 2


async def test_a_deleted_pod_gets_sigterm_and_its_grace(box: Box, tmp_path: Path):
    await box.run("a", f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")

    async def is_up() -> Any:
        return (await box.status("a")).get("phase") == "Running" and await box.log("a")

    await until(box.client, 20, is_up)
    await box.client.delete(Ref(kinds.PODS, "a", "default"))
    await box.gone("a")
    assert (tmp_path / "bye").read_text() == "bye\n"


async def test_after_the_grace_everything_of_the_pod_is_killed(box: Box, tmp_path: Path):
    stubborn = tmp_path / "stubborn"
    stubborn.write_text(f"trap '' TERM; echo $$ >> {tmp_path}/pids; while :; do sleep 0.05; done")
    await box.run("a", f"setsid sh {stubborn} & sh {stubborn}", terminationGracePeriodSeconds=1)

    async def both() -> bool:
        return (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2

    await until(box.client, 20, both)
    await box.client.delete(Ref(kinds.PODS, "a", "default"))
    await box.gone("a")
    assert not any(lives(pid) for pid in (tmp_path / "pids").read_text().split())


async def test_what_a_container_leaves_running_ends_with_it(box: Box, tmp_path: Path):
    await box.run("a", f"setsid sleep 300 & echo $! > {tmp_path}/pid; exit 0")
    await box.phase("a", "Succeeded")
    assert not lives((tmp_path / "pid").read_text())


async def test_the_folder_of_a_pod_goes_with_it(box: Box):
    pod = await box.run("a", "true")
    await box.phase("a", "Succeeded")
    assert (box.folder / pod["metadata"]["uid"]).exists()
    await box.client.delete(Ref(kinds.PODS, "a", "default"))

    async def is_gone() -> bool:
        return not (box.folder / pod["metadata"]["uid"]).exists()

    assert await until(box.client, 20, is_gone)


async def test_a_pod_past_its_deadline_is_stopped(box: Box):
    await box.run("a", "sleep 100", activeDeadlineSeconds=1)
    assert (await box.phase("a", "Failed"))["reason"] == "DeadlineExceeded"


@needs_mounts
async def test_volumes_are_mounted_where_the_pod_says(box: Box, tmp_path: Path):
    await box.keep(CONFIG_MAPS, "cm", a="A", b="B")
    await box.keep(SECRETS, "s", key=base64.b64encode(b"K").decode())
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("H")
    at = tmp_path / "in"
    at.mkdir()
    volumes = [
        {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "b", "path": "deep/c"}]}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "e", "emptyDir": {}},
        {"name": "h", "hostPath": {"path": str(tmp_path / "host")}},
    ]
    mounts = [
        {"name": "cm", "mountPath": f"{at}/cm"},
        {"name": "s", "mountPath": f"{at}/s", "readOnly": True},
        {"name": "e", "mountPath": f"{at}/e"},
        {"name": "h", "mountPath": f"{at}/h"},
        {"name": "h", "mountPath": f"{at}/one", "subPath": "file"},
    ]
    script = f"cd {at}; cat cm/deep/c s/key h/file one; ls cm; touch e/x h/new; touch s/x 2>/dev/null || echo refused"
    await box.run("a", script, container={"volumeMounts": mounts}, volumes=volumes)
    assert await box.said("a") == "BKHHdeep\nrefused\n"
    assert (tmp_path / "host" / "new").exists() and not list((at / "e").iterdir())


async def test_a_volume_that_cannot_be_served_is_told(box: Box):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    await box.run("a", "true", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=volumes)
    waiting = await box.state("a", "waiting")
    assert waiting["reason"] == "CreateContainerConfigError" and "persistentVolumeClaim" in waiting["message"]


@pytest.mark.parametrize(("paths", "mount", "said"), [
    (["a", "a/b"], {}, "volume 'v': "),
    (["x" * 300], {}, "volume 'v': File name too long"),
    (["a"], {"subPath": "a/b"}, "subPath 'a/b': "),
])
async def test_what_the_machine_cannot_write_of_a_volume_is_told(box: Box, paths: list[str], mount: Any, said: str):
    await box.keep(CONFIG_MAPS, "cm", k="A")
    volume = {"name": "v", "configMap": {"name": "cm", "items": [{"key": "k", "path": path} for path in paths]}}
    await box.run("a", "true", container={"volumeMounts": [{"name": "v", "mountPath": "/v"} | mount]}, volumes=[volume])
    waiting = await box.state("a", "waiting")
    assert waiting["reason"] == "CreateContainerConfigError" and waiting["message"].startswith(said)


async def test_the_next_life_finds_what_runs_and_how_the_rest_ended(tmp_path: Path):
    first = machine(tmp_path)
    async with first as box:
        wait = f"echo x >> {tmp_path}/starts; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        pods = [await box.run(f"exits-{code}", f"{wait}; exit {code}") for code in (7, 5)]
        for code in (7, 5):
            await box.phase(f"exits-{code}", "Running")
    assert all(holder(box.attempt(pod) / "lock") for pod in pods)
    (tmp_path / "go").touch()
    while not all(inspect(box.attempt(pod)).is_over for pod in pods):
        await asyncio.sleep(0.02)
    async with machine(tmp_path, first.registry) as box:
        for code in (7, 5):
            [status] = (await box.phase(f"exits-{code}", "Failed"))["containerStatuses"]
            assert status["state"]["terminated"]["exitCode"] == code
        written = [pod["metadata"]["resourceVersion"] for pod in await box.client.list(Selection(kinds.PODS))]
    async with machine(tmp_path, first.registry) as box:
        await box.run("after", "true")
        await box.phase("after", "Succeeded")
        pods = await box.client.list(Selection(kinds.PODS))
    assert [pod["metadata"]["resourceVersion"] for pod in pods if pod["metadata"]["name"] != "after"] == written
    assert (tmp_path / "starts").read_text() == "x\nx\n"


async def test_a_container_that_runs_is_adopted_and_can_still_be_stopped(tmp_path: Path):
    first = machine(tmp_path)
    async with first as box:
        pod = await box.run("a", "sleep 100")
        await box.phase("a", "Running")
    async with machine(tmp_path, first.registry) as box:
        await box.client.delete(Ref(kinds.PODS, "a", "default"))
        await box.gone("a")
    assert not holder(box.attempt(pod) / "lock")


async def test_ranks_that_stay_start_again_when_the_others_are_released_which_do_not(box: Box, tmp_path: Path):
    """A released pod is of its workload until it is gone: it neither outvotes those that stay nor starts again."""
    script = f'echo $POD of $WORLD_SIZE >> {tmp_path}/says; while :; do sleep 0.05; done'
    for index in range(3):
        notes = {ELASTIC: "restart", WORLD_SIZE: "3", ATTEMPT: "train/u-1/1", INDEX: str(index)}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j-1", "controller": True}
        container = {"name": "main", "image": "i", "command": ["sh", "-c", script],
                     "env": [{"name": "POD", "value": str(index)}]}  # fmt: skip
        await box.client.create(kinds.PODS, {
            "metadata": {"name": f"p{index}", "namespace": "default", "annotations": notes, "ownerReferences": [owner]},
            "spec": {"restartPolicy": "Never", "nodeName": "here", "containers": [container]}})  # fmt: skip

    async def change(index: int, **meta: Any) -> None:
        await box.client.patch(Ref(kinds.PODS, f"p{index}", "default"), {"metadata": meta})

    await until(box.client, 60, lambda: _says(tmp_path, 9))
    await change(0, annotations={WORLD_SIZE: "1"})
    for index in range(3):
        await until(box.client, 60, partial(_is_stopped, box, index))
    for index in (1, 2):
        await change(index, annotations={RELEASED: "train"}, ownerReferences=[])
    await until(box.client, 60, lambda: _says(tmp_path, 12))
    for index in (1, 2):
        await box.client.delete(Ref(kinds.PODS, f"p{index}", "default"))
        await box.gone(f"p{index}")
    said = (tmp_path / "says").read_text().splitlines()
    assert sorted(said[:3]) == ["0 of 3", "1 of 3", "2 of 3"] and said[3:] == ["0 of 1"]


async def _is_stopped(box: Box, index: int) -> bool:
    return not box.runner.shims("default", f"p{index}")


async def test_what_was_stopped_for_a_shutdown_starts_again_whatever_the_policy(tmp_path: Path):
    first = machine(tmp_path)
    saves = f"trap 'echo saved >> {tmp_path}/says; exit 0' TERM"
    script = f"{saves}; echo up >> {tmp_path}/says; while :; do sleep 0.05; done"
    async with first as box:
        await box.run("a", script, terminationGracePeriodSeconds=60)
        await until(box.client, 20, lambda: _says(tmp_path, 1))
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN)
    async with machine(tmp_path, first.registry) as box:
        await until(box.client, 20, lambda: _says(tmp_path, 3))

        async def restarted() -> bool:
            seen = (await box.status("a")).get("containerStatuses", ())  # none before the first look
            return any(it["restartCount"] == 0 and it["lastState"] and "running" in it["state"] for it in seen)

        assert await until(box.client, 20, restarted)
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)
    assert (tmp_path / "says").read_text().split()[:3] == ["up", "saved", "up"]


async def _says(folder: Path, lines: int) -> bool:
    return (folder / "says").exists() and len((folder / "says").read_text().split()) >= lines


async def test_a_nursery_that_is_killed_is_made_again_and_its_shims_live_on(box: Box, tmp_path: Path):
    await box.run("a", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 6")
    await box.phase("a", "Running")
    living = [it for it in psutil.Process().children() if it.status() != psutil.STATUS_ZOMBIE]
    nurseries = [it for it in living if it.cmdline()[-1:] == [str(SHIM)]]
    for nursery in nurseries:
        nursery.kill()
        nursery.wait()
    await box.run("b", f"touch {tmp_path}/go")
    await box.phase("b", "Succeeded")
    status = await box.phase("a", "Failed")
    assert nurseries and status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 6


async def test_a_lost_process_is_reported_and_leaves_nothing_running(tmp_path: Path):
    first = machine(tmp_path)
    async with first as box:
        pod = await box.run("a", f"setsid sleep 300 & echo $! > {tmp_path}/pid; wait")
        await box.phase("a", "Running")
        await until(box.client, 20, lambda: _exists(tmp_path / "pid"))
    os.kill(holder(box.attempt(pod) / "lock"), signal.SIGKILL)
    async with machine(tmp_path, first.registry) as box:
        status = await box.phase("a", "Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["reason"], ended["reason"], ended["exitCode"]) == ("Lost", "ContainerStatusUnknown", 137)
    assert not lives((tmp_path / "pid").read_text())


async def test_a_process_that_is_lost_before_our_eyes_ended_then(box: Box, tmp_path: Path):
    pod = await box.run("a", f"echo up > {tmp_path}/up; sleep 300")
    await box.phase("a", "Running")
    await until(box.client, 20, lambda: _exists(tmp_path / "up"))
    os.kill(holder(box.attempt(pod) / "lock"), signal.SIGKILL)
    await box.phase("a", "Failed")
    found = inspect(box.attempt(pod))
    assert found.started_at and found.finished_at and found.finished_at > found.started_at


async def _exists(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


@pytest.mark.parametrize("container", [
    {"envFrom": [{}]}, {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"key": "x"}}}]},
])  # fmt: skip
async def test_a_pod_that_is_not_written_as_kubernetes_expects_it_says_so_and_keeps_no_other_waiting(
    box: Box, container: dict[str, Any]
) -> None:
    await box.run("bad", "true", container=container)
    waiting = await box.state("bad", "waiting")
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "by its name" in waiting["message"] or "not written as Kubernetes expects it" in waiting["message"]
    await box.run("good", "true")
    await box.phase("good", "Succeeded")


async def test_a_mount_path_counts_from_the_root(box: Box, tmp_path: Path) -> None:
    here = str(tmp_path / "a").lstrip("/")
    mounts = [{"name": "v", "mountPath": here}]
    await box.run("a", f"test -d /{here} && echo there", volumes=[{"name": "v", "emptyDir": {}}],
                  container={"volumeMounts": mounts, "terminationMessagePath": f"{here}/said"})
    assert await box.said("a") == "there\n"


async def test_what_a_lost_process_left_has_ended_though_nobody_reaps_it(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(container, "SWEEP_SECONDS", 600.0)
    place = tmp_path / "uid/containers/main/0"
    place.mkdir(parents=True)
    env = {container.MARK: str(place)}
    says = "echo $$; while :; do sleep 600; done"  # before exec the child has no mark yet
    code = f"import os; os.spawnle(os.P_NOWAIT, '/bin/sh', 'sh', '-c', {says!r}, {env})"
    code += "; os.execv('/bin/sleep', ['sleep', '600'])"  # which waits for no child
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        try:
            await asyncio.wait_for(asyncio.to_thread(container.sweep, place), 60)
            assert child.status() == psutil.STATUS_ZOMBIE
        finally:
            parent.kill()
