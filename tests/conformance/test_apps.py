"""Deployments, StatefulSets and CronJobs on a cluster that runs pods, as kubectl's users know them."""

import pytest

pytestmark = pytest.mark.whole_cluster


def workload(name: str, replicas: int, image: str = "busybox:1.35", **spec) -> dict:
    container = {"name": "c", "image": image, "command": ["sleep", "600"],
                 "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
    template = {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template} | spec
    return {"metadata": {"name": name}, "spec": body}


def settled(**status):
    """Whether a status says so of the latest spec."""
    def test(thing: dict | None) -> bool:
        said = (thing or {}).get("status", {})
        is_latest = said.get("observedGeneration") == thing["metadata"]["generation"] if thing else False
        return is_latest and all(said.get(name, 0) == value for name, value in status.items())
    return test


async def images(api, pods: str) -> list[str]:
    found = (await api.get(pods))["items"]
    return [each["spec"]["containers"][0]["image"] for each in found if "deletionTimestamp" not in each["metadata"]]


async def test_a_deployment_rolls_to_a_new_template_and_back(api, pods, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    done = settled(replicas=2, updatedReplicas=2, availableReplicas=2)
    await api.create(path, workload("web", 2))
    await api.until(path, "web", done)
    for image in ("busybox:1.36", "busybox:1.35"):
        change = {"spec": {"template": workload("web", 2, image)["spec"]["template"]}}
        await api.patch(f"{path}/web", change)
        await api.until(path, "web", done)
        assert await images(api, pods) == [image] * 2
    sets = (await api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets"))["items"]
    revisions = [each["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for each in sets]
    assert sorted(revisions) == ["2", "3"] and sorted(each["spec"]["replicas"] for each in sets) == [0, 2]


async def test_a_deployment_is_scaled_by_its_subresource(api, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    await api.create(path, workload("web", 1))
    await api.until(path, "web", settled(availableReplicas=1))
    scale = await api.get(f"{path}/web/scale")
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "app=web")
    await api.patch(f"{path}/web/scale", {"spec": {"replicas": 3}})
    await api.until(path, "web", settled(replicas=3, availableReplicas=3))


async def test_a_scale_is_shown_as_a_table(api, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    await api.create(path, workload("web", 0))
    shown = (await api.ask("GET", f"{path}/web/scale", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).thing
    assert [each["name"] for each in shown["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert shown["rows"][0]["cells"][:3] == ["web", 0, 0]


async def test_a_stateful_set_changes_in_few_fields(api, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    await api.create(path, workload("db", 0, serviceName="db"))
    await api.patch(f"{path}/db", {"spec": {"minReadySeconds": 1}})
    for change in ({"serviceName": "other"}, {"podManagementPolicy": "Parallel"}):
        status = await api.refused(422, "PATCH", f"{path}/db", {"spec": change}, media=api.MERGE)
        assert "updates to statefulset spec for fields other than 'replicas', 'ordinals'" in status["message"]


async def test_a_stateful_set_has_pods_with_names_that_last(api, pods, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    await api.create(path, workload("db", 2, serviceName="db"))
    await api.until(path, "db", settled(replicas=2, readyReplicas=2))
    first = await api.get(f"{pods}/db-0")
    await api.ask("DELETE", f"{pods}/db-0")
    await api.until(pods, "db-0", lambda pod: pod and pod["metadata"]["uid"] != first["metadata"]["uid"])
    await api.until(path, "db", settled(readyReplicas=2))
    await api.patch(f"{path}/db", {"spec": {"replicas": 1}})
    await api.gone(pods, "db-1")
    assert [each["metadata"]["name"] for each in (await api.get(pods))["items"]] == ["db-0"]


@pytest.mark.parametrize("field, change", [
    ("spec.schedule", {"schedule": "61 * * * *"}),
    ("spec.timeZone", {"timeZone": "Mars/Base"}),
    ("spec.concurrencyPolicy", {"concurrencyPolicy": "Sometimes"}),
])
async def test_a_cronjob_that_can_never_begin_is_refused_by_its_field(api, namespace, field, change):
    body = workload("x", 1)["spec"]["template"]["spec"] | {"restartPolicy": "Never"}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": body}}}} | change
    status = await api.refused(422, "POST", f"/apis/batch/v1/namespaces/{namespace}/cronjobs", {
        "metadata": {"name": "night"}, "spec": spec})
    assert field in status["message"]


async def test_a_cronjob_is_refused_for_what_its_jobs_would_be(api, namespace):
    body = workload("x", 1)["spec"]["template"]["spec"] | {"restartPolicy": "Never"}
    job = {"activeDeadlineSeconds": -1, "template": {"spec": body}}
    status = await api.refused(422, "POST", f"/apis/batch/v1/namespaces/{namespace}/cronjobs", {
        "metadata": {"name": "night"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job}}})
    field = "spec.jobTemplate.spec.activeDeadlineSeconds"
    assert f"{field}: Invalid value: -1: must be greater than or equal to 0" in status["message"]


async def test_a_template_that_its_selector_does_not_select_is_refused(api, namespace):
    made = workload("web", 1)
    made["spec"]["selector"]["matchLabels"] = {"app": "other"}
    status = await api.refused(422, "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", made)
    assert "selector" in status["message"]


@pytest.mark.kubectl
def test_kubectl_scales_rolls_out_exposes_and_autoscales(kubectl):
    kubectl("create", "deployment", "web", "--image=busybox:1.35", "--", "sleep", "600")
    steps = (("scale", "deployment/web", "--replicas=2"), ("set", "image", "deployment/web", "busybox=busybox:1.36"),
             ("rollout", "undo", "deployment/web"), ("rollout", "restart", "deployment/web"))
    seen = []
    for step in steps:
        kubectl(*step)
        assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        shown = "{.spec.template.spec.containers[0].image} {.status.availableReplicas}"
        seen.append(kubectl("get", "deployment", "web", "-o", f"jsonpath={shown}"))
    assert seen == ["busybox:1.35 2", "busybox:1.36 2", "busybox:1.35 2", "busybox:1.35 2"]
    history = kubectl("rollout", "history", "deployment/web").splitlines()
    assert [line.split()[0] for line in history if line[:1].isdecimal()] == ["2", "3", "4"]
    for verb in ("pause", "resume"):
        assert f"{verb}d" in kubectl("rollout", verb, "deployment/web")
    kubectl("expose", "deployment", "web", "--port=80")
    assert kubectl("get", "service", "web", "-o", "jsonpath={.spec.selector.app}") == "web"
    kubectl("autoscale", "deployment", "web", "--min=2", "--max=3", "--cpu-percent=80")
    assert kubectl("get", "hpa", "web").splitlines()[1].split()[:2] == ["web", "Deployment/web"]
