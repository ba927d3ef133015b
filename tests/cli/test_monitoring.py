"""What `fairway install --monitoring` adds: rules and panels about metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairway.cli.install import chosen
from fairway.controllers.metrics import Metrics

NAME = re.compile(r"\bfairway_\w+")
SERIES = {  # of each alert: the series that make it fire, over twenty-four hours and a minute each
    "FairwayHasNoLeader": {"fairway_is_leader": "0x1440"},
    "FairwayPlanRefused": {'fairway_refused_items_total{rule="Room"}': "0+1x1440"},
    "FairwayRequestsFail": {'fairway_api_requests_total{code="500"}': "0+1x1440",
                            'fairway_api_requests_total{code="200"}': "0+9x1440"},
    "FairwayDecidesSlowly": {'fairway_cycle_seconds_bucket{le="3"}': "0+1x1440",
                             'fairway_cycle_seconds_bucket{le="10"}': "0+2x1440",
                             'fairway_cycle_seconds_bucket{le="+Inf"}': "0+2x1440"},
    "FairwayQueueBelowShare": {'fairway_share{queue="q",pool="*",resource="cpu"}': "2x1440",
                               'fairway_allocated{queue="q",pool="p",resource="cpu"}': "1x1440",
                               'fairway_pending_workloads{queue="q",reason="NoRoom"}': "1x1440"},
    "FairwayForecastsAreOff": {'fairway_forecast_coverage{horizon="1h"}': "0.5x1440"},
}  # fmt: skip
QUIET = {  # a controller that works: no alert
    "fairway_is_leader": "1x1440", 'fairway_api_requests_total{code="200"}': "0+9x1440",
    'fairway_cycle_seconds_bucket{le="3"}': "0+2x1440", 'fairway_cycle_seconds_bucket{le="+Inf"}': "0+2x1440",
    'fairway_share{queue="q",pool="p",resource="cpu"}': "2x1440", 'fairway_forecast_coverage{horizon="1h"}': "0.9x1440",
    'fairway_allocated{queue="q",pool="p",resource="cpu"}': "2x1440",
    'fairway_share{queue="r",pool="*",resource="cpu"}': "4x1440",
    'fairway_allocated{queue="r",pool="p",resource="cpu"}': "2x1440",
    'fairway_allocated{queue="r",pool="o",resource="cpu"}': "2x1440",
    'fairway_pending_workloads{queue="q",reason="OverShare"}': "1x1440",
    'fairway_pending_workloads{queue="r",reason="OverShare"}': "1x1440",
}  # fmt: skip


def of_name(kind: str, name: str = "fairway-controller") -> dict[str, Any]:
    things = chosen("fairway-system", monitoring=True)
    return next(one for one in things if (one["kind"], one["metadata"]["name"]) == (kind, name))


def alerts() -> list[dict[str, Any]]:
    return of_name("PrometheusRule")["spec"]["groups"][0]["rules"]


def panels() -> list[dict[str, Any]]:
    return json.loads(of_name("ConfigMap", "fairway-dashboard")["data"]["fairway.json"])["panels"]


def expressions() -> list[str]:
    return [it["expr"] for it in alerts()] + [it["expr"] for panel in panels() for it in panel["targets"]]


def test_rules_and_panels_are_about_metrics_that_there_are() -> None:
    there = set()
    for family in Metrics().registry.collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        there |= {family.name + end for end in ends}
    assert expressions() and {name for it in expressions() for name in NAME.findall(it)} <= there


def test_panels_lie_side_by_side_and_each_has_a_name_of_its_own() -> None:
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}
    assert len(places) == len({panel["title"] for panel in panels()}) == len(panels())


def test_the_monitor_selects_the_service_of_the_metrics() -> None:
    service = of_name("Service", "fairway-metrics")
    spec = of_name("ServiceMonitor")["spec"]
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {it["port"] for it in spec["endpoints"]} == {it["name"] for it in service["spec"]["ports"]}


def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("there is no promtool on the PATH")


@pytest.mark.parametrize("name", [it["alert"] for it in alerts()])
def test_an_alert_fires_when_it_should_and_not_else(name: str, tmp_path: Path) -> None:
    program = promtool()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(of_name("PrometheusRule")["spec"]))
    fires = {"interval": "1m", "input_series": _series(SERIES[name]), "promql_expr_test": [_firing(name, 1)]}
    quiet = {"interval": "1m", "input_series": _series(QUIET), "promql_expr_test": [_firing(name, 0)]}
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [fires, quiet]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    found = subprocess.run([program, "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def _series(said: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": series, "values": values} for series, values in said.items()]


def _firing(name: str, count: int) -> dict[str, Any]:
    """A test that so many of an alert fire after a day."""
    samples = [{"labels": "{}", "value": 1}] if count else []
    query = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {"expr": query, "eval_time": "24h", "exp_samples": samples}
