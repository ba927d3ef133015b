"""Beside a running kube-scheduler, and no webhook: no Job is lost, and what was bound before its turn counts."""

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

from plane import Plane, Thing, fairway, node, nodes, until

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Selection

JOBS = 200


def job(name: str, *, seconds: float = 1, parallelism: int = 1, **spec: Any) -> Thing:
    """A labelled Job as its user writes it: nothing in it knows of Fairway but the label."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {"fairway.dev/duration": f"{seconds}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"fairway.dev/queue": "default"}},
        "spec": {"backoffLimit": 0, "parallelism": parallelism, "completions": parallelism, "template": template,
                 **spec},
    }  # fmt: skip


async def ends(client: Client, names: Collection[str]) -> Counter[str]:
    """How these Jobs ended, once all have."""

    async def over() -> Counter[str]:
        found = await client.list(Selection(kinds.JOBS, "default"))
        told = Counter(
            one["type"] for it in found if it["metadata"]["name"] in names
            for one in it["status"].get("conditions") or ()
            if one["status"] == "True" and one["type"] in ("Complete", "Failed")
        )  # fmt: skip
        return told if sum(told.values()) == len(names) else Counter()

    return await until(over, seconds=600)


async def test_no_job_is_lost_beside_kube_scheduler_without_a_webhook(plane: Plane) -> None:
    async with plane.client() as admin, plane.client("ann") as ann:
        with plane.scheduler():
            async with nodes(admin, *(node(f"n{index}") for index in range(5))), fairway(plane):
                names = {f"j{index}": 1 + index % 3 for index in range(JOBS)}
                await asyncio.gather(*(
                    ann.create(kinds.JOBS, job(name, parallelism=size)) for name, size in names.items()
                ))
                assert await ends(admin, names) == {"Complete": JOBS}
