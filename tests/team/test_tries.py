"""What one user of a team's box tries against another: each try is in a list here, over the socket, by commands, and
with objects that name hers. What a program tries beside hers is in tests/node/test_isolation.py."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from teambox import Box, box, needs_users

pytestmark = [needs_users, pytest.mark.kubectl]
WORD = "sesame"
APPS, BATCH, OURS = "/apis/apps/v1", "/apis/batch/v1", "/apis/fairway.dev/v1alpha1"
RBAC, LEASES = "/apis/rbac.authorization.k8s.io/v1", "/apis/coordination.k8s.io/v1"
PROGRAM = {"name": "main", "image": "here", "command": ["sleep", "600"]}
WEB = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
       "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [PROGRAM]}}}


@pytest.fixture(scope="module")
def team() -> Iterator[Box]:
    """ann and bob; of ann's there is something of each kind that a user makes, all of it with the word."""
    with box({"ann": ["vision"], "bob": ["vision"]}) as made:
        made.run("root", "fairway", "team", "add", made.groups["vision"], "--queue", "vision", "--gpus", "2")
        made.run("root", "fairway", "team", "add", "root", "--queue", "closed", "--gpus", "2")
        space = made.name("ann")
        things = [
            ("/api/v1", "secrets", {"metadata": {"name": "key"}, "stringData": {"word": WORD}}),
            ("/api/v1", "configmaps", {"metadata": {"name": "notes"}, "data": {"word": WORD}}),
            ("/api/v1", "services", {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
                                                                           "ports": [{"port": 8080}]}}),
            ("/api/v1", "persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}),
            (APPS, "deployments", {"metadata": {"name": "web"}, "spec": WEB}),
        ]
        asked = [("POST", f"{root}/namespaces/{space}/{plural}", thing) for root, plural, thing in things]
        assert {status for status, _ in made.ask("ann", *asked)} == {201}
        program = ["--env", f"WORD={WORD}", "--", "sh", "-c", f"echo {WORD}; exec sleep 600"]
        made.run("ann", "fairway", "submit", "--name", "long", "--gpus", "1", "--cpus", "0.1", *program)
        for name in ("long", pod_of(made, "app=web")):
            made.run("ann", "fairway", "wait", "--for", "started", "--timeout", "60s", name)
        yield made


def pod_of(team: Box, labels: str) -> str:
    while True:
        place = f"/api/v1/namespaces/{team.name('ann')}/pods?labelSelector={labels.replace('=', '%3D')}"
        if found := team.ask("ann", ("GET", place))[0][1]["items"]:
            return str(found[0]["metadata"]["name"])


