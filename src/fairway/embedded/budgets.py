"""PodDisruptionBudgets: how many of their pods are healthy, and how many may be disturbed.

`counted` is the rule, used by evictions when they are asked for; `keep_counts` writes the same into the budgets'
status, for those who only read. Without a controller that says how many pods there should be, the pods that are there
count as those expected.
"""

import sqlite3
from typing import Any

import msgspec

from fairway.embedded.access.identity import controller
from fairway.embedded.database import Full
from fairway.embedded.registry import Registry, Thing, Write
from fairway.embedded.selector import selector_test

BUDGETS = "poddisruptionbudgets.policy"
_USER = controller("disruption")
_SETTLE_SECONDS = 0.2  # pods change in bursts, and a count says nothing before its end
decode = msgspec.json.decode


def is_ready(pod: Thing) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ())


def guards(budget: Thing, pod: Thing) -> bool:
    """Whether the pod is one of the budget's."""
    return (budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and selector_test(budget["spec"].get("selector") or {})(pod["metadata"].get("labels") or {}))


def counted(registry: Registry, budget: Thing) -> dict[str, int]:
    """The counts of a budget's status, from the pods as they are with what is staged."""
    pods = [pod for pod in registry.latest("pods", budget["metadata"]["namespace"])
            if guards(budget, pod) and pod["status"].get("phase") not in ("Succeeded", "Failed")]
    healthy = sum(1 for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        needed = max(0, len(pods) - _of(spec["maxUnavailable"], len(pods)))
    else:
        needed = _of(spec.get("minAvailable", 0), len(pods))
    return {"currentHealthy": healthy, "desiredHealthy": needed, "expectedPods": len(pods),
            "disruptionsAllowed": max(0, healthy - needed)}


async def keep_counts(registry: Registry) -> None:
    """Runs as a task until the store closes."""
    store, seen = registry.store, 0
    while not store.closed:
        touched = max(store.touched.get(name, 0) for name in ("pods", BUDGETS))
        if touched == seen or not store.objects(BUDGETS):
            seen = touched
            await store.changed("pods" if store.objects(BUDGETS) else BUDGETS)
            continue
        await registry.clock.sleep(_SETTLE_SECONDS)
        seen = max(store.touched.get(name, 0) for name in ("pods", BUDGETS))
        try:
            for budget in registry.latest(BUDGETS):
                _write_counts(registry, budget)
            await store.committed()
        except (Full, sqlite3.Error):
            seen = 0


def _write_counts(registry: Registry, budget: Thing) -> None:
    resource = registry.catalog.stored(BUDGETS)
    counts: dict[str, Any] = {**counted(registry, budget), "observedGeneration": budget["metadata"]["generation"]}
    if resource is not None and budget.get("status", {}) | counts != budget.get("status"):
        status = {**budget.get("status", {}), **counts}
        registry.update_status(budget, {**budget, "status": status}, write=Write(resource, _USER))


def _of(value: int | str, whole: int) -> int:
    """A count, or a percentage of the whole, rounded up."""
    return value if isinstance(value, int) else -(-whole * int(value.removesuffix("%")) // 100)
