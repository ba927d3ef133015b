"""How the page is served: tokens, headers, streams that go on where they were cut, actions with the viewer's rights."""

import re
import time
from hashlib import sha256
from importlib.resources import files
from typing import Any

import pytest
from board import LINK, board, node, queue, revocable, workload

from fairway.api.quantities import time_text
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.web.access import Sight
from fairway.web.page import Ask, Page
from fairway.web.topic import BATCH_SECONDS, RATE, Topic
from fairway.web.world import World

JOB = {"kind": "Job", "metadata": {"name": "a", "namespace": "nlp"}, "spec": {"suspend": True, "template": {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}}}  # fmt: skip


async def until(stream: Any, text: str) -> tuple[str, str, Any]:
    """The first message with this text."""
    async for message in stream:
        if text in str(message[2]):
            await stream.aclose()
            return message
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_without_a_good_token_nothing_is_told(token: str) -> None:
    async with board(node("n1"), users=("ann",)) as shown:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        for path in ("/stream?at=/now", "/detail?workload=nlp/a", "/log?workload=nlp/a"):
            async with shown.session.get(shown.address + path, headers=headers) as answer:
                assert answer.status == 401 and "n1" not in await answer.text()
        for path in ("/act", "/say"):
            async with shown.session.post(shown.address + path, json={}, headers=headers) as answer:
                assert answer.status == 401


async def test_the_shell_holds_no_data_and_runs_only_our_scripts() -> None:
    async with board(node("n1")) as shown, shown.session.get(shown.address + "/now") as answer:
        text, policy = await answer.text(), answer.headers["content-security-policy"]
    assert "n1" not in text and LINK not in text
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", text)
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy


def test_the_script_keeps_to_its_budget() -> None:
    script = (files("fairway.web") / "static" / "fairway.js").read_text()
    assert sum(bool(line.strip()) for line in script.splitlines()) <= 500


async def test_a_foreign_host_is_refused() -> None:
    async with board() as shown, shown.session.get(shown.address + "/now", headers={"host": "evil.example"}) as answer:
        assert answer.status == 403


async def test_a_stream_tells_what_changed_and_nothing_else() -> None:
    async with board(node("n1"), queue("nlp"), *(workload(f"nlp/job-{it}", "nlp") for it in "abc")) as shown:
        stream = shown.stream("/waiting")
        assert (await anext(stream))[1] == "page"
        await shown.put(workload("nlp/job-b", "nlp", status={"reason": "OverLimit", "message": "too much"}))
        _, _, content = await until(stream, "too much")
    assert list(content["lists"]["waits"]["rows"]) == ["nlp/job-b"] and "too much" in str(content)


async def test_a_cut_stream_goes_on_where_it_ended() -> None:
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp")) as shown:
        stream = shown.stream("/waiting")
        last, _, _ = await anext(stream)
        await stream.aclose()
        await shown.put(workload("nlp/job-z", "nlp"))
        stream = shown.stream("/waiting", last=last)
        number, kind, _ = await until(stream, "nlp/job-z")
    assert kind == "change" and number.partition("-")[0] == last.partition("-")[0]


@pytest.mark.parametrize("last", ["other-1", "nonsense", "x-999999"])
async def test_a_stream_that_cannot_go_on_redraws_the_whole_page(last: str) -> None:
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp")) as shown:
        stream = shown.stream("/waiting", last=last)
        _, kind, content = await anext(stream)
        await stream.aclose()
    assert kind == "page" and "nlp/job-a" in content["lists"]["waits"]["rows"]


async def test_a_cut_of_more_changes_than_are_kept_redraws_the_whole_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.web.topic.KEPT", 2)
    async with board(node("n1"), queue("q"), workload("a/job-x", "q")) as shown:
        watched = shown.stream("/waiting")
        first, *_ = await anext(watched)
        for version in range(4):
            await shown.put(workload("a/job-x", "q", status={"reason": "NoRoom", "message": f"news {version}"}))
            said = ""
            while f"news {version}" not in said:
                last, _, content = await anext(watched)
                said = str(content)
        await watched.aclose()
        for number, kinds in ((first, ["page"]), (last, ["beat"])):
            again = shown.stream("/waiting", last=number)
            assert [kind for _, kind, _ in [await anext(again)]] == kinds
            await again.aclose()


async def test_a_change_of_many_rows_is_followed_by_a_rest_so_that_a_viewer_is_sent_little_in_a_second() -> None:
    def draw(world: World, ask: Ask) -> Page:
        digests = (sha256(f"{ask.now} {at}".encode()).hexdigest() for at in range(2000))
        return Page("many", "", {"rows": {str(at): it for at, it in enumerate(digests)}})

    async with board() as shown:
        topic = Topic(shown.world, draw, Ask("many", {}, Sight(), 0.0))
        await topic.refresh()
        assert topic.pause == BATCH_SECONDS
        [whole] = topic.after("")
        shown.world.version += 1
        await topic.refresh()
        [change] = topic.after(whole.id)
    assert change.kind == "change" and topic.pause >= len(change.packed) / RATE > 1


