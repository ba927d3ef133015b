"""What an administrator may set: one dataclass, one YAML file (`--config`), each key also a flag.

A setting is a cost, so there are few, each with a default that needs no thought. Durations are written as in the API
(`90s`, `7d`); whoever loads a file says how they are read, since this module stands below the one that knows.
What users set about their own workloads, and operators about queues and pools, are objects of the API, not settings.

Who decides says on its lease by which of them (`told`), so that a what-if elsewhere decides alike.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from fairway import NAMESPACE
from fairway.engine import Policy
from fairway.policies import PRESETS

MOST_PORTS = 65_535
DECIDES_BY = "fairway.dev/decides-by"
"""The annotation on the lease of who decides."""
DURATIONS = frozenset({"batch_window", "usage_half_life", "lease_term", "log_retention"})


class SettingsError(ValueError):
    """One line: which setting, what was found, what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in seconds."""

    policy: str = "fairway"  # a preset by name
    batch_window: float = 0.01  # changes this close together are decided together
    usage_half_life: float = 7 * 86400.0
    usage_weight: float = 0.5  # k: how much history moves shares; 0 = not at all
    writes_at_once: int = 32  # requests in flight to the API server
    refreshes_per_second: int = 20  # writes that only renew a position or a message
    namespace: str = NAMESPACE  # where the lease and the events of cluster-wide objects are
    lease_term: float = 15.0
    identity: str = ""  # who holds the lease; empty: a new one at each start
    recordings: str = ""  # a folder for the snapshots of refused plans; empty: none are kept
    metrics_port: int = 0  # where /metrics is served; 0: nowhere
    metrics_host: str = ""  # the address of that port; empty: any, but 127.0.0.1 under `fairway up`
    metrics_token_file: str = ""  # the bearer token it asks for; empty: none, but that of the data directory under `up`
    log_level: str = "info"
    log_retention: float = 7 * 86400.0  # how long `up` keeps finished Jobs without a ttl, and then what they wrote
    log_gib: float = 20.0  # the most that all of it may take, in GiB; the oldest is removed first
    notify_hosts: str = ""  # where notices may go: hosts, `mailto`, `*`; empty: nowhere, but anywhere under `up`


def settings_of(values: Mapping[str, object], duration: Callable[[str], float]) -> Settings:
    """Settings from a file's keys in camelCase; unknown keys and wrong types are refused."""
    known = {_camel(field.name): field for field in fields(Settings)}
    chosen: dict[str, object] = {}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(f"{key}: no such setting; there are {', '.join(sorted(known))}")
        field = known[key]
        chosen[field.name] = _read(key, value, type(field.default), duration if field.name in DURATIONS else None)
    return Settings(**chosen)  # type: ignore[arg-type]


def policy_of(settings: Settings) -> Policy:
    return replace(PRESETS[settings.policy], usage_weight=settings.usage_weight, half_life=settings.usage_half_life)


def told(settings: Settings) -> str:
    """What decides how it is decided, as `settings_of` reads it."""
    names = ("policy", "usage_weight", "usage_half_life")
    return json.dumps({_camel(name): getattr(settings, name) for name in names})


def _read(key: str, value: object, kind: type, duration: Callable[[str], float] | None) -> object:
    if duration and isinstance(value, str):
        try:
            return duration(value)
        except ValueError as error:
            raise SettingsError(f"{key}: {error}") from error
    wanted = (int, float) if kind is float else kind
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise SettingsError(f"{key}: found {value!r}; {'a duration' if duration else kind.__name__} is allowed")
    if key == "policy" and value not in PRESETS:
        raise SettingsError(f"{key}: {value!r} is not known; there are: {', '.join(PRESETS)}")
    if key == "metricsPort" and not 0 <= value <= MOST_PORTS:  # type: ignore[operator]
        raise SettingsError(f"{key}: found {value!r}; a port up to {MOST_PORTS} is allowed, 0 for none")
    return kind(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
