"""Every kind of page in a browser: no wider than its window, labels beside each other, words instead of keys, axe."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mrc_topo.units import Unit, shown
from mrclab.web import assets
from support.browser import Opened, browser, lacking, opened
from support.web import served, simulating

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]

HERE = pathlib.Path(__file__).resolve()
AXE = HERE.parents[1] / "support" / "axe.json"
LIBRARY = HERE.parents[2] / "build" / "axe"
WIDTHS = (360, 768, 1400)
CLUSTER = """
name: small
radix: 16
planes: 4
nics: 64
ev: {size: 32, active: 16}
jobs: [{name: j, kind: ring}]
failures: [{at: 1s, fail: p0-t1.3, for: 1s}, {at: 3s, fail: "h3:0", for: 1s}]
"""
#: How each kind of page is made: arguments after the folder, and the page in it.
KINDS = {
    "run": (["run", "fabric-links", "--clock", "virtual"], "report.html"),
    "training": (["run", "training-failures", "--clock", "virtual"], "report.html"),
    "sweep": (["sweep", "pinned", "--workers", "0"], "index.html"),
    "scale": (["scale", "CLUSTER"], "report.html"),
    "validation": (["validate", "incast-2", "--seeds", "2"], "index.html"),
    "figures": (["figures", "9a"], "index.html"),
}
#: What of a page's text a reader should not meet: keys of files, and exponents.
RAW = re.compile(r"\b[a-z]+_[a-z_]+\b|\b\d(?:\.\d+)?e[+-]?\d+\b")
#: Words of a page without what a reader types: names of files and commands.
WORDS = """() => {
    const copy = document.body.cloneNode(true);
    copy.querySelectorAll("script, style, code, pre, option").forEach((each) => each.remove());
    return copy.textContent;
}"""
#: Labels of a chart that lie on others, by their texts.
OVERLAPS = """() => [...document.querySelectorAll(".words")].flatMap((layer) => {
    const boxes = [...layer.children].map((each) => [each.textContent, each.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) => (
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
        && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
    )).map(([other]) => `${one} on ${other}`));
})"""
WIDE = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        assets.fetch(say=lambda _: None, listed=AXE, folder=LIBRARY)
    except assets.AssetError as error:
        pytest.skip(f"axe is missing: {error}")
    return (LIBRARY / "axe.min.js").read_text(encoding="utf-8")


def made(arguments: list[str], folder: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mrclab.cli", *arguments, "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-1000:]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
    """Return what returns a page of a kind, made once."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "c.yaml").write_text(CLUSTER)

    def page_of(kind: str) -> pathlib.Path:
        arguments, name = KINDS[kind]
        if not (folder / kind).exists():
            made([str(folder / "c.yaml") if each == "CLUSTER" else each for each in arguments], folder / kind)
        return folder / kind / name

    return page_of


@contextlib.contextmanager
def served_view() -> Iterator[str]:
    """Yield the address of the live view of a simulation in which a link fails."""
    with simulating(speed=1.0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 1)
        view.ask("fail", target="p0-t0.0--p0-t1.0")
        with served(view.hub) as serving:
            yield serving.url


def look_at(one: Opened, axe: str) -> None:
    """Check a page at each width, and its colours, light and dark."""
    one.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in WIDTHS:
        one.page.set_viewport_size({"width": width, "height": 900})
        one.page.evaluate("document.querySelectorAll('figure.chart').forEach((each) => each.scrollIntoView())")
        one.page.wait_for_timeout(250)
        assert one.page.evaluate(WIDE) <= width
        assert one.page.evaluate(OVERLAPS) == []
    assert RAW.findall(one.page.evaluate(WORDS)) == []
    one.page.evaluate(axe)
    for scheme in ("light", "dark"):
        one.page.emulate_media(color_scheme=scheme)
        one.page.wait_for_timeout(100)
        assert one.page.evaluate(OVERLAPS) == []
        found = one.page.evaluate("axe.run()")["violations"]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
    assert one.errors == []


# The report of a training is that of a run, with more charts.
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] if kind == "training" else []) for kind in KINDS]
)
def test_page_fits_and_reads(chromium: Any, axe: str, page: Callable[[str], pathlib.Path], kind: str) -> None:
    one = opened(chromium, page(kind).as_uri())
    try:
        look_at(one, axe)
        assert one.page.locator("figure.chart canvas").count() >= 1
    finally:
        one.page.context.close()


def test_live_view_fits_and_reads_and_writes_quantities_as_the_terminal_does(chromium: Any, axe: str) -> None:
    values = [0.0, 1.0, -1.5, 999.96, 65536.0, 1e8, 12_345.678, 3.55084e-05, 2.81437798, 0.942, 7e-10, 1e16]
    with served_view() as url:
        one = opened(chromium, url, bypass_csp=True)
        one.until("window.mrclab?.latest()")
        for unit in Unit:
            written = "({ shown }) => values.map((each) => shown(each, unit))"
            script = f"([values, unit]) => import('./static/chart.js').then({written})"
            assert one.page.evaluate(script, [values, unit.value[0]]) == [shown(each, unit) for each in values]
        look_at(one, axe)
        # A link that is down cannot be broken the same way again, and changes of EVs leave room for what was done.
        one.page.click("#truth button")
        one.until("document.querySelector('#fail').disabled")
        one.until("document.querySelectorAll('#log li.ev').length > 2")
        adjacent = "document.querySelector('#log li.ev + li.ev + li.ev')"
        assert one.page.evaluate(f"!{adjacent} || getComputedStyle({adjacent}).display") in (True, "none")
        one.page.context.close()


def test_chart_answers_keys_and_clicks(chromium: Any, page: Callable[[str], pathlib.Path]) -> None:
    one = opened(chromium, page("run").as_uri(), accept_downloads=True)
    chart = one.page.locator("#planes")
    chart.scroll_into_view_if_needed()
    one.until("document.querySelector('#planes canvas')")
    plot = chart.locator(".plot").first
    plot.focus()
    plot.press("ArrowRight")
    assert "plane 0" in chart.locator(".tip").inner_text()
    chart.locator(".key").first.click()
    plot.focus()
    plot.press("ArrowRight")
    assert "plane 0" not in chart.locator(".tip").inner_text()
    assert chart.locator(".whole").is_hidden()
    plot.press("+")
    assert chart.locator(".whole").is_visible()
    # All charts of a run show the same time.
    assert one.page.locator("#goodput .whole").is_visible()
    plot.press("Escape")
    assert chart.locator(".whole").is_hidden()
    with one.page.expect_download() as download:
        chart.locator(".save").click()
    head, *rows = pathlib.Path(download.value.path()).read_text().splitlines()
    assert head == 'curve,"time after the start, s","load, Mb/s"'
    assert not any(
        row.startswith('"plane 0"') for row in rows[: rows.index(next(r for r in rows if r.startswith("curve")))]
    )
    one.page.emulate_media(media="print")
    assert one.errors == []
    one.page.context.close()
