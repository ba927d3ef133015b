"""What a container's probes and hooks must say: one way to ask, and counts that make sense. See also `rules`."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairway.embedded.errors import Cause, denied, required, unsupported, wrong

Thing = Mapping[str, Any]

PROBES, HOOKS = ("livenessProbe", "readinessProbe", "startupProbe"), ("postStart", "preStop")
_ASKS = ("exec", "httpGet", "tcpSocket", "grpc")
_DOES = ("exec", "httpGet", "tcpSocket", "sleep")
_LEAST = {"initialDelaySeconds": 0, "timeoutSeconds": 1, "periodSeconds": 1, "successThreshold": 1,
          "failureThreshold": 1}
_NEVER = "may not be set for init containers without restartPolicy=Always"


def complete(container: dict[str, Any]) -> None:
    """Fills in what Kubernetes fills in."""
    hooks = container.get("lifecycle") or {}
    for handler in (*(container.get(name) for name in PROBES), *(hooks.get(name) for name in HOOKS)):
        if (handler or {}).get("httpGet"):
            handler["httpGet"] = {"path": "/", "scheme": "HTTP"} | handler["httpGet"]
        if "grpc" in (handler or {}):
            handler["grpc"].setdefault("service", "")


def faults(container: Thing, path: str, *, is_init: bool) -> Iterator[Cause]:
    restarts = container.get("restartPolicy")
    if is_init and restarts not in (None, "Always"):
        yield unsupported(f"{path}.restartPolicy", restarts, ("Always",))
    if is_init and restarts is None:
        yield from (denied(f"{path}.{name}", _NEVER) for name in (*PROBES, "lifecycle") if container.get(name))
        return
    for name in PROBES:
        if name in container:
            yield from _probe(container[name], f"{path}.{name}", is_readiness=name == "readinessProbe")
    for name, hook in (container.get("lifecycle") or {}).items():
        if name in HOOKS:
            yield from _handler(hook, f"{path}.lifecycle.{name}", _DOES)


def _probe(probe: Thing, path: str, *, is_readiness: bool) -> Iterator[Cause]:
    yield from _handler(probe, path, _ASKS)
    for name, least in _LEAST.items():
        if probe.get(name, least) < least:
            yield wrong(f"{path}.{name}", probe[name], f"must be greater than or equal to {least}")
    if not is_readiness and probe.get("successThreshold", 1) != 1:
        yield wrong(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and (is_readiness or grace < 1):
        why = "must not be set for readinessProbes" if is_readiness else "must be greater than 0"
        yield wrong(f"{path}.terminationGracePeriodSeconds", grace, why)


def _handler(handler: Thing, path: str, known: tuple[str, ...]) -> Iterator[Cause]:
    found = [name for name in known if handler.get(name) is not None]
    if not found:
        yield required(path, "must specify a handler type")
    yield from (denied(f"{path}.{name}", "may not specify more than 1 handler type") for name in found[1:])
    for name in found:
        if name == "exec" and not handler[name].get("command"):
            yield required(f"{path}.exec.command")
        port = handler[name].get("port")
        if isinstance(port, int) and not 0 < port < 1 << 16:
            yield wrong(f"{path}.{name}.port", port, "must be between 1 and 65535, inclusive")
