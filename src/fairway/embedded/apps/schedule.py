"""The moments of a CronJob's schedule: crontab(5) and its descriptors, in a time zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MACROS = {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
          "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}
"""Descriptors of crontab(5)."""


def moments(schedule: str, zone: str, at: float) -> tuple[float, float]:
    """The last moment of a schedule up to `at`, and the next after it. Without `zone` in UTC. Raises ValueError."""
    text, place = MACROS.get(schedule, schedule), ZoneInfo(zone) if zone else UTC
    begin = datetime.fromtimestamp(at, place)
    try:
        before, after = CronSim(text, begin.replace(second=59), reverse=True), CronSim(text, begin)
        last = next(it for it in before if it.timestamp() <= at)
        return last.timestamp(), next(after).timestamp()
    except (CronSimError, StopIteration) as error:
        raise ValueError(f"{schedule} is no schedule: {error}") from error
