"""NSCC as a whole: mixed feedback, and the number of packets that leave after each of it.

The model is written from UET 1.0, 3.6.13, and from what mrc-protocol.md §8 says where those rules leave something open.
It counts what is in flight as well, so that each packet more or less is seen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Control, Need, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Packet

_BASE_NS = 20_000
_RATE_BPS = 10_000_000_000
_MTU = 1024
_SIZE = 8 + 12 + 4 + 4 + 16 + _MTU + 4 + 40  # with TSETH
_UNIT = 256
_STEPS = 40


class _Nscc:
    """The window of one destination, bytes; times are ns."""

    def __init__(self, profile: Mapping[str, float], *, trims: bool) -> None:
        bdp = _RATE_BPS / 8 * _BASE_NS / 1e9
        a = bdp / (100e9 / 8 * 12e-6)
        get = profile.get
        self.base = _BASE_NS
        self.fixed_maximum = "max_wnd_bytes" in profile
        self.maximum = max(float(get("max_wnd_bytes", 1.5 * bdp)), _SIZE)
        self.maximum_per_ns = self.maximum / self.base
        self.cwnd = min(max(float(get("initial_cwnd_bytes", self.maximum)), _SIZE), self.maximum)
        self.target = get("target_qdelay_ns", int((0.75 if trims else 1.0) * self.base))
        self.near_zero = max(1000, self.target // 16)
        self.alpha = 4 * _SIZE * a * min(self.target / 12_000, 4.0) / self.target
        self.fair = get("fi", 5 * _SIZE * a)
        self.fast = get("fi_scale", 0.25 * a)
        self.eta = get("eta", 0.15 * _SIZE * a)
        self.gamma, self.most = get("gamma", 0.8), get("max_md_jump", 0.5)
        self.gain = get("delay_gain", 0.0125)
        self.adapts = not get("disable_qa", False)
        self.gate = int(get("qa_gate", 3))
        self.severe = get("qa_threshold_ns", 1 << 62 if trims else 4 * self.target)
        self.some_bytes = get("adjust_bytes_threshold", 8 * _SIZE)
        self.period = get("adjust_period_threshold_ns", self.base)
        self.average = self.pending = self.saved = 0.0
        self.received = self.achieved = self.quiet = self.seen = self.to_ignore = 0
        self.adjusted = self.decreased = 0
        self.interval_end = 0.0
        self.growing = self.trimmed = False

    def sack(self, now: int, newly: int, rtt: int, inflight: int, *, ce: bool, penalty: int, restore: bool) -> None:
        self.seen += newly
        self.received += newly
        self.achieved += newly
        if penalty:
            self.saved = self.saved or self.cwnd
            self.cwnd = max(min(self.cwnd, inflight) - penalty * newly // 128, _SIZE)
        elif self.saved and restore:
            self.cwnd, self.saved = self.saved, 0.0
        if not rtt:
            return
        if rtt < self.base:
            self.base = rtt
            if not self.fixed_maximum:
                self.maximum = max(self.maximum_per_ns * rtt, _SIZE)
        delay = rtt - self.base
        self.average += (delay - self.average) * self.gain
        if self._adapt(now, inflight, ce=ce, congested=delay > self.severe):
            return
        if ce and delay >= self.target:
            self.growing, self.quiet = False, 0
            if self.average > self.target and now - self.decreased > self.base:
                self.decreased = now
                share = max(1 - self.gamma * (self.average - self.target) / self.average, self.most)
                self.cwnd = max(self.cwnd * share, _SIZE)
        elif not ce and not penalty:
            self._grow(newly, delay)
        if self.received > self.some_bytes or now - self.adjusted >= self.period:
            self.cwnd += self.pending / self.cwnd
            self.pending, self.received = 0.0, 0
            if now - self.adjusted >= self.period:
                self.cwnd += self.eta
                self.adjusted = now
            self.cwnd = min(self.cwnd, self.maximum)

    def _grow(self, newly: int, delay: int) -> None:
        if delay >= self.target:
            self.pending += newly * self.fair
            return
        was, self.growing = self.growing, False
        self.quiet = 0 if delay >= self.near_zero else self.quiet + newly
        if delay < self.near_zero and (was or self.quiet > self.cwnd):
            self.growing = True
            self.cwnd = min(self.cwnd + newly * self.fast, self.maximum)
        else:
            self.pending += newly * self.alpha * (self.target - delay)

    def _adapt(self, now: int, inflight: int, *, ce: bool, congested: bool) -> bool:
        if not self.adapts:
            return False
        done = False
        if ce and self.seen < self.to_ignore:
            done = True
        elif now >= self.interval_end:
            length = self.base + self.target
            fresh = self.interval_end > 0 and now < self.interval_end + length
            if fresh and (congested or self.trimmed) and self.achieved < int(self.maximum) >> self.gate:
                self.cwnd = max(self.achieved, _SIZE)
                self.to_ignore, self.seen, self.trimmed, done = inflight, 0, False, True
            self.achieved, self.interval_end = 0, now + length
        if done:
            self.pending, self.received = 0.0, 0
        return done

    def trim(self, now: int, inflight: int) -> None:
        self.average += (_BASE_NS - self.average) * self.gain
        self.seen += _SIZE
        self.trimmed = True
        if not self._adapt(now, inflight, ce=True, congested=True):
            self.cwnd = max(self.cwnd - _SIZE, _SIZE)


class _Flow:
    """The device's packets, all full, and what the model says is in flight."""

    def __init__(self, c: Script, model: _Nscc) -> None:
        self.c, self.model = c, model
        self.sent: list[Packet] = []  # the present transmission of each packet
        self.acked = self.units = self.total = self.lost = 0
        self.dropped: set[int] = set()  # those that were trimmed and not sent again yet
        c.post(4000 * _MTU)
        self.take()

    def in_flight(self, more: int = 0) -> int:
        """Return the bytes in flight, if so many packets more leave."""
        arrived = max(self.units * _UNIT, self.acked * _SIZE)
        return max(0, self.total + more * _SIZE - self.lost - arrived)

    def take(self) -> None:
        """Check that as many packets leave as the window lets pass."""
        expected = 0
        while self.in_flight(expected) <= 0 or self.in_flight(expected) + _SIZE <= self.model.cwnd:
            expected += 1
        packets = self.c.drain()
        text = f"{len(packets)} packets left; {expected} fit a window of {self.model.cwnd:,.0f} bytes"
        self.c.check(len(packets) == expected, text)
        for packet in packets:
            index = packet["psn"] - self.c.tx(0) & 0xFFFFFF
            self.dropped.discard(index)
            self.sent[index : index + 1] = [packet]
            self.total += packet.size

    def answer(self, upto: int, rtt: bool, **changes: int) -> None:
        packet = self.sent[upto]
        stamp = packet["tx_timestamp"] ^ (0 if rtt else 0x4000)
        sample = self.c.now - packet.at_ns if rtt else 0
        found = {index for index in self.dropped if index <= upto}
        self.lost -= _SIZE * len(found)
        self.dropped -= found
        self.acked = upto + 1
        units = -(-self.acked * _SIZE // _UNIT)
        newly = (min(units, -(-self.total // _UNIT)) - self.units) * _UNIT
        self.units += newly // _UNIT
        penalty, restore = changes.get("rcv_cwnd_pen", 0), bool(changes.get("restore_cwnd", 0))
        marked = changes.get("m", 0) == 1
        flight = self.in_flight()
        self.model.sack(self.c.now, newly, sample, flight, ce=marked, penalty=penalty, restore=restore)
        self.c.sack(packet, upto, tx_timestamp=stamp, **changes)
        self.take()

    def trim(self, index: int) -> None:
        self.lost += _SIZE
        self.dropped.add(index)
        self.model.trim(self.c.now, self.in_flight())
        self.c.nack(self.sent[index], NackReason.TRIMMED_LASTHOP)
        self.take()


def _mixed(c: Script, seed: int, delays: tuple[int, int], marks: float, trims: float, penalties: float) -> None:
    draw = random.Random(seed)
    flow = _Flow(c, _Nscc(c.settings.nscc, trims=c.settings.fabric_trims))
    for _ in range(_STEPS):
        c.advance(draw.randrange(*delays) // 128 * 128)
        first, last = flow.acked, len(flow.sent) - 1
        whole = [index for index in range(first, last + 1) if index not in flow.dropped and not flow.sent[index]["rtx"]]
        if not whole:
            flow.answer(last, rtt=False)
            continue
        changes: dict[str, int] = {}
        if draw.random() < penalties:
            changes = {"rcv_cwnd_pen": draw.randrange(20, 128)} if draw.random() < 0.7 else {"restore_cwnd": 1}
        if draw.random() < trims:
            flow.trim(draw.choice(whole[len(whole) // 2 :]))
            whole = [index for index in whole if index not in flow.dropped]
        if draw.random() < marks:
            changes["m"] = 1
        if whole:
            place = min(len(whole) - 1, draw.randrange(1 + len(whole) * 3 // 4))
            flow.answer(whole[place], rtt=draw.random() < 0.9, **changes)


_LONG, _SHORT, _NONE = (4_000, 60_000), (1_000, 14_000), (19_000, 22_000)
_PROFILE: dict[str, float] = {
    "target_qdelay_ns": 9_000, "max_wnd_bytes": 50_000, "initial_cwnd_bytes": 25_000, "gamma": 0.6,
    "max_md_jump": 0.7, "qa_gate": 2, "qa_threshold_ns": 12_000, "fi": 900.0, "fi_scale": 0.4, "eta": 700.0,
    "adjust_bytes_threshold": 3_000, "adjust_period_threshold_ns": 15_000, "delay_gain": 0.6,
}  # fmt: skip
#: Of each: what it is about, the profile, whether switches trim, the time from one answer to the next, and the shares
#: of marked answers, trims, and answers with a penalty.
_MIXES: Mapping[str, tuple[str, dict[str, float], bool, tuple[int, int], float, float, float]] = {
    "increase": ("unmarked answers", {"initial_cwnd_bytes": 20_000}, True, _SHORT, 0, 0, 0),
    "fast": ("answers without delay", {"initial_cwnd_bytes": 5_000, "max_wnd_bytes": 60_000}, True, _NONE, 0, 0, 0),
    "decrease": ("marked answers", {"delay_gain": 0.5}, True, _SHORT, 0.5, 0, 0),
    "trims": ("trims", {"initial_cwnd_bytes": 30_000, "delay_gain": 0.2}, True, _SHORT, 0.3, 0.3, 0),
    "no-adapt": ("trims without quick adapt", {"disable_qa": True, "delay_gain": 0.2}, True, _SHORT, 0.3, 0.3, 0),
    "untrimmed": ("delay in a fabric that does not trim", {"delay_gain": 0.3}, False, _LONG, 0.3, 0, 0),
    "penalty": ("penalties of the receiver", {"delay_gain": 0.3}, True, _SHORT, 0.2, 0, 0.4),
    "gate": ("trims with a wide gate", {"qa_gate": 0, "delay_gain": 0.2}, True, _SHORT, 0.3, 0.4, 0),
    "changing": (
        "delay that comes and goes",
        {"initial_cwnd_bytes": 6_000, "max_wnd_bytes": 60_000, "delay_gain": 1.0}, True, (12_000, 50_000), 0.3, 0.1, 0,
    ),
    "profile-delay": ("delay, with a profile that sets everything", _PROFILE, True, _LONG, 0.2, 0, 0),
    "profile": ("mixed feedback, with a profile that sets everything", _PROFILE, True, _SHORT, 0.3, 0.2, 0.2),
    "slow": ("long silence between answers", {"delay_gain": 1.0}, True, _LONG, 0.5, 0.3, 0.2),
}  # fmt: skip


for _name, (_what, _profile, _trims, _delays, _marks, _share, _penalties) in _MIXES.items():
    for _seed in (1, 2):
        case(
            f"nscc-mix-{_name}-{_seed}",
            Area.CONGESTION,
            f"Over {_what} the window is what the rules say after each of them.",
            Basis.UET,
            "3.6.13",
            Need.POST,
            Need.EXACT_TIME,
            settings=Settings(
                planes=1, tail_probe=False, rack_inference=False, same_ev_inference=False, control=Control.NSCC,
                line_rate_bps=_RATE_BPS, base_rtt_ns=_BASE_NS, nscc=_profile, mpr=255, mpr_dest=255,
                fabric_trims=_trims, ev_count=64, ev_active=32, timeout=14, linear_cnt=7, exp_cnt=20,
            ),
        )(
            partial(
                _mixed, seed=_seed, delays=_delays, marks=_marks, trims=_share, penalties=_penalties,
            )
        )  # fmt: skip
