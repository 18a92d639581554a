"""The network of the model: one queue per direction of each host port, a fixed delay per plane, and the drawn faults.

It reads packets by the offsets of mrc-protocol.md §2 and §3 alone, and knows nothing of the endpoints' code.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Final

from support.model.scenario import ROCE, SECOND, Fault, Setup

_IPV6_HEADER: Final = 40  # bytes
_OPCODE: Final = 48  # after IPv6 (40) and UDP (8)
_DEST_QP: Final = slice(53, 56)
_FLAGS: Final = 56
_RTX: Final = 0x20
_SETH: Final = 60
_PROBE_ANSWER: Final = 0x02
_TRIMMABLE: Final = (4, 8)
_CONTROL: Final = (12, 16, 46)
_NAMES: Final = {0xD1: "ack", 0x11: "ack", 0x81: "cnp", 0xD8: "node", 0xD9: "node", 0xDD: "nack", 0xDE: "probe"}
_KEPT_PACKETS: Final = 400

Deliver = Callable[[int, int, int, bytes], None]
Plan = Callable[[int, Callable[[], None]], None]


def kind_of(packet: bytes) -> str:
    """Return the class of a packet: data, rtx (repeated data), sack, answer (to a probe), ack, nack, probe, node,
    cnp.
    """
    opcode = packet[_OPCODE]
    if opcode == 0xDC:
        return "answer" if packet[_SETH + 1] & _PROBE_ANSWER else "sack"
    known = _NAMES.get(opcode)
    if known is not None:
        return known
    return "rtx" if opcode > 0x80 and packet[_FLAGS] & _RTX else "data"


def dest_qp(packet: bytes) -> int:
    """Return the queue pair that a packet is for."""
    return int.from_bytes(packet[_DEST_QP], "big")


def is_nak(packet: bytes) -> bool:
    """Return whether an acknowledgement is a NAK, by the syndrome of its AETH."""
    return packet[60] & 0x60 == 0x60


def destination(packet: bytes) -> bytes:
    """Return the IPv6 address that a packet is for."""
    return packet[24:40]


def matches(only: str, kind: str) -> bool:
    """Return whether a fault limited to class `only` concerns a packet of class `kind`."""
    if only == "any" or only == kind:
        return True
    if only == "data":
        return kind == "rtx"
    return only == "control" and kind not in ("data", "rtx")


def trimmed(packet: bytes, keep: int, dscp: int) -> bytes:
    """Return what a switch leaves of a packet that it trims: `keep` bytes, its DSCP and the true length in the IPv6
    header.
    """
    cut = bytearray(packet[:keep])
    word = int.from_bytes(cut[0:4], "big") & ~(0x3F << 22) | dscp << 22
    cut[0:4] = word.to_bytes(4, "big")
    cut[4:6] = (len(cut) - 40).to_bytes(2, "big")
    return bytes(cut)


def sealed(packet: bytes) -> bytes:
    """Return the packet with an ICRC that is right: what varies on the way counts as ones, after eight bytes of
    ones.
    """
    masked = bytearray(packet[:-4])
    masked[0] |= 0x0F
    masked[1:4] = b"\xff\xff\xff"
    masked[7] = 0xFF
    masked[46:48] = b"\xff\xff"
    masked[52] = 0xFF
    return packet[:-4] + zlib.crc32(masked, zlib.crc32(b"\xff" * 8)).to_bytes(4, "little")


def _marked(packet: bytes) -> bytes:
    """With ECN CE, if the packet may be marked."""
    if not packet[1] >> 4 & 3:
        return packet
    return packet[:1] + bytes([packet[1] | 0x30]) + packet[2:]


def _entropy(packet: bytes) -> int:
    """Return the EV as it travels: the low half of the flow label and the UDP source port."""
    return int.from_bytes(packet[2:4], "big") << 16 | int.from_bytes(packet[40:42], "big")


class Network:
    """Carries packets. `deliver(time, host, plane, packet)` plans an arrival, `plan(time, action)` anything else."""

    def __init__(self, setup: Setup, faults: tuple[Fault, ...], deliver: Deliver, plan: Plan) -> None:
        self.setup = setup
        self.faults = faults
        self.deliver = deliver
        self.plan = plan
        self.rng = random.Random(f"network {setup.seed}")
        self.well = False  # from healing on there are no faults and no full queues
        self.silent: set[int] = set()  # hosts that are heard no more
        self.addresses: dict[bytes, int] = {}
        self.links_down: set[tuple[int, int]] = set()  # (host, port)
        self.captured: list[tuple[int, int, bytes]] = []  # (host, plane, packet): what may be replayed
        self.last_arrival = 0
        self._free: dict[tuple[int, int], int] = {}
        self._left = [fault.value for fault in faults]
        self._live = sorted({time for fault in faults for time in (fault.start, fault.end)})
        self._active: list[tuple[int, Fault]] = []
        self._next_change = -1

    def _faults_at(self, at: int) -> list[tuple[int, Fault]]:
        if at >= self._next_change:
            self._active = [(n, fault) for n, fault in enumerate(self.faults) if fault.start <= at < fault.end]
            self._next_change = min((time for time in self._live if time > at), default=1 << 62)
        return self._active

    def send(self, src: int, plane: int, packet: bytes, at: int) -> None:  # noqa: C901 - a branch per kind of fault
        """Send a packet from a host's port; `at` is in ns of the scenario, after its transmission."""
        dst = self.addresses.get(destination(packet))
        if dst is None or (src, plane) in self.links_down or src in self.silent or dst in self.silent:
            return
        rng = self.rng
        if len(self.captured) < _KEPT_PACKETS:
            self.captured.append((dst, plane, packet))
        elif rng.random() < 0.05:
            self.captured[rng.randrange(_KEPT_PACKETS)] = (dst, plane, packet)
        extra = copies = 0
        if not self.well and self.faults:
            kind = kind_of(packet)
            for number, fault in self._faults_at(at):
                if (
                    fault.plane not in (-1, plane)
                    or fault.src not in (-1, src)
                    or not matches(fault.only, kind)
                    or (fault.share < 1.0 and rng.random() >= fault.share)
                ):
                    continue
                what = fault.kind
                if what == "loss":
                    return
                if what == "first":
                    if self._left[number] > 0:
                        self._left[number] -= 1
                        return
                elif what == "blackhole":
                    if (_entropy(packet) * 2654435761 >> 7) % fault.value == 0:
                        return
                elif what == "duplicate":
                    copies += 1
                elif what == "reorder":
                    extra += rng.randrange(fault.value + 1)
                elif what == "delay":
                    extra += fault.value
                elif what == "corrupt":
                    packet = self._corrupted(packet)
                elif len(packet) < _IPV6_HEADER:
                    pass  # another fault has cut it off: no switch reads a header there, to mark or to trim by
                elif what == "mark":
                    packet = _marked(packet)
                elif what in ("trim", "trim_last") and packet[0] >> 4 == 6 and kind in ("data", "rtx"):
                    if self._dscp(packet) not in _TRIMMABLE:
                        return
                    packet = self._trim(packet, what == "trim_last")
        arrival = at + self.setup.delays[plane]
        if extra:
            self._later(dst, plane, packet, arrival + extra)
        else:
            self._queue(dst, plane, packet, arrival)
        for _ in range(copies):
            self._later(dst, plane, packet, arrival + rng.choice((0, self.setup.base_rtt_ns, self.setup.timeout_ns)))

    def _later(self, dst: int, plane: int, packet: bytes, arrival: int) -> None:
        """Into the last queue when its time has come: it must not hold up what comes before it."""
        self.last_arrival = max(self.last_arrival, arrival)
        self.plan(arrival, lambda: self._queue(dst, plane, packet, arrival))

    @staticmethod
    def _dscp(packet: bytes) -> int:
        return (packet[0] << 8 | packet[1]) >> 6 & 0x3F

    def _trim(self, packet: bytes, last_hop: bool) -> bytes:
        keep = self.rng.choice((96, 96, 128, 88, 60)) if self.setup.transport != ROCE else 96
        return trimmed(packet, min(keep, len(packet)), 16 if last_hop else 12)

    def _corrupted(self, packet: bytes) -> bytes:
        """Return a few bits flipped, or the end cut off."""
        changed = bytearray(packet)
        if self.rng.random() < 0.1:
            return bytes(changed[: self.rng.randrange(len(changed))])
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            bit = self.rng.randrange(8 * len(changed))
            changed[bit >> 3] ^= 1 << (bit & 7)
        return bytes(changed)

    def _queue(self, dst: int, plane: int, packet: bytes, arrival: int) -> None:
        """Pass a packet through the queue of the port to a host: ECN, trimming, drops; control passes first."""
        setup = self.setup
        if (dst, plane) in self.links_down or not packet:
            return
        took = len(packet) * 8 * SECOND // setup.rate_bps
        dscp = self._dscp(packet) if len(packet) > 1 else 0
        if dscp not in _CONTROL:
            key = (dst, plane)
            start = max(arrival, self._free.get(key, 0))
            wait = start - arrival
            if not self.well and wait > setup.trim_ns:
                if dscp not in _TRIMMABLE or len(packet) < 140 or setup.transport == ROCE:
                    return
                packet = self._trim(packet, True)
            else:
                if setup.mark_ns and wait > setup.mark_ns and len(packet) >= _IPV6_HEADER:
                    packet = _marked(packet)
                self._free[key] = start + took
                arrival = start
        arrival += took
        self.last_arrival = max(self.last_arrival, arrival)
        self.deliver(arrival, dst, plane, packet)

    def inject(self, dst: int, plane: int, packet: bytes, at: int) -> None:
        """Deliver a forged packet to a host."""
        if dst not in self.silent:
            self.last_arrival = max(self.last_arrival, at)
            self.deliver(at, dst, plane, packet)
