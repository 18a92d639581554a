"""Metrics of the live view: conventions of Prometheus, read by its own parser; the dashboard asks for what exists."""

from __future__ import annotations

import copy
import json
import pathlib
import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser

from mrc_topo.labfile import load_lab
from mrclab.web import metrics
from mrclab.web.metrics import FAMILIES, Family
from mrclab.web.state import Layout, ViewState, layout_of
from support.web import LINK, simulating

DOCS = pathlib.Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana" / "mrclab.json"
TOPOLOGY = load_lab("tiny")
LAYOUT = layout_of(TOPOLOGY, "lab", clock="real", transport="mrc", began_ns=0, can=[])


def state_of(layout: Layout, planes: int) -> ViewState:
    """Return a state in which everything that a state can say is said."""
    host = {
        "alive": True, "ports_up": 2, "delivered_bytes": 1000, "goodput_bps": 8000, "tx_bytes": [10, 20],
        "rx_bytes": [30, 40], "tx_bps": [1, 2], "rx_bps": [3, 4], "packets": 7, "retransmissions": 6, "losses": 5,
        "trims": 4, "marks": 3, "timeouts": 2, "ev": {"GOOD": 120, "ASSUMED_BAD": 8},
        "cc": {"cwnd": 4096, "inflight": 2048, "rtt_ns": 1_500_000, "rate_bps": 80},
    }  # fmt: skip
    switch = {"state": "running", "queue_bytes": 11, "drops": 12, "lost": 13, "trimmed": 14, "marked": 15}
    link = {
        "state": "up", "impaired": False, "denied": True, "up_bytes": 1, "down_bytes": 2, "up_bps": 800,
        "down_bps": 1600, "up_queue_bytes": 5, "down_queue_bytes": 6, "drops": 7, "lost": 8,
    }  # fmt: skip
    broken = {"target": "h1:0", "kind": "port_down", "direction": "both", "settings": {}, "text": "t"}
    job = {
        "name": "j", "workload": "ring_all_reduce", "params": {}, "hosts": [], "running": True, "began_ns": 0,
        "iterations": 3, "step_ns": 250_000_000, "bytes_verified": 99, "mismatches": 0, "failures": ["x"],
    }  # fmt: skip
    made: dict[str, Any] = {
        "format": 1, "number": 1, "layout": 0, "t_ns": 2_500_000_000, "phase": "running", "problem": "", "speed": 1.0,
        "asked_speed": 1.0, "hosts": [host] * len(layout["hosts"]), "switches": [switch] * len(layout["switches"]),
        "links": [link] * len(layout["links"]), "planes": [{"rx_bps": 800, "ports_up": 4}] * planes,
        "goodput_bps": 32_000, "broken": [broken], "denied": ["a"], "found": {"h1:0": "dead"}, "captures": [],
        "job": job, "fidelity": {"valid": True}, "log_end": 5, "commands": 2,
    }  # fmt: skip
    return cast(ViewState, copy.deepcopy(made))


STATE = state_of(LAYOUT, TOPOLOGY.lab.planes)


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what Prometheus' own parser makes of it: values by labels, by name. Counters keep their `_total`."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found.setdefault(sample.name, {}), f"{sample.name}{key} twice"
            found[sample.name][key] = sample.value
            assert FAMILIES[sample.name].type == family.type
            assert FAMILIES[sample.name].help == family.documentation
    return found


def test_a_full_state_has_every_family_with_its_labels_and_units() -> None:
    found = read(metrics.render(LAYOUT, STATE))
    assert set(found) == set(FAMILIES)
    for name, series in found.items():
        assert {tuple(key for key, _ in labels) for labels in series} == {tuple(sorted(FAMILIES[name].labels))}
    assert found["mrclab_goodput_bytes_per_second"][()] == 4000
    assert found["mrclab_congestion_rtt_seconds"][(("host", "h0"),)] == 0.0015
    assert found["mrclab_host_transmitted_bytes_total"][(("host", "h1"), ("plane", "1"))] == 20
    assert found["mrclab_evs"][(("state", "ASSUMED_BAD"),)] == 8 * len(LAYOUT["hosts"])
    assert found["mrclab_evs"][(("state", "DENIED"),)] == 0
    assert found["mrclab_failures"][(("kind", "port_down"),)] == 1
    assert found["mrclab_failures"][(("kind", "freeze"),)] == 0
    assert found["mrclab_found_elements"] == {(("finding", "dead"),): 1, (("finding", "lossy"),): 0}
    assert found["mrclab_phase"][(("phase", "lost"),)] == 0
    assert sum(found["mrclab_links"].values()) == len(LAYOUT["links"])
    way = (("direction", "down"), ("link", "h0:0"), ("plane", "0"), ("tier", "host"))
    assert found["mrclab_link_load_bytes_per_second"][way] == 200


