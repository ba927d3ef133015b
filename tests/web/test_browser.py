"""The page in a real browser: every view at two widths and in two themes, by keyboard alone, and as things change."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from board import LINK, Board, board, lease, node, queue, revocable, understood, workload

from fairway.cli.desk import desk
from fairway.kube import kinds
from fairway.kube.kinds import Ref, Selection
from fairway.web import topic

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install Debian's package `chromium`")
PATIENCE_MS = 60_000
VIEWS = ["/now", "/waiting", "/find", "/queues", "/timeline", "/timeline?by=node", "/operations", "/usage", "/submit",
         "/workload/nlp/job-train"]  # fmt: skip
WAITS = {"reason": "NoRoom", "message": "needs 8 GPUs on one node; at most 5 are free on any of 2 nodes"}
THINGS = (
    node("n1"), node("n2", unschedulable=True), queue("all", 16), queue("nlp", 2, parent="all"),
    queue("vision", 6, parent="all", budget={"gpuHours": 100, "period": "30d"}), lease(0.0),
    workload("nlp/job-train", "nlp", 3, at="n1[0,1,2]", spec={"timeLimit": "2h"}),
    workload("nlp/job-a-name-that-is-as-long-as-names-of-sweeps-over-many-settings-are", "nlp", 2, at="n1[4,5]"),
    *(workload(f"vision/job-wait-{at}", "vision", 8, status=WAITS | {"position": at}) for at in range(1, 6)),
)  # fmt: skip
JOB = {"kind": "Job", "metadata": {"name": "train", "namespace": "nlp"}, "spec": {"suspend": True, "template": {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}}}  # fmt: skip

CUT = """
const real = fetch, ends = new AbortController();
window.isCut = false;
window.fetch = async (...asked) => {
    if (isCut) throw new TypeError("cut");
    const answer = await real(...asked);
    return new Response(answer.body.pipeThrough(new TransformStream(), ends.signal.aborted ? {} : ends), answer);
};
window.cut = () => { isCut = true; ends.abort(); };
"""
"""A network that `cut` cuts, the open stream too, until `isCut` is false again."""


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        started = await play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        await started.close()


async def opened(
    shown: Board, chrome: Any, view: str = "/now", *, width: int = 1280, theme: str = "light", script: str = ""
) -> Any:
    """A tab with the view drawn; what goes wrong in it is in `faults`. `script` runs in it first."""
    context = await chrome.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    await page.add_init_script(script)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda it: page.faults.append(it.text) if "Content Security" in it.text else None)
    page.on("request", lambda it: page.faults.append(it.url) if not it.url.startswith(shown.address) else None)
    await page.goto(f"{shown.address}{view}#token={LINK}")
    await page.wait_for_selector("#as-of:has-text('as of')")
    return page


FAINT = """() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = text => parts(text).slice(0, 3).map(it => it / 255)
        .map(it => it <= .03928 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4)
        .reduce((sum, it, at) => sum + it * [.2126, .7152, .0722][at], .05);
    const ratio = (one, other) => {
        const [a, b] = [light(one), light(other)];
        return Math.max(a, b) / Math.min(a, b);
    };
    const behind = it => it && (parts(getComputedStyle(it).backgroundColor)[3] ?? 1)
        ? getComputedStyle(it).backgroundColor : behind(it.parentElement);
    const faint = [];
    for (const it of document.querySelectorAll("body *")) {
        if (!it.checkVisibility({opacityProperty: true}) || it.disabled || it.closest("svg, canvas")) continue;
        const style = getComputedStyle(it), name = `${it.tagName}.${it.className} ${it.innerText}`;
        const hasText = [...it.childNodes].some(one => one.nodeType === 3 && one.data.trim());
        if (hasText && ratio(style.color, behind(it)) < 4.5) faint.push(`text of ${name}`);
        const isField = it.matches("input:not([type=checkbox]), select, textarea, button");
        if (isField && ratio(style.borderTopColor, behind(it.parentElement)) < 3) faint.push(`edge of ${name}`);
        const hint = it.placeholder && getComputedStyle(it, "::placeholder");
        if (hint && (hint.opacity < 1 || ratio(hint.color, behind(it)) < 4.5)) faint.push(`hint of ${name}`);
    }
    return faint;
}"""
"""Texts and edges of fields with less contrast than WCAG 2.2 asks for (1.4.3, 1.4.11)."""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
async def test_every_view_fits_its_window_and_has_no_fault(width: int, theme: str) -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        for view in VIEWS:
            page = await opened(shown, chrome, view, width=width, theme=theme)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await page.evaluate("scrollY") == 0 and "token" not in page.url
            assert await page.evaluate(FAINT) == [], view
            assert page.faults == []
            await page.context.close()


LONG = "a-name-that-is-as-long-as-names-of-sweeps-over-many-settings-are-7"
WIDER = """() => [...document.querySelectorAll("main *")].filter(it => !it.closest("pre, svg, select")
    && it.scrollWidth > it.clientWidth + 1 && it.clientWidth && getComputedStyle(it).display != "inline")
    .map(it => `${it.tagName}.${it.className} ${it.innerText}`)"""


@pytest.mark.parametrize("width", [1280, 375])
async def test_long_names_are_shown_whole_and_lie_over_nothing(width: int) -> None:
    user = "carlotta.von-und-zu-lichtenstein@research.example.com"
    forecast = {"p50": "2999-11-23T14:20:00Z"}
    waits = {"reason": "DependencyPending", "message": "it comes after x", "forecast": forecast}
    held = [workload(f"nlp/job-{at}-{LONG}", "nlp", 1, at=f"n1[{at}]", user=user) for at in range(3)]
    things = *held, workload(f"nlp/job-{LONG}", "nlp", 1, user=user, status=waits)
    async with board(node("n1"), queue("nlp", 2), lease(0.0), *things) as shown, browser() as chrome:
        for view in ("/now", "/waiting", "/queues", "/timeline", "/operations", f"/workload/nlp/job-{LONG}"):
            page = await opened(shown, chrome, view, width=width)
            assert await page.evaluate(WIDER) == [], view
            await page.context.close()


async def test_a_change_is_shown_without_reloading_and_focus_and_order_stay() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting?sort=since")
        link = page.locator("tr[data-key='vision/job-wait-3'] a")
        await link.focus()
        before = await page.locator("[data-list] tr").evaluate_all("them => them.map(it => it.dataset.key)")
        await shown.put(workload("vision/job-wait-3", "vision", 8, status=WAITS | {"message": "something else"}))
        await page.wait_for_selector("tr[data-key='vision/job-wait-3']:has-text('something else')")
        assert await link.evaluate("it => it === document.activeElement")
        assert await page.locator("[data-list] tr").evaluate_all("them => them.map(it => it.dataset.key)") == before
        assert page.faults == []


async def test_rows_are_not_reordered_under_the_pointer_but_once_it_leaves() -> None:
    def at(name: int, position: int) -> dict[str, Any]:
        return workload(f"vision/job-wait-{name}", "vision", 8, status=WAITS | {"position": position, "message": "new"})

    keys = "them => them.map(it => it.dataset.key.slice(-1)).join('')"
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        rows = page.locator("[data-list] tr")
        await rows.nth(1).hover()
        await shown.put(at(5, 1), at(1, 5))
        await page.wait_for_selector("tr[data-key$='wait-1']:has-text('new')")
        assert await rows.evaluate_all(keys) == "12345"
        await page.mouse.move(5, 5)
        await page.wait_for_selector("tr[data-key$='wait-5']:first-child")
        assert await rows.evaluate_all(keys) == "52341"


async def test_a_text_being_typed_survives_a_change() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        await page.keyboard.press("/")
        await page.keyboard.type("wait-4")
        await page.wait_for_url("**/waiting?q=wait-4")
        await page.wait_for_selector("tr[data-key='vision/job-wait-1']", state="detached")
        await shown.put(workload("vision/job-wait-4", "vision", 8, status=WAITS | {"message": "news"}))
        await page.wait_for_selector("tr:has-text('news')")
        assert await page.evaluate("document.activeElement.value") == "wait-4"


async def test_a_workload_is_cancelled_by_keyboard_alone_after_saying_what_is_lost() -> None:
    async with board(*THINGS, JOB) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/now")
        await reach(page, "train")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:has-text('train')")
        await reach(page, "cancel")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open]")
        said = await page.locator("dialog").inner_text()
        assert "Cancel train?" in said and "its place on 3 GPUs" in said and "kubectl -n nlp delete job/train" in said
        await reach(page, "delete it")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog:not([open])", state="attached")
        assert "DELETE" in [it.method for it in shown.asked if it.path.endswith("/jobs/train")]


@pytest.mark.parametrize("width, least", [(1280, 24), (375, 44)])
async def test_a_workload_is_cancelled_from_the_view_of_all_gpus_which_stays_as_it_is(width: int, least: int) -> None:
    async with board(*THINGS, *(node(f"m{at:02}") for at in range(20)), JOB) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/now?sort=free", width=width)
        button = page.locator("article[data-key=n1] [aria-label='cancel train']")
        box = await button.bounding_box()
        assert min(box["width"], box["height"]) >= least
        await button.hover()
        where = await page.evaluate("scrollY")
        await button.click()
        await page.wait_for_selector("dialog[open]:has-text('its place on 3 GPUs')")
        await page.locator("dialog [value=yes]").click()
        await page.wait_for_selector("dialog:not([open])", state="attached")
        assert "DELETE" in [it.method for it in shown.asked if it.path.endswith("/jobs/train")]
        assert page.url == f"{shown.address}/now?sort=free" and await page.evaluate("scrollY") == where > 0


async def test_a_button_with_the_focus_says_what_it_does_and_what_goes_leaves_the_focus_beside_it() -> None:
    async with board(*THINGS, JOB) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/workload/vision/job-wait-1")
        await page.locator("[data-act=suspend]").focus()
        off = {"spec": {"active": False}, "status": {"phase": "Suspended", "reason": "Suspended"}}
        place = Ref(kinds.WORKLOADS, "job-wait-1", "vision")
        await shown.client.patch(place, off)
        await shown.client.patch(place, off, subresource="status")
        await page.wait_for_selector("[data-act=resume]")
        assert await page.locator("[data-act=resume]").inner_text() == "resume"
        await page.goto(f"{shown.address}/waiting")
        await page.locator("input[value='vision/job-wait-2']").focus()
        await shown.client.delete(Ref(kinds.WORKLOADS, "job-wait-2", "vision"))
        await page.wait_for_selector("input[value='vision/job-wait-2']", state="detached")
        assert (await page.evaluate("document.activeElement.value")).startswith("vision/job-wait-")


async def test_of_a_mixed_choice_each_action_is_offered_for_those_that_it_can_be_done_to() -> None:
    off = workload("vision/job-off", "vision", 1, status={"phase": "Suspended", "reason": "Suspended"})
    job = JOB | {"metadata": {"name": "off", "namespace": "vision"}}
    async with board(*THINGS, off, job) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        for name in ("wait-1", "wait-2", "off"):
            await page.locator(f"input[value='vision/job-{name}']").check()
        names = [await it.inner_text() for it in await page.locator("[data-many]:enabled").all()]
        assert names == ["suspend 2", "resume 1", "change priority 3", "move to a queue 3", "cancel 3"]
        await page.locator("[data-many=resume]").click()
        await page.wait_for_selector("dialog[open]:has-text('Resume off?')")
        await page.locator("dialog [value=yes]").click()
        await page.wait_for_selector("#many:has-text('2 chosen')")
        assert (await shown.client.get(Ref(kinds.JOBS, "off", "vision")))["metadata"]["annotations"]
        names = [await it.inner_text() for it in await page.locator("[data-many]:enabled").all()]
        assert names == ["suspend 2", "change priority 2", "move to a queue 2", "cancel 2"] and page.faults == []


async def test_all_that_are_found_are_chosen_at_once_and_get_another_priority_or_are_cancelled() -> None:
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    names = ("train", "wait-1", "wait-2")
    spaces = {name: "nlp" if name == "train" else "vision" for name in names}
    jobs = [JOB | {"metadata": {"name": name, "namespace": space}} for name, space in spaces.items()]
    wanted = {"n1", "all", "nlp", "vision", *(f"job-{name}" for name in names)}
    things = [it for it in THINGS if it["metadata"]["name"] in wanted]
    async with board(*things, urgent, *jobs) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/find")
        await reach(page, "choose all")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#many:has-text('3 chosen')")
        await page.locator("[data-many=priority]").click()
        await page.wait_for_selector("dialog[open]:has-text('Each takes its position by that priority in its queue')")
        await page.locator("dialog select").select_option("urgent")
        await page.wait_for_selector("dialog:has-text('modify --priority urgent -n nlp workload/job-train')")
        for each in (await page.locator("dialog pre").inner_text()).splitlines():
            understood(each)
        await page.locator("dialog [value=yes]").click()
        await page.wait_for_selector("dialog:not([open])", state="attached")
        made = [(await shown.client.get(Ref(kinds.JOBS, name, space)))["metadata"] for name, space in spaces.items()]
        assert [it["annotations"]["fairway.dev/priority-class"] for it in made] == ["urgent"] * 3
        await page.locator("[data-all]").click()
        await page.locator("[data-many=cancel]").click()
        await page.wait_for_selector("dialog[open]:has-text('Cancel 3 workloads?'):has-text('on 3 GPUs, and up to')")
        await page.locator("dialog [value=yes]").click()
        await page.wait_for_selector("dialog:not([open])", state="attached")
        assert await shown.client.list(Selection(kinds.JOBS)) == [] and page.faults == []


@pytest.mark.parametrize("action, words, line", [
    ("priority", "may be preempted for what has a higher one", "annotate --overwrite job/wait-1 fairway.dev/priority-"),
    ("queue", "gives up its position in queue vision", "label --overwrite job/wait-1 fairway.dev/queue=nlp"),
])  # fmt: skip
async def test_the_dialog_of_a_change_says_what_follows_from_it(action: str, words: str, line: str) -> None:
    urgent = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    async with board(*THINGS, urgent, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/workload/vision/job-wait-1")
        await page.locator(f"[data-act={action}]").click()
        await page.wait_for_selector("dialog[open]:has-text('It would wait: ')")
        said = await page.locator("dialog").inner_text()
    assert words in said and "No work" in said and line in said and "kubectl" in said


async def test_what_is_worked_out_for_a_dialog_that_was_closed_is_not_shown_in_the_next_one() -> None:
    is_let = asyncio.Event()

    async def held(route: Any) -> None:
        if '"isForeseen":true' in route.request.post_data:
            await is_let.wait()
        await route.continue_()

    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        await page.route("**/say", held)
        for name in ("wait-1", "wait-2"):
            await page.locator(f"input[value='vision/job-{name}']").check()
            await page.locator("[data-many=queue]").click()
            await page.wait_for_selector(f"dialog[open]:has-text('Move {name} to'):has-text('Working out')")
            await page.locator(f"input[value='vision/job-{name}']").evaluate("it => { it.checked = false; }")
            if name == "wait-1":
                await page.locator("dialog [value=no]").click()
        is_let.set()
        await page.wait_for_selector("dialog[open]:has-text('It would wait: ')")
        assert await page.locator("dialog [value=yes]").get_attribute("data-of") == "vision/job-wait-2"


async def test_several_workloads_are_suspended_at_once_by_keyboard() -> None:
    jobs = [JOB | {"metadata": {"name": f"wait-{at}", "namespace": "vision"}} for at in (1, 2, 3)]
    async with board(*THINGS, *jobs) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        for at in (1, 3):
            await page.locator(f"input[value='vision/job-wait-{at}']").focus()
            await page.keyboard.press("Space")
        await page.wait_for_selector("#many:has-text('2 chosen')")
        assert await page.locator("[data-many=resume]").is_disabled()
        await page.locator("[data-many=suspend]").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open]")
        said = await page.locator("dialog").inner_text()
        assert "kubectl fairway suspend -n vision workload/job-wait-1 workload/job-wait-3" in said
        assert "Suspend 2 workloads?" in said and "wait-1 waiting" in said and "wait-3 waiting" in said
        await reach(page, "suspend")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog:not([open])", state="attached")
        made = [await shown.client.get(Ref(kinds.JOBS, f"wait-{at}", "vision")) for at in (1, 2, 3)]
        notes = [(it["metadata"].get("annotations") or {}).get("fairway.dev/active") for it in made]
        assert notes == ["false", None, "false"] and page.faults == []


async def test_the_kubectl_lines_for_several_namespaces_all_name_the_chosen_queue() -> None:
    waits = workload("nlp/job-late", "nlp", 8, status=WAITS)
    async with board(*THINGS, queue("art"), waits) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        for key in ("nlp/job-late", "vision/job-wait-1"):
            await page.locator(f"input[value='{key}']").check()
        await page.locator("[data-many=queue]").click()
        await page.wait_for_selector("dialog[open]")
        assert "Each gives up its position in its queue" in await page.locator("dialog").inner_text()
        line = await page.locator("dialog pre").inner_text()
        chosen = await page.locator("dialog select").input_value()
    assert {f"modify --queue {chosen} -n {space} workload/" in line for space in ("nlp", "vision")} == {True}
    assert "VALUE" not in line
    for each in line.splitlines():
        understood(each)


async def test_a_move_of_several_names_those_alone_that_are_not_in_the_chosen_queue_yet() -> None:
    waits = workload("nlp/job-late", "nlp", 8, status=WAITS)
    places = ("vision", "wait-1"), ("nlp", "late")
    jobs = [JOB | {"metadata": {"name": name, "namespace": space}} for space, name in places]
    async with board(*THINGS, waits, *jobs) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        for key in ("nlp/job-late", "vision/job-wait-1"):
            await page.locator(f"input[value='{key}']").check()
        for queue, name in (("nlp", "wait-1"), ("vision", "late")):
            await page.locator("[data-many=queue]").click()
            await page.locator("dialog select").select_option("vision")
            await page.locator("dialog select").select_option(queue)
            await page.wait_for_selector(f"dialog[open]:has-text('Move {name} to another queue?')")
            assert f"fairway.dev/queue={queue}" in await page.locator("dialog pre").inner_text()
            await page.locator("dialog [value=no]").click()
        await page.locator("[data-many=queue]").click()
        await page.wait_for_selector("dialog[open]:has-text('Move wait-1 to')")
        assert await page.locator("dialog select").input_value() == "nlp"
        await page.locator("dialog [value=yes]").click()
        await page.wait_for_selector("dialog:not([open])", state="attached")
        made = [(await shown.client.get(Ref(kinds.JOBS, name, space)))["metadata"] for space, name in places]
        assert [it.get("labels") for it in made] == [{"fairway.dev/queue": "nlp"}, None] and page.faults == []


async def reach(page: Any, text: str) -> None:
    """Presses Tab until what has the focus is called so."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        if text == (await page.evaluate("document.activeElement.innerText || ''")).split("\n")[0].strip():
            return
    raise AssertionError(f"{text} cannot be reached with the keyboard")


