"""Tokens of service accounts: whose they are, for how long, for whom; and what kubectl shows of a user's rights."""

import asyncio
from typing import Any

import pytest

Thing = dict[str, Any]
OF = "authentication.k8s.io/v1"
PAUSE_SECONDS = 0.1


@pytest.fixture
async def robot(api, namespace) -> str:
    """The path of a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.create(path, {"metadata": {"name": "robot"}})
    return f"{path}/robot"


async def token(api, robot: str, **spec: Any) -> Thing:
    said = {"apiVersion": OF, "kind": "TokenRequest", "spec": {"audiences": []} | spec}
    return (await api.create(f"{robot}/token", said))["status"]


def holder(api, token: str):
    return type(api)(api.session, api.server, {"authorization": f"Bearer {token}"}, api.cluster)


async def whoami(api) -> Thing:
    said = await api.create(f"/apis/{OF}/selfsubjectreviews", {"apiVersion": OF, "kind": "SelfSubjectReview"})
    return said["status"]["userInfo"]


async def review(api, token: str, **spec: Any) -> Thing:
    said = {"apiVersion": OF, "kind": "TokenReview", "spec": {"token": token} | spec}
    return (await api.create(f"/apis/{OF}/tokenreviews", said))["status"]


async def refused(api) -> None:
    """Returns when the token is good no more; servers remember a while that it was."""
    while (await api.ask("GET", "/api")).status != 401:
        await asyncio.sleep(PAUSE_SECONDS)


async def test_a_token_speaks_for_its_service_account(api, robot, namespace):
    made = await token(api, robot)
    said = await whoami(holder(api, made["token"]))
    account = await api.get(robot)
    assert (said["username"], said["uid"]) == (f"system:serviceaccount:{namespace}:robot", account["metadata"]["uid"])
    assert sorted(said["groups"]) == sorted(
        ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"])
    assert said["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_a_token_gives_no_rights_by_itself(api, robot, namespace):
    await holder(api, (await token(api, robot))["token"]).refused(403, "GET", f"/api/v1/namespaces/{namespace}/pods")


async def test_a_token_lasts_as_long_as_asked(api, robot):
    said = {"apiVersion": OF, "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": 7200}}
    made = await api.create(f"{robot}/token", said)
    assert made["spec"]["expirationSeconds"] == 7200 and made["status"]["expirationTimestamp"]
    said["spec"]["expirationSeconds"] = 60
    status = await api.refused(422, "POST", f"{robot}/token", said)
    assert [(each["field"], each["message"]) for each in status["details"]["causes"]] == [(
        "spec.expirationSeconds", "Invalid value: 60: may not specify a duration less than 10 minutes")]


async def test_a_token_ends_with_its_account(api, robot):
    made = holder(api, (await token(api, robot))["token"])
    await whoami(made)
    await api.delete(robot)
    await refused(made)
    await api.create(robot.rpartition("/")[0], {"metadata": {"name": "robot"}})
    await refused(made)


async def test_a_token_ends_with_the_secret_that_it_is_bound_to(api, robot, namespace):
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    await api.create(secrets, {"metadata": {"name": "it"}})
    ref = {"kind": "Secret", "apiVersion": "v1", "name": "it"}
    made = holder(api, (await token(api, robot, boundObjectRef=ref))["token"])
    await whoami(made)
    await api.delete(f"{secrets}/it")
    await refused(made)


async def test_a_token_is_bound_to_what_there_is(api, robot):
    ref = {"kind": "Secret", "apiVersion": "v1", "name": "nowhere"}
    said = {"apiVersion": OF, "kind": "TokenRequest", "spec": {"audiences": [], "boundObjectRef": ref}}
    await api.refused(404, "POST", f"{robot}/token", said)
    said["spec"] = {"audiences": []}
    await api.refused(404, "POST", robot.replace("robot", "nobody") + "/token", said)


async def test_a_token_for_another_is_no_key_here(api, robot, namespace):
    made = (await token(api, robot, audiences=["vault"]))["token"]
    await holder(api, made).refused(401, "GET", "/api")
    assert (await review(api, made, audiences=["vault"]))["user"]["username"].endswith(f"{namespace}:robot")
    assert not (await review(api, made)).get("authenticated")


async def test_a_review_tells_whose_a_token_is(api, robot, namespace):
    made = (await token(api, robot))["token"]
    said = await review(api, made)
    assert said["authenticated"] and said["user"]["username"] == f"system:serviceaccount:{namespace}:robot"
    for wrong in ("nonsense", made[:-4], made + "x"):
        said = await review(api, wrong)
        assert not said.get("authenticated") and said["error"], wrong


async def test_each_namespace_has_a_default_account(collecting, api, namespace):
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert await api.until(path, "default", lambda it: it is not None)


# -- kubectl

def test_kubectl_tells_who_one_is_and_what_one_may(kubectl, namespace):
    assert "Username" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "list", "pods").startswith("yes")
    assert kubectl("auth", "can-i", "list", "pods", "--as=nobody", code=1).startswith("no")
    listed = kubectl("auth", "can-i", "--list", "--as=nobody")
    assert "selfsubjectaccessreviews.authorization.k8s.io" in listed and "pods" not in listed


def test_kubectl_makes_an_account_its_token_and_its_role(kubectl, namespace):
    kubectl("create", "serviceaccount", "robot")
    made = kubectl("create", "token", "robot", "--duration=20m").strip()
    assert made.count(".") == 2
    kubectl("create", "role", "reader", "--verb=list", "--resource=pods")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:robot")
    listed = kubectl("get", "rolebindings", "-o", "wide")
    assert "Role/reader" in listed and f"{namespace}/robot" in listed
    assert "pods" in kubectl("describe", "role", "reader")


def test_kubectl_says_what_is_forbidden(kubectl, namespace):
    said = kubectl("get", "secrets", "--as=nobody", code=1)
    assert (f'Error from server (Forbidden): secrets is forbidden: User "nobody" cannot list resource "secrets" in API '
            f'group "" in the namespace "{namespace}"') in said
