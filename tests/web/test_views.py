"""What a viewer is sent: the right facts in each view, escaped, and only what the viewer may see."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from board import NOW, board, lease, node, queue, understood, workload

from fairway.api.accounts import HOUR_UNITS
from fairway.api.quantities import time as moment
from fairway.api.quantities import time_text
from fairway.kube import kinds
from fairway.kube.kinds import Ref

ROOT = Path(__file__).parents[2]
RUNBOOK, ALERTS = ROOT / "docs/start/runbook.md", ROOT / "src/fairway/deploy/monitoring/prometheus.yaml"
WAITS = {"reason": "NoRoom", "message": "needs 8 GPUs on one node; at most 5 are free on any of 1 nodes"}


async def test_now_says_who_holds_which_gpu_since_when_and_until_when() -> None:
    it = workload("nlp/job-train", "nlp", 3, at="n1[0,1,2]", spec={"timeLimit": "2h"})
    async with board(node("n1"), queue("nlp"), it) as shown:
        page = await shown.page("/now")
    assert 'href="/workload/nlp/job-train"' in page and "<strong>train</strong>" in page and "ann · nlp" in page
    assert "GPU </span>0–2" in page and "GPU </span>3–7" in page
    assert "ends by" in page and 'since <time datetime="' in page


async def test_a_workload_on_a_node_is_one_card_which_names_all_of_its_gpus() -> None:
    async with board(node("n1"), queue("nlp"), workload("nlp/job-train", "nlp", 3, at="n1[0,1,4]")) as shown:
        page = await shown.page("/now")
    assert page.count("<strong>train</strong>") == 1
    assert "GPU </span>0–1, 4<" in page and "GPU </span>2–3, 5–7<" in page


async def test_now_says_which_gpus_are_free_while_workloads_wait_and_why() -> None:
    things = node("n1"), queue("nlp"), workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]"), lease(time.time())
    async with board(*things, workload("nlp/job-big", "nlp", 8, status=WAITS)) as shown:
        page = await shown.page("/now")
    assert "5 of 8 GPUs are free while" in page and "1 × NoRoom" in page and WAITS["message"] in page
    assert '5 of 8 free, <b class="warn">too few</b>' in page
    assert "each pod that waits asks for at least 8 GPUs on a node" in page
    assert "Fairway decides" in page


@pytest.mark.parametrize("view", ["/now", "/waiting", "/timeline"])
async def test_a_queue_that_is_chosen_stands_for_all_below_it(view: str) -> None:
    things = node("n1"), queue("all"), queue("nlp", parent="all"), queue("other"), lease(time.time())
    runs = workload("nlp/job-mine", "nlp", 3, at="n1[0,1,2]"), workload("x/job-theirs", "other", 1, at="n1[3]")
    forecast = {"p50": in_hours(1), "p90": in_hours(2)}
    waits = [workload(f"nlp/job-{name}", name, 8, status=WAITS | {"forecast": forecast}) for name in ("nlp", "other")]
    async with board(*things, *runs, *waits) as shown:
        page, none = await shown.page(f"{view}?queue=all"), await shown.page(f"{view}?queue=none")
    assert '<option value="all" selected>' in page and 'href="/workload/nlp/job-nlp"' in page
    assert view == "/now" or "job-other" not in page
    assert "job-mine" not in none.partition("<form")[2]


async def test_the_first_lines_of_now_are_of_all_nodes_whichever_are_chosen() -> None:
    things = node("n1"), node("n2", unschedulable=True), queue("nlp"), lease(time.time())
    async with board(*things, workload("nlp/job-big", "nlp", 16, status=WAITS)) as shown:
        page = await shown.page("/now?show=problem")
    assert "8 of 16 GPUs are free while" in page and "of 16 GPUs held on 2 nodes" in page


async def test_now_says_in_which_pools_the_free_gpus_are() -> None:
    chosen = {"nodeSelector": {"matchLabels": {"fairway.dev/devices": "Scheduler"}}}
    specs = {"h100": chosen, "rest": {}}
    pools = [{"kind": "NodePool", "metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]
    nodes = node("n1"), node("n2", 2, chooses=False)
    async with board(*pools, *nodes, queue("nlp"), workload("nlp/job-big", "nlp", 9, status=WAITS)) as shown:
        page = await shown.page("/now")
    assert "10 of 10 GPUs are free (8 in h100, 2 in rest) while" in page


async def test_now_says_of_each_pool_which_waiting_workloads_ask_for_its_free_gpus() -> None:
    def asks(name: str, **wishes: Any) -> dict[str, Any]:
        it = workload(f"nlp/job-{name}", "nlp", 9, status=WAITS)
        it["spec"]["podSets"][0]["template"]["spec"] |= wishes
        return it

    def term(*values: str) -> dict[str, Any]:
        one = {"matchExpressions": [{"key": "pool", "operator": "In", "values": list(values)}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [one]}}}

    names = ("a100", "h100", "l40")
    things = *map(pool, names), *map(of_pool, names), queue("nlp")
    waits = asks("big", nodeSelector={"pool": "h100"}), asks("wide", affinity=term("h100", "l40"))
    async with board(*things, *waits) as shown:
        page = await shown.page("/now")
    heads = dict(re.findall(r"<h2><span>(\w+)</span>.*?8 free(.*?)</small>", page, re.DOTALL))
    assert heads["a100"] == ", no waiting workload asks for them"
    assert ">big</a> (NoRoom) and 1 more" in heads["h100"] and ">wide</a> (NoRoom)</b>" in heads["l40"]


async def test_now_says_that_nothing_decides_when_the_lease_is_not_renewed() -> None:
    async with board(node("n1"), lease(time.time() - 100)) as shown:
        page = await shown.page("/now")
    assert "Fairway has not decided for" in page


async def test_now_finds_the_lease_in_whatever_namespace_fairway_was_installed_last() -> None:
    async with board(node("n1"), lease(time.time() - 100), lease(time.time(), "scheduling")) as shown:
        page = await shown.page("/now")
    assert "Fairway decides" in page and "Fairway has not decided" not in page


async def test_now_does_not_number_gpus_that_the_nodes_own_software_chose() -> None:
    async with board(node("n1", 4, chooses=False), queue("nlp"), workload("nlp/job-a", "nlp", 2, at="n1")) as shown:
        page = await shown.page("/now")
    assert ">2 GPUs</b>" in page and "GPU </span>0" not in page


async def test_a_cordoned_node_offers_nothing() -> None:
    async with board(node("n1", unschedulable=True)) as shown:
        page = await shown.page("/now")
    assert "cordoned" in page and "0 of 8 GPUs are free" in page


async def test_gpus_that_pods_of_others_hold_are_not_free() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "nlp"},
           "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"} | limits]}}  # fmt: skip
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp", 2, at="n1[0,1]"), pod) as shown:
        page = await shown.page("/now")
    # one of the three is more than the workload accounts for
    assert "held by pods that Fairway does not manage" in page and "5 of 8 GPUs are free" in page


async def test_what_is_cancelled_holds_its_gpus_until_its_pods_have_stopped() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "nlp"},
           "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"} | limits]}}  # fmt: skip
    it = workload("nlp/job-slow", "nlp", 1, at="n1[0]")
    it["metadata"]["finalizers"] = ["fairway.dev/room"]
    async with board(node("n1"), queue("nlp"), it, pod) as shown:
        await shown.client.delete(Ref(kinds.WORKLOADS, "job-slow", "nlp"))
        deleted = (await shown.client.get(Ref(kinds.WORKLOADS, "job-slow", "nlp")))["metadata"]["deletionTimestamp"]
        now, queues = [" ".join((await shown.page(view)).split()) for view in ("/now", "/queues")]
    assert '<li class="cell cancelling w1" data-gpus="0">' in now and "Fairway does not manage" not in now
    assert f'<em>cancelling</em> since <time datetime="{deleted[:19]}' in now and "ann 1" in re.sub("<.*?>", "", queues)


async def test_what_is_cancelled_ends_when_its_grace_is_over_and_not_when_it_was_to_end_before() -> None:
    it = workload("nlp/job-slow", "nlp", 1, at="n1[0]", spec={"timeLimit": "11m"})
    it["metadata"]["finalizers"] = ["fairway.dev/room"]
    it["spec"]["podSets"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 900
    async with board(node("n1"), queue("nlp"), it) as shown:
        await shown.client.delete(Ref(kinds.WORKLOADS, "job-slow", "nlp"))
        gone = (await shown.client.get(Ref(kinds.WORKLOADS, "job-slow", "nlp")))["metadata"]["deletionTimestamp"]
        pages = [await shown.page(view) for view in ("/now", "/timeline", "/workload/nlp/job-slow")]
    ends = time_text(moment(gone[:19] + "Z") + 900)
    assert all(f'ends by <time datetime="{ends}">' in page for page in pages)


async def test_a_node_in_no_pool_offers_nothing() -> None:
    selected = {"nodeSelector": {"matchLabels": {"gpu": "h100"}}}
    async with board(node("n1"), {"kind": "NodePool", "metadata": {"name": "h100"}, "spec": selected}) as shown:
        page = await shown.page("/now")
    assert "in no pool" in page and "0 of 8 GPUs are free" in page


async def test_waiting_says_place_reason_and_when_it_starts() -> None:
    forecast = {"p50": "2999-11-23T14:20:00Z", "p90": "2999-11-23T16:05:00Z", "rough": True}
    it = workload("nlp/job-big", "nlp", 8, status=WAITS | {"position": 3, "forecast": forecast})
    async with board(queue("nlp"), it) as shown:
        page = await shown.page("/waiting")
        other = await shown.page("/waiting?reason=OverLimit")
    assert 'data-name="position">3</td>' in page and "NoRoom" in page
    assert WAITS["message"] in page and "rough" in page and "2999" in page
    assert "job-big" not in other and "Nothing waits" in other


LONG = f"{WAITS['message']}; a, b and c hold it; with 5 GPUs it would start now"


async def test_waiting_shortens_a_reason_and_has_the_whole_of_it_below() -> None:
    it = workload("nlp/job-big", "nlp", 8, status=WAITS | {"message": LONG})
    async with board(queue("nlp"), it) as shown:
        page = await shown.page("/waiting")
    assert f"<summary><b>NoRoom</b>: {WAITS['message']}</summary><div>a, b and c hold it; with 5 GPUs" in page


async def test_a_start_that_is_foretold_before_room_is_kept_is_shown_with_that_later_time() -> None:
    kept, forecast = in_hours(2), {"p50": in_hours(0.5), "p90": in_hours(1)}
    status = {"reason": "NoRoom", "message": f"needs 8 GPUs; room is kept for it from {kept}, at the latest"}
    near = status | {"forecast": forecast | {"p90": kept}}
    early = workload("nlp/job-a", "nlp", 8, status=status | {"forecast": forecast})
    them = early, workload("nlp/job-b", "nlp", status=near)
    async with board(node("n1"), queue("nlp"), *them) as shown:
        pages = [await shown.page(it) for it in ("/now", "/waiting", "/timeline", "/workload/nlp/job-a")]
    words = f'</time>, else <span title="room is kept for it from then on">about <time datetime="{kept}">'
    assert [page.count(words) for page in pages] == [1, 1, 1, 1]


def pool(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"nodeSelector": {"matchLabels": {"pool": name}}} | spec
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def of_pool(name: str, at: int = 1, **spec: Any) -> dict[str, Any]:
    it = node(f"{name}-{at}", **spec)
    it["metadata"]["labels"]["pool"] = name
    return it


async def test_priority_pool_and_time_limit_are_said_of_a_workload_that_waits_and_of_one_that_runs() -> None:
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    limited = queue("nlp", timeLimit={"default": "8h"})
    waits = workload("nlp/job-waits", "nlp", 8, status=WAITS, spec={"priorityClassName": "urgent"})
    waits["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"pool": "h100"}
    runs = workload("nlp/job-runs", "nlp", 1, at="l40-1[0]", spec={"timeLimit": "2h"})
    runs["status"]["admission"]["pool"] = "l40"
    things = urgent, limited, pool("h100"), pool("l40"), of_pool("h100"), of_pool("l40"), waits, runs
    async with board(*things) as shown:
        table, found = await shown.page("/waiting"), await shown.page("/find")
        one, other = [await shown.page(f"/workload/nlp/job-{name}") for name in ("waits", "runs")]
    assert 'data-name="priority">urgent (1000)<' in table and 'data-name="pool">h100<' in table
    assert 'data-name="priority">none<' in found and 'data-name="pool">l40<' in found
    facts = [dict(re.findall(r"<dt>([a-z ]+)</dt><dd>(.*?)</dd>", page)) for page in (one, other)]
    asked = [[it[name] for name in ("priority", "pool", "time limit")] for it in facts]
    assert asked == [["urgent (1000)", "h100", "8 h, of its queue"], ["none", "l40", "2 h"]]


async def test_find_has_workloads_in_every_state_and_says_where_they_are() -> None:
    ended = {"type": "Finished", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-1)}
    over = workload("nlp/job-train-1", "nlp", 1, status={"phase": "Succeeded", "conditions": [ended]})
    runs, waits = workload("nlp/job-train-2", "nlp", 2, at="n1[0,1]"), workload("nlp/job-train-3", "nlp", status=WAITS)
    async with board(node("n1"), queue("nlp"), over, runs, waits, workload("nlp/job-eval", "nlp")) as shown:
        page, failed = await shown.page("/find?q=TRAIN"), await shown.page("/find?q=train&state=failed")
    assert "3 workloads in any state" in page and "job-eval" not in page
    assert re.findall(r'<span class="state (\w+)">', page) == ["running", "waiting", "finished"]
    assert 'href="/now?q=n1">n1</a> GPU 0–1' in page and "No workload that you may see" in failed


async def test_find_has_the_workloads_of_a_queue() -> None:
    them = workload("vision/job-a", "speech"), workload("vision/job-b", "nlp")
    async with board(queue("speech"), queue("nlp"), *them) as shown:
        page = await shown.page("/find?q=Speech")
    assert "1 workload in any state with “Speech” in the name, user, queue or namespace" in page and ">a</a>" in page


async def test_waiting_counts_what_is_paused_or_suspended_apart_and_says_by_whom() -> None:
    said = {"Suspended": "", "Paused": "paused by its user"}
    told = {"reason": "Suspended", "position": 0}
    states = [told | {"phase": phase, "message": message} for phase, message in said.items()]
    off = [workload(f"nlp/job-{it['phase'].lower()}", "nlp", 2, status=it) for it in states]
    async with board(queue("nlp"), workload("nlp/job-a", "nlp", 1, status=WAITS), *off) as shown:
        page = await shown.page("/waiting")
    assert "1 workload for 1 GPU; 2 paused or suspended" in page and "<b>Suspended</b>" not in page
    words = " ".join(re.sub("<.*?>", " ", page).split())
    assert "suspended until it is resumed" in words and "paused by its user" in words and "paused paused" not in words


@pytest.mark.parametrize("query", ["", "queue=nlp", "q=other"])
async def test_the_count_beside_a_reason_is_how_many_it_shows(query: str) -> None:
    off = [workload(f"nlp/job-{phase.lower()}", "nlp", 1, status={"reason": "Suspended", "phase": phase, "position": 0})
           for phase in ("Suspended", "Paused")]  # fmt: skip
    things = queue("nlp"), queue("vision"), *off, workload("vision/job-other", "vision", status=WAITS)
    async with board(*things) as shown:
        page = await shown.page(f"/waiting?{query}")
        counts = dict(re.findall(r'<option value="(\w+)"[^>]*>\w+ \((\d+)\)', page))
        assert counts.keys() == {"Suspended", "NoRoom"}
        for reason, count in counts.items():
            assert (await shown.page(f"/waiting?{query}&reason={reason}")).count("<tr data-key") == int(count)


async def test_what_its_queue_paused_waits_for_room_and_what_its_user_paused_is_told_of_beside() -> None:
    said = {"queue": WAITS | {"position": 2}, "user": {"reason": "Suspended", "message": "paused", "position": 0}}
    them = [workload(f"nlp/job-{by}", "nlp", 2, status={"phase": "Paused"} | status) for by, status in said.items()]
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp", 1, status=WAITS), *them) as shown:
        now, waits, queues = [await shown.page(view) for view in ("/now", "/waiting", "/queues")]
    assert "2 workloads wait for 3 GPUs</a>, 1 paused." in now and "2 × NoRoom" in now
    assert "2 workloads for 3 GPUs; 1 paused or suspended" in waits and "2 for 3 GPUs" in queues


async def test_a_workload_that_can_never_start_is_not_said_to_have_a_start_that_is_not_known_yet() -> None:
    status = {"reason": "NeverFits", "message": "it would not fit if nothing else ran"}
    async with board(node("n1"), queue("nlp"), workload("nlp/job-big", "nlp", 16, status=status)) as shown:
        for view in ("/now", "/waiting", "/workload/nlp/job-big"):
            page = await shown.page(view)
            assert "never, as things are" in page and "not known yet" not in page


async def test_queues_say_what_is_borrowed_from_whom_and_what_is_left_of_the_budget() -> None:
    nlp = queue("nlp", 2, parent="all", budget={"gpuHours": 100, "period": "30d"})
    things = node("n1"), queue("all", 8), nlp, queue("vision", 6, parent="all")
    async with board(*things, workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]")) as shown:
        page = await shown.page("/queues")
    assert "borrows 1" in page and "</b> from vision" in page and "ann 3" in page
    assert "<b>100 left</b> of 100 GPU-hours: 0 spent, 0 reserved; <span>runs out in 1 d 9 h at this rate" in page


async def test_of_a_budget_that_is_whole_again_nothing_is_spent_before_the_next_charge() -> None:
    spent = {"gpuHours": 30, "since": in_hours(-5)}
    for period, left in (("30d", 70), ("2h", 100)):
        nlp = queue("nlp", budget={"gpuHours": 100, "period": period}) | {"status": {"budgetSpent": spent}}
        async with board(node("n1"), nlp) as shown:
            assert f"<b>{left} left</b> of 100 GPU-hours: {100 - left} spent" in await shown.page("/queues")


async def test_what_is_guaranteed_to_nobody_is_lent_by_no_queue() -> None:
    things = node("n1"), queue("nlp", 2), queue("vision", 1)
    async with board(*things, workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]")) as shown:
        page = await shown.page("/queues")
    assert "borrows 1" in page and " from vision" not in page and "1 unused" in page and "lent to" not in page


async def test_queues_of_a_missing_parent_or_in_a_circle_are_roots_with_their_children_below() -> None:
    parents = {"a": "ghost", "b": "a", "x": "y", "y": "x", "z": ""}
    async with board(*(queue(name, parent=parent) for name, parent in parents.items())) as shown:
        page = await shown.page("/queues")
    assert re.findall(r'data-key="(\w)"> <td class="name d(\d)"', page) == [
        ("a", "0"), ("b", "1"), ("x", "0"), ("y", "0"), ("z", "0")
    ]  # fmt: skip


async def test_timeline_says_when_what_waits_should_start_and_what_is_reserved() -> None:
    forecast = {"p50": in_hours(2), "p90": in_hours(5)}
    kept = {"kind": "Reservation", "metadata": {"name": "night"}, "spec": {"maintenance": True, "nodes": ["n1"],
            "start": in_hours(1), "duration": "2h"}}  # fmt: skip
    it = workload("nlp/job-big", "nlp", 8, status=WAITS | {"forecast": forecast})
    async with board(node("n1"), queue("nlp"), it, kept) as shown:
        page = await shown.page("/timeline")
        by_queue = await shown.page("/timeline?by=queue")
    assert "big should start" in page and 'night <small>1 node</small>' in page
    assert "<small>maintenance <time" in page
    assert 'href="/waiting?queue=nlp"' in by_queue


async def test_on_the_line_of_a_node_each_workload_has_a_lane_with_its_name_and_what_closes_it_is_drawn() -> None:
    kept = {"kind": "Reservation", "metadata": {"name": "night"}, "spec": {"maintenance": True, "nodes": ["n1", "n3"],
            "start": in_hours(1), "duration": "2h"}}  # fmt: skip
    limit = {"spec": {"timeLimit": "5h"}}
    runs = workload("nlp/job-a", "nlp", 2, at="n1[0,1]", **limit), workload("nlp/job-b", "nlp", 4, at="n1[4,5,6,7]")
    things = node("n1"), node("n2", unschedulable=True), node("n3"), queue("nlp"), *runs, kept
    async with board(*things) as shown:
        page = await shown.page("/timeline?by=node")
    lines = dict(re.findall(r'data-key="(n\d)">(.*?)</small> </div>', page))
    assert re.findall(r'class="(runs|ahead|reserved)" \S+ y="([\d.]+)" \S+ height="([\d.]+)"', lines["n1"]) == [
        ("reserved", "0.0", "30.0"), ("runs", "2.0", "12.0"), ("ahead", "2.0", "12.0"), ("runs", "16.0", "12.0")
    ]  # fmt: skip
    assert re.findall(r'y="([\d.]+)">([^<]+)</text>', lines["n1"]) == [("12.0", "a (2)"), ("26.0", "b (4)")]
    assert "6 GPUs held: a (2), b (4); maintenance: night" in lines["n1"] and 'class="reserved"' in lines["n3"]
    assert 'class="closed"' in lines["n2"] and "nothing runs; cordoned" in lines["n2"]


async def test_a_line_of_a_node_reuses_lanes_and_has_sixteen_at_most() -> None:
    past = {"time": in_hours(-0.5), "began": in_hours(-1), "nodes": ["n1"], "reason": "Preempted"}
    earlier = workload("nlp/job-past", "nlp", 1, status=WAITS | {"evictionHistory": [past]})
    runs = [workload(f"nlp/job-{at:02}", "nlp", 1, at=f"n1[{at}]") for at in range(18)]
    async with board(node("n1", 18), queue("nlp"), earlier, *runs) as shown:
        page = await shown.page("/timeline?by=node")
    lanes = re.findall(r'class="(ran|runs)" \S+ y="([\d.]+)"', page)
    assert lanes[:2] == [("ran", "2.0"), ("runs", "2.0")] and len({y for _, y in lanes}) == 16
    assert "15 (1), 16 (1), 17 (1)</text>" in page


@pytest.mark.parametrize("ahead, span, now", [(None, "", 500.0), (2, "", 142.9), (20, "", 20.4), (2, "day", 500.0)])
async def test_the_timeline_first_shows_a_span_that_fits_what_there_is(
    ahead: float | None, span: str, now: float
) -> None:
    began = {"type": "Admitted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-0.2)}
    runs = workload("nlp/job-a", "nlp", 1, at="n1[0]", status={"conditions": [began]})
    forecast = {"forecast": {"p50": in_hours(ahead), "p90": None}} if ahead else {}
    async with board(node("n1"), queue("nlp"), runs, workload("nlp/job-b", "nlp", 8, status=WAITS | forecast)) as shown:
        page = await shown.page(f"/timeline?span={span}")
    assert re.findall(r'class="now" d="M([\d.]+) 0V16"/></svg>\n', page) == [str(now)]
    (left,) = re.findall(r'class="runs" x="([\d.]+)"', page)
    minute = now / (1440 if span else 30)  # of a day back, or of half an hour
    assert 12 * minute - 0.1 <= now - float(left) <= 13 * minute + 0.1


async def test_each_window_in_sight_of_a_reservation_that_repeats_is_drawn() -> None:
    spec = {"maintenance": True, "nodes": ["n1"], "start": in_hours(-71), "duration": "1h"}
    nights = [{"kind": "Reservation", "metadata": {"name": name}, "spec": spec | more}
              for name, more in (("daily", {"repeat": "Daily"}), ("once", {}))]  # fmt: skip
    async with board(node("n1"), *nights) as shown:
        pages = [await shown.page(f"/timeline{query}") for query in ("", "?span=week")]
    counts = [[len(re.findall('class="reserved" x', line)) for line in re.findall("data-key=.*", it)] for it in pages]
    assert counts == [[2], [4, 1]]  # 23 hours ago and in an hour; of the week 71 and 47 hours ago too


async def test_operations_says_what_is_wrong_and_which_line_looks_closer() -> None:
    history = [{"time": in_hours(0), "reason": "Reclaimed", "by": "vision", "for": "vision/job-b"}]
    it = workload("nlp/job-a", "nlp", 1, status={"reason": "Refused", "message": "struck", "evictionHistory": history})
    async with board(node("n1", unschedulable=True), queue("nlp"), it) as shown:
        page = await shown.page("/operations")
    assert "Fairway does not decide" in page and "kubectl describe node n1" in page and "refused plan" in page
    assert "kubectl fairway why -n nlp workload/job-a" in page and "Reclaimed for b of queue vision" in page


async def test_operations_names_what_hangs_while_it_starts_or_stops_and_since_when_a_node_is_not_ready() -> None:
    turned = {"type": "Admitted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-0.1)}
    status = {"phase": "Admitted", "conditions": [turned]}
    slow, lost = workload("nlp/job-slow", "nlp", 1, at="n1[0]", status=status), node("n2")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": in_hours(-0.5)}]
    async with board(node("n1"), lost, queue("nlp"), slow, lease(time.time())) as shown:
        page = await shown.page("/operations")
    rows = [" ".join(re.sub("<.*?>", " ", row).split()) for row in re.findall("<tr>.*?</tr>", page, re.DOTALL)]
    assert [row.partition(" since")[0] for row in rows if row.startswith("!")] == [
        f"! node closed n2 {lost['status']['conditions'][0]['lastTransitionTime']} not ready kubectl describe node n2 "
        "runbook: unhealthy nodes",
        f"! slow starting slow {turned['lastTransitionTime']} its pods are not there yet, or not gone "
        "kubectl fairway status -n nlp workload/job-slow runbook: hanging starts",
    ]  # fmt: skip


async def test_what_a_user_suspended_or_paused_counts_as_no_eviction_and_is_told_as_a_change() -> None:
    reasons = "Suspended", "Suspended", "Reclaimed"
    said = [{"time": in_hours(-at / 10), "reason": reason} for at, reason in enumerate(reasons)]
    it = workload("nlp/job-a", "nlp", 1, status={"evictionHistory": [said[0], said[1] | {"paused": True}, said[2]]})
    async with board(queue("nlp"), it) as shown:
        page, suspended = await shown.page("/operations"), await shown.page("/operations?what=suspended")
        own = await shown.page("/workload/nlp/job-a")
    rows = [" ".join(re.sub("<.*?>", " ", row).split()) for row in re.findall("<tr data-key.*?</tr>", page, re.DOTALL)]
    mine = [f"{it} a nlp ann 1 by its user" for it in ("paused", "suspended")]
    assert "Evicted in the last day <small>1</small>" in page
    assert sorted(row.partition("Z ")[2] for row in rows) == [*["evicted a nlp ann 1 Reclaimed"] * 2, *mine]
    assert suspended.count("by its user") == 1 and "<b>suspended</b>" in suspended
    assert own.count("<dd>by its user</dd>") == 2


async def test_operations_lists_the_starts_of_what_ended_since_and_of_attempts_that_were_evicted() -> None:
    turned = [{"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-hours)}
              for kind, hours in (("Admitted", 0.5), ("Finished", 0.25))]  # fmt: skip
    past = {"time": in_hours(-0.6), "began": in_hours(-0.8), "nodes": ["n2"], "reason": "Reclaimed", "by": "vision"}
    status = {"phase": "Succeeded", "conditions": turned, "evictionHistory": [past]}
    async with board(queue("nlp"), workload("nlp/job-a", "nlp", 1, status=status)) as shown:
        page = await shown.page("/operations?what=started")
    started = page.partition("What changed")[2]
    assert started.count("<b>started</b>") == 2 and past["began"] in started and "on n2" in started
    assert turned[0]["lastTransitionTime"] in started


async def test_operations_says_where_the_rest_is_of_a_list_that_is_cut() -> None:
    history = [{"time": in_hours(-at / 20), "reason": "Reclaimed", "by": "vision"} for at in range(201)]
    waits = [{"type": "Evicted", "status": "True", "reason": "Reclaimed", "message": "",
              "lastTransitionTime": in_hours(-2 - at)} for at in range(7)]  # fmt: skip
    them = [workload(f"nlp/job-{at}", "nlp", 1, status={"conditions": [one]}) for at, one in enumerate(waits)]
    victim = workload("nlp/job-a", "nlp", 1, status={"evictionHistory": history})
    async with board(queue("nlp"), victim, *them) as shown:
        page = await shown.page("/operations")
    assert "All 201, page by page" in page
    assert page.count("! long wait</b>") == 5 and ">2 more<" in page


async def test_what_a_workload_used_counts_what_it_holds_now() -> None:
    held = {"type": "Admitted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-3)}
    runs = held | {"type": "Running"}
    status = {"conditions": [held, runs], "attained": 7200.0, "served": {"until": in_hours(-1)}}
    async with board(node("n1"), queue("nlp"), workload("nlp/job-a", "nlp", 2, at="n1[0,1]", status=status)) as shown:
        page = await shown.page("/workload/nlp/job-a")
    assert "4 GPU-hours used so far" in page  # two before that moment, and two GPUs for the hour since


def usage_day(queue: str, *, status: dict[str, Any], parents: tuple[str, ...] = ()) -> dict[str, Any]:
    day = NOW[:10]
    spec = {"day": day, "queue": queue, "parents": parents}
    return {"kind": "UsageDay", "metadata": {"name": f"{queue or 'pools'}-{day}"}, "spec": spec, "status": status}


def used(user: str, hours: int, busy: int) -> dict[str, Any]:
    return {"user": user, "name": "train", "pool": "h100", "allocated": hours * HOUR_UNITS, "busy": busy * HOUR_UNITS}


async def test_usage_adds_up_queues_to_their_parents_and_gpu_time_to_what_there_was() -> None:
    days = (
        usage_day("nlp", status={"rows": [used("ann", 10, 6), used("tariq", 5, 5)]}, parents=("all",)),
        usage_day("vision", status={"rows": [used("yusra", 3, 0)]}, parents=("all",)),
        usage_day("", status={"pools": {"h100": {"capacity": 24 * HOUR_UNITS, "reserved": HOUR_UNITS}}}),
    )
    async with board(*days, pool("h100", costPerGpuHour="2.10"), pool("l40")) as shown:
        by_queue, by_user = [await shown.page(f"/usage{query}") for query in ("", "?by=user")]
    figures = [re.findall(r"data-name=\"GPU-hours held\"><b>([\d.]+)", it) for it in (by_queue, by_user)]
    total = [it.partition("<tfoot>")[2].partition("</tfoot>")[0].count("<b>18.0</b>") for it in (by_queue, by_user)]
    assert figures == [["18.0", "18.0", "15.0", "3.0"], ["18.0", "10.0", "5.0", "3.0"]] and total == [1, 1]
    assert "in the currency of <code>costPerGpuHour</code>; now 2.10 an hour in h100" in by_queue
    assert "open: still being counted" in by_queue
    assert re.findall(r"data-name=\"(unknown|kept|free)\">([\d.]+) <small>", by_queue) == [
        ("unknown", "7.0"), ("kept", "1.0"), ("free", "5.0")
    ]  # fmt: skip
    assert "ann" in by_user and "yusra" in by_user and f"fairway usage --period {NOW[:7]} --by user" in by_user


async def test_usage_says_what_evictions_took_and_calls_a_user_as_other_views_do() -> None:
    lost = {"user": "oidc:ann", "name": "train", "reason": "Reclaimed", "by": "vision", "taker": "fairway:admin"}
    rows = [used("fairway:admin", 10, 6), used("oidc:ann", 5, 5)]
    day = usage_day("nlp", status={"rows": rows, "losses": [lost | {"lost": 2 * HOUR_UNITS}]})
    async with board(day) as shown:
        page = await shown.page("/usage?by=user")
    rows = re.findall("<tr.*?</tr>", page, re.DOTALL)[1:]
    cells = [dict(re.findall(r'data-name="(lost|took)">([\d.]*)', row)) for row in rows]
    assert cells == [{"lost": "2.0", "took": "2.0"}, {"lost": "", "took": "2.0"}, {"lost": "2.0", "took": ""}]
    assert re.findall(r"<span[^>]*>(\w+)</span></td>", page) == ["total", "admin", "ann"]


def in_hours(hours: float) -> str:
    return time_text(time.time() + hours * 3600)


async def test_now_names_the_gpus_that_are_held_and_on_which_nothing_computes() -> None:
    said = node("n1")
    said["metadata"]["annotations"] = {"fairway.dev/gpu-use": "0=busy,1=idle,2=idle,3=idle"}
    async with board(said, queue("nlp"), workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]")) as shown:
        page = await shown.page("/now")
    assert "idle: GPU 1–2<" in page and "2 of them idle" in page


async def test_what_failed_and_is_started_again_is_called_retrying_as_on_the_command_line() -> None:
    it = workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]")
    it["status"] |= {"reason": "Retrying", "message": "exit code 1; attempt 2 of 3 starts at 12:00"}
    async with board(node("n1"), queue("nlp"), it) as shown:
        page, now = await shown.page("/workload/nlp/job-a"), await shown.page("/now")
    assert '<span class="state retrying">' in page and "attempt 2 of 3" in page
    assert "<em>retrying</em>" in now and "5 of 8 free" in now


async def test_an_end_that_is_known_to_the_minute_is_one_moment() -> None:
    alike = {"user": "", "name": "", "points": [[86_400.0, 9.0]]}
    learned = queue("nlp") | {"status": {"runtimes": [alike]}}
    async with board(node("n1"), learned, workload("nlp/job-a", "nlp", 3, at="n1[0,1,2]")) as shown:
        page = await shown.page("/workload/nlp/job-a")
    assert re.search(r"ends ~ <time datetime=\S+</time></span>", page)


async def test_what_has_not_run_yet_names_no_attempt_and_no_use() -> None:
    ended = {"type": "Finished", "status": "True", "reason": "ExitCode3", "message": "", "lastTransitionTime": NOW}
    over = {"phase": "Failed", "attempt": 1, "attained": 0.1, "reason": "ExitCode3", "message": "failed: exit code 3",
            "conditions": [ended]}  # fmt: skip
    them = workload("nlp/job-a", "nlp", 1, status=WAITS), workload("nlp/job-b", "nlp", 1, status=over)
    async with board(node("n1"), queue("nlp"), *them) as shown:
        waits, failed = [await shown.page(f"/workload/nlp/job-{it}") for it in "ab"]
    assert "<dd>none yet</dd>" in waits and "<dd>failed: exit code 3</dd>" in failed and "GPU-hours used" not in failed


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_what_is_over_says_how_long_it_ran(phase: str) -> None:
    times = {"Admitted": "2026-11-23T11:00:00Z", "Finished": "2026-11-23T13:00:00Z"}
    turned = [{"type": it, "status": "True", "reason": "x", "message": "", "lastTransitionTime": at}
              for it, at in times.items()]  # fmt: skip
    it = workload("nlp/job-a", "nlp", status={"phase": phase, "conditions": turned})
    async with board(queue("nlp"), it) as shown:
        page = re.sub("<.*?>", "", await shown.page("/workload/nlp/job-a"))
    assert f"ran since{times['Admitted']}, for 2 h" in page


async def test_a_list_says_once_that_a_workload_failed_or_finished() -> None:
    ended = {"type": "Finished", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-0.5)}
    said = {"Failed": "failed: exit code 3", "Succeeded": "finished"}
    each = [{"phase": phase, "message": text, "conditions": [ended]} for phase, text in said.items()]
    them = [workload(f"nlp/job-{at}", "nlp", 1, status=status) for at, status in enumerate(each)]
    async with board(queue("nlp"), *them) as shown:
        pages = [await shown.page(view) for view in ("/find", "/operations")]
    for page in pages:
        rows = [re.sub("<.*?>", " ", row) for row in re.findall("<tr data-key.*?</tr>", page, re.DOTALL)]
        assert [len(re.findall("failed|finished", row)) for row in rows] == [1, 1] and "exit code 3" in page


async def test_an_elastic_workload_that_runs_says_why_it_does_not_grow() -> None:
    short = {"reason": "NoRoom", "message": "waits to grow: needs 1 GPU; 1 is missing"}
    it = workload("nlp/job-train", "nlp", 1, at="n1[0]", status=short)
    async with board(node("n1"), queue("nlp"), it) as shown:
        page = await shown.page("/workload/nlp/job-train")
    assert "<dt>why it does not grow</dt><dd>NoRoom: needs 1 GPU; 1 is missing</dd>" in page


async def test_a_workload_says_for_whom_it_was_evicted() -> None:
    history = [{"time": "2026-11-23T11:00:00Z", "reason": "Reclaimed", "by": "vision", "for": "vision/job-b"}]
    it = workload("nlp/job-a", "nlp", 3, status=WAITS | {"evictionHistory": history})
    async with board(queue("nlp"), it) as shown:
        page = await shown.page("/workload/nlp/job-a")
    assert "Reclaimed" in page and "for b of" in page and "of queue vision" in page


async def test_now_tells_of_gpus_that_serve_nobody_while_none_is_free() -> None:
    said = node("n1", gpus=2)
    said["metadata"]["annotations"] = {"fairway.dev/gpu-use": "0=busy,1=idle"}
    them = workload("nlp/job-a", "nlp", 2, at="n1[0,1]"), workload("nlp/job-b", "nlp", 2, status={"reason": "NoRoom"})
    async with board(said, node("n2", gpus=4, unschedulable=True), queue("nlp"), *them) as shown:
        page = await shown.page("/now")
    assert "No GPU is free" in page and "1 workload waits for 2 GPUs</a>" in page and "verdict bad" in page
    assert "nothing computes on 1 that is held; 4 cannot be used" in page


async def test_timeline_shows_what_runs_before_what_is_over() -> None:
    ended = {"type": "Finished", "status": "True", "reason": "x", "message": "", "lastTransitionTime": in_hours(-1)}
    began = ended | {"type": "Admitted", "lastTransitionTime": in_hours(-2)}
    over = workload("a/job-old", "a", 1, status={"phase": "Succeeded", "conditions": [began, ended]})
    async with board(node("n1"), queue("a"), queue("b"), over, workload("b/job-new", "b", 1, at="n1[0]")) as shown:
        page = await shown.page("/timeline")
    assert 0 < page.index("new runs on 1 GPU<") < page.index("old finished")


async def test_timeline_says_for_whom_a_workload_was_evicted() -> None:
    history = [{"time": in_hours(-1), "reason": "Reclaimed", "by": "vision", "for": "vision/job-b"}]
    it = workload("nlp/job-a", "nlp", 3, status=WAITS | {"evictionHistory": history})
    async with board(queue("nlp"), it) as shown:
        page = await shown.page("/timeline")
    assert " for b</small>" in page and "evicted <time" in page


@pytest.mark.parametrize("view", ["/operations", "/usage", "/workload/nlp/job-a"])
async def test_the_command_lines_of_a_view_are_understood(view: str) -> None:
    it = workload("nlp/job-a", "nlp", 1, status={"reason": "Refused", "message": "struck"})
    async with board(node("n1"), queue("nlp"), it) as shown:
        page = await shown.page(view)
    lines = re.findall(r"<code>((?:kubectl )?fairway [^<]+)</code>", page)
    assert lines
    for line in lines:
        understood(line)


async def test_timeline_says_how_good_the_forecasts_of_each_queue_were() -> None:
    told = [{"horizon": "1h", "starts": 40, "error": 300.0, "coverage": 0.93}]
    async with board(queue("nlp") | {"status": {"forecasts": told}}) as shown:
        page = await shown.page("/timeline")
    words = " ".join(re.sub("<.*?>", " ", page.partition("How good forecasts were")[2]).split())
    assert words.endswith("nlp 1h 40 5 min 93 %")


async def test_the_details_of_a_workload_are_its_events_and_a_yaml_without_names_of_another_tenant() -> None:
    whom = "nlp/job-quince", "vision/job-quince"
    past = [{"time": NOW, "reason": "Reclaimed", "by": "x", "for": it} for it in whom]
    it = workload("nlp/job-a", "nlp", 1, status=WAITS | {"evictionHistory": past})
    about = {"apiVersion": kinds.FAIRWAY, "kind": "Workload", "namespace": "nlp", "name": "job-a"}
    event = {"kind": "Event", "metadata": {"name": "e", "namespace": "nlp"}, "involvedObject": about,
             "reason": "Reclaimed", "type": "Warning", "message": "it gave way <b>", "eventTime": NOW}  # fmt: skip
    users = {"users": ("tariq",), "allows": lambda _, resource, space: space == "nlp"}
    async with board(queue("nlp"), it, event, **users) as shown:
        await shown.page("/now", "tariq")
        texts = []
        for key in ("nlp/job-a", "nlp/job-none"):
            asked = {"params": {"workload": key}, "headers": {"authorization": "Bearer tariq"}}
            async with shown.session.get(f"{shown.address}/detail", **asked) as answer:
                assert answer.status == 200
                texts.append(await answer.text())
    text, none = texts
    assert '<b class="warn">Reclaimed</b>' in text and "it gave way &lt;b&gt;" in text and none == ""
    assert "kind: Workload" in text and "for: nlp/job-quince" in text
    assert "for: (of another namespace)" in text and "vision/job-quince" not in text


@pytest.mark.parametrize("view", ["/now", "/waiting", "/workload/nlp/job-a"])
async def test_what_users_write_is_escaped(view: str) -> None:
    status = {"reason": "NoRoom", "message": "<script>alert(1)</script>"}
    said = workload("nlp/job-a", "nlp", 1, user="<b>x", status=status)
    async with board(node("n1"), queue("nlp"), said) as shown:
        page = await shown.page(view)
    assert "<script" not in page and "<b>x" not in page and "&lt;script&gt;" in page


async def test_times_in_a_sentence_are_left_to_the_browser_to_write() -> None:
    said = workload("nlp/job-a", "nlp", status={"reason": "HeldFor", "message": "until 2026-11-23T21:23:00Z <b>"})
    async with board(queue("nlp"), said) as shown:
        page = await shown.page("/waiting")
    assert 'until <time datetime="2026-11-23T21:23:00Z">' in page and "&lt;b&gt;" in page


TENANTS = {"tariq": ("nlp", "quince"), "yusra": ("vision", "medlar")}
"""User → namespace and queue, and what its workloads are called after."""


VIEWS = ["/now", "/waiting", "/find", "/queues", "/timeline", "/operations", "/usage?by=user"]
OF_TENANTS = [f"/workload/{space}/job-{name}" for space, name in TENANTS.values()]


@pytest.mark.parametrize("view", [*VIEWS, *OF_TENANTS])
async def test_two_tenants_never_see_each_others_names(view: str) -> None:
    things = [node("n1"), queue("nlp"), queue("vision")]
    for at, (user, (space, name)) in enumerate(TENANTS.items()):
        message = f"{name}-1 holds 8 GPUs there"
        whom = [f"{one}/{other}" for one, other in TENANTS.values()]
        evicted = [{"time": NOW, "reason": "Reclaimed", "by": "x", "for": it} for it in whom]
        status = {"reason": "NoRoom", "message": message, "evictionHistory": evicted}
        things.append(usage_day(space, status={"rows": [used(user, 1, 1)]}))
        things.append(workload(f"{space}/job-{name}", space, 1, user=user, at=f"n1[{at}]"))
        things.append(workload(f"{space}/job-{name}-2", space, 2, user=user, status=status))
    homes = {user: space for user, (space, _) in TENANTS.items()}
    async with board(*things, homes=homes) as shown:
        for user, (_, name) in TENANTS.items():
            page = await shown.page(view, user)
            hidden = {word for other, (_, word) in TENANTS.items() if other != user} | (TENANTS.keys() - {user})
            assert [word for word in hidden if word in page] == []
            assert "No such workload" in page or name in page or view in ("/queues", "/usage?by=user")


async def test_who_may_not_list_queues_sees_those_of_seen_workloads_alone() -> None:
    things = queue("all"), queue("nlp", parent="all"), queue("vision", parent="all"), workload("nlp/job-a", "nlp")
    async with board(*things, users=("tariq",), allows=lambda _, resource, space: space == "nlp") as shown:
        page = await shown.page("/queues", "tariq")
    assert 'data-key="nlp"' in page and 'data-key="all"' in page and "vision" not in page


async def test_a_namespace_that_is_new_is_seen_at_once() -> None:
    async with board(queue("nlp"), users=("tariq",), allows=lambda _, resource, space: bool(space)) as shown:
        await shown.page("/waiting", "tariq")
        await shown.put({"kind": "Namespace", "metadata": {"name": "nlp"}}, workload("nlp/job-quince", "nlp"))
        stream = shown.stream("/waiting", "tariq")
        async for _, _, content in stream:
            if "quince" in str(content):
                break
        await stream.aclose()


async def test_rights_are_asked_once_for_all_namespaces_and_then_kept() -> None:
    things = [workload(f"team-{at}/job-a", "nlp", 1) for at in range(6)]
    async with board(queue("nlp"), *things, users=("ann",), allows=lambda *_: True) as shown:
        await shown.page("/waiting", "ann")
        await shown.page("/now", "ann")
        reviews = [it.headers["authorization"] for it in shown.asked if it.path.endswith("accessreviews")]
    assert reviews.count("Bearer ann") == 4


async def test_operations_name_full_disks_and_each_line_leads_to_its_section_of_the_runbook() -> None:
    bad = node("n2")
    bad["status"]["conditions"].append({"type": "DiskPressure", "status": "True", "message": "3 GiB left"})
    late = workload("a/job-slow", "q", status={"reason": "Refused", "message": "a rule refused it"})
    async with board(node("n1", unschedulable=True), bad, queue("q"), late, lease(0.0)) as shown:
        text = await shown.page("/operations")
        named = set(re.findall(r'href="/runbook\?section=([\w-]+)"', text))
        advice = {it: await shown.page(f"/runbook?section={it}") for it in named}
        whole = await shown.page("/runbook")
    for part in ("cordoned", "3 GiB left", "refused plan", "no decisions", "kubectl describe node n2"):
        assert part in text
    sections = {re.sub(r" ", "-", it.lower()) for it in re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE)}
    assert len(named) >= 4 and all(text.count("<h2>") == 1 for text in advice.values())
    assert set(re.findall(r'<h2><a href="/runbook\?section=([\w-]+)">', whole)) == sections
    assert "<code>kubectl uncordon NODE</code>" in advice["unhealthy-nodes"]
    alerts = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert alerts and re.findall(r"runbook\.md#(\w+)", ALERTS.read_text()) == [it.lower() for it in alerts]
    assert {it.lower() for it in alerts} <= sections


async def test_the_timeline_draws_earlier_attempts_holds_and_evictions_on_both_lines() -> None:
    hour = time.time() - 3600
    past = {"time": time_text(hour), "began": time_text(hour - 1800), "nodes": ["n2"], "reason": "Reclaimed",
            "by": "vision", "for": "vision/job-taker", "queue": "nlp", "lost": HOUR_UNITS}  # fmt: skip
    kept = f"needs 8 GPUs; room is kept for it from {time_text(time.time() + 3600)}; with 2 GPUs it would start now"
    status = {"reason": "NoRoom", "message": kept, "evictionHistory": [past]}
    things = node("n1"), node("n2"), queue("nlp"), queue("vision"), workload("nlp/job-victim", "nlp", 8, status=status)
    taker = workload("vision/job-taker", "vision", 2, at="n1[0,1]")
    users = {"users": ("vision",), "allows": lambda user, resource, space: space == user}
    async with board(*things, taker, **users) as shown:
        page, nodes = await shown.page("/timeline"), await shown.page("/timeline?by=node")
        theirs, own = await shown.page("/timeline", "vision"), await shown.page("/workload/nlp/job-victim")
    kept = "room for 8 GPUs is kept for victim"
    for words in ("victim ran until it was evicted", kept, "taker took the room of victim"):
        assert f"<title>{words}</title>" in page
    assert "victim ran until it was evicted" in nodes and 'href="/now?q=n2"' in nodes
    assert [it.strip() for it in re.findall("<small>([a-z0-9A-Z: ()]+)<", nodes)] == [
        "by node", "2 GPUs held: taker (2)", "nothing runs"
    ]  # fmt: skip
    assert "taker took the room of a workload of queue nlp" in theirs and "victim" not in theirs
    assert "it had run since" in own and "1 GPU-hours of work lost" in own


async def test_the_past_of_a_workload_that_was_moved_is_drawn_in_the_queue_that_it_had() -> None:
    past = {"time": in_hours(-1), "began": in_hours(-2), "reason": "Suspended", "queue": "vision"}
    moved = workload("nlp/job-moved", "nlp", 2, at="n1[0,1]", status={"evictionHistory": [past]})
    taken = {"time": in_hours(-1.9), "reason": "Preempted", "by": "vision", "for": "nlp/job-moved"}
    other = workload("vision/job-late", "vision", status=WAITS | {"evictionHistory": [taken]})
    async with board(node("n1"), queue("nlp"), queue("vision"), moved, other) as shown:
        pages = [await shown.page(f"/timeline?by=queue{more}") for more in ("", "&queue=vision")]
    for page in pages:
        lines = dict(re.findall(r'<div class="line" data-key="(\w+)">(.*?)</div>', page, re.DOTALL))
        was = "moved ran until it was suspended", "moved took the room of late"
        assert all(f"<title>{it}</title>" in lines["vision"] for it in was) and "runs on" not in lines["vision"]
        assert "nothing runs" in lines["vision"]
        now = lines.get("nlp", "2 GPUs held: moved")
        assert not any(it in now for it in was) and "2 GPUs held: moved" in now
    assert 'data-key="nlp"' in pages[0] and 'data-key="nlp"' not in pages[1]


@pytest.mark.parametrize("own, other", [("alpha", "beta"), ("beta", "alpha")])
async def test_no_view_shows_a_tenant_the_names_of_another(own: str, other: str) -> None:
    def things(team: str, at: int) -> list[dict[str, Any]]:
        taker = own if team == other else other
        past = {"time": time_text(time.time() - 60), "began": NOW, "reason": "Reclaimed", "by": f"q-{taker}",
                "for": f"{taker}/job-{taker}runs"}  # fmt: skip
        named = {"user": f"{team}user"}
        return [
            workload(f"{team}/job-{team}runs", f"q-{team}", 2, at=f"n1[{at},{at + 1}]", **named),
            workload(f"{team}/job-{team}waits", f"q-{team}", 8, status=WAITS | {"evictionHistory": [past]}, **named),
        ]

    users = {"users": (own,), "allows": lambda user, resource, space: space == user or resource == "nodes"}
    both = [*things(own, 0), *things(other, 2), queue(f"q-{own}"), queue(f"q-{other}")]
    async with board(node("n1"), *both, lease(time.time()), **users) as shown:
        for view in ("now", "waiting", "find", "queues", "timeline", "timeline?by=node", "operations", "usage",
                     "submit", f"workload/{own}/job-{own}runs", f"workload/{other}/job-{other}runs"):  # fmt: skip
            text = await shown.page(f"/{view}", own)
            for name in (f"{other}runs", f"{other}waits", f"{other}user"):
                assert name not in text.replace(f"/workload/{other}/job-{other}runs", ""), (view, name)
            assert own in text or view in ("usage", f"workload/{other}/job-{other}runs"), view


def cancelled(key: str, queue: str, *, ran: bool = True) -> dict[str, Any]:
    """The event that a Job's workload left an hour ago; it had run for an hour."""
    space, _, name = key.partition("/")
    about = {"apiVersion": kinds.FAIRWAY, "kind": "Workload", "namespace": space, "name": f"job-{name}"}
    notes = {"fairway.dev/queue": queue, "fairway.dev/user": "ann", "fairway.dev/owner": f"Job/{name}",
             "fairway.dev/ran-from": in_hours(-2) if ran else ""}  # fmt: skip
    return {"kind": "Event", "metadata": {"name": name, "namespace": space, "annotations": notes},
            "involvedObject": about, "reason": "Cancelled", "lastTimestamp": in_hours(-1),
            "message": f"cancelled while it {'ran' if ran else 'waited'}"}  # fmt: skip


