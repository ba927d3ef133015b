"""Tells systemd that a service of `Type=notify` is ready; where no systemd started it, nobody."""

import os
import socket
from contextlib import suppress

SOCKET = "NOTIFY_SOCKET"


def tell() -> None:
    """Says so once; the programs that are started later do not learn of the socket."""
    path = os.environ.pop(SOCKET, "")
    if path:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.sendto(b"READY=1", f"\0{path[1:]}" if path.startswith("@") else path)
