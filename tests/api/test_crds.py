"""The CRDs are made from the types, are what deploy/ holds, and refuse what a schema can refuse."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from released import BOUNDS, fields

from fairway.api.crds import KINDS, crds, manifest

HERE = Path(__file__).parent
DEPLOYED = Path(__file__).parents[2] / "deploy" / "crds.yaml"


def schema(kind):
    crd = next(one for one in crds() if one["spec"]["names"]["kind"] == kind)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def faults(kind, spec):
    found = jsonschema_rs.validator_for(schema(kind)["properties"]["spec"]).iter_errors(spec)
    return {".".join(map(str, one.instance_path)) for one in found}


def test_what_is_deployed_is_what_the_types_make():
    assert DEPLOYED.read_text() == manifest(), "run: python -m fairway.api.crds > deploy/crds.yaml"


def test_names_and_columns_are_those_of_the_interfaces():
    names = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in crds()}
    assert {kind: spec["names"]["shortNames"] for kind, spec in names.items()} == {
        "Queue": ["fq"],
        "NodePool": ["fpool"],
        "Workload": ["fwl"],
        "Reservation": ["fres"],
        "UsageDay": ["fud"],
        "UsageMonth": ["fum"],
    }
    assert {kind for kind, spec in names.items() if spec["scope"] == "Namespaced"} == {"Workload"}
    columns = [one["name"] for one in names["Workload"]["versions"][0]["additionalPrinterColumns"]]
    assert columns == ["Queue", "Priority", "Phase", "Reason", "Position", "Forecast", "Age"]
    assert all(spec["versions"][0]["subresources"] == {"status": {}} for spec in names.values())


def walk(said, path=""):
    if isinstance(said, dict):
        yield path, said
        for key, value in said.items():
            yield from walk(value, f"{path}.{key}")
    elif isinstance(said, list):
        for index, value in enumerate(said):
            yield from walk(value, f"{path}[{index}]")


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_schemas_are_structural(kind):
    for path, part in walk(schema(kind)):
        assert not {"$ref", "$defs", "title", "prefixItems", "allOf", "oneOf", "not"} & part.keys(), path
        if path.endswith((".properties", ".anyOf")) or "anyOf[" in path:
            continue
        assert "type" in part or part.get("x-kubernetes-int-or-string") or not part.keys() & {"properties", "items"}, (
            path
        )
        if "anyOf" in part:
            assert part["x-kubernetes-int-or-string"] is True, path
        assert part.get("maximum", 0) <= 2**53, path  # else what is stored is another schema, rounded to a double


@pytest.mark.parametrize(
    "kind, spec, field",
    [
        ("Queue", {"order": "Random"}, "order"),
        ("Queue", {"priority": "high"}, "priority"),
        ("Queue", {"minRuntime": "1 h"}, "minRuntime"),
        ("Queue", {"quotas": [{"guaranteed": {"cpu": "-1"}}]}, "quotas.0.guaranteed.cpu"),
        ("Queue", {"stopPolicy": "Halt"}, "stopPolicy"),
        ("Queue", {"quotas": [{"limit": {"cpu": -1}}]}, "quotas.0.limit.cpu"),
        ("Queue", {"quotas": [{"weight": -1}]}, "quotas.0.weight"),
        ("Queue", {"maxEvictions": -1}, "maxEvictions"),
        ("Queue", {"consolidation": "Always"}, "consolidation"),
        ("NodePool", {"strategy": "Best"}, "strategy"),
        ("NodePool", {"holdDepth": -2}, "holdDepth"),
        ("NodePool", {"shape": {"cpu": "25%"}}, "shape.cpu"),
        ("Reservation", {"repeat": "Hourly"}, "repeat"),
        ("Workload", {"podSets": [{"count": -1}]}, "podSets.0.count"),
        ("Workload", {"podSets": [{"count": 100_001}]}, "podSets.0.count"),
        ("Workload", {"podSets": [{"name": "A"}]}, "podSets.0.name"),
        ("Workload", {"workloadType": "Fun"}, "workloadType"),
        ("Workload", {"timeLimit": "-5m"}, "timeLimit"),
        ("Workload", {"active": "no"}, "active"),
        ("Workload", {"topology": {"segments": [{"level": "a", "size": 0}]}}, "topology.segments.0.size"),
    ],
)
def test_a_value_outside_of_what_is_allowed_is_refused(kind, spec, field):
    assert faults(kind, spec) == {field}


def test_what_the_interfaces_show_is_let_in():
    assert not faults(
        "Queue",
        {
            "parent": "research",
            "priority": 0,
            "order": "FairUsers",
            "pools": ["h100"],
            "minRuntime": "10m",
            "maxEvictions": 6,
            "quotas": [
                {
                    "pool": "*",
                    "guaranteed": {"nvidia.com/gpu": 8, "cpu": "25%"},
                    "limit": {"nvidia.com/gpu": "0.5"},
                    "weight": 1,
                }
            ],
            "namespaces": {"matchLabels": {"team": "nlp"}},
            "timeLimit": {"default": "24h", "max": "72h"},
            "budget": {"gpuHours": 5000, "period": "30d"},
            "consolidation": "Never",
            "stopPolicy": "None",
        },
    )
    assert not faults(
        "Workload",
        {
            "queue": "nlp",
            "topology": {"required": "fairway.dev/block"},
            "expectedRuntime": "2h",
            "deadline": "2026-12-01T08:00:00Z",
            "podSets": [
                {
                    "name": "worker",
                    "count": 8,
                    "minCount": 4,
                    "template": {"spec": {"anything": 1}},
                    "alignment": "Required",
                }
            ],
        },
    )


def test_a_description_stands_on_every_field_that_users_set():
    for kind in KINDS:
        for name, part in schema(kind.name)["properties"]["spec"]["properties"].items():
            assert part.get("description"), f"{kind.name}.spec.{name}"


@pytest.mark.parametrize("release", sorted(HERE.glob("fields-*.jsonl")), ids=lambda path: path.stem)
def test_objects_of_a_released_version_are_still_good(release):
    """No field is gone, has another type, must now be there, or takes less than it did."""
    now = {one["path"]: one for one in fields(crds())}
    before = {one["path"]: one for one in map(json.loads, release.read_text().splitlines())}
    assert before.keys() - now.keys() == set()
    for path, one in before.items():
        assert now[path]["type"] == one["type"], path
        assert one["isRequired"] or not now[path]["isRequired"], path
        assert "enum" not in now[path] or set(one["enum"]) <= set(now[path]["enum"]), path
        assert all(now[path].get(bound) in (None, one.get(bound)) for bound in BOUNDS), path
    added = [path for path, one in now.items() if one["isRequired"] and path not in before]
    assert [path for path in added if path.rpartition(".")[0] in before] == []
