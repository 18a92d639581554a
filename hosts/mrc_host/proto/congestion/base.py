"""Congestion control behind one small interface; one controller per destination (`mrc-protocol.md §8`).

`inflight` and `cwnd` (bytes) are plain attributes: the data path compares without a call. A packet may leave while
`inflight + size <= cwnd`, and always when nothing is in flight. Controllers read `inflight`, which is up to date
when they are told of something; `inflight.InflightAccount` alone writes it.

A module of this folder that registers a configuration adds an algorithm; nothing else lists them. The lab schema, which
imports nothing of ours, has their names and parameters a second time; a test compares.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from mrc_host.proto.limits import check_range

C = TypeVar("C", bound="CcConfig")
_REGISTERED: dict[str, type[CcConfig]] = {}


@dataclass(frozen=True, slots=True)
class CcConfig(ABC):
    """Congestion control profile (`mrc-protocol.md §8`): what every algorithm is told; each adds its parameters."""

    algorithm: ClassVar[str]

    line_rate_bps: int = 100_000_000_000  # of the whole NIC: all ports together
    base_rtt_ns: int = 12_000  # of a full packet on the longest path; smaller samples replace it
    trimming: bool = True

    def __post_init__(self) -> None:
        check_range("cc.line_rate_bps", self.line_rate_bps, 1000, 10**14)
        check_range("cc.base_rtt_ns", self.base_rtt_ns, 1, 10**12)

    @abstractmethod
    def controller(self, mtu: int) -> CongestionControl:
        """The controller of one destination; `mtu` as in `CongestionControl`."""


def register(algorithm: str) -> Callable[[type[C]], type[C]]:
    """Makes a configuration the one of an algorithm, under its name in profiles and labs."""

    def enter(kind: type[C]) -> type[C]:
        kind.algorithm = algorithm
        _REGISTERED[algorithm] = kind
        return kind

    return enter


@functools.cache
def _discover() -> None:
    folder = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        importlib.import_module(module.name)


def algorithms() -> Mapping[str, type[CcConfig]]:
    """The configuration of every algorithm by its name."""
    _discover()
    return _REGISTERED


class CongestionControl:
    """What the requestor needs of a controller. The base class is what all controllers share."""

    __slots__ = ("base_rtt_ns", "cwnd", "inflight", "max_wnd", "mtu", "rtt_ns", "srtt_ns")

    def __init__(self, mtu: int, base_rtt_ns: int, cwnd: float, max_wnd: float) -> None:
        """`mtu` is the nominal size of a full packet (UDP length + 40), bytes."""
        self.mtu = mtu
        self.base_rtt_ns = base_rtt_ns
        self.cwnd = cwnd
        self.max_wnd = max_wnd
        self.inflight = 0
        self.rtt_ns = 0  # latest sample
        self.srtt_ns = 0  # smoothed

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """A SACK reported `newly` bytes more; `rtt_ns` 0: no unambiguous sample; `ce`: the packet was marked.

        `whole`: the sample is that of a packet of the full MTU, for which the base RTT is defined.
        """
        if rtt_ns:
            self.sample(rtt_ns, whole)

    def on_trim(self, now: int, size: int) -> None:
        """A packet of `size` bytes was trimmed."""

    def on_loss(self, now: int, size: int) -> None:
        """A packet of `size` bytes was inferred lost."""

    def sample(self, rtt_ns: int, whole: bool = True) -> None:
        """Take an RTT sample into the smoothed RTT, and that of a `whole` packet into the base RTT."""
        self.rtt_ns = rtt_ns
        if rtt_ns < self.base_rtt_ns and whole:
            self.base_rtt_ns = rtt_ns
        self.srtt_ns += (rtt_ns - self.srtt_ns) >> 3 if self.srtt_ns else rtt_ns

    def snapshot(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        return {
            "cwnd": int(self.cwnd),
            "inflight": self.inflight,
            "base_rtt_ns": self.base_rtt_ns,
            "srtt_ns": self.srtt_ns,
        }
