"""A record: one decision in a file, with all that it was made from, so that it can be made again.

The file is a line that names the format and its version, then a compressed msgpack of the world, the name of the
policy with its weight and half-life of usage, the plan, and what the referee found. Nothing derived is stored: arrays
are made anew from the world. A file appears whole or not at all. What cannot be read, because it is damaged, of another
kind or of a newer version, is one RecordError that says which.
"""

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairway import engine
from fairway.engine import FAIRWAY, Admit, Evict, Fault, Finish, Keep, Plan, Policy, Resize, Snapshot, Verdict, Wait

FORMAT = b"fairway-record "
VERSION = 1
KINDS: dict[str, type[Verdict]] = {kind.__name__: kind for kind in (Admit, Wait, Keep, Evict, Resize, Finish)}


class RecordError(ValueError):
    """The file is not a record that this version reads."""


@dataclass(frozen=True, slots=True)
class Record:
    world: engine.World
    plan: Plan
    policy: str = "fairway"
    faults: tuple[Fault, ...] = ()
    usage_weight: float = FAIRWAY.usage_weight
    half_life: float = FAIRWAY.half_life


class _Body(msgspec.Struct, frozen=True):
    world: engine.World
    policy: str
    verdicts: tuple[tuple[str, msgspec.Raw], ...]
    shares: tuple[tuple[str, str, str, int], ...]
    again_at: float | None
    faults: tuple[Fault, ...]
    usage_weight: float = FAIRWAY.usage_weight  # absent from older records, which tell only of the defaults
    half_life: float = FAIRWAY.half_life


def record_of(
    snapshot: Snapshot, plan: Plan, *, policy: str = "fairway", by: Policy = FAIRWAY, faults: Iterable[Fault] = ()
) -> Record:
    """What is worth keeping of a cycle. `policy` names the preset, `by` is what was made of it."""
    return Record(engine.world_of(snapshot), plan, policy, tuple(faults), by.usage_weight, by.half_life)


def write(path: Path, record: Record) -> None:
    """Readable by its owner alone: it names workloads and users."""
    verdicts = tuple((type(one).__name__, msgspec.Raw(msgspec.msgpack.encode(one))) for one in record.plan.verdicts)
    shares = tuple((*key, amount) for key, amount in record.plan.shares.items())
    known = record.world, record.policy, verdicts, shares, record.plan.again_at, record.faults
    body = _Body(*known, record.usage_weight, record.half_life)
    packed = FORMAT + b"%d\n" % VERSION + zlib.compress(msgspec.msgpack.encode(body), 1)
    part = path.with_name(path.name + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(packed)
    part.replace(path)


def keep(folder: Path, record: Record, *, most: int) -> None:
    """One more in a folder; of many the last stay."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(folder / f"refused-{record.world.now:.3f}.record", record)
    for old in sorted(folder.glob("refused-*.record"))[:-most]:
        old.unlink(missing_ok=True)


def read(path: Path) -> Record:
    """The record in a file; RecordError if there is none that can be read."""
    try:
        head, _, packed = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    version = head.removeprefix(FORMAT)
    if not head.startswith(FORMAT) or not version.isdigit():
        raise RecordError(f"{path} is not a record of a decision")
    if int(version) > VERSION:
        raise RecordError(f"{path} has format {int(version)}; this version reads up to {VERSION}: use a newer one")
    try:
        body = msgspec.msgpack.decode(zlib.decompress(packed), type=_Body)
        verdicts = tuple(_verdict(kind, raw) for kind, raw in body.verdicts)
    except (zlib.error, msgspec.DecodeError, KeyError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    shares = {(queue, pool, resource): amount for queue, pool, resource, amount in body.shares}
    plan = Plan(verdicts, shares, body.again_at)
    return Record(body.world, plan, body.policy, body.faults, body.usage_weight, body.half_life)


def _verdict(kind: str, raw: msgspec.Raw) -> Verdict:
    return msgspec.msgpack.decode(raw, type=KINDS[kind])
