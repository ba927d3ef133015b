"""Unix users on a team's box: the socket says who they are, and each has a place of its own."""

import json
import stat
from collections.abc import Iterator

import pytest
import yaml
from box import Box, box, needs_users

pytestmark = needs_users
USERS = {"ann": ["vision"], "bob": ["vision"], "eve": ["speech"], "ian": ["speech"], "sue": ["speech", "admin"]}


@pytest.fixture(scope="module")
def team() -> Iterator[Box]:
    with box(USERS) as made:
        for group, gpus in (("vision", "3"), ("speech", "1")):
            made.run("root", "fairway", "team", "add", made.groups[group], "--queue", group, "--gpus", gpus)
        yield made


@pytest.mark.parametrize("user", USERS)
def test_each_user_logs_in_and_has_the_queue_of_its_group(team: Box, user: str) -> None:
    said = team.run(user, "fairway", "login").replace(", administrator", "")
    config = team.home(user) / ".kube" / "config"
    queue = "vision" if "vision" in USERS[user] else "speech"
    assert said == f"{team.name(user)}: namespace {team.name(user)}; queues: {queue}\nwrote {config}\n"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600 and config.stat().st_uid == team.users[user].pw_uid
    assert "token" not in yaml.safe_load(config.read_text())["users"][0]["user"]


def test_no_two_users_have_the_same_token(team: Box) -> None:
    tokens = {json.loads(team.run(user, "fairway", "login", "--credential"))["status"]["token"] for user in USERS}
    assert len(tokens) == len(USERS)
