"""Each example is what its operator's definition allows, and gives the Workload that it should."""

from pathlib import Path

import msgspec
import pytest
import yaml
from kinds import ROOT, definitions, example
from simworld import cluster
from test_lives import CASES, REPLICATED, Case, Replicas, kind_of

from fairway.api.owners import OWNERS
from fairway.clock import VirtualClock, seeded
from fairway.kube import kinds
from fairway.kube.transport import Request


@pytest.mark.parametrize("case", [*CASES, *REPLICATED], ids=lambda case: case.name)
def test_an_example_is_valid_without_a_warning(case: Case | Replicas) -> None:

    async def run() -> list[tuple[int, bytes]]:
        found = []
        async with cluster(clock, seeded(1)) as world:
            for file in case.files:
                for one in definitions(file):
                    await world.client.create(kinds.DEFINITIONS, one)
            for thing in example(case.name):
                path = kind_of(case, thing).path(thing["metadata"].get("namespace", ""))
                body, headers = msgspec.json.encode(thing), {"content-type": "application/json"}
                asked = Request("POST", path, (("fieldValidation", "Strict"), ("dryRun", "All")), headers, body)
                answer = await world.server.handle(asked)
                found.append((answer.status, answer.body))
        return found

    clock = VirtualClock(1_800_000_000.0)
    assert [(status, body if status != 201 else "") for status, body in clock.run(run())] == [
        (201, "") for _ in example(case.name)
    ]


@pytest.mark.parametrize("key", OWNERS, ids="/".join)
def test_every_kind_has_an_example(key: tuple[str, str]) -> None:
    found = [one for path in (ROOT / "examples" / "owners").glob("*.yaml") for one in example(path.stem)]
    assert key in {(one["apiVersion"].rpartition("/")[0], one["kind"]) for one in found}


@pytest.mark.parametrize("key", OWNERS, ids="/".join)
def test_the_controller_may_watch_every_kind_and_hold_it(key: tuple[str, str]) -> None:
    files = yaml.safe_load_all((ROOT / "src" / "fairway" / "deploy" / "rbac.yaml").read_text())
    name = "fairway-controller"
    role = next(one for one in files if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", name))
    may = {verb for rule in role["rules"] if key[0] in rule["apiGroups"] and OWNERS[key].plural in rule["resources"]
           for verb in rule["verbs"]}  # fmt: skip
    held = {"list", "watch", "patch"} if key[0] == "batch" else {"get", "list", "watch", "patch", "update"}
    assert may == (held if OWNERS[key].switch else {"list", "watch"})


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "owners").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_played(path: Path) -> None:
    assert path.stem in {case.name for case in (*CASES, *REPLICATED)}
