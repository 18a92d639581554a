"""Packets as the switches of a run saw them: read from the captures of their ports, decoded in a line, written small.

A packet is in a capture as it came in, before the pipeline, and as it began to leave. So what the program of a switch
did to it is the difference of two records, and the time between them is its time in the queue.
"""

from __future__ import annotations

import functools
import ipaddress
import pathlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mrc_host.proto.wire.fields import MRC_LAYOUTS, MRC_UDP_PORT
from mrc_topo import addressing
from mrc_topo.addressing import Tier
from mrc_topo.base import pcapng
from mrc_topo.base.pcapng import ENHANCED_PACKET, LinkType, Way
from mrc_topo.topology import Topology

ETHERNET, IPV6, UDP, BTH = 14, 40, 8, 12
ETHERTYPE_IPV6 = 0x86DD
NEXT_IPV6, NEXT_UDP = 41, 17
CE = 3
ECN_TEXT = ("not-ECT", "ECT(1)", "ECT(0)", "CE")
#: The limit of captures, so that a submission cannot fill the judge's memory.
MAX_CAPTURE_BYTES = 256 << 20
INDENT = " " * 16


class CaptureError(Exception):
    """A file that is not a valid capture."""


@dataclass(frozen=True)
class CapturedPacket:
    """A packet at a port of a switch. `data` may be cut (`snaplen`); `length` is the length on the wire."""

    t_ns: int
    switch: str
    port: int
    out: bool
    data: bytes
    length: int

    @property
    def is_ipv6(self) -> bool:
        """Whether it has an IPv6 header."""
        return len(self.data) >= ETHERNET + IPV6 and self.data[12:14] == b"\x86\xdd"

    @property
    def destination(self) -> bytes:
        """The destination in the outermost IPv6 header."""
        return self.data[ETHERNET + 24 : ETHERNET + 40]

    @property
    def payload_length(self) -> int:
        """The payload length in the outermost IPv6 header."""
        return int(struct.unpack_from("!H", self.data, ETHERNET + 4)[0])

    @property
    def hop_limit(self) -> int:
        """The hop limit in the outermost IPv6 header."""
        return self.data[ETHERNET + 7]

    @property
    def dscp(self) -> int:
        """The DSCP in the outermost IPv6 header."""
        return int(struct.unpack_from("!H", self.data, ETHERNET)[0]) >> 6 & 0x3F

    @property
    def ecn(self) -> int:
        """The ECN field in the outermost IPv6 header."""
        return int(struct.unpack_from("!H", self.data, ETHERNET)[0]) >> 4 & 3

    @property
    def inner_at(self) -> int:
        """The offset of the hosts' IPv6 header."""
        return ETHERNET + IPV6 if self.data[ETHERNET + 6] == NEXT_IPV6 else ETHERNET

    @property
    def inner(self) -> bytes:
        """The bytes from the hosts' IPv6 header on, which no switch changes in a packet with SRv6."""
        return self.data[self.inner_at :]

    @property
    def bth_at(self) -> int | None:
        """The offset of the BTH, if there is one."""
        at = self.inner_at
        if len(self.data) < at + IPV6 + UDP + BTH or self.data[at + 6] != NEXT_UDP:
            return None
        port = struct.unpack_from("!H", self.data, at + IPV6 + 2)[0]
        return at + IPV6 + UDP if port == MRC_UDP_PORT else None

    @property
    def opcode(self) -> int | None:
        """The opcode in the BTH."""
        at = self.bth_at
        return None if at is None else self.data[at]

    @property
    def psn(self) -> int | None:
        """The PSN in the BTH."""
        at = self.bth_at
        return None if at is None else int.from_bytes(self.data[at + 9 : at + 12], "big")

    @property
    def is_write(self) -> bool:
        """Whether it is an MRC WRITE."""
        opcode = self.opcode
        return opcode is not None and 0xC6 <= opcode <= 0xCB

    @property
    def identity(self) -> bytes:
        """A key that is the same at all switches for one transmission of a packet: its inner headers, up to the BTH."""
        at = self.inner_at
        # Traffic class and hop limit are left out, because switches change them where there is no outer header.
        return self.data[at + 2 : at + 7] + self.data[at + 8 : at + IPV6 + UDP + BTH]


def read_folder(folder: pathlib.Path, topology: Topology) -> list[CapturedPacket]:
    """Return all packets in the captures `SWITCH_PORT.pcapng` of a folder, ordered by time.

    Raises:
        CaptureError: a file is not a capture, or the captures are too large.
    """
    found: list[CapturedPacket] = []
    total = 0
    for switch in topology.switches:
        for port in switch.links:
            path = folder / f"{switch.name}_{port}.pcapng"
            if not path.is_file() or path.is_symlink():
                continue
            total += path.stat().st_size
            if total > MAX_CAPTURE_BYTES:
                raise CaptureError(f"more than {MAX_CAPTURE_BYTES >> 20} MB of captures")
            found += _packets(path.read_bytes(), switch.name, port)
    # A packet that comes in at an instant precedes one that goes out at the same instant.
    found.sort(key=lambda seen: (seen.t_ns, seen.out))
    return found


