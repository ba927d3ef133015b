"""What pods are told of Services."""

from pathlib import Path

from box import Box
from cluster import until
from test_runner import needs_mounts

from fairway.node.names import SERVICES, variables

WEB = {"metadata": {"name": "my-web", "namespace": "default"},
       "spec": {"clusterIP": "127.96.0.7", "ports": [{"name": "main-port", "port": 80}]}}


def test_variables_are_those_of_kubernetes():
    headless = {"metadata": {"name": "db"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
    assert variables([WEB, headless]) == {
        "MY_WEB_SERVICE_HOST": "127.96.0.7", "MY_WEB_SERVICE_PORT": "80", "MY_WEB_SERVICE_PORT_MAIN_PORT": "80",
        "MY_WEB_PORT": "tcp://127.96.0.7:80", "MY_WEB_PORT_80_TCP": "tcp://127.96.0.7:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp", "MY_WEB_PORT_80_TCP_PORT": "80", "MY_WEB_PORT_80_TCP_ADDR": "127.96.0.7"}


@needs_mounts
async def test_a_pod_sees_names_that_come_while_it_runs(box: Box):
    await box.client.create(SERVICES, WEB)
    await until(box.client, 60, lambda: named(box))
    await box.run("a", "until grep -q late.default.svc /etc/hosts; do sleep 0.05; done; cat /etc/hosts")
    await box.state("a", "running")
    await box.client.create(SERVICES, {"metadata": {"name": "late", "namespace": "default"},
                                       "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    lines = (await box.said("a")).splitlines()
    assert "127.96.0.7\tmy-web.default.svc.cluster.local my-web.default.svc my-web.default my-web" in lines
    assert "127.0.0.1\tlate.default.svc.cluster.local late.default.svc late.default late" in lines
    assert "my-web" not in Path("/etc/hosts").read_text()


async def named(box: Box) -> bool:
    return bool(box.runner.names.variables("default"))


@needs_mounts
async def test_the_message_of_a_container_may_be_written_where_the_pod_says(box: Box, tmp_path: Path):
    path = {"terminationMessagePath": f"{tmp_path}/said"}
    await box.run("a", f"printf done > {tmp_path}/said", container=path)
    status = await box.phase("a", "Succeeded", "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["message"] == "done"
