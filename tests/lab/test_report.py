"""The report: charts that hold their data, the moment of each failure, what the top says, one small file."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mrc_host import running
from mrc_host.answers import MrcHostStatistics
from mrc_topo import draw
from mrc_topo.base import look
from mrc_topo.labfile import load_lab
from mrclab.pages import chart
from mrclab.results import analysis, capacity, milestones, moments, performance, report
from mrclab.results.check import Check, Verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult, fidelity_of
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from support.lab.labs import lab_file
from support.lab.results import result_of

LINK, SWITCH = "p0-t0.0--p0-t1.0", "p1-t0.0"
TOPOLOGY = load_lab("tiny")
LOADED = re.compile(r'(?:src|href)="(?!#)|@import|url\(|fetch\(|XMLHttpRequest|import\(')


@dataclass(frozen=True)
class Run:
    """A run that ended: its folder, what was kept of it, and the verdict."""

    folder: pathlib.Path
    result: RunResult
    verdict: Verdict


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run in which a link fails and comes back, then loses packets, then a switch stops."""
    experiment = Experiment(
        name="x",
        title="a <b>title</b>",
        lab="tiny",
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=2.4),
        schedule=[
            ExperimentStep(at=0.6, fail=LINK, evidence=Evidence(dropped=1)),
            ExperimentStep(at=1.0, restore=LINK),
            ExperimentStep(at=1.4, fail=LINK, kind="impair", settings={"loss": 0.01}, evidence=Evidence(dropped=1)),
            ExperimentStep(at=1.8, fail=SWITCH, evidence=Evidence(ports_down=1)),
        ],
        expect=Expectation(recovery=1.0),
    )
    folder = tmp_path_factory.mktemp("run")
    made = execute.execute(experiment, "virtual", folder=folder, live=False)
    return Run(folder, RunResult.load(folder), made.verdict)


def test_use_of_the_capacity_of_the_ports_adds_up(outcome: Run) -> None:
    result = outcome.result
    use = capacity.use_of(result, TOPOLOGY)
    assert use is not None
    parts = (use.payload, use.headers, use.answers, use.again, use.other, use.unused)
    assert sum(parts) == pytest.approx(1, abs=1e-9)
    whole = TOPOLOGY.lab.host_rate_bps * len(result.ranks)
    assert use.payload == pytest.approx(result.mean_goodput_bps() / whole)
    # Without other packets the counters of the ports are those of queue pairs, with the sizes of their packets.
    assert use.other < 0.02
    assert 0 < use.again < use.headers < use.payload


def test_use_of_the_capacity_of_the_ports_by_hand(outcome: Run, tmp_path: pathlib.Path) -> None:
    topology = load_lab(lab_file(tmp_path, "tiny", link_overhead=24, cc={"max_wnd": "64KiB"}))
    # Headers: Ethernet 14, SRv6 40, IPv6 40, UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, ICRC 4; the overhead of a link.
    beside, whole = 142 + 24, 1024 + 142 + 24
    answers = 900 * (154 + 24) + 50 * (122 + 24) + 10 * (138 + 24)
    other = 7 * (14 + 24 + 100)
    carried = 980 * (beside + 1024) + answers + 20 * whole + other
    counts = {
        "requestor.packets_sent": 1000,
        "responder.payload_bytes_placed": 980 * 1024,
        "responder.sacks_sent": 900,
        "responder.acks_sent": 50,
        "responder.nacks_sent": 10,
        "retransmissions": 20,
        "endpoint.datagrams_sent": 1967,
        "ports.sent_bytes": carried - 1967 * (14 + 24),
    }
    statistics = outcome.result.statistics["h0"]
    assert isinstance(statistics, MrcHostStatistics)
    peer = statistics.peers[0]
    peers = [dataclasses.replace(peer, cc=dataclasses.replace(peer.cc, srtt_ns=ns)) for ns in (2_000_000, 0, 4_000_000)]
    result = dataclasses.replace(
        outcome.result,
        ranks=outcome.result.ranks[:3],
        counted={"h0": counts, "h1": dict.fromkeys(counts, 0), "h3": {"retransmissions": 0}},
        statistics=outcome.result.statistics
        | {host: dataclasses.replace(statistics, peers=[]) for host in ("h1", "h2", "h3")}
        | {"h0": dataclasses.replace(statistics, peers=peers)},
    )
    rate = topology.lab.host_rate_bps
    capacity_bytes = rate * 3 * result.busy_s / 8
    assert carried < capacity_bytes
    use = capacity.use_of(result, topology)
    assert use is not None
    shares = {
        "payload": 980 * 1024,
        "headers": 980 * beside,
        "answers": answers,
        "again": 20 * whole,
        "other": other,
        "unused": capacity_bytes - carried,
    }
    assert dataclasses.asdict(use) == pytest.approx(
        {name: count / capacity_bytes for name, count in shares.items()}
        | {"rtt_ns": 3_000_000, "window": 64 * 1024 * 8 / 0.003 / rate}
    )
    for lacking in counts:
        fewer = {name: count for name, count in counts.items() if name != lacking}
        assert capacity.use_of(dataclasses.replace(result, counted={"h0": fewer}), topology) is None


