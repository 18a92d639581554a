"""Controlled runs: the change is in the lab and in what htsim is given, and the difference must go."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from mrc_fluid import kernels
from mrc_fluid.validation import controls, fluid, packets
from mrc_fluid.validation.causes import CAUSES
from mrc_fluid.validation.controls import ControlledDifference
from mrc_fluid.validation.differences import Difference
from mrc_fluid.validation.htsim import Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import Backend, Quantity
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


def test_every_cause_has_a_run_that_can_refute_it() -> None:
    shown = {
        (each.change, backend, each.of, quantity)
        for each in ALL.values()
        for backend, quantities in each.quantities.items()
        for quantity in quantities
    }
    for cause in CAUSES:
        found = {
            (cause.shown_by, cause.backend, scenario, quantity)
            for scenario in cause.scenarios
            for quantity in cause.quantities
        }
        assert shown & found, cause.text
        assert {quantity for *_, quantity in shown & found} == cause.quantities, cause.text
        shown -= found
    assert not shown


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

    assert changed("incast-8-fixed") == {"cc"}
    assert changed("near-fixed") == {"cc", "overrides"}
    assert changed("slow-t1-bitmap") == {"ev"}
    assert changed("long-2-bitmap") == changed("few-messages") == changed("pods-dead-16") == set()
    assert changed("dead-all-evs") == changed("slow-t1-all-evs") == changed("pods-all-evs") == {"ev"}
    assert changed("slow-plane-3") == set()
    lengths = {name: {flow.bytes for flow in scenario.flows(1)} for name, scenario in by_name().items()}
    assert {flow.bytes for flow in ALL["slow-plane-3"].scenario.flows(1)} == {3 * max(lengths["slow-plane"])}
    assert changed("incast-8-last-hop") == changed("on-off-last-hop") == {"queues"}


def test_queues_that_drop_do_so_in_all_backends(tmp_path: pathlib.Path) -> None:
    """They shed at their limit; there is no threshold of trimming."""
    known = by_name()["incast-8-marked"]
    scenario = dataclasses.replace(known, fabric=dataclasses.replace(known.fabric, trims=False))
    lab = prepare(packets.cell(scenario, 1, Algorithm())).lab
    made = fluid.outcome(scenario, 1, lab, Topology(lab), kernels.reference())
    assert len(made.completion_us) == 8
    for each, disabled in ((scenario, True), (known, False)):
        line = Htsim(tmp_path).command(each, 1, tmp_path, each.name)
        assert ("-disable_trim" in line) is disabled


@pytest.mark.parametrize(
    ("before", "cause", "off", "corrected", "expected"),
    [
        (0.1, "", 0.04, 0.04, True),
        (0.1, "", 0.049, 0.051, False),  # more than half is left
        (0.2, "", 0.06, 0.06, False),
        (0.2, "headers: x", 0.06, 0.01, True),
        (0.04, "", 0.01, 0.01, False),  # there is nothing to explain any more
    ],
)
def test_a_difference_must_vanish(before: float, cause: str, off: float, corrected: float, expected: bool) -> None:
    def difference(off: float, cause: str, corrected: float) -> Difference:
        return Difference("on-off", Backend.FLUID, Quantity.P50, 1.0, 1.0 + off, off, 0.05, cause, corrected)

    found = ControlledDifference(
        ALL["few-messages"], difference(before, "x", before), difference(off, cause, corrected)
    )
    assert found.as_expected is expected


def test_controls_from_end_to_end(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "controls", lambda: [ALL["few-messages"]])
    app(["validate", "--causes", "--seeds", "1", "--jobs", "1", "--json", "-o", str(tmp_path)], standalone_mode=False)
    (row,) = json.loads(capsys.readouterr().out)["controls"]
    assert row["as_expected"]
    assert abs(row["after"]) < row["bound"] < abs(row["before"])
    assert (tmp_path / "controls.csv").read_text().startswith("scenario,change,backend,quantity,before,packets,")