def _packets(data: bytes, switch: str, port: int) -> Iterable[CapturedPacket]:
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or at + length > len(data):
            break  # the last packet, where writing ended
        if kind == ENHANCED_PACKET:
            _, high, low, captured, original = struct.unpack_from("<IIIII", data, at + 8)
            if captured > length - 32:
                raise CaptureError(f"{switch} port {port}: a packet is longer than its block")
            end = at + 28 + captured + (-captured & 3)
            flags = struct.unpack_from("<I", data, end + 4)[0]
            packet = data[at + 28 : at + 28 + captured]
            yield CapturedPacket(high << 32 | low, switch, port, flags != Way.INBOUND, packet, original)
        at += length


def write(path: pathlib.Path, packets: Sequence[CapturedPacket]) -> None:
    """Write packets as a pcap-ng file for Wireshark with `docs/mrc.lua`, with an interface for each port
    (`SWITCH:PORT`)."""
    ports = {port: index for index, port in enumerate(dict.fromkeys((seen.switch, seen.port) for seen in packets))}
    records = (
        pcapng.Record(
            ports[seen.switch, seen.port], seen.t_ns, Way.OUTBOUND if seen.out else Way.INBOUND, seen.data, seen.length
        )
        for seen in sorted(packets, key=lambda each: (each.t_ns, each.out))
    )
    path.write_bytes(pcapng.capture([f"{switch}:{port}" for switch, port in ports], LinkType.ETHERNET, records))


@functools.lru_cache(maxsize=64)
def _names(topology: Topology) -> dict[bytes, str]:
    names = {}
    for host in topology.hosts:
        names[host.address] = host.name
        names |= {port.address: port.name for port in host.ports}
    return names


def usid_text(topology: Topology, value: int, t0: int | None = None) -> str:
    """Return the name of a uSID's element: `p0-t1.0`; for a host port, which its T0 alone resolves, `slot 1` or, with
    its T0, `h3:0`."""
    try:
        plane, tier, index = addressing.parse_usid(value)
    except ValueError:
        return f"{value:04x}?"
    if tier is not Tier.HOST:
        return addressing.switch_name(plane, tier, index)
    if t0 is None:
        return f"slot {index}"
    return addressing.host_port_name(t0 * topology.lab.hosts_per_t0 + index, plane)


def address_text(topology: Topology, address: bytes) -> str:
    """Return an address by its name in the lab; for a carrier, the address and the names of its uSIDs."""
    known = _names(topology).get(address)
    if known is not None:
        return known
    text = str(ipaddress.IPv6Address(address))
    if int.from_bytes(address[:4], "big") != addressing.LOCATOR_BLOCK:
        return text
    words = [int.from_bytes(address[at : at + 2], "big") for at in range(4, 16, 2)]
    while words and words[-1] == 0:
        words.pop()
    t0 = None
    shown = []
    for word in words:
        shown.append(usid_text(topology, word, t0))
        try:
            _, tier, index = addressing.parse_usid(word)
            t0 = index if tier is Tier.T0 else None
        except ValueError:
            t0 = None
    return f"{text} [{', '.join(shown) or 'empty'}]"


def line(topology: Topology, seen: CapturedPacket) -> str:
    """Return a packet in two lines: time, place and direction; and the content of its headers."""
    where = f"{seen.t_ns / 1e6:11.6f} ms  {seen.switch} port {seen.port} {'out' if seen.out else 'in '}"
    if not seen.is_ipv6:
        return f"{where}  no IPv6 packet, {seen.length} bytes: {seen.data[:20].hex()}"
    parts = [f"to {address_text(topology, seen.destination)}"]
    parts.append(f"\n{INDENT}hop limit {seen.hop_limit}, DSCP {seen.dscp}, {ECN_TEXT[seen.ecn]}, {seen.length} bytes")
    at = seen.inner_at
    if len(seen.data) >= at + IPV6:
        names = _names(topology)
        ends = [seen.data[at + 8 : at + 24], seen.data[at + 24 : at + 40]]
        inner = " to ".join(names.get(end) or str(ipaddress.IPv6Address(end)) for end in ends)
        parts.append(inner + _mrc(seen))
    return f"{where}  {parts[0]}{'; '.join(parts[1:])}"


def _mrc(seen: CapturedPacket) -> str:
    at, inner = seen.bth_at, seen.inner_at
    if at is None:
        return ""
    label = struct.unpack_from("!I", seen.data, inner)[0] & 0xFFFFF
    port = struct.unpack_from("!H", seen.data, inner + IPV6)[0]
    layout = MRC_LAYOUTS.get(seen.data[at])
    name = layout.title if layout else f"opcode {seen.data[at]:#04x}"
    again = ", rtx" if seen.data[at + 8] >> 5 & 1 else ""
    return f", EV {(label & 0xFFFF) << 16 | port:08x}, {name} PSN {seen.psn}{again}"
