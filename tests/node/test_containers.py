"""Containers of images: real ones by podman, with the rules that processes have."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from box import BASE, Box, machine
from cluster import until
from engines import IMAGE, Absent, podman

from fairway.api.objects import ASSIGNED
from fairway.kube import kinds
from fairway.kube.kinds import Ref
from fairway.node.container import inspect, stop_all
from fairway.node.containers.engine import EngineError, engine, name_of
from fairway.node.execute import Order
from fairway.node.podstatus import SHUTDOWN

OF_IMAGE = {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of podman's client."""
    try:
        yield podman(tmp_path_factory.mktemp("podman"))
    except Absent as error:
        pytest.skip(f"podman does not run here: {error}")


@pytest.fixture
async def box(tmp_path: Path, client: Mapping[str, str]) -> AsyncIterator[Box]:
    async with machine(tmp_path, engine=engine("podman", client, {})) as made:
        yield made
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)


async def run(box: Box, name: str, *, grace: int = 1, **container: Any) -> dict[str, Any]:
    """A pod of the image, with what its container says more. `grace`: seconds that it gets to end in order."""
    container = {"name": "main", **OF_IMAGE, **container}
    spec = {"restartPolicy": "Never", "nodeName": "here", "terminationGracePeriodSeconds": grace,
            "containers": [container]}  # fmt: skip
    return await box.client.create(kinds.PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def written(box: Box, name: str, text: str) -> None:
    async def holds() -> bool:
        return text in await box.log(name)

    await until(box.client, 30, holds)


async def test_command_and_arguments_replace_those_of_the_image_as_in_kubernetes(box: Box) -> None:
    await run(box, "image")
    await run(box, "arguments", args=["$(A)", "b"], env=[{"name": "A", "value": "a"}])
    await run(box, "command", command=["/bin/echo"])
    assert await box.said("image") == "entry by default\n"
    assert await box.said("arguments") == "entry a b\n"
    assert await box.said("command") == "\n"


async def test_variables_folder_volumes_and_last_words_reach_the_container(box: Box, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("kept")
    script = 'echo "$WHO|$LINES|$PATH|$(pwd)|$(cat /data/file)"; echo bye >"$FAIRWAY_TERMINATION_LOG"; exit 7'
    env = [{"name": "LINES", "value": "one\ntwo"}, {"name": "PATH", "value": "/bin"}]
    container = {"name": "main", **OF_IMAGE, "command": ["/bin/sh", "-c", script], "env": env, "workingDir": "/tmp",
                 "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}  # fmt: skip
    volumes = [{"name": "data", "hostPath": {"path": str(tmp_path / "data")}}]
    await box.run("all", "", container=container, volumes=volumes)
    ended = (await box.phase("all", "Failed"))["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (7, "bye\n")
    assert "image|one\ntwo|/bin|/tmp|kept\n" in await box.log("all")


async def test_an_image_that_cannot_be_had_is_told_in_the_pod(box: Box) -> None:
    await run(box, "absent", image="localhost/absent:1")
    waiting = await box.state("absent", "waiting")
    assert "image 'localhost/absent:1' is not on this machine" in waiting["message"]


async def test_a_container_deaf_to_the_signal_is_killed_after_its_grace(box: Box, client: Mapping[str, str]) -> None:
    await run(box, "deaf", command=["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"])
    await written(box, "deaf", "up")
    await box.client.delete(Ref(kinds.PODS, "deaf", "default"))
    await box.gone("deaf")
    assert await names(client) == ""


async def test_a_container_hears_the_signal_and_may_end_in_order(box: Box) -> None:
    script = "trap 'echo heard; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    pod = await run(box, "polite", grace=60, command=["/bin/sh", "-c", script])
    await written(box, "polite", "up")
    await asyncio.to_thread(stop_all, box.folder, SHUTDOWN)
    ended = inspect(box.attempt(pod))
    assert (ended.code, ended.stopped) == (3, SHUTDOWN)


async def test_exec_runs_in_the_container_and_tells_its_exit_code(box: Box) -> None:
    await run(box, "busy", command=["/bin/sh", "-c", "echo up; sleep 600"])
    await written(box, "busy", "up")
    running = box.runner.execute("default", "busy", "main", Order(["/bin/sh", "-c", 'echo "$WHO"; exit 4']))
    assert running
    said = b"".join([text async for _, text in running.output()])
    assert (said, running.code) == (b"image\n", 4)


async def test_a_container_outlives_fairway_and_is_found_again(tmp_path: Path, client: Mapping[str, str]) -> None:
    own = machine(tmp_path, engine=engine("podman", client, {}))
    async with own as first:
        script = f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo went on; exit 5"
        mount = {"name": "here", "mountPath": str(tmp_path)}
        container = {"name": "main", **OF_IMAGE, "command": ["/bin/sh", "-c", script], "volumeMounts": [mount]}
        pod = await first.run("lasting", "", container=container,
                              volumes=[{"name": "here", "hostPath": {"path": str(tmp_path)}}])  # fmt: skip
        await written(first, "lasting", "up")
        before = inspect(first.attempt(pod)).pid
    assert inspect(first.attempt(pod)).pid == before
    async with own as second:
        (tmp_path / "go").touch()
        ended = await second.phase("lasting", "Failed")
        assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
        assert await second.log("lasting") == "up\nwent on\n"


async def test_what_a_killed_shim_leaves_of_a_container_is_removed(box: Box, client: Mapping[str, str]) -> None:
    pod = await run(box, "orphan", command=["/bin/sh", "-c", "echo up; sleep 600"])
    await written(box, "orphan", "up")
    os.kill(inspect(box.attempt(pod)).pid, signal.SIGKILL)
    await box.phase("orphan", "Failed")
    assert await names(client) == ""


async def names(client: Mapping[str, str]) -> str:
    """Of all containers that podman knows."""
    asked = ["podman", "ps", "--all", "--format", "{{.Names}}"]
    return await asyncio.to_thread(subprocess.check_output, asked, env=dict(client), text=True)


def test_an_engine_that_is_not_installed_is_told_in_one_line() -> None:
    with pytest.raises(EngineError, match="--containers podman: podman is not installed"):
        engine("podman", {**BASE, "PATH": "/nowhere"}, {})


def test_gpus_are_given_by_their_files_and_count_from_nothing_inside() -> None:
    made = engine("sh", BASE, {2: "/dev/nvidia2", 5: "/dev/nvidia5"})
    assert made
    options = made.order({"name": "main", "image": IMAGE}, {}, "2,5")["options"]
    assert [it for it in options if it.endswith(("2", "5"))] == ["--device=/dev/nvidia2", "--device=/dev/nvidia5"]
    assert "--env=CUDA_VISIBLE_DEVICES=0,1" in options


@pytest.mark.skipif(os.getuid() != 0, reason="only root describes devices to podman")
async def test_gpus_are_given_by_cdi_where_the_machine_describes_them(
    tmp_path: Path, client: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = {"env": ["GIVEN=by CDI"], "deviceNodes": [{"path": "/dev/fairway-test-gpu", "hostPath": "/dev/null"}]}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "7", "containerEdits": edits}]}
    (tmp_path / "nvidia.yaml").touch()
    monkeypatch.setattr("fairway.node.containers.engine.DEVICE_SPECS", (str(tmp_path),))
    described = Path(f"/var/run/cdi/fairway-test-{os.getpid()}.json")
    described.parent.mkdir(exist_ok=True)
    described.write_text(json.dumps(spec))
    try:
        async with machine(tmp_path, engine=engine("podman", client, {7: "/dev/nvidia7"})) as box:
            script = 'test -c /dev/fairway-test-gpu && echo "$GIVEN $CUDA_VISIBLE_DEVICES"'
            container = {**OF_IMAGE, "command": ["/bin/sh", "-c", script]}
            await box.run("gpu", "", container=container, annotations={ASSIGNED: "7"})
            assert await box.said("gpu") == "by CDI 0\n"
    finally:
        described.unlink()


async def test_a_container_that_cannot_be_made_waits_with_the_words_of_podman(
    tmp_path: Path, client: Mapping[str, str]
) -> None:
    card = tmp_path / "card"
    async with machine(tmp_path, engine=engine("podman", client, {0: str(card)})) as box:
        pod = await box.run("unmade", "echo made", container=OF_IMAGE, annotations={ASSIGNED: "0"})
        waiting = await box.state("unmade", "waiting")
        assert waiting == {"reason": "CreateContainerError", "message": f"stat {card}: no such file or directory"}
        card.symlink_to("/dev/zero")
        assert await box.said("unmade") == "made\n"
        assert (await box.status("unmade"))["containerStatuses"][0]["restartCount"] == 0
        assert inspect(box.attempt(pod, 1)).code == 0


@pytest.mark.parametrize("code", [125, 126, 127])
async def test_an_exit_code_that_podman_has_too_is_the_programs_where_it_ran(box: Box, code: int) -> None:
    await run(box, "own", command=["/bin/sh", "-c", f"echo ran >&2; exit {code}"])
    ended = (await box.phase("own", "Failed"))["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended.get("message")) == (code, "Error", None)


@pytest.mark.parametrize(("program", "words"), [("/nope", "no such file or directory"), ("/tmp", "permission denied")])
async def test_a_program_that_is_not_in_the_image_never_ran_as_podman_says(box: Box, program: str, words: str) -> None:
    await run(box, "missing", command=[program])
    ended = (await box.phase("missing", "Failed"))["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert f'exec: "{program}"' in ended["message"] and words in ended["message"]


async def test_a_podman_that_can_run_no_container_is_told_in_one_line(
    client: Mapping[str, str], tmp_path: Path
) -> None:
    made = engine("podman", client, {})
    assert made
    await made.tried()
    (tmp_path / "conf").write_text('[engine]\nruntime = "nope"\n')
    broken = engine("podman", {**client, "CONTAINERS_CONF": str(tmp_path / "conf")}, {})
    assert broken
    words = 'podman cannot run a container here: default OCI runtime "nope" not found'
    with pytest.raises(EngineError, match=f"--containers podman: {words}.*; mend that, or use --containers processes$"):
        await broken.tried()


@pytest.mark.parametrize("trap", [":", "trap '' HUP"])
async def test_a_command_beside_a_container_ends_with_whoever_asked_for_it(box: Box, trap: str) -> None:
    pod = await run(box, "entered", command=["/bin/sh", "-c", "echo up; sleep 600"])
    await written(box, "entered", "up")
    argv = ["/bin/sh", "-c", f"{trap}; echo in; sleep 500; sleep 400"]
    running = box.runner.execute("default", "entered", "main", Order(argv, has_input=True, is_terminal=True))
    assert running
    async with aclosing(running.output()) as output:
        assert b"in" in (await anext(output))[1]
        assert await beside(box, pod)

    async def has_ended() -> bool:
        return not await beside(box, pod)

    await until(box.client, 20, has_ended)


async def beside(box: Box, pod: dict[str, Any]) -> list[str]:
    """The sleepers of a command that was entered."""
    asked = ["podman", "top", name_of(box.attempt(pod)), "args"]
    env = dict(box.runner.specs.engine.base)
    said = await asyncio.to_thread(subprocess.check_output, asked, env=env, text=True)
    return [line for line in said.splitlines() if line.strip() in ("sleep 500", "sleep 400")]
