"""The page on troubleshooting knows every reason, shows what is said, and its commands run as they are written."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from page import blocks, run
from tests.cli.cluster import decide, manifests

from fairway.api.conditions import waiting
from fairway.engine import Cause, Ending, Facts, Reason, Wait, Workload

PAGE = "start/troubleshooting.md"
TEXT = (Path(__file__).parents[2] / "docs" / PAGE).read_text()
PARTS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE))
CASES = yaml.safe_load((Path(__file__).parent / "reasons.yaml").read_text())
CLAIM = Facts(detail="data")
NOT_PLANNED = {
    Reason.BACKING_OFF: Facts(until=1795262460.0),
    Reason.SCHEDULING_GATED: Facts(detail="example.com/quota"),
    Reason.CLAIM_MISSING: CLAIM,
    Reason.CLAIM_UNBOUND: CLAIM,
    Reason.CLAIM_IN_USE: CLAIM,
    Reason.WAITING_FOR_VICTIMS: Facts(),
    Reason.REFUSED: Facts(detail="Room"),
}
"""What a plan of a file never says: it knows neither claims nor what became of earlier plans."""


def message(reason: Reason) -> str:
    if reason in NOT_PLANNED:
        return waiting(Wait("team/train", reason, NOT_PLANNED[reason]), Workload("team/train", "vision", ()), {})
    entries = {entry["workload"]: entry for entry in decide(manifests(CASES[reason]))["verdicts"]}
    assert entries["team/train"]["reason"] == reason
    return entries["team/train"]["message"]


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_is_shown_with_what_is_said(reason: Reason) -> None:
    shown = re.search(r"```text\n(.*?)\n```", PARTS[reason], re.DOTALL)
    assert shown and shown[1] == message(reason)


@pytest.mark.parametrize("word", [*Cause, *Ending])
def test_each_cause_of_a_stop_is_told(word: str) -> None:
    assert f"`{word}`" in TEXT.partition("## A job was stopped")[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    queue = '{"apiVersion": "fairway.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "vision"}, "spec": {}}'
    try:
        run(
            "fairway up --detach --cpus 4 --fake-gpus 8; export KUBECONFIG=~/.local/share/fairway/kubeconfig\n"
            f"echo '{queue}' | kubectl apply -f -\n"
            "fairway submit --name train --gpus 64 --wait-anyway -- true\n",
            home,
        )
        yield home
    finally:
        run("fairway down || true", home)


@pytest.mark.kubectl
@pytest.mark.parametrize("block", blocks(PAGE))
def test_the_commands_run_as_they_are_written(block: str, home: Path) -> None:
    is_up = block == "fairway up --detach\n"
    script = f"export KUBECONFIG=~/.local/share/fairway/kubeconfig\n{'fairway down' if is_up else ''}\n{block}"
    said = run(script, home)
    assert said or block.rstrip().endswith("|| true")
