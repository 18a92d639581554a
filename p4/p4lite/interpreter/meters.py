"""Two-rate three-colour markers (RFC 2698, colour-blind), as BMv2 runs them."""

from __future__ import annotations

from p4lite.switch.runtime.arrays import MeterConfig

GREEN, YELLOW, RED = 0, 1, 2
#: A unit of traffic costs this many tokens, so that rates per second and nanoseconds need no rounding.
SCALE = 10**9


class MeterCell:
    """A meter cell; without a configuration every packet is green."""

    def __init__(self) -> None:
        self.config: MeterConfig | None = None
        self._committed = self._peak = self._last_ns = 0

    def configure(self, config: MeterConfig | None, now_ns: int) -> None:
        """Set rates and bursts, and fill the buckets."""
        self.config, self._last_ns = config, now_ns
        if config is not None:
            self._committed, self._peak = config.cburst * SCALE, config.pburst * SCALE

    def execute(self, amount: int, now_ns: int) -> int:
        """Return the colour of `amount` bytes, or of one packet, at a time."""
        config = self.config
        if config is None:
            return GREEN
        elapsed = max(now_ns - self._last_ns, 0)
        self._last_ns = max(now_ns, self._last_ns)
        self._committed = min(self._committed + config.cir * elapsed, config.cburst * SCALE)
        self._peak = min(self._peak + config.pir * elapsed, config.pburst * SCALE)
        cost = amount * SCALE
        if self._peak < cost:
            return RED
        self._peak -= cost
        if self._committed < cost:
            return YELLOW
        self._committed -= cost
        return GREEN
