"""What of this machine `fairway up` offers, kept in the data directory: what one start is told holds for the next.

`offer.json` holds the options as they were given, by name. OWN takes one back: the machine's own is offered again.
Only the process that holds the lock of the data directory reads and writes it.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from fairway.api.quantities import parse

from .keys import write_private

OWN = "own"
ENGINES = ("podman",)
FLAGS = {"cpus": "--cpus", "memory": "--memory", "fake_gpus": "--fake-gpus", "containers": "--containers"}
FORMS: dict[str, Callable[[str], int]] = {"cpus": parse, "memory": parse, "fake_gpus": int, "containers": ENGINES.index}
BACK = {"containers": "processes"}
log = logging.getLogger(__name__)


class OfferError(Exception):
    """The file cannot be used; the text is one line for the user."""


def remembered(folder: Path, said: Mapping[str, str]) -> dict[str, str]:
    """What to offer, by the names of FLAGS: as said now, else as said at an earlier start; "" for the machine's own.
    OfferError where the file holds something else, OSError where it cannot be read or written."""
    path = folder / "offer.json"
    before = _read(path)
    now = {name: said[name] or before.get(name, "") for name in FLAGS}
    now = {name: text for name, text in now.items() if text not in ("", OWN)}
    if now != before:
        write_private(path, msgspec.json.encode(now).decode())
    for name in now.keys() - {name for name, text in said.items() if text}:
        if name in BACK:
            log.warning("as at an earlier start: %s %s; take it back with %s %s",
                        FLAGS[name], now[name], FLAGS[name], BACK[name])  # fmt: skip
            continue
        log.warning("offered as at an earlier start: %s %s; change it with %s N, or with %s %s for the machine's own",
                    FLAGS[name], now[name], FLAGS[name], FLAGS[name], OWN)  # fmt: skip
    return {name: now.get(name, "") for name in FLAGS}


def _read(path: Path) -> dict[str, str]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        for name, text in found.items():
            FORMS[name](text)
    except FileNotFoundError:
        return {}
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise OfferError(f"{path} does not hold what this machine offers; remove it") from error
    return found
