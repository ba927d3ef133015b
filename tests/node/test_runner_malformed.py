"""Malformed pods, as a user may send them: the runner says of each what is wrong, and runs all others."""

import asyncio
import logging
from random import Random

import pytest
from box import machine
from test_malformed import CONTAINER, POD, spoilt

from fairway.kube import kinds
from fairway.kube.client import ApiError
from fairway.kube.kinds import Ref, Selection
from fairway.node.container import stop_all
from fairway.node.podstatus import SHUTDOWN


@pytest.mark.parametrize("seed", range(2))
async def test_malformed_pods_stop_nothing(seed: int, tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    chance = Random(seed)
    mount = {"name": "v", "mountPath": str(tmp_path / "mounted")}
    plain = {**CONTAINER, "volumeMounts": [mount], "readinessProbe": None}
    spec = {**POD, "containers": [plain], "nodeName": "here", "schedulingGates": None, "activeDeadlineSeconds": None}
    async with machine(tmp_path) as box:
        taken = 0
        for number in range(100):
            odd = spoilt({"spec": spec, "notes": {"fairway.dev/queue": "default"}}, chance, at_most=1)
            said = odd["spec"] if isinstance(odd.get("spec"), dict) else {}
            meta = {"name": f"thing-{number}", "namespace": "default", "annotations": odd.get("notes")}
            thing = {"metadata": meta, "spec": {**said, "nodeName": "here"}}
            try:
                await box.client.create(kinds.PODS, thing)
                taken += 1
            except ApiError as error:
                assert error.status < 500, thing
        assert taken > 15
        await box.run("plain", "echo hello")
        assert await box.said("plain") == "hello\n"
        for pod in await box.client.list(Selection(kinds.PODS, "default")):
            await box.client.delete(Ref(kinds.PODS, pod["metadata"]["name"], "default"), grace=0)
            await box.gone(pod["metadata"]["name"])
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)
    assert [record.getMessage() for record in caplog.records] == []
