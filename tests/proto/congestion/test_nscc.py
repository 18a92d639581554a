"""NSCC against the rules of `mrc-protocol.md §8`, one rule per test; numbers computed by hand from the rules.

The last part holds whole traces against `support.proto.nscc_reference`, the pseudocode of UET 1.0 written out.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.proto.congestion.nscc import Case, FixedConfig, Nscc, NsccConfig
from mrc_host.proto.limits import ConfigError
from support.proto.nscc_reference import Parameters, Reference

MTU = 4000
BASE = 12_000
# 100 Gb/s and 12 us are the reference of the rules: a = 1; BDP = 150 000 bytes.
BDP = 150_000


def make(**changes: object) -> Nscc:
    return Nscc(NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=BASE, **changes), MTU)  # type: ignore[arg-type]


def settled(**changes: object) -> Nscc:
    """Return a controller in its first quick-adapt interval, below half its maximum."""
    nscc = make(initial_cwnd_bytes=100_000, **changes)
    nscc.on_sack(0, 0, BASE, False, 0, False)
    nscc.inflight = 80_000
    return nscc


def test_parameters_have_their_reference_values() -> None:
    nscc = make()
    assert nscc.max_wnd == nscc.cwnd == 1.5 * BDP
    assert nscc.target_ns == 9_000  # 0.75 base_rtt with trimming
    assert make(trimming=False).target_ns == 12_000
    assert nscc.fi == 5 * MTU
    assert nscc.fi_scale == 0.25
    assert nscc.eta == 0.15 * MTU
    assert nscc.alpha == pytest.approx(4 * MTU * 0.75 / 9_000)
    assert nscc.adjust_bytes == 8 * MTU
    assert nscc.adjust_period_ns == BASE
    assert nscc.qa_threshold_ns > 10**15  # where switches trim, delay never triggers quick adapt
    assert make(trimming=False).qa_threshold_ns == 4 * BASE


def test_parameters_scale_with_the_bdp() -> None:
    nscc = Nscc(NsccConfig(line_rate_bps=400_000_000_000, base_rtt_ns=6_000), MTU)
    assert nscc.max_wnd == 1.5 * 300_000
    assert nscc.fi == 5 * MTU * 2
    assert nscc.alpha == pytest.approx(4 * MTU * 2 * (4_500 / 12_000) / 4_500)


def test_a_network_a_thousand_times_slower_does_not_open_the_window_at_once() -> None:
    """The factor b of alpha is at most 4: with 750, one window of samples 1 % below the target added 30 packets."""
    nscc = NsccConfig(line_rate_bps=100_000_000, base_rtt_ns=12_000_000).controller(MTU)
    assert nscc.alpha * nscc.target_ns == pytest.approx(4 * MTU * 4)  # bytes in a round trip without delay
    just_below = NsccConfig(base_rtt_ns=4 * 16_000).controller(MTU)  # b = 4: still the formula of UET 1.0
    assert just_below.alpha == pytest.approx(4 * MTU * (64 / 12) * 4 / 48_000)


def test_no_ce_below_target_increases_in_proportion_to_the_headroom() -> None:
    nscc = settled()
    rtt = BASE + 4_500  # half the target
    newly = 8 * MTU + 1
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
    assert nscc.cwnd == before  # the threshold must be exceeded
    nscc.on_sack(BASE + 30, 1, BASE + 4_500, False, 0, False)
    assert nscc.cwnd > before


def test_eta_is_added_once_per_period() -> None:
    nscc = settled()
    nscc.on_sack(BASE, 0, BASE + nscc.target_ns - 1, False, 0, False)
    assert nscc.cwnd == pytest.approx(100_000 + nscc.eta)
    nscc.on_sack(BASE + 1, 9 * MTU, BASE + nscc.target_ns - 1, False, 0, False)
    assert nscc.cwnd < 100_000 + 2 * nscc.eta


def test_eta_comes_whatever_the_marks_say() -> None:
    nscc = settled()
    nscc.on_sack(BASE, 0, BASE + 8_999, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.HOLD, pytest.approx(100_000 + nscc.eta))


def test_no_ce_at_target_increases_fairly() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 9 * MTU, BASE + 9_000, False, 0, False)
    assert nscc.case is Case.FAIR
    assert nscc.cwnd == pytest.approx(100_000 + 9 * MTU * 5 * MTU / 100_000)


def test_ce_below_target_does_nothing() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 8 * MTU, BASE + 8_999, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.HOLD, 100_000)


def test_ce_at_target_decreases_once_per_base_rtt() -> None:
    nscc = settled(delay_gain=1.0, eta=0.0)  # the average is the sample
    delay = 18_000
    first = BASE + 1  # not within a base RTT of the start
    nscc.on_sack(BASE, MTU, BASE + delay, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.DECREASE, 100_000)
    nscc.on_sack(first, MTU, BASE + delay, True, 0, False)
    assert nscc.cwnd == pytest.approx(100_000 * (1 - 0.8 * (delay - 9_000) / delay))
    after = nscc.cwnd
    nscc.on_sack(first + BASE, MTU, BASE + delay, True, 0, False)
    assert nscc.cwnd == after
    nscc.on_sack(first + BASE + 1, MTU, BASE + delay, True, 0, False)
    assert nscc.cwnd < after


def test_one_decrease_never_exceeds_the_maximum_jump() -> None:
    nscc = settled(delay_gain=1.0, eta=0.0)
    nscc.on_sack(BASE + 1, MTU, BASE + 10_000_000, True, 0, False)
    assert nscc.cwnd == pytest.approx(50_000)


def test_decrease_goes_by_the_average_delay() -> None:
    nscc = settled(eta=0.0)  # gain 0.0125: one high sample does not lift the average over the target
    nscc.on_sack(BASE + 1, MTU, BASE + 18_000, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.DECREASE, 100_000)


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


@pytest.mark.parametrize(("delay", "marked"), [(18_000, True), (5_000, False)])
def test_a_delay_begins_the_window_without_one_afresh(delay: int, marked: bool) -> None:
    nscc = settled()
    for rtt, ce, newly in ((BASE, False, 80_000), (BASE + delay, marked, MTU), (BASE, False, 60_000)):
        nscc.on_sack(1_000, newly, rtt, ce, 0, False)
    assert nscc.case is Case.PROPORTIONAL


def test_window_never_exceeds_its_maximum() -> None:
    nscc = make()
    for step in range(100):
        nscc.on_sack(step * BASE, 50_000, BASE, False, 0, False)
    assert nscc.cwnd == nscc.max_wnd


def test_base_rtt_follows_smaller_samples_and_moves_the_largest_window() -> None:
    nscc = make()
    nscc.on_sack(1_000, MTU, 3_000, False, 0, False)
    assert nscc.base_rtt_ns == 3_000
    assert nscc.max_wnd == 56_250  # 1.5 * 12.5 bytes/ns * 3 us
    assert nscc.target_ns == 9_000  # a parameter: of the configured base RTT
    assert nscc.qdelay_ns == 0
    nscc.on_sack(BASE, MTU, 3_000, False, 0, False)
    assert nscc.cwnd == 56_250
    fixed = make(max_wnd_bytes=100_000)
    fixed.on_sack(1_000, MTU, 3_000, False, 0, False)
    assert fixed.max_wnd == 100_000  # a configured maximum is one


def test_a_short_packet_says_nothing_about_the_base_rtt() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 256, 3_000, False, 0, False, whole=False)
    assert (nscc.base_rtt_ns, nscc.qdelay_ns, nscc.max_wnd) == (BASE, 0, 1.5 * BDP)
    assert nscc.rtt_ns == 3_000


def test_trim_costs_its_bytes() -> None:
    nscc = settled()
    nscc.on_trim(1_000, MTU)
    assert nscc.cwnd == 100_000 - MTU


def test_quick_adapt_after_trims_falls_to_what_was_achieved() -> None:
    nscc = settled()
    interval = BASE + 9_000
    nscc.on_sack(1_000, 12_000, 0, False, 0, False)
    nscc.on_trim(2_000, MTU)
    nscc.inflight = 60_000
    nscc.on_sack(interval, 256, BASE, True, 0, False)
    assert nscc.case is Case.QUICK_ADAPT
    assert nscc.cwnd == 12_256
    # Marked feedback of what was in flight is ignored, the first after it is not.
    nscc.on_sack(interval + 1, 59_999, BASE + 50_000, True, 0, False)
    assert (nscc.case, nscc.cwnd) == (Case.IGNORED, 12_256)
    nscc.on_sack(interval + 2, 1, BASE + 50_000, True, 0, False)
    assert nscc.case is Case.DECREASE


def test_a_trim_at_the_end_of_an_interval_adapts_at_once() -> None:
    nscc = settled()
    nscc.on_sack(1_000, 12_000, 0, False, 0, False)
    nscc.on_trim(BASE + 9_000, MTU)
    assert (nscc.case, nscc.cwnd) == (Case.QUICK_ADAPT, 12_000)


def test_unmarked_feedback_uses_up_what_quick_adapt_ignores() -> None:
    nscc = settled()
    interval = BASE + 9_000
    nscc.on_sack(1_000, 12_000, 0, False, 0, False)
    nscc.on_trim(2_000, MTU)
    nscc.on_sack(interval, 256, BASE, True, 0, False)
    assert nscc.case is Case.QUICK_ADAPT
    for step in range(100):  # all that was in flight then, and much more
        nscc.on_sack(interval + 1 + step, MTU, BASE, False, 0, False)
    nscc.on_sack(interval + 200, MTU, BASE + 50_000, True, 0, False)
    assert nscc.case is Case.DECREASE


def test_losses_and_trims_use_up_what_quick_adapt_ignores() -> None:
    nscc = settled()
    interval = BASE + 9_000
    nscc.on_trim(2_000, MTU)
    nscc.inflight = 2 * MTU
    nscc.on_sack(interval, 0, BASE, True, 0, False)
    assert nscc.case is Case.QUICK_ADAPT
    nscc.on_trim(interval + 1, MTU)
    assert nscc.case is Case.IGNORED
    nscc.on_loss(interval + 2, MTU)
    nscc.on_sack(interval + 3, MTU, BASE + 50_000, True, 0, False)
    assert nscc.case is Case.DECREASE


def test_a_trim_is_remembered_until_quick_adapt_answers_it() -> None:
    nscc = settled()
    interval = BASE + 9_000
    nscc.on_trim(1_000, MTU)
    nscc.on_sack(interval, 100_000, BASE, False, 0, False)  # enough achieved in this interval
    assert nscc.case is not Case.QUICK_ADAPT
    nscc.on_sack(2 * interval, MTU, BASE, False, 0, False)  # not in the next one
    assert nscc.case is Case.QUICK_ADAPT


def test_quick_adapt_can_be_switched_off() -> None:
    nscc = settled(disable_qa=True)
    for step in range(10):
        nscc.on_trim(step * 5_000, 1)
        nscc.on_sack(step * 5_000 + 1, 0, BASE + 8_000, True, 0, False)
        assert nscc.case is Case.HOLD


def test_no_quick_adapt_when_enough_was_achieved() -> None:
    nscc = settled(eta=0.0)
    nscc.on_trim(1_000, MTU)
    nscc.on_sack(BASE + 9_000, 225_000 >> 3, BASE + 8_999, True, 0, False)
    assert nscc.cwnd == 100_000 - MTU
    other = settled(eta=0.0, qa_gate=2)
    other.on_trim(1_000, MTU)
    other.on_sack(BASE + 9_000, 225_000 >> 3, BASE + 8_999, True, 0, False)
    assert other.cwnd == 225_000 >> 3


def test_no_quick_adapt_by_an_interval_of_silence() -> None:
    nscc = settled(eta=0.0)
    interval = BASE + 9_000
    # The sender was idle for many intervals; the first packets of a new burst are trimmed.
    nscc.on_trim(10 * interval, MTU)
    assert nscc.cwnd == 100_000 - MTU
    nscc.on_sack(10 * interval + 100, 2_000, BASE + 8_999, True, 0, False)
    assert nscc.cwnd == 100_000 - MTU
    # From here on an interval counts: trimmed, and little achieved.
    nscc.on_trim(10 * interval + 200, MTU)
    nscc.on_sack(11 * interval + 200, 1_000, BASE, False, 0, False)
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
    told = settled(qa_threshold_ns=4 * 12_000)
    told.on_sack(BASE + 9_000, 10_000, late, False, 0, False)
    assert told.case is Case.QUICK_ADAPT


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


def test_receiver_penalty_takes_away_increases_only() -> None:
    """A destination in trouble does not excuse the network's congestion: 400 us of CE at five times the target."""
    windows = {}
    for penalty in (0, 1):
        nscc = make()
        for step in range(400):
            nscc.inflight = max(int(nscc.cwnd) - MTU, MTU)
            nscc.on_sack(step * 1_000, MTU, BASE + 45_000, True, penalty, False)
        windows[penalty] = nscc.cwnd
    assert windows[0] < 2 * MTU
    assert windows[1] <= windows[0]
    quick = settled()
    quick.on_trim(1_000, MTU)
    quick.on_sack(BASE + 9_000, 5_000, BASE, True, 1, False)
    assert quick.case is Case.QUICK_ADAPT


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
    window = FixedConfig(fixed_window_bytes=50_000).controller(MTU)
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fi": -1.0}, "cc.fi is -1.0"),
        ({"eta": 1e13}, "cc.eta"),
        ({"adjust_period_threshold_ns": 0}, "cc.adjust_period_threshold_ns is 0"),
        ({"adjust_bytes_threshold": -1}, "cc.adjust_bytes_threshold is -1"),
        ({"qa_threshold_ns": -5}, "cc.qa_threshold_ns is -5"),
        ({"target_qdelay_ns": 0}, "cc.target_qdelay_ns is 0"),
        ({"max_wnd_bytes": 0}, "cc.max_wnd_bytes is 0"),
        ({"disable_qa": "no"}, "cc.disable_qa is no"),
    ],
)
def test_settings_out_of_range_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NsccConfig(**changes)  # type: ignore[arg-type]


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
        assert MTU <= nscc.cwnd <= 1.5 * BDP
        assert MTU <= nscc.max_wnd <= 1.5 * BDP


