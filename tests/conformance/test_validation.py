"""What is refused, with the path of the field; what is warned of; what is filled in."""

import time

import pytest


def container(**more) -> dict:
    return {"name": "c", "image": "busybox", "command": ["sleep", "100"]} | more


def pod(name: str = "a", **spec) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [container()], "schedulerName": "nobody"} | spec}


def job(name: str = "j", template: dict | None = None, **spec) -> dict:
    inner = {"restartPolicy": "Never", "containers": [container()]} | (template or {})
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": inner}} | spec}


def fields(status: dict) -> set[str]:
    assert status["reason"] == "Invalid"
    return {each["field"] for each in status["details"]["causes"]}


@pytest.mark.parametrize(("thing", "field"), [
    (pod("Not_A_Name"), "metadata.name"),
    (pod(containers=[]), "spec.containers"),
    (pod(containers=[container(name="Bad_Name")]), "spec.containers[0].name"),
    (pod(containers=[container(), container()]), "spec.containers[1].name"),
    (pod(restartPolicy="Sometimes"), "spec.restartPolicy"),
    (pod(containers=[container(resources={"requests": {"cpu": "-1"}})]), "spec.containers[0].resources.requests[cpu]"),
    (pod(containers=[container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]),
     "spec.containers[0].resources.requests"),
    (pod(containers=[container(env=[{"value": "x"}])]), "spec.containers[0].env[0].name"),
    (pod(containers=[container(volumeMounts=[{"name": "none", "mountPath": "/x"}])]),
     "spec.containers[0].volumeMounts[0].name"),
    (pod(activeDeadlineSeconds=0), "spec.activeDeadlineSeconds"),
    (pod(nodeSelector={"bad key!": "x"}), "spec.nodeSelector"),
    (pod(hostname="x\ny"), "spec.hostname"), (pod(subdomain="a\n127.0.0.1 evil"), "spec.subdomain"),
    *[(pod(volumes=[{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": path}]}}]),
       "spec.volumes[0].configMap.items[0].path") for path in ("", "/etc/x", "a/../../b", "..")],
])
async def test_pods_that_cannot_be_are_refused_with_the_field(api, pods, thing, field):
    status = await api.refused(422, "POST", pods, thing)
    assert field in fields(status)
    name = thing["metadata"]["name"]
    assert status["message"].startswith(f'Pod "{name}" is invalid: ') and status["details"]["kind"] == "Pod"


async def test_a_pod_takes_no_deadline_below_zero_later(api, pods):
    await api.create(pods, pod())
    status = await api.refused(422, "PATCH", f"{pods}/a", {"spec": {"activeDeadlineSeconds": -1}}, media=api.MERGE)
    assert fields(status) == {"spec.activeDeadlineSeconds"}


@pytest.mark.parametrize(("thing", "field"), [
    (job(template={"restartPolicy": "Always"}), "spec.template.spec.restartPolicy"),
    (job(parallelism=-1), "spec.parallelism"),
    (job(completions=-1), "spec.completions"),
    (job(backoffLimit=-1), "spec.backoffLimit"),
    (job(completionMode="Indexed", parallelism=1), "spec.completions"),
    (job(completionMode="Sometimes"), "spec.completionMode"),
    (job(activeDeadlineSeconds=-1), "spec.activeDeadlineSeconds"),
    (job(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished"),
    (job(template={"containers": []}), "spec.template.spec.containers"),
])
async def test_jobs_that_cannot_be_are_refused_with_the_field(api, jobs, thing, field):
    status = await api.refused(422, "POST", jobs, thing)
    assert field in fields(status) and status["details"]["group"] == "batch"


async def test_several_faults_are_told_at_once(api, jobs):
    status = await api.refused(422, "POST", jobs, job(parallelism=-1, backoffLimit=-1))
    assert {"spec.parallelism", "spec.backoffLimit"} <= fields(status)


@pytest.mark.parametrize(("thing", "plural"), [
    ({"metadata": {"name": "a"}, "data": {"bad key!": "x"}}, "configmaps"),
    ({"metadata": {"name": "a"}, "data": {"x": "not base64!"}}, "secrets"),
    ({"metadata": {"name": "a", "labels": {"x": "y" * 64}}}, "configmaps"),
    ({"metadata": {"name": "a", "annotations": {"bad key!": "x"}}}, "configmaps"),
    ({"metadata": {"name": "a", "ownerReferences": [{"kind": "X"}]}}, "configmaps"),
    ({"metadata": {"name": "a", "finalizers": ["no-domain"]}}, "configmaps"),
])
async def test_other_objects_that_cannot_be_are_refused(api, namespace, thing, plural):
    answer = await api.ask("POST", f"/api/v1/namespaces/{namespace}/{plural}", thing)
    assert answer.status in (400, 422) and answer.thing["status"] == "Failure"


async def test_values_of_the_wrong_type_are_refused(api, pods, jobs):
    for path, thing in ((pods, pod(hostNetwork="yes")), (pods, pod(containers="c")), (jobs, job(parallelism="two")),
                        (pods, {"metadata": {"name": "a"}, "spec": []})):
        answer = await api.ask("POST", path, thing)
        assert answer.status in (400, 422), thing


async def test_what_a_pod_is_cannot_be_changed_afterwards(api, pods):
    made = await api.create(pods, pod())
    made["spec"]["containers"][0]["command"] = ["true"]
    status = await api.refused(422, "PUT", f"{pods}/a", made)
    assert "pod updates may not change fields other than" in status["message"]
    image = await api.patch(f"{pods}/a", {"spec": {"containers": [{"name": "c", "image": "other"}]}}, api.STRATEGIC)
    assert image["spec"]["containers"][0]["image"] == "other"


async def test_what_a_job_is_cannot_be_changed_afterwards(api, jobs):
    await api.create(jobs, job(completions=2, parallelism=1))
    for change, field in (({"completionMode": "Indexed"}, "spec.completionMode"),
                          ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector")):
        status = await api.refused(422, "PATCH", f"{jobs}/j", {"spec": change}, media=api.MERGE)
        assert any(each.startswith(field) for each in fields(status)) and "immutable" in status["message"]
    changed = await api.patch(f"{jobs}/j", {"spec": {"parallelism": 2}})
    assert changed["spec"]["parallelism"] == 2


async def test_a_priority_class_cannot_change_its_value(api, namespace):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.create(path, {"metadata": {"name": namespace}, "value": 5})
    try:
        status = await api.refused(422, "PATCH", f"{path}/{namespace}", {"value": 6}, media=api.MERGE)
        assert fields(status) == {"value"}
        await api.refused(422, "POST", path, {"metadata": {"name": f"{namespace}-x"}, "value": 2_000_000_000})
    finally:
        await api.delete(f"{path}/{namespace}")


async def test_a_priority_class_gives_pods_their_priority(api, pods, namespace):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.create(path, {"metadata": {"name": namespace}, "value": 5})
    try:
        made = await api.create(pods, pod(priorityClassName=namespace))
        assert made["spec"]["priority"] == 5 and made["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
        status = await api.refused(403, "POST", pods, pod("b", priorityClassName="none-such"))
        assert "no PriorityClass with name none-such was found" in status["message"]
        await api.refused(403, "POST", pods, pod("c", priorityClassName=namespace, priority=6))
    finally:
        await api.delete(f"{path}/{namespace}")


async def test_immutable_maps_stay_as_they_are(api, maps):
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}, "immutable": True})
    for patch in ({"data": {"x": "2"}}, {"immutable": False}):
        status = await api.refused(422, "PATCH", f"{maps}/a", patch, media=api.MERGE)
        assert "immutable" in status["message"]
    assert (await api.patch(f"{maps}/a", {"metadata": {"labels": {"x": "1"}}}))["data"] == {"x": "1"}


# -- unknown fields

async def test_unknown_fields_are_refused_where_that_is_asked(api, pods):
    thing = pod()
    thing["spec"]["contaners"] = []
    thing["spec"]["containers"][0]["imagee"] = "x"
    status = await api.refused(400, "POST", pods, thing, fieldValidation="Strict")
    assert status["reason"] == "BadRequest" and "strict decoding error" in status["message"]
    assert 'unknown field "spec.contaners"' in status["message"]
    assert 'unknown field "spec.containers[0].imagee"' in status["message"]


@pytest.mark.parametrize(("said", "field"), [
    ({"readinessProbe": {"periodSeconds": 5}}, "readinessProbe"),
    ({"livenessProbe": {"tcpSocket": {"port": 80}, "httpGet": {"port": 80}}}, "livenessProbe.tcpSocket"),
    ({"livenessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2}}, "livenessProbe.successThreshold"),
    ({"readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": -1}}, "readinessProbe.periodSeconds"),
    ({"readinessProbe": {"tcpSocket": {"port": 80000}}}, "readinessProbe.tcpSocket.port"),
    ({"lifecycle": {"preStop": {"exec": {}}}}, "lifecycle.preStop.exec.command"),
])
async def test_probes_and_hooks_that_make_no_sense_are_refused_by_their_field(api, pods, said, field):
    status = await api.refused(422, "POST", pods, pod(containers=[container(**said)]))
    assert f"spec.containers[0].{field}" in [each["field"] for each in status["details"]["causes"]]


async def test_probes_are_completed(api, pods):
    made = await api.create(pods, pod(containers=[container(readinessProbe={"httpGet": {"port": 80}})]))
    assert made["spec"]["containers"][0]["readinessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
        "successThreshold": 1, "failureThreshold": 3}


async def test_a_plain_init_container_has_no_probes(api, pods):
    made = pod(initContainers=[container(name="i", readinessProbe={"tcpSocket": {"port": 80}})])
    status = await api.refused(422, "POST", pods, made)
    assert "spec.initContainers[0].readinessProbe" in [each["field"] for each in status["details"]["causes"]]


async def test_unknown_fields_are_warned_of_and_dropped_else(api, pods):
    answer = await api.ask("POST", pods, pod() | {"speck": {}}, fieldValidation="Warn")
    assert answer.status == 201 and "speck" not in answer.thing
    assert 'unknown field \\"speck\\"' in answer.headers["warning"]
    answer = await api.ask("POST", pods, pod("b") | {"speck": {}}, fieldValidation="Ignore")
    assert answer.status == 201 and "warning" not in answer.headers and "speck" not in answer.thing


async def test_repeated_fields_are_refused_where_that_is_asked(api, maps):
    body = b'{"metadata":{"name":"a"},"data":{"x":"1"},"data":{"x":"2"}}'
    status = await api.refused(400, "POST", maps, body, fieldValidation="Strict")
    assert 'duplicate field "data"' in status["message"]


async def test_patches_are_validated_as_strictly(api, pods):
    await api.create(pods, pod())
    for media in (api.MERGE, api.STRATEGIC):
        answer = await api.ask("PATCH", f"{pods}/a", {"spec": {"nodeNme": "x"}}, media=media, fieldValidation="Strict")
        assert answer.status in (400, 422) and 'unknown field "spec.nodeNme"' in answer.thing["message"]


async def test_only_three_ways_of_validation_are_known(api, maps):
    answer = await api.ask("POST", maps, {"metadata": {"name": "a"}}, fieldValidation="Loose")
    assert answer.status in (400, 422)


async def test_what_nothing_acts_on_is_kept_with_a_warning(api, namespace):
    if "fairway" not in (await api.get("/version"))["gitVersion"]:
        pytest.skip("a whole Kubernetes acts on every kind of its own")
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    answer = await api.ask("POST", quotas, {"metadata": {"name": "q"}, "spec": {}})
    assert answer.status == 201 and "nothing acts on them" in answer.headers["warning"]
    assert (await api.get(f"{quotas}/q"))["metadata"]["name"] == "q"
    quiet = await api.ask("POST", f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 80}]}})
    assert quiet.status == 201 and "warning" not in quiet.headers


@pytest.mark.parametrize(("said", "shown"), [
    (2, "2"), (0.5, "500m"), ("1000m", "1"), ("0.1", "100m"), ("2000", "2k"), ("1024Mi", "1Gi"), ("0.5Gi", "512Mi"),
    ("1.5Gi", "1536Mi"), ("1e4", "10e3"), ("1.5k", "1500"), ("1048576", "1048576"), ("0", "0"),
    ("0.001Gi", "1073741824m"),
])
async def test_quantities_are_shown_in_one_way(api, pods, said, shown):
    made = await api.create(pods, pod(containers=[container(resources={"requests": {"memory": said}})]), dryRun="All")
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"memory": shown}


