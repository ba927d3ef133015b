"""HorizontalPodAutoscalers: what they must say, and where pods run and are measured, what they do."""

import pytest

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}


@pytest.fixture
def autoscalers(namespace) -> str:
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"


def autoscaler(**spec) -> dict:
    return {"metadata": {"name": "busy"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 2} | spec}


def cpu(percent: int) -> dict:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


async def test_an_autoscaler_is_completed(api, autoscalers):
    spec = (await api.create(autoscalers, autoscaler()))["spec"]
    assert (spec["minReplicas"], spec["metrics"]) == (1, [cpu(80)])


@pytest.mark.parametrize(("spec", "field"), [
    ({"maxReplicas": 0}, "spec.maxReplicas"),
    ({"minReplicas": 3}, "spec.maxReplicas"),
    ({"minReplicas": 0}, "spec.minReplicas"),
    ({"scaleTargetRef": {"kind": "Deployment", "name": ""}}, "spec.scaleTargetRef.name"),
])
async def test_an_autoscaler_that_makes_no_sense_is_refused_by_its_field(api, autoscalers, spec, field):
    status = await api.refused(422, "POST", autoscalers, autoscaler(**spec))
    assert field in [each["field"] for each in status["details"]["causes"]]


@pytest.mark.whole_cluster
@pytest.mark.usefixtures("logs")
async def test_a_busy_deployment_grows(api, autoscalers, namespace):
    path, labels = f"/apis/apps/v1/namespaces/{namespace}/deployments", {"app": "busy"}
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", "while true; do :; done"],
                 "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    await api.create(path, {"metadata": {"name": "busy"}, "spec": spec})
    await api.until(path, "busy", lambda it: it["status"].get("availableReplicas") == 1)
    await api.create(autoscalers, autoscaler(metrics=[cpu(50)]))
    await api.until(path, "busy", lambda it: it["spec"]["replicas"] == 2)
    shown = await api.until(autoscalers, "busy", lambda it: it.get("status", {}).get("desiredReplicas") == 2)
    assert shown["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] > 50
    assert [(it["type"], it["status"]) for it in shown["status"]["conditions"]] == [("ScalingActive", "True")]


async def test_what_nothing_measures_is_kept_with_a_warning(api, autoscalers):
    if "fairway" not in (await api.get("/version"))["gitVersion"]:
        pytest.skip("a whole Kubernetes may measure it")
    gpus = {"name": "nvidia.com/gpu", "target": {"type": "AverageValue", "averageValue": "1"}}
    answer = await api.ask("POST", autoscalers, autoscaler(metrics=[{"type": "Resource", "resource": gpus}]))
    assert answer.status == 201 and "nothing measures nvidia.com/gpu" in answer.headers["warning"]


@pytest.mark.whole_cluster
@pytest.mark.usefixtures("logs")
async def test_an_autoscaler_without_its_target_says_so(api, autoscalers):
    await api.create(autoscalers, autoscaler())
    shown = await api.until(autoscalers, "busy", lambda it: it.get("status", {}).get("conditions"))
    assert shown["status"]["conditions"][0]["reason"] == "FailedGetScale"
