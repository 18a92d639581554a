"""Controlled runs: the change is in the lab and in what htsim is given, and the difference must go."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from mrc_fluid import kernels
from mrc_fluid.validation import controls, fluid, packets
from mrc_fluid.validation.causes import CAUSES, Change
from mrc_fluid.validation.controls import ControlledDifference
from mrc_fluid.validation.differences import Difference
from mrc_fluid.validation.htsim import Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import Backend, Quantity
from mrc_fluid.validation.scenarios import by_name
from mrc_topo.topology import Topology
from mrclab.cli.app import app
from mrclab.studies.cells.measure import prepare

ALL = {(each.change, each.of): each for each in controls.controls()}


def test_controls_draw_the_same_paths_as_their_scenarios() -> None:
    """EVs are drawn from the name and the seed of a lab."""
    assert len(ALL) == len(controls.controls())
    for each in ALL.values():
        known = by_name()[each.of]
        ours, theirs = (packets.cell(one, 1, Algorithm()).lab for one in (each.scenario, known))
        assert (ours.name, ours.seed) == (theirs.name, theirs.seed)


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


def test_one_thing_is_changed_in_the_lab() -> None:
    def changed(change: Change, of: str) -> set[str]:
        control = ALL[change, of]
        ours, theirs = (
            prepare(packets.cell(scenario, 1, algorithm)).lab.model_dump(exclude={"policies"})
            for scenario, algorithm in ((control.scenario, control.algorithm), (by_name()[of], Algorithm()))
        )
        return {key for key in ours if ours[key] != theirs[key]}

    assert changed(Change.FIXED, "incast-8") == {"cc"}
    assert changed(Change.NEAR_FIXED, "mixed-rtt") == {"cc", "overrides"}
    assert changed(Change.BITMAP_EVEN, "slow-t1") == {"ev"}
    assert changed(Change.ALL_EVS, "slow-t1-long") == {"ev"}
    for of in ("incast-8", "on-off"):
        assert changed(Change.LAST_HOP, of) == {"queues"}
    assert changed(Change.BITMAP, "oversubscribed-2-long") == set()
    assert changed(Change.FEW_MESSAGES, "on-off") == set()
    assert changed(Change.THREE_TIMES, "slow-plane") == set()
    lengths = {flow.bytes for flow in by_name()["slow-plane"].flows(1)}
    longer = {flow.bytes for flow in ALL[Change.THREE_TIMES, "slow-plane"].scenario.flows(1)}
    assert longer == {3 * length for length in lengths}


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
        (0.08, "", 0.045, 0.045, False),  # more than half is left
        (0.2, "", 0.051, 0.06, False),
        (0.2, "", 0.06, 0.06, False),
        (0.2, "headers: x", 0.06, 0.01, True),
        (0.2, "listed", 0.06, 0.06, False),
        (0.04, "", 0.01, 0.01, False),  # there is nothing to explain any more
    ],
)
def test_a_difference_must_vanish(before: float, cause: str, off: float, corrected: float, expected: bool) -> None:
    def difference(off: float, cause: str, corrected: float) -> Difference:
        return Difference("on-off", Backend.FLUID, Quantity.P50, 1.0, 1.0 + off, off, 0.05, cause, corrected)

    found = ControlledDifference(
        ALL[Change.FEW_MESSAGES, "on-off"], difference(before, "x", before), difference(off, cause, corrected)
    )
    assert found.as_expected is expected


def test_controls_from_end_to_end(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "controls", lambda: [ALL[Change.FEW_MESSAGES, "on-off"]])
    app(["validate", "--causes", "--seeds", "1", "--jobs", "1", "--json", "-o", str(tmp_path)], standalone_mode=False)
    (row,) = json.loads(capsys.readouterr().out)["controls"]
    assert row["as_expected"]
    assert abs(row["after"]) < row["bound"] < abs(row["before"])
    assert (tmp_path / "controls.csv").read_text().startswith("scenario,change,backend,quantity,before,packets,")