async def test_a_log_keeps_its_last_thousand_lines_when_more_come() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/workload/nlp/job-train")
        await page.wait_for_selector("#log")
        await page.evaluate("own.log = null")
        for first, last in ((0, 1000), (1000, 1003), (1003, 2100)):
            lines = [f"line {at}" for at in range(first, last)]
            await page.evaluate("lines => append(ONE('log'), {lines, skipped: 0})", lines)
            text = (await page.evaluate("ONE('log').textContent")).splitlines()
            assert text[-1000:] == [f"line {at}" for at in range(last - 1000, last)] and len(text) <= 2100


async def test_what_would_help_a_workload_that_waits_is_worked_out_by_keyboard() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/workload/vision/job-wait-1")
        await page.wait_for_selector("[data-helps]")
        await reach(page, "work it out")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dd:has-text('would start')")
        assert "job-train" not in await page.locator("dl").inner_text()


async def test_a_dashboard_that_is_gone_leaves_a_banner_and_no_actions() -> None:
    async with browser() as chrome:
        async with board(*THINGS) as shown:
            page = await opened(shown, chrome, "/workload/nlp/job-train")
            await page.wait_for_selector("button[data-act=cancel]")
        await page.wait_for_selector("#banner:has-text('Not live')")
        assert "as of" in await page.locator("#banner").inner_text()
        assert await page.locator("button[data-act=cancel]").is_disabled()