async def test_what_was_cancelled_is_in_every_view_of_what_was_and_its_victims_name_it() -> None:
    history = [{"time": in_hours(-1.5), "reason": "Reclaimed", "by": "nlp", "for": "nlp/job-gone"}]
    victim = workload("nlp/job-victim", "nlp", 1, status=WAITS | {"evictionHistory": history})
    events = cancelled("nlp/gone", "nlp"), cancelled("nlp/never", "nlp", ran=False)
    async with board(node("n1"), queue("nlp"), victim, *events) as shown:
        find, timeline = await shown.page("/find?state=cancelled"), await shown.page("/timeline")
        changed, own = await shown.page("/operations?since=6h"), await shown.page("/workload/nlp/job-gone")
        waits, evicted = await shown.page("/waiting"), await shown.page("/workload/nlp/job-victim")
    assert "2 workloads in any state" in find and ">gone</a>" in find and "while it waited" in find
    assert "gone was cancelled while it ran" in timeline and "gone took the room of victim" in timeline
    assert re.search(r'class="ran" [^>]+><title>gone cancelled', timeline) and "never was cancelled" in timeline
    assert changed.count(">cancelled</b>") == 2 and "1 workload for 1 GPU" in waits
    assert "<dd>cancelled while it ran</dd>" in own and "<dt>ran since</dt>" in own and "data-act" not in own
    assert "for gone of queue nlp" in evicted and all("job-gone<" not in it for it in (changed, timeline, evicted))


