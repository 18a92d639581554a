"""The live view's page in a real browser (`make setup-web`): what a person sees, clicks and types."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_control.runs.execute import execute
from mrc_control.web.hub import Hub
from mrc_control.web.replay import Recorded, Replay
from mrc_control.web.serve import Serving
from mrc_control.web.state import layout_of
from mrc_topo.labfile import load_lab
from support.browser import an_hour, lacking
from support.browser import browser as a_browser
from support.web import LINK, SHORT, Watching, served, simulating, watching

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]

TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as made:
        yield made


@pytest.fixture(scope="module")
def simulation() -> Iterator[tuple[Watching, Serving]]:
    """A simulation of lab tiny with a ring that goes on."""
    with simulating(speed=0) as view, served(view.hub) as serving:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 1)
        yield view, serving


class Opened:
    """A page, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.requests.append(request.url))

    def until(self, script: str) -> None:
        """Until an expression is true. Not by `wait_for_function`: the page forbids what that evaluates."""
        deadline = time.monotonic() + TIMEOUT_MS / 1e3
        while not self.page.evaluate(f"Boolean({script})"):
            assert time.monotonic() < deadline, f"never so: {script}"
            self.page.wait_for_timeout(50)

    def click_on(self, element: str) -> None:
        """Clicks into the picture, where an element is drawn."""
        x, y = self.page.evaluate(
            """name => {
                const found = mrclab.fabric.cy.getElementById(name);
                const place = found.isNode() ? found.renderedPosition() : found.renderedMidpoint();
                const box = document.getElementById("fabric").getBoundingClientRect();
                return [box.x + place.x, box.y + place.y];
            }""",
            element,
        )
        self.page.mouse.click(x, y)

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))


def opened(browser: Any, url: str, **context: Any) -> Opened:
    made = Opened(browser.new_context(viewport={"width": 1280, "height": 800}, **context).new_page())
    made.page.goto(url)
    return made


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
    one.page.click("#break")
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


def test_by_keyboard_alone(browser: Any, simulation: tuple[Watching, Serving]) -> None:
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
        one.page.fill("#slider", "600")
        one.until("mrclab.latest().phase === 'ended'")
        assert one.errors == []
        one.page.context.close()


def test_a_page_says_when_the_server_dies(browser: Any) -> None:
    hub = Hub()
    layout = layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    hub.show(layout)
    with served(hub) as serving:
        one = opened(browser, serving.url)
        one.until("document.querySelector('#connection').textContent === 'connected'")
    one.page.wait_for_selector("#problem:not([hidden])")
    assert "what is shown is old" in one.text("#problem")
    assert one.text("#connection") == "not connected"
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


def test_an_hour_of_states_takes_no_more_memory_than_a_few_minutes(browser: Any) -> None:
    """36 000 states, ten a second, and a line of the log with every tenth: what the page keeps has a bound."""
    with simulating(paused=True) as view, served(view.hub) as serving:
        one = opened(browser, serving.url)
        one.until("window.mrclab?.latest()")
        sizes = an_hour(one.page)
        assert one.page.evaluate("mrclab.curves.rows.length") == 1500
        assert one.page.evaluate("document.querySelectorAll('#log li').length") == 400
        assert sizes[1][0] < sizes[0][0] + 4e6, sizes
        assert sizes[1][1] < sizes[0][1] + 2000, sizes
        one.page.context.close()


def test_hundreds_of_hosts_are_summed_up(browser: Any) -> None:
    topology = load_lab("large")
    hub = Hub()
    layout = layout_of(topology, "lab", clock="real", transport="mrc", began_ns=0, can=[])
    many = [{"name": f"h{number}", "t0": number // 64} for number in range(512)]
    # As many hosts as fit no screen, at the switches of a lab that there is.
    layout["hosts"] = many  # type: ignore[typeddict-item]
    t0s = len({each["index"] for each in layout["switches"] if each["tier"] == "t0"})
    layout["links"] = [each for each in layout["links"] if ":" not in each["name"]] + [
        {
            "name": f"{host['name']}:0",
            "plane": 0,
            "low": str(host["name"]),
            "low_port": 0,
            "high": f"p0-t0.{int(str(host['t0'])) % t0s}",
            "high_port": 1,
            "rate_bps": 10**9,
            "delay_ns": 1,
        }
        for host in many
    ]
    hub.show(layout)
    with served(hub) as serving:
        one = opened(browser, serving.url)
        one.until("window.mrclab?.fabric.cy?.nodes('.host').length === 8")
        assert "h0 – h63" in one.page.evaluate("mrclab.fabric.cy.nodes('.host')[0].data('label')")
        assert one.errors == []
        one.page.context.close()
