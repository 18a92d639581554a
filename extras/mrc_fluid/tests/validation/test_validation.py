"""The suite: closed forms that fail when packets are not counted, causes, and one scenario from end to end."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from mrc_fluid import kernels
from mrc_fluid.validation import closed, fluid, packets, scenarios
from mrc_fluid.validation.causes import CAUSES
from mrc_fluid.validation.closed import Bound, ClosedForm
from mrc_fluid.validation.differences import Difference, Value, differences, values
from mrc_fluid.validation.outcome import ScenarioOutcome, of_flows
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import LONG_BYTES, MTU, NIC_BPS, Backend, FlowSpec, Quantity
from mrc_topo.base.errors import UsageError
from mrclab.cli.app import app
from mrclab.studies.cells.measure import measure, prepare

KNOWN = scenarios.by_name()


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("permutation", 1.0),
        ("oversubscribed-2", 0.5),
        ("oversubscribed-4", 0.25),
        ("slow-t1", 0.8125),
        ("slow-plane", 0.775),
        ("pods", 1.0),
        ("pods-oversubscribed-2", 0.5),
    ],
)
def test_maximum_flow_of_a_permutation_is_what_its_uplinks_carry(name: str, share: float) -> None:
    scenario = KNOWN[name]
    found = closed.max_flow_bps(scenario, scenario.flows(1))
    assert found == pytest.approx(share * scenario.fabric.hosts * NIC_BPS, rel=1e-3)


def test_maximum_flow_of_an_incast_is_its_receivers_port() -> None:
    assert closed.max_flow_bps(KNOWN["incast-8"], KNOWN["incast-8"].flows(1)) == pytest.approx(NIC_BPS, rel=1e-3)


def test_evs_found_bad_follow_the_negative_hypergeometric_distribution() -> None:
    topology = prepare(packets.cell(KNOWN["cold-start"], 1, Algorithm()))
    lab = topology.lab
    assert (lab.ev.size, lab.ev.active, lab.planes, lab.t1_per_plane) == (128, 64, 4, 4)
    assert closed.evs_found_bad(topology) == pytest.approx(16 * 8 / 25)


@pytest.mark.parametrize(
    ("bound", "measured", "holds"),
    [
        (Bound.EQUAL, 101.0, True),
        (Bound.EQUAL, 103.0, False),
        (Bound.EQUAL, 97.0, False),
        (Bound.AT_MOST, 5.0, True),
        (Bound.AT_MOST, 103.0, False),
    ],
)
def test_closed_forms_hold_within_their_tolerance(bound: Bound, measured: float, holds: bool) -> None:
    assert ClosedForm("x", "y", bound, 100.0, measured, 0.02).holds is holds


def test_quantities_follow_from_the_times_of_flows() -> None:
    flows = [FlowSpec(0, 1, 125_000), FlowSpec(2, 1, 125_000, 50_000)]
    found = of_flows(flows, [100.0, 50.0])
    assert found[Quantity.GOODPUT] == pytest.approx(2 * 125_000 * 8 / 100e3)
    assert found[Quantity.P50] == 75.0
    assert found[Quantity.JAIN] == pytest.approx(0.9)  # rates 1 and 2


def _differences(name: str, backend: Backend, quantity: Quantity, mine: float, other: float) -> list[Difference]:
    values = [Value(name, Backend.PACKETS, quantity, mine, None, 1), Value(name, backend, quantity, other, None, 1)]
    return differences(values, {name: 0.93})


def test_a_changed_policy_file_is_another_run(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.py"
    digests = set()
    for text in ("A = 1\n", "A = 2\n"):
        file.write_text(text)
        digests.add(packets.cell(KNOWN["incast-2"], 1, Algorithm({"ev": f"{file}:Own"})).digest("programs"))
    assert len(digests) == 2


def test_a_difference_within_the_bound_needs_no_cause() -> None:
    (found,) = _differences("on-off", Backend.HTSIM, Quantity.P99, 100, 104)
    assert not found.beyond
    assert found.cause == ""


def test_headers_explain_what_they_cost_and_no_more() -> None:
    (found,) = _differences("on-off", Backend.HTSIM, Quantity.GOODPUT, 100, 108)
    assert found.cause.startswith("headers: ")
    (found,) = _differences("on-off", Backend.HTSIM, Quantity.GOODPUT, 100, 115)
    assert found.unexplained


@pytest.mark.parametrize(
    ("backend", "other", "explained"),
    [
        (Backend.FLUID, 93.1, True),
        (Backend.HTSIM, 95.5, True),
        (Backend.HTSIM, 101.0, False),
        (Backend.FLUID, 99.0, False),
    ],
)
def test_headers_of_trimmed_packets_are_counted(backend: Backend, other: float, explained: bool) -> None:
    """Two of three packets are trimmed, so two trimmed headers come with each packet that arrives."""
    found = [
        Value("incast-64", Backend.PACKETS, Quantity.GOODPUT, 85.7, None, 1),
        Value("incast-64", Backend.PACKETS, Quantity.TRIMMED, 200 / 3, None, 1),
        Value("incast-64", Backend.PACKETS, Quantity.AGAIN, 200 / 3, None, 1),
        Value("incast-64", backend, Quantity.GOODPUT, other, None, 1),
    ]
    (made,) = differences(found, {"incast-64": 0.9665})
    assert made.beyond
    assert ("headers of trimmed packets" in made.cause) is explained
    (without,) = differences([found[0], found[3]], {"incast-64": 0.9665})
    assert "headers of trimmed packets" not in without.cause


def test_a_listed_cause_belongs_to_its_scenarios_and_quantities_alone() -> None:
    assert not _differences("on-off", Backend.FLUID, Quantity.P50, 500, 600)[0].unexplained
    assert _differences("on-off", Backend.FLUID, Quantity.GOODPUT, 500, 600)[0].unexplained
    assert _differences("permutation", Backend.FLUID, Quantity.GOODPUT, 500, 140)[0].unexplained


def test_goodput_of_long_flows_is_not_that_until_the_last_one_ends() -> None:
    flows = [FlowSpec(source, 0, LONG_BYTES) for source in (1, 2)]
    found = of_flows(flows, [1000.0, 4000.0])
    assert Quantity.GOODPUT not in found
    assert found[Quantity.STEADY] == pytest.approx(LONG_BYTES * 8 / 1000 / 1e3 * 1.25)
    assert Quantity.STEADY not in of_flows([*flows, FlowSpec(3, 0, LONG_BYTES - 1)], [1.0, 1.0, 1.0])
    long = [each for each in KNOWN.values() if each.name.endswith("-long")]
    assert {flow.bytes for each in long for flow in each.flows(1)} == {LONG_BYTES}
    assert {each.name.removesuffix("-long") for each in long} < KNOWN.keys()


def test_fewer_than_five_seeds_have_no_interval() -> None:
    made = [ScenarioOutcome("pods", Backend.FLUID, seed, {Quantity.P50: float(seed)}, [], {}) for seed in range(1, 6)]
    assert values(made[:4])[0].half is None
    assert values(made[:4])[0].mean == 2.5
    assert values(made)[0].half == pytest.approx(1.963, abs=1e-3)


def test_shares_of_packets_differ_by_points() -> None:
    assert not _differences("on-off", Backend.HTSIM, Quantity.TRIMMED, 0.1, 0.9)[0].beyond
    assert _differences("on-off", Backend.HTSIM, Quantity.TRIMMED, 0.1, 1.2)[0].unexplained


def test_causes_name_scenarios_that_there_are() -> None:
    for cause in CAUSES:
        assert cause.scenarios <= KNOWN.keys()


def test_fluid_alone_carries_one_flow_at_the_rate_of_its_port() -> None:
    scenario = dataclasses.replace(KNOWN["incast-2"], flows=lambda seed: [FlowSpec(4, 0, 1000 * MTU)])
    cell = packets.cell(scenario, 1, Algorithm())
    found = fluid.outcome(scenario, 1, cell.lab, prepare(cell), kernels.reference())
    wire_us = 1000 * MTU / 0.966 * 8 / NIC_BPS * 1e6
    assert found.completion_us[0] == pytest.approx(wire_us + 9.4, rel=0.01)


def test_cold_start_from_end_to_end(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["validate", "cold-start", "--seeds", "2", "--json", "-o", str(tmp_path / "out")], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert [form["holds"] for form in document["closed_forms"]] == [True, True, True]
    assert {value["backend"] for value in document["values"]} == {"packets", "fluid"}
    wire = document["closed_forms"][0]
    assert wire["measured"] == pytest.approx(wire["expected"], rel=0.002)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "index.html", "flows.csv", "values.csv", "differences.csv", "closed-forms.csv"} <= names
    assert "mrclab validate cold-start --seeds 2 -o FOLDER\n" in (tmp_path / "out" / "README.md").read_text()


def test_bytes_on_the_wire_do_not_add_up_without_sacks(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = dataclasses.replace(KNOWN["incast-2"], flows=lambda seed: [FlowSpec(4, 0, 200 * MTU)])
    cell = packets.cell(scenario, 1, Algorithm())
    outcome = packets.outcome(scenario, 1, measure(cell))
    assert closed.forms(scenario, prepare(cell), [outcome])[0].holds
    monkeypatch.delitem(closed.MESSAGES, "sacks")
    assert not closed.forms(scenario, prepare(cell), [outcome])[0].holds


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["incast-9"], "no scenario 'incast-9'; did you mean incast-"),
        (["--seeds", "0"], "--seeds is a number from 1 to 1000, not 0"),
        (["--policy", "congestion"], "write KIND=module:Class"),
        (["--policy", "localiser=x.py:X"], "with KIND one of congestion, ev and loss"),
        (["--policy", "ev=missing.py:X"], "missing.py: no such file"),
        (["--policy", "ev=missing:X"], "missing.py: no such file"),
        (["--htsim", "missing"], "missing is no program"),
    ],
)
def test_wrong_choices_are_refused_before_anything_runs(
    options: list[str], text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        app(["validate", *options], standalone_mode=False)
    assert text in str(raised.value)
    assert not list(tmp_path.iterdir())
