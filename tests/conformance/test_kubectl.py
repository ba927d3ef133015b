"""What people do with kubectl, against an API server that runs nothing; nowhere with --validate=false."""

import json
import re

import pytest

pytestmark = pytest.mark.kubectl

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"color": "red"}},
       "data": {"x": "1"}}
CONTAINERS = [{"name": "c", "image": "busybox", "command": ["sleep", "100"]}]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
       "spec": {"containers": CONTAINERS, "restartPolicy": "Never", "schedulerName": "nobody"}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
    "suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}}


def rows(printed: str) -> list[list[str]]:
    """The rows of a table, without its head."""
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()[1:]]


# -- create

def test_create_makes_the_kinds_that_it_posts_as_protobuf(kubectl, namespace):
    assert "configmap/m created" in kubectl("create", "configmap", "m", "--from-literal=a=b")
    assert "secret/s created" in kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert "job.batch/once created" in kubectl("create", "job", "once", "--image=busybox", "--", "sleep", "1")
    assert "namespace/" in kubectl("create", "namespace", f"{namespace}-more")
    assert kubectl("get", "cm", "m", "-o", "jsonpath={.data.a}") == "b"
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.a}") == "Yg=="
    command = kubectl("get", "job", "once", "-o", "jsonpath={.spec.template.spec.containers[0].command}")
    assert json.loads(command) == ["sleep", "1"]
    kubectl("delete", "namespace", f"{namespace}-more", "--wait=false")


def test_create_makes_a_job_from_a_cronjob(kubectl):
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=@yearly", "--", "date")
    assert "job.batch/now created" in kubectl("create", "job", "now", "--from=cronjob/nightly")
    assert kubectl("get", "job", "now", "-o", "jsonpath={.metadata.ownerReferences[0].kind}") == "CronJob"


def test_create_says_what_is_there_already(kubectl):
    kubectl("create", "configmap", "m")
    assert 'configmaps "m" already exists' in kubectl("create", "configmap", "m", code=1)


def test_create_takes_generated_names(kubectl):
    pod = {**POD, "metadata": {"generateName": "gen-"}}
    assert re.search(r"pod/gen-\w{5} created", kubectl("create", "-f", "-", stdin=json.dumps(pod)))


def test_a_dry_run_on_the_server_makes_nothing(kubectl):
    assert "configmap/a created (server dry run)" in kubectl(
        "create", "--dry-run=server", "-f", "-", stdin=json.dumps(MAP))
    assert "NotFound" in kubectl("get", "cm", "a", code=1)


# -- apply

def test_apply_creates_configures_and_leaves_unchanged(kubectl):
    assert "configmap/a created" in kubectl.apply(MAP)
    assert "configmap/a unchanged" in kubectl.apply(MAP)
    assert "configmap/a configured" in kubectl.apply({**MAP, "data": {"y": "2"}})
    assert json.loads(kubectl("get", "cm", "a", "-o", "jsonpath={.data}")) == {"y": "2"}


def test_apply_takes_several_documents_and_lists(kubectl):
    other = {**MAP, "metadata": {"name": "b"}}
    printed = kubectl.apply(MAP, {"apiVersion": "v1", "kind": "List", "items": [other, JOB]})
    assert "configmap/a created" in printed and "configmap/b created" in printed and "job.batch/j created" in printed


def test_apply_merges_built_in_lists_by_their_key(kubectl):
    pod = {**POD, "spec": {**POD["spec"], "tolerations": [{"key": "k", "operator": "Exists"}]}}
    kubectl.apply(pod)
    changed = json.loads(json.dumps(pod))
    changed["spec"]["containers"][0]["image"] = "busybox:2"
    assert "pod/p configured" in kubectl.apply(changed)
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.spec.containers[*].image}") == "busybox:2"


def test_apply_refuses_unknown_fields_and_wrong_values(kubectl):
    printed = kubectl.apply({**POD, "spec": {**POD["spec"], "contaners": []}}, code=1)
    assert 'unknown field "spec.contaners"' in printed
    printed = kubectl.apply({**JOB, "spec": {**JOB["spec"], "parallelism": -1}}, code=1)
    assert "spec.parallelism: Invalid value: -1: must be greater than or equal to 0" in printed
    assert "NotFound" in kubectl("get", "pod", "p", code=1)


