"""Unix users on a team's box: the socket says who they are, and each has a place of its own."""

import json
import re
import ssl
import stat
import urllib.request
from collections.abc import Iterator
from time import sleep

import pytest
import yaml
from teambox import TRIES, Box, box, change, interpreter, needs_users

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
    assert len({token_of(team, user) for user in USERS}) == len(USERS)


def token_of(team: Box, user: str) -> str:
    ((_, said),) = team.ask(user, ["POST", "/fairway/login"])
    return str(said["token"])


def test_the_server_knows_a_user_by_its_uid_and_its_groups(team: Box) -> None:
    review = ["POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}]
    for user, groups in USERS.items():
        ((_, said),) = team.ask(user, review)
        who = said["status"]["userInfo"]
        assert (who["username"], who["uid"]) == (team.name(user), str(team.users[user].pw_uid))
        assert {team.groups[it] for it in groups} <= {*who["groups"]}
        assert ("system:masters" in who["groups"]) == (user == "sue")


def test_what_a_user_submits_runs_in_the_queue_of_its_group(team: Box) -> None:
    found = team.tried("ann", "fairway", "submit", "--follow", "--name", "mine", "--", "id", "-un")
    assert (found.stdout, found.stderr) == (f"{team.name('ann')}\n", "mine queued in vision\n")
    refused = team.tried("ann", "fairway", "submit", "--queue", "speech", "--", "true")
    assert refused.returncode == 1 and f"speech takes no workloads of namespace {team.name('ann')}" in refused.stderr


def test_what_root_submits_for_itself_is_refused_at_once(team: Box) -> None:
    refused = team.tried("root", "fairway", "submit", "--", "true")
    assert refused.returncode == 1 and "-n: root is root's, and no pod runs as root on a shared" in refused.stderr


@pytest.fixture(scope="module")
def anns(team: Box) -> str:
    """The namespace of ann, in which there is a Secret, and a Job that writes a line and goes on."""
    space = team.name("ann")
    secret = {"metadata": {"name": "key"}, "stringData": {"word": "sesame"}}
    assert team.ask("ann", ["POST", f"/api/v1/namespaces/{space}/secrets", secret])[0][0] == 201
    program = ["sh", "-c", "echo hello; sleep 600"]
    team.run("ann", "fairway", "submit", "--quiet", "--name", "long", "--cpus", "0.1", "--", *program)
    team.run("ann", "fairway", "wait", "--for", "started", "long")
    return space


def test_no_user_reaches_what_is_anothers(team: Box, anns: str) -> None:
    (_, pods), = team.ask("ann", ["GET", f"/api/v1/namespaces/{anns}/pods?labelSelector=job-name%3Dlong"])
    pod = f"/api/v1/namespaces/{anns}/pods/{pods['items'][0]['metadata']['name']}"
    tries = [
        ["GET", f"/api/v1/namespaces/{anns}/secrets/key"], ["GET", f"/api/v1/namespaces/{anns}/secrets"],
        ["GET", f"/api/v1/namespaces/{anns}/pods"], ["GET", pod], ["GET", f"{pod}/log"],
        ["GET", f"/apis/batch/v1/namespaces/{anns}/jobs"], ["DELETE", f"/apis/batch/v1/namespaces/{anns}/jobs/long"],
        ["GET", f"/apis/fairway.dev/v1alpha1/namespaces/{anns}/workloads"],
        ["GET", f"/api/v1/namespaces/{anns}/events"],
        ["GET", f"{pod}/exec?command=id&stdout=true"], ["GET", f"/api/v1/namespaces/{anns}"],
        ["POST", f"/api/v1/namespaces/{anns}/pods", {"metadata": {"name": "p"}, "spec": {"containers": []}}],
        ["POST", f"/api/v1/namespaces/{anns}/serviceaccounts/default/token", {"spec": {}}],
        *(["GET", f"/{path}"] for path in ("api/v1/secrets", "api/v1/pods", "api/v1/events", "api/v1/namespaces",
                                           "apis/batch/v1/jobs", "apis/fairway.dev/v1alpha1/workloads",
                                           "apis/fairway.dev/v1alpha1/usagedays")),
    ]  # fmt: skip
    for user in ("bob", "eve"):
        found = [(*each[:2], status) for each, (status, _) in zip(tries, team.ask(user, *tries))]
        assert [each for each in found if each[2] != 403] == []
    assert team.ask("ann", *tries[:5])[0][0] == 200
    assert [status for status, _ in team.ask("sue", *tries[:5])] == [200] * 5


def test_no_user_reads_the_logs_of_another_by_a_uid_or_a_path(team: Box, anns: str) -> None:
    kept = "/apis/fairway.dev/v1alpha1/namespaces/{}/workloads/job-{}"
    ((_, workload),) = team.ask("ann", ["GET", kept.format(anns, "long")])
    uid = workload["metadata"]["uid"]
    while team.ask("ann", ["GET", f"{kept.format(anns, 'long')}/log"]) != [(200, "hello\n")]:
        assert "running" in team.run("ann", "fairway", "ls")
    team.run("bob", "fairway", "submit", "--quiet", "--name", "own", "--cpus", "0.1", "--", "sleep", "600")
    own, dots = kept.format(team.name("bob"), "own"), "..%2F..%2F"
    paths = [f"{own}/log?uid={uid}", f"{own}/attempts?uid={uid}", f"{own}/log?uid={dots}{anns}%2Fjob-long%2F{uid}",
             f"{own}/log?uid={dots}{dots}{dots}..{team.home('bob')}".replace("..%2F/", "..%2F")]
    for status, said in team.ask("bob", *(["GET", path] for path in paths)):
        assert status == 200 and (said == "" or said["items"] == [])
    team.run("bob", "fairway", "cancel", "own")


def test_no_user_gives_itself_a_right(team: Box) -> None:
    own, group, queue = team.name("bob"), "rbac.authorization.k8s.io", "/apis/fairway.dev/v1alpha1/queues/speech"
    rbac, role = f"/apis/{group}/v1", {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    whole = {"metadata": {"name": "x"}, "roleRef": role, "subjects": []}
    space = {"metadata": {"labels": {"queue.fairway.dev/speech": "true"}, "annotations": {"fairway.dev/uid": "0"}}}
    tries = [
        ["PATCH", f"/api/v1/namespaces/{own}", space], ["DELETE", f"/api/v1/namespaces/{own}"],
        ["POST", "/api/v1/namespaces", {"metadata": {"name": "x", **space["metadata"]}}],
        ["PATCH", queue, {"spec": {"namespaces": {}}}], ["PATCH", f"{queue}/status", {"status": {}}], ["DELETE", queue],
        ["POST", f"{rbac}/namespaces/{own}/rolebindings", whole], ["POST", f"{rbac}/clusterrolebindings", whole],
        ["GET", "/api/v1/nodes", None, {"Impersonate-User": "fairway:admin"}],
        ["GET", "/api/v1/nodes", None, {"Impersonate-User": own, "Impersonate-Group": "system:masters"}],
    ]
    assert [status for status, _ in team.ask("bob", *tries)] == [403] * len(tries)


@pytest.mark.kubectl
def test_a_token_is_good_for_its_user_alone_and_cannot_be_changed(team: Box) -> None:
    """On the socket the kernel's word counts, on the other one the server's signature."""
    tokens = {user: token_of(team, user) for user in ("ann", "bob")}
    review = ["POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}]
    ((_, said),) = team.ask("bob", [*review, {"Authorization": f"Bearer {tokens['ann']}"}])
    assert said["status"]["userInfo"]["username"] == team.name("bob")
    mixed = ".".join((*tokens["ann"].split(".")[:2], tokens["bob"].split(".")[2]))
    port = (team.folder / "data" / "port").read_text()
    place = ["--kubeconfig", "/dev/null", "--server", f"https://127.0.0.1:{port}", "--insecure-skip-tls-verify"]
    for token, fine in {mixed: False, tokens["bob"]: True, "": False}.items():
        found = team.tried("bob", "kubectl", *place, f"--token={token}", "get", "queues")
        assert (found.returncode == 0) == fine, found.stderr


def test_no_user_reads_what_is_the_administrators(team: Box) -> None:
    data = team.folder / "data"
    for name in ("kubeconfig", "token", "signing.key", "state.db", "server.key", "pods"):
        assert (data / name).exists()
        assert "Permission denied" in team.run("ann", "cat", str(data / name), fine=False)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (data, team.socket.parent, team.socket)]
    assert modes == [0o700, 0o755, 0o666]
    assert "Permission denied" in team.run("ann", "rm", "-f", str(team.socket), fine=False)


def test_who_leaves_a_group_loses_its_queue_with_the_next_login(team: Box) -> None:
    """And the group itself, whatever a token says that it got before."""
    token = token_of(team, "ian")
    assert team.groups["speech"] in groups_by_token(team, token)
    change("gpasswd", "-d", team.name("ian"), team.groups["speech"])
    assert "queues: none" in team.run("ian", "fairway", "login")
    ((_, space),) = team.ask("sue", ["GET", f"/api/v1/namespaces/{team.name('ian')}"])
    assert "queue.fairway.dev/speech" not in space["metadata"]["labels"]
    assert team.groups["speech"] not in groups_by_token(team, token)


def test_what_waits_is_no_longer_allowed_though_its_user_does_nothing_more(team: Box) -> None:
    spaces = f"/api/v1/namespaces/{team.name('ian')}"
    change("usermod", "-a", "-G", team.groups["vision"], team.name("ian"))
    opened = "queue.fairway.dev/vision"
    _, (_, space) = team.ask("ian", ("POST", "/fairway/login", {}), ("GET", spaces))
    assert opened in space["metadata"]["labels"]
    change("gpasswd", "-d", team.name("ian"), team.groups["vision"])
    for _ in range(TRIES):
        ((_, space),) = team.ask("root", ("GET", spaces))
        if opened not in space["metadata"]["labels"]:
            break
        sleep(0.5)
    assert opened not in space["metadata"]["labels"]


def groups_by_token(team: Box, token: str) -> list[str]:
    """The groups of whoever shows this token on the port for TLS."""
    port = (team.folder / "data" / "port").read_text()
    url = f"https://127.0.0.1:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    asked = urllib.request.Request(url, b"{}", headers, method="POST")
    with urllib.request.urlopen(asked, context=ssl._create_unverified_context()) as answer:
        return list(json.load(answer)["status"]["userInfo"]["groups"])


@pytest.mark.parametrize("how", ["template", "number", "annotation", "pod"])
def test_no_user_goes_before_all_others_by_a_priority_of_the_system(team: Box, how: str) -> None:
    program = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "here", "command": ["true"]}]}
    space = f"namespaces/{team.name('bob')}"
    jobs, pods = f"/apis/batch/v1/{space}/jobs", f"/api/v1/{space}/pods"
    top, notes = {"priorityClassName": "system-node-critical"}, {"fairway.dev/priority-class": "system-node-critical"}
    more = {"template": top, "number": {"priority": 2_000_000_000}, "annotation": {}, "pod": top}[how]
    job = {"metadata": {"name": "top", "annotations": notes if how == "annotation" else {}},
           "spec": {"template": {"spec": program | more}}}
    pod = {"metadata": {"name": "top"}, "spec": program | more}
    ((status, said),) = team.ask("bob", ["POST", pods, pod] if how == "pod" else ["POST", jobs, job])
    assert status == 403 and "only an administrator uses the priorities of the system" in said["message"]