async def test_nothing_is_called_good_in_green_while_the_page_is_not_live() -> None:
    colours = """() => [...main.querySelectorAll("p.good")].map(it => [getComputedStyle(it).color,
        getComputedStyle(it, "::after").content, getComputedStyle(main.querySelector("small")).color])"""
    async with browser() as chrome:
        async with board(node("n1"), lease(time.time() + 3600)) as shown:
            page = await opened(shown, chrome, "/now")
            await page.wait_for_selector("p.good:has-text('Fairway decides')")
            assert {green != quiet and word == "none" for green, word, quiet in await page.evaluate(colours)} == {True}
        await page.wait_for_selector("#banner:has-text('Not live')")
        told = await page.evaluate(colours)
        assert len(told) == 2 and {(one == quiet, word) for one, word, quiet in told} == {(True, '" (not live)"')}


async def test_after_a_cut_the_page_equals_a_fresh_load() -> None:
    async with browser() as chrome:
        async with board(*THINGS) as shown:
            port = int(shown.address.rpartition(":")[2])
            page = await opened(shown, chrome, "/waiting")
        await page.wait_for_selector("#banner:has-text('Not live')")
        changed = [it for it in THINGS if it["metadata"]["name"] != "job-wait-2"]
        async with board(*changed, workload("vision/job-zebra", "vision", 1), port=port) as shown:
            await page.wait_for_selector("tr[data-key='vision/job-zebra']")
            fresh = await opened(shown, chrome, "/waiting")
            await fresh.wait_for_selector("tr[data-key='vision/job-zebra']")
            texts = [await it.locator("#main").inner_text() for it in (page, fresh)]
            assert texts[0] == texts[1] and "wait-2" not in texts[0]
            assert await page.locator("#banner").is_hidden()
            await page.locator("input[name=chosen]").first.check()
            assert await page.locator("button[data-many=cancel]").is_enabled()


