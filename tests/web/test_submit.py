"""What is submitted on the page: tried first, made as it was tried, with the viewer's rights alone."""

import re
from typing import Any

import pytest
from board import LINK, Board, Thing, board, node, queue, workload

from fairway.cli.desk import desk
from fairway.kube import kinds
from fairway.kube.kinds import Selection
from fairway.web.page import fragment

FORM = {"command": "python train.py --lr 0.1", "gpus": "2", "queue": "nlp", "namespace": "nlp", "try": True}
NODE, NLP = node("n1", 4), queue("nlp", 4)


async def sent(shown: Board, token: str = LINK, **asked: Any) -> tuple[int, Thing]:
    headers = {"authorization": f"Bearer {token}"}
    async with shown.session.post(f"{shown.address}/submit", json=asked, headers=headers) as answer:
        return answer.status, await answer.json()


async def jobs(shown: Board) -> list[Thing]:
    return await shown.client.list(Selection(kinds.JOBS))


async def test_a_form_is_tried_shown_as_a_manifest_and_made_as_it_was_tried() -> None:
    async with board(NODE, NLP, workload("nlp/job-a", "nlp", 1, at="n1[0]"), desk=desk()) as shown:
        status, tried = await sent(shown, **FORM)
        assert status == 200 and tried["is_fit"] and "It would start now" in tried["html"] and "n1" in tried["html"]
        assert await jobs(shown) == []
        status, made = await sent(shown, manifest=tried["manifest"], namespace="nlp")
        assert status == 200 and "It is made" in made["html"]
        (job,) = await jobs(shown)
        assert job["metadata"]["name"].startswith("train-") and job["metadata"]["namespace"] == "nlp"
        assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["sh", "-c", FORM["command"]]


async def test_a_trial_says_why_it_would_wait_and_what_cannot_be_made() -> None:
    async with board(NODE, NLP, workload("nlp/job-a", "nlp", 4, at="n1[0,1,2,3]"), desk=desk()) as shown:
        _, tried = await sent(shown, **FORM)
        assert "It would wait" in tried["html"] and "with 0 GPUs" not in tried["html"]
        assert (await sent(shown, **FORM | {"gpus": "x"}))[1]["message"].startswith("gpus: 'x'")
        assert (await sent(shown, **{"try": True}))[1]["message"].startswith("give a command, or a manifest")
        status, told = await sent(shown, manifest="kind: Deployment\napiVersion: apps/v1", **{"try": True})
        assert status == 400 and "Job, Pod" in told["message"]


def test_a_trial_without_a_forecast_says_from_when_room_is_kept() -> None:
    answer = {"verdict": "Wait", "reason": "NoRoom", "message": "needs 8 GPUs", "startsAt": "2026-11-25T20:26:00Z"}
    answer |= dict.fromkeys(("forecast", "sooner", "wouldEvict", "wouldShrink"))
    html = fragment("tried", {"told": [{"name": "job/a", "answer": answer}], "is_trial": True})
    assert "about <time" in html and "No start is in sight" not in html
    answer["forecast"] = {"p50": "2026-11-25T19:00:00Z", "p90": "2026-11-25T19:30:00Z", "rough": False}
    html = fragment("tried", {"told": [{"name": "job/a", "answer": answer}], "is_trial": True})
    assert '19:30:00Z</time>, else about <time datetime="2026-11-25T20:26:00Z">' in html


async def test_what_a_trial_would_evict_is_named_where_its_viewer_may_see_it_and_counted_elsewhere() -> None:
    def allows(user: str, resource: str, namespace: str) -> bool:
        return namespace == user or resource == "queues"

    lent = workload("vision/job-secret", "vision", 4, at="n1[0,1,2,3]", spec={"preemptible": True})
    things = NODE, NLP, queue("vision", 0), workload("nlp/job-own", "nlp", 9), lent
    async with board(*things, users=("nlp", "vision"), allows=allows, desk=desk()) as shown:
        status, tried = await sent(shown, "nlp", **FORM)
        assert status == 200 and "It would evict" in tried["html"]
        assert "1 workload of queue vision" in tried["html"] and "secret" not in str(tried)
        status, told = await sent(shown, "vision", **FORM)
        assert "It cannot be made" in told["html"] and not told["is_fit"]
        assert await jobs(shown) == []


