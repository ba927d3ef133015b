"""The settings file."""

from dataclasses import fields

import pytest

from fairway.api.quantities import duration
from fairway.policies import PRESETS
from fairway.settings import Settings, SettingsError, settings_of


def test_there_are_at_most_seventeen_and_the_default_policy_is_a_preset() -> None:
    assert len(fields(Settings)) <= 17
    assert Settings().policy in PRESETS


def test_keys_are_camel_case_and_durations_are_written_as_in_the_api() -> None:
    said = settings_of({"usageHalfLife": "3d", "batchWindow": 0.5, "writesAtOnce": 8, "logLevel": "debug"}, duration)
    assert (said.usage_half_life, said.batch_window, said.writes_at_once) == (3 * 86400.0, 0.5, 8)
    assert said.log_level == "debug"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"usage_half_life": "3d"}, "usage_half_life: no such setting; there are batchWindow, "),
        ({"usageHalfLife": "3 days"}, "usageHalfLife: "),
        ({"writesAtOnce": "many"}, "writesAtOnce: found 'many'; int is allowed"),
        ({"writesAtOnce": True}, "writesAtOnce: found True; int is allowed"),
        ({"policy": 3}, "policy: found 3; str is allowed"),
    ],
)
def test_what_cannot_be_read_is_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        settings_of(values, duration)
