"""Every panel of the dashboard, and every alert, asked of a real Prometheus that scrapes a cluster under load."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from .test_commands import Machine, free_port
from .test_monitoring import alerts, panels

PATIENCE_SECONDS = 90
OBJECTS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: vision}
spec: {quotas: [{pool: "*", guaranteed: {nvidia.com/gpu: 1}}]}
---
apiVersion: fairway.dev/v1alpha1
kind: Queue
metadata: {name: speech}
spec: {quotas: [{pool: "*", guaranteed: {nvidia.com/gpu: 1}}]}
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes a cluster: one job was evicted for another, and one waits."""
    program = shutil.which("prometheus") or pytest.skip("there is no prometheus on the PATH")
    machine, metrics, port = Machine(tmp_path_factory.mktemp("machine")), free_port(), free_port()
    (machine.folder / "settings.yaml").write_text(f"metricsPort: {metrics}\n")
    machine.run("up", "--detach", "--cpus", "4", "--fake-gpus", "2", "--config", "settings.yaml")
    targets = [{"targets": [f"127.0.0.1:{metrics}"]}]
    scraped = {"job_name": "fairway", "scrape_interval": "1s", "static_configs": targets,
               "authorization": {"credentials_file": str(machine.folder / "fairway" / "token")}}
    (machine.folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [scraped]}))
    command = [program, f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={machine.folder / 'data'}",
               f"--config.file={machine.folder / 'prometheus.yaml'}"]
    with (machine.folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _load(machine)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            machine.run("down")


def _load(machine: Machine) -> None:
    (machine.folder / "objects.yaml").write_text(OBJECTS)
    machine.kubectl("apply", "-f", str(machine.folder / "objects.yaml"))
    long, short = ("--time-limit", "10m", "--", "sleep", "300"), ("--time-limit", "3s", "--", "sleep", "2")
    machine.run("submit", "--quiet", "--queue", "vision", "--gpus", "2", "--name", "first", *long)
    machine.until("first", "Running")
    machine.run("submit", "--quiet", "-q", "vision", "--gpus", "2", "--name", "urgent", "--priority", "high", *short)
    machine.run("submit", "--quiet", "--queue", "vision", "--gpus", "2", "--name", "next", "--priority", "high", *short)
    machine.until("next", "Succeeded")
    machine.run("submit", "--quiet", "--queue", "vision", "--gpus", "1", "--name", "last", *long)


def asked(address: str, query: str) -> list[object]:
    with urlopen(f"{address}/api/v1/query?{urlencode({'query': query})}", timeout=10) as answer:
        said = json.load(answer)
    assert said["status"] == "success", said
    return said["data"]["result"]


@pytest.mark.kubectl
@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_shows_something(panel: dict, prometheus: str) -> None:
    for target in panel["targets"]:
        end = time.monotonic() + PATIENCE_SECONDS
        while not asked(prometheus, target["expr"]):
            assert time.monotonic() < end, target["expr"]
            time.sleep(0.5)


@pytest.mark.kubectl
@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_no_alert_holds_while_all_is_well(alert: dict, prometheus: str) -> None:
    assert asked(prometheus, alert["expr"]) == []
