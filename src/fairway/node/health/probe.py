"""What a container's probes ask, and what their outcomes come to. Pure.

A verdict changes after `successes` or `failures` outcomes in a row, as a kubelet counts them: a container is not ready
until its readiness probe says so, alive until its liveness probe denies it, and neither of these two is asked before
the startup probe has succeeded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNHEALTHY, HOOK_FAILED = "Unhealthy", "FailedPostStartHook"


@dataclass(frozen=True, slots=True)
class Health:
    """How a container is that runs. `fault`: why it is to be stopped, and started again as its policy says; `grace`:
    the seconds that it has for that, where the probe says so."""

    is_started: bool = True
    is_ready: bool = True
    fault: str = ""
    grace: float | None = None


HEALTHY = Health()


@dataclass(frozen=True, slots=True)
class Probe:
    """Times in seconds. `action`: an `exec`, `httpGet`, `tcpSocket` or `grpc` of Kubernetes."""

    name: str
    action: Mapping[str, Any]
    delay: float
    period: float
    timeout: float
    successes: int
    failures: int
    grace: float | None


def probes_of(container: Mapping[str, Any]) -> dict[str, Probe]:
    """By name: startup, readiness, liveness."""
    found = {name: container.get(f"{name}Probe") for name in ("startup", "readiness", "liveness")}
    return {name: _probe(name, said) for name, said in found.items() if said}


def _probe(name: str, said: Mapping[str, Any]) -> Probe:
    return Probe(
        name,
        said,
        delay=said.get("initialDelaySeconds") or 0,
        period=said.get("periodSeconds") or 10,
        timeout=said.get("timeoutSeconds") or 1,
        successes=said.get("successThreshold") or 1,
        failures=said.get("failureThreshold") or 3,
        grace=said.get("terminationGracePeriodSeconds"),
    )


def hook_of(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The `postStart` or `preStop` of a container."""
    return (container.get("lifecycle") or {}).get(name) or None


@dataclass(slots=True)
class Tally:
    """The outcomes of a probe so far; `verdict` is None until there is one."""

    probe: Probe
    verdict: bool | None
    latest: bool | None = None
    run: int = 0

    def add(self, outcome: bool) -> bool:
        """Counts an outcome; returns whether it changed the verdict."""
        self.run = self.run + 1 if outcome == self.latest else 1
        self.latest = outcome
        needed = self.probe.successes if outcome else self.probe.failures
        if self.run < needed or outcome == self.verdict:
            return False
        self.verdict = outcome
        return True