@pytest.mark.parametrize("kept", [2, 64], ids=["more than are kept", "all that are kept"])
async def test_after_a_cut_and_many_missed_changes_the_page_equals_a_fresh_load(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "KEPT", kept)
    async with board(*THINGS) as shown, browser() as chrome:
        other = await opened(shown, chrome, "/waiting")
        page = await opened(shown, chrome, "/waiting", script=CUT)
        await page.evaluate("cut()")
        await page.wait_for_function("() => trouble")
        for at in (1, 3, 4, 5):
            await shown.put(workload(f"vision/job-wait-{at}", "vision", at, status=WAITS | {"message": f"turn {at}"}))
            await other.wait_for_selector(f"tr:has-text('turn {at}')")
        await shown.client.delete(Ref(kinds.WORKLOADS, "job-wait-2", "vision"))
        await other.wait_for_selector("tr[data-key='vision/job-wait-2']", state="detached")
        await page.evaluate("isCut = false")
        await page.wait_for_selector("tr[data-key='vision/job-wait-2']", state="detached")
        fresh = await opened(shown, chrome, "/waiting")
        texts = [await it.locator("#main").inner_text() for it in (page, fresh)]
        assert texts[0] == texts[1] and "turn 5" in texts[0] and page.faults == []


async def test_without_a_token_the_page_asks_for_one() -> None:
    async with board(*THINGS, users=("ann",)) as shown, browser() as chrome:
        page = await (await chrome.new_context()).new_page()
        await page.goto(f"{shown.address}/now")
        await page.wait_for_selector("#login")
        dot = "getComputedStyle(document.getElementById('as-of'), '::before').content"
        assert await page.evaluate(dot) == '"○ "' and "`" not in await page.locator("#login").inner_text()
        await page.keyboard.type("ann")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("article.node")
        assert await page.evaluate(dot) == '"● "' and "ann" not in page.url


