"""A port of its own for each gang that wants one: MASTER_PORT, where its members meet.

A gang keeps its port over restarts of its pods and of Fairway: the choices stand in one small file. No two gangs get
the same; a port that something listens on is passed over. The range lies below the ports that systems give out.
"""

import json
import socket
from pathlib import Path

from .draft import write_whole

FIRST, LAST = 20_000, 32_000
MOST = 4_000


def port_of(gang: str, file: Path) -> int:
    """The port of a gang, chosen at the first call. Of more than `MOST` gangs the oldest is forgotten."""
    chosen: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    if gang in chosen:
        return chosen[gang]
    taken = set(chosen.values())
    start = FIRST + (max(taken) - FIRST + 1 if taken else 0)
    ports = [*range(start, LAST), *range(FIRST, start)]
    chosen[gang] = next(port for port in ports if port not in taken and _is_free(port))
    for oldest in list(chosen)[:-MOST]:
        del chosen[oldest]
    write_whole(file, json.dumps(chosen).encode())
    return chosen[gang]


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
