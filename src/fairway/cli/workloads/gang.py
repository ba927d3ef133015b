"""A gang whose processes talk to each other: python -m fairway.cli.workloads.gang

Every rank sends its number to rank 0 over TCP, at MASTER_ADDR and MASTER_PORT; rank 0 adds them up and tells all. The
rendezvous is what torchrun and its like do with the same variables (RANK, WORLD_SIZE), which the runner sets.
"""

import os
import socket
import sys
import time

PATIENCE_SECONDS = 20.0


def main() -> int:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    total = _lead(address, size) if rank == 0 else _follow(address, rank)
    print(f"rank {rank} of {size}: the sum over all ranks is {total}", flush=True)
    return 0 if total == size * (size - 1) // 2 else 1


def _lead(address: tuple[str, int], size: int) -> int:
    with socket.create_server(address) as server:
        server.settimeout(PATIENCE_SECONDS)
        peers = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(f"{total}\n".encode())
            peer.close()
    return total


def _follow(address: tuple[str, int], rank: int) -> int:
    with _connected(address) as leader:
        leader.sendall(f"{rank}\n".encode())
        return int(leader.makefile().readline())


def _connected(address: tuple[str, int]) -> socket.socket:
    """A connection to rank 0, which may not listen yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS  # noqa: TID251 - a workload is a program of its own
    while True:
        try:
            return socket.create_connection(address, timeout=PATIENCE_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:  # noqa: TID251
                raise
            time.sleep(0.05)  # noqa: TID251


if __name__ == "__main__":
    sys.exit(main())
