"""`mrclab perf`: nccl-tests' columns and factors, on verified data; what fails is told, what is wrong is counted."""

from __future__ import annotations

import json
import math
import pathlib
import re
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import load_lab
from mrc_torch.training import perf as by_torch
from mrc_torch.training.ranks import RankEvent, RankMessage
from mrclab.cli.app import app
from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.runs import perf
from mrclab.runs.experiment import ExperimentError


def mrclab(*words: str) -> Result:
    return CliRunner().invoke(app, ["perf", *words])


def test_factors_are_those_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md of NVIDIA/nccl-tests, its summary."""
    factors = {name: each.factor(8) for name, each in perf.COLLECTIVES.items()}
    assert factors == {
        "all_reduce": 2 * 7 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8, "broadcast": 1,
        "sendrecv": 1,
    }  # fmt: skip


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_every_collective_is_measured_and_right(transport: str) -> None:
    topology = load_lab("tiny")
    session = VirtualSession(topology, transport)
    try:
        for name, collective in perf.COLLECTIVES.items():
            todo = perf.plan(name, [8, 3000, 1 << 16], 4)
            rows = list(perf.measure(session, name, todo, 2, None))
            assert [row.size for row in rows] == todo
            assert all(row.wrong == 0 and not row.failure and row.seconds > 0 for row in rows)
            assert all(row.count * (4 if collective.divided else 1) * 4 == row.size for row in rows)
            assert rows[0].seconds < rows[-1].seconds
            # Bus bandwidth is what a host's link can be held against: never more; of large messages a good part.
            share = rows[-1].algbw * 8e9 * collective.factor(4) / topology.lab.host_rate_bps
            assert 0.1 < share < 1
            text = perf.line(name, rows[-1], 4).split()
            assert text[:5] == [str(1 << 16), str(rows[-1].count), "float", collective.redop, str(collective.root)]
            assert float(text[5]) == pytest.approx(rows[-1].seconds * 1e6, rel=1e-3)
            assert float(text[6]) == pytest.approx(rows[-1].size / rows[-1].seconds / 1e9, rel=1e-3)
            assert float(text[7]) == pytest.approx(float(text[6]) * collective.factor(4), rel=1e-3)
    finally:
        session.close()


def test_wrong_elements_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = WORKLOADS["all_gather"]
    begin = kind.begin

    def wrong(self: Any, now: int) -> None:
        begin(self, now)
        if self.rank == 1:
            self.vector[self._chunk(1)][:3] += 1

    monkeypatch.setattr(kind, "begin", wrong)
    session = VirtualSession(load_lab("tiny"))
    try:
        (row,) = perf.measure(session, "all_gather", [4096], 2, None)
    finally:
        session.close()
    # Three elements, at every rank, in each of three operations.
    assert row.wrong == 3 * 4 * 3
    assert perf.line("all_gather", row, 4).endswith(" 36")


def test_nothing_is_called_right_where_packets_have_no_payload(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lengths.yaml"
    file.write_text(yaml.safe_dump(load_lab("tiny").lab.model_dump(mode="json") | {"payload": "length"}))
    words = ("all_gather", "--lab", str(file), "--clock", "virtual", "-b", "4K", "-e", "4K", "-n", "1")
    shown = mrclab(*words)
    assert shown.exit_code == 0
    assert re.search(r"^ +4096 .* N/A$", shown.stdout, re.MULTILINE)
    assert "# Out of bounds values : not verified (payload: length)" in shown.stdout
    assert [row["wrong"] for row in json.loads(mrclab(*words, "--json").stdout)] == [None]


def test_an_operation_that_fails_ends_the_table() -> None:
    session = VirtualSession(load_lab("tiny"), "roce")
    try:
        for plane in range(2):
            session.failures.perform(session, Action("fail", f"h1:{plane}"))
        rows = list(perf.measure(session, "all_reduce", [1024, 2048], 2, None))
    finally:
        session.close()
    (row,) = rows
    assert math.isinf(row.seconds)
    assert "h1" in row.failure
    assert perf.line("all_reduce", row, 4).split()[5:] == ["failed", "-", "-", "0"]
    assert json.loads(json.dumps(perf.document("all_reduce", row, 4), allow_nan=False))["time_us"] is None


@given(st.integers(1, 1 << 20), st.integers(0, 1 << 22), st.floats(1.01, 100))
def test_sizes_rise_by_the_factor_from_first_to_last(first: int, more: int, factor: float) -> None:
    found = perf.sizes(first, first + more, factor)
    assert found[0] == first
    assert found == sorted(set(found))
    assert found[-1] <= first + more < max(found[-1] * factor, found[-1] + 1)


@given(st.integers(1, 1 << 30), st.integers(2, 64), st.sampled_from(sorted(perf.COLLECTIVES)))
def test_a_size_is_rounded_to_whole_elements_of_every_rank(size: int, ranks: int, name: str) -> None:
    collective = perf.COLLECTIVES[name]
    found = perf.rounded(collective, size, ranks)
    unit = 4 * ranks if collective.divided else 4
    assert found <= size < found + unit
    if found and found < 1 << 20:
        kind = WORKLOADS[collective.workload]
        kind.plan(ranks, kind.complete(collective.params(found, ranks)))


def test_perf_prints_the_table_of_nccl_tests() -> None:
    where = ["--lab", "tiny", "--clock", "virtual"]
    done = mrclab("all_to_all", "-b", "8", "-e", "256", "-f", "4", "-n", "1", *where)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "# all_to_all among 4 ranks by mrc on lab tiny, virtual clock, in place"
    assert lines[1].split() == ["#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
    # 8 bytes leave nothing for four ranks.
    assert [line.split()[0] for line in lines[3:-2]] == ["32", "128"]
    assert lines[-2] == "# Out of bounds values : 0 OK"
    assert re.fullmatch(r"# Avg bus bandwidth    : \d\S*", lines[-1])


class Group:
    """Ranks that say what they are told to, `seconds` after each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: list[RankMessage], seconds: float) -> None:
        self.names, self.said, self.seconds, self.now = ["h0", "h1"], said, seconds, 0.0
        monkeypatch.setattr(by_torch, "time", SimpleNamespace(monotonic=lambda: self.now))

    def events(self, timeout_s: float) -> list[tuple[int, RankMessage]]:
        self.now += self.seconds
        event = self.said.pop(0) if self.said else RankMessage(RankEvent.GOING)
        return [(rank, event) for rank in range(2)]

    def tell_all(self) -> None:
        pass


