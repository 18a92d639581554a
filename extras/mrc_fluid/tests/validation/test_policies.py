"""The published algorithms of `experiments/sweeps/policies`: each does what its source says, and none breaks a rule."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from mrc_fluid.validation import packets
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, FlowSpec
from mrc_fluid.validation.scenarios import by_name
from mrc_host.policy import ASSUMED_BAD, GOOD, EvInput, EvUniverse, NsccConfig, load
from mrc_host.proto.config import EvConfig
from mrc_topo.shipped import shipped
from mrclab.studies.cells.measure import measure

FOLDER = shipped("experiments") / "sweeps" / "policies"
EVS = {"oblivious": "Oblivious", "ecmp": "Ecmp", "flowlet": "Flowlet", "bitmap": "Bitmap", "reps": "Reps"}
CONTROLS = {"htsim_nscc": "HtsimNscc", "median_nscc": "MedianNscc"}


def evs(name: str) -> Any:
    """Return eight EVs of one plane, all active, under a policy."""
    universe = EvUniverse(EvConfig(count=8, active=8), 1, random.Random(1))
    return load(f"{FOLDER / name}.py:{EVS[name]}", "ev")(universe, random.Random(2), lambda *change: None)


def control(name: str) -> Any:
    config = NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=12_000, trimming=True)
    return load(f"{FOLDER / name}.py:{CONTROLS[name]}", "congestion")(config, MTU)


def test_no_file_is_without_a_test() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == EVS.keys() | CONTROLS.keys()


def test_oblivious_takes_all_in_turn_whatever_is_marked() -> None:
    policy = evs("oblivious")
    for ev in range(4):
        assert not policy.apply(ev, EvInput.SKIP_ONCE)
    assert sorted(policy.choose(0) for _ in range(8)) == list(range(8))


def test_ecmp_stays_until_its_path_fails() -> None:
    policy = evs("ecmp")
    first = policy.choose(0)
    assert {policy.choose(0) for _ in range(20)} == {first}
    assert policy.choose(0, first) != first
    policy.apply(first, EvInput.LOSS)
    assert policy.choose(0) != first


def test_a_flowlet_ends_with_a_pause() -> None:
    policy = evs("flowlet")
    chosen = []
    for now in (0, 5_000, 10_000, 15_000):
        policy.now_ns = now
        chosen.append(policy.choose(0))
    assert len(set(chosen)) == 1
    seen = set()
    for now in range(100_000, 2_000_000, 20_000):
        policy.now_ns = now
        seen.add(policy.choose(0))
    assert len(seen) > 4


def test_bitmap_passes_over_a_trimmed_path_four_times() -> None:
    policy = evs("bitmap")
    policy.apply(3, EvInput.TRIMMED)
    turns = [[policy.choose(0) for _ in range(7)] for _ in range(4)]
    assert all(3 not in turn for turn in turns)
    assert 3 in [policy.choose(0) for _ in range(8)]
    for _ in range(9):
        policy.apply(2, EvInput.TRIMMED)
    assert policy.penalty[2] == 15


def test_reps_uses_paths_again_from_which_unmarked_answers_came() -> None:
    policy = evs("reps")
    assert policy.listens
    for ev, mark in ((5, 0), (1, 1), (6, 0)):
        policy.answered(ev, mark, 0)
    assert [policy.choose(0), policy.choose(0)] == [5, 6]
    policy.answered(5, 0, 0)
    assert policy.choose(0, 5) != 5


def test_reps_freezes_after_a_loss() -> None:
    policy = evs("reps")
    for ev in (5, 6):
        policy.answered(ev, 0, 0)
    policy.now_ns = 1_000
    policy.apply(0, EvInput.LOSS)
    assert policy.state[0] == ASSUMED_BAD
    assert {policy.choose(0) for _ in range(10)} == {5, 6}
    policy.now_ns = 5_000_000
    policy.apply(1, EvInput.LOSS)
    policy.now_ns = 10_001_000
    assert len({policy.choose(0) for _ in range(16)}) > 2, "the second loss does not freeze for longer"
    policy.answered(5, 0, 0)
    assert policy.choose(0) == 5


def test_marks_leave_all_states_alone() -> None:
    for name in EVS:
        policy = evs(name)
        for item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            policy.apply(1, item)
        assert policy.state[1] == GOOD


def test_htsims_average_takes_a_quarter_of_the_base_rtt_for_an_unmarked_late_packet() -> None:
    policy = control("htsim_nscc")
    policy.on_sack(0, MTU, 12_000 + policy.target_ns + 5_000, False, 0, False)
    assert policy.avg_qdelay == pytest.approx(0.0125 * 12_000 / 4)
    policy.on_sack(0, MTU, 12_000 + policy.target_ns + 5_000, True, 0, False)
    late = policy.target_ns + 5_000
    assert policy.avg_qdelay == pytest.approx(0.0125 * 3_000 * (1 - 0.0125) + 0.0125 * late)


def test_one_late_packet_does_not_move_the_median() -> None:
    ours, medians = (
        NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=12_000).controller(MTU),
        control("median_nscc"),
    )
    for policy in (ours, medians):
        for number in range(20):
            policy.on_sack(number * 1_000, MTU, 13_000, False, 0, False)
        policy.on_sack(21_000, MTU, 60_000, True, 0, False)
    assert ours.qdelay_ns == 48_000
    assert medians.qdelay_ns == 1_000


@pytest.mark.parametrize("kind", ["ev", "congestion"])
def test_packets_arrive_under_every_policy(kind: str) -> None:
    """The guards of `mrc_host.policy` watch every call; a rule that is broken ends the run."""
    flows = [FlowSpec(source, (source + 5) % 16, 40 * MTU) for source in range(16)]
    scenario = dataclasses.replace(by_name()["slow-t1"], flows=lambda seed: flows)
    for name, cls in (EVS if kind == "ev" else CONTROLS).items():
        algorithm = Algorithm(policies={kind: f"{FOLDER / name}.py:{cls}"})
        found = packets.outcome(scenario, 1, measure(packets.cell(scenario, 1, algorithm)))
        assert len(found.completion_us) == 16
