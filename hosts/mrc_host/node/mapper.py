"""The host's part of the Clustermapper (`mrc-protocol.md §10`): probes to its own T0s and to T1s, and back to itself.

A probe is steered by SRv6 through the fabric to the very port it left from, so no other host takes part, and its
loss says something about the few links and switches on its way. It travels as control traffic: congestion delays data,
not probes. Conclusions are the controller's (`mrclab.lab.management.clustermapper`).
"""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mypy_extensions import i64

from mrc_host.answers import ProbeRow
from mrc_host.drivers.surface import FOREVER
from mrc_host.proto.wire.fields import NEXT_IPV6, Dscp, Ipv6, Udp
from mrc_host.proto.wire.packet import as_bytes

MAGIC: Final = b"MRCMAP01"
UDP_PORT: Final = 4794
BODY: Final = struct.Struct("!8sIIQ")
PROBE_BYTES: Final = 2 * Ipv6.header.size + Udp.header.size + BODY.size
BODY_AT: Final = PROBE_BYTES - BODY.size
#: How many of the latest probes of a target are remembered.
HISTORY: Final = 20


@dataclass(frozen=True)
class ProbeTarget:
    """A switch to probe: its name, the port to use, and the outer addresses that lead there and back."""

    name: str
    port: int
    source: str
    destination: str


@dataclass
class _Track:
    target: ProbeTarget
    packet: bytearray
    #: Answered or not, by the probes' numbers.
    history: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    sent: int = 0
    lost: int = 0
    late: int = 0
    rtt_ns: int = 0


class Mapper:
    """Probes every target once per interval, evenly spread.

    A probe counts as lost after the timeout, until it comes back after all: then its way is slow, or this program, and
    nothing is broken.

    Args:
        address: the host's address, inner source and destination.
        targets: what to probe.
        interval_ns: between two probes of one target.
        timeout_ns: after which a probe counts as lost.
    """

    def __init__(self, address: str, targets: Sequence[ProbeTarget], interval_ns: int, timeout_ns: int) -> None:
        inner = int(ipaddress.IPv6Address(address))
        self.tracks = [_Track(target, self._template(target, inner)) for target in targets]
        self.timeout_ns = timeout_ns
        self.gap_ns = max(interval_ns // max(len(targets), 1), 1)
        self.due: i64 = 0 if targets else FOREVER
        self._next = 0
        self._sequence = 0
        self._outstanding: dict[int, tuple[int, int]] = {}
        self._given_up: dict[int, tuple[int, int]] = {}
        #: By port, what is to be sent.
        self.waiting: dict[int, list[bytes]] = {}
        #: By port, how many probes have left, and how many have come back, strange ones among them.
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()

    @staticmethod
    def _template(target: ProbeTarget, inner: int) -> bytearray:
        source, destination = [int(ipaddress.IPv6Address(each)) for each in (target.source, target.destination)]
        udp_bytes = Udp.header.size + BODY.size
        parts = (
            Ipv6(
                dscp=Dscp.CONTROL,
                payload_length=Ipv6.header.size + udp_bytes,
                next_header=NEXT_IPV6,
                src=source,
                dst=destination,
            ),
            Ipv6(dscp=Dscp.CONTROL, payload_length=udp_bytes, src=inner, dst=inner),
            Udp(src_port=UDP_PORT, dst_port=UDP_PORT, length=udp_bytes),
        )
        return bytearray(b"".join(map(as_bytes, parts)) + bytes(BODY.size))

    def handle_timer(self, now: int) -> None:
        """Send the next probe when it is due, and give up on old ones."""
        if now < self.due:
            return
        self._expire(now)
        index = self._next
        self._next = (index + 1) % len(self.tracks)
        track = self.tracks[index]
        self._sequence += 1
        BODY.pack_into(track.packet, BODY_AT, MAGIC, index, self._sequence & 0xFFFFFFFF, now)
        self._outstanding[self._sequence] = (index, now)
        self.waiting.setdefault(track.target.port, []).append(bytes(track.packet))
        track.sent += 1
        # A loop that is late does not send a burst to catch up.
        self.due = max(self.due + self.gap_ns, now + self.gap_ns // 2)

    def hold(self, until_ns: int) -> None:
        """Send no probe before this time."""
        if self.due != FOREVER:
            self.due = until_ns

    def _expire(self, now: int) -> None:
        while self._outstanding:
            sequence, (index, sent_ns) = next(iter(self._outstanding.items()))
            if now - sent_ns < self.timeout_ns:
                return
            self._given_up[sequence] = self._outstanding.pop(sequence)
            if len(self._given_up) > HISTORY * len(self.tracks):
                del self._given_up[next(iter(self._given_up))]
            self.tracks[index].history.append((sequence, False))
            self.tracks[index].lost += 1

    def to_send(self, port: int) -> list[bytes]:
        """Remove and return the probes that wait for a port."""
        probes = self.waiting.pop(port, [])
        self.sent[port] += len(probes)
        return probes

    def receive(self, port: int, packet: bytes, now: int) -> None:
        """Match a packet to the probe of ours that it returns; ignore everything else that looks like one."""
        self.received[port] += 1
        _magic, index, sequence, sent_ns = BODY.unpack_from(packet, BODY_AT)
        known = (index, sent_ns)
        if self._outstanding.get(sequence) == known:
            del self._outstanding[sequence]
            self.tracks[index].history.append((sequence, True))
        elif self._given_up.get(sequence) == known:
            del self._given_up[sequence]
            track = self.tracks[index]
            track.lost -= 1
            track.late += 1
            for place, (number, _) in enumerate(track.history):
                if number == sequence:
                    track.history[place] = (sequence, True)
        else:
            return
        self.tracks[index].rtt_ns = now - sent_ns

    def view(self) -> list[ProbeRow]:
        """Return the results of this host's probes: per target the latest answers (newest last), counts and RTT."""
        return [
            ProbeRow(
                target=track.target.name,
                port=track.target.port,
                history=[int(answered) for _, answered in track.history],
                sent=track.sent,
                lost=track.lost,
                late=track.late,
                rtt_ns=track.rtt_ns,
            )
            for track in self.tracks
        ]