@pytest.mark.parametrize("said", ["abc", "", "1 Gi", "1Kb", True])
async def test_what_is_no_quantity_is_a_bad_request(api, pods, said):
    thing = pod(containers=[container(resources={"requests": {"cpu": said}})])
    status = await api.refused(400, "POST", pods, thing)
    assert status["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert "quantities must match the regular expression" in status["message"]


# -- defaults

async def test_pods_get_their_defaults(api, pods):
    made = await api.create(pods, pod(containers=[container(
        ports=[{"containerPort": 80}], resources={"limits": {"cpu": "2"}})]))
    spec, first = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["dnsPolicy"]) == (
        "Always", 30, "ClusterFirst")
    assert first["imagePullPolicy"] == "Always" and first["terminationMessagePath"] == "/dev/termination-log"
    assert first["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert first["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
    assert made["status"]["phase"] == "Pending" and made["status"]["qosClass"] == "Burstable"


async def test_a_limit_range_fills_in_what_containers_do_not_say(api, namespace, pods):
    item = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"memory": "1Gi"}}
    said = {"metadata": {"name": "r"}, "spec": {"limits": [item]}}
    made = await api.create(f"/api/v1/namespaces/{namespace}/limitranges", said)
    usual = {"memory": "1Gi", "cpu": "2"}
    assert made["spec"]["limits"][0]["defaultRequest"] == usual
    containers = [container(), container(name="d", resources={"limits": {"cpu": "1"}})]
    whole = [{"limits": {"cpu": "2"}, "requests": usual}, {"limits": {"cpu": "1"}, "requests": {**usual, "cpu": "1"}}]
    end, found = time.monotonic() + 20, {}
    while [one["resources"] for one in found.get("spec", {}).get("containers", ())] != whole:
        assert time.monotonic() < end, found
        found = await api.create(pods, pod(containers=containers), dryRun="All")  # a server may have yet to hear of it
    assert found["status"]["qosClass"] == "Burstable"


async def test_jobs_get_their_defaults(api, jobs):
    made = await api.create(jobs, job())
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["completionMode"] == "NonIndexed"
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == uid


async def test_secrets_take_texts_and_show_them_encoded(api, namespace):
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    made = await api.create(secrets, {"metadata": {"name": "s"}, "stringData": {"x": "hello"}, "data": {"y": "aGk="}})
    assert made["data"] == {"x": "aGVsbG8=", "y": "aGk="} and made["type"] == "Opaque" and "stringData" not in made


async def test_namespaces_are_labelled_with_their_name(api, namespace):
    made = await api.get(f"/api/v1/namespaces/{namespace}")
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace
    assert made["status"]["phase"] == "Active" and made["spec"]["finalizers"] == ["kubernetes"]


async def test_null_is_as_good_as_absent(api, pods):
    thing = pod(nodeSelector=None, containers=[container(env=None, resources={"limits": None})])
    thing["metadata"]["creationTimestamp"] = None
    made = await api.create(pods, thing, fieldValidation="Strict")
    assert "nodeSelector" not in made["spec"] and "env" not in made["spec"]["containers"][0]
