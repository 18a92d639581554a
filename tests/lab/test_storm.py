"""A NIC that asks for pauses without end, in a lab: it stops who has nothing to do with it, and does nothing to MRC."""

from __future__ import annotations

import pathlib
from typing import Any, Literal

import pytest

from mrclab.results import verdict
from mrclab.results.check import Check
from mrclab.results.expectation import Evidence
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from p4lite.switch.targetapi.inside import FabricInside
from support.lab.labs import lab_file, session

STORM = ExperimentStep(
    at=0.3, fail="h3:0", kind="pause_storm", evidence=Evidence(pause_frames=1, paused=0.2, goodput=0.6)
)
OVER = ExperimentStep(at=0.6, restore="h3:0")


PFC = {"pfc": {"xoff": "8KiB"}}


def run(
    folder: pathlib.Path, transport: Literal["mrc", "roce"], schedule: list[ExperimentStep], **lossless: Any
) -> tuple[RunResult, list[Check]]:
    """Hosts of one rack send to those of the other, one to each, on one plane; nobody but h1 sends to h3."""
    link = {"rate": "20Mbps", "delay": "100us"}
    queues = {"limit": "64KiB", "ecn": None, "trim": {"threshold": "32KiB"}, **(lossless or PFC)}
    made = {"planes": 1, "t1_per_plane": 1, "queues": queues, "links": {"host": link, "fabric": link}}
    workload = Workload(name="permutation", params={"message_bytes": 60_000, "shift": 2}, duration=1.0)
    experiment = Experiment(name="storm", title="storm", transport=transport, workload=workload, schedule=schedule)
    with session(lab_file(folder, "tiny", **made), "virtual", transport) as lab:
        result = run_on(lab, experiment)
        return result, list(verdict.findings(result, lab.topology, experiment.claims()))


def arrived(result: RunResult, host: str, begin: float, end: float) -> int:
    """Bytes that arrived at a host between two times, s."""
    samples = result.samples[host]
    at = [samples.at(result.started_ns + int(time * 1e9)) for time in (begin, end)]
    first, last = (each or {} for each in at)
    return last["delivered_bytes"] - first["delivered_bytes"]


@pytest.mark.parametrize("lossless", [PFC, {"credits": {"buffer": "8KiB"}}])
def test_a_storm_stops_who_has_nothing_to_do_with_it(lossless: dict[str, Any], tmp_path: pathlib.Path) -> None:
    document, found = run(tmp_path, "roce", [STORM, OVER], **lossless)
    assert [finding.passed for finding in found] == [True, True, True]
    assert not document.failures
    # h0 sends to h2, over the same uplink.
    assert arrived(document, "h2", 0.4, 0.6) == 0 < arrived(document, "h2", 0.05, 0.25)
    assert arrived(document, "h2", 0.8, 1.0) > 0


def test_without_the_storm_its_evidence_is_missing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FabricInside, "set_port_link", lambda *_, **__: None)
    _, found = run(tmp_path, "roce", [STORM, OVER])
    assert [finding.passed for finding in found] == [False, False, False]


def test_mrc_does_not_notice(tmp_path: pathlib.Path) -> None:
    storm = STORM.model_copy(update={"evidence": Evidence(pause_frames=1), "loss": 0.0})
    document, found = run(tmp_path, "mrc", [storm, OVER])
    assert [finding.passed for finding in found] == [True]
    assert arrived(document, "h3", 0.35, 0.6) > 0.8 * arrived(document, "h3", 0.05, 0.3)
    assert not document.failures