@pytest.mark.parametrize("how", [{"modifiers": ["Control"]}, {"button": "middle"}])
async def test_a_link_opened_in_a_new_tab_needs_no_token_there(how: dict[str, Any]) -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome)
        async with page.context.expect_page() as made:
            await page.locator("nav a[href='/queues']").click(**how)
        tab = await made.value
        await tab.wait_for_selector("#as-of:has-text('as of')")
        await tab.wait_for_selector("tr[data-key=nlp]")
        assert await tab.locator("#login").is_hidden() and tab.url == f"{shown.address}/queues"


HEARD = """async () => {
    const heard = [], channel = new BroadcastChannel("fairway-token");
    const isOver = new Promise(done => { channel.onmessage = ({data}) => data === "end" ? done() : heard.push(data); });
    channel.postMessage("");
    await isOver;
    return heard;
}"""
"""What a page of this address is told when it asks for a token, until a tab that marks the end of its answers does."""


async def test_a_tab_shows_its_token_to_other_tabs_only_while_it_hears_the_dashboard() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, script=CUT)
        await page.evaluate("""() => {
            const channel = new BroadcastChannel("fairway-token");
            channel.onmessage = ({data}) => data || channel.postMessage("end");
        }""")
        other = await page.context.new_page()
        await other.goto(f"{shown.address}/healthz")
        assert await other.evaluate(HEARD) == [LINK]
        await page.evaluate("cut()")
        await page.wait_for_function("() => trouble")
        assert await other.evaluate(HEARD) == []


async def test_a_half_written_form_is_there_when_its_view_is_seen_again() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit")
        await page.locator("[name=queue]").select_option("vision")
        await page.locator("[name=command]").fill("python train.py")
        await page.locator("[data-try]").click()
        await page.wait_for_selector("#tried:has-text('It would start now')")
        await page.locator("[name=memory]").fill("8Gi")
        await page.locator("nav a[href='/timeline']").click()
        await page.wait_for_selector(".lines")
        await shown.put(queue("speech"))
        await page.locator("nav a[href='/submit']").click()
        await page.wait_for_selector("#tried:has-text('It would start now')")
        fields = await page.locator(".submit").locator("input, select").evaluate_all("them => them.map(it => it.value)")
        assert fields[0] == "vision" and fields[4] == "8Gi" and fields[-1] == "python train.py"
        assert await page.locator("[name=queue] option").all_inner_texts() == ["nlp", "vision", "speech"]
        assert await page.locator("[data-make]").is_disabled() and page.faults == []  # it was changed after its trial


async def test_a_form_is_tried_and_submitted_by_keyboard() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit?queue=nlp&namespace=nlp", width=375)
        assert await page.locator("[data-make]").is_disabled()
        await page.locator("[name=command]").focus()
        await page.keyboard.type("python train.py")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#tried:has-text('It would start now')")
        await page.wait_for_function("() => document.activeElement.matches('[data-make]')")
        assert "python train.py" in await page.locator("[name=manifest]").input_value()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#tried:has-text('It is made')")
        (key,) = [await it.get_attribute("href") for it in await page.locator("#tried a").all()]
        await shown.put(workload(key.removeprefix("/workload/"), "nlp"))
        await page.locator("#tried a").click()
        await page.wait_for_selector("h1:has-text('train-')")
        made = await shown.client.list(Selection(kinds.JOBS))
        assert [it["metadata"]["labels"]["fairway.dev/queue"] for it in made] == ["nlp"] and page.faults == []


