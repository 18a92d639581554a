"""Debian's Chromium, driven by Playwright, without a network of its own choosing."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from mrclab.web import assets

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where it is: the whole one, or the one without windows."""
    return shutil.which("chromium") or shutil.which("chromium-headless-shell")


def lacking() -> str:
    """Why there can be no browser here; empty if there can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is missing: make setup-web"
    if chromium() is None:
        return "chromium is missing: make setup-web"
    missing = assets.missing()
    return f"{' and '.join(missing)} missing: make web-assets" if missing else ""


TIMEOUT_MS = 60_000

#: States `first` to `last` of ten a second, and a line of the log with every tenth.
STATES = """
async ([first, last]) => {
    const state = structuredClone(mrclab.latest());
    const { on } = mrclab.stream;
    for (let at = first; at < last; at += 1) {
        state.t_ns = at * 1e8;
        state.goodput_bps = at;
        on.state(state);
        if (at % 10) continue;
        on.log([{ number: at, t_ns: state.t_ns, what: "failure", text: `line ${at}`, element: "" }]);
        if (at % 6000 === 0) await new Promise(requestAnimationFrame);
    }
}
"""


def an_hour(page: Any) -> list[tuple[float, float]]:
    """Bytes of a page's scripts, and nodes of its document, after 4000 states and after the 36 000 of an hour."""
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")
    sizes = []
    for first, last in ((0, 4_000), (4_000, 36_000)):
        page.evaluate(STATES, [first, last])
        metrics.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in metrics.send("Performance.getMetrics")["metrics"]}
        sizes.append((found["JSHeapUsedSize"], found["Nodes"]))
    return sizes


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser (`playwright.sync_api.Browser`)."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as play:
        made = play.chromium.launch(executable_path=chromium(), headless=True, args=[*ARGUMENTS, *sandbox])
        try:
            yield made
        finally:
            made.close()


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
        """Click into the picture, where an element is drawn."""
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
    """Return a page in a browsing context of its own."""
    made = Opened(browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | context)).new_page())
    made.page.goto(url)
    return made