def test_apply_on_the_server_tells_conflicts_and_forces(kubectl):
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}

    def apply(manager: str, data: dict, *more: str, code: int = 0) -> str:
        text = json.dumps(thing | {"data": data})
        return kubectl("apply", "--server-side", f"--field-manager={manager}", *more, "-f", "-", stdin=text, code=code)

    assert "configmap/a serverside-applied" in apply("one", {"x": "1"})
    said = apply("two", {"x": "2"}, code=1)
    assert 'Apply failed with 1 conflict: conflict with "one": .data.x' in said
    apply("two", {"x": "2"}, "--force-conflicts")
    assert kubectl("get", "configmap/a", "-o", "jsonpath={.data.x}") == "2"


def test_two_managers_of_one_object_each_keep_their_own_and_take_it_away_again(kubectl):
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}

    def apply(manager: str, *words: str, code: int = 0, **data: str) -> str:
        text = json.dumps({**thing, "data": data})
        return kubectl(*(words or ("apply",)), "--server-side", f"--field-manager={manager}", "-f", "-", stdin=text,
                       code=code)

    def data() -> dict[str, str]:
        return json.loads(kubectl("get", "configmap/a", "-o", "jsonpath={.data}"))

    apply("one", x="1", y="2")
    version = kubectl("get", "configmap/a", "-o", "jsonpath={.metadata.resourceVersion}")
    apply("one", x="1", y="2")
    assert kubectl("get", "configmap/a", "-o", "jsonpath={.metadata.resourceVersion}") == version
    apply("two", z="3")
    assert "+  z: \"4\"" in apply("two", "diff", code=1, z="4")
    assert apply("two", "diff", z="3") == ""
    assert data() == {"x": "1", "y": "2", "z": "3"}
    apply("one", x="1")
    assert data() == {"x": "1", "z": "3"}
    apply("two", w="5")
    assert data() == {"x": "1", "w": "5"}


def test_what_was_applied_by_the_client_goes_on_being_applied_by_the_server(kubectl):
    kubectl.apply({**MAP, "data": {"x": "1", "y": "2"}})
    text = json.dumps({**MAP, "data": {"x": "2"}})
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=text)
    assert json.loads(kubectl("get", "configmap/a", "-o", "jsonpath={.data}")) == {"x": "2"}
    assert "configmap/a configured" in kubectl.apply({**MAP, "data": {"x": "3"}})
    assert json.loads(kubectl("get", "configmap/a", "-o", "jsonpath={.data}")) == {"x": "3"}


def test_diff_shows_what_apply_would_do(kubectl):
    kubectl.apply(MAP)
    changed = json.dumps({**MAP, "data": {"x": "2"}})
    printed = kubectl("diff", "-f", "-", stdin=changed, code=1)
    assert re.search(r"^-  x: \"1\"$", printed, re.M) and re.search(r"^\+  x: \"2\"$", printed, re.M)
    assert kubectl("diff", "-f", "-", stdin=json.dumps(MAP)) == ""


def test_replace_and_edit_write_the_whole_object(kubectl):
    kubectl.apply(MAP)
    assert "configmap/a replaced" in kubectl("replace", "-f", "-", stdin=json.dumps({**MAP, "data": {"z": "3"}}))
    assert "configmap/a edited" in kubectl("edit", "configmap", "a", KUBE_EDITOR="sed -i s/z:/w:/")
    assert json.loads(kubectl("get", "cm", "a", "-o", "jsonpath={.data}")) == {"w": "3"}


# -- get

def test_get_prints_tables(kubectl):
    kubectl.apply(MAP, POD, JOB)
    assert rows(kubectl("get", "cm", "a"))[0][:2] == ["a", "1"]
    assert rows(kubectl("get", "pods"))[0][:4] == ["p", "0/1", "Pending", "0"]
    head, row = kubectl("get", "jobs").splitlines()[:2]
    assert head.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"] and row.split()[0] == "j"
    wide = kubectl("get", "pods", "-o", "wide").splitlines()[0].split()
    assert " ".join(wide) == "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"