async def test_a_trial_that_is_refused_leaves_no_answer_of_an_earlier_one() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit?queue=nlp&namespace=nlp")
        for gpus, said in (("1", "#tried:has-text('It would start now')"), ("many", "form :text('no number of GPUs')")):
            await page.locator("[name=command]").fill("python train.py")
            await page.locator("[name=gpus]").fill(gpus)
            await page.locator("[data-try]").click()
            await page.wait_for_selector(said)
        assert await page.locator("#tried").inner_text() == "" and await page.locator("[data-make]").is_disabled()


async def test_what_is_changed_during_a_trial_is_to_be_tried_again() -> None:
    is_let = asyncio.Event()

    async def held(route: Any) -> None:
        await is_let.wait()
        await route.continue_()

    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit")
        await page.route("**/submit", held)
        await page.locator("[name=command]").fill("python train.py")
        await page.locator("[data-try]").click()
        await page.locator("[name=gpus]").fill("2")
        is_let.set()
        await page.wait_for_selector("#tried h2")
        assert await page.locator("[data-make]").is_disabled()


DROP = """([where, ...texts]) => {
    const held = new DataTransfer(), options = {dataTransfer: held, bubbles: true, cancelable: true};
    texts.forEach((text, at) => held.items.add(new File([text], `${at}.yaml`)));
    document.querySelector(where).dispatchEvent(new DragEvent("drop", options));
}"""


def manifest(name: str, queue: str = "nlp") -> str:
    meta = {"name": name, "labels": {"fairway.dev/queue": queue}}
    return json.dumps(JOB | {"apiVersion": "batch/v1", "metadata": meta})


async def test_manifests_dropped_anywhere_on_the_view_are_tried_each_time() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit")
        await page.wait_for_selector("#tried")
        await page.evaluate(DROP, ["#tried", manifest("one", "vision"), manifest("two", "vision")])
        await page.wait_for_selector("#tried:has-text('job/one'):has-text('job/two')")
        fields = await page.locator(".submit").locator("input, select").evaluate_all("them => them.map(it => it.value)")
        assert [it for it in fields if it] == ["vision", "default", "x"]  # as they say; no GPUs that were not asked for
        await page.evaluate(DROP, ["header", manifest("three")])
        await page.wait_for_selector("#tried:has-text('job/three')")
        assert "job/one" not in await page.locator("#tried").inner_text()
        assert await shown.client.list(Selection(kinds.JOBS)) == [] and page.faults == []


async def test_a_dropped_manifest_fills_the_form_which_a_command_then_makes_its_own() -> None:
    asked = {"requests": {"cpu": 3, "memory": "8Gi"}, "limits": {"nvidia.com/gpu": 2}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "torch:2", "resources": asked}]}
    meta = {"name": "big", "labels": {"fairway.dev/queue": "vision"}, "annotations": {"fairway.dev/time-limit": "6h"}}
    job = JOB | {"apiVersion": "batch/v1", "metadata": meta, "spec": {"suspend": True, "template": {"spec": pod}}}
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit?namespace=nlp")
        await page.wait_for_selector("#tried")
        await page.evaluate(DROP, ["#tried", json.dumps(job)])
        await page.wait_for_selector("#tried:has-text('job/big')")
        fields = await page.locator(".submit").locator("input, select").evaluate_all("them => them.map(it => it.value)")
        assert fields == ["vision", "nlp", "2", "3", "8Gi", "6h", "torch:2", ""]
        assert not await page.locator("[name=gpus]").is_editable()  # what is tried is the manifest
        await page.locator("[name=command]").fill("python train.py")
        await page.locator("[name=gpus]").fill("4")
        assert await page.locator("[name=memory]").input_value() == "8Gi" and page.faults == []


async def test_the_form_goes_to_the_place_of_the_address_else_to_the_last_else_to_the_own_one() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit")
        chosen = "() => [...document.querySelectorAll('.submit select')].map(it => it.value)"
        await page.wait_for_selector("#tried")
        assert await page.evaluate(chosen) == ["nlp", "default"]
        await page.goto(f"{shown.address}/submit?queue=vision&namespace=vision")
        await page.locator("[name=command]").fill("python train.py")
        await page.locator("[data-try]").click()
        await page.locator("[data-make]:enabled").click()
        await page.wait_for_selector("#tried:has-text('It is made')")
        for query, place in (("", "vision"), ("?queue=nlp&namespace=nlp", "nlp")):
            await page.goto(f"{shown.address}/submit{query}")
            await page.wait_for_selector("#tried:has-text('What you try')")
            assert await page.evaluate(chosen) == [place, place]


async def test_a_dropped_manifest_that_got_no_answer_is_tried_again_after_the_cut() -> None:
    async with board(*THINGS, desk=desk()) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/submit", script=CUT)
        await page.wait_for_selector("#tried")
        await page.evaluate("cut()")
        await page.evaluate(DROP, ["#tried", manifest("late")])
        await page.wait_for_selector("form :text('it is tried again once there is an answer')")
        assert await page.locator("[data-make]").is_disabled()
        await page.evaluate("isCut = false")
        await page.wait_for_selector("#tried:has-text('job/late')")
        assert await page.locator("[data-make]").is_enabled()


WRITTEN = """
const real = CanvasRenderingContext2D.prototype.fillText;
window.written = [];
CanvasRenderingContext2D.prototype.fillText = function(text, x, y, most) {
    written.push({text, x, y});
    real.call(this, text, x, y, most);
};
"""
"""Notes the texts of the map, with their places."""


