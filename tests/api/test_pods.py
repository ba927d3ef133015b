"""What placement reads of a pod is what Kubernetes would do with it."""

import pytest

from fairway.api.decode import decode
from fairway.api.objects import PodObject, PodTemplate
from fairway.api.pods import Surroundings, foreign, pod_class, requests_of
from fairway.api.quantities import Malformed
from fairway.engine.labels import selects
from fairway.engine.model import Expression, PodAffinity, Preference, Spread, Term, Toleration

HOST = "kubernetes.io/hostname"


def read(spec=None, around=None, **meta):
    template = decode({"metadata": meta, "spec": spec or {}}, PodTemplate)
    return pod_class(template, "ns", around or Surroundings())


def asking(**resources):
    return {"resources": {"requests": resources}}


@pytest.mark.parametrize(
    "spec, expected",
    [
        ({"containers": [asking(cpu="1"), asking(cpu="500m")]}, 1500),
        ({"containers": [asking(cpu="1")], "initContainers": [asking(cpu="3"), asking(cpu="2")]}, 3000),
        ({"containers": [asking(cpu="4")], "initContainers": [asking(cpu="3")]}, 4000),
        ({"containers": [asking(cpu="1")], "initContainers": [{"restartPolicy": "Always", **asking(cpu="2")}]}, 3000),
        (
            {
                "containers": [asking(cpu="1")],
                "initContainers": [{"restartPolicy": "Always", **asking(cpu="2")}, asking(cpu="2")],
            },
            4000,
        ),
        (
            {
                "containers": [asking(cpu="1")],
                "initContainers": [asking(cpu="2"), {"restartPolicy": "Always", **asking(cpu="1")}],
            },
            2000,
        ),
        ({"containers": [asking(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1000),
        ({"containers": [asking(cpu="1"), asking(cpu="1")], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [asking(cpu="2")], "resources": {"limits": {"cpu": "8"}}}, 2000),
        ({"containers": [{}], "resources": {"limits": {"cpu": "8"}}}, 8000),
        ({"containers": [asking(cpu="2")], "resources": {"limits": {"cpu": "8"}, "requests": {"cpu": "3"}}}, 3000),
    ],
)
def test_requests_are_the_sum_that_kubernetes_makes(spec, expected):
    assert dict(read(spec).requests) == {"cpu": expected}


def test_nothing_asked_is_nothing_and_zeros_are_dropped():
    assert read({}).requests == ()
    assert read({"containers": [asking(cpu=0)]}).requests == ()


def test_a_fraction_takes_the_place_of_whole_gpus():
    shared = read(
        {"containers": [asking(**{"nvidia.com/gpu": 1, "cpu": 1})]}, annotations={"fairway.dev/gpu-fraction": "0.25"}
    )
    assert (shared.gpu_fraction, dict(shared.requests)) == (250, {"cpu": 1000})
    assert read(annotations={"fairway.dev/gpu-memory": "10Gi"}).gpu_memory == 10 * 2**30


@pytest.mark.parametrize(
    "annotations",
    [
        {"fairway.dev/gpu-fraction": "0"},
        {"fairway.dev/gpu-fraction": "1"},
        {"fairway.dev/gpu-fraction": "-0.5"},
        {"fairway.dev/gpu-fraction": "half"},
        {"fairway.dev/gpu-memory": "0"},
        {"fairway.dev/gpu-memory": "-1Gi"},
        {"fairway.dev/gpu-fraction": "0.5", "fairway.dev/gpu-memory": "1Gi"},
    ],
)
def test_a_fraction_outside_of_zero_and_one_is_refused(annotations):
    with pytest.raises(Malformed, match=r"metadata\.annotations\[fairway\.dev/gpu-"):
        read(annotations=annotations)


def test_pods_alike_are_equal_whatever_their_job_is_called():
    one = read(labels={"app": "x", "job-name": "a", "batch.kubernetes.io/controller-uid": "1"})
    other = read(labels={"app": "x", "job-name": "b", "batch.kubernetes.io/controller-uid": "2"})
    assert one == other
    assert one.labels == (("app", "x"),)


def test_a_generated_label_stays_where_the_pod_asks_for_it():
    spread = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"job-name": "a"}},
    }
    assert read({"topologySpreadConstraints": [spread]}, labels={"job-name": "a"}).labels == (("job-name", "a"),)


