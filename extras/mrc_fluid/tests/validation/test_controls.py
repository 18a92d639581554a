"""Controlled runs: the change is in the lab and in what htsim is given, and the difference must go."""

from __future__ import annotations

import json
import pathlib

import pytest

from mrc_fluid import kernels
from mrc_fluid.validation import controls, fluid, packets
from mrc_fluid.validation.causes import CAUSES
from mrc_fluid.validation.controls import ControlledDifference, ControlScenario
from mrc_fluid.validation.differences import Difference
from mrc_fluid.validation.htsim import Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, Backend, Quantity
from mrc_fluid.validation.scenarios import by_name
from mrc_topo.topology import Topology
from mrclab.cli.app import app
from mrclab.studies.cells.measure import prepare

ALL = {each.scenario.name: each for each in controls.controls()}


def test_controls_are_of_scenarios_and_have_names_of_their_own() -> None:
    assert len(ALL) == len(controls.controls())
    for each in ALL.values():
        packets.cell(each.scenario, 1, each.algorithm)  # its name is part of a lab's
    assert not ALL.keys() & by_name().keys()
    assert {each.of for each in ALL.values()} <= by_name().keys()


def test_no_control_has_a_listed_cause() -> None:
    """So a difference that does not vanish is unexplained."""
    assert not any(cause.scenarios & ALL.keys() for cause in CAUSES)


def test_one_thing_is_changed_in_the_lab() -> None:
    def lab(name: str) -> dict[str, object]:
        control = ALL[name]
        return prepare(packets.cell(control.scenario, 1, control.algorithm)).lab.model_dump(
            exclude={"name", "policies"}
        )

    def base(name: str) -> dict[str, object]:
        return prepare(packets.cell(by_name()[name], 1, Algorithm())).lab.model_dump(exclude={"name", "policies"})

    def changed(name: str) -> set[str]:
        ours, theirs = lab(name), base(ALL[name].of)
        return {key for key in ours if ours[key] != theirs[key]}

    assert changed("fixed-2") == changed("pods-fixed-2") == {"cc"}
    assert changed("incast-32-no-qa") == {"cc"}
    assert changed("slow-t1-bitmap") == set()
    assert changed("planes-all-evs") == changed("lossy-all-evs") == changed("pods-all-evs") == {"ev"}
    assert changed("slow-t1-1500") == set()
    assert {flow.bytes for flow in ALL["slow-t1-1500"].scenario.flows(1)} == {1500 * MTU}
    assert changed("incast-8-drops") == {"queues"}


def test_the_fluid_takes_queues_that_drop() -> None:
    """They shed at their limit; there is no threshold of trimming."""
    control = ALL["incast-8-drops"]
    lab = prepare(packets.cell(control.scenario, 1, control.algorithm)).lab
    made = fluid.outcome(control.scenario, 1, lab, Topology(lab), kernels.reference())
    assert len(made.completion_us) == 8


def test_far_senders_are_below_other_t0s_than_the_receiver() -> None:
    flows = ALL["incast-8-far"].scenario.flows(1)
    assert len({flow.source for flow in flows}) == 8
    assert min(flow.source for flow in flows) == 4
    assert {flow.target for flow in flows} == {0}


def test_htsim_drops_where_packets_drop(tmp_path: pathlib.Path) -> None:
    for name, disabled in (("incast-8-drops", True), ("incast-8-far", False)):
        line = Htsim(tmp_path).command(ALL[name].scenario, 1, tmp_path, name)
        assert ("-disable_trim" in line) is disabled


@pytest.mark.parametrize(
    ("cause", "off", "expected"), [("", 0.04, True), ("", 0.06, False), ("headers: x", 0.06, True)]
)
def test_a_difference_must_vanish(cause: str, off: float, expected: bool) -> None:
    control = ControlScenario("x", "on-off", by_name()["on-off"], {})
    found = Difference("on-off", Backend.FLUID, Quantity.P50, 1.0, 1.0 + off, off, 0.05, cause)
    assert ControlledDifference(control, found).as_expected is expected


def test_controls_from_end_to_end(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "controls", lambda: [ALL["lone-message"]])
    app(["validate", "--causes", "--seeds", "1", "--jobs", "1", "--json", "-o", str(tmp_path)], standalone_mode=False)
    (row,) = json.loads(capsys.readouterr().out)["controls"]
    assert row["as_expected"]
    assert abs(row["off"]) < row["bound"]
    assert (tmp_path / "controls.csv").read_text().startswith("scenario,change,backend,quantity,packets,other,off,")