async def test_a_map_names_nodes_and_racks_and_says_who_holds_the_gpu_under_the_pointer() -> None:
    rack = {"kind": "NodePool", "metadata": {"name": "h100"}, "spec": {"levels": ["rack"]}}
    many = [node(f"m{at:02}", 4) for at in range(30)]
    for at, it in enumerate(many):
        it["metadata"]["labels"]["rack"] = f"r{at // 10}"
    runs = workload("nlp/job-train", "nlp", 2, at="m11[1,2]", spec={"timeLimit": "2h"})
    async with board(rack, queue("nlp"), *many, runs) as shown, browser() as chrome:
        page = await opened(shown, chrome, script=WRITTEN)
        await page.wait_for_selector("#map canvas")
        names = {it["text"]: it for it in await page.evaluate("written")}
        assert names.keys() == {*(f"h100 · r{at}" for at in range(3)), *(f"m{at:02}" for at in range(30))}
        where = await page.locator("#map").bounding_box()
        m11 = names["m11"]
        await page.mouse.move(where["x"] + m11["x"] + 2 * 9 + 4, where["y"] + m11["y"] + 6)
        said = await page.locator("#map-says").inner_text()
        assert said.startswith("m11: GPU 2 is held: train · ann · nlp · since ") and "ends by" in said
        await page.mouse.move(where["x"] + m11["x"] + 4, where["y"] + m11["y"] + 6)
        assert await page.locator("#map-says").inner_text() == "m11: GPU 0 is free; 2 free, 2 held"


async def test_nodes_with_one_gpu_lie_side_by_side_and_their_cards_are_wide() -> None:
    small = [node(f"s{at}", 1) for at in range(3)]
    async with board(queue("nlp"), *small, workload("nlp/job-train", "nlp", at="s0[0]")) as shown, browser() as chrome:
        page = await opened(shown, chrome)
        boxes = [await page.locator(f"article[data-key=s{at}]").bounding_box() for at in range(3)]
        assert len({it["y"] for it in boxes}) == 1
        assert (await page.locator("article[data-key=s0] .cell").bounding_box())["width"] > 240


SEEN = """them => them.map(it => {
    const box = it.getBoundingClientRect(), words = document.createTreeWalker(it, NodeFilter.SHOW_TEXT), seen = [];
    const range = document.createRange();
    while (words.nextNode()) {
        range.selectNodeContents(words.currentNode);
        const last = [...range.getClientRects()].pop();
        if (last && last.bottom <= box.bottom + 1) seen.push(words.currentNode.data);
    }
    return seen.join("");
})"""
"""The texts of elements that none of their edges cuts off."""
CUT_OFF = """() => [...document.querySelectorAll("main select")].filter(it => {
    const whole = it.parentElement.appendChild(it.cloneNode(true));
    whole.style = "position: absolute; width: max-content; max-width: none";
    const most = whole.offsetWidth;
    whole.remove();
    return it.offsetWidth < most;
}).map(it => it.name)"""


async def test_on_a_small_screen_the_words_of_every_choice_are_seen_whole() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        for view in ("/now", "/waiting", "/find", "/timeline", "/operations", "/usage", "/submit"):
            page = await opened(shown, chrome, view, width=375)
            assert await page.locator("main select").count() and await page.evaluate(CUT_OFF) == [], view
            await page.context.close()


async def test_on_a_small_screen_nodes_are_seen_below_the_first_lines_without_scrolling() -> None:
    why = {"NoRoom": WAITS["message"], "OverShare": "a" * 200, "HeldFor": "b " * 100, "Reserved": "c"}
    waits = [workload(f"nlp/job-{at}", "nlp", 8, status={"reason": it, "message": text})
             for at, (it, text) in enumerate(why.items())]  # fmt: skip
    async with board(*THINGS, *waits) as shown, browser() as chrome:
        page = await opened(shown, chrome, width=375)
        banner = await page.locator(".verdict").bounding_box()
        assert banner["height"] < 280 and await page.locator(".verdict a:has-text('1 × HeldFor')").is_visible()
        seen = await page.locator(".why li").evaluate_all(SEEN)
        assert any("6 × NoRoom" in it and WAITS["message"] in it for it in seen) and len(seen) == 4
        assert (await page.locator("article.node").first.bounding_box())["y"] < 700


async def test_a_workload_is_found_from_any_view_by_keyboard_and_the_address_shows_the_same() -> None:
    over = {"phase": "Succeeded", "reason": "Finished", "message": "finished"}
    async with board(*THINGS, workload("nlp/job-train-0", "nlp", 3, status=over)) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/usage")
        await page.keyboard.press("/")
        await page.keyboard.type("train")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/find?q=train")
        await page.wait_for_selector("tr:has-text('finished')")
        await page.locator("select[name=state]").select_option("running")
        await page.wait_for_url("**/find?state=running&q=train")
        await page.wait_for_selector("tr:has-text('finished')", state="detached")
        other = await opened(shown, chrome, page.url.removeprefix(shown.address))
        texts = [await it.locator("#main").inner_text() for it in (page, other)]
        assert texts[0] == texts[1] and "n1 GPU 0–2" in texts[0]
        assert await other.locator("#search input").input_value() == "train" and page.faults == []


async def test_the_rest_of_a_reason_opens_by_keyboard_and_stays_open_when_it_changes() -> None:
    def waits(more: str) -> dict[str, Any]:
        message = f"{WAITS['message']}; {more} holds it; with 5 GPUs it would start now"
        return workload("vision/job-wait-1", "vision", 8, status=WAITS | {"message": message})

    async with board(*THINGS, waits("a")) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        rest = page.locator("tr[data-key='vision/job-wait-1']").locator("details > div")
        assert not await rest.is_visible()
        await page.locator("summary").focus()
        await page.keyboard.press("Enter")
        await rest.wait_for()
        await shown.put(waits("b"))
        await page.wait_for_selector("tr:has-text('b holds it')")
        assert await rest.is_visible()