# --- whole traces against the pseudocode ---

DELAYS = st.sampled_from((-2_000, 0, 300, 999, 1_000, 4_500, 8_999, 9_000, 12_000, 20_000, 45_000, 50_000))
EVENT = st.tuples(
    st.sampled_from(("ack", "ack", "ack", "ack", "send", "send", "trim", "loss", "refuse", "blind")),
    st.sampled_from((0, 1, 700, 1_000, 3_000, 12_000, 12_001, 21_000, 30_000)),  # time since the last event
    st.sampled_from((0, 256, MTU, MTU, 3 * MTU, 33_000)),  # bytes
    DELAYS,
    st.booleans(),  # marked
    st.sampled_from((0, 0, 0, 0, 1, 64, 127)),
    st.booleans(),  # restore
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "disable_qa": st.just(True),
        "qa_gate": st.integers(0, 5),
        "qa_threshold_ns": st.sampled_from((0, 10_000, 40_000)),
        "fi": st.sampled_from((0.0, 100.0, 80_000.0)),
        "fi_scale": st.sampled_from((0.0, 1.0)),
        "eta": st.sampled_from((0.0, 5_000.0)),
        "gamma": st.sampled_from((0.0, 0.3)),
        "max_md_jump": st.sampled_from((0.0, 0.9)),
        "target_qdelay_ns": st.sampled_from((1, 2_000, 30_000)),
        "adjust_bytes_threshold": st.sampled_from((0, MTU, 100_000)),
        "adjust_period_threshold_ns": st.sampled_from((1, 1_000, 100_000)),
        "delay_gain": st.sampled_from((0.5, 1.0)),
    },
)
SPELT: dict[str, str] = {
    "disable_qa": "disable_quick_adapt",
    "qa_threshold_ns": "qa_threshold",
    "target_qdelay_ns": "target_qdelay",
    "adjust_period_threshold_ns": "adjust_period_threshold",
}


