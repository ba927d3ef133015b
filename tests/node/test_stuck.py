"""Containers that cannot start yet: what they name does not answer."""

import fcntl
import os
import signal
from pathlib import Path

from box import Box

from fairway.kube import kinds
from fairway.kube.kinds import Ref


async def test_what_cannot_start_yet_is_stopped_all_the_same(box: Box, tmp_path: Path):
    """Its file is leased, as one that a server of the network does not hand over; the kernel waits 45 s for it."""
    program, marker = tmp_path / "program", tmp_path / "marker"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexec sleep 1000\n")
    program.chmod(0o755)
    file = os.open(program, os.O_RDONLY)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        await box.run("a", "", container={"command": [str(program)]})
        while not [*box.folder.glob("*/containers/main/0/started")]:
            await box.client.clock.sleep(0.02)
        await box.client.delete(Ref(kinds.PODS, "a", "default"), grace=1)
        await box.gone("a")
        assert not marker.exists()
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)