def test_what_is_not_known_is_absent() -> None:
    empty = copy.deepcopy(STATE)
    for key in ("hosts", "switches", "links"):
        empty[key] = [{} for _ in empty[key]]  # type: ignore[typeddict-item]
    empty["job"], empty["fidelity"], empty["planes"] = None, {}, []
    found = read(metrics.render(LAYOUT, empty))
    assert not [name for name in found if name.startswith(("mrclab_host_", "mrclab_switch_", "mrclab_job"))]
    assert "mrclab_link_up" not in found
    assert found["mrclab_links"][(("plane", "0"), ("state", "unknown"), ("tier", "host"))] > 0


def test_a_lab_that_is_gone_is_down() -> None:
    gone = copy.deepcopy(STATE)
    gone["phase"] = "lost"
    found = read(metrics.render(LAYOUT, gone))
    assert found["mrclab_up"][()] == 0
    assert found["mrclab_phase"][(("phase", "lost"),)] == 1


@given(st.text(max_size=30), st.text(max_size=30))
def test_labels_come_back_whatever_is_in_them(lab: str, target: str) -> None:
    layout, state = copy.deepcopy(LAYOUT), copy.deepcopy(STATE)
    layout["lab"], state["broken"][0]["target"] = lab, target
    text = metrics.render(layout, state)
    assert sum(line.startswith("mrclab_failure_in_force{") for line in text.split("\n")) == 1
    # The parser splits at other ends of lines than Prometheus does, and strips blanks.
    if not re.search(r"[\r\v\f\x1c-\x1f\x85\u2028\u2029\0]", lab + target):
        found = read(text)
        assert [dict(labels)["lab"] for labels in found["mrclab_lab_info"]] == [lab]
        assert [dict(labels)["target"] for labels in found["mrclab_failure_in_force"]] == [target]


KEYS = st.sampled_from(["up", "cut", "dark", "cut_up"])


@given(st.data())
def test_any_state_is_read_by_prometheus(data: st.DataObject) -> None:
    state = copy.deepcopy(STATE)
    for key in ("hosts", "switches", "links"):
        for number, row in enumerate(state[key]):
            kept = data.draw(st.sets(st.sampled_from(sorted(row)))) if number < 2 else set(row)
            state[key][number] = {name: row[name] for name in kept}  # type: ignore[call-overload, literal-required]
    state["links"][0]["state"] = data.draw(KEYS)
    state["phase"] = data.draw(st.sampled_from(metrics.PHASES))
    state["speed"] = data.draw(st.floats(0, 1e6))
    found = read(metrics.render(LAYOUT, state))
    assert set(found) <= set(FAMILIES)


def test_names_follow_the_conventions() -> None:
    units = ("_bytes", "_seconds", "_ratio", "_bytes_per_second", "_packets", "_info")
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"mrclab_[a-z]+(_[a-z]+)*", name)
        assert all(re.fullmatch("[a-z]+", label) for label in family.labels)
        assert family.help.endswith(".")
        assert not re.search(r"_(ms|ns|us|bits?|bps|kb|mb)(_|$)", name)
        if family.type == "counter":
            assert name.endswith("_total")
        if any(word in name for word in ("window", "inflight", "queue", "rtt", "goodput", "rate")):
            assert name.removesuffix("_total").endswith(units), name
    with pytest.raises(ValueError, match="_total"):
        Family("mrclab_x", "counter", "x.")
    with pytest.raises(ValueError, match="_total"):
        Family("mrclab_x_total", "gauge", "x.")


def test_a_large_lab_has_sums_only() -> None:
    layout, state = copy.deepcopy(LAYOUT), copy.deepcopy(STATE)
    layout["links"] = [dict(layout["links"][0], name=f"l{number}") for number in range(metrics.DETAILED + 1)]  # type: ignore[misc]
    state["links"] = [state["links"][0]] * len(layout["links"])
    state["broken"] = [dict(state["broken"][0], target=f"t{number}") for number in range(1000)]  # type: ignore[misc]
    found = read(metrics.render(layout, state))
    assert not [name for name in found if name.startswith("mrclab_link_")]
    assert found["mrclab_detail"] == {(("of", "hosts"),): 1, (("of", "links"),): 0}
    assert sum(found["mrclab_links"].values()) == metrics.DETAILED + 1
    assert len(found["mrclab_failure_in_force"]) == metrics.NAMED
    layout["hosts"] *= 1000
    state["hosts"] *= 1000
    found = read(metrics.render(layout, state))
    assert not [name for name in found if name.startswith(("mrclab_host", "mrclab_congestion"))]
    assert sum(len(series) for series in found.values()) < 300
    assert found["mrclab_evs"][(("state", "GOOD"),)] == 120 * len(state["hosts"])


