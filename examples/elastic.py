"""A training on as many workers as there is room for, which goes on from its checkpoint when their number changes.

    fairway submit --workers 4 --min-workers 2 -- python3 examples/elastic.py CHECKPOINT STEPS

In each step every rank sends a number to rank 0 and gets the sum over all ranks back, as in an all-reduce. Rank 0
writes the checkpoint: the number of the next step.
"""

import os
import socket
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
PATIENCE_SECONDS = 60.0


def main() -> int:
    checkpoint, steps = Path(sys.argv[1]), int(sys.argv[2])
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    print(f"rank {RANK} of {SIZE}: from step {first}", flush=True)
    peers = accepted() if RANK == 0 else [connected()]
    for step in range(first, steps):
        if add_up(peers, step) != SIZE * step:
            raise SystemExit(f"rank {RANK} of {SIZE}: ranks are not at the same step")
        if RANK == 0:
            draft = checkpoint.with_suffix(".new")
            draft.write_text(str(step + 1))
            draft.rename(checkpoint)
        time.sleep(0.05)  # here it would learn something
    print(f"rank {RANK} of {SIZE}: done", flush=True)
    return 0


def add_up(peers: list[socket.socket], number: int) -> int:
    """The sum of the number over all ranks."""
    if RANK == 0:
        total = number + sum(received(peer) for peer in peers)
    else:
        peers[0].sendall(number.to_bytes(8, "big"))
        return received(peers[0])
    for peer in peers:
        peer.sendall(total.to_bytes(8, "big"))
    return total


def received(peer: socket.socket) -> int:
    found = peer.recv(8, socket.MSG_WAITALL)
    if len(found) < 8:
        raise SystemExit(f"rank {RANK} of {SIZE}: another rank is gone")
    return int.from_bytes(found, "big")


def accepted() -> list[socket.socket]:
    with socket.create_server(ADDRESS) as server:
        server.settimeout(PATIENCE_SECONDS)
        return [server.accept()[0] for _ in range(SIZE - 1)]


def connected() -> socket.socket:
    """A connection to rank 0, which may not listen yet."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection(ADDRESS, timeout=PATIENCE_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
