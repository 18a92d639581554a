"""Values of the target API about a fabric, beside the value types of the fabric itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

from p4lite.switch.fabric.values import (
    BurstLoss,
    LinkSettings,
    PortSample,
    PortStats,
    SwitchState,
    SwitchStats,
)

PortDirection = Literal["both", "outgoing", "incoming"]
LinkDirection = Literal["both", "a_to_b", "b_to_a"]


class LinkEnd(NamedTuple):
    """A port of a switch, and with it the link there."""

    device_id: int
    port: int


class LinkChanges(TypedDict, total=False):
    """Settings of a link, of which only those that are given change: see `LinkSettings`."""

    rate_bps: int
    delay_ns: int
    overhead_bytes: int
    loss: float
    burst_loss: BurstLoss | None
    corrupt: float
    duplicate: float
    reorder: float
    reorder_extra_ns: int
    blackhole: bool
    host_queue_bytes: int
    pause_storm_mac: int


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port: where it leads (`interface`, or `peer`), its state and settings."""

    port: int
    name: str
    interface: str | None
    peer: LinkEnd | None
    up_outgoing: bool
    up_incoming: bool
    outgoing: LinkSettings
    incoming: LinkSettings


@dataclass(frozen=True, slots=True)
class SwitchInfo:
    """A switch: `stream_drops` counts messages that a slow controller did not take."""

    device_id: int
    name: str
    state: SwitchState
    program: str | None
    cpu_port: int | None
    drop_port: int
    priority_queues: int
    stream_drops: int
    ports: dict[int, PortInfo]


@dataclass(frozen=True, slots=True)
class FabricInfo:
    """The fabric's clock, how many events it executed, and its switches by device_id."""

    now_ns: int
    events: int
    notifications_lost: int
    switches: dict[int, SwitchInfo]


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Statistics of a switch and of its ports by number, read at `now_ns` of the fabric's clock."""

    now_ns: int
    switch: SwitchStats
    ports: dict[int, PortStats]


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """State of a switch, samples of its ports by number, and packets that counters of its program counted, by their
    names; read at `now_ns` of the fabric's clock."""

    now_ns: int
    state: SwitchState
    ports: dict[int, PortSample]
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class AllStats:
    """Statistics of switches by device_id."""

    switches: dict[int, DeviceStats]
