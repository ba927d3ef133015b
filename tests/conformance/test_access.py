"""Who may ask, and the questions about that."""

import socket
import ssl

import pytest

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/apis/batch/v1/jobs", "/api/v1/namespaces/default/pods"])
async def test_nobody_is_answered_without_credentials(api, path):
    """A cluster may let strangers ask, and then forbids them; it never answers."""
    answer = await api.ask("GET", path, known=False)
    assert answer.status in (401, 403) and answer.thing["reason"] in ("Unauthorized", "Forbidden")


async def test_a_wrong_token_is_no_token(api):
    api.headers = {"authorization": "Bearer wrong"}
    status = await api.refused(401, "GET", "/api/v1/namespaces")
    assert status["reason"] == "Unauthorized"


async def test_writes_without_credentials_change_nothing(api, maps):
    answer = await api.ask("POST", maps, {"metadata": {"name": "a"}}, known=False)
    assert answer.status in (401, 403)
    await api.refused(404, "GET", f"{maps}/a")


async def test_may_i_is_answered(api, namespace):
    asked = {"resourceAttributes": {"namespace": namespace, "verb": "create", "resource": "pods"}}
    answer = await api.create(REVIEW, {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                                       "spec": asked})
    assert answer["status"]["allowed"] is True and answer["spec"] == asked


async def test_who_am_i_is_answered(api):
    answer = await api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    assert answer["status"]["userInfo"]["username"]


async def test_what_may_i_do_is_answered(api, namespace):
    answer = await api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}})
    assert any("*" in each["verbs"] for each in answer["status"]["resourceRules"])


async def test_questions_are_not_kept(api):
    assert (await api.ask("GET", REVIEW)).status == 405


async def test_the_server_speaks_tls(api):
    host, _, port = api.server.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port or 443))) as plain, ssl._create_unverified_context().wrap_socket(
            plain, server_hostname=host) as secure:
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