def test_get_prints_objects_in_every_form(kubectl):
    kubectl.apply(MAP)
    assert json.loads(kubectl("get", "cm", "a", "-o", "json"))["data"] == {"x": "1"}
    assert "data:\n  x: \"1\"\n" in kubectl("get", "cm", "a", "-o", "yaml")
    assert kubectl("get", "cm/a", "-o", "name") == "configmap/a\n"
    assert kubectl("get", "cm", "a", "-o", "go-template={{.data.x}}") == "1"
    assert kubectl("get", "cm", "a", "-o", "custom-columns=N:.metadata.name,X:.data.x").split() == ["N", "X", "a", "1"]


def test_get_selects_sorts_and_shows_labels(kubectl, namespace):
    blue = {**MAP, "metadata": {"name": "b", "labels": {"color": "blue"}}}
    kubectl.apply(MAP, blue, {**MAP, "metadata": {"name": "c"}})
    assert [row[0] for row in rows(kubectl("get", "cm", "-l", "color in (red,blue)"))] == ["a", "b"]
    assert [row[0] for row in rows(kubectl("get", "cm", "--field-selector", "metadata.name=c"))] == ["c"]
    assert rows(kubectl("get", "cm", "-l", "color", "-L", "color"))[1][-1] == "blue"
    assert "color=red" in kubectl("get", "cm", "a", "--show-labels")
    by_name = kubectl("get", "cm", "-l", "color", "--sort-by=.metadata.creationTimestamp", "-o", "name")
    assert by_name.split() == ["configmap/a", "configmap/b"]
    assert [namespace, "a"] in [row[:2] for row in rows(kubectl("get", "cm", "-A"))]


def test_get_lists_several_kinds_and_pages(kubectl):
    kubectl.apply(MAP, JOB, {**MAP, "metadata": {"name": "b", "labels": {"color": "red"}}})
    assert kubectl("get", "cm,jobs", "-l", "color!=blue", "-o", "name").split()[-1] == "job.batch/j"
    assert kubectl("get", "cm", "-l", "color", "--chunk-size=1", "-o", "name").split() == ["configmap/a", "configmap/b"]


def test_get_says_what_is_not_there(kubectl):
    assert 'pods "none" not found' in kubectl("get", "pod", "none", code=1)
    assert "doesn't have a resource type" in kubectl("get", "whales", code=1)
    assert "No resources found" in kubectl("get", "pods")
    assert kubectl("get", "pod", "none", "--ignore-not-found") == ""


def test_get_watches(kubectl):
    kubectl.apply(MAP)
    with kubectl.start("get", "cm", "a", "--watch", "--output-watch-events") as watching:
        assert watching.stdout.readline().split() == ["EVENT", "NAME", "DATA", "AGE"]
        assert watching.stdout.readline().split()[:3] == ["ADDED", "a", "1"]
        kubectl("patch", "cm", "a", "-p", '{"data":{"y":"2"}}')
        assert watching.stdout.readline().split()[:3] == ["MODIFIED", "a", "2"]
        kubectl("delete", "cm", "a")
        assert watching.stdout.readline().split()[:3] == ["DELETED", "a", "2"]


def test_get_watches_a_kind(kubectl):
    with kubectl.start("get", "pods", "--watch", "-o", "name") as watching:
        kubectl.apply(POD)
        assert watching.stdout.readline() == "pod/p\n"


# -- describe

def test_describe_tells_of_objects_and_their_events(kubectl, namespace):
    kubectl.apply(MAP, POD, JOB)
    uid = kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": namespace, "uid": uid}
    kubectl.apply({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "reason": "Odd",
        "message": "it is odd", "involvedObject": about})
    assert re.search(r"^x:\n-+\n1$", kubectl("describe", "configmap", "a"), re.M)
    printed = kubectl("describe", "pod", "p")
    assert re.search(r"Status:\s+Pending", printed) and re.search(r"Warning\s+Odd\s.*it is odd", printed)
    assert re.search(r"Parallelism:\s+1", kubectl("describe", "job", "j"))
    assert re.search(r"Status:\s+Active", kubectl("describe", "namespace", namespace))
    assert "Odd" in kubectl("get", "events") and "it is odd" in kubectl("events")


