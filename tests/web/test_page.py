"""The live view's page in a real browser, fed with made states: what it draws, and what it says of a dead server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_topo.labfile import builtin_labs, load_lab, parse_lab
from mrclab.web import sampler
from mrclab.web.hub import Hub
from mrclab.web.log import LogLine
from mrclab.web.state import Layout, calm, layout_of
from support.browser import Opened, an_hour, lacking, opened
from support.browser import browser as a_browser
from support.web import LINK, served

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]

SWITCH = "p0-t1.0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as made:
        yield made


@contextlib.contextmanager
def shown(browser: Any, layout: Layout, **context: Any) -> Iterator[tuple[Hub, Opened]]:
    """Yield a page that shows a first state of a layout."""
    hub = Hub()
    hub.show(layout)
    with served(hub) as serving:
        hub.publish(calm(layout, 1))
        one = opened(browser, serving.url, **context)
        one.until("window.mrclab?.latest()")
        yield hub, one
        assert one.errors == []
        one.page.context.close()


def tiny(can: list[str]) -> Layout:
    return layout_of(load_lab("tiny"), "lab", clock="real", transport="mrc", began_ns=0, can=can)


def place(rows: Any, name: str) -> int:
    return [each["name"] for each in rows].index(name)


def test_what_happens_is_drawn_where_it_happens(browser: Any) -> None:
    """Load, states, marks and trims that shine for a moment, what the hosts find, and the bar of fidelity."""
    layout = tiny([])
    link, switch = place(layout["links"], LINK), place(layout["switches"], SWITCH)
    with shown(browser, layout) as (hub, one):

        def show(number: int, **changes: Any) -> None:
            state: Any = calm(layout, number)
            state["links"][link] |= changes.pop("link", {})
            state["switches"][switch] |= changes.pop("switch", {})
            hub.publish({**state, **changes})  # type: ignore[typeddict-item]

        rate = layout["links"][link]["rate_bps"]
        for load, level in ((0.0, 0), (0.1, 1), (0.5, 3), (1.0, 5)):
            show(2, link={"down_bps": int(load * rate)})
            one.until(f"mrclab.fabric.look('{LINK}').level === {level}")
        for number, (row, kind, word) in enumerate(
            (
                ({"state": "cut"}, "down", "down"),
                ({"state": "cut_up"}, "down", "down upwards"),
                ({"state": "dark"}, "dark", "at a switch that is off"),
                ({"impaired": True}, "impaired", "up, impaired"),
                ({"denied": True}, "denied", "up, denied"),
                ({}, "", "up"),
            )
        ):
            show(3 + number, link=row)
            one.until(f"mrclab.fabric.look('{LINK}').kind === '{kind}'")
            one.page.evaluate(f"mrclab.fabric.choose('{LINK}')")
            one.until(f"document.querySelector('#panel-element dd').textContent === '{word}'")
        show(10, switch={"trimmed": 5, "marked": 1, "queue_bytes": 5000}, link={"lost": 0})
        show(11, switch={"trimmed": 5, "marked": 1, "queue_bytes": 5000}, link={"lost": 0})
        one.until(f"mrclab.fabric.look('{SWITCH}').words === '4.88 KiB'")
        show(12, switch={"trimmed": 5, "marked": 2}, link={"lost": 3})
        one.until(f"mrclab.fabric.look('{SWITCH}').fill === 'mark'")
        one.until(f"mrclab.fabric.look('{LINK}').halos.includes('lost')")
        # No other state comes, and it ceases all the same.
        one.until(f"mrclab.fabric.look('{SWITCH}').fill === ''")
        one.until(f"!mrclab.fabric.look('{LINK}').halos.includes('lost')")
        show(13, switch={"trimmed": 6, "marked": 3})
        one.until(f"mrclab.fabric.look('{SWITCH}').fill === 'trim'")
        show(14, switch={"state": "stopped"}, found={SWITCH: "dead", LINK: "lossy"})
        one.until(f"mrclab.fabric.look('{SWITCH}').classes.includes('off')")
        one.until(f"mrclab.fabric.look('{SWITCH}').classes.includes('found')")
        one.until(f"mrclab.fabric.look('{LINK}').halos.includes('found')")
        assert "off" in one.page.evaluate(f"mrclab.fabric.look('{SWITCH}').words")
        show(15, fidelity={"valid": False, "simulated": False, "reasons": ["the loop was 3 ms late"]})
        one.page.wait_for_selector("#fidelity:not([hidden])")
        assert "does not keep up; times and rates are not valid: the loop was 3 ms late" in one.text("#fidelity")
        one.until(f"!mrclab.fabric.look('{SWITCH}').classes.includes('found')")
        show(16)
        one.page.wait_for_selector("#fidelity", state="hidden")


def test_each_tenant_has_a_line_of_its_own_figures_where_there_are_tenants(browser: Any) -> None:
    text = builtin_labs()["tiny"].read_text() + "tenants: {blue: {hosts: [h0, h1], addresses: '2001:db8::/32'}}\n"
    layout = layout_of(parse_lab(text), "lab", clock="real", transport="mrc", began_ns=0, can=[])
    with shown(browser, layout) as (hub, one):
        state: Any = calm(layout, 2)
        state["hosts"][0] |= {"goodput_bps": 30_000_000, "losses": 4}
        state["hosts"][1] |= {"goodput_bps": 10_000_000, "losses": 1}
        hub.publish(state)
        one.until("document.querySelector('#tenants').textContent.includes('40')")
        blue, others = one.text("#tenants").split(" · ")
        assert blue.startswith("blue: 40")
        assert blue.endswith(", 5 taken for lost, Jain's index 0.80")
        assert others.startswith("in no tenant: 0")
    with shown(browser, tiny([])) as (_, one):
        one.page.wait_for_selector("#tenants", state="hidden")


EVS = [
    {"t_ns": 58_310_000_000, "ev": 0x2A, "peer": "h2", "qpn": 7},
    {"t_ns": 58_312_000_000, "ev": 0x2B, "peer": "h3", "qpn": 8},
]
CELLS = "(rows) => rows.map((row) => [...row.children].map((each) => each.textContent))"


def test_log_names_the_evs_that_changed_and_has_causes_before_effects(browser: Any) -> None:
    """A failure comes in after what the hosts noticed of it, but began before, or at the same time."""
    with shown(browser, tiny([])) as (hub, one):
        text = "h1: 2 EVs of plane 0 to h2, h3: GOOD → ASSUMED_BAD (rack)"
        hub.log.append(LogLine(58_310_000_000, "ev", text, "h1:0", changed=2, evs=EVS))  # type: ignore[arg-type]
        hub.log.append(LogLine(58_310_000_000, "failure", f"link down {LINK}", LINK, 58_320_000_000))
        hub.log.append(LogLine(58_310_000_000, "port", "h1:0 is down", "h1:0"))
        hub.log.append(LogLine(58_000_000_000, "restore", "restored: link down x", "x", 58_001_000_000))
        hub.publish(calm(hub.layout, 2))  # type: ignore[arg-type]
        one.until("document.querySelectorAll('#log li').length === 4")
        rows = one.page.locator("#log li")
        assert rows.evaluate_all("(rows) => rows.map((row) => row.className)") == ["port", "ev", "failure", "restore"]
        assert one.text("#log .failure") == f"58.31 slink down {LINK}, done at 58.32 s"
        assert one.text("#log .restore") == "58.00 srestored: link down x"
        one.page.click("#log .ev summary")
        one.page.wait_for_selector("#log .ev td")
        assert one.page.locator("#log .ev tr").evaluate_all(CELLS) == [
            ["time", "EV", "peer", "QP"],
            ["58.31 s", "0000002a", "h2", "7"],
            ["58.31 s", "0000002b", "h3", "8"],
        ]


def test_pair_panel_says_since_when_an_ev_is_in_its_state(browser: Any) -> None:
    with shown(browser, tiny([])) as (hub, one):
        one.page.click("#tab-pair")
        one.page.select_option("#source", "h1")
        one.page.select_option("#destination", "h2")
        row = {"plane": 0, "active": True, "losses": 0, "used_ns": -1, "links": [], "cause": ""}
        evs = [
            row | {"ev": 1, "state": "GOOD", "since_ns": -1},
            row | {"ev": 2, "state": "GOOD", "since_ns": 2_000_000_000, "cause": "probe answered"},
            row | {"ev": 3, "state": "ASSUMED_BAD", "since_ns": 3_500_000_000, "cause": "rack"},
        ]
        pair: Any = {
            "source": "h1", "destination": "h2", "error": "", "qps": [{"qpn": 7, "state": "RTS", "evs": evs}],
            "cwnd": 0, "inflight": 0, "rtt_ns": 0, "packets": 0, "retransmissions": 0,
        }  # fmt: skip
        hub.show_pairs({("h1", "h2"): pair})
        hub.publish(calm(hub.layout, 50))  # type: ignore[arg-type]
        one.page.wait_for_selector("#changes td")
        assert one.page.locator("#changes tr").evaluate_all(CELLS) == [
            ["since", "state", "EV", "plane", "QP", "cause"],
            ["3.50 s", "ASSUMED_BAD", "00000003", "0", "7", "rack"],
            ["2.00 s", "GOOD", "00000002", "0", "7", "probe answered"],
        ]
        assert "from h1 to h2" in one.text("#changes caption")
        one.page.click("#evs .ev.ASSUMED_BAD")
        assert "ASSUMED_BAD since 3.50 s (rack)" in one.text("#panel-pair p[role=status]")


#: Titles of axes, and whether the ticks of each are written and lie within the chart.
AXES = """() => [[...document.querySelectorAll("#curves .axis span")].map((each) => each.textContent),
[".y", ".z"].map((side) => {
    const home = document.querySelector("#curves").getBoundingClientRect();
    return [...document.querySelectorAll(`#curves .words ${side}`)].map((each) => {
        const box = each.getBoundingClientRect();
        return box.left >= home.left - 1 && box.right <= home.right + 1 && each.textContent.length > 0;
    });
})]"""


def test_axes_are_named_by_what_they_show_beside_their_ticks(browser: Any) -> None:
    layout = tiny([])
    with shown(browser, layout) as (hub, one):
        state = calm(layout, 2)
        one.until("mrclab.curves.rows.length > 0")
        for number, goodput in enumerate((50_000_000, 9_990_000, 499_900_000_000), 3):
            state = calm(layout, number)
            state["goodput_bps"] = goodput
            job: Any = {"name": "x", "workload": "x", "hosts": [], "running": True, "began_ns": 0}
            state["job"] = job | {"completion_ns": 123_000_000}
            hub.publish(state)
            one.until(f"mrclab.latest().goodput_bps === {goodput} && mrclab.curves.data()[1].at(-1) === {goodput}")
            for what, labels in (
                ("planes", ["goodput of all hosts, load of planes"]),
                ("hosts", ["goodput"]),
                ("times", ["goodput", "time of an iteration"]),
            ):
                one.page.evaluate(f"mrclab.curves.choose('{what}')")
                one.until("mrclab.curves.plot.axes[1]._values?.length > 1")
                titles, ticks = one.page.evaluate(AXES)
                assert titles == labels
                assert all(map(all, ticks))
                assert [bool(each) for each in ticks] == [True, what == "times"]


def test_completion_times_are_drawn_beside_goodput_or_the_selector_says_why_not(browser: Any) -> None:
    layout = tiny([])
    option = "document.querySelector('#what [value=times]')"
    with shown(browser, layout) as (hub, one):
        one.until(f"{option}.textContent === 'completion times: no workload has run yet' && {option}.disabled")
        job: Any = {"name": "x", "workload": "x", "hosts": [], "running": True, "began_ns": 0}
        hub.completions = sampler.without("median and P99 follow")
        for number in range(2, 6):
            hub.publish({**calm(layout, number), "job": job | {"completion_ns": number * 1_000_000}})
            one.until(f"mrclab.latest().t_ns === {number} * 1e8")
            # The curves are drawn four times a second.
            one.page.wait_for_timeout(300)
        one.until(f"{option}.textContent === 'goodput and completion times' && !{option}.disabled")
        one.page.select_option("#what", "times")
        assert one.text("#why") == "median and P99 follow"
        wanted = ["goodput of all hosts", "mean of 2 s, or the present one if longer"]
        assert one.page.locator("#key li").all_inner_texts() == wanted
        one.until("mrclab.curves.data()[2].at(-1) === 5e6")
        rows: Any = [[150_000_000, 7_000_000, 9_000_000, 4], [350_000_000, None, None, 0]]
        hub.completions = {"what": "flow", "window_ns": 10**9, "rows": rows, "why": ""}
        hub.publish({**calm(layout, 7), "job": job | {"running": False}})
        one.until("document.querySelectorAll('#key li').length === 4 && mrclab.latest().t_ns === 7e8")
        assert one.page.locator("#key li").all_inner_texts()[1:3] == ["median of 1 s", "P99 of 1 s"]
        assert one.page.is_hidden("#why")
        assert one.page.evaluate(AXES)[0] == ["goodput", "time of a flow"]
        one.until("mrclab.curves.data()[0].includes(0.7)")
        times, _, median, p99, mean = one.page.evaluate("mrclab.curves.data()")
        assert [p99[times.index(each)] for each in (0.15, 0.35)] == [9_000_000, None]
        assert median[times.index(0.15)] == 7_000_000
        assert mean[times.index(0.5)] == 5_000_000
        assert mean[times.index(0.7)] is None
        # Another lab, of which nothing is known.
        hub.show(tiny([]))
        hub.publish(calm(hub.layout, 8))  # type: ignore[arg-type]
        one.until(f"{option}.disabled && document.querySelector('#what').value === 'planes'")


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_all_is_in_sight(browser: Any, size: tuple[int, int]) -> None:
    """On a small screen and on a projector nothing is cut off, and the fabric fills its place."""
    layout = layout_of(load_lab("default"), "lab", clock="real", transport="mrc", began_ns=0, can=["fail", "pause"])
    with shown(browser, layout, viewport={"width": size[0], "height": size[1]}) as (_, one):
        wide, high, whole = one.page.evaluate(
            """() => {
                const box = mrclab.fabric.cy.elements().renderedBoundingBox();
                const place = document.getElementById("fabric").getBoundingClientRect();
                const page = document.documentElement;
                return [[box.x1, box.x2, place.width], [box.y1, box.y2, place.height],
                    [page.scrollWidth, page.scrollHeight, innerWidth, innerHeight]];
            }"""
        )
        for first, last, most in (wide, high):
            assert 0 <= first < last <= most, (wide, high)
        assert wide[1] - wide[0] > 0.9 * wide[2] or high[1] - high[0] > 0.8 * high[2], (wide, high)
        assert whole[:2] == whole[2:]
        texts = one.page.evaluate(
            "[...mrclab.fabric.picture.boxes.values()].map((each) => each.size * mrclab.fabric.cy.zoom())"
        )
        assert min(texts) > 9


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


def test_an_hour_of_states_takes_no_more_memory_than_a_few_minutes(browser: Any) -> None:
    """36 000 states, ten a second, and a line of the log with every tenth: what the page keeps has a bound."""
    with shown(browser, tiny([])) as (_, one):
        sizes = an_hour(one.page)
        assert one.page.evaluate("mrclab.curves.rows.length") == 1500
        assert one.page.evaluate("document.querySelectorAll('#log li').length") == 400
        assert sizes[1][0] < sizes[0][0] + 4e6, sizes
        assert sizes[1][1] < sizes[0][1] + 2000, sizes
