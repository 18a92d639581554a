"""The range of every setting of an endpoint: both of its ends are taken, and the numbers beside them are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mrc_host.proto.config import (
    QP_ATTRIBUTES,
    EndpointConfig,
    EvConfig,
    EvField,
    PortsConfig,
    ReliabilityConfig,
    WireConfig,
)
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.roce.config import RoceConfig
from support.proto.story import Story

ADDRESS = bytes(15) + b"\1"
T12, PSNS = 10**12, (1 << 24) - 1

#: The smallest and the largest value of each setting, as docs/mrc-protocol.md and the reference of lab files have them.
RANGES: dict[Callable[..., Any], dict[str, tuple[float, float]]] = {
    WireConfig: {
        "mtu": (64, 9000), "udp_port": (1, 65535), "p_key": (0, 65535),
        **{f"dscp_{name}": (0, 63)
           for name in ("no_trim", "trimmable", "trimmable_retx", "trimmed", "trimmed_lasthop", "control")},
    },
    ReliabilityConfig: {
        "timeout": (0, 24), "linear_cnt": (0, 7), "exp_cnt": (0, 25), "mpr": (1, 255), "mpr_dest": (1, 255),
        "max_wimm": (1, 32767), "max_wimm_dest": (1, 32767), "sack_every": (1, 1024), "sack_delay_ns": (1, 10**9),
        "hole_cycle": (2, 1024), "always_skip_after": (0, 1 << 20),
    },
    EvField: {"width": (1, 128)},
    EvConfig: {
        "count": (1, 4096), "active": (1, 4096), "ev_min_active": (1, 4096), "ev_bits": (1, 32),
        "probe_interval_ns": (1, T12), "probe_timeout_ns": (1, T12), "probe_jitter": (0.0, 0.9),
        "probe_burst": (1, 4096), "probes_to_revive": (1, 100), "rescan_rounds": (1, 10**6),
    },
    PortsConfig: {
        "count": (1, 32), "status_repeat_max_ns": (100_000, T12), "balance_slack_packets": (1, 4096),
        "balance_patience_ns": (1, T12),
    },
    lambda **changes: PortsConfig(status_repeat_max_ns=T12, **changes): {"status_repeat_ns": (1, T12)},
    lambda **changes: EndpointConfig(ADDRESS, **changes): {
        "initial_psn": (0, PSNS), "control_queue_frames": (16, 1 << 24),
    },
    lambda **changes: RoceConfig(ADDRESS, **changes): {
        "line_rate_bps": (1000, 10**14), "timeout": (0, 24), "retry_cnt": (0, 7), "ack_every": (1, 1024),
        "max_inflight_packets": (1, 1 << 22), "pause_priority": (0, 7), "min_rnr_timer": (0, 31), "rnr_retry": (0, 7),
        "max_rd_atomic": (0, 128), "max_dest_rd_atomic": (0, 128), "initial_psn": (0, PSNS),
    },
    DcqcnConfig: {
        "g": (1e-6, 1.0), "alpha_interval_ns": (1, T12), "cnp_interval_ns": (1, T12), "rate_interval_ns": (1, T12),
        "byte_counter": (1, T12), "recovery_rounds": (1, 100), "additive_bps": (1, 10**13), "hyper_bps": (1, 10**13),
        "minimum_bps": (1, 10**13),
    },
    NsccConfig: {
        "line_rate_bps": (1000, 10**14), "base_rtt_ns": (1, T12), "gamma": (0.0, 1.0), "max_md_jump": (0.0, 1.0),
        "qa_gate": (0, 16), "delay_gain": (1e-6, 1.0), "target_qdelay_ns": (1, T12), "max_wnd_bytes": (1, 1 << 40),
        "initial_cwnd_bytes": (1, 1 << 40), "qa_threshold_ns": (0, T12), "fi": (0.0, 1e12), "fi_scale": (0.0, 1e6),
        "eta": (0.0, 1e12), "adjust_bytes_threshold": (0, 1 << 40), "adjust_period_threshold_ns": (1, T12),
    },
    FixedConfig: {
        "line_rate_bps": (1000, 10**14), "base_rtt_ns": (1, T12), "fixed_window_bytes": (1, 1 << 40),
    },
}  # fmt: skip


def _settings() -> Iterator[Any]:
    for make, ranges in RANGES.items():
        for name, (low, high) in ranges.items():
            yield pytest.param(make, name, low, high, id=f"{getattr(make, '__name__', '')}-{name}")


def _beside(low: float, high: float) -> tuple[float, float]:
    """Return the nearest values below and above a range; those of a float are next to it by a millionth."""
    if isinstance(high, float):
        return low - 1e-7, high * (1 + 1e-6)
    return low - 1, high + 1


@pytest.mark.parametrize(("make", "name", "low", "high"), list(_settings()))
def test_both_ends_of_a_range_are_taken_and_what_is_beside_them_is_not(
    make: Callable[..., Any], name: str, low: float, high: float
) -> None:
    scale = 4 if name == "mtu" else 1  # it is a multiple of 4, too
    make(**{name: low})
    make(**{name: high})
    below, above = _beside(low, high) if scale == 1 else (low - scale, high + scale)
    for value in (below, above):
        with pytest.raises(ConfigError, match=name):
            make(**{name: value})


def test_every_attribute_of_a_queue_pair_that_has_a_range_is_in_the_table() -> None:
    numbers = {name: (each.low, each.high) for name, each in QP_ATTRIBUTES.items() if (each.low, each.high) != (0, 1)}
    table = RANGES[ReliabilityConfig]
    assert {name: numbers.get(name) for name in table} == table
    assert set(numbers) - set(table) == set()


def test_fields_of_an_ev_are_within_their_width() -> None:
    EvField(4, init=15, mask=0b1100, minimum=3, maximum=3)
    for changes in (
        {"init": 16}, {"init": -1}, {"mask": 16}, {"mask": -1},
        {"mask": 0b1100, "minimum": 4}, {"mask": 0b1100, "minimum": -1},
        {"mask": 0b1100, "maximum": 4}, {"mask": 0b1100, "minimum": 2, "maximum": 1},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            EvField(4, **changes)  # type: ignore[arg-type]


def test_calls_refuse_numbers_out_of_their_range() -> None:
    endpoint = Endpoint(EndpointConfig(ADDRESS), random.Random(1))
    for depth in (0, (1 << 24) + 1):
        with pytest.raises(ConfigError, match="depth"):
            endpoint.create_cq(depth)
    for penalty in (-1, 128):
        with pytest.raises(ConfigError, match="penalty"):
            endpoint.set_receive_pressure(penalty)
    endpoint.set_receive_pressure(127)
    peer = bytes(15) + b"\2"
    for plane, dscp in ((-1, None), (1, None), (0, -1), (0, 64)):
        with pytest.raises(ConfigError, match="plane" if dscp is None else "dscp"):
            endpoint.probe_ev(peer, 0, plane, 0, dscp=dscp)


def test_addresses_have_sixteen_bytes() -> None:
    for size in (0, 4, 15, 17):
        with pytest.raises(ConfigError, match="address"):
            EndpointConfig(bytes(size))


def test_immediates_and_windows_of_a_connection_have_their_ranges() -> None:
    s = Story(reliability=ReliabilityConfig(dynamic_mpr=True))
    core = s.connection.source.core
    region = s.connection.target.core.register_memory(bytearray(8))
    for immediate in (-1, 1 << 32):
        with pytest.raises(ConfigError, match="immediate"):
            core.post_write_imm(s.qp, b"x", region.va, region.rkey, immediate, 1)
    core.post_write_imm(s.qp, b"x", region.va, region.rkey, (1 << 32) - 1, 1)
    for units in (0, 256):
        with pytest.raises(ConfigError, match="mpr"):
            core.set_mpr(s.qp, units)
    core.set_mpr(s.qp, 255)