# -- change

def test_label_and_annotate_set_and_remove(kubectl):
    kubectl.apply(MAP)
    assert "configmap/a labeled" in kubectl("label", "cm", "a", "size=1")
    assert "already has a value" in kubectl("label", "cm", "a", "size=2", code=1)
    kubectl("label", "cm", "a", "size=2", "--overwrite")
    assert "unlabeled" in kubectl("label", "cm", "a", "color-")
    assert "configmap/a annotate" in kubectl("annotate", "cm", "a", "why=because")
    about = json.loads(kubectl("get", "cm", "a", "-o", "json"))["metadata"]
    assert about["labels"] == {"size": "2"} and about["annotations"]["why"] == "because"


@pytest.mark.parametrize(("kind", "patch"), [
    ("strategic", '{"spec":{"activeDeadlineSeconds":7}}'), ("merge", '{"spec":{"activeDeadlineSeconds":7}}'),
    ("json", '[{"op":"add","path":"/spec/activeDeadlineSeconds","value":7}]')])
def test_patch_of_every_sort(kubectl, kind, patch):
    kubectl.apply(POD)
    assert "pod/p patched" in kubectl("patch", "pod", "p", f"--type={kind}", "-p", patch)
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.spec.activeDeadlineSeconds}") == "7"
    assert "pod/p patched (no change)" in kubectl("patch", "pod", "p", f"--type={kind}", "-p", patch)


def test_patch_of_a_status(kubectl):
    kubectl.apply(POD)
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", '{"status":{"message":"hello"}}')
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.status.message}") == "hello"


def test_set_changes_templates(kubectl):
    kubectl("create", "deployment", "d", "--image=one", "--replicas=0")
    assert "image updated" in kubectl("set", "image", "deployment/d", "one=two")
    kubectl("set", "env", "deployment/d", "A=1")
    spec = json.loads(kubectl("get", "deployment", "d", "-o", "json"))["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "two" and spec["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_cordon_taint_and_drain(kubectl, namespace, api):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}, "spec": {"unschedulable": True}}
    kubectl.apply(node)
    try:
        assert f"node/{namespace} uncordoned" in kubectl("uncordon", namespace)
        assert f"node/{namespace} cordoned" in kubectl("cordon", namespace)
        assert "SchedulingDisabled" in kubectl("get", "node", namespace)
        assert "tainted" in kubectl("taint", "node", namespace, "k=v:NoSchedule")
        kubectl.apply({**POD, "spec": {**POD["spec"], "nodeName": namespace, "terminationGracePeriodSeconds": 0}})
        printed = kubectl("drain", namespace, "--force", "--ignore-daemonsets", "--timeout=20s")
        assert "pod/p evicted" in printed and f"node/{namespace} drained" in printed
    finally:
        kubectl("delete", "node", namespace)


# -- delete and wait

def test_delete_by_name_selector_and_file(kubectl):
    kubectl.apply(MAP, {**MAP, "metadata": {"name": "b", "labels": {"color": "blue"}}}, JOB)
    assert 'configmap "b" deleted' in kubectl("delete", "cm", "-l", "color=blue")
    assert 'configmap "a" deleted' in kubectl("delete", "-f", "-", stdin=json.dumps(MAP))
    assert 'job.batch "j" deleted' in kubectl("delete", "job", "j", "--wait=false")
    assert "NotFound" in kubectl("delete", "cm", "a", code=1)
    assert kubectl("delete", "cm", "a", "--ignore-not-found") == ""


def test_delete_waits_for_finalizers(kubectl):
    kubectl.apply({**MAP, "metadata": {"name": "held", "finalizers": ["example.com/one"]}})
    with kubectl.start("delete", "cm", "held") as deleting:
        kubectl("wait", "cm/held", "--for=jsonpath={.metadata.deletionGracePeriodSeconds}=0", "--timeout=20s")
        assert deleting.poll() is None
        kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert 'configmap "held" deleted' in deleting.communicate(timeout=20)[0]
    assert deleting.returncode == 0