def test_a_group_that_is_removed_loses_its_queue_at_once(team: Box) -> None:
    extra = ["--queue", "extra"]
    team.run("root", "fairway", "team", "add", team.groups["vision"], *extra, "--weight", "2")
    ((_, space),) = team.ask("sue", ["GET", f"/api/v1/namespaces/{team.name('bob')}"])
    assert space["metadata"]["labels"]["queue.fairway.dev/extra"] == "true"
    listed = team.run("sue", "fairway", "team", "ls")
    assert re.search(rf"{team.groups['vision']} +extra +0 +2 .*{team.name('bob')}", listed)
    team.run("root", "fairway", "team", "remove", team.groups["vision"], *extra)
    ((_, space),) = team.ask("sue", ["GET", f"/api/v1/namespaces/{team.name('bob')}"])
    assert "queue.fairway.dev/extra" not in space["metadata"]["labels"]


def test_a_namespace_is_not_inherited_with_a_name(team: Box) -> None:
    """A user who is removed, and another of the same name: the uid tells them apart."""
    team.run("eve", "fairway", "login")
    space = f"/api/v1/namespaces/{team.name('eve')}"
    owner = {"metadata": {"annotations": {"fairway.dev/uid": "4711"}}}
    assert team.ask("sue", ["PATCH", space, owner])[0][0] == 200
    found = team.tried("eve", "fairway", "login")
    assert found.returncode == 1 and "belongs to" in found.stderr and "with uid 4711" in found.stderr
    own = {"metadata": {"annotations": {"fairway.dev/uid": str(team.users["eve"].pw_uid)}}}
    assert team.ask("sue", ["PATCH", space, own])[0][0] == 200
    team.run("eve", "fairway", "login")


