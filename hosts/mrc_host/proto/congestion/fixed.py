"""A constant window, for comparison."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.proto.congestion.base import CcConfig, register
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.limits import check_range


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
