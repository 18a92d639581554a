"""Each number that a surface shows of a run is that of the raw statistics: terminal, JSON, report, files, events, live
view, sweep and status."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import pytest
import yaml

from mrc_topo.base.plain import encode
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrc_topo.units import Unit, digits, format_rate
from mrc_topo.units import shown as told
from mrclab.cli.app import main
from mrclab.cli.status import lab_status
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import counted, resultdir, verdict
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs.execute import complete, run_on
from mrclab.runs.experiment import Experiment, Workload
from mrclab.studies.sweeps.measure import EXPERIMENT
from mrclab.web.hub import Hub
from mrclab.web.replay import Recorded, Replay
from mrclab.web.state import ViewState
from support.amount import only
from support.lab.labs import lab_file, session, switches
from support.lab.surfaces import COUNTERS, Page, Raw, boxes, host_counter, sums

LINK = "p0-t0.0--p0-t1.0"
BROKEN = [{"at": 0.5, "fail": LINK, "evidence": {"dropped": 1}}, {"at": 1.1, "restore": LINK}]
LOSSY = [
    {"at": 0.5, "fail": LINK, "settings": {"loss": 0.3}, "loss": 0.0, "evidence": {"dropped": 1}},
    {"at": 1.1, "restore": LINK},
]
PORT = [{"at": 0.4, "fail": "h0:1", "evidence": {"ports_down": 1}}, {"at": 1.0, "restore": "h0:1"}]
SMALL = {"limit": "16KiB", "ecn": {"kmin": "2KiB", "kmax": "8KiB"}, "trim": {"threshold": "8KiB"}}


def ran(name: str, transport: str = "mrc", duration: float | None = None, **params: Any) -> dict[str, Any]:
    workload = {"name": name, "params": params} | ({} if duration is None else {"duration": duration})
    return {"transport": transport, "workload": workload}


#: By name: what is changed in lab tiny, and the experiment.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "iterations only": ({}, ran("all_to_all", block_bytes=60_000, iterations=3)),
    "iterations of roce": ({}, ran("all_to_all", "roce", block_bytes=60_000, iterations=3)),
    "trims and marks": ({"queues": SMALL}, ran("incast", message_bytes=60_000, iterations=20, target=0)),
    "roce with flow control": (
        {"queues": {"limit": "16KiB", "ecn": None, "trim": None, "pfc": {"xoff": "8KiB"}}},
        ran("incast", "roce", message_bytes=60_000, iterations=8, target=0),
    ),
    "roce loses packets": (
        {"queues": {"limit": "16KiB", "ecn": None, "trim": None}},
        ran("incast", "roce", message_bytes=60_000, iterations=8, target=0),
    ),
    "failure with restore": ({}, ran("ring_all_reduce", size_bytes=65_536, duration=1.7) | {"schedule": BROKEN}),
    "lossy link": ({"queues": SMALL}, ran("all_to_all", block_bytes=30_000, duration=1.7) | {"schedule": LOSSY}),
    "failure of a port under roce": (
        {},
        ran("permutation", "roce", message_bytes=30_000, duration=1.6) | {"schedule": PORT},
    ),
    "payload is a length": ({}, ran("all_to_all", block_bytes=60_000, iterations=3) | {"payload": "length"}),
    "duration": ({}, ran("write_bw", message_bytes=30_000, duration=0.57)),
    "flows": ({}, ran("flows", flows=[[0, 1, 90_000, 0], [2, 1, 90_000, 1_000_000], [3, 0, 9]])),
    "latency": ({}, ran("write_lat", iterations=1200)),
    "many iterations": ({}, ran("broadcast", size_bytes=9000, iterations=120)),
}
#: Measures of a sweep that its report lists, by their names in `Raw`.
IN_SWEEPS = {
    "packets_sent": "packets", "retransmissions": "retransmissions", "losses": "losses", "trims": "trims",
    "spurious_retransmissions": "spurious_retransmissions", "timeouts": "timeouts", "marks": "marks",
}  # fmt: skip
CASES["subset of hosts"] = {}, ran("ring_all_reduce", size_bytes=65_536, iterations=17)
CASES["subset of hosts"][1]["workload"]["hosts"] = ["h1", "h2", "h3"]


@dataclass
class Shown:
    """A run, its raw statistics, what the P4 program counted, and what each surface printed or wrote."""

    name: str
    raw: Raw
    program: dict[str, int]
    pauses: Any
    terminal: str
    as_json: dict[str, Any]
    page: Page
    events: str
    events_json: list[dict[str, Any]]
    live: ViewState
    topology: Topology
    sweep: dict[str, str]
    sweep_page: Page
    parquet: dict[str, Any] | None

    @property
    def mrc(self) -> bool:
        return next(iter(self.raw.document["statistics"].values())).get("transport") != "roce"


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["mrclab", *map(str, arguments)])
    capsys.readouterr()
    with contextlib.suppress(SystemExit):
        main()
    out, err = capsys.readouterr()
    assert "mrclab: error" not in err
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("surfaces")


_made: dict[str, Shown] = {}


@pytest.fixture
def shown(
    request: pytest.FixtureRequest,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shown:
    """Return what surfaces show of a case, which runs once."""
    name = request.param
    if name not in _made:
        monkeypatch.setenv("COLUMNS", "250")
        place = folder / name.replace(" ", "-")
        place.mkdir()
        _made[name] = show(name, place, lambda *each: said(monkeypatch, capsys, *each), monkeypatch)
    return _made[name]


def show(name: str, place: pathlib.Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    changes, experiment = CASES[name]
    lab = lab_file(place, "tiny", **changes)
    content = {"name": "x", "title": "x", **experiment, "clock": "virtual"}
    (place / "x.yaml").write_text(yaml.safe_dump({**content, "lab": lab}))
    del content["name"], content["title"]
    plots = [{"y": each, "x": "lab.path_mtu"} for each in IN_SWEEPS]
    sweep = {"name": "s", "title": "s", "lab": lab, "experiment": content, "grid": {"lab.path_mtu": [1024]}}
    (place / "sweep.yaml").write_text(yaml.safe_dump({**sweep, "seeds": [1], "plots": plots}))
    program: list[dict[str, int]] = []
    pauses: list[object] = []
    close = VirtualSession.close

    def closed(session: VirtualSession) -> None:
        program.append(session.program_counters())
        pauses.append(encode(counted.pauses({}, switches(session))))
        close(session)

    monkeypatch.setattr(VirtualSession, "close", closed)
    terminal = run("run", place / "x.yaml", "-o", place / "run")
    as_json = json.loads(run("run", place / "x.yaml", "--json", "-o", place / "again"))
    events = run("events", place / "run")
    events_json = json.loads(run("events", place / "run", "--json"))
    run("sweep", place / "sweep.yaml", "--workers", "0", "-o", place / "sweep")
    with (place / "sweep" / "sweep.csv").open() as file:
        (row,) = csv.DictReader(file)
    parquet = None
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow.parquet

        (parquet,) = pyarrow.parquet.read_table(place / "sweep" / "dataset").to_pylist()
    raw = Raw(place / "run")
    return Shown(
        name, raw, program[0], pauses[0], terminal, as_json, Page((place / "run" / "report.html").read_text()),
        events, events_json, live_end(raw), load_lab(lab), row,
        Page((place / "sweep" / "index.html").read_text()), parquet,
    )  # fmt: skip


#: Cases of which each has surfaces that the others have not.
SHORT = (
    "lossy link",
    "failure of a port under roce",
    "subset of hosts",
    "latency",
    "flows",
    "payload is a length",
    "trims and marks",
)
every = pytest.mark.parametrize("shown", only(CASES, SHORT), indirect=True)
failing = pytest.mark.parametrize(
    "shown", only([name for name, (_, run) in CASES.items() if "schedule" in run], SHORT), indirect=True
)


@every
def test_samples_and_counted_have_what_statistics_have(shown: Shown) -> None:
    raw = shown.raw
    for name in COUNTERS:
        assert raw.sampled(name) == raw.total(name), name
        for host, counts in raw.document["counted"].items():
            assert counts.get(name, raw.of_host(host, name)) == raw.of_host(host, name), (host, name)


@every
def test_terminal_shows_the_raw_counts(shown: Shown) -> None:
    raw, line = shown.raw, sums(shown.terminal)
    assert line["seconds"] == f"{raw.seconds:.2f} s"
    least, most = min(raw.iterations), max(raw.iterations)
    assert line["iterations"] == (f"{least} to {most}" if most > least else f"{least}")
    if raw.document["topology"]["payload"] == "length":
        assert raw.over_ranks("bytes_verified") == 0
        assert not any(letter.isdigit() for letter in line["verified"])
    else:
        assert line["verified"] == f"bytes verified {raw.over_ranks('bytes_verified')}"
    shown_as = {name: name.replace("_", " ") for name in COUNTERS if name != "delivered_bytes"}
    shown_as["losses"] = "taken for lost"
    assert {name: line[text] for name, text in shown_as.items()} == {name: str(raw.total(name)) for name in shown_as}
    dropped, taken = raw.fabric_grown("lost"), raw.total("losses")
    words = f"the fabric dropped {dropped} because of failures, the hosts took {taken} for lost"
    assert (words in shown.terminal) is bool(dropped or taken)
    told = next(each for each in shown.terminal.splitlines() if each.startswith("the P4 program counted: "))
    counts = [f"{name} {count}" for name, count in shown.program.items() if count]
    assert told == f"the P4 program counted: {', '.join(counts) or 'nothing'}"
    assert shown.raw.document["program_counters"] == shown.program
    assert shown.raw.document["pauses"] == shown.pauses
    frames = sum(each["pauses_sent"] for port in shown.pauses.values() for each in port.values())
    assert (f"flow control: {frames} pause frames at {len(shown.pauses)} ports" in shown.terminal) is bool(frames)
    assert bool(frames) is (shown.name == "roce with flow control")


@every
def test_verdict_is_the_same_on_the_terminal_in_json_and_in_the_report(shown: Shown) -> None:
    raw = shown.raw
    checks = [[each["what"], each["expected"], each["measured"]] for each in raw.verdict["checks"]]
    (title,) = (each for each in boxes(shown.terminal) if each.startswith("verdict"))
    assert [row[:3] for row in boxes(shown.terminal)[title][1:]] == checks
    assert [row[:3] for row in shown.page.table(f"Verdict: {len(checks)} checks")[1:]] == checks
    assert {key: shown.as_json[key] for key in ("status", "checks", "recoveries")} == {
        key: raw.verdict[key] for key in ("status", "checks", "recoveries")
    }
    measured = {row[0]: row[2] for row in checks}
    assert measured["queue pairs in error"] == str(raw.over_ranks("qps") - raw.over_ranks("qps_in_rts"))
    assert measured["iterations of every rank"] == str(min(raw.iterations))
    if "bytes verified" in measured:
        right, wrong = raw.over_ranks("bytes_verified") / 1e6, raw.over_ranks("mismatches")
        assert measured["bytes verified"] == f"{right:.1f} MB right, {wrong} values wrong"


@every
def test_report_shows_the_raw_counts(shown: Shown) -> None:
    raw, run = shown.raw, shown.page.facts("The run")
    again, spurious = raw.total("retransmissions"), raw.total("spurious_retransmissions")
    assert run["mean goodput"] == format_rate(raw.mean_bps)
    assert run["retransmissions, of them spurious"] == f"{again}, {spurious}"
    lost = f"{raw.fabric_grown('lost')}; {raw.total('losses')}"
    assert run["packets dropped in the fabric by failures; taken for lost by hosts"] == lost
    expected = ", ".join(str(raw.total(name)) for name in ("trims", "marks", "timeouts"))
    assert run["trims, marks, timeouts"] == expected
    tiles = {tile.split("|")[1].strip(): tile.split("|") for tile in shown.page.tiles}
    assert tiles["goodput, on average"][0] == format_rate(raw.mean_bps)
    capacity = shown.topology.lab.host_rate_bps * len(raw.ranks)
    assert tiles["goodput, on average"][2].startswith(f"{raw.mean_bps / capacity:.0%} of ")
    failures = sum(each["action"]["verb"] == "fail" for each in raw.document["happenings"])
    assert tiles["failures caused"][0] == str(failures)
    assert tiles["packets sent again"][0] == str(again)
    assert f" {spurious} of them" in tiles["packets sent again"][2]
    assert tiles["connections lost"][0] == str(raw.over_ranks("qps") - raw.over_ranks("qps_in_rts"))
    if raw.over_ranks("bytes_verified"):
        assert tiles["data checked byte by byte"][0] == f"{raw.over_ranks('bytes_verified') / 1e6:.1f} MB"
    for name, iterations, _, packets, repeated, _ in shown.page.table("Hosts")[1:]:
        assert iterations == str(raw.progress[name]["iterations"])
        assert (packets, repeated) == tuple(str(raw.of_host(name, key)) for key in ("packets", "retransmissions"))


@every
def test_charts_of_the_report_show_the_raw_goodput_and_queues(shown: Shown) -> None:
    raw = shown.raw
    rates = raw.goodput()
    heads, *rows = shown.page.table("goodput")
    assert heads[-1].startswith("goodput, ")
    factor, _ = Unit.RATE.scale(float(rates.max()))
    assert [row[2] for row in rows] == [digits(float(value) / factor) for value in rates]
    heads, *rows = shown.page.table("queues")
    deepest = [raw.deepest_kib(plane) * 1024 for plane in range(shown.topology.lab.planes)]
    factor, symbol = Unit.SIZE.scale(max(deepest))
    assert heads[0 if len(heads) == 4 else 2].endswith(symbol)
    most = {row[0]: max(float(other[-1].replace(",", "")) for other in rows if other[0] == row[0]) for row in rows}
    assert list(most.values()) == [float(digits(each / factor).replace(",", "")) for each in deepest]


@failing
def test_recoveries_are_those_of_the_raw_goodput_on_each_surface(shown: Shown) -> None:
    raw = shown.raw
    found = list(raw.recoveries())
    assert len(found) == len(raw.verdict["recoveries"]) == 2
    heads, *rows = shown.page.table("What happened when")
    taken, least = (next(at for at, head in enumerate(heads) if head.startswith(each)) for each in ("recov", "lowest"))
    on_page = [row for row in rows if row[taken] != "not measured"]
    on_terminal = boxes(shown.terminal)["what every failure did"][1:]
    for mine, written, row, line in zip(found, raw.verdict["recoveries"], on_page, on_terminal, strict=True):
        for key, value in mine.items():
            if key != "expected":
                assert written[key] == (None if value is None else pytest.approx(value, abs=1e-9)), key
        took = mine["recovery_s"]
        text = "never" if took is None else f"{took * 1e3:.0f} ms" if took else "less than 100 ms"
        low = f"{told(mine['dip'] / mine['expected'], Unit.SHARE, 3)} after {mine['dip_s']:.1f} s"
        assert [row[at].split(" ±")[0] for at in (2, taken, least)] == [f"{mine['at_s']:.2f} s", text, low]
        assert line == [f"{mine['at_s']:.2f} s", row[1], low, told(mine["after"], Unit.SHARE, 3), text]
    lowest = min(
        each["dip"] for each, written in zip(found, raw.verdict["recoveries"], strict=True) if written["breaks"]
    )
    (tile,) = (each for each in shown.page.tiles if "failures caused" in each)
    low = min(
        each["dip"] / each["expected"]
        for each, of in zip(found, raw.verdict["recoveries"], strict=True)
        if of["breaks"]
    )
    assert f" {told(low, Unit.SHARE, 2)} " in tile
    assert float(shown.sweep["dip"]) == pytest.approx(lowest)
    assert float(shown.sweep["settled"]) == pytest.approx(found[0]["after"])


@failing
def test_times_of_failures_are_the_same_on_each_surface(shown: Shown) -> None:
    raw = shown.raw
    actions = raw.document["happenings"]
    asked = [(each["at_ns"] - raw.start) / 1e6 for each in actions]
    assert [row["t_ms"] for row in shown.events_json if row["what"] in ("fail", "restore")] == pytest.approx(asked)
    lines = [line.split() for line in shown.events.splitlines()]
    assert [line[0] for line in lines if line[1] in ("fail", "restore")] == [f"{each:.1f}" for each in asked]
    job = shown.live["job"]
    assert job is not None
    assert [each["t_ns"] / 1e6 for each in job["schedule"]] == pytest.approx(asked)


@every
def test_events_name_each_ev_that_was_lost(shown: Shown) -> None:
    rows = [row for row in shown.events_json if row["what"] == "ev" and row["text"].endswith("-> ASSUMED_BAD")]
    assert len(rows) == shown.raw.evs_lost
    assert sum("-> ASSUMED_BAD" in line for line in shown.events.splitlines()) == shown.raw.evs_lost
    assert float(shown.sweep["evs_lost"]) == shown.raw.evs_lost


@every
def test_quantiles_are_those_that_hosts_measured(shown: Shown) -> None:
    measured = {name: each["measured"] or {} for name, each in shown.raw.progress.items()}
    rows = {name: each.get("latency_ns") or each.get("iteration_ns") for name, each in measured.items()}
    tables = [("latency (half of the round trip), µs", 3), ("time of an iteration, µs", 2)]
    for title, first in tables:
        on_page = shown.page.tables.get(title[:1].upper() + title[1:], [])
        for row in (row for table in on_page for row in table[1:]):
            times = rows[row[0].split(" > ")[0]]
            assert times is not None
            keys = ("min", "max", "typical", "mean", "stdev", "p99", "p99_9")
            texts = ["-" if times[key] is None else f"{times[key] / 1e3:.2f}" for key in keys]
            assert row[first:] == texts
            assert row[first - 1] == str(times["count"])
            assert (times["p99"] is None, times["p99_9"] is None) == (times["count"] < 100, times["count"] < 1000)
            assert " ".join(texts) in " ".join(shown.terminal.split())
    flows = [flow for each in measured.values() for flow in each.get("flows") or ()]
    assert [each["ended_ns"] - each["began_ns"] for each in shown.as_json["performance"].get("flows", [])] == [
        each["ended_ns"] - each["began_ns"] for each in sorted(flows, key=lambda flow: flow["number"])
    ]


@every
def test_live_view_of_the_recorded_run_ends_with_the_raw_counts(shown: Shown) -> None:
    raw, live = shown.raw, shown.live
    for host, row in zip(shown.topology.hosts, live["hosts"], strict=True):
        if host.name in raw.ranks:
            names = [name for name in COUNTERS if name != "spurious_retransmissions"]
            mine: dict[str, Any] = {**row}
            assert {name: mine[name] for name in names} == {name: raw.of_host(host.name, name) for name in names}
            sent = [raw.hosts[host.name][f"tx_bytes.{port}"] for port in range(shown.topology.lab.planes)]
            assert mine["tx_bytes"] == [int(each[-1] - each[0]) for each in sent]
    assert sum(each["lost"] for each in live["switches"]) == raw.fabric_grown("lost")
    assert sum(each["drops"] for each in live["switches"]) == raw.fabric_grown("drops")
    assert sum(each["lost"] for each in live["links"]) == raw.fabric_grown("lost")
    job = live["job"]
    assert job is not None
    assert job["iterations"] == min(raw.iterations)
    assert job["bytes_verified"] == raw.over_ranks("bytes_verified")
    assert job["mismatches"] == raw.over_ranks("mismatches")
    assert job["verdict"] == raw.verdict["status"]


@every
def test_tables_and_counters_of_the_workshop_have_the_raw_counts(shown: Shown) -> None:
    pytest.importorskip("mrc_workshop.records", reason="the workshop is an extra, which is not here")
    from mrc_workshop import records
    from mrc_workshop.job import Run, RunFacts, RunOrder
    from mrc_workshop.kinds import counters

    raw = shown.raw
    tables = records.tables(RunResult.load(raw.folder), shown.topology)
    rows = list(csv.DictReader(tables["hosts.csv"].splitlines()))
    for host in raw.ranks:
        mine = [row for row in rows if row["host"] == host]
        assert sum(int(row["retransmissions"]) for row in mine) == raw.of_host(host, "retransmissions")
        assert [float(row["t_ms"]) for row in mine] == pytest.approx(1e3 * raw.edges[:-1], abs=0.5)
        received = np.array([float(row["received_mbps"]) * 1e6 / 8 for row in mine]) * np.diff(raw.edges)
        assert received == pytest.approx(np.diff(raw.placed(host)), abs=0.005e6 / 8)
    facts = RunFacts(name="x", seed=1, hidden=False, document=raw.document)
    found = counters.totals(Run(facts, cast("RunOrder", None), raw.folder))
    for name in ("packets", "retransmissions", "trims", "marks", "timeouts", "losses"):
        assert {host: found[name].get(host, 0) for host in raw.ranks} == {
            host: raw.of_host(host, name) for host in raw.ranks
        }, name
    assert sum(found["spurious"].values()) == raw.total("spurious_retransmissions")
    assert {name: found[name]["switches"] for name in shown.program} == shown.program


@every
def test_sweep_of_the_run_has_the_raw_counts(shown: Shown) -> None:
    raw, row = shown.raw, shown.sweep
    for measure, name in IN_SWEEPS.items():
        assert float(row[measure]) == raw.total(name), measure
    assert float(row["lost"]) == raw.fabric_grown("lost")
    assert float(row["queue_drops"]) == raw.fabric_grown("drops") - raw.fabric_grown("lost")
    assert float(row["iterations"]) == min(raw.iterations)
    assert float(row["bytes_verified"]) == raw.over_ranks("bytes_verified")
    assert float(row["qp_errors"]) == raw.over_ranks("qps") - raw.over_ranks("qps_in_rts")
    assert float(row["checks_missed"]) == sum(not each["passed"] for each in raw.verdict["checks"])
    qps = [qp for each in raw.document["statistics"].values() for qp in each["qps"]]
    for measure, half in (("sacks_sent", "responder"), ("out_of_order", "responder"), ("spurious_losses", "requestor")):
        assert row[measure] == (str(float(sum(qp[half][measure] for qp in qps))) if shown.mrc else ""), measure
    duration = raw.document["experiment"]["workload"]["duration"]
    rate = raw.mean_bps
    if duration is not None:
        rate = 8 * sum(np.diff(raw.placed_at(host, np.array([0.0, duration])))[0] for host in raw.hosts) / duration
    assert float(row["goodput_bps"]) == pytest.approx(rate, rel=1e-9)
    on_page = dict(zip(*shown.sweep_page.table("The runs"), strict=True))
    for measure, name in IN_SWEEPS.items():
        assert on_page[EXPERIMENT[measure].name] == f"{raw.total(name):,}", measure
    if shown.parquet is not None:
        numbers = {key: value for key, value in shown.parquet.items() if isinstance(value, float | int)}
        assert {key: float(row[key]) for key in numbers} == {key: float(value) for key, value in numbers.items()}


# --- several runs on a lab that stays up -----------------------------------------------------------------------------

LAB = pytest.mark.lab
REAL = pytest.param("real", "mrc", marks=LAB)


def performed(made: Session, folder: pathlib.Path, transport: Literal["mrc", "roce"], messages: int) -> Raw:
    """Run an incast on a lab that is up, and write its results."""
    folder.mkdir()
    workload = Workload(name="incast", params={"message_bytes": 60_000, "iterations": messages, "target": 0})
    experiment = Experiment(name="x", title="x", transport=transport, workload=workload)
    with Recording(folder) as recording:
        result = run_on(made, experiment, None, recording)
        complete(made, result, experiment)
        judged = verdict.judge(result, made.topology, experiment.expect, experiment.claims())
        resultdir.write(folder, result, made.topology, judged, "x", recording)
    assert not result.failures
    return Raw(folder)


def frames(pauses: Mapping[str, Any]) -> Counter[str]:
    """Return the pause frames that each port sent."""
    found = {port: sum(each["pauses_sent"] for each in classes.values()) for port, classes in pauses.items()}
    return Counter({port: count for port, count in found.items() if count})


@pytest.mark.parametrize(
    ("clock", "transport"),
    [("virtual", "mrc"), ("virtual", "roce"), REAL, pytest.param("real", "roce", marks=[LAB, pytest.mark.long])],
)
def test_a_second_run_on_a_lab_has_nothing_of_the_first(
    clock: str, transport: Literal["mrc", "roce"], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    queues = {"limit": "16KiB", "ecn": None, "trim": None, "pfc": {"xoff": "8KiB"}} if transport == "roce" else SMALL
    with session(lab_file(tmp_path, "tiny", queues=queues), clock, transport) as made:
        first = performed(made, tmp_path / "first", transport, 12)
        between = made.program_counters(), encode(counted.pauses({}, switches(made)))
        second = performed(made, tmp_path / "second", transport, 4)
        after = made.program_counters(), encode(counted.pauses({}, switches(made)))
        if isinstance(made, RealSession):
            hosts = {each.name: each for each in lab_status(made).hosts}
            for name, each in second.document["statistics"].items():
                counts = host_counter(each, "packets"), host_counter(each, "retransmissions")
                assert (hosts[name].sent, hosts[name].retransmitted) == counts
    second.earlier = first
    assert first.total("packets") > second.total("packets") > 0
    result = RunResult.load(second.folder)
    for name, value in result.totals().items():
        assert value == second.total(name) == second.sampled(name), name
        assert result.counter(name) == value
    assert result.delivered_bytes() == second.total("delivered_bytes") == 3 * 4 * 60_000
    told, grown = (
        dict(second.document["program_counters"]),
        {name: after[0][name] - between[0][name] for name in after[0]},
    )
    if clock == "real":
        # A host's kernel reports its multicast groups whenever it likes, between runs, too, with a hop limit of 1.
        assert told.pop("drop_hop_limit", 0) <= grown.pop("drop_hop_limit", 0)
    assert told == grown
    assert frames(second.document["pauses"]) == frames(after[1]) - frames(between[1])
    assert (transport == "roce") is bool(second.document["pauses"])
    for ends in ("drops", "lost"):
        assert second.fabric["t_ns"][0] == second.start
        assert sum(each[ends] for each in live_end(second)["switches"]) == second.fabric_grown(ends)
    rows = live_end(second)["hosts"]
    assert [row["packets"] for row in rows] == [second.of_host(name, "packets") for name in second.ranks]


def live_end(raw: Raw) -> Any:
    """Return the live view's state at the end of a recorded run."""
    replay = Replay(Hub(), Recorded(raw.folder))
    replay.prepare()
    replay._move(replay.length_ns)
    return replay.state()