def test_wait_for_conditions_values_and_deletion(kubectl):
    kubectl.apply(POD)
    with kubectl.start("wait", "pod/p", "--for=condition=Ready", "--timeout=20s") as waiting:
        kubectl("patch", "pod", "p", "--subresource=status", "-p",
                '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}')
        assert "pod/p condition met" in waiting.communicate(timeout=20)[0]
    assert "condition met" in kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Running", "--timeout=20s")
    with kubectl.start("wait", "pod/p", "--for=delete", "--timeout=20s") as waiting:
        kubectl("delete", "pod", "p")
        assert waiting.wait(20) == 0


def test_wait_gives_up_in_time(kubectl):
    kubectl.apply(POD)
    assert "timed out waiting for the condition on pods/p" in kubectl(
        "wait", "pod/p", "--for=condition=Ready", "--timeout=1s", code=1)


# -- learn

def test_explain_tells_the_fields(kubectl):
    printed = kubectl("explain", "job.spec.template.spec.containers")
    assert "KIND:" in printed and re.search(r"^\s+image\s+<string>", printed, re.M)
    assert re.search(r"^FIELD: parallelism <integer>", kubectl("explain", "job.spec.parallelism"), re.M)
    assert "backoffLimit" in kubectl("explain", "job", "--recursive")
    assert 'field "nope" does not exist' in kubectl("explain", "job.nope", code=1)


def test_api_resources_lists_the_kinds(kubectl):
    printed = kubectl("api-resources")
    assert re.search(r"^pods\s+po\s+v1\s+true\s+Pod$", printed, re.M)
    assert re.search(r"^jobs\s+batch/v1\s+true\s+Job$", printed, re.M)
    assert re.search(r"^nodes\s+no\s+v1\s+false\s+Node$", printed, re.M)
    names = kubectl("api-resources", "--api-group=batch", "-o", "name").split()
    assert {"cronjobs.batch", "jobs.batch"} == set(names)
    assert "batch/v1\n" in kubectl("api-versions")


def test_auth_can_i_and_whoami_are_answered(kubectl):
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "yes\n" in kubectl("auth", "can-i", "get", "nodes")
    assert "*.*" in kubectl("auth", "can-i", "--list")
    if kubectl.minor >= 28:  # before, it asked for a beta of the review
        assert "Username" in kubectl("auth", "whoami")


def test_version_and_cluster_info(kubectl):
    assert re.search(r"Server Version: .*v1\.\d+", kubectl("version"))
    assert "is running at" in kubectl("cluster-info")
    assert json.loads(kubectl("get", "--raw", "/api"))["kind"] == "APIVersions"


# -- custom kinds

def test_custom_kinds_work_like_the_others(kubectl, namespace):
    group = f"{namespace}.example.com"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "description": "How large it is.", "minimum": 1}}}}}
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {
        "name": f"toys.{group}"}, "spec": {"group": group, "scope": "Namespaced", "names": {
            "plural": "toys", "singular": "toy", "kind": "Toy"}, "versions": [{
                "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": columns}]}}
    toy = {"apiVersion": f"{group}/v1", "kind": "Toy", "metadata": {"name": "t"}, "spec": {"size": 3}}
    kubectl.apply(crd)
    try:
        kubectl("wait", f"crd/toys.{group}", "--for=condition=Established", "--timeout=20s")
        assert "created" in kubectl.apply(toy)
        assert kubectl("get", f"toys.{group}").split()[:4] == ["NAME", "SIZE", "t", "3"]
        assert "configured" in kubectl.apply({**toy, "spec": {"size": 4}})
        assert "spec.size" in kubectl.apply({**toy, "spec": {"size": 0}}, code=1)
        assert 'unknown field "spec.sise"' in kubectl.apply({**toy, "spec": {"sise": 0}}, code=1)
        assert "How large it is." in kubectl("explain", "toys.spec.size", f"--api-version={group}/v1")
        kubectl("delete", f"toys.{group}", "t")
    finally:
        kubectl("delete", "crd", f"toys.{group}")