@pytest.fixture(scope="module")
def text(outcome: Run) -> str:
    return (outcome.folder / "report.html").read_text()


def drawn(text: str, name: str) -> dict[str, Any]:
    """Return what the page's script draws in the first panel of a chart."""
    found = re.search(
        rf'<figure class="chart" id="{name}">.*?<script type="application/json">(.*?)</script>', text, re.S
    )
    assert found
    panel: dict[str, Any] = json.loads(found[1])["panels"][0]
    return panel


def test_report_of_a_run_is_one_small_file_with_every_section_and_chart(outcome: Run, text: str) -> None:
    assert len(text.encode()) < 200_000
    assert not LOADED.search(text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert heads == ["What it cost", "What happened when", "Why", "Details"]
    assert text.index('class="banner') < text.index("<h2>What it cost")
    found = re.findall(r'<figure class="chart" id="(\w+)"', text)
    assert found == ["goodput", "planes", "evs", "queues", "cwnd", "rtt"]
    assert "<b>title" not in text
    assert html.escape("a <b>title</b>") in text


def test_goodput_curve_of_the_page_holds_the_measured_goodput(outcome: Run, text: str) -> None:
    edges = outcome.result.grid()
    panel = drawn(text, "goodput")
    assert panel["y"]["unit"] == "Mb/s"
    (curve,) = panel["series"]
    x = curve["x"]
    assert x["from"] + x["step"] * np.arange(x["n"]) == pytest.approx(edges[:-1], abs=1e-4)
    assert curve["y"] == pytest.approx(outcome.result.goodput_bps(edges) / 1e6, abs=1e-2)


def test_failures_are_marked_until_their_repair_and_have_the_numbers_of_the_table(outcome: Run, text: str) -> None:
    marks = drawn(text, "goodput")["marks"]
    end = round(float(outcome.result.grid()[-1]), 1)
    assert [(round(each["at"], 1), round(each["until"], 1)) for each in marks] == [(0.6, 1.0), (1.4, end), (1.8, end)]
    rows = milestones.milestones_of(outcome.result, outcome.result.readings(), outcome.verdict.recoveries)
    assert [each.number for each in rows] == [1, 0, 2, 3]
    assert [each.recovery for each in rows if each.recovery] == outcome.verdict.recoveries


def test_milestones_are_the_first_events_after_an_action_and_before_the_next(outcome: Run) -> None:
    result = outcome.result
    first, back, *_ = milestones.milestones_of(result, result.readings(), outcome.verdict.recoveries)
    bad = [(each.t_ns - result.started_ns) / 1e9 for _, each in result.events.bad_evs()]
    assert first.detected_s == pytest.approx(min(each for each in bad if each >= 0.6) - first.at_s)
    assert back.detected_s is not None
    assert back.at_s + back.detected_s < 1.4
    assert (first.denied_s, first.host_s) == (None, 0.0)


def test_lowest_value_is_over_what_the_recovery_is_measured_by(outcome: Run) -> None:
    for each in outcome.verdict.recoveries:
        assert each.low == pytest.approx(each.dip / min(each.expected, 1.0))
        assert (each.low < analysis.RECOVERED) is (each.recovery_s != 0.0)


def test_every_colour_that_sheets_and_pages_use_is_defined(text: str) -> None:
    defined = set(re.findall(r"(--[\w-]+):", look.part(look.STYLE)))
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    assert used <= defined, used - defined
    planes = [re.search(rf"--plane-{number}: (#\w+)", look.part(look.STYLE)) for number in range(chart.COLOURS)]
    assert [each and each[1] for each in planes] == list(draw.COLOURS[: chart.COLOURS])


# -- the moment of each failure --------------------------------------------------------------------------------


def moments_of(text: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="moments-data">(.*?)</script>', text)
    assert found
    made: list[dict[str, Any]] = json.loads(found[1])
    return made


def test_moment_of_a_failure_shows_loads_and_broken_links_by_frame(outcome: Run, text: str) -> None:
    names = list(TOPOLOGY.links)
    first, lossy, stopped = moments_of(text)
    assert len(re.findall('<section class="moment', text)) == 3
    assert first["at"] == pytest.approx(0.6, abs=0.01)
    before = next(number for number, time in enumerate(first["t"]) if time > 0.4)
    assert all(len(frame) == len(names) for frame in first["links"])
    place = names.index(LINK)
    assert int(first["links"][before][place]) > 1
    down = [(state["from"], state["down"]) for state in first["states"]]
    assert [what for _, what in down[:4]] == [[], [place], [], []]
    assert [state["impaired"] for state in first["states"][:4]] == [[], [], [], [place]]
    dead = [number for number, time in enumerate(first["t"]) if 0.7 < time < 0.95]
    assert {first["links"][number][place] for number in dead} <= {"0", "1"}  # a few packets are still tried
    assert first["t"][down[1][0]] == pytest.approx(0.6, abs=2 * moments.FRAME_S)
    assert max(first["lost"]) > 0
    assert first["lost"][0] == 0
    assert [place] in [each["impaired"] for each in lossy["states"]]
    assert stopped["states"][-1]["switches"] == [SWITCH]
    assert set(stopped["states"][-1]["down"]) == {
        names.index(link.name) for link in TOPOLOGY.switch(SWITCH).links.values()
    }


def test_load_of_a_link_is_that_of_its_busier_direction() -> None:
    link = next(iter(TOPOLOGY.links.values()))
    rate = link.spec.rate
    rows = []
    for tick in range(11):
        sent = {f"{end.node}:{end.port}": int(tick * 0.1 * rate / 8 * share)
                for end, share in ((link.low, 0.1), (link.high, 0.5))}  # fmt: skip
        rows.append({"t_ns": tick * 100_000_000, "ports": {port: {"tx_bytes": sent[port]} for port in sent}})
    made = {"started_ns": 0, "finished_ns": 10**9, "fabric": rows, "samples": {}}
    for frame in moments.loads(result_of(made), TOPOLOGY, np.linspace(0.1, 0.9, 5)):
        assert frame[0] == str(np.searchsorted(moments.LEVELS, 0.5, side="right")) == "3"
        assert set(frame[1:]) == {"0"}


def test_moments_of_many_failures_are_the_costliest_and_their_frames_stay_small() -> None:
    happening = {"action": {"verb": "fail", "target": LINK, "kind": "link_down", "text": "t"}, "expected_loss": 0.0}
    times = [number * 10**9 for number in range(1, 500)]
    made = {
        "started_ns": 0,
        "finished_ns": 600 * 10**9,
        "happenings": [{**happening, "at_ns": each, "done_ns": each} for each in times],
        "samples": {},
        "fabric": [],
        "ranks": [],
    }
    readings = result_of(made).readings()
    worst = analysis.Recovery(77.0, "t", True, 1e6, 1.0, 0.1, 1.0, 0.2, 1.0)
    chosen = moments.chosen(readings, [worst], len(TOPOLOGY.links), 600.0)
    assert len(chosen) == moments.MOST
    assert 77.0 in [each.at_s for each in chosen]
    assert [each.number for each in chosen] == sorted(each.number for each in chosen)
    assert len(moments.chosen(readings, [], 20_000, 600.0)) == 1
    frames = moments.frames(result_of(made), TOPOLOGY, chosen)
    assert sum(len(frame) for each in frames for frame in each["links"]) <= moments.DIGITS


def test_moment_of_an_unknown_target_shows_nothing_broken() -> None:
    action = {"verb": "fail", "target": "p9-t9.9", "text": "t"}
    made = {"started_ns": 0, "happenings": [{"done_ns": 10, "action": action}]}
    assert [force for _, force in moments.forces(result_of(made), TOPOLOGY)] == [()]


def test_data_of_a_page_with_a_closing_tag_in_a_text_stays_one_script() -> None:
    made = look.data("d", {"a": "</script><script>"})
    assert made.count("<") == 2
    assert json.loads(made.partition(">")[2].rpartition("<")[0]) == {"a": "</script><script>"}


# -- the top ----------------------------------------------------------------------------------------------------


def test_top_of_a_report_names_outcome_missed_checks_and_figures(outcome: Run) -> None:
    result, good = outcome.result, Verdict([Check("a", "b", "c", True)], [], True, [])
    readings = result.readings()
    assert report.headline(readings, good) == "Passed: everything came out as expected, with 3 failures on the way"
    bad = Verdict([Check(f"check {each}", "1", "<2>", each > 4) for each in range(8)], [], True, [])
    assert report.headline(readings, bad).startswith("Failed: 5 of 8 checks were missed")
    top = report.top_of(result, TOPOLOGY, readings, bad)
    assert top.missed == [f"check {each}: expected 1, measured <2>" for each in range(report.NAMED)]
    assert top.more == 1
    made = report.render(result, TOPOLOGY, bad, "x")
    assert "<ul><li>check 0: expected 1, measured &lt;2&gt;</li>" in made
    assert "<li>and 1 more</li></ul>" in made
    stopped = Verdict([], [], True, [], interrupted="SIGINT")
    assert "SIGINT" in report.headline(readings, stopped)
    found = {each.what: (each.value, each.more) for each in report.figures(result, TOPOLOGY, readings, outcome.verdict)}
    assert len(found) == 6
    assert found["data checked byte by byte"][1].startswith("0 wrong; of ")
    assert found["failures caused"][0] == "3"


def test_top_of_a_run_that_never_recovered_says_never(outcome: Run) -> None:
    never = analysis.Recovery(0.6, "t", True, 1e6, 1.0, 0.1, 0.1, None, 1.0)
    found = report.figures(outcome.result, TOPOLOGY, outcome.result.readings(), Verdict([], [never], True, []))
    assert ("never", "slowest recovery") in [(each.value, each.what) for each in found]


def test_report_names_each_protocol_core_that_ran_once(outcome: Run, text: str) -> None:
    here = running.document()
    assert f"Protocol core {here['core']}, CRC by {here['crc']}</p>" in text
    host = {"loop_lag": {"p50_ns": 0, "p99_ns": 0, "max_ns": 0}, "cpu_share": 0.1, "rx_ring_drops": 0}
    softwares = ({"core": "compiled", "crc": "isal"}, {"core": "pure", "crc": "zlib"}, {"core": "pure", "crc": "zlib"})
    hosts = {f"h{number}": {**host, "software": each} for number, each in enumerate(softwares)}
    fidelity = fidelity_of({"valid": True, "reasons": [], "hosts": hosts})
    real = dataclasses.replace(outcome.result, fidelity=fidelity)
    told = "Protocol core compiled, CRC by isal; Protocol core pure, CRC by zlib</p>"
    assert told in report.render(real, TOPOLOGY, outcome.verdict, "t")


def test_heading_of_a_table_keeps_the_letters_of_its_units(outcome: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [performance.Table("bandwidth, Mb/s; of NICs", ["a"], [["b"]])]
    monkeypatch.setattr(performance, "tables", lambda _: tables)
    assert ">Bandwidth, Mb/s; of NICs<" in report.render(outcome.result, TOPOLOGY, outcome.verdict, "t")


def test_report_of_a_run_that_is_not_valid_warns_below_the_banner(outcome: Run) -> None:
    judged = Verdict([Check("a", "b", "c", True)], [], False, ["late <by> far"])
    made = report.render(outcome.result, TOPOLOGY, judged, "t")
    assert made.index('class="banner') < made.index("The machine did not keep up, so times and rates")
    assert "late &lt;by&gt; far" in made


def test_every_kind_of_page_takes_its_style_sheet_from_look() -> None:
    assert look.part(look.STYLE) in look.page("t", "")
    assert look.part(look.STYLE) in chart.page("t", "")


def test_report_made_again_from_the_kept_result_is_the_same(outcome: Run, text: str) -> None:
    assert report.render(outcome.result, TOPOLOGY, outcome.verdict, "a <b>title</b>") == text


def test_run_that_missed_only_timed_checks_on_a_slow_machine_has_passed(outcome: Run) -> None:
    good, late = Check("bytes", "right", "right", True), Check("goodput", "80 %", "70 %", False, timed=True)
    wrong = Check("bytes", "right", "wrong", False)
    slow = Verdict([good, late], [], False, ["h0 was late"])
    assert slow.outcome == "passed; timing not valid"
    made = report.render(outcome.result, TOPOLOGY, slow, "x")
    assert '<div class="banner doubtful"><strong>Passed; timing not valid: 1 of 2 checks is of times' in made
    assert "<span class=doubt>passed; timing not valid</span>" in made
    assert "<span class=bad>" not in made
    # On a machine that kept up, and of what must hold on any machine, it is a failure.
    for checks, valid in (([good, late], True), ([wrong, late], False)):
        other = Verdict(checks, [], valid, [])
        assert (other.outcome, other.timing_only) == ("failed", False)
        assert '<div class="banner failed"' in report.render(outcome.result, TOPOLOGY, other, "x")


def test_first_figure_of_the_top_is_goodput(outcome: Run) -> None:
    assert (
        report.figures(outcome.result, TOPOLOGY, outcome.result.readings(), outcome.verdict)[0].what
        == "goodput, on average"
    )


def test_recovery_of_a_restored_link_has_no_dip_when_the_job_ends(outcome: Run) -> None:
    assert all(each.dip > 0.3 for each in outcome.verdict.recoveries if not each.breaks)
