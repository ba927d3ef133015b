import asyncio
import os
import pwd
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from box import Box, machine
from users import users

from fairway.kube import kinds
from fairway.node.container import stop_all
from fairway.node.podstatus import SHUTDOWN
from team import Team


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    async with machine(tmp_path) as made:
        yield made
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[pwd.struct_passwd, pwd.struct_passwd]]:
    number = os.getpid()
    with users(f"fwann{number}", f"fwbob{number}") as (ann, bob):
        yield ann, bob


@pytest.fixture(scope="module")
def gpus() -> Iterator[dict[int, str]]:
    """Device files of two GPUs, with the numbers of harmless devices: /dev/zero and /dev/full."""
    files = {index: f"/dev/fairway-test-{os.getpid()}-{index}" for index in (0, 1)}
    for file, minor in zip(files.values(), (5, 7)):
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        os.chmod(file, 0o666)
    yield files
    for file in files.values():
        os.unlink(file)


@pytest.fixture
async def team(
    tmp_path: Path, people: tuple[pwd.struct_passwd, pwd.struct_passwd], gpus: dict[int, str]
) -> AsyncIterator[Team]:
    async with machine(tmp_path, is_team=True, device_files=gpus) as box:
        for person in people:
            notes = {"fairway.dev/unix-user": person.pw_name, "fairway.dev/uid": str(person.pw_uid)}
            meta = {"name": person.pw_name, "annotations": notes}
            await box.client.create(kinds.NAMESPACES, {"metadata": meta})
        yield Team(box, *people)
    await asyncio.to_thread(stop_all, tmp_path / "pods", SHUTDOWN, at_most=0.0)
