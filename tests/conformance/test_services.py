"""Services: their addresses, and where pods run, who is behind them and how they are found."""

import ipaddress
import socket
import sys

import pytest


def service(name: str = "web", **spec) -> dict:
    return {"metadata": {"name": name}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}]} | spec}


@pytest.fixture
def services(namespace) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


async def test_a_service_gets_an_address_and_keeps_it(api, services):
    made = await api.create(services, service())
    address = made["spec"]["clusterIP"]
    assert ipaddress.ip_address(address) and made["spec"]["clusterIPs"] == [address]
    del made["spec"]["clusterIP"], made["spec"]["clusterIPs"]
    made["spec"]["ports"] = [{"port": 9090}]
    changed = await api.replace(f"{services}/web", made)
    assert (changed["spec"]["clusterIP"], changed["spec"]["ports"][0]["targetPort"]) == (address, 9090)
    other = (await api.create(services, service("other")))["spec"]["clusterIP"]
    assert other != address
    status = await api.refused(422, "PATCH", f"{services}/web", {"spec": {"clusterIP": other, "clusterIPs": [other]}},
                               media=api.MERGE)
    assert "may not change once set" in status["message"]
    status = await api.refused(422, "POST", services, service("third", clusterIP=other))
    assert f"failed to allocate IP {other}: provided IP is already allocated" in status["message"]


async def test_a_headless_service_has_no_address(api, services):
    made = await api.create(services, service(clusterIP="None"))
    assert (made["spec"]["clusterIP"], made["spec"]["clusterIPs"]) == ("None", ["None"])


@pytest.mark.parametrize(("spec", "field"), [
    ({"ports": []}, "spec.ports"),
    ({"ports": [{"port": 70_000}]}, "spec.ports[0].port"),
    ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports[0].name"),
    ({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, "spec.ports[1].name"),
    ({"clusterIP": "8.8.8.8"}, "spec.clusterIPs"),
])
async def test_a_service_that_makes_no_sense_is_refused_by_its_field(api, services, spec, field):
    status = await api.refused(422, "POST", services, service(**spec))
    assert field in [each["field"] for each in status["details"]["causes"]]


# -- where pods run

SERVER = """
import http.server, os, sys
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
CLIENT = """
import os, sys, time, urllib.request
places = ["web", "web." + sys.argv[1], f"web.{sys.argv[1]}.svc.cluster.local", os.environ["WEB_SERVICE_HOST"]]
while places:
    try:
        print(urllib.request.urlopen(f"http://{places[0]}:{os.environ['WEB_SERVICE_PORT']}/").status, flush=True)
        places.pop(0)
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
        time.sleep(0.2)
"""


def pod(name: str, *command: str, **container) -> dict:
    made = {"name": "c", "image": "python:3", "command": [sys.executable, "-c", *command],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}} | container
    spec = {"restartPolicy": "Never", "containers": [made], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.whole_cluster
@pytest.mark.usefixtures("logs")
async def test_a_pod_finds_a_service_by_name_and_by_variables(api, services, pods, namespace):
    port = free_port()
    await api.create(services, service(ports=[{"port": 8080, "targetPort": "http"}]))
    await api.create(pods, pod("web", SERVER, str(port), ports=[{"name": "http", "containerPort": port}]))
    await api.create(pods, pod("client", CLIENT, namespace))
    done = await api.until(pods, "client", lambda it: it["status"].get("phase") in ("Succeeded", "Failed"))
    said = (await api.ask("GET", f"{pods}/client/log")).body.decode()
    assert done["status"]["phase"] == "Succeeded", said
    assert [line for line in said.splitlines() if line == "200"] == ["200"] * 4


@pytest.mark.whole_cluster
@pytest.mark.usefixtures("logs")
async def test_endpoints_follow_what_is_ready(api, services, pods, namespace, tmp_path):
    endpoints = f"/api/v1/namespaces/{namespace}/endpoints"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    probe = {"exec": {"command": ["test", "-e", f"{tmp_path}/up"]}, "periodSeconds": 1, "timeoutSeconds": 10}
    await api.create(services, service())
    await api.create(pods, pod("web", "import time; time.sleep(600)", readinessProbe=probe))
    found = await api.until(endpoints, "web", lambda it: it and it.get("subsets"))
    (only,) = found["subsets"]
    assert "addresses" not in only and only["ports"] == [{"port": 8080, "protocol": "TCP"}]
    (tmp_path / "up").touch()
    found = await api.until(endpoints, "web", lambda it: it and "addresses" in it["subsets"][0])
    assert found["subsets"][0]["addresses"][0]["targetRef"]["name"] == "web"
    (name,) = [each["metadata"]["name"] for each in (await api.get(slices))["items"]]
    shown = await api.until(slices, name, lambda it: it["endpoints"][0]["conditions"]["ready"])
    assert shown["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    await api.delete(f"{services}/web")
    await api.gone(endpoints, "web")
