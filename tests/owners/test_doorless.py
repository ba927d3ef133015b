"""Where no door completes what is stored: an owner gets Fairway's gates before it is resumed, and no other binds its
pods."""

import pytest
from kinds import example

from fairway.api.admission import Review, admit, held_back

GATE = {"name": "fairway.dev/admission"}


def gates(thing: object) -> list[list[object]]:
    """Those of every pod template in an object."""
    if isinstance(thing, dict):
        own = [thing["spec"].get("schedulingGates", [])] if "containers" in (thing.get("spec") or {}) else []
        return own + [it for value in thing.values() for it in gates(value)]
    return [it for value in thing for it in gates(value)] if isinstance(thing, list) else []


@pytest.mark.parametrize("name", ["jobset", "pytorchjob", "raycluster", "rayjob", "mpijob", "appwrapper"])
def test_every_template_of_an_owner_gets_a_gate_and_the_owner_stays_as_it_was(name: str) -> None:
    owner = example(name)[-1]
    kind = owner["apiVersion"].rpartition("/")[0], owner["kind"]
    made = held_back(owner, kind)
    assert gates(made) and all(own == [GATE] for own in gates(made))
    assert not any(gates(owner))
    assert held_back(made, kind) == made


@pytest.mark.parametrize(
    "name, path", [("sparkapplication", ("spec", "executor")), ("flinkdeployment", ("spec", "podTemplate", "spec"))]
)
def test_the_door_names_fairway_where_there_is_no_template(name: str, path: tuple[str, ...]) -> None:
    owner = example(name)[-1]
    group, kind = owner["apiVersion"].rpartition("/")[0], owner["kind"]
    said, _ = admit(Review("CREATE", group, kind, "default", owner, user="ann"))
    for step in path:
        said = said[step]  # type: ignore[assignment]
    assert said["schedulerName"] == "fairway"


def test_a_cron_job_hands_its_queue_and_its_user_on() -> None:
    job = example("cronjob")[-1]
    job["metadata"]["labels"] = job["spec"]["jobTemplate"].pop("metadata")["labels"]
    said, _ = admit(Review("CREATE", "batch", "CronJob", "default", job, user="ann"))
    meta = said["spec"]["jobTemplate"]["metadata"]  # type: ignore[index]
    assert meta == {"labels": {"fairway.dev/queue": "default"}, "annotations": {"fairway.dev/user": "ann"}}
