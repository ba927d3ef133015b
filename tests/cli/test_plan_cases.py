"""Each rule of the scheduler as its user sees it: objects in, verdicts out, and where everything stands in the end.

The cases are in plan_cases/, a file for each topic; their names are the sentences they prove.
"""

from pathlib import Path

import pytest
import yaml

from fairway import engine
from fairway.engine import snapshot_of
from fairway.offline.reader import read
from fairway.policies import PRESETS
from fairway.referee import check

from .cluster import NOW, decide, manifests, settle, verdicts

FILES = sorted((Path(__file__).parent / "plan_cases").glob("*.yaml"))
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['it']}") for file in FILES for case in yaml.safe_load(file.read_text())
]


def missing(expected, found):
    """The workloads whose verdict or state lacks a word that is expected of it, or has one it must not have."""
    wrong = {}
    for name, words in expected.items():
        have = str(found.get(name, "nothing")).split()
        want = [word for word in str(words).split() if not word.startswith("!")]
        banned = [word[1:] for word in str(words).split() if word.startswith("!")]
        if set(want) - set(have) or set(banned) & set(have):
            wrong[name] = f"expected {words!r}, found {' '.join(have)!r}"
    return wrong


@pytest.mark.parametrize("case", CASES)
def test_the_first_plan_says_what_is_expected(case):
    answer = decide(manifests(case), *case.get("options", []))
    found = verdicts(answer)
    assert not missing(case.get("expect", {}), found), found
    messages = {entry["workload"].partition("/")[2]: entry.get("message", "") for entry in answer["verdicts"]}
    for name, clause in case.get("says", {}).items():
        assert clause in messages[name], messages[name]
    for queue, share in case.get("shares", {}).items():
        assert answer["shares"][queue]["default"]["nvidia.com/gpu"] == str(share), answer["shares"]
    assert case.get("again", answer["againAt"]) == answer["againAt"]
    names = [entry["workload"].partition("/")[2] for entry in answer["verdicts"]]
    assert names[: len(case.get("order", []))] == case.get("order", [])
    assert len(names) == len(set(names))


@pytest.mark.parametrize("slowly", [False, True], ids=["at once", "slowly"])
@pytest.mark.parametrize("case", [case for case in CASES if "settled" in case.values[0]])
def test_it_settles_as_expected(case, slowly):
    states, plans = settle(manifests(case), slowly=slowly)
    assert not missing(case["settled"], states), (states, [verdicts(plan) for plan in plans])


@pytest.mark.parametrize("case", CASES)
def test_the_referee_finds_no_fault(case):
    snapshot = snapshot_of(read(manifests(case), now=NOW.timestamp()))
    assert check(snapshot, engine.decide(snapshot, PRESETS["fairway"])) == []
