"""NSCC: the window of one destination, clocked by SACKs (`mrc-protocol.md §8`; rules of UET 1.0, 3.6.13).

The names are those of the rules: alpha, fi (fair increase), eta, gamma, qa (quick adapt). Bytes and ns. Where the
rules leave something open, the module follows `mrc-protocol.md §8`, "Ours".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mypy_extensions import mypyc_attr

from mrc_host.proto.congestion.base import CcConfig, register
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.limits import ConfigError, check_range
from mrc_host.proto.statistics import NsccStatistics

_REFERENCE_BPS: Final = 100e9
_REFERENCE_RTT_NS: Final = 12_000
_REFERENCE_BDP: Final = _REFERENCE_BPS / 8 * _REFERENCE_RTT_NS / 1e9
# What counts as no queueing at all (fast increase): less than a microsecond, or than this share of the target.
_NEAR_ZERO_NS: Final = 1_000
_NEAR_ZERO_SHARE: Final = 16
_NEVER: Final = 1 << 62
# Ours: at most this factor b. It is 0.75 in the reference network and grows with the target delay, so in a lab that
# runs a thousand times slower a single sample a little below the target would open the window to its maximum.
_MOST_B: Final = 4.0


@register("nscc")
@dataclass(frozen=True, slots=True)
class NsccConfig(CcConfig):
    """All of `mrc_ctl_cc_nscc_cfg` by its names (max_cwnd is `max_wnd_bytes`, target_delay `target_qdelay_ns`).

    None: the default derived from the others.
    """

    target_qdelay_ns: int | None = None
    max_wnd_bytes: int | None = None
    initial_cwnd_bytes: int | None = None
    gamma: float = 0.8
    max_md_jump: float = 0.5
    disable_qa: bool = False  # no quick adapt
    qa_gate: int = 3
    qa_threshold_ns: int | None = None  # queueing delay that triggers it; None: never with trimming, else 4 target
    fi: float | None = None  # fair increase, bytes * bytes newly received / cwnd
    fi_scale: float | None = None  # fast increase, bytes per byte newly received
    eta: float | None = None  # bytes added per adjust period
    adjust_bytes_threshold: int | None = None  # increases are applied after more bytes than this
    adjust_period_threshold_ns: int | None = None  # and at least this often
    delay_gain: float = 0.0125  # weight of a sample in the averaged queueing delay

    def __post_init__(self) -> None:
        CcConfig.__post_init__(self)
        check_range("cc.gamma", self.gamma, 0.0, 1.0)
        check_range("cc.max_md_jump", self.max_md_jump, 0.0, 1.0)
        check_range("cc.qa_gate", self.qa_gate, 0, 16)
        check_range("cc.delay_gain", self.delay_gain, 1e-6, 1.0)
        optional = {
            "target_qdelay_ns": (1, 10**12),
            "max_wnd_bytes": (1, 1 << 40),
            "initial_cwnd_bytes": (1, 1 << 40),
            "qa_threshold_ns": (0, 10**12),
            "fi": (0.0, 1e12),
            "fi_scale": (0.0, 1e6),
            "eta": (0.0, 1e12),
            "adjust_bytes_threshold": (0, 1 << 40),
            "adjust_period_threshold_ns": (1, 10**12),
        }
        for name, (low, high) in optional.items():
            value = getattr(self, name)
            if value is not None:
                check_range(f"cc.{name}", value, low, high)
        if not isinstance(self.disable_qa, bool):
            raise ConfigError(f"cc.disable_qa is {self.disable_qa}; allowed: true, false")

    def controller(self, mtu: int) -> Nscc:
        """See `CcConfig`."""
        return Nscc(self, mtu)


class Case(Enum):
    """How the last SACK was handled: the four cases of the table, and those that precede them."""

    PROPORTIONAL = "proportional increase"
    FAST = "fast increase"
    FAIR = "fair increase"
    DECREASE = "multiplicative decrease"
    HOLD = "nothing"
    PENALTY = "receiver's penalty"
    IGNORED = "ignored after quick adapt"
    QUICK_ADAPT = "quick adapt"


@mypyc_attr(allow_interpreted_subclasses=True)
class Nscc(CongestionControl):
    """See the module's docstring. All parameters derive from `NsccConfig` and the MTU."""

    __slots__ = (
        "_achieved", "_adjusted_at", "_decreased_at", "_fi_count", "_ignored", "_inc_bytes", "_qa_end",
        "_qa_triggered", "_received", "_saved_cwnd", "_to_ignore", "_wnd_per_ns", "adjust_bytes", "adjust_period_ns",
        "alpha", "avg_qdelay", "case", "config_base_rtt_ns", "delay_gain", "disable_qa", "eta", "fast_mode", "fi",
        "fi_scale", "gamma", "max_md_jump", "near_zero_ns", "qa_gate", "qa_threshold_ns", "qdelay_ns", "target_ns",
    )  # fmt: skip

    def __init__(self, config: NsccConfig, mtu: int) -> None:
        base = config.base_rtt_ns
        bdp = config.line_rate_bps / 8 * base / 1e9
        max_wnd = float(config.max_wnd_bytes if config.max_wnd_bytes is not None else 1.5 * bdp)
        max_wnd = max(max_wnd, float(mtu))
        initial = config.initial_cwnd_bytes
        cwnd = max_wnd if initial is None else min(max(float(initial), mtu), max_wnd)
        super().__init__(mtu, base, cwnd, max_wnd)
        self.config_base_rtt_ns = base
        # A configured maximum is one; the default follows the base RTT.
        self._wnd_per_ns = 0.0 if config.max_wnd_bytes is not None else max_wnd / base
        a = bdp / _REFERENCE_BDP
        fraction = 0.75 if config.trimming else 1.0
        target = int(fraction * base) if config.target_qdelay_ns is None else config.target_qdelay_ns
        self.target_ns = max(target, 1)
        self.near_zero_ns = max(_NEAR_ZERO_NS, self.target_ns // _NEAR_ZERO_SHARE)
        self.alpha = 4.0 * mtu * a * min(self.target_ns / _REFERENCE_RTT_NS, _MOST_B) / self.target_ns
        self.fi = 5.0 * mtu * a if config.fi is None else config.fi
        self.fi_scale = 0.25 * a if config.fi_scale is None else config.fi_scale
        self.eta = 0.15 * mtu * a if config.eta is None else config.eta
        self.gamma = config.gamma
        self.max_md_jump = config.max_md_jump
        self.delay_gain = config.delay_gain
        self.disable_qa = config.disable_qa
        self.qa_gate = config.qa_gate
        threshold = config.qa_threshold_ns
        if threshold is None:  # where switches trim, trims trigger it, not delay
            threshold = _NEVER if config.trimming else 4 * self.target_ns
        self.qa_threshold_ns = threshold
        bytes_threshold, period = config.adjust_bytes_threshold, config.adjust_period_threshold_ns
        self.adjust_bytes = 8 * mtu if bytes_threshold is None else bytes_threshold
        self.adjust_period_ns = base if period is None else period
        self.case = Case.HOLD
        self.qdelay_ns = 0
        self.avg_qdelay = 0.0
        self._inc_bytes = 0.0
        self._received = 0  # since the last adjustment
        self._adjusted_at = 0
        self._decreased_at = 0
        self._fi_count = 0
        self.fast_mode = False
        self._achieved = 0
        self._qa_end = 0
        self._qa_triggered = False
        self._to_ignore = 0
        self._ignored = 0
        self._saved_cwnd = 0.0

    def sample(self, rtt_ns: int, whole: bool = True) -> None:
        """Take an RTT sample: base RTT (and with it the largest window), queueing delay and its average."""
        self.rtt_ns = rtt_ns
        if rtt_ns < self.base_rtt_ns and whole:
            self.base_rtt_ns = rtt_ns
            if self._wnd_per_ns:
                self.max_wnd = max(self._wnd_per_ns * rtt_ns, float(self.mtu))
        self.srtt_ns += (rtt_ns - self.srtt_ns) >> 3 if self.srtt_ns else rtt_ns
        self.qdelay_ns = qdelay = max(rtt_ns - self.base_rtt_ns, 0)
        self.avg_qdelay += (qdelay - self.avg_qdelay) * self.delay_gain

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """Apply the table of §8. Without an RTT sample only accounting and the penalty apply."""
        self._ignored += newly
        self._received += newly
        self._achieved += newly
        limited = False
        if penalty or self._saved_cwnd:
            limited = self._receiver_penalty(newly, penalty, restore)
        if not rtt_ns:
            return
        self.sample(rtt_ns, whole)
        qdelay = self.qdelay_ns
        if self._quick_adapt(now, False, ce, qdelay):
            return
        if ce:
            if qdelay >= self.target_ns:
                self._decrease(now)
            else:
                self.case = Case.HOLD
        elif limited:
            self.case = Case.PENALTY
        elif qdelay >= self.target_ns:
            self.case = Case.FAIR
            self._inc_bytes += newly * self.fi
        elif self._fast_increase(newly, qdelay):
            self.case = Case.FAST
        else:
            self.case = Case.PROPORTIONAL
            self._inc_bytes += newly * self.alpha * (self.target_ns - qdelay)
        if self._received > self.adjust_bytes or now - self._adjusted_at >= self.adjust_period_ns:
            self._adjust(now)

    def _fast_increase(self, newly: int, qdelay: int) -> bool:
        """Grow exponentially after a whole window without delay. True while that lasts."""
        self.fast_mode, was = False, self.fast_mode
        if qdelay >= self.near_zero_ns:
            self._fi_count = 0
            return False
        self._fi_count += newly
        if self._fi_count <= self.cwnd and not was:
            return False
        self.cwnd = min(self.cwnd + newly * self.fi_scale, self.max_wnd)
        self.fast_mode = True
        return True

    def _adjust(self, now: int) -> None:
        """Apply what increases have accumulated, and eta once per adjust_period."""
        cwnd = self.cwnd + self._inc_bytes / self.cwnd
        self._inc_bytes = 0.0
        self._received = 0
        if now - self._adjusted_at >= self.adjust_period_ns:
            cwnd += self.eta
            self._adjusted_at = now
        self.cwnd = cwnd if cwnd < self.max_wnd else self.max_wnd

    def _decrease(self, now: int) -> None:
        """Decrease multiplicatively by the average delay, at most once per base RTT."""
        self.case = Case.DECREASE
        self.fast_mode = False
        self._fi_count = 0
        avg = self.avg_qdelay
        if avg <= self.target_ns or now - self._decreased_at <= self.base_rtt_ns:
            return
        self._decreased_at = now
        factor = max(1.0 - self.gamma * (avg - self.target_ns) / avg, self.max_md_jump)
        self.cwnd = max(self.cwnd * factor, float(self.mtu))

    def _quick_adapt(self, now: int, loss: bool, ce: bool, qdelay: int) -> bool:
        """Fall to what was achieved when the network reports severe congestion, once per (base_rtt + target).

        True when that was done, or when this is feedback on what was in flight then, which is ignored.
        """
        if self.disable_qa:
            return False
        done = False
        if ce and self._ignored < self._to_ignore:
            self.case = Case.IGNORED
            done = True
        elif now >= self._qa_end:
            length = self.base_rtt_ns + self.target_ns
            # Not in the specification: an interval that ended long ago was idle, so its bytes do not measure the path.
            measured = self._qa_end and now < self._qa_end + length
            congested = self._qa_triggered or loss or qdelay > self.qa_threshold_ns
            if measured and congested and self._achieved < int(self.max_wnd) >> self.qa_gate:
                self.cwnd = max(float(self._achieved), float(self.mtu))
                self._to_ignore = max(self.inflight, 0)
                self._ignored = 0
                self._qa_triggered = False
                self.case = Case.QUICK_ADAPT
                done = True
            self._achieved = 0
            self._qa_end = now + length
        if done:
            self._inc_bytes = 0.0
            self._received = 0
        return done

    def _receiver_penalty(self, newly: int, penalty: int, restore: bool) -> bool:
        """Shrink cwnd while rcv_cwnd_pen lasts, and restore it afterwards if asked to. True while it lasts."""
        if penalty:
            if not self._saved_cwnd:
                self._saved_cwnd = self.cwnd
            cwnd = min(self.cwnd, float(self.inflight)) - (penalty * newly >> 7)
            self.cwnd = max(cwnd, float(self.mtu))
            return True
        if restore:
            self.cwnd = self._saved_cwnd
            self._saved_cwnd = 0.0
        return False

    def on_trim(self, now: int, size: int) -> None:
        """Handle NACK TRIMMED or TRIMMED_LASTHOP: trigger quick adapt, else take the packet's bytes off cwnd."""
        # A trimmed packet met a full queue, which a base RTT stands for: it has no delay of its own.
        self.avg_qdelay += (self.config_base_rtt_ns - self.avg_qdelay) * self.delay_gain
        self._ignored += size
        self._qa_triggered = True
        if not self._quick_adapt(now, True, True, 0):
            self.cwnd = max(self.cwnd - size, float(self.mtu))

    def on_loss(self, now: int, size: int) -> None:
        """Handle an inferred loss: take the packet's bytes off cwnd, as off inflight."""
        self._ignored += size
        self.cwnd = max(self.cwnd - size, float(self.mtu))

    def snapshot(self) -> NsccStatistics:
        """Return the state."""
        return NsccStatistics(
            int(self.cwnd),
            self.inflight,
            self.base_rtt_ns,
            self.srtt_ns,
            qdelay_ns=self.qdelay_ns,
            target_qdelay_ns=self.target_ns,
            case=self.case.value,
        )


class FixedWindow(CongestionControl):
    """The window of one destination, always the same."""

    __slots__ = ()


@register("fixed")
@dataclass(frozen=True, slots=True)
class FixedConfig(CcConfig):
    """`fixed_window_bytes`: at least one packet may always be in flight."""

    fixed_window_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        CcConfig.__post_init__(self)
        check_range("cc.fixed_window_bytes", self.fixed_window_bytes, 1, 1 << 40)

    def controller(self, mtu: int) -> FixedWindow:
        """See `CcConfig`."""
        window = max(self.fixed_window_bytes, mtu)
        return FixedWindow(mtu, self.base_rtt_ns, window, window)