def test_a_state_of_another_layout_is_refused() -> None:
    state = copy.deepcopy(STATE)
    state["links"] = state["links"][1:]
    with pytest.raises(ValueError, match="links"):
        metrics.render(LAYOUT, state)


def test_a_simulation_says_all_that_there_is_to_say() -> None:
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.ask("fail", target=LINK)
        state = view.until(
            lambda state: (
                bool(state["job"] and state["job"].get("step_ns"))
                and any(each.get("state") == "cut" for each in state["links"])
                and all("marked" in each for each in state["switches"])
                and bool(state["fidelity"])
            )
        )
        layout = view.hub.layout
        assert layout is not None
        found = read(metrics.render(layout, state))
    # RoCE has a rate instead of a window.
    assert set(FAMILIES) - set(found) == {"mrclab_congestion_rate_bytes_per_second"}
    place = next(each for each in layout["links"] if each["name"] == LINK)
    cut = (("plane", str(place["plane"])), ("state", "cut"), ("tier", "fabric"))
    assert found["mrclab_links"][cut] == 1
    assert {dict(labels)["state"] for labels in found["mrclab_links"]} == set(metrics.LINK_STATES)
    assert {dict(labels)["state"] for labels in found["mrclab_evs"]} <= set(metrics.EV_STATES)
    assert sum(found["mrclab_phase"].values()) == 1
    assert found["mrclab_failure_in_force"] == {(("kind", "link_down"), ("target", LINK)): 1}
    load = sum(found["mrclab_host_goodput_bytes_per_second"].values())
    assert found["mrclab_goodput_bytes_per_second"][()] == pytest.approx(load)


# -- what is written about them ---------------------------------------------------------------------------------


def test_the_manual_names_every_metric() -> None:
    text = (DOCS / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(mrclab_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", text, re.M)
    wanted = [(each.name, each.type, ", ".join(each.labels), each.help) for each in FAMILIES.values()]
    assert rows == wanted
    assert set(re.findall(r"mrclab_\w+", text)) <= set(FAMILIES)


def expressions() -> list[tuple[str, str]]:
    """Title and expression of everything that the dashboard asks for."""
    made = json.loads(DASHBOARD.read_text())
    found = [(panel["title"], each["expr"]) for panel in made["panels"] for each in panel.get("targets", ())]
    found += [(each["name"], each["query"]["query"]) for each in made["templating"]["list"] if each["type"] == "query"]
    return found + [(each["name"], each["expr"]) for each in made["annotations"]["list"]]


@pytest.mark.parametrize(("title", "text"), expressions())
def test_the_dashboard_asks_for_what_exists(title: str, text: str) -> None:
    names = re.findall(r"mrclab_\w+", text)
    assert names, title
    assert set(names) <= set(FAMILIES), title
    labels = {label for name in names for label in FAMILIES[name].labels}
    for name, given_labels in re.findall(r"(mrclab_\w+)\{([^}]*)\}", text):
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", given_labels))
        assert asked <= set(FAMILIES[name].labels), title
    for group in re.findall(r"(?:by|without|ignoring|on) ?\(([^)]*)\)", text):
        assert {each.strip() for each in group.split(",")} <= labels, title
    inside = set(re.findall(r"(?:rate|increase)\((mrclab_\w+)", text))
    for name in names:
        counts = FAMILIES[name].type == "counter" and "verified" not in name and "mismatches" not in name
        assert (name in inside) == counts, f"{title}: rate() is for counters, and they need it"


def test_the_dashboard_is_one_and_says_what_it_shows() -> None:
    made = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    legends = [(each["legendFormat"], each["expr"]) for panel in panels for each in panel["targets"]]
    for legend, text in legends:
        known = {label for name in re.findall(r"mrclab_\w+", text) for label in FAMILIES[name].labels}
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= known
    for panel in panels:
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    boxes = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in made["panels"]]
    assert len(set(boxes)) == len(boxes)
    everything = " ".join(text for _, text in expressions())
    for part in (
        "goodput",
        "plane_received",
        "links",
        "evs",
        "congestion_window",
        "congestion_rtt",
        "failures",
        "job_step",
    ):
        assert f"mrclab_{part}" in everything
