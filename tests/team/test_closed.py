"""Pods of a team's box, closed to each other: `fairway up --team` with real users, from submission to process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from teambox import Box, box, needs_users

from fairway.node.isolation.limits import PIDS, hierarchies, most_processes

pytestmark = needs_users


@pytest.fixture(scope="module")
def team() -> Iterator[Box]:
    with box({"ann": ["vision"], "bob": ["vision"]}) as made:
        yield made


def test_a_program_runs_as_who_submitted_it_where_it_was_submitted(team: Box) -> None:
    script = "id -un; pwd; echo $HOME"
    said = team.run("ann", "fairway", "submit", "--follow", "--name", "who", "--", "sh", "-c", script)
    assert said.splitlines()[:3] == [team.name("ann"), str(team.home("ann")), str(team.home("ann"))]


def test_the_environment_it_was_submitted_with_is_closed_to_another_user(team: Box) -> None:
    script = "echo $$ > ~/pid; exec sleep 1000"
    team.run("ann", "fairway", "submit", "--name", "hold", "--env", "TOKEN=hidden", "--", "sh", "-c", script)
    team.run("ann", "sh", "-c", "until grep -q ^sleep /proc/$(cat ~/pid)/cmdline; do sleep 0.05; done 2> /dev/null")
    pid = (team.home("ann") / "pid").read_text().strip()
    assert b"TOKEN=hidden" in Path(f"/proc/{pid}/environ").read_bytes()
    tries = [f"cat /proc/{pid}/environ", f"kill {pid}", f"ls {team.folder}/data", f"cat {team.home('ann')}/pid"]
    script = "; ".join(f"({each}) > /dev/null 2>&1 && echo succeeded: {each}" for each in tries) + "; echo tried"
    as_pod = ["fairway", "submit", "--follow", "--name", "thief", "--", "sh", "-c", script]
    assert team.run("bob", *as_pod).splitlines()[0] == team.run("bob", "sh", "-c", script).strip() == "tried"
    assert Path(f"/proc/{pid}/environ").exists()
    team.run("ann", "fairway", "cancel", "hold")


def test_no_user_says_as_whom_the_pods_of_a_namespace_run(team: Box) -> None:
    own, other = (f"/api/v1/namespaces/{team.name(user)}" for user in ("ann", "bob"))
    change = {"metadata": {"annotations": {"fairway.dev/unix-user": team.name("bob")}}}
    made = {"metadata": {"name": "fresh", "annotations": {"fairway.dev/unix-user": "root"}}}
    asked = [("PATCH", own, change), ("PATCH", other, change), ("POST", "/api/v1/namespaces", made)]
    assert [status for status, _ in team.ask("ann", *asked)] == [403, 403, 403]


def test_what_fairway_keeps_is_for_root_alone(team: Box) -> None:
    data = team.folder / "data"
    assert data.stat().st_mode & 0o777 == 0o700
    names = ("state.db", "kubeconfig", "token", "server.key", "spec", "exit")
    kept = [it for it in data.rglob("*") if it.name in names]
    kept += data.rglob("log.*")
    assert {it.name for it in kept} >= {"state.db", "kubeconfig", "token", "server.key"}
    assert {(it.stat().st_uid, it.stat().st_mode & 0o077) for it in kept} == {(0, 0)}


def test_no_user_fills_the_database_and_none_sets_its_own_bound(team: Box) -> None:
    space = f"/api/v1/namespaces/{team.name('ann')}"
    bounds = {"metadata": {"annotations": {"fairway.dev/most-objects": "3", "fairway.dev/most-data": "1Mi"}}}
    assert team.ask("ann", ("PATCH", space, bounds))[0][0] == 403
    large = {"metadata": {"name": "large"}, "data": {"text": "x" * 900_000}}
    tries = [("POST", f"{space}/configmaps", {**large, "metadata": {"name": f"large-{at}"}}) for at in range(2)]
    tries += [("POST", f"{space}/configmaps", {"metadata": {"name": f"small-{at}"}}) for at in range(3)]
    assert team.ask("root", ("PATCH", space, bounds))[0][0] == 200
    answers = team.ask("ann", *tries)
    assert {status for status, _ in answers[1:2] + answers[-1:]} == {403}
    assert "fairway.dev/most-objects" in answers[-1][1]["message"]
    assert [status for status, _ in team.ask("bob", ("POST", space.replace(team.name("ann"), team.name("bob"))
                                                     + "/configmaps", large))] == [201]
    names = [it["metadata"]["name"] for it in team.ask("ann", ("GET", f"{space}/configmaps"))[0][1]["items"]]
    team.ask("ann", *(("DELETE", f"{space}/configmaps/{name}") for name in names if name != "kube-root-ca.crt"))
    team.ask("root", ("PATCH", space, {"metadata": {"annotations": dict.fromkeys(bounds["metadata"]["annotations"])}}))


def test_the_processes_of_a_user_and_of_each_pod_are_bounded(team: Box) -> None:
    most = most_processes()
    script = "ulimit -u; ulimit -Hu; sed -n 's/.*:pids://p' /proc/self/cgroup"
    said = team.run("ann", "fairway", "submit", "--follow", "--name", "bomb", "--", "bash", "-c", script).splitlines()
    assert said[:2] == [str(most // 2)] * 2
    if hierarchies().places.get(PIDS) and not hierarchies().is_unified:
        assert "/fairway/" in said[2]
