"""The configuration of a RoCE endpoint; what a queue pair can change of it is its default there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mrc_host.proto.config import PortsConfig, WireConfig, check_address
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.limits import check_range
from mrc_host.proto.wire.psn import PSN_MASK

MAX_RD_ATOMIC: Final = 128


@dataclass(frozen=True, slots=True)
class RoceConfig:
    """The configuration of a RoCE endpoint. `address` is 16 bytes; `line_rate_bps` is of all ports together."""

    address: bytes
    wire: WireConfig = field(default_factory=WireConfig)
    ports: PortsConfig = field(default_factory=PortsConfig)
    dcqcn: DcqcnConfig = field(default_factory=DcqcnConfig)
    line_rate_bps: int = 100_000_000_000
    timeout: int = 14  # local ACK timeout = 1.024 us * 2**timeout
    retry_cnt: int = 7
    ack_every: int = 16  # packets of a message per acknowledgement asked for
    max_inflight_packets: int = 1024
    min_rnr_timer: int = 7  # code of the time that a peer waits when no receive is posted: 0.12 ms (`qp.py`)
    rnr_retry: int = 7  # how often a request without a receive is repeated; 7: for ever
    max_rd_atomic: int = 16  # READs and atomics under way, of our requestor
    max_dest_rd_atomic: int = 16  # the same, of the peer's
    initial_psn: int | None = None
    selective_repeat: bool = False  # instead of go-back-N
    reorders: bool = False  # early packets are kept without a NAK: for fabrics that reorder and lose nothing
    pause_priority: int = 0  # of data, in priority flow control and credits
    credits: bool = False  # data waits for credits of the switch, after InfiniBand's

    def __post_init__(self) -> None:
        check_address(self.address)
        check_range("roce.line_rate_bps", self.line_rate_bps, 1000, 10**14)
        check_range("roce.timeout", self.timeout, 0, 24)
        check_range("roce.retry_cnt", self.retry_cnt, 0, 7)
        check_range("roce.ack_every", self.ack_every, 1, 1024)
        check_range("roce.max_inflight_packets", self.max_inflight_packets, 1, 1 << 22)
        check_range("roce.pause_priority", self.pause_priority, 0, 7)
        check_range("roce.min_rnr_timer", self.min_rnr_timer, 0, 31)
        check_range("roce.rnr_retry", self.rnr_retry, 0, 7)
        check_range("roce.max_rd_atomic", self.max_rd_atomic, 0, MAX_RD_ATOMIC)
        check_range("roce.max_dest_rd_atomic", self.max_dest_rd_atomic, 0, MAX_RD_ATOMIC)
        if self.initial_psn is not None:
            check_range("initial_psn", self.initial_psn, 0, PSN_MASK)
