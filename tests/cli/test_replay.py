"""A recorded decision is made again and compared."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fairway.cli.main import cli
from fairway.engine import Keep, Plan, decide, snapshot_of
from fairway.engine.model import GPU, Decayed, Ledger
from fairway.engine.policy import DAY
from fairway.offline.reader import read
from fairway.policies import PRESETS
from fairway.record import record_of, write

from .cluster import NOW, manifests

CASE = {"nodes": {"n1": {"gpu": 8}}, "running": {"old": {"gpu": 2, "at": "n1"}}, "waiting": {"new": {"gpu": 4}}}
ALL_OR_ANY = {"pods": 8, "gpu": 1, "min": 1}
HISTORY = {
    "nodes": {"n1": {"gpu": 8}},
    "queues": {"a": {"guaranteed": {"gpu": 0}}, "b": {"guaranteed": {"gpu": 0}}},
    "waiting": {"wa": {"queue": "a", **ALL_OR_ANY}, "wb": {"queue": "b", **ALL_OR_ANY}},
}


@pytest.fixture
def recorded(tmp_path):
    snapshot = snapshot_of(read(manifests(CASE), now=NOW.timestamp()))
    record = record_of(snapshot, decide(snapshot, PRESETS["fairway"]))
    return tmp_path / "cycle.record", record


def replay(file, *options):
    return CliRunner().invoke(cli, ["replay", str(file), *options])


def test_the_same_decision_is_said_to_be_the_same(recorded):
    file, record = recorded
    write(file, record)
    assert (replay(file).exit_code, replay(file).stdout) == (0, "decided the same\n")
    assert json.loads(replay(file, "-o", "json").stdout) == {"same": True, "changed": [], "faults": []}


def test_another_decision_is_shown_and_exits_one(recorded):
    file, record = recorded
    write(file, replace(record, plan=Plan((Keep("team/old"),))))
    result = replay(file)
    assert result.exit_code == 1
    assert "team/new: Admit" in result.stdout


@pytest.mark.parametrize("weights", [{"usage_weight": 0.0}, {"usage_weight": 3.0}, {"half_life": 3600.0}])
def test_how_much_history_moved_the_shares_is_recorded_with_the_decision(tmp_path, weights):
    world = read(manifests(HISTORY), now=NOW.timestamp())
    used = Ledger(usage=((("default", GPU), Decayed(8000 * 14 * DAY, world.now - 7 * DAY)),))
    snapshot = snapshot_of(replace(world, queues=(replace(world.queues[0], ledger=used), *world.queues[1:])))
    policy = replace(PRESETS["fairway"], **weights)
    made = decide(snapshot, policy)
    assert made.shares != decide(snapshot, PRESETS["fairway"]).shares
    write(tmp_path / "one.record", record_of(snapshot, made, by=policy))
    assert replay(tmp_path / "one.record").stdout == "decided the same\n"


def test_a_policy_that_is_not_there_is_told(recorded):
    file, record = recorded
    write(file, replace(record, policy="magic"))
    result = replay(file)
    assert (result.exit_code, "policy 'magic'" in result.stderr) == (2, True)


def test_what_is_no_record_is_told(tmp_path):
    (tmp_path / "x").write_text("hello")
    assert replay(tmp_path / "x").exit_code == 2
    assert len(replay(tmp_path / "x").stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_told_as_plan_tells_it(tmp_path):
    said, planned = replay(tmp_path / "none"), CliRunner().invoke(cli, ["plan", "-f", str(tmp_path / "none")])
    assert (said.exit_code, said.stderr) == (planned.exit_code, planned.stderr)
    assert said.stderr.endswith("none: No such file or directory\n")