PLAIN = ["ls", "queues", "nodes", "team ls", "why long", "status long"]


@pytest.mark.parametrize("command", PLAIN)
def test_commands_work_for_a_plain_user(team: Box, anns: str, command: str) -> None:
    said = team.run("ann", "fairway", *command.split())
    assert not any(team.name(user) in said for user in USERS if user != "ann")


@pytest.mark.parametrize(("user", "words"), [("ann", []), ("root", ["-A"])])
def test_top_shows_what_processes_of_users_use(team: Box, anns: str, user: str, words: list[str]) -> None:
    shown = json.loads(team.run(user, "fairway", "top", *words, "-o", "json"))["workloads"]
    (line,) = [it for it in shown if (it["namespace"], it["name"]) == (anns, "job-long")]
    assert line["cpus"] is not None and line["memory"] > 0


def test_what_a_user_may_not_read_is_worked_out_without_the_names_of_others(team: Box) -> None:
    team.run("eve", "fairway", "submit", "--name", "hers", "--gpus", "3", "--cpus", "0.1", "--", "sleep", "600")
    team.run("eve", "fairway", "wait", "--for", "started", "hers")
    said = team.run("ann", "fairway", "submit", "--dry-run", "--gpus", "4", "--cpus", "0.1", "--", "true")
    assert "needs 4 GPUs" in said and "1 workload of queue speech" in said
    team.run("ann", "fairway", "submit", "--quiet", "--name", "four", "--gpus", "4", "--cpus", "0.1", "--", "true")
    why = team.run("ann", "fairway", "why", "four")
    assert "1 workload of queue speech" in why and "with 1 GPU it would start now" in why
    said += why
    assert not any(word in said for word in (team.name("eve"), "hers"))
    ((status, _),) = team.ask("bob", ["POST", "/fairway/why", {"key": f"{team.name('ann')}/job-four"}])
    assert status == 403
    team.run("ann", "fairway", "cancel", "four")
    team.run("eve", "fairway", "cancel", "hers")