GOING = [RankMessage(RankEvent.READY), RankMessage(RankEvent.CONNECTED), *[RankMessage(RankEvent.GOING)] * 9]
DONE = RankMessage(RankEvent.SIZE, size=4, seconds=1.5)


def test_ranks_of_torch_may_take_their_time_while_they_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks: Any = Group(monkeypatch, [*GOING, DONE], 50.0)
    assert [(row.seconds, row.failure) for row in by_torch._rows(ranks, {4: 1}, 60.0)] == [(1.5, "")]
    silent: Any = Group(monkeypatch, [*GOING, DONE], 50.0)
    silent.events = lambda timeout_s, events=silent.events: events(timeout_s) if silent.now < 300 else later()

    def later() -> list[tuple[int, RankMessage]]:
        silent.now += 50.0
        return []

    (row,) = by_torch._rows(silent, {4: 1}, 60.0)
    assert row.failure == "no word of any rank any more"
    assert silent.now < 600


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all_reduces"], "no collective 'all_reduces'; known: all_reduce, all_gather"),
        (["all_reduce", "-b", "8X"], "-b is a size like 8, 64K, 16M or 1G, not '8X'"),
        (["all_reduce", "-e", "0"], "-e is a size"),
        (["all_reduce", "-b", "1M", "-e", "8"], "-e (8 bytes) is less than -b (1048576 bytes)"),
        (["all_reduce", "-f", "1"], "-f is a factor above 1, not 1"),
        (["all_reduce", "-f", "nan"], "-f is a factor above 1, not nan"),
        (["all_reduce", "-n", "0"], "-n is a number from 1 to 100000, not 0"),
        (["all_reduce", "--qps", "65"], "--qps is a number from 1 to 64, not 65"),
        (["all_reduce", "--transport", "tcp"], "--transport is mrc or roce, not 'tcp'"),
        (["all_reduce", "--clock", "wall"], "clock is real or virtual, not 'wall'"),
        (["all_reduce", "--hosts", "h0,h9"], "--hosts: 'h9' is not a host of tiny; it has: h0, h1, h2, h3"),
        (["all_reduce", "--hosts", "h0,h0"], "--hosts: 'h0' is named twice"),
        (["all_reduce", "--hosts", "h0"], "at least 2 ranks"),
        (["all_gather", "-e", "15"], "all_gather among 4 ranks takes 16 bytes at least"),
        (["all_reduce", "-b", "1G", "-e", "1G"], "more than the 1073741824 that a rank may have; use smaller messages"),
    ],
)
def test_perf_with_an_option_that_cannot_be_names_it(words: list[str], told: str) -> None:
    if "--clock" not in words:
        words = [*words, "--clock", "virtual"]
    done = mrclab(*words, "--lab", "tiny")
    # One line, and exit code 2: `common.USAGE`.
    assert isinstance(done.exception, ExperimentError)
    assert told in str(done.exception)
    assert "\n" not in str(done.exception)
