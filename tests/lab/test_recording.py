"""What a run records: columns on disk that say what came in, memory that stays flat, reports that stay small."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import pathlib
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.node.samples import Sampler
from mrc_host.proto.config import EndpointConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_topo.base.plain import decode, encode
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.session.fidelity import Fidelity
from mrclab.pages import chart
from mrclab.results import charts, report, resultdir, verdict
from mrclab.results.expectation import Expectation
from mrclab.results.reading import FolderError
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES, MemoryStore, Recording, Series, event_of, flat
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from p4lite.switch.errors import TargetError

SECOND = 1_000_000_000
TOPOLOGY = load_lab("tiny")
NAMES = [host.name for host in TOPOLOGY.hosts]

ROWS = st.lists(
    st.tuples(
        st.integers(0, 1000), st.dictionaries(st.sampled_from("abcdef"), st.integers(-(1 << 40), 1 << 40), max_size=6)
    ),
    max_size=60,
)


@given(ROWS, st.integers(-5, 5000), st.integers(0, 5000), st.integers(1, 9))
def test_series_of_any_rows_gives_them_back(
    steps: list[tuple[int, dict[str, int]]], begin: int, length: int, rows_each: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mrclab.results.recording.LEAST_ROWS", rows_each)
        patch.setattr("mrclab.results.recording.MOST_ROWS", rows_each)
        made, rows, now = Series("x", MemoryStore()), [], 0
        for step, values in steps:
            now += step
            rows.append({"t_ns": now, **values})
            made.append(rows[-1])
    names = {name: None for row in rows for name in row} or {"t_ns": None}
    wanted = {name: [row.get(name, 0) for row in rows] for name in names}
    assert len(made) == len(rows)
    assert {name: got.tolist() for name, got in zip(names, made.take(list(names)), strict=True)} == wanted
    end = begin + length
    (times,) = made.take(["t_ns"], begin, end)
    inside = [row["t_ns"] for row in rows if begin <= row["t_ns"] <= end]
    assert set(inside) <= set(times.tolist())
    assert [each for each in times.tolist() if begin <= each <= end] == inside
    for place in (before := [r["t_ns"] for r in rows if r["t_ns"] < begin])[-1:]:
        assert place in times.tolist(), (before, times)
    for place in [r["t_ns"] for r in rows if r["t_ns"] > end][:1]:
        assert place in times.tolist()
    newest = [row for row in rows if row["t_ns"] <= begin]
    found = made.at(begin)
    assert found == ({name: newest[-1].get(name, 0) for name in made.columns} if newest else None)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400).map(np.array),
    st.integers(4, 50),
)
def test_a_thinned_curve_keeps_every_extreme(values: Any, most: int) -> None:
    times = np.arange(len(values), dtype=np.float64)
    x, y = charts.thinned(times, values, most)
    assert len(x) == len(y) <= max(most, 2)
    assert (np.diff(x) > 0).all()
    assert y.min() == values.min()
    assert y.max() == values.max()
    assert (x[0], x[-1]) == (0, len(values) - 1)
    assert all(values[int(at)] == value for at, value in zip(x, y, strict=True))


# -- memory ---------------------------------------------------------------------------------------------------


def in_use() -> int:
    """Bytes that Python holds."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_memory_of_an_agent_that_samples_does_not_grow() -> None:
    sampler = Sampler(Endpoint(EndpointConfig(address=bytes(range(16))), random.Random(1)), 50_000_000)
    tracemalloc.start()
    try:
        held = []
        for tick in range(12_000):
            sampler.take(tick * 50_000_000)
            if tick % 2000 == 1999:
                held.append(in_use())
    finally:
        tracemalloc.stop()
    assert max(held) - held[0] < 100_000, held