async def test_a_map_of_many_nodes_is_walked_by_keyboard_and_follows_changes() -> None:
    many = [node(f"m{at:02}", 4) for at in range(30)]
    async with board(*THINGS, *many) as shown, browser() as chrome:
        page = await opened(shown, chrome)
        await page.wait_for_selector("#map canvas")
        await page.locator("#map").focus()
        await page.keyboard.press("ArrowRight")
        assert await page.locator("#map-says").inner_text() == "m00: 4 free"
        drawn = "performance.getEntriesByName('map', 'measure').length"
        before = await page.evaluate(drawn)
        await shown.put(workload("nlp/job-more", "nlp", 1, at="m00[2]"))
        await page.wait_for_selector("article[data-key=m00]:has-text('more')")
        await page.wait_for_function(f"() => {drawn} > {before}")
        await page.mouse.move(5, 5)
        await page.keyboard.press("ArrowLeft")
        assert await page.locator("#map-says").inner_text() == "m00: 3 free, 1 held"
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/now?q=m00")
        await page.wait_for_selector("#map", state="detached")
        assert await page.locator("article.node").count() == 1 and page.faults == []


async def test_a_right_that_is_revoked_takes_its_rows_away_and_a_banner_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed, users = revocable(monkeypatch)
    late = workload("nlp/job-late", "nlp", 8, status=WAITS)
    async with board(*THINGS, late, **users) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        await page.evaluate("location.hash = 'token=ann'")
        await page.wait_for_function("() => sessionStorage.getItem(KEY) === 'ann' && last")
        await page.wait_for_selector("tr[data-key='vision/job-wait-1']")
        allowed.remove("vision")
        await page.wait_for_selector("#banner:has-text('you may no longer list workloads of namespace vision')")
        await page.wait_for_selector("tr[data-key='vision/job-wait-1']", state="detached")
        assert await page.locator("tr[data-key='nlp/job-late']").count() == 1
        await page.keyboard.press("2")
        await page.wait_for_selector("#banner", state="hidden")


SILENT = """
const real = fetch;
window.isSilent = false;
window.fetch = async (...asked) => {
    const answer = await real(...asked);
    const drop = {transform: (part, out) => { if (!isSilent) out.enqueue(part); }};
    return new Response(answer.body.pipeThrough(new TransformStream(drop)), answer);
};
"""
"""A stream that stays open and brings nothing while `isSilent`."""


async def test_a_stream_that_is_silent_for_ten_seconds_leaves_a_banner_and_no_actions_until_it_is_heard() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/workload/nlp/job-train", script=SILENT)
        cancel = page.locator("button[data-act=cancel]")
        await page.evaluate("isSilent = true")
        assert await cancel.is_enabled() and await page.locator("#banner").is_hidden()
        began = time.monotonic()
        await page.wait_for_selector("#banner:has-text('nothing was heard from the dashboard')")
        assert 6 < time.monotonic() - began < 20 and await cancel.is_disabled()
        await page.evaluate("isSilent = false")
        await page.wait_for_selector("#banner", state="hidden")
        assert await cancel.is_enabled()


async def test_a_selection_survives_changes_around_it_and_in_its_row() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/waiting")
        await page.evaluate("""() => getSelection().selectAllChildren(
            document.querySelector("tr[data-key='vision/job-wait-3'] a"))""")
        for at in (2, 3):
            said = WAITS | {"position": at, "message": f"news {at}"}
            await shown.put(workload(f"vision/job-wait-{at}", "vision", 8, status=said))
            await page.wait_for_selector(f"tr:has-text('news {at}')")
        assert await page.evaluate("getSelection().toString()") == "wait-3"


@pytest.mark.parametrize("view, first, then", [
    ("/queues", "vision", "/now?queue=vision"), ("/timeline", "train", "/workload/nlp/job-train"),
    ("/operations", "n2", "/now?q=n2"),
])  # fmt: skip
async def test_what_a_view_leads_to_is_reached_by_keyboard_and_stays_focused_through_a_change(
    view: str, first: str, then: str
) -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, view)
        await page.wait_for_selector(f"main a:has-text('{first}')")
        await reach(page, first)
        before = await page.evaluate("last")
        await shown.put(workload("vision/job-new", "vision", 2, at="n1[6,7]"))  # the timeline has what runs alone
        await shown.put(workload("vision/job-wait-9", "vision", 2, status=WAITS | {"position": 9}))
        await page.wait_for_function("number => last !== number", arg=before)
        assert (await page.evaluate("document.activeElement.innerText")).strip() == first
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**{then}")
        await page.wait_for_selector("#as-of:has-text('as of')")
        assert page.faults == []


async def test_an_address_with_its_time_shows_the_same_span_later() -> None:
    async with board(*THINGS) as shown, browser() as chrome:
        page = await opened(shown, chrome, "/timeline?by=node")
        await page.locator("a:has-text('keep this time')").click()
        await page.wait_for_selector("h1:has-text(' – ')")
        assert "since=" in page.url and "until=" in page.url and "by=node" in page.url
        other = await opened(shown, chrome, page.url.removeprefix(shown.address))
        ticks = "[...document.querySelectorAll('.times text')].map(it => it.dataset.time)"
        assert await page.evaluate(ticks) == await other.evaluate(ticks) != []
        await other.locator("a:has-text('back to now')").click()
        await other.wait_for_selector("a:has-text('keep this time')")
        assert other.url.endswith("/timeline?by=node")
