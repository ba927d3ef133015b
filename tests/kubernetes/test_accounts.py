"""Accounts on a real API server: its schemas take UsageDays and UsageMonths, and kubectl shows them."""

import subprocess
from typing import Any

from plane import Plane, Thing, fairway, node, nodes, until

from fairway.api.quantities import time
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref, Selection

MONTH = {"apiVersion": "fairway.dev/v1alpha1", "kind": "UsageMonth", "metadata": {"name": "2026-10"}, "spec": {}}


def job(name: str) -> Thing:
    asked = {"cpu": "1", "nvidia.com/gpu": "2"}
    pod = {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}]}  # fmt: skip
    meta = {"name": name, "namespace": "default", "labels": {"fairway.dev/queue": "default"}}
    template = {"metadata": {"annotations": {"fairway.dev/duration": "600s"}}, "spec": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


async def rows(client: Client) -> list[dict[str, Any]]:
    days = await client.list(Selection(kinds.USAGE_DAYS))
    return [row for one in days for row in one.get("status", {}).get("rows", ())]


async def test_a_deleted_job_is_charged_and_a_month_is_closed(plane: Plane) -> None:
    async with plane.client() as admin:
        with plane.scheduler():
            async with nodes(admin, node("g1", gpus=4)), fairway(plane):
                await admin.create(kinds.JOBS, job("train"))

                async def has_run() -> bool:
                    """For so long that the second of its deletion, which has no fraction, is after its start."""
                    found = await admin.list(Selection(kinds.WORKLOADS, "default"))
                    said = [it for one in found for it in one.get("status", {}).get("conditions", ())]
                    began = [time(it["lastTransitionTime"]) for it in said if it["type"] == "Running"]
                    return any(admin.clock.now() > at + 2 for at in began)

                await until(has_run)
                await admin.delete(Ref(kinds.JOBS, "train", "default"))
                (row,) = await until(lambda: rows(admin))
                assert (row["name"], row["pool"]) == ("job-train", "default") and row["allocated"] > 0
                await admin.create(kinds.USAGE_MONTHS, MONTH)

                async def closed() -> bool:
                    found = await admin.get(Ref(kinds.USAGE_MONTHS, "2026-10"))
                    return bool(found.get("status", {}).get("closedAt"))

                await until(closed)
        command = ["kubectl", "--kubeconfig", str(plane.kubeconfig()), "get", "usagedays,usagemonths"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "GPU HOURS" in shown and "default" in shown and "2026-10" in shown