class CheapHost:
    """A host of the length of a run, not of its traffic: samples and events come as from a busy one."""

    def __init__(self, session: CheapSession, name: str) -> None:
        self.session, self.name = session, name
        self.stopping = False
        self.logged = 0

    def sample(self, t_ns: int) -> dict[str, Any]:
        sent = t_ns // 100
        down = 30 * SECOND < t_ns - self.session.begun < 31 * SECOND
        return {
            "t_ns": t_ns, "tx_bytes": [sent, sent], "rx_bytes": [sent, sent], "ports_up": 2,
            "delivered_bytes": min(sent, (self.session.begun + 30 * SECOND) // 100) if down else sent,
            "packets": sent // 1000, "retransmissions": 0, "losses": 0, "trims": 0, "marks": 0, "timeouts": 0,
            "ev": {"GOOD": 64, "SKIP": 0, "ASSUMED_BAD": 0, "DENIED": 0},
            "cc": {"cwnd": 10_000 + t_ns % 999, "inflight": t_ns % 9999, "rtt_ns": 20_000 + t_ns % 777},
        }  # fmt: skip

    def ask(self, request: Any) -> Any:
        if request.verb == "statistics":
            return None
        return decode(request.answer, self.request(request.verb, **encode(request)), lenient=True)

    def request(self, verb: str, **arguments: Any) -> dict[str, Any]:
        now = self.session.now
        if verb == "prepare":
            return {"qps": {}, "region": {"va": 0, "rkey": 0, "length": 0}}
        if verb == "samples":
            step = 50_000_000
            return {"samples": [self.sample(t) for t in range(-(-arguments["since"] // step) * step, now + 1, step)]}
        if verb == "events":
            rows = [
                {
                    "t_ns": now,
                    "kind": "ev",
                    "qpn": 7,
                    "ev": n,
                    "plane": 0,
                    "old": "GOOD",
                    "new": "SKIP",
                    "cause": "",
                    "losses": 0,
                }
                for n in range(2)
            ]
            return {"events": rows if arguments["since"] else [], "next": 1, "dropped": 0}
        if verb == "stop_after":
            self.stopping = True
        progress = {
            "moved": now, "done": self.stopping, "failure": "", "iterations": 1, "takes_part": True,
            "bytes_verified": 1, "mismatches": 0, "qps": 0, "qps_in_rts": 0,
        }  # fmt: skip
        if verb == "progress":
            return progress
        return {"begun": 0, "progress": progress, "measured": {}} if verb in ("wind_down", "finish") else {}


class CheapSession:
    """A lab that costs next to nothing."""

    clock = "virtual"

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.begun = self.now = 100 * SECOND
        self.denied: set[str] = set()
        self.failures = FaultLedger(topology, lambda name: None)
        self.hosts = {host.name: CheapHost(self, host.name) for host in topology.hosts}

    def now_ns(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def reset_fidelity(self) -> None: ...

    def frozen(self) -> list[Any]:
        return []

    def changing_denied(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def stats(self) -> dict[int, Any]:
        raise TargetError("UNAVAILABLE", "there is no fabric")

    def deaths(self) -> list[Any]:
        return []

    def fidelity(self) -> Fidelity:
        return Fidelity(valid=True, simulated=True)

    def fabric_sample(self) -> dict[str, Any]:
        sent = self.now // 1000
        row = {"tx_bytes": sent, "depth_bytes": sent % 1000, "max_bytes": 1000, "drops": 0, "lost": 0}
        return {"ports": {f"{s.name}:{port}": row for s in self.topology.switches for port in s.links}}


def test_a_run_that_begins_at_time_zero_has_its_length() -> None:
    session: Any = CheapSession(TOPOLOGY)
    session.begun = session.now = 0
    result = WorkloadRun(session, WorkloadSpec("write_bw", duration_s=1.0)).go()
    assert (result.started_ns, result.finished_ns >= SECOND) == (0, True)


def long_run(seconds: float, folder: pathlib.Path | None = None) -> tuple[list[int], Any]:
    """Return a run; memory in use at every tenth of it, and its result."""
    held: list[int] = []
    polls = 0

    def watch(result: Any) -> None:
        nonlocal polls
        polls += 1
        if polls % round(seconds) == 0:
            held.append(in_use())

    session: Any = CheapSession(TOPOLOGY)
    tracemalloc.start()
    try:
        recording = Recording(folder)
        result = WorkloadRun(session, WorkloadSpec("write_bw", duration_s=seconds), (), watch, recording).go()
    finally:
        tracemalloc.stop()
    return held, result


@pytest.mark.slow
@pytest.mark.long
def test_memory_of_a_run_of_minutes_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrclab.results.recording.CHUNK_BYTES", 1 << 14)
    held, result = long_run(120)
    # The first tenths fill the buffers of each series, which are reused from then on; then a few bytes per chunk stay.
    assert max(held[1:]) - held[1] < 150_000, held
    samples = result.samples
    assert [len(samples[name]) for name in NAMES] == [2402] * len(NAMES)
    # The initial and the final state of the fabric come on top of those of the intervals.
    assert len(result.recording.fabric) == 1203


@pytest.mark.long
@pytest.mark.slow
def test_a_report_of_a_long_run_is_small_and_shows_its_dip(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "POINTS", 200)
    sizes = []
    for seconds in (60, 120):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        _, result = long_run(seconds, folder)
        result.program_counters = {}
        judged = verdict.judge(result, TOPOLOGY, Expectation())
        edges = result.grid()
        full = result.goodput_bps(edges)
        _, shown = charts.thinned(edges[:-1], full, chart.POINTS)
        assert shown.min() == full.min() == 0 < np.median(full)
        resultdir.write(folder, result, TOPOLOGY, judged, "long", result.recording)
        sizes.append([(folder / "result.json").stat().st_size])
        sizes[-1].append((folder / "report.html").stat().st_size)
        result.recording.close()
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [EVENTS, "report.html", "result.json", SAMPLES, "verdict.json"]
        )
    assert sizes[0][0] < 20_000
    for short, twice in zip(*sizes, strict=True):
        assert twice < 1.1 * short, sizes


# -- reading what was kept ------------------------------------------------------------------------------------


def document_of(**changes: Any) -> dict[str, Any]:
    happening = {"at_ns": 4 * SECOND, "done_ns": 4 * SECOND, "expected_loss": 0.5, "broken": [], "localised": []}
    happening["action"] = {"verb": "fail", "text": "it fails", "target": "h1:0"}
    return {
        "format": 2, "lab": "tiny", "clock": "virtual", "seed": 1, "workload": "write_bw", "params": {},
        "ranks": NAMES, "started_ns": 0, "finished_ns": 10 * SECOND, "happenings": [happening], "progress": {},
        "statistics": {}, "fidelity": {"simulated": True}, "failures": [], **changes,
    }  # fmt: skip


def test_events_on_disk_are_the_same_bytes_at_any_time_of_day(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = event_of({"t_ns": 3 * SECOND, "kind": "port", "port": 0, "up": False, "peer": None})
    found = []
    for now in (1e9, 2e9):
        monkeypatch.setattr("time.time", lambda now=now: now)
        folder = tmp_path / str(now)
        folder.mkdir()
        with Recording(folder) as record:
            record.events.extend(NAMES[0], [event])
            record.keep()
        found.append((folder / EVENTS).read_bytes())
    assert found[0] == found[1]


def test_results_are_read_in_both_formats(tmp_path: pathlib.Path) -> None:
    session: Any = CheapSession(TOPOLOGY)
    session.begun = 0
    samples = {n: [session.hosts[n].sample(t) for t in range(0, 10 * SECOND, SECOND // 20)] for n in NAMES}
    for rows in samples.values():
        for row in rows[80:100]:
            row["delivered_bytes"] = rows[79]["delivered_bytes"]
    fabric = []
    for tick in range(100):
        session.now = tick * SECOND // 10
        fabric.append({"t_ns": session.now, **session.fabric_sample()})
    events = {NAMES[0]: [{"t_ns": t * SECOND, "kind": "port", "port": 0, "up": False, "peer": None} for t in (3, 5)]}
    judged: list[Any] = []
    new, old = tmp_path / "new", tmp_path / "old"
    for folder in (new, old):
        folder.mkdir()
    with Recording(new) as record:
        for name, rows in samples.items():
            for row in rows:
                record.sample(name, row)
        for row in fabric:
            record.fabric_sample(row)
        record.events.extend(NAMES[0], map(event_of, events[NAMES[0]]))
        result = dataclasses.replace(RunResult.parse(document_of()), recording=record)
        judged.append(verdict.judge(result, TOPOLOGY, Expectation(recovery=0.0, trims=False)).document())
        assert list(record.events.between(4 * SECOND, 6 * SECOND)) == [(NAMES[0], event_of(events[NAMES[0]][1]))]
        first = report.render(result, TOPOLOGY, verdict.judge(result, TOPOLOGY, Expectation()), "t")
        resultdir.write(new, result, TOPOLOGY, verdict.judge(result, TOPOLOGY, Expectation()), "t", record)
    assert first.count('<figure class="chart"') == 6
    plain = document_of(samples=samples, fabric=fabric, events=events)
    del plain["format"]  # format 1 did not name itself
    (old / "result.json").write_text(json.dumps(plain))
    for folder in (new, old):
        read = RunResult.load(folder)
        judged.append(verdict.judge(read, TOPOLOGY, Expectation(recovery=0.0, trims=False)).document())
        assert report.render(read, TOPOLOGY, verdict.judge(read, TOPOLOGY, Expectation()), "t") == first
        assert {host: encode(list(rows)) for host, rows in read.events.items()} == events
    assert judged[0] == judged[1] == judged[2]
    assert judged[0]["recoveries"][0]["dip"] == 0.0
    # What docs/reference/results.md says about the file.
    with np.load(new / SAMPLES) as arrays:
        chunk = np.cumsum(arrays[f"hosts/{NAMES[1]}/000000"], axis=1)
        columns = arrays[f"hosts/{NAMES[1]}/columns"].tolist()
        assert [flat(row) for row in samples[NAMES[1]]] == [
            dict(zip(columns, row, strict=True)) for row in chunk.T.tolist()
        ]


@pytest.mark.parametrize(("text", "reason"), [("", "no results"), ('{"format": 3}', "results of format 3")])
def test_load_of_a_damaged_or_missing_result_names_the_reason(text: str, reason: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(FolderError, match=reason):
        RunResult.load(tmp_path)
    with pytest.raises(FolderError, match="no results"):
        RunResult.load(tmp_path / "none")


def test_recording_that_is_closed_without_keep_leaves_no_file(tmp_path: pathlib.Path) -> None:
    with Recording(tmp_path) as record:
        record.sample("h0", {"t_ns": 1, "a": 2})
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


def test_recording_that_was_never_closed_is_collected_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cycle of garbage its file may be closed before the archive that is written to it."""
    said: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", said.append)
    record = Recording()
    for number in range(3):
        record.sample("h0", {"t_ns": number, f"a{number}": 2})
    record._spools[0].file.close()
    del record
    gc.collect()
    assert [str(each.exc_value) for each in said] == []


def test_growth_until_a_time_goes_on_where_a_counter_began_again() -> None:
    rows = [(10, 100, 7), (20, 130, 8), (30, 5, 9), (40, 25, 10), (50, 3, 10)]
    series = Series.of([{"t_ns": t_ns, "packets": packets, "other": other} for t_ns, packets, other in rows])
    names = ["packets", "other", "absent"]
    found = [series.growth_until(t_ns, names) for t_ns in (5, 10, 25, 30, 45, 99)]
    assert [each["packets"] for each in found] == [0, 0, 30, 35, 55, 58]
    assert [each["other"] for each in found] == [0, 0, 1, 2, 3, 3]
    assert found[-1] == series.growth(names)