async def test_many_viewers_cost_the_api_server_no_more_requests_than_one() -> None:
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp")) as shown:
        await shown.page("/now")
        before = len(shown.asked)
        for _ in range(10):
            await shown.page("/now")
            await shown.page("/waiting")
        assert len(shown.asked) == before


@pytest.mark.parametrize(
    ("action", "value", "part", "wanted"),
    [
        ("suspend", "", ("annotations", "fairway.dev/active"), "false"),
        ("priority", "urgent", ("annotations", "fairway.dev/priority-class"), "urgent"),
        ("queue", "vision", ("labels", "fairway.dev/queue"), "vision"),
    ],
)
async def test_an_action_changes_the_object_that_the_user_made(
    action: str, value: str, part: tuple[str, str], wanted: str
) -> None:
    async with board(queue("nlp"), queue("vision"), workload("nlp/job-a", "nlp"), JOB) as shown:
        await shown.page("/now")
        status, said = await shown.act(action, "nlp/job-a", value=value)
        job = await shown.client.get(Ref(kinds.JOBS, "a", "nlp"))
    assert status == 200 and "error" not in said["done"][0]
    assert job["metadata"][part[0]][part[1]] == wanted


@pytest.mark.parametrize(("own", "chosen"), [("urgent", "urgent"), ("", "none")])
async def test_a_change_of_priority_begins_at_the_present_one_and_none_takes_the_class_away(
    own: str, chosen: str
) -> None:
    worth = {"low": -5, "urgent": 9}
    classes = [{"kind": "PriorityClass", "metadata": {"name": name}, "value": at} for name, at in worth.items()]
    it = workload("nlp/job-a", "nlp", spec={"priorityClassName": own})
    job = JOB | {"metadata": JOB["metadata"] | {"annotations": {"fairway.dev/priority-class": "urgent"}}}
    async with board(queue("nlp"), it, job, *classes) as shown:
        await shown.page("/now")
        asked, headers = {"action": "priority", "workloads": ["nlp/job-a"]}, {"authorization": f"Bearer {LINK}"}
        async with shown.session.post(f"{shown.address}/say", json=asked, headers=headers) as answer:
            said = await answer.text()
        _, done = await shown.act("priority", "nlp/job-a", value="none")
        made = (await shown.client.get(Ref(kinds.JOBS, "a", "nlp")))["metadata"].get("annotations") or {}
    options = re.findall(r'<option value="(\w+)"( selected)?>(.*?)</option>', said)
    assert [(name, text) for name, _, text in options] == [("none",) * 2, ("low", "low (-5)"), ("urgent", "urgent (9)")]
    assert [name for name, is_chosen, _ in options if is_chosen] == [chosen]
    assert "error" not in done["done"][0] and "fairway.dev/priority-class" not in made


async def test_cancel_deletes_the_owner() -> None:
    async with board(queue("nlp"), workload("nlp/job-a", "nlp"), JOB) as shown:
        await shown.page("/now")
        await shown.act("cancel", "nlp/job-a")
        assert await shown.client.list(Selection(kinds.JOBS, "nlp")) == []


async def test_what_holds_gpus_keeps_its_queue() -> None:
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp", at="n1[0]"), JOB) as shown:
        await shown.page("/now")
        _, said = await shown.act("queue", "nlp/job-a", value="vision")
    assert "cannot be done" in said["done"][0]["error"]


async def test_an_action_needs_the_viewers_own_right() -> None:
    def allows(user: str, resource: str, space: str) -> bool:
        return resource == "queues"

    async with board(queue("nlp"), workload("nlp/job-a", "nlp"), JOB, users=("eve",), allows=allows) as shown:
        await shown.page("/now", "eve")
        _, said = await shown.act("cancel", "nlp/job-a", token="eve")
        assert "no such workload" in said["done"][0]["error"]
        assert len(await shown.client.list(Selection(kinds.JOBS, "nlp"))) == 1


