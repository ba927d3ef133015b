"""Records: what is written is read, and a decision made again from it is the same."""

import os
import stat
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from worlds import worlds

from fairway import record
from fairway.engine import Policy, decide
from fairway.engine.model import Node, PodClass, PodSet, Workload, World
from fairway.engine.plan import Plan
from fairway.engine.state import snapshot_of
from fairway.referee import check

few = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "one.record"
    pod = PodClass(requests=(("cpu", 1000),))
    world = World(nodes=(Node("n", capacity=(("cpu", 4000), ("pods", 10))),),
                  pending=(Workload("ns/a", "q", (PodSet("main", 1, 1, pod),)),))
    snapshot = snapshot_of(world)
    record.write(path, record.record_of(snapshot, decide(snapshot, Policy())))
    return path


@few
@given(worlds())
def test_a_decision_made_again_from_its_record_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, world: World
) -> None:
    snapshot = snapshot_of(world)
    plan = decide(snapshot, Policy())
    path = tmp_path_factory.getbasetemp() / "mixed.record"
    record.write(path, record.record_of(snapshot, plan, policy="easy", faults=check(snapshot, plan)))
    found = record.read(path)
    assert found.plan == plan
    assert found.policy == "easy"
    assert decide(snapshot_of(found.world), Policy()) == plan
    assert check(snapshot_of(found.world), plan) == list(found.faults)


def test_a_record_is_for_its_owner_alone_and_leaves_nothing_beside_it(written: Path) -> None:
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert os.listdir(written.parent) == [written.name]


def test_a_file_that_is_no_record_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("kind: Queue\n")
    with pytest.raises(record.RecordError, match="is not a record of a decision"):
        record.read(path)


def test_an_older_record_was_decided_with_the_weights_that_are_the_default(written: Path) -> None:
    head, _, packed = written.read_bytes().partition(b"\n")
    body = msgspec.msgpack.decode(zlib.decompress(packed))
    older = {name: value for name, value in body.items() if name not in ("usage_weight", "half_life")}
    assert len(older) == len(body) - 2
    before = record.read(written)
    written.write_bytes(head + b"\n" + zlib.compress(msgspec.msgpack.encode(older)))
    assert record.read(written) == before


def test_a_newer_record_asks_for_a_newer_version(written: Path) -> None:
    written.write_bytes(written.read_bytes().replace(b"fairway-record 1", b"fairway-record 7", 1))
    with pytest.raises(record.RecordError, match="has format 7; this version reads up to 1"):
        record.read(written)


@pytest.mark.parametrize("keep", [20, 40, 0.5, -1])
def test_a_record_cut_short_is_damaged(written: Path, keep: float) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(record.RecordError, match="is damaged"):
        record.read(written)


def test_a_changed_byte_never_reads_as_another_decision(written: Path) -> None:
    whole, before = written.read_bytes(), record.read(written)
    for at in range(len(whole)):
        written.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            found = record.read(written)
        except record.RecordError:
            continue
        assert found == before


def test_an_empty_plan_is_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "empty.record"
    record.write(path, record.Record(World(), Plan()))
    assert record.read(path) == record.Record(World(), Plan())
