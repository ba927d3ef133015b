"""docs/start/submit-to-a-cluster.md on a real API server: each command runs, and what it sends is there."""

import asyncio
import base64
import io
import re
import tarfile
from pathlib import Path

import page
from plane import Plane, fairway, node, nodes, until

from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

PAGE = "start/submit-to-a-cluster.md"
FILE = re.compile(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", re.DOTALL)


async def phase(client: Client, name: str) -> str:
    found = await client.find(Ref(kinds.WORKLOADS, f"job-{name}", "default"))
    return str((found or {}).get("status", {}).get("phase", ""))


async def test_the_page_about_submitting_to_a_cluster_is_true(plane: Plane, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(plane.kubeconfig().read_text())
    for name, text in FILE.findall((page.DOCS / PAGE).read_text()):
        (tmp_path / name).write_text(text)
    async with plane.client() as admin, nodes(admin, node("n0"), node("n1")), fairway(plane):
        said = [await asyncio.to_thread(page.run, block, tmp_path) for block in page.blocks(PAGE)]
        for name in ("hello", "train", "synced"):
            await until(lambda name=name: is_running(admin, name))
        job = await admin.get(Ref(kinds.JOBS, "synced", "default"))
        spec = job["spec"]["template"]["spec"]
        (secret,) = (it["secret"]["secretName"] for it in spec["volumes"] if "secret" in it)
        kept = await admin.get(Ref(kinds.SECRETS, secret, "default"))
        assert [it["uid"] for it in kept["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(kept["data"]["files.tgz"]))) as archive:
            assert archive.getnames() == ["main.py"]
        assert [it["name"] for it in spec["initContainers"]] == ["fairway-sync"]
    assert "hello queued in default" in said[0] and "train" in said[1] and "synced queued" in said[2]
    assert "with-data queued in default" in said[3]


async def is_running(client: Client, name: str) -> bool:
    return await phase(client, name) == "Running"
