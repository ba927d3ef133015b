"""Probes, sidecars and hooks on a cluster that runs pods."""

import pytest

pytestmark = pytest.mark.whole_cluster
RESOURCES = {"requests": {"cpu": "10m", "memory": "16Mi"}}


def container(script: str, name: str = "c", **more) -> dict:
    return {"name": name, "image": "busybox:1.36", "command": ["sh", "-c", script], "resources": RESOURCES} | more


def pod(name: str, *containers: dict, **spec) -> dict:
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "restartPolicy": "Always", "containers": containers, "terminationGracePeriodSeconds": 2} | spec}


def asks(script: str, **more) -> dict:
    return {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "timeoutSeconds": 10} | more


def is_ready(thing: dict | None) -> bool:
    found = (thing or {}).get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in found)


async def test_a_pod_is_ready_when_its_probe_says_so_and_restarts_when_it_is_not_alive(api, pods):
    script = "rm -f dead; sleep 600"
    alive, ready = asks("! test -e dead", failureThreshold=1), asks("touch asked; test -e asked")
    await api.create(pods, pod("web", container(script, livenessProbe=alive, readinessProbe=ready)))
    await api.until(pods, "web", is_ready)
    dying = asks("exit 1", failureThreshold=1, initialDelaySeconds=1)
    await api.create(pods, pod("ill", container("sleep 600", livenessProbe=dying)))
    ill = await api.until(pods, "ill", lambda it: it["status"].get("containerStatuses", [{}])[0].get("restartCount"))
    assert ill["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 143
    assert (await api.get(f"{pods}/web"))["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_deployment_waits_for_a_pod_that_is_not_ready(api, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = pod("web", container("sleep 600", readinessProbe=asks("exit 1")))
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]}}
    await api.create(path, {"metadata": {"name": "web"}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    found: list[dict] = []
    while not any(each["status"].get("phase") == "Running" for each in found):
        found = (await api.get(pods, labelSelector="app=web"))["items"]
    status = (await api.get(f"{path}/web"))["status"]
    assert not status.get("readyReplicas") and not status.get("availableReplicas")


async def test_a_pod_is_over_when_all_but_its_sidecars_are(api, pods):
    sidecar = container("trap 'exit 0' TERM; sleep 600 & wait", "side", restartPolicy="Always")
    await api.create(pods, pod("job", container("true"), restartPolicy="Never", initContainers=[sidecar]))
    done = await api.until(pods, "job", lambda it: it["status"].get("phase") in ("Succeeded", "Failed"))
    assert done["status"]["phase"] == "Succeeded"


async def test_what_a_container_says_at_last_is_in_its_status(api, pods):
    script = container("echo it broke; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
    await api.create(pods, pod("job", script, restartPolicy="Never"))
    done = await api.until(pods, "job", lambda it: it["status"].get("phase") == "Failed")
    said = done["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert said.strip() == "it broke"
