"""Objects that existed before they were managed, on a real API server: they can be changed, and keep their pods."""

from typing import Any

import pytest
from plane import Plane, Thing, until
from test_other_scheduler import job
from test_webhook import DEPLOYMENTS, LABELS, pod, served

from fairway.kube import kinds
from fairway.kube.client import ApiError, Client
from fairway.kube.kinds import Kind, Ref

STATEFUL_SETS = Kind("StatefulSet", "statefulsets", "apps/v1")


def plain_job(name: str, namespace: str, **spec: Any) -> Thing:
    return {**job(name, **spec), "metadata": {"name": name, "namespace": namespace}}


def plain_app(name: str, namespace: str, **more: Any) -> Thing:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("x")["spec"]}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template, **more}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def is_queued(client: Client, made: Thing) -> bool:
    return (await client.create(kinds.JOBS, made, dry_run=True))["spec"].get("suspend") is True


async def template_of(client: Client, where: Ref, change: Thing) -> Thing:
    """Its template, the same before and after a change."""
    before = (await client.get(where))["spec"]["template"]
    after: Thing = (await client.patch(where, change))["spec"]["template"]
    assert after == before
    return after


async def test_what_was_there_before_its_namespace_was_managed_can_be_changed(plane: Plane) -> None:
    async with served(plane) as (admin, ann):
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": "later"}})
        for kind, made in (
            (kinds.JOBS, plain_job("runs", "later")), (kinds.JOBS, plain_job("waits", "later", suspend=True)),
            (DEPLOYMENTS, plain_app("web", "later")),
            (STATEFUL_SETS, plain_app("db", "later", serviceName="db")),
        ):  # fmt: skip
            await ann.create(kind, made)
        await admin.patch(Ref(kinds.NAMESPACES, "later"), {"metadata": {"labels": {"fairway.dev/managed": "true"}}})
        await until(lambda: is_queued(ann, plain_job("probe", "later")))
        noted = {"metadata": {"annotations": {"team": "vision"}}}
        for where in (Ref(kinds.JOBS, "runs", "later"), Ref(kinds.JOBS, "waits", "later"),
                      Ref(DEPLOYMENTS, "web", "later"), Ref(STATEFUL_SETS, "db", "later")):  # fmt: skip
            for change in (noted, {"metadata": {"labels": {"team": "vision"}}}):
                await template_of(ann, where, change)
        for change in ({"spec": {"parallelism": 3}}, {"spec": {"suspend": True}}):
            await template_of(ann, Ref(kinds.JOBS, "runs", "later"), change)
        hint = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}  # what a suspended Job may change
        changed = await ann.patch(Ref(kinds.JOBS, "waits", "later"), hint)
        assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
        for name in ("web", "db"):
            await template_of(ann, Ref(DEPLOYMENTS if name == "web" else STATEFUL_SETS, name, "later"),
                              {"spec": {"replicas": 2}})  # fmt: skip
        await admin.delete(Ref(kinds.NAMESPACES, "later"))


async def test_a_job_that_is_labelled_later_queues_from_then_on_and_can_be_changed(plane: Plane) -> None:
    async with served(plane) as (_, ann):
        for name, is_off in (("runs", False), ("waits", True)):
            where = Ref(kinds.JOBS, name, "default")
            await ann.create(kinds.JOBS, plain_job(name, "default", suspend=is_off))
            await template_of(ann, where, {"metadata": {"labels": LABELS}})
            await template_of(ann, where, {"metadata": {"annotations": {"fairway.dev/time-limit": "1h"}}})
            assert (await ann.get(where))["metadata"]["annotations"]["fairway.dev/user"] == "ann"
            with pytest.raises(ApiError, match="it is 'ann' and does not change"):
                await ann.patch(where, {"metadata": {"annotations": {"fairway.dev/user": "bob"}}})
            await ann.delete(where)
