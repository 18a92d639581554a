"""What is written for uet-htsim, and what is read from it; its binary is a stand-in unless `MRCLAB_HTSIM` names one."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from mrc_fluid.validation import htsim
from mrc_fluid.validation.htsim import Htsim, HtsimError
from mrc_fluid.validation.outcome import ScenarioError
from mrc_fluid.validation.scenario import Backend, FlowSpec, Quantity
from mrc_fluid.validation.scenarios import by_name

PRINTED = """Starting simulation
Flow Uec_1_0 flowId 1 uecSrc 0 starting at 0
Flow Uec_3_0 flowId 2 uecSrc 1 finished at {second} total messages 1 total packets 489 RTS 0
Flow Uec_1_0 flowId 1 uecSrc 0 finished at 100 total messages 1 total packets 489 RTS 0
.Done
New: 900 Rtx: 100 RTS: 0 Bounced: 0 ACKs: 124 NACKs: 50 Pulls: 0 sleek_pkts: 0
"""
FLOWS = [FlowSpec(1, 0, 125_000), FlowSpec(3, 0, 125_000, 10_000)]


def test_topology_file_has_tiers_radix_and_oversubscription() -> None:
    assert htsim.topology(by_name()["oversubscribed-2"]) == (
        "Nodes 16\nTiers 2\nPodsize 16\n\n"
        "Tier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 2\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\n"
        "Oversubscribed 2\n\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1000\n"
        "Switch_Latency_ns 0\n"
    )


def test_topology_file_of_pods_has_three_tiers() -> None:
    assert htsim.topology(by_name()["pods-oversubscribed-2"]) == (
        "Nodes 32\nTiers 3\nPodsize 8\n\n"
        "Tier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 4\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\n\n"
        "Tier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 1\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\n"
        "Oversubscribed 2\n\nTier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1000\n"
        "Switch_Latency_ns 0\n"
    )


@pytest.mark.parametrize("name", ["permutation-planes", "dead-uplink", "mixed-rtt"])
def test_a_scenario_that_htsim_has_not_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match="htsim has no planes"):
        htsim.topology(by_name()[name])


def test_connection_matrix_has_microseconds() -> None:
    assert htsim.matrix(by_name()["incast-2"], FLOWS) == (
        "Nodes 16\nConnections 2\n1->0 id 1 start 0 size 125000\n3->0 id 2 start 10 size 125000\n"
    )


def test_outcome_is_read_from_the_lines_of_flows_and_the_summary() -> None:
    found = htsim.parsed(by_name()["incast-2"], 7, FLOWS, PRINTED.format(second=110))
    assert found.completion_us == [100.0, 100.0]
    assert found.values[Quantity.GOODPUT] == pytest.approx(2 * 125_000 * 8 / 110 / 1e3)
    assert found.values[Quantity.JAIN] == 1.0
    assert found.values[Quantity.TRIMMED] == 5.0
    assert found.values[Quantity.AGAIN] == 10.0


def test_a_flow_without_an_end_is_an_error() -> None:
    lines = PRINTED.splitlines(keepends=True)
    with pytest.raises(ScenarioError, match="1 of 2 flows did not end"):
        htsim.parsed(by_name()["incast-2"], 1, FLOWS, "".join(lines[:2] + lines[3:]))
    with pytest.raises(ScenarioError, match="its last line is not the summary"):
        htsim.parsed(by_name()["incast-2"], 1, FLOWS, "".join(lines[:-1]).format(second=1))


def stand_in(folder: pathlib.Path, text: str) -> pathlib.Path:
    """Return a program that does what the lines of shell say."""
    path = folder / "htsim_uec"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_run_leaves_input_and_output_and_nothing_elsewhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """htsim writes a list of its objects into the folder in which it runs."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    binary = stand_in(tmp_path, f"echo 1 PacketFlow > idmap.txt\ncat <<'END'\n{PRINTED.format(second=100)}END")
    found = Htsim.found(binary).outcome(by_name()["incast-2"], 3, tmp_path / "out")
    assert found.seed == 3
    assert found.backend is Backend.HTSIM
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "incast-2-3.cm",
        "incast-2-3.out",
        "incast-2-3.topo",
    ]
    assert not list(here.iterdir())


def test_an_error_of_htsim_names_the_run_and_its_last_line(tmp_path: pathlib.Path) -> None:
    binary = stand_in(tmp_path, "echo 'Mismatch between matrix and topology' >&2; exit 3")
    with pytest.raises(ScenarioError, match=r"incast-2-1: htsim ended with code 3: Mismatch between"):
        Htsim.found(binary).outcome(by_name()["incast-2"], 1, tmp_path / "out")


def test_a_path_without_a_program_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(HtsimError, match="is no program"):
        Htsim.found(tmp_path / "nothing")


@pytest.mark.skipif("MRCLAB_HTSIM" not in os.environ, reason="MRCLAB_HTSIM names no htsim_uec")
@pytest.mark.parametrize("name", ["incast-8", "slow-t1", "on-off", "oversubscribed-4"])
def test_htsim_itself_reads_what_is_written(name: str, tmp_path: pathlib.Path) -> None:
    found = Htsim.found(pathlib.Path(os.environ["MRCLAB_HTSIM"])).outcome(by_name()[name], 1, tmp_path)
    assert 0 < found.values[Quantity.GOODPUT] < 1600
