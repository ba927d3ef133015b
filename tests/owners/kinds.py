"""What the tests of owners share: their definitions, which stay outside, and their examples, which are ours."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Thing = dict[str, Any]
ROOT = Path(__file__).parents[2]
PLACES = [Path(os.environ.get("FAIRWAY_CRDS", "")), ROOT.parent / "shared" / "crds"]


@cache
def definitions(name: str) -> list[Thing]:
    """The CustomResourceDefinitions in a file; skips the test where they are not."""
    for place in PLACES:
        if (place / f"{name}.yaml").is_file():
            return list(yaml.load_all((place / f"{name}.yaml").read_text(), yaml.CSafeLoader))
    pytest.skip(f"no {name}.yaml: set FAIRWAY_CRDS to a folder with the definitions of the operators")


def example(name: str) -> list[Thing]:
    """The objects of an example, in namespace default where they live in one."""
    found = list(yaml.safe_load_all((ROOT / "examples" / "owners" / f"{name}.yaml").read_text()))
    for one in found:
        if one["kind"] != "ClusterTrainingRuntime":
            one["metadata"]["namespace"] = "default"
    return found
