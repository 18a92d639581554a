"""ECN at the last hop as an option of the lab file: an incast in simulated time with and without it."""

from __future__ import annotations

import pathlib

import pytest

from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.lab.labs import lab_file, session


def incast(folder: pathlib.Path, **ecn: object) -> tuple[int, int, int]:
    """Return packets, those that arrived marked, and those that arrived trimmed, of three hosts that write to one."""
    queues = {"limit": "64KiB", "ecn": ecn, "trim": {"threshold": "16KiB"}}
    lab = lab_file(folder, "tiny", queues=queues)
    workload = Workload(name="incast", params={"message_bytes": 60_000, "iterations": 4, "target": 0})
    with session(lab, "virtual") as made:
        result = run_on(made, Experiment(name="incast", title="incast", lab=lab, workload=workload))
    assert not result.failures
    pairs = result.queue_pairs().values()
    sent = sum(qp.requestor["packets_sent"] for qp in pairs)
    return sent, sum(qp.responder["ecn_marked"] for qp in pairs), sum(qp.responder["trimmed"] for qp in pairs)


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    return tmp_path


def test_marks_at_the_last_hop_slow_an_incast_down_before_it_is_trimmed(folder: pathlib.Path) -> None:
    sent, marked, trimmed = incast(folder, kmin="1ms", kmax="4ms")
    assert marked < sent // 100, "only the last hop is crowded, and MRC does not mark there"
    with_sent, with_marked, with_trimmed = incast(folder, kmin="1ms", kmax="4ms", last_hop=True)
    assert with_marked > with_sent // 10
    assert with_trimmed < 0.7 * trimmed


def test_the_last_hops_own_threshold_decides_there(folder: pathlib.Path) -> None:
    marks = [
        incast(folder, kmin="1ms", kmax="4ms", last_hop=True, last_hop_kmin=low, last_hop_kmax=high)[1]
        for low, high in (("1ms", "4ms"), ("0.5rtt", "1rtt"), ("30KiB", "60KiB"))
    ]
    assert marks[1] > marks[0] > 100
    assert marks[2] < 10, "the queue is trimmed at 16 KiB"
