"""status, binding, eviction: what each may write, and what it leaves alone."""

import pytest

CONTAINERS = [{"name": "c", "image": "i", "command": ["sleep", "100"]}]


def pod(name: str, labels: dict | None = None, **spec) -> dict:
    return {"metadata": {"name": name, "labels": labels or {}},
            "spec": {"containers": CONTAINERS, "schedulerName": "nobody"} | spec}


def binding(name: str, node: str) -> dict:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}}


def eviction(name: str, **options) -> dict:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


@pytest.fixture
async def node(api, namespace):
    """A node that no pod is put on by others."""
    await api.create("/api/v1/nodes", {"metadata": {"name": namespace}, "spec": {"unschedulable": True}})
    yield namespace
    await api.ask("DELETE", f"/api/v1/nodes/{namespace}")


async def test_status_and_spec_are_written_apart(api, pods):
    made = await api.create(pods, {**pod("a"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    written = await api.replace(f"{pods}/a/status", {**made, "status": {"phase": "Running", "message": "hello"},
                                                     "spec": {**made["spec"], "activeDeadlineSeconds": 5}})
    assert written["status"]["message"] == "hello" and "activeDeadlineSeconds" not in written["spec"]
    written["status"] = {"phase": "Failed"}
    written["spec"]["activeDeadlineSeconds"] = 5
    after = await api.replace(f"{pods}/a", written)
    assert after["status"]["message"] == "hello" and after["spec"]["activeDeadlineSeconds"] == 5
    assert (await api.get(f"{pods}/a/status"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_status_is_patched_apart(api, pods):
    await api.create(pods, pod("a"))
    patched = await api.patch(f"{pods}/a/status", {"status": {"message": "one"}, "spec": {"activeDeadlineSeconds": 5}})
    assert patched["status"]["message"] == "one" and "activeDeadlineSeconds" not in patched["spec"]
    patched = await api.patch(f"{pods}/a", {"status": {"message": "two"}, "metadata": {"labels": {"x": "1"}}})
    assert patched["status"]["message"] == "one" and patched["metadata"]["labels"]["x"] == "1"


async def test_the_generation_counts_changes_of_the_spec_alone(api, jobs):
    template = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
    made = await api.create(jobs, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}})
    assert made["metadata"]["generation"] == 1
    labelled = await api.patch(f"{jobs}/j", {"metadata": {"labels": {"x": "1"}}})
    assert labelled["metadata"]["generation"] == 1
    changed = await api.patch(f"{jobs}/j", {"spec": {"parallelism": 2}})
    assert changed["metadata"]["generation"] == 2
    await api.delete(f"{jobs}/j", {"propagationPolicy": "Background"})


async def test_a_binding_gives_a_pod_its_node_once(api, pods, node):
    await api.create(pods, pod("a"))
    answer = await api.create(f"{pods}/a/binding", binding("a", node))
    assert answer["status"] == "Success"
    bound = await api.get(f"{pods}/a")
    assert bound["spec"]["nodeName"] == node
    assert ("PodScheduled", "True") in {(each["type"], each["status"]) for each in bound["status"]["conditions"]}
    status = await api.refused(409, "POST", f"{pods}/a/binding", binding("a", node))
    assert status["reason"] == "Conflict" and "is already assigned to node" in status["message"]
    await api.ask("DELETE", f"{pods}/a", gracePeriodSeconds=0)


async def test_a_pod_with_a_gate_is_not_bound(api, pods, node):
    await api.create(pods, pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    status = await api.refused(409, "POST", f"{pods}/a/binding", binding("a", node))
    assert "schedulingGates" in status["message"]
    await api.patch(f"{pods}/a", {"spec": {"schedulingGates": None}})
    await api.create(f"{pods}/a/binding", binding("a", node))
    await api.ask("DELETE", f"{pods}/a", gracePeriodSeconds=0)


async def test_gates_are_taken_away_and_not_added(api, pods):
    await api.create(pods, pod("a"))
    status = await api.refused(
        422, "PATCH", f"{pods}/a", {"spec": {"schedulingGates": [{"name": "example.com/late"}]}}, media=api.MERGE)
    assert any(each["field"].startswith("spec.schedulingGates") for each in status["details"]["causes"])


async def test_a_pod_that_is_not_there_is_not_bound(api, pods, node):
    await api.refused(404, "POST", f"{pods}/none/binding", binding("none", node))


async def test_an_eviction_deletes_the_pod(api, pods):
    await api.create(pods, pod("a"))
    answer = await api.create(f"{pods}/a/eviction", eviction("a"))
    assert answer["status"] == "Success"
    await api.refused(404, "GET", f"{pods}/a")


async def test_an_eviction_holds_to_the_delete_options(api, pods, node):
    await api.create(pods, pod("a", nodeName=node))
    await api.create(f"{pods}/a/eviction", eviction("a", gracePeriodSeconds=7))
    left = await api.ask("GET", f"{pods}/a")
    assert left.status == 404 or left.thing["metadata"]["deletionGracePeriodSeconds"] == 7
    await api.ask("DELETE", f"{pods}/a", gracePeriodSeconds=0)


async def _running(api, path: str) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    await api.patch(f"{path}/status", {"status": {"phase": "Running", "conditions": ready}}, api.STRATEGIC)


async def test_an_eviction_asks_the_budget(api, pods, namespace, node):
    """On a bare kube-apiserver nobody counts for the budget, so the test says in its status what was counted."""
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await api.create(budgets, {"metadata": {"name": "b"}, "spec": {
        "minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}})

    async def counted(healthy: int) -> None:
        status = {"observedGeneration": 1, "disruptionsAllowed": max(healthy - 2, 0), "currentHealthy": healthy,
                  "desiredHealthy": 2, "expectedPods": healthy}
        await api.patch(f"{budgets}/b/status", {"status": status})

    for name in "ab":
        await api.create(pods, pod(name, {"app": "x"}, nodeName=node))
        await _running(api, f"{pods}/{name}")
    await counted(2)
    status = await api.refused(429, "POST", f"{pods}/a/eviction", eviction("a"))
    assert status["reason"] == "TooManyRequests"
    assert "Cannot evict pod as it would violate the pod's disruption budget" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await api.create(pods, pod("c", {"app": "x"}, nodeName=node))
    await _running(api, f"{pods}/c")
    await counted(3)
    await api.create(f"{pods}/a/eviction", eviction("a"))
    left = await api.ask("GET", f"{pods}/a")
    assert left.status == 404 or left.thing["metadata"]["deletionTimestamp"]
    for name in "abc":
        await api.ask("DELETE", f"{pods}/{name}", gracePeriodSeconds=0)


async def test_a_dry_run_of_an_eviction_evicts_nothing(api, pods):
    await api.create(pods, pod("a"))
    await api.create(f"{pods}/a/eviction", eviction("a", dryRun=["All"]))
    assert "deletionTimestamp" not in (await api.get(f"{pods}/a"))["metadata"]


async def test_subresources_that_a_kind_does_not_have_are_not_found(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}})
    for name in ("status", "scale", "binding"):
        assert (await api.ask("GET", f"{maps}/a/{name}")).status == 404


async def test_the_log_of_a_pod_that_does_not_exist_is_not_found(api, pods):
    await api.refused(404, "GET", f"{pods}/none/log")


async def test_the_log_asks_for_a_container_where_there_are_several(api, pods):
    two = [{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]
    await api.create(pods, pod("a", containers=two))
    status = await api.refused(400, "GET", f"{pods}/a/log")
    assert "a container name must be specified for pod a, choose one of: [one two]" in status["message"]
    status = await api.refused(400, "GET", f"{pods}/a/log", container="three")
    assert "container three is not valid for pod a" in status["message"]