def test_what_a_user_asks_of_another_s_is_refused(team: Box) -> None:
    before, ann, bob = held(team), team.name("ann"), team.name("bob")
    core, pod = f"/api/v1/namespaces/{ann}", f"/api/v1/namespaces/{ann}/pods/{pod_of(team, 'job-name=long')}"
    job, web = f"{BATCH}/namespaces/{ann}/jobs/long", f"{APPS}/namespaces/{ann}/deployments/web"
    workload, node = f"{OURS}/namespaces/{ann}/workloads/job-long", node_of(team)
    labels, token = {"metadata": {"labels": {"a": "b"}}}, {"spec": {"audiences": []}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    bound = {"metadata": {"name": "x"}, "roleRef": role, "subjects": [{"kind": "User", "name": bob}]}
    tries: list[tuple[Any, ...]] = [
        # reading
        *(("GET", f"{core}/{each}") for each in (
            "pods", "pods?watch=1", "pods?fieldSelector=metadata.name%3Dx", "secrets", "secrets/key",
            "configmaps/notes", "events", "events?watch=1", "services", "endpoints", "serviceaccounts",
            "persistentvolumeclaims/data", "resourcequotas", "limitranges")),
        *(("GET", place) for place in (
            core, pod, f"{pod}/log", f"{pod}/log?follow=1", f"{pod}/log?previous=1", f"{pod}/status", job,
            f"{job}/status", web, f"{web}/scale", workload, f"{workload}/log", f"{workload}/attempts",
            f"{RBAC}/namespaces/{ann}/rolebindings", f"{LEASES}/namespaces/{ann}/leases",
            f"/apis/discovery.k8s.io/v1/namespaces/{ann}/endpointslices",
            f"/apis/metrics.k8s.io/v1beta1/namespaces/{ann}/pods")),
        # reading of all, and watching
        *(("GET", f"{place}{query}")
          for query in ("", "?watch=1", "?limit=1", f"?fieldSelector=metadata.namespace%3D{ann}")
          for place in ("/api/v1/pods", "/api/v1/secrets", "/api/v1/events", "/api/v1/configmaps", "/api/v1/services",
                        "/api/v1/namespaces", f"{BATCH}/jobs", f"{APPS}/deployments", f"{OURS}/workloads",
                        f"{OURS}/usagedays", "/apis/events.k8s.io/v1/events", "/apis/metrics.k8s.io/v1beta1/pods",
                        f"{RBAC}/clusterrolebindings", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")),
        ("GET", "/api/v1/secrets?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        *(("GET", place) for place in (
            "/metrics", "/logs/", "/debug/pprof", "/configz", f"/api/v1/nodes/{node}/proxy/pods",
            f"/api/v1/nodes/{node}/proxy/logs/", "/apis/metrics.k8s.io/v1beta1/nodes")),
        *(("GET", f"{core}/secrets", None, {"Accept": f"application/json;as={kind};v=v1;g=meta.k8s.io"})
          for kind in ("Table", "PartialObjectMetadataList")),
        # entering and connecting
        *((method, f"{pod}/{each}") for method in ("GET", "POST") for each in (
            "exec?command=id&stdout=1", "attach?stdout=1", "portforward?ports=8080")),
        *(("GET", f"{core}/{each}") for each in ("services/web/proxy", f"{pod.rpartition('/')[2]}/proxy")),
        # writing
        *(("POST", f"{core}/{plural}", {"metadata": {"name": "x"}}) for plural in (
            "pods", "secrets", "configmaps", "services", "events", "serviceaccounts", "persistentvolumeclaims")),
        *((method, place, labels) for method in ("PATCH", "DELETE") for place in (
            f"{core}/secrets/key", f"{core}/services/web", pod, job, web, workload, core)),
        *(("DELETE", place, {}) for place in (
            f"{core}/pods", f"{core}/secrets", job.rpartition("/")[0], "/api/v1/pods")),
        *(("PATCH", place, labels) for place in (
            f"{pod}/status", f"{job}/status", f"{workload}/status", f"{web}/scale", f"{pod}/resize",
            f"{pod}/ephemeralcontainers", f"{OURS}/queues/vision", f"{OURS}/queues/vision/status",
            f"/api/v1/nodes/{node}", f"/api/v1/nodes/{node}/status", f"/api/v1/namespaces/{bob}",
            f"{LEASES}/namespaces/kube-system/leases/fairway-controller", f"{RBAC}/clusterroles/edit")),
        ("PATCH", f"{core}/configmaps/own?fieldManager=bob&force=true", {"data": {}},
         {"content-type": "application/apply-patch+yaml"}),
        ("POST", f"{pod}/eviction", {"metadata": {"name": "x"}}),
        ("POST", f"{pod}/binding", {"target": {"kind": "Node", "name": node}}),
        ("POST", f"{core}/namespaces/x/finalize", {}),
        *(("POST", place, {"metadata": {"name": "x"}}) for place in (
            f"{OURS}/queues", f"{OURS}/nodepools", f"{OURS}/reservations", "/api/v1/persistentvolumes", "/api/v1/nodes",
            "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses",
            "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/namespaces/kube-system/pods",
            "/api/v1/namespaces/default/pods")),
        # being another
        ("POST", f"{core}/serviceaccounts/default/token", token),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", token),
        *(("POST", f"{RBAC}/{each}", bound) for each in (
            f"namespaces/{ann}/rolebindings", f"namespaces/{bob}/rolebindings", "clusterrolebindings")),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": ann}}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
        *(("GET", f"{core}/secrets", None, headers) for headers in (
            {"Impersonate-User": ann}, {"Impersonate-User": "root"}, {"Impersonate-User": "fairway:admin"},
            {"Impersonate-User": bob, "Impersonate-Group": "system:masters"}, {"Impersonate-Group": "system:masters"},
            {"Impersonate-User": bob, "Impersonate-Uid": "0"},
            {"Impersonate-User": f"system:serviceaccount:{ann}:default"},
            {"Impersonate-User": f"system:serviceaccount:{bob}:default"},
            {"Impersonate-User": f"system:serviceaccount:{bob}:default", "Impersonate-Group": "system:masters"},
            {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}, {"X-Forwarded-User": "root"},
            {"Authorization": "Basic cm9vdDo="}, {"X-HTTP-Method-Override": "GET"}, {"Kubectl-User": "root"})),
        # asking the server to work it out
        ("POST", "/fairway/why", {"key": f"{ann}/job-long"}),
        ("POST", "/fairway/dry-run", {"job": {"metadata": {"name": "x", "namespace": ann}, "spec": {"template": {}}}}),
    ]  # fmt: skip
    answers = team.ask("bob", *tries)
    assert [(each, *answer) for each, answer in zip(tries, answers) if answer[0] not in (400, 403, 404, 405)] == []
    assert WORD not in json.dumps(answers)
    assert held(team) == before


def node_of(team: Box) -> str:
    return str(team.ask("bob", ("GET", "/api/v1/nodes"))[0][1]["items"][0]["metadata"]["name"])


def held(team: Box) -> list[object]:
    """What ann has: what she made, and the processes of it."""
    spaces, ann = ("/api/v1", APPS, BATCH, OURS), team.name("ann")
    plurals = (("pods", "secrets", "configmaps", "services", "persistentvolumeclaims", "serviceaccounts"),
               ("deployments", "replicasets"), ("jobs",), ("workloads",))
    places = [f"{root}/namespaces/{ann}/{plural}" for root, those in zip(spaces, plurals) for plural in those]
    found = [thing for _, said in team.ask("ann", *(("GET", place) for place in places)) for thing in said["items"]]
    return [(it["metadata"]["uid"], it["metadata"].get("labels"), it.get("spec"), it.get("data"),
             it["metadata"].get("deletionTimestamp")) for it in found]  # fmt: skip


def test_no_spelling_of_a_path_leads_to_what_is_another_s(team: Box) -> None:
    ann, bob = team.name("ann"), team.name("bob")
    paths = [f"/api/v1/namespaces/{bob}/../{ann}/secrets/key", f"/api/v1/namespaces/{bob}/%2e%2e/{ann}/secrets/key",
             f"/api/v1/namespaces/{bob}%2F..%2F{ann}/secrets/key", f"//api/v1/namespaces/{ann}/secrets/key",
             f"/api/v1/namespaces//{ann}/secrets/key", f"/api/v1/watch/namespaces/{ann}/secrets",
             "/api/v1/watch/secrets", f"/api/v1/namespaces/{ann.upper()}/secrets/key",
             f"/api/v1/namespaces/{bob}/secrets/..%2F..%2F{ann}%2Fsecrets%2Fkey",
             f"/api/v1/namespaces/{ann}%00/secrets/key", f"/api/v1/namespaces/%20{ann}/secrets/key",
             f"/api/v1/namespaces/{bob}/secrets/key?namespace={ann}", f"/api/v1/namespaces/{bob};{ann}/secrets/key",
             f"http://localhost/api/v1/namespaces/{ann}/secrets/key", f"/api/v1/namespaces/{ann}/secrets/key/"]
    answers = team.ask("bob", *(("GET", path) for path in paths), *(("HEAD", path) for path in paths))
    assert [(path, *answer) for path, answer in zip(paths * 2, answers) if answer[0] < 400] == []
    own, below = f"/api/v1/namespaces/{bob}/secrets", "fieldSelector=metadata.namespace%3D"
    ((_, said),) = team.ask("bob", ("GET", own))
    there = {"v": int(said["metadata"]["resourceVersion"]), "after": [ann, ""]}  # as a page of all namespaces would end
    token = base64.urlsafe_b64encode(json.dumps(there).encode()).decode()
    leaps = team.ask("bob", ("GET", f"{own}?limit=9&continue={token}"), ("GET", f"{own}?{below}{ann}"))
    assert {it["metadata"]["namespace"] for _, said in leaps for it in said["items"]} <= {bob}


def test_objects_that_name_another_s_do_nothing_to_them(team: Box) -> None:
    """Owners, events, addresses, volumes and selectors, each in the namespace of who tries."""
    ann, bob = (f"/api/v1/namespaces/{team.name(user)}" for user in ("ann", "bob"))
    kinds = {"Job": (BATCH, "jobs", "long"), "Deployment": (APPS, "deployments", "web"),
             "Secret": ("/api/v1", "secrets", "key")}  # fmt: skip
    owners = []
    for kind, (root, plural, name) in kinds.items():
        ((_, it),) = team.ask("ann", ("GET", f"{root}/namespaces/{team.name('ann')}/{plural}/{name}"))
        owners.append({"apiVersion": it["apiVersion"], "kind": kind, "name": name, "uid": it["metadata"]["uid"],
                       "controller": kind == "Deployment", "blockOwnerDeletion": True})  # fmt: skip
    ((_, sets),) = team.ask("ann", ("GET", f"{APPS}/namespaces/{team.name('ann')}/replicasets"))
    above = owners[1] | {"kind": "ReplicaSet", **{key: sets["items"][0]["metadata"][key] for key in ("name", "uid")}}
    ((_, service),) = team.ask("ann", ("GET", f"{ann}/services/web"))
    before = held(team)
    slices = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
    same = {"clusterIP": service["spec"]["clusterIP"], "ports": [{"port": 8080}]}
    about = {"finalizers": ["example.com/hold"], "labels": {"app": "web"}}
    event = {"involvedObject": {"kind": "Job", "name": "long", "namespace": team.name("ann"), "uid": owners[0]["uid"]},
             "reason": "Finished", "message": "false"}  # fmt: skip
    tries = [
        ("POST", f"{bob}/configmaps", {"metadata": {"name": "owned", "ownerReferences": owners, **about}}),
        ("POST", f"{bob}/pods", {"metadata": {"name": "child", "ownerReferences": [above], **about}, "spec": {
            "containers": [PROGRAM]}}),
        ("POST", f"{bob}/events", {"metadata": {"name": "lie"}, **event}),
        ("POST", f"{ann}/events", {"metadata": {"name": "lie"}, **event}),
        ("POST", "/api/v1/namespaces/default/events", {"metadata": {"name": "lie"}, **event}),
        ("POST", f"{bob}/services", {"metadata": {"name": "web"}, "spec": same}),
        ("POST", f"{bob}/endpoints", {"metadata": {"name": "web"}}),
        ("POST", slices.format(team.name("bob")), {"metadata": {"name": "web"}}),
        ("POST", f"{bob}/pods", {"metadata": {"name": "x", "namespace": team.name("ann")}, "spec": {
            "containers": [PROGRAM]}}),
        ("POST", f"{bob}/pods", {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}),
    ]  # fmt: skip
    statuses = [status for status, _ in team.ask("bob", *tries)]
    assert statuses[:2] == [201, 201] and all(400 <= status < 500 for status in statuses[2:]), statuses
    assert held(team) == before
    seen = team.ask("ann", ("GET", slices.format(team.name("ann"))), ("GET", f"{ann}/events"))
    assert "child" not in json.dumps(seen)
    ((_, brief),) = team.ask("ann", ("POST", f"{ann}/configmaps", {"metadata": {"name": "brief"}}))
    claim = owners[2] | {"kind": "ConfigMap", "name": "brief", "uid": brief["metadata"]["uid"]}
    team.ask("bob", ("POST", f"{bob}/configmaps", {"metadata": {"name": "hold", "ownerReferences": [claim], **about}}))
    team.ask("ann", ("DELETE", f"{ann}/configmaps/brief", {"propagationPolicy": "Foreground"}))
    while team.ask("ann", ("GET", f"{ann}/configmaps/brief"))[0][0] != 404:
        assert team.ask("bob", ("GET", f"{bob}/configmaps/hold"))[0][0] == 200
    left = ("configmaps/owned", "configmaps/hold", "pods/child")
    team.ask("bob", *(("PATCH", f"{bob}/{each}", {"metadata": {"finalizers": None}}) for each in left))


def test_a_user_s_own_objects_give_it_nothing_that_is_not_its_own(team: Box) -> None:
    """Notes that the controller writes, another's queue, its GPUs, and rights of an account."""
    bob = f"/api/v1/namespaces/{team.name('bob')}"
    team.run("bob", "fairway", "submit", "--name", "own", "--gpus", "1", "--cpus", "0.1", "--", "sleep", "600")
    team.run("bob", "fairway", "wait", "--for", "started", "--timeout", "60s", "own")
    ((_, pods),) = team.ask("bob", ("GET", f"{bob}/pods?labelSelector=job-name%3Down"))
    pod, meta = f"{bob}/pods/{pods['items'][0]['metadata']['name']}", pods["items"][0]["metadata"]
    job = f"{BATCH}/namespaces/{team.name('bob')}/jobs/own"
    workload = f"{OURS}/namespaces/{team.name('bob')}/workloads/job-own"
    notes = ({"fairway.dev/assigned-devices": "0,1,2,3"}, {"fairway.dev/user": team.name("ann")})
    tries = [
        *(("PATCH", pod, {"metadata": {"annotations": each}}) for each in notes),
        ("PATCH", pod, {"metadata": {"labels": {"fairway.dev/queue": "closed"}}}),
        ("PATCH", job, {"metadata": {"annotations": notes[1]}}),
        ("PATCH", workload, {"spec": {"user": team.name("ann")}}),
        ("PATCH", f"{workload}/status", {"status": {"phase": "Pending"}}),
        ("PATCH", f"{pod}/status", {"status": {"phase": "Failed"}}),
        ("PATCH", f"{job}/status", {"status": {"succeeded": 1}}),
    ]
    statuses = [status for status, _ in team.ask("bob", *tries)]
    after = team.ask("bob", ("GET", pod))[0][1]["metadata"]
    assert (after["annotations"], after["labels"]) == (meta["annotations"], meta["labels"])
    assert statuses[0] == 200 and all(status in (403, 422) for status in statuses[1:]), statuses
    ((_, made),) = team.ask("bob", ("POST", f"{bob}/serviceaccounts/default/token", {"spec": {}}))
    port = (team.folder / "data" / "port").read_text()
    reads = [f"/api/v1/namespaces/{team.name(user)}/secrets" for user in ("ann", "bob")]
    site = Site(f"https://127.0.0.1:{port}", made["status"]["token"])
    assert [status for status, _ in site.ask(team, "bob", reads)] == [403, 403]
    team.run("bob", "fairway", "cancel", "own")


COMMANDS = (
    "exec long -- id", "shell long", "logs long", "logs long --attempt 1", "status long", "why long", "cancel long",
    "pause long", "suspend long", "resume long", "modify long --time-limit 1m", "wait long --timeout 5s",
    "submit --name x -- true", "ls -A", "usage", "team add {group} --queue closed", "team remove {group}",
)
KUBECTL = (
    "cp {pod}:/etc/hostname stolen", "exec {pod} -- id", "attach {pod}", "port-forward {pod} 8080:8080", "logs {pod}",
    "logs job/long", "describe job long", "get secret key -o yaml", "delete pod {pod}",
    "scale deployment web --replicas 0", "rollout restart deployment web", "expose deployment web --name x --port 80",
    "create token default", "get pods --as {ann}", "get pods --as root --as-group system:masters",
    "top pods", "debug {pod} --image x",
    "annotate job long fairway.dev/active=false", "drain {node}", "cordon {node}", "taint node {node} a=b:NoSchedule",
)


def test_no_command_reaches_what_is_another_s(team: Box) -> None:
    known = {"pod": pod_of(team, "job-name=long"), "ann": team.name("ann"), "node": node_of(team),
             "group": team.groups["vision"]}  # fmt: skip
    before, succeeded = held(team), []
    team.run("bob", "fairway", "login")
    for program, words in [*(("fairway", each) for each in COMMANDS), *(("kubectl", each) for each in KUBECTL)]:
        verb, *rest = words.format(**known).split()
        is_shared = verb in ("usage", "team", "drain", "cordon", "taint") or "-A" in rest
        found = team.tried("bob", program, verb, *([] if is_shared else ["-n", known["ann"]]), *rest)
        said = found.stdout + found.stderr
        is_told = any(words in said for words in ("may not", "cannot", "forbidden"))
        is_refused = found.returncode or "forbidden" in said  # `kubectl cordon` says so, and ends with 0
        if not is_told or not is_refused or WORD in said or "Traceback" in said:
            succeeded.append(f"{program} {words}: {said}")
    assert succeeded == [] and held(team) == before


def test_the_page_shows_a_user_nothing_of_another_s(team: Box) -> None:
    """With its own token; with a part of one, or none, it shows nothing at all."""
    links = {user: team.run(user, "fairway", "dashboard").strip() for user in ("ann", "bob")}
    page = {user: Site(link.partition("/now")[0], link.partition("#token=")[2]) for user, link in links.items()}
    own = f"{team.name('ann')}/job-long"
    views = ("now", "waiting", "queues", "timeline", "usage", "operations", "find?q=long", f"workload/{own}")
    streams = [f"/stream?at=/{view}" for view in views]
    rest = [f"/{it}?workload={own}" for it in ("log", "detail", "helps")]
    assert f"workload/{own}" in json.dumps(page["ann"].ask(team, "ann", streams[6:]))
    answers = page["bob"].ask(team, "bob", [*streams, *rest])
    assert [status for status, _ in answers[:6]] == [200] * 6
    assert not any(word in json.dumps(answers) for word in (WORD, team.name("ann"), pod_of(team, "job-name=long")))
    for token in ("", page["bob"].token[:-4], "x"):
        refused = Site(page["bob"].address, token).ask(team, "bob", [*streams, *rest])
        assert {status for status, _ in refused} == {401}


GET = """
import json, ssl, sys, urllib.request, urllib.error
for path in json.loads(sys.argv[3]):
    asked = urllib.request.Request(sys.argv[1] + path, headers={"authorization": "Bearer " + sys.argv[2]})
    try:
        answer = urllib.request.urlopen(asked, timeout=60, context=ssl._create_unverified_context())
    except urllib.error.HTTPError as error:
        answer = error
    lines = []
    for line in answer:
        lines.append(line.decode())
        if line == b"\\n" and any(it.startswith("event: page") for it in lines):
            break
    print(json.dumps([answer.status, "".join(lines)]))
"""


@dataclass(frozen=True)
class Site:
    """Where HTTP is spoken, and a token to show there."""

    address: str
    token: str

    def ask(self, team: Box, user: str, paths: Sequence[str]) -> list[tuple[int, str]]:
        """Status and text of each answer, of a stream the first whole page."""
        said = team.run(user, "python3", "-c", GET, self.address, self.token, json.dumps(paths))
        return [(status, text) for status, text in map(json.loads, said.splitlines())]
