"""Profiles of congestion control, and the registry of algorithms (`mrc-protocol.md §8`).

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
from typing import ClassVar, TypeVar

from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.limits import check_range

C = TypeVar("C", bound="CcConfig")
_REGISTERED: dict[str, type[CcConfig]] = {}


@dataclass(frozen=True, slots=True)
class CcConfig(ABC):
    """Congestion control profile (`mrc-protocol.md §8`): the parameters of every algorithm; each adds its own."""

    algorithm: ClassVar[str]

    line_rate_bps: int = 100_000_000_000  # of the whole NIC: all ports together
    base_rtt_ns: int = 12_000  # of a full packet on the longest path; smaller samples replace it
    trimming: bool = True

    def __post_init__(self) -> None:
        check_range("cc.line_rate_bps", self.line_rate_bps, 1000, 10**14)
        check_range("cc.base_rtt_ns", self.base_rtt_ns, 1, 10**12)

    @abstractmethod
    def controller(self, mtu: int) -> CongestionControl:
        """Return the controller of one destination; `mtu` as in `CongestionControl`."""


def register(algorithm: str) -> Callable[[type[C]], type[C]]:
    """Make a configuration the one of an algorithm, under its name in profiles and labs."""

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
    """Return the configuration of every algorithm by its name."""
    _discover()
    return _REGISTERED
