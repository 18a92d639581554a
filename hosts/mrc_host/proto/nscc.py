"""NSCC: the window of one destination, clocked by SACKs (`mrc-protocol.md §8`; rules of UET 1.0).

The names are those of the rules: alpha, fi (fair increase), eta, gamma, qa (quick adapt). Bytes and ns.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from mrc_host.proto.cc import CongestionControl
from mrc_host.proto.config import CcConfig

_REFERENCE_BPS: Final = 100e9
_REFERENCE_RTT_NS: Final = 12_000
_REFERENCE_BDP: Final = _REFERENCE_BPS / 8 * _REFERENCE_RTT_NS / 1e9
# Queueing below this share of the target counts as none at all (fast increase).
_NEAR_ZERO: Final = 1 / 16


class Case(Enum):
    """What the last SACK meant; the four cases of the table, and what comes before them."""

    PROPORTIONAL = "proportional increase"
    FAST = "fast increase"
    FAIR = "fair increase"
    DECREASE = "multiplicative decrease"
    HOLD = "nothing"
    PENALTY = "receiver's penalty"
    IGNORED = "ignored after quick adapt"
    QUICK_ADAPT = "quick adapt"


class Nscc(CongestionControl):
    """See the module's docstring. All parameters derive from `CcConfig` and the MTU."""

    __slots__ = (
        "_a",
        "_achieved",
        "_adjusted_at",
        "_base_fraction",
        "_decreased_at",
        "_fast_bytes",
        "_fixed_target",
        "_ignored",
        "_inc_bytes",
        "_pending_bytes",
        "_qa_end",
        "_qa_triggered",
        "_saved_cwnd",
        "_to_ignore",
        "alpha",
        "avg_qdelay",
        "case",
        "delay_gain",
        "eta",
        "fast_mode",
        "fi",
        "fi_scale",
        "gamma",
        "max_md_jump",
        "qa_gate_bytes",
        "qdelay_ns",
        "target_ns",
        "trimming",
    )

    def __init__(self, config: CcConfig, mtu: int) -> None:
        bdp = config.line_rate_bps / 8 * config.base_rtt_ns / 1e9
        max_wnd = float(config.max_wnd_bytes if config.max_wnd_bytes is not None else 1.5 * bdp)
        max_wnd = max(max_wnd, float(mtu))
        initial = config.initial_cwnd_bytes
        cwnd = max_wnd if initial is None else min(max(float(initial), mtu), max_wnd)
        super().__init__(mtu, config.base_rtt_ns, cwnd, max_wnd)
        self.trimming = config.trimming
        self._a = bdp / _REFERENCE_BDP
        self.fi = 5.0 * mtu * self._a
        self.fi_scale = 0.25 * self._a
        self.eta = 0.15 * mtu * self._a
        self.gamma = config.gamma
        self.max_md_jump = config.max_md_jump
        self.delay_gain = config.delay_gain
        self.qa_gate_bytes = max_wnd / (1 << config.qa_gate)
        self._base_fraction = 0.75 if config.trimming else 1.0
        self._fixed_target = config.target_qdelay_ns
        self._set_target()
        self.case = Case.HOLD
        self.qdelay_ns = 0
        self.avg_qdelay = 0.0
        self._inc_bytes = 0.0
        self._pending_bytes = 0  # acknowledged since the last adjustment
        self._adjusted_at = 0
        self._decreased_at: int | None = None
        self._fast_bytes = 0
        self.fast_mode = False
        self._achieved = 0
        self._qa_end: int | None = None
        self._qa_triggered = False
        self._to_ignore = 0
        self._ignored = 0
        self._saved_cwnd: float | None = None

    def _set_target(self) -> None:
        """target_qdelay and alpha follow the base RTT unless the target is configured."""
        target = self._fixed_target
        self.target_ns = int(self._base_fraction * self.base_rtt_ns) if target is None else target
        self.target_ns = max(self.target_ns, 1)
        b = self.target_ns / _REFERENCE_RTT_NS
        self.alpha = 4.0 * self.mtu * self._a * b / self.target_ns

    def sample(self, rtt_ns: int) -> None:
        """Base RTT (and with it target and alpha), queueing delay and its average."""
        base = self.base_rtt_ns
        self.rtt_ns = rtt_ns
        if rtt_ns < base:
            self.base_rtt_ns = base = rtt_ns
            self._set_target()
        self.srtt_ns += (rtt_ns - self.srtt_ns) >> 3 if self.srtt_ns else rtt_ns
        self.qdelay_ns = qdelay = rtt_ns - base
        self.avg_qdelay += (qdelay - self.avg_qdelay) * self.delay_gain

    def on_sack(self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool) -> None:
        """The table of §8. Without an RTT sample only accounting, penalty and quick adapt apply."""
        self._achieved += newly
        if rtt_ns:
            self.sample(rtt_ns)
        if (penalty or self._saved_cwnd is not None) and self._receiver_penalty(newly, penalty, restore):
            return
        end = self._qa_end
        if (end is None or now >= end) and self._quick_adapt(now):
            return
        if self._ignored < self._to_ignore and ce:
            self._ignored += newly
            self.case = Case.IGNORED
            return
        if not rtt_ns:
            return
        qdelay = self.qdelay_ns
        target = self.target_ns
        if ce:
            self.fast_mode = False
            self._fast_bytes = 0
            if qdelay >= target:
                self._decrease(now)
            else:
                self.case = Case.HOLD
            return
        if qdelay < target:
            if qdelay < target * _NEAR_ZERO:
                self._fast_bytes += newly
                if self._fast_bytes > self.cwnd or self.fast_mode:
                    self.fast_mode = True
                    self.case = Case.FAST
                    cwnd = self.cwnd + newly * self.fi_scale
                    self.cwnd = cwnd if cwnd < self.max_wnd else self.max_wnd
                    return
            else:
                self._fast_bytes = 0
                self.fast_mode = False
            self.case = Case.PROPORTIONAL
            self._inc_bytes += newly * self.alpha * (target - qdelay)
        else:
            self._fast_bytes = 0
            self.fast_mode = False
            self.case = Case.FAIR
            self._inc_bytes += newly * self.fi
        self._pending_bytes += newly
        if self._pending_bytes >= 8 * self.mtu or now - self._adjusted_at >= self.base_rtt_ns:
            self._adjust(now)

    def _adjust(self, now: int) -> None:
        """Apply what increases have accumulated, and eta once per adjust_period (one base RTT)."""
        cwnd = self.cwnd + self._inc_bytes / self.cwnd
        self._inc_bytes = 0.0
        self._pending_bytes = 0
        if now - self._adjusted_at >= self.base_rtt_ns:
            cwnd += self.eta
            self._adjusted_at = now
        self.cwnd = cwnd if cwnd < self.max_wnd else self.max_wnd

    def _decrease(self, now: int) -> None:
        """Multiplicative decrease, at most once per base RTT, by the average delay."""
        self.case = Case.DECREASE
        avg = self.avg_qdelay
        last = self._decreased_at
        if avg <= self.target_ns or (last is not None and now - last < self.base_rtt_ns):
            return
        self._decreased_at = now
        factor = max(1.0 - self.gamma * (avg - self.target_ns) / avg, self.max_md_jump)
        self.cwnd = max(self.cwnd * factor, float(self.mtu))

    def _quick_adapt(self, now: int) -> bool:
        """Once per (base_rtt + target): fall to what was achieved when the network says it is far too much."""
        length = self.base_rtt_ns + self.target_ns
        # An interval that ended long ago was one of silence: what came in then says nothing about the path.
        measured = self._qa_end is not None and now < self._qa_end + length
        congested = self._qa_triggered or (not self.trimming and self.qdelay_ns > 4 * self.target_ns)
        adapted = False
        if measured and congested and self._achieved < self.qa_gate_bytes:
            self.cwnd = max(float(self._achieved), float(self.mtu))
            self._to_ignore = max(self.inflight, 0)
            self._ignored = 0
            self._inc_bytes = 0.0
            self.case = Case.QUICK_ADAPT
            adapted = True
        self._qa_triggered = False
        self._achieved = 0
        self._qa_end = now + length
        return adapted

    def _receiver_penalty(self, newly: int, penalty: int, restore: bool) -> bool:
        """rcv_cwnd_pen: shrink while it lasts, restore afterwards if asked. True while it lasts."""
        if penalty:
            if restore and self._saved_cwnd is None:
                self._saved_cwnd = self.cwnd
            cwnd = min(self.cwnd, float(max(self.inflight, 0))) - penalty * newly / 128
            self.cwnd = max(cwnd, float(self.mtu))
            self._inc_bytes = 0.0
            self.case = Case.PENALTY
            return True
        if restore and self._saved_cwnd is not None:
            self.cwnd = max(self.cwnd, self._saved_cwnd)
        self._saved_cwnd = None
        return False

    def on_trim(self, now: int, size: int) -> None:
        """NACK TRIMMED or TRIMMED_LASTHOP: trigger quick adapt, else give the packet's bytes back."""
        self._qa_triggered = True
        if self._qa_end is not None and now >= self._qa_end and self._quick_adapt(now):
            return
        if self._ignored < self._to_ignore:
            self._ignored += size
            return
        self._shrink(size)

    def on_loss(self, now: int, size: int) -> None:
        """Inferred loss: cwnd loses the packet's bytes, as inflight did."""
        self._shrink(size)

    def _shrink(self, size: int) -> None:
        self.fast_mode = False
        self._fast_bytes = 0
        self.cwnd = max(self.cwnd - size, float(self.mtu))

    def snapshot(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        return {
            **super().snapshot(),
            "qdelay_ns": self.qdelay_ns,
            "target_qdelay_ns": self.target_ns,
            "case": self.case.value,
        }