async def test_what_an_action_would_do_is_said_of_what_the_viewer_sees_alone() -> None:
    them = [workload(f"{space}/job-{space}runs", space, 1, at="n1[0]") for space in ("nlp", "vision")]
    users = {"users": ("nlp",), "allows": lambda user, resource, space: space == user}
    async with board(node("n1"), queue("nlp"), queue("vision"), *them, **users) as shown:
        asked = {"action": "cancel", "workloads": [f"{space}/job-{space}runs" for space in ("nlp", "vision")]}
        headers = {"authorization": "Bearer nlp"}
        async with shown.session.post(f"{shown.address}/say", json=asked, headers=headers) as answer:
            said = await answer.text()
    assert "Cancel nlpruns?" in said and "kubectl -n nlp delete job/nlpruns" in said and "vision" not in said
    assert 'value="yes" data-of="nlp/job-nlpruns"' in said  # what it is of is what is sent


async def test_cancelling_what_is_paused_loses_what_it_did_before_each_pause_since_its_last_checkpoint() -> None:
    times = [time_text(time.time() - 3600 * hours) for hours in (9, 8, 7, 6, 5, 4)]
    how = {"unpaused": "expired"}, {"paused": True}, {"paused": True}
    history = [{"time": times[2 * at + 1], "began": times[2 * at], "reason": "Suspended"} | how[at] for at in range(3)]
    paused = {"phase": "Paused", "reason": "Suspended", "position": 0, "evictionHistory": history}
    saved = {"lastCheckpoint": time_text(time.time() - 3600 * 4.5)}
    specs = ("a", {}), ("b", saved), ("c", {"checkpointInterval": "30m"})
    them = [workload(f"nlp/job-{it}", "nlp", 2, spec=spec, status=paused) for it, spec in specs]
    said = []
    async with board(queue("nlp"), *them) as shown:
        await shown.page("/now")
        for it in them:
            asked = {"action": "cancel", "workloads": [f"nlp/{it['metadata']['name']}"]}
            headers = {"authorization": f"Bearer {LINK}"}
            async with shown.session.post(f"{shown.address}/say", json=asked, headers=headers) as answer:
                said.append(re.sub("<.*?>", "", await answer.text()))
    lost = "Lost: its frozen processes, and up to"
    assert f"{lost} 4 GPU-hours of work since {times[2]}, less what it saves when it gets its signal." in said[0]
    assert f"{lost} 1 GPU-hours of work since {saved['lastCheckpoint']}." in said[1]
    assert f"{lost} 2 GPU-hours of work since" in said[2]


async def test_what_several_would_lose_is_said_of_each_and_of_all() -> None:
    now = time.time()
    saved = {"lastCheckpoint": time_text(now - 180)}
    run = workload("nlp/job-a", "nlp", 2, at="n1[0,1]"), workload("nlp/job-b", "nlp", 4, at="n1[2,3,4,5]", spec=saved)
    them = [*run, workload("nlp/job-c", "nlp", 1)]
    async with board(node("n1"), queue("nlp"), *them) as shown:
        await shown.page("/now")
        asked = {"action": "suspend", "workloads": [f"nlp/job-{it}" for it in "abc"]}
        headers = {"authorization": f"Bearer {LINK}"}
        async with shown.session.post(f"{shown.address}/say", json=asked, headers=headers) as answer:
            said = re.sub("<.*?>", "", await answer.text())
    alone = [float(it) for it in re.findall(r"[ab] running: . GPUs, up to ([0-9.]+) GPU-hours", said)]
    assert len(alone) == 2 and alone[0] >= 0.33 and 0.2 <= alone[1] < 0.3
    total = float(re.findall("their places on 6 GPUs, and up to ([0-9.]+)", said)[0])
    assert total == pytest.approx(sum(alone), abs=0.02)
    assert "c waiting" in said and "c waiting:" not in said


async def test_a_page_that_does_not_exist_is_a_404() -> None:
    async with board() as shown:
        for path in ("/nothing", "/static/../server.py", "/static/nothing.js"):
            async with shown.session.get(shown.address + path, headers={"authorization": f"Bearer {LINK}"}) as answer:
                assert answer.status == 404


async def test_a_right_that_is_revoked_ends_what_an_open_stream_tells_and_the_stream_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed, users = revocable(monkeypatch)
    them = [workload(f"{it}/job-{it}s", it) for it in ("nlp", "vision")]
    async with board(queue("nlp"), queue("vision"), *them, **users) as shown:
        stream = shown.stream("/waiting", token="ann")
        _, _, first = await anext(stream)
        allowed.remove("vision")
        kind = "beat"
        while kind == "beat":
            _, kind, told = await anext(stream)
        _, then, whole = await anext(stream)
        await stream.aclose()
    assert set(first["lists"]["waits"]["rows"]) == {"nlp/job-nlps", "vision/job-visions"}
    assert kind == "rights" and "you may no longer list workloads of namespace vision;" in told["message"]
    assert then == "page" and "nlp/job-nlps" in whole["lists"]["waits"]["rows"] and "visions" not in str(whole)