def test_a_user_looks_at_the_page_with_a_token_of_its_own(team: Box) -> None:
    """The page of the cluster, on which the link of one user shows what that user may see."""
    links = {user: team.run(user, "fairway", "dashboard").strip() for user in ("ann", "bob")}
    address, _, token = links["ann"].partition("#token=")
    assert links["bob"].startswith(f"{address}#token=") and links["bob"] != links["ann"]
    assert len({token, token_of(team, "bob")}) == 2


def test_no_user_takes_all_connections_of_the_socket(team: Box) -> None:
    hog = "import socket, sys\nheld = [socket.socket(socket.AF_UNIX) for _ in range(200)]\n"
    hog += "for each in held: each.connect(sys.argv[1])\nlast = held[-1]\n"
    hog += "last.sendall(b'GET /version HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\nprint(last.recv(12).decode())"
    assert team.run("eve", interpreter(), "-c", hog, str(team.socket)).strip() == "HTTP/1.1 503"
    assert team.ask("bob", ["GET", "/version"])[0][0] == 200


def test_what_is_roots_ends_in_a_line_not_in_a_traceback(team: Box) -> None:
    data = str(team.folder / "data")
    config = f"{data}/kubeconfig"
    for command in (["down", "--team", "--data-dir", data], ["up", "--team"], ["ls", "--kubeconfig", config]):
        found = team.tried("ann", "fairway", *command)
        assert found.returncode and found.stderr.startswith("fairway: ") and found.stderr.count("\n") == 1


def test_a_cluster_of_ones_own_beside_the_teams_says_so(team: Box) -> None:
    data = ["--data-dir", str(team.home("ann") / "own")]
    said = team.run("ann", "fairway", "up", "--detach", "--cpus", "1", *data)
    team.run("ann", "fairway", "down", *data)
    assert f"a team's cluster runs here, too ({team.socket})" in said


def test_a_second_cluster_does_not_take_the_socket(team: Box) -> None:
    found = team.tried("root", "fairway", "up", "--team", "--detach", "--data-dir", str(team.folder / "other"))
    assert found.returncode == 1 and "another cluster listens there" in found.stderr
    assert team.ask("bob", ["GET", "/version"])[0][0] == 200


def test_commands_of_a_login_start_no_plugin(team: Box) -> None:
    """With the kubeconfig that a login wrote for kubectl, Fairway's own commands ask the socket themselves."""
    team.run("ann", "fairway", "login")
    text = (team.home("ann") / ".kube" / "config").read_text()
    (team.folder / "config").write_text(text.replace(f"command: {interpreter()}", "command: /bin/false"))
    assert "GUARANTEED" in team.run("ann", "fairway", "queues", "--kubeconfig", str(team.folder / "config"))