async def test_what_would_help_names_no_workload_of_another_tenant() -> None:
    def allows(user: str, resource: str, namespace: str) -> bool:
        return namespace == user

    held = workload("vision/job-secret", "vision", 4, at="n1[0,1,2,3]")
    things = NODE, NLP, queue("vision", 4), held, workload("nlp/job-own", "nlp", 2)
    async with board(*things, users=("nlp", "vision"), allows=allows, desk=desk()) as shown:
        told = {}
        for user in ("nlp", "vision"):
            headers, asked = {"authorization": f"Bearer {user}"}, {"workload": "nlp/job-own"}
            async with shown.session.get(f"{shown.address}/helps", params=asked, headers=headers) as answer:
                told[user] = (await answer.json())["message"]
    assert "1 workload of queue vision" in told["nlp"] and "secret" not in told["nlp"]
    assert told["vision"] == "nothing that is known"


CLASSES = [{"kind": "PriorityClass", "metadata": {"name": it}, "value": at} for it, at in (("low", -9), ("high", 9))]
CLASSES += [{"kind": "PriorityClass", "metadata": {"name": "calm"}, "value": 9, "preemptionPolicy": "Never"}]
WAITS, RUNS = workload("nlp/job-waits", "speech", 2, spec={"timeLimit": "4h"}), {"at": "n1[0,1,2,3]"}
LENT = workload("vision/job-secret", "vision", 4, spec={"preemptible": True}, **RUNS)
HIGH = workload("nlp/job-runs", "nlp", 4, spec={"preemptible": True, "priorityClassName": "high"}, **RUNS)


@pytest.mark.parametrize("change, there, said", [
    (("queue", "waits", "nlp"), [WAITS, LENT], "It would evict 1 workload of queue vision."),
    (("queue", "waits", "paid"), [WAITS], "It would wait: BudgetSpent: it could overrun the budget of queue paid"),
    (("priority", "runs", "low"), [workload("nlp/job-waits", "nlp", 2), HIGH], "It would be evicted and queued again"),
    (("priority", "runs", "high"), [workload("nlp/job-waits", "nlp", 2), HIGH], "It would run on where it is."),
    (("priority", "waits", "high"), [workload("nlp/job-waits", "nlp", 2)], "in queue nlp, may preempt what has a"),
    (("priority", "waits", "calm"), [workload("nlp/job-waits", "nlp", 2)], "in queue nlp, does not preempt what has a"),
])  # fmt: skip
async def test_the_dialog_of_a_change_says_what_would_be_decided(
    change: tuple[str, str, str], there: list[Thing], said: str
) -> None:
    action, name, value = change
    queues = NLP, queue("speech", 0), queue("vision", 0), queue("paid", 4, budget={"gpuHours": 1, "period": "30d"})
    async with board(NODE, *queues, *CLASSES, *there, users=("nlp",), allows=_own, desk=desk()) as shown:
        asked = {"action": action, "workloads": [f"nlp/job-{name}"], "value": value}
        texts = []
        for more in ({}, {"isForeseen": True}):
            headers = {"authorization": "Bearer nlp"}
            async with shown.session.post(f"{shown.address}/say", json=asked | more, headers=headers) as answer:
                texts.append(" ".join(re.sub("<.*?>", "", await answer.text()).split()))
    assert "Working out" in texts[0] and "It would" not in texts[0]
    assert said in texts[1] and "Working out" not in texts[1] and "secret" not in texts[1]


async def test_the_dialog_of_a_change_of_several_says_what_would_be_decided_of_each() -> None:
    late = workload("nlp/job-late", "speech", 9)
    async with board(NODE, NLP, queue("speech", 0), WAITS, late, desk=desk()) as shown:
        asked = {"action": "queue", "workloads": ["nlp/job-late", "nlp/job-waits"], "value": "nlp", "isForeseen": True}
        headers = {"authorization": f"Bearer {LINK}"}
        async with shown.session.post(f"{shown.address}/say", json=asked, headers=headers) as answer:
            said = " ".join(re.sub("<.*?>", "", await answer.text()).split())
    assert re.search("late waiting ?◷ It would wait: .*waits waiting ?✓ It would start now", said), said


def _own(user: str, resource: str, namespace: str) -> bool:
    return namespace == user


async def test_the_form_has_the_namespace_of_the_kubeconfig_but_not_that_of_the_controller() -> None:
    async with board(NODE, NLP, workload("nlp/job-a", "nlp")) as shown:
        chosen = {}
        for home in ("zoo", "fairway-system"):
            shown.world.home = home
            page = await shown.page(f"/submit?of={home}")
            chosen[home] = re.findall(r"<option selected>([^<]+)", page.partition("namespace <select")[2])
    assert chosen == {"zoo": ["zoo"], "fairway-system": ["default"]}


async def test_the_form_does_not_name_the_namespace_of_the_dashboard_to_who_may_not_see_it() -> None:
    async with board(NODE, NLP, users=("ann",), allows=lambda _, resource, space: False) as shown:
        shown.world.home = "zoo"
        page = await shown.page("/submit", "ann")
    assert "zoo" not in page and "<option>default</option>" in page
