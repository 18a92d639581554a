"""The live view's page in a real browser (`make setup-web`): what a person sees, clicks and types."""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mrclab.runs.execute import execute
from mrclab.web.hub import Hub
from mrclab.web.replay import Recorded, Replay
from mrclab.web.server import Serving
from support.amount import first
from support.browser import browser as a_browser
from support.browser import lacking, opened
from support.web import LINK, SHORT, Watching, served, simulating, watching

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]


OTHER = "p1-t0.0--p1-t1.0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as made:
        yield made


@pytest.fixture(scope="module")
def simulation() -> Iterator[tuple[Watching, Serving]]:
    """Run a ring in lab tiny, no faster than the clock, so that browser and server have time."""
    with simulating() as view, served(view.hub, view.captured) as serving:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 1)
        yield view, serving


def test_a_click_breaks_a_link_and_everybody_sees_it(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    view, serving = simulation
    one = opened(browser, serving.url)
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    other = opened(browser, serving.url, reduced_motion="reduce")
    other.until("window.mrclab?.latest()?.goodput_bps > 0")
    one.page.click("#tab-pair")
    one.page.select_option("#source", "h1")
    one.page.select_option("#destination", "h2")
    one.page.wait_for_selector("#evs .ev.GOOD")
    assert not one.page.query_selector_all("#evs .ev.ASSUMED_BAD")
    one.click_on(LINK)
    assert f"Link {LINK}" in one.text("#panel-element")
    # All that is done most is in sight without scrolling.
    for button in ("#fail", "text=Deny it"):
        box = one.page.locator(button).bounding_box()
        assert box["y"] + box["height"] < 400, (button, box)
    one.page.click("#fail")
    # The truth, the picture, the table of the truth and the log, in both browsers.
    view.until(lambda state: [each["target"] for each in state["broken"]] == [LINK])
    for page in (one, other):
        page.until(f"mrclab.fabric.look('{LINK}').kind === 'down'")
        page.until(f"document.querySelector('#truth').textContent.includes('link down {LINK}')")
        page.until(f"document.querySelector('#log').textContent.includes('link down {LINK}')")
    one.until("document.querySelector('#panel-element dd').textContent === 'down'")
    # What the hosts find by themselves, and the EVs that they avoid.
    other.until("document.querySelector('#truth').textContent.includes('dead')")
    one.page.click("#tab-pair")
    one.page.wait_for_selector("#evs .ev.ASSUMED_BAD")
    one.page.locator("#evs .ev.GOOD").first.click()
    one.until("[...mrclab.fabric.picture.lines.values()].filter((each) => each.halos.has('path')).length === 4")
    one.page.click("#tab-element")
    assert not one.page.locator("#mend").is_visible()  # one failure has one button
    one.page.click(f"text=Restore: link down {LINK}")
    for page in (one, other):
        page.until(f"mrclab.fabric.look('{LINK}').kind === ''")
        page.until("document.querySelector('#truth').textContent.includes('Everything works')")
    one.page.click("#tab-pair")
    one.until("document.querySelectorAll('#evs .ev.GOOD').length && !document.querySelector('#evs .ev.ASSUMED_BAD')")
    for page in (one, other):
        assert page.errors == []
        assert all(url.startswith((serving.address, "data:", "blob:")) for url in page.requests), page.requests
        page.page.context.close()


def test_what_happened_is_in_the_order_of_time_and_evs_have_eight_digits(
    browser: Any, simulation: tuple[Watching, Serving]
) -> None:
    _, serving = simulation
    one = opened(browser, serving.url)
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    rows = [(900, "later"), (700, "earlier"), (800, "between"), (900, "the last of two")]
    one.page.evaluate(
        """(rows) => mrclab.stream.on.log(rows.map(([ms, text], number) => (
            { number, t_ns: 1e12 + ms * 1e6, what: "note", text, element: "" })))""",
        rows,
    )
    shown = one.page.locator("#log li").all_text_contents()[:4]
    for text, wanted in zip(shown, ["the last of two", "later", "between", "earlier"], strict=True):
        assert text.endswith(wanted)
    one.page.click("#tab-pair")
    one.page.select_option("#source", "h1")
    one.page.select_option("#destination", "h2")
    one.page.wait_for_selector("#evs .ev.GOOD")
    cell = one.page.locator("#evs .ev.GOOD").first
    assert re.match(r"EV [0-9a-f]{8}, plane", cell.get_attribute("aria-label"))
    cell.click()
    one.until("/^EV [0-9a-f]{8}: plane/.test(document.querySelector('#panel-pair p[role=status]').textContent)")
    one.page.context.close()


def test_what_a_page_can_do_to_links_ports_and_workloads(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    """By the panels alone: a failure with its settings in one direction, deny and allow, a capture, stop and start."""
    view, serving = simulation
    one = opened(browser, serving.url)
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    one.click_on(OTHER)
    one.page.click("text=Break it in another way")
    one.page.select_option("#kind", "impair")
    one.page.fill("input[name=loss]", "a tenth")
    one.page.click("#break")
    one.until("document.querySelector('#answer').textContent === 'loses: write 10% or 0.1, not a tenth'")
    one.page.fill("input[name=loss]", "7")
    one.page.click("#break")
    one.until("document.querySelector('#answer').textContent.includes('loss must be a probability')")
    one.page.fill("input[name=loss]", "10 %")
    one.page.fill("input[name=delay_ns]", "0.2ms")
    one.page.select_option("select[name=direction]", "up")
    one.page.click("#break")
    (broken,) = view.until(lambda state: state["broken"])["broken"]
    assert (broken["target"], broken["kind"], broken["direction"]) == (OTHER, "impair", "up")
    assert broken["settings"] == {"loss": 0.1, "delay_ns": 200_000}
    one.until(f"mrclab.fabric.look('{OTHER}').kind === 'impaired'")
    one.page.click("text=Restore everything")
    one.until(f"mrclab.fabric.look('{OTHER}').kind === ''")
    one.page.click("#undo")
    (again,) = view.until(lambda state: state["broken"])["broken"]
    assert again == broken
    # The failure itself is undone after it, and is over.
    one.page.click("#undo")
    view.until(lambda state: not state["broken"])
    assert one.page.is_disabled("#undo")
    one.page.click("text=Deny it")
    one.until(f"mrclab.fabric.look('{OTHER}').kind === 'denied'")
    assert view.until(lambda state: state["denied"])["denied"] == [OTHER]
    # The stream may tell of it before the page has the answer that it can undo; a click would wait, a key does not.
    one.until("!document.querySelector('#undo').disabled")
    one.page.keyboard.press("u")
    one.until(f"mrclab.fabric.look('{OTHER}').kind === ''")
    one.click_on("h0:1")
    assert one.text("#panel-element h2") == "Host port h0:1"
    one.page.click("text=Capture its packets")
    one.until("mrclab.latest().captures.includes('h0:1')")
    moment = view.until(lambda state: True)["t_ns"]
    view.until(lambda state: state["t_ns"] > moment + 50_000_000)
    one.page.click("text=End the capture")
    one.until("mrclab.latest().captures.length === 0")
    with one.page.expect_download() as saved:
        one.page.click("text=Save its packets")
    captured = pathlib.Path(saved.value.path()).read_bytes()
    assert captured.startswith(b"\x0a\x0d\x0d\x0a")  # a section header of pcap-ng
    assert len(captured) > 1000
    one.page.click("#tab-job")
    one.page.click("#stop")
    one.until("document.querySelector('#panel-job').textContent.includes('ended')")
    assert "passed" in one.text("#panel-job")
    one.page.fill("#panel-job input[name=size_bytes]", "65536")
    one.page.click("#start")
    one.until("mrclab.latest().job?.running && mrclab.latest().job.iterations > 1")
    # The browser's own word about the one command that was refused.
    assert [error for error in one.errors if "409 (Conflict)" not in error] == []
    one.page.context.close()


def test_page_can_be_used_with_the_keyboard_only(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    view, serving = simulation
    one = opened(browser, serving.url)
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    for _ in range(40):
        one.page.keyboard.press("Tab")
        if one.page.evaluate("document.activeElement.id") == "fabric":
            break
    assert one.page.evaluate("document.activeElement.id") == "fabric"
    one.page.keyboard.press("ArrowRight")
    first = one.text("#panel-element h2")
    assert first.startswith("Switch ")
    one.page.keyboard.press("b")
    view.until(lambda state: len(state["broken"]) == 1)
    one.until("mrclab.fabric.cy.$('node.off').length > 0")
    one.page.keyboard.press("r")
    view.until(lambda state: not state["broken"])
    one.page.keyboard.press("ArrowDown")
    assert one.text("#panel-element h2") != first
    one.page.keyboard.press("Enter")
    assert one.text("#panel-element h2").startswith(("Link ", "Host port "))
    # Each thing that can be pressed, and each field, has a name.
    nameless = one.page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role]")].filter((each) =>
            each.checkVisibility() && !(each.textContent.trim() || each.getAttribute("aria-label")
            || each.closest("label") || each.getAttribute("aria-labelledby") || each.getAttribute("role") === "status"))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    one.page.click("#tab-table")
    one.until("document.querySelector('#panel-table tbody').textContent.includes('running')")
    one.page.context.close()


def test_time_is_held_and_stepped(browser: Any) -> None:
    with simulating(paused=True) as view, served(view.hub) as serving:
        one = opened(browser, serving.url)
        one.until("document.querySelector('#actual').textContent === 'paused'")
        one.page.click("#step")
        one.until("document.querySelector('#clock').textContent === '0.01 s'")
        one.page.click("#tab-job")
        one.page.click("#start")
        view.until(lambda state: state["job"] is not None)
        one.page.select_option("#speed", "0")
        one.page.click("#pause")
        one.until("mrclab.latest().job?.iterations > 0")
        with one.page.expect_download() as saved:
            one.page.click("#save")
        text = pathlib.Path(saved.value.path()).read_text()
        assert "ring_all_reduce" in text
        one.page.context.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    execute(SHORT, folder=folder, live=False)
    return folder


def test_a_recorded_run_is_replayed(browser: Any, recorded: pathlib.Path) -> None:
    hub = Hub()
    with watching(hub, Replay(hub, Recorded(recorded), 0.01).go), served(hub) as serving:
        one = opened(browser, serving.url)
        one.until("window.mrclab?.latest()?.job")
        assert one.text("#mode") == "recorded run"
        one.page.fill("#slider", "300")
        one.until("mrclab.latest().t_ns >= 3e8")
        one.until(f"mrclab.fabric.look('{LINK}').kind === 'impaired'")
        one.until(f"document.querySelector('#log').textContent.includes('{LINK}')")
        one.page.fill("#slider", "100")
        one.until("mrclab.latest().t_ns < 2e8")
        one.until(f"mrclab.fabric.look('{LINK}').kind === ''")
        one.until(f"!document.querySelector('#log').textContent.includes('{LINK}')")
        # A press on the curves goes to its time, and the page follows the pointer while it is held.
        area = one.page.locator("#curves .u-over").bounding_box()
        one.page.mouse.move(area["x"] + 0.9 * area["width"], area["y"] + 20)
        one.page.mouse.down()
        one.until("mrclab.latest().t_ns >= 4e8")
        one.page.mouse.move(area["x"] + 0.1 * area["width"], area["y"] + 20)
        one.until("mrclab.latest().t_ns < 2e8")
        one.page.mouse.up()
        one.page.fill("#slider", "600")
        one.until("mrclab.latest().phase === 'ended'")
        assert one.errors == []
        one.page.context.close()


@pytest.mark.parametrize("scheme", first(["light", "dark"]))
def test_page_breaks_no_rule_of_axe(browser: Any, simulation: tuple[Watching, Serving], scheme: str) -> None:
    """WCAG 2.1 A and AA and the best practices, as axe-core checks them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing: make setup-web").Axe()
    view, serving = simulation
    one = opened(browser, serving.url, color_scheme=scheme)
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    view.ask("fail", target=LINK)
    try:
        one.until("!document.querySelector('#what [value=times]').disabled")
        one.page.select_option("#what", "times")
        # A list of few changes hides those between the first two and the next event of another kind.
        one.page.check("#all-evs")
        one.page.locator("#log .ev summary").first.click()
        for tab in ("element", "pair", "job", "table"):
            one.page.click(f"#tab-{tab}")
            if tab == "element":
                one.click_on(LINK)
                one.page.click("text=Break it in another way")
            if tab == "pair":
                one.page.select_option("#source", "h1")
                one.page.select_option("#destination", "h2")
                one.page.wait_for_selector("#changes td")
            found = axe.run(one.page).response["violations"]
            assert [(each["id"], each["nodes"][0]["target"]) for each in found] == [], tab
    finally:
        view.ask("restore", target=LINK)
    one.page.context.close()


def test_time_and_curves_begin_with_the_workload(browser: Any) -> None:
    with simulating(paused=True) as view, served(view.hub) as serving:
        view.ask("step", seconds=0.5)
        view.until(lambda state: state["t_ns"] >= 500_000_000)
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.ask("resume")
        one = opened(browser, serving.url)
        one.until("mrclab.latest()?.job?.iterations > 1")
        one.until("mrclab.curves.data()[0].length > 1")
        began, now, first = one.page.evaluate(
            "[mrclab.latest().job.began_ns, parseFloat(document.querySelector('#clock').textContent), "
            "mrclab.curves.data()[0][0]]"
        )
        assert began >= 500_000_000
        assert 0 <= first < now < view.until(lambda state: True)["t_ns"] / 1e9 - 0.4
        assert one.page.locator("#key li").all_inner_texts() == ["all hosts", "plane 0", "plane 1"]
        one.page.context.close()


def test_phone_has_one_column_that_fits(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    _, serving = simulation
    one = opened(browser, serving.url, viewport={"width": 390, "height": 844})
    one.until("window.mrclab?.latest()?.goodput_bps > 0")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= 390
    left, aside = (one.page.locator(each).bounding_box() for each in ("#left", "aside"))
    assert aside["y"] >= left["y"] + left["height"] - 1
    one.page.context.close()


def test_without_the_token_the_page_is_empty(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    _, serving = simulation
    for url in (serving.address, f"{serving.address}#wrong"):
        one = opened(browser, url)
        one.page.wait_for_selector("#problem:not([hidden])")
        assert "no or wrong token" in one.text("#problem")
        assert one.page.evaluate("mrclab.latest()") is None
        one.page.context.close()


def test_a_page_of_another_origin_is_refused(browser: Any, simulation: tuple[Watching, Serving]) -> None:
    """Even with the token: it reads nothing, and nothing is done."""
    view, serving = simulation

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>another</title>")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        one = opened(browser, f"http://127.0.0.1:{server.server_port}/")
        done = view.until(lambda state: True)["commands"]
        tried = one.page.evaluate(
            """async ([address, token, link]) => {
                const found = [];
                const headers = { Authorization: `Bearer ${token}` };
                for (const [path, options] of [
                    ["api/stream", { headers }],
                    ["metrics", { headers, mode: "no-cors" }],
                    ["api/fail", { method: "POST", headers: { ...headers, "Content-Type": "application/json" },
                        body: JSON.stringify({ target: link }) }],
                    ["api/fail", { method: "POST", mode: "no-cors", body: JSON.stringify({ target: link }) }],
                ]) {
                    try { const answer = await fetch(address + path, options); found.push(await answer.text()); }
                    catch { found.push("refused"); }
                }
                return found;
            }""",
            [serving.address, serving.token, LINK],
        )
        assert set(tried) <= {"refused", ""}, json.dumps(tried)
        state = view.until(lambda state: True)
        assert (state["broken"], state["commands"]) == ([], done)
        one.page.context.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