async def test_a_workload_that_is_there_is_shown_before_a_cancelled_one_of_its_name() -> None:
    again = workload("nlp/job-gone", "nlp", 1, status=WAITS)
    async with board(node("n1"), queue("nlp"), again, cancelled("nlp/gone", "nlp")) as shown:
        assert 'class="state waiting"' in await shown.page("/find?q=gone")
        await shown.client.delete(Ref(kinds.WORKLOADS, "job-gone", "nlp"))
        stream = shown.stream("/find?q=gone")
        async for _, _, content in stream:
            if 'class="state cancelled"' in str(content):
                break
        await stream.aclose()


async def test_a_record_without_a_name_a_message_or_a_count_and_one_of_another_operator_do_no_harm() -> None:
    bare, other = cancelled("nlp/bare", "nlp"), cancelled("nlp/other", "nlp")
    del bare["message"], bare["lastTimestamp"], bare["involvedObject"]["name"], bare["metadata"]["annotations"]
    other["involvedObject"]["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    async with board(node("n1"), queue("nlp"), bare, other, cancelled("nlp/gone", "nlp")) as shown:
        page = await shown.page("/find?state=cancelled")
    assert ">gone</a>" in page and ">(0 workloads)</a>" in page and ">other</a>" not in page


async def test_what_a_record_says_is_for_those_who_see_its_namespace() -> None:
    things = cancelled("nlp/gone", "nlp"), workload("vision/job-b", "vision")
    async with board(node("n1"), *things, users=("tariq",), allows=lambda _, what, space: space == "vision") as shown:
        mine, theirs = await shown.page("/timeline"), await shown.page("/timeline", "tariq")
    assert "gone was cancelled while it ran" in mine
    assert "a workload of queue nlp was cancelled<" in theirs and "while it ran" not in theirs


async def test_a_lease_without_a_spec_is_held_by_no_controller() -> None:
    bare = {"kind": "Lease", "metadata": lease(0.0)["metadata"]}
    async with board(node("n1"), bare) as shown:
        page = await shown.page("/now")
    assert "no controller holds the lease" in page


async def test_a_time_in_the_address_is_absolute_and_what_lies_beyond_it_has_no_line() -> None:
    began = time.time() - 600
    ended = {"phase": "Succeeded", "conditions": [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": time_text(began - back)}
        for kind, back in (("Admitted", 7200), ("Finished", 3600))]}  # fmt: skip
    old, runs = workload("nlp/job-old", "nlp", 1, status=ended), workload("nlp/job-new", "nlp", 1, at="n1[0]")
    async with board(node("n1"), queue("nlp"), old, runs) as shown:
        def span(since: float, until: float) -> str:
            return f"since={time_text(int(began + since))}&until={time_text(int(began + until))}"

        before = await shown.page(f"/timeline?{span(-5400, -1800)}")
        after = await shown.page(f"/timeline?{span(-60, 3600)}")
        wrong = await shown.page("/timeline?since=yesterday&until=now")
        changed = await shown.page(f"/operations?since={time_text(int(began - 60))}")
        all_of_it = await shown.page(f"/operations?since={time_text(int(began - 7000))}")
    assert "job-old" in before and "job-new" not in before and before.count('class="now"') == 1  # of the legend
    assert "job-new" in after and "job-old" not in after and "keep this time" not in after
    assert "keep this time" in wrong
    assert "job-new" in changed and "job-old" not in changed and "job-old" in all_of_it
