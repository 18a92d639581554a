"""Context of all parts of one endpoint: configuration, codec, timers, ports, memory, events, counters, send ring."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Final

from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.config import EndpointConfig
from mrc_host.proto.events import Event
from mrc_host.proto.memory import MemoryTable
from mrc_host.proto.ports import PortTable
from mrc_host.proto.send_ring import SendRing
from mrc_host.proto.stats import EndpointCounters
from mrc_host.proto.timers import TimerQueue
from mrc_host.proto.trace import Tracer
from mrc_host.proto.wire.codec import Codec

ECT0 = 2
EVERYBODY: Final = b""  # in `denied`: towards all peers


class EndpointContext:
    """See the module's docstring."""

    __slots__ = (
        "codec",
        "config",
        "counters",
        "denied",
        "drops",
        "events",
        "gone_requestors",
        "gone_responders",
        "instance",
        "memory",
        "now",
        "penalty",
        "ports",
        "refuse",
        "restore",
        "ring",
        "rng",
        "tc_control",
        "tc_data",
        "tc_no_trim",
        "tc_probe",
        "tc_retx",
        "timers",
        "trace",
    )

    def __init__(self, config: EndpointConfig, rng: random.Random, trace: Tracer | None) -> None:
        wire = config.wire
        self.config = config
        self.now = 0  # of the call being served
        self.rng = rng
        self.trace = trace
        self.codec = Codec(
            udp_port=wire.udp_port,
            p_key=wire.p_key,
            dscp_trimmed=wire.dscp_trimmed,
            dscp_lasthop=wire.dscp_trimmed_lasthop,
            check_icrc=wire.check_icrc,
            length_only=wire.length_only,
        )
        self.timers = TimerQueue()
        self.ports = PortTable(
            config.ports.count, config.control_queue_frames, rng.getrandbits(16), config.cc.line_rate_bps
        )
        self.instance = rng.getrandbits(48)  # of this endpoint: one that starts again is another
        self.memory = MemoryTable(rng, wire.length_only)
        self.events: deque[Event] = deque()
        self.drops: Counter[str] = Counter()
        self.counters = EndpointCounters()
        #: Sums of the counters of queue pairs that are gone.
        self.gone_requestors: Counter[str] = Counter()
        self.gone_responders: Counter[str] = Counter()
        self.ring = SendRing(self.timers, wire.length_only)
        # EVs that a controller denied, by the peer's address; they outlive queue pairs, for later ones to that peer.
        self.denied: dict[bytes, set[int]] = {}
        self.penalty = 0  # rcv_cwnd_pen that our SACKs carry
        self.restore = 0
        self.refuse = 0  # NACK reason for all new data, 0: none
        # Traffic classes: DSCP << 2 | ECN (mrc-protocol.md §2). Data is ECT(0), control not-ECT.
        self.tc_control = wire.dscp_control << 2
        self.tc_no_trim = wire.dscp_no_trim << 2 | ECT0
        self.tc_data = wire.dscp_trimmable << 2 | ECT0 if wire.fabric_trims else self.tc_no_trim
        self.tc_retx = wire.dscp_trimmable_retx << 2 | ECT0 if wire.fabric_trims else self.tc_no_trim
        self.tc_probe = wire.dscp_trimmable << 2 | ECT0

    def denied_towards(self, address: bytes) -> set[int]:
        """Return the EVs that a controller denied towards this peer, or towards all peers."""
        return self.denied.get(address, set()) | self.denied.get(EVERYBODY, set())

    def drop(self, reason: str, port: int, now: int) -> None:
        """Count a packet that is dropped."""
        self.drops[reason] += 1
        if self.trace is not None:
            self.trace(now, "drop", reason=reason, port=port)

    def complete(self, cq: CompletionQueue, completion: Completion) -> None:
        """Deliver a completion, and an event when the queue was empty."""
        cq.deliver(completion, self.events, self.now)