def test_node_affinity_and_selectors_are_read():
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]
    preferred = [{"weight": 5, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}]
    found = read(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                }
            },
        }
    )
    assert found.node_selector == (("a", "1"), ("b", "2"))
    assert found.affinity == (
        Term((Expression("zone", "In", ("a", "b")),)),
        Term(fields=(Expression("metadata.name", "In", ("n1",)),)),
    )
    assert found.preferences == (Preference(5, Term((Expression("ssd", "Exists"),))),)


def test_tolerations_and_host_ports_are_read():
    containers = [
        {"ports": [{"hostPort": 80, "containerPort": 8080}, {"containerPort": 9090}]},
        {"ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
    ]
    found = read(
        {
            "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute"}],
            "containers": containers,
        }
    )
    assert found.tolerations == (Toleration(operator="Exists"), Toleration("a", "Equal", "b", "NoExecute"))
    assert found.host_ports == (("0.0.0.0", "TCP", 80), ("10.0.0.1", "UDP", 53))
    on_host = read({"containers": containers[:1], "hostNetwork": True})
    assert {port for _, _, port in on_host.host_ports} == {80, 9090}


def test_pod_affinity_is_read_with_its_namespaces():
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}}
    around = Surroundings(namespaces={"ns": {}, "blue": {"color": "blue"}, "red": {"color": "red"}})
    found = read(
        {
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        term,
                        {**term, "namespaceSelector": {}},
                        {**term, "namespaceSelector": {"matchLabels": {"color": "blue"}}},
                        {"topologyKey": HOST},
                        {**term, "matchLabelKeys": ["v"], "mismatchLabelKeys": ["w"]},
                    ]
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]
                },
            }
        },
        around,
        labels={"v": "1", "w": "2"},
    )
    app = (Expression("app", "In", ("x",)),)
    assert found.pod_affinity == (
        PodAffinity(app, HOST),
        PodAffinity(app, HOST, any_namespace=True),
        PodAffinity(app, HOST, ("blue",)),
        PodAffinity(None, HOST),
        PodAffinity((*app, Expression("v", "In", ("1",)), Expression("w", "NotIn", ("2",))), HOST),
        PodAffinity(app, HOST, anti=True, weight=7),
    )


def test_a_namespace_selector_that_nobody_meets_means_no_namespace():
    term = {"topologyKey": HOST, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"color": "green"}}}
    found = read({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    assert found.pod_affinity[0].namespaces not in ((), ("ns",))


def test_a_spread_is_read_with_its_policies():
    said = {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "minDomains": 3,
        "labelSelector": {"matchLabels": {"app": "x"}},
        "nodeTaintsPolicy": "Honor",
        "nodeAffinityPolicy": "Ignore",
        "matchLabelKeys": ["v"],
    }
    found = read({"topologySpreadConstraints": [said]}, labels={"v": "1"})
    wanted = (Expression("app", "In", ("x",)), Expression("v", "In", ("1",)))
    assert found.spread == (
        Spread(2, "zone", wanted, hard=False, min_domains=3, honor_affinity=False, honor_taints=True),
    )


def test_a_spread_without_a_selector_counts_nobody():
    said = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    (found,) = read({"topologySpreadConstraints": [said]}).spread
    assert not selects(found.selector, {"app": "x"})
    (everybody,) = read({"topologySpreadConstraints": [{**said, "labelSelector": {}}]}).spread
    assert selects(everybody.selector, {"app": "x"})


def test_a_foreign_pod_takes_room_only_on_a_node_and_while_it_lives():
    spec = {"nodeName": "n1", "containers": [asking(cpu=1)]}
    meta = {"name": "p", "namespace": "ns", "annotations": {"fairway.dev/assigned-devices": "0,3"}}
    found = foreign(decode({"metadata": meta, "spec": spec}, PodObject))
    assert (found.key, found.node, found.devices, dict(found.pod.requests)) == ("ns/p", "n1", (0, 3), {"cpu": 1000})
    assert foreign(decode({"metadata": meta, "spec": spec, "status": {"phase": "Failed"}}, PodObject)) is None
    assert foreign(decode({"metadata": meta, "spec": {}}, PodObject)) is None
    leaving = foreign(
        decode({"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}, PodObject)
    )
    assert leaving.is_leaving


def test_a_template_as_go_writes_it_is_read():
    assert decode({"metadata": {"creationTimestamp": None}}, PodTemplate) == PodTemplate()


def test_what_a_pod_object_requests_is_told_with_its_part_of_a_gpu():
    pod = {"metadata": {"annotations": {"fairway.dev/gpu-fraction": "0.5"}}, "spec": {"containers": [asking(cpu=1)]}}
    assert dict(requests_of(pod)) == {"cpu": 1000, "nvidia.com/gpu": 500}
