"""NSCC against the rules of `mrc-protocol.md §8`, one rule per test; numbers computed by hand from the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto import cc
from mrc_host.proto.config import CcAlgorithm, CcConfig
from mrc_host.proto.nscc import Case, Nscc

MTU = 4000
BASE = 12_000
# 100 Gb/s and 12 us are the reference of the rules: a = 1; BDP = 150 000 bytes.
BDP = 150_000


def make(**changes: object) -> Nscc:
    return Nscc(CcConfig(line_rate_bps=100_000_000_000, base_rtt_ns=BASE, **changes), MTU)  # type: ignore[arg-type]


def settled(**changes: object) -> Nscc:
    """A controller whose first quick-adapt interval is over, at half its maximum."""
    nscc = make(initial_cwnd_bytes=100_000, **changes)
    nscc.on_sack(0, 0, BASE, False, 0, False)
    nscc.inflight = 80_000
    return nscc


def test_parameters_at_the_reference() -> None:
    nscc = make()
    assert nscc.max_wnd == nscc.cwnd == 1.5 * BDP
    assert nscc.target_ns == 9_000  # 0.75 base_rtt with trimming
    assert make(trimming=False).target_ns == 12_000
    assert nscc.fi == 5 * MTU
    assert nscc.fi_scale == 0.25
    assert nscc.eta == 0.15 * MTU
    assert nscc.alpha == pytest.approx(4 * MTU * 0.75 / 9_000)
    assert nscc.qa_gate_bytes == 1.5 * BDP / 8


def test_parameters_scale_with_the_bdp() -> None:
    nscc = Nscc(CcConfig(line_rate_bps=400_000_000_000, base_rtt_ns=6_000), MTU)
    assert nscc.max_wnd == 1.5 * 300_000
    assert nscc.fi == 5 * MTU * 2
    assert nscc.alpha == pytest.approx(4 * MTU * 2 * (4_500 / 12_000) / 4_500)


def test_no_ce_below_target_increases_in_proportion_to_the_headroom() -> None:
    nscc = settled()
    rtt = BASE + 4_500  # half the target
    newly = 8 * MTU
    before = nscc.cwnd
    nscc.on_sack(1_000, newly, rtt, False, 0, False)
    assert nscc.case is Case.PROPORTIONAL
    inc = newly * nscc.alpha * 4_500
    assert nscc.cwnd == pytest.approx(before + inc / before)


def test_increase_waits_for_the_adjust_threshold() -> None:
    nscc = settled()
    nscc.on_sack(BASE, MTU, BASE + 4_500, False, 0, False)  # a period has passed: applied with eta
    before = nscc.cwnd
    assert before > 100_000 + nscc.eta - 1
    nscc.on_sack(BASE + 10, MTU, BASE + 4_500, False, 0, False)
    assert nscc.cwnd == before  # neither 8 MTU nor a base RTT since
    nscc.on_sack(BASE + 20, 7 * MTU, BASE + 4_500, False, 0, False)
    assert nscc.cwnd > before


def test_eta_once_per_period() -> None:
    nscc = settled()
    nscc.on_sack(BASE, 0, BASE + nscc.target_ns - 1, False, 0, False)
    assert nscc.cwnd == pytest.approx(100_000 + nscc.eta)
    nscc.on_sack(BASE + 1, 8 * MTU, BASE + nscc.target_ns - 1, False, 0, False)
    assert nscc.cwnd < 100_000 + 2 * nscc.eta


def test_no_ce_at_target_increases_fairly() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 8 * MTU, BASE + 9_000, False, 0, False)
    assert nscc.case is Case.FAIR
    assert nscc.cwnd == pytest.approx(100_000 + 8 * MTU * 5 * MTU / 100_000)


def test_ce_below_target_does_nothing() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 8 * MTU, BASE + 8_999, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.HOLD, 100_000)


def test_ce_at_target_decreases_once_per_base_rtt() -> None:
    nscc = settled(delay_gain=1.0)  # the average is the sample
    delay = 18_000
    nscc.on_sack(1_000, MTU, BASE + delay, True, 0, False)
    assert nscc.case is Case.DECREASE
    assert nscc.cwnd == pytest.approx(100_000 * (1 - 0.8 * (delay - 9_000) / delay))
    after = nscc.cwnd
    nscc.on_sack(1_000 + BASE - 1, MTU, BASE + delay, True, 0, False)
    assert nscc.cwnd == after
    nscc.on_sack(1_000 + BASE, MTU, BASE + delay, True, 0, False)
    assert nscc.cwnd < after


def test_one_decrease_never_exceeds_the_maximum_jump() -> None:
    nscc = settled(delay_gain=1.0)
    nscc.on_sack(1_000, MTU, BASE + 10_000_000, True, 0, False)
    assert nscc.cwnd == pytest.approx(50_000)


def test_decrease_goes_by_the_average_delay() -> None:
    nscc = settled()  # gain 0.0125: one high sample does not lift the average over the target
    nscc.on_sack(1_000, MTU, BASE + 18_000, True, 0, False)
    assert nscc.cwnd == 100_000


def test_fast_increase_after_a_window_without_delay() -> None:
    nscc = settled()
    for step in range(6):
        nscc.on_sack(1_000 + step, 20_000, BASE, False, 0, False)
    assert nscc.fast_mode
    before = nscc.cwnd
    nscc.on_sack(2_000, 20_000, BASE, False, 0, False)
    assert nscc.case is Case.FAST
    assert nscc.cwnd == pytest.approx(before + 20_000 * 0.25)
    nscc.on_sack(2_001, MTU, BASE + 5_000, False, 0, False)
    assert not nscc.fast_mode


def test_window_never_exceeds_its_maximum() -> None:
    nscc = make()
    for step in range(100):
        nscc.on_sack(step * BASE, 50_000, BASE, False, 0, False)
    assert nscc.cwnd == nscc.max_wnd


def test_base_rtt_follows_smaller_samples_and_moves_the_target() -> None:
    nscc = settled()
    nscc.on_sack(1_000, MTU, 8_000, False, 0, False)
    assert nscc.base_rtt_ns == 8_000
    assert nscc.target_ns == 6_000
    assert nscc.qdelay_ns == 0


def test_trim_costs_its_bytes() -> None:
    nscc = settled()
    nscc.on_trim(1_000, MTU)
    assert nscc.cwnd == 100_000 - MTU


def test_quick_adapt_after_trims_falls_to_what_was_achieved() -> None:
    nscc = settled()
    interval = BASE + 9_000
    nscc.on_sack(1_000, 12_000, 0, False, 0, False)
    nscc.on_trim(2_000, MTU)
    nscc.inflight = 60_000 - 256
    nscc.on_sack(interval, 256, 0, True, 0, False)
    assert nscc.case is Case.QUICK_ADAPT
    assert nscc.cwnd == 12_256
    # Marked feedback of what was in flight is ignored, the first after it is not.
    nscc.on_sack(interval + 1, 59_743, BASE + 50_000, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.IGNORED, 12_256)
    nscc.on_sack(interval + 2, 1, BASE + 50_000, True, 0, False)
    assert nscc.case is Case.IGNORED
    nscc.on_sack(interval + 3, MTU, BASE + 50_000, True, 0, False)
    assert nscc.case is Case.DECREASE


def test_no_quick_adapt_when_enough_was_achieved() -> None:
    nscc = settled()
    nscc.on_trim(1_000, MTU)
    nscc.on_sack(BASE + 9_000, int(nscc.qa_gate_bytes), 0, False, 0, False)
    assert nscc.cwnd == 100_000 - MTU


def test_no_quick_adapt_by_an_interval_of_silence() -> None:
    nscc = settled()
    interval = BASE + 9_000
    # The sender was idle for many intervals; the first packets of a new burst are trimmed.
    nscc.on_trim(10 * interval, MTU)
    assert nscc.cwnd == 100_000 - MTU
    nscc.on_sack(10 * interval + 100, 2_000, 0, False, 0, False)
    assert nscc.cwnd == 100_000 - MTU
    # From here on an interval counts: trimmed, and little achieved.
    nscc.on_trim(10 * interval + 200, MTU)
    nscc.on_sack(11 * interval + 200, 1_000, 0, False, 0, False)
    assert nscc.case is Case.QUICK_ADAPT


def test_quick_adapt_without_trimming_goes_by_delay() -> None:
    nscc = settled(trimming=False)
    late = BASE + 4 * 12_000 + 1
    nscc.on_sack(BASE + 12_000, 10_000, late, False, 0, False)
    assert nscc.case is Case.QUICK_ADAPT
    assert nscc.cwnd == 10_000
    trimming = settled()
    trimming.on_sack(BASE + 9_000, 10_000, late, False, 0, False)
    assert trimming.case is Case.FAIR


def test_loss_costs_its_bytes_with_a_floor_of_one_mtu() -> None:
    nscc = settled()
    nscc.on_loss(1_000, MTU)
    assert nscc.cwnd == 100_000 - MTU
    for _ in range(100):
        nscc.on_loss(1_000, MTU)
    assert nscc.cwnd == MTU


def test_receiver_penalty_shrinks_and_is_restored() -> None:
    nscc = settled()
    nscc.inflight = inflight = 80_000 - 12_800
    nscc.on_sack(1_000, 12_800, BASE, False, 64, True)
    assert nscc.case is Case.PENALTY
    assert nscc.cwnd == pytest.approx(inflight - 64 * 12_800 / 128)
    low = nscc.cwnd
    nscc.on_sack(1_100, 12_800, BASE, False, 1, True)
    assert nscc.cwnd < low  # no increase while it lasts
    nscc.on_sack(1_200, 0, 0, False, 0, True)
    assert nscc.cwnd == 100_000


def test_receiver_penalty_without_restore_leaves_the_window_low() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 12_800, BASE, False, 64, False)
    low = nscc.cwnd
    nscc.on_sack(1_200, 0, 0, False, 0, False)
    assert nscc.cwnd == low


def test_penalty_floor_is_one_mtu() -> None:
    nscc = settled()
    for step in range(40):
        nscc.on_sack(1_000 + step, 12_800, BASE, False, 127, False)
    assert nscc.cwnd == MTU


def test_fixed_window_is_fixed() -> None:
    window = cc.make(CcConfig(algorithm=CcAlgorithm.FIXED, fixed_window_bytes=50_000), MTU)
    window.inflight = 10_000
    window.on_sack(0, 4_000, BASE, True, 100, True)
    window.on_loss(0, 1_000)
    window.on_trim(0, 1_000)
    assert (window.cwnd, window.inflight) == (50_000, 10_000)  # the account is not the controller's


STEP = st.tuples(
    st.sampled_from(("sack", "trim", "loss")),
    st.integers(0, 40_000),
    st.integers(0, 200_000),
    st.booleans(),
    st.integers(0, 127),
)


@given(st.lists(STEP, max_size=200), st.booleans())
def test_window_stays_between_one_mtu_and_the_maximum(
    steps: list[tuple[str, int, int, bool, int]], trims: bool
) -> None:
    nscc = make(trimming=trims)
    now = 0
    for what, size, rtt, ce, penalty in steps:
        now += rtt // 3
        if what == "sack":
            nscc.on_sack(now, size, rtt, ce, penalty if penalty > 110 else 0, ce)
        elif what == "trim":
            nscc.on_trim(now, size)
        else:
            nscc.on_loss(now, size)
        assert MTU <= nscc.cwnd <= nscc.max_wnd
        assert nscc.target_ns >= 1
