"""DCQCN: the rate control of the RoCEv2 baseline, at the requestor (Zhu et al., SIGCOMM 2015).

A CNP cuts the rate by half of alpha, the running estimate of congestion. Without CNPs a timer and a byte counter
drive it up: fast recovery towards the rate before the cut, then additive, then hyper increase.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mrc_host.proto.limits import check_range


@dataclass(frozen=True, slots=True)
class DcqcnConfig:
    """Parameters of DCQCN; None: a share of the line rate (the paper's 40 Mb/s at 40 Gb/s, and ten times that)."""

    enabled: bool = True
    g: float = 1 / 256
    alpha_interval_ns: int = 55_000
    cnp_interval_ns: int = 50_000  # the responder sends at most one CNP per QP and interval
    rate_interval_ns: int = 55_000
    byte_counter: int | None = 10_000_000  # None: the timer alone raises the rate
    recovery_rounds: int = 5
    additive_bps: int | None = None
    hyper_bps: int | None = None
    minimum_bps: int | None = None

    def __post_init__(self) -> None:
        check_range("dcqcn.g", self.g, 1e-6, 1.0)
        for name in ("alpha_interval_ns", "cnp_interval_ns", "rate_interval_ns"):
            check_range(f"dcqcn.{name}", getattr(self, name), 1, 10**12)
        if self.byte_counter is not None:
            check_range("dcqcn.byte_counter", self.byte_counter, 1, 10**12)
        check_range("dcqcn.recovery_rounds", self.recovery_rounds, 1, 100)
        for name in ("additive_bps", "hyper_bps", "minimum_bps"):
            if getattr(self, name) is not None:
                check_range(f"dcqcn.{name}", getattr(self, name), 1, 10**13)


#: The profiles in use, with the link rate that they are meant for: `paper` (Zhu et al., SIGCOMM 2015), `nvidia`
#: (defaults of ConnectX adapters: NVIDIA's "DCQCN CC Parameters"), `hpcc` (slower increase: Li et al., HPCC, SIGCOMM
#: 2019, section 2.3, and the configuration of its simulator). They differ most in the timers of increase (55, 300,
#: 900 us) and of decrease (50, 4, 4 us), the pairs that HPCC compares.
PROFILES: Final[dict[str, tuple[int, DcqcnConfig]]] = {
    "paper": (40_000_000_000, DcqcnConfig(additive_bps=40_000_000, hyper_bps=400_000_000, minimum_bps=40_000_000)),
    "nvidia": (
        100_000_000_000,
        DcqcnConfig(
            g=5 / 1024,
            alpha_interval_ns=1000,
            cnp_interval_ns=4000,
            rate_interval_ns=300_000,
            byte_counter=32_767,
            recovery_rounds=1,
            additive_bps=5_000_000,
            hyper_bps=50_000_000,
            minimum_bps=1_000_000,
        ),
    ),
    "hpcc": (
        25_000_000_000,
        DcqcnConfig(
            alpha_interval_ns=1000,
            cnp_interval_ns=4000,
            rate_interval_ns=900_000,
            byte_counter=None,
            recovery_rounds=1,
            additive_bps=50_000_000,
            hyper_bps=100_000_000,
            minimum_bps=100_000_000,
        ),
    ),
}


def profile(name: str, rate_bps: int, enabled: bool = True) -> DcqcnConfig:
    """Return a profile for ports of this rate: times as many packets long, and rates the same shares, as at the
    profile's own.

    Raises ValueError for a name that `PROFILES` has not.
    """
    if name not in PROFILES:
        raise ValueError(f"dcqcn.profile is '{name}'; known: {', '.join(PROFILES)}")
    meant_bps, c = PROFILES[name]

    def time(value_ns: int) -> int:
        return max(1, value_ns * meant_bps // rate_bps)

    def share(value_bps: int | None) -> int | None:
        return None if value_bps is None else max(1, value_bps * rate_bps // meant_bps)

    return replace(
        c,
        enabled=enabled,
        alpha_interval_ns=time(c.alpha_interval_ns),
        cnp_interval_ns=time(c.cnp_interval_ns),
        rate_interval_ns=time(c.rate_interval_ns),
        additive_bps=share(c.additive_bps),
        hyper_bps=share(c.hyper_bps),
        minimum_bps=share(c.minimum_bps),
    )


class Dcqcn:
    """The rate of one QP. It starts at line rate, and needs no timer while it is there."""

    __slots__ = (
        "_additive",
        "_alpha_at",
        "_byte_rounds",
        "_bytes",
        "_hyper",
        "_line",
        "_minimum",
        "_timer_rounds",
        "alpha",
        "config",
        "deadline",
        "rate",
        "target",
    )

    def __init__(self, config: DcqcnConfig, line_rate_bps: int) -> None:
        self.config = config
        self._line = float(line_rate_bps)
        self._additive = config.additive_bps or line_rate_bps / 1000
        self._hyper = config.hyper_bps or line_rate_bps / 100
        self._minimum = config.minimum_bps or line_rate_bps / 1000
        self.rate = self.target = self._line
        self.alpha = 1.0
        self.deadline: int | None = None  # of the next increase by the timer; None at line rate
        self._alpha_at = 0
        self._timer_rounds = self._byte_rounds = self._bytes = 0

    def on_cnp(self, now: int) -> None:
        """Cut the rate, remember where it was."""
        c = self.config
        if not c.enabled:
            return
        quiet = max(0, now - self._alpha_at) // c.alpha_interval_ns
        if quiet > 0 and self._alpha_at:
            self.alpha *= (1 - c.g) ** min(quiet, 1 << 16)
        self.target = self.rate
        self.rate = max(self._minimum, self.rate * (1 - self.alpha / 2))
        self.alpha = (1 - c.g) * self.alpha + c.g
        self._alpha_at = now
        self._timer_rounds = self._byte_rounds = self._bytes = 0
        self.deadline = now + c.rate_interval_ns

    def on_sent(self, size: int) -> None:
        """Count bytes; a full counter is a round of increase."""
        full = self.config.byte_counter
        if self.deadline is None or full is None:
            return
        self._bytes += size
        if self._bytes >= full:
            self._bytes = 0
            self._byte_rounds += 1
            self._increase()

    def on_timer(self, now: int) -> None:
        """Handle the deadline: rounds of increase, one per interval."""
        while self.deadline is not None and self.deadline <= now:
            self.deadline += self.config.rate_interval_ns
            self._timer_rounds += 1
            self._increase()

    def _increase(self) -> None:
        rounds = self.config.recovery_rounds
        low = min(self._timer_rounds, self._byte_rounds)
        high = max(self._timer_rounds, self._byte_rounds)
        if low > rounds:
            self.target += (low - rounds) * self._hyper
        elif high > rounds:
            self.target += self._additive
        self.target = min(self.target, self._line)
        self.rate = min((self.rate + self.target) / 2, self._line)
        if self.rate >= 0.999 * self._line:
            self.rate = self.target = self._line
            self.deadline = None
