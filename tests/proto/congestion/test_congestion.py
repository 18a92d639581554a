"""Congestion control algorithms register themselves: what one takes, and that nothing else must list it."""

from __future__ import annotations

import dataclasses
import random
import typing

import pytest

from mrc_host.node.config import build_cc, load
from mrc_host.node.host import HostNode
from mrc_host.proto.congestion import base
from mrc_host.proto.congestion.base import CcConfig, algorithms, register
from mrc_host.proto.congestion.control import CongestionControl
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.limits import ConfigError
from mrc_topo.schema import CcSpec

HOST = {"name": "h0", "address": "fd00::1", "ports": 1, "rate_bps": [10**9]}


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_makes_a_controller_from_its_name(name: str) -> None:
    config = build_cc({"algorithm": name, "base_rtt_ns": 7_000, "line_rate_bps": 10**9})
    assert (config.algorithm, config.base_rtt_ns) == (name, 7_000)
    controller = config.controller(4096)
    assert controller.cwnd >= 4096
    assert controller.inflight == 0


def test_the_lab_schema_has_the_same_algorithms() -> None:
    assert set(typing.get_args(typing.get_type_hints(CcSpec)["algorithm"])) == set(algorithms())


def test_parameters_of_other_algorithms_are_checked_and_ignored() -> None:
    """A lab's document has the parameters of every algorithm."""
    assert build_cc({"algorithm": "fixed", "gamma": 0.5, "fixed_window_bytes": 9_000}) == FixedConfig(
        fixed_window_bytes=9_000
    )
    assert build_cc({"gamma": 0.5, "fixed_window_bytes": 9_000}) == NsccConfig(gamma=0.5)
    with pytest.raises(ConfigError, match=r"cc.gamma is 5"):
        build_cc({"algorithm": "fixed", "gamma": 5})


def test_unknown_algorithm_or_parameter_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"cc.algorithm is 'cubic'; known: fixed, nscc"):
        build_cc({"algorithm": "cubic"})
    with pytest.raises(ConfigError, match=r"cc has no 'colour'; known: algorithm, adjust_bytes_threshold, .*gamma"):
        build_cc({"colour": 1})


def test_new_algorithm_needs_one_class_and_its_configuration() -> None:
    class Halving(CongestionControl):
        __slots__ = ("share",)

        def on_loss(self, now: int, size: int) -> None:
            self.cwnd = max(self.cwnd * self.share, self.mtu)  # type: ignore[attr-defined]

    try:

        @register("halving")
        @dataclasses.dataclass(frozen=True, slots=True)
        class HalvingConfig(CcConfig):
            share: float = 0.5

            def controller(self, mtu: int) -> Halving:
                made = Halving(mtu, self.base_rtt_ns, 100_000, 100_000)
                made.share = self.share  # type: ignore[attr-defined]
                return made

        node = HostNode(load({**HOST, "settings": {"cc": {"algorithm": "halving", "share": 0.25}}}), random.Random(1))
        assert isinstance(node.endpoint, Endpoint)
        controller = node.endpoint.config.cc.controller(4096)
        controller.on_loss(0, 4096)
        assert controller.cwnd == 25_000
    finally:
        base._REGISTERED.pop("halving", None)