@settings(max_examples=400)
@given(st.lists(EVENT, max_size=120), st.booleans(), OPTIONS, st.sampled_from((1e9, 100e9, 400e9)))
def test_traces_are_those_of_the_pseudocode(
    events: list[tuple[str, int, int, int, bool, int, bool]], trims: bool, options: dict[str, object], rate: float
) -> None:
    nscc = Nscc(NsccConfig(line_rate_bps=int(rate), base_rtt_ns=BASE, trimming=trims, **options), MTU)  # type: ignore[arg-type]
    parameters = Parameters.default(MTU, rate, BASE, trims)
    for name, value in options.items():
        setattr(parameters, SPELT.get(name, name), value)
    if "target_qdelay_ns" in options:
        target = parameters.target_qdelay
        parameters.near_zero = max(1_000, target // 16)
        if not trims and "qa_threshold_ns" not in options:
            parameters.qa_threshold = 4 * target
    reference = Reference(parameters)
    if rate < 2e9:  # 1.5 BDP is less than a packet: no window is
        reference.max_wnd = reference.cwnd = max(reference.max_wnd, MTU)
    now = 0
    for what, passed, size, delay, marked, penalty, restore in events:
        now += passed
        nscc.inflight += 10 * size if what == "send" else -size  # its owner's part, before the controller hears of it
        if what == "ack":
            nscc.on_sack(now, size, BASE + delay, marked, penalty, restore)
            reference.on_ack(now, size, marked, BASE + delay, penalty, restore)
        elif what == "blind":
            nscc.on_sack(now, size, 0, marked, penalty, restore)
            reference.on_ack(now, size, marked, 0, penalty, restore)
        elif what == "trim":
            nscc.on_trim(now, size)
            reference.on_trimmed(now, size)
        elif what == "loss":
            nscc.on_loss(now, size)
            reference.on_inferred_loss(size)
        elif what == "refuse":
            reference.on_other_nack(size)
        else:
            reference.on_send(10 * size)
        assert nscc.cwnd == pytest.approx(reference.cwnd, rel=1e-9), (now, what)
        assert nscc.max_wnd == pytest.approx(reference.max_wnd)
        assert nscc.inflight == reference.inflight
        assert nscc.base_rtt_ns == reference.base_rtt
