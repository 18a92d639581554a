"""The wire codec of the data path: one struct pack or unpack per packet (mrc-protocol.md §2, §3).

The endpoint speaks in the light objects of `messages.py` (`Data`, `Sack`, ...). The readable, complete codec,
one dataclass per header by the field table, is `packet.py`; tests hold the two against each other.

A frame here is an IPv6 (or IPv4) packet without Ethernet header. `addresses` is source and destination, 16 + 16
bytes (4 + 4 on IPv4). `traffic_class` is DSCP << 2 | ECN. `entropy` is the 32-bit EV the packet travels with.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias
from zlib import crc32

from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulate, encapsulation_length, to_ipv4
from mrc_host.proto.wire.fields import MRC_UDP_PORT, Dscp, Ecn, NackReason, Opcode
from mrc_host.proto.wire.messages import (
    FLAG_ACK_REQ,
    FLAG_RTX,
    FLAG_TS,
    NO_TIMESTAMP,
    Ack,
    Data,
    EndpointRequest,
    EndpointResponse,
    Message,
    Nack,
    Probe,
    Sack,
)
from mrc_host.proto.wire.packet import NEXT_UDP, Drop, WireError

__all__ = [
    "FLAG_ACK_REQ",
    "FLAG_RTX",
    "FLAG_TS",
    "NO_TIMESTAMP",
    "Ack",
    "Codec",
    "Data",
    "Drop",
    "EndpointRequest",
    "EndpointResponse",
    "Message",
    "Nack",
    "Probe",
    "Sack",
    "WireError",
    "encapsulate",
    "icrc_constant",
    "to_ipv4",
]

Buffer: TypeAlias = bytes | bytearray | memoryview


# IPv6 (version/class/label, length, next header and hop limit, addresses), UDP, BTH (word: flags and PSN).
_HEAD_FORMAT = "!IHH32sHHHHBBHII"
HEAD: Final = struct.Struct(_HEAD_FORMAT)
# Extension headers. METH | TSETH (as one word) | RETH | ImmDt.
DATA: Final = struct.Struct("!HHQII")
DATA_TS: Final = struct.Struct("!HHIQII")
IMM: Final = struct.Struct("!I")
SACK: Final = struct.Struct("!HhIHHIBBhQHHI")
NACK: Final = struct.Struct("!HBBIHHIBBH")
ACK: Final = struct.Struct("!I")
PROBE: Final = struct.Struct("!HBBHHHHI")
REQUEST: Final = struct.Struct("!HBBIII")
RESPONSE: Final = struct.Struct("!HH24xHHI")
METH: Final = struct.Struct("!HH")
RETH: Final = struct.Struct("!QII")
# The same as one struct with the head: what encoding uses.
_HEAD_DATA: Final = struct.Struct(_HEAD_FORMAT + "HHQII")
_HEAD_DATA_TS: Final = struct.Struct(_HEAD_FORMAT + "HHIQII")
_HEAD_SACK: Final = struct.Struct(_HEAD_FORMAT + "HhIHHIBBhQHHI")
_HEAD_LENGTH = 60
_SIZES = {0xD1: 68, 0xD8: 80, 0xD9: 100, 0xDC: 100, 0xDD: 84, 0xDE: 80}  # whole packet, inner IPv6 to ICRC
_NEXT_UDP_HOP_64 = 17 << 8 | 64
_PADS = (b"", b"\0", b"\0\0", b"\0\0\0")
_IMM_OPCODES = (int(Opcode.WRITE_LAST_IMM), int(Opcode.WRITE_ONLY_IMM))
# The constants are at most a few hundred per peer; more means forged addresses, so start again.
_MAX_CONSTANTS = 8192


def icrc_constant(addresses: bytes, udp_length: int) -> int:
    """What turns a plain CRC into the ICRC for these addresses and this UDP length.

    The ICRC is the CRC-32 of eight bytes of ones, the IP header and UDP and BTH with their variant fields as
    ones, and the rest. CRC is linear, so with UDP checksum and BTH.resv8a sent as 0 it equals the plain
    CRC-32 from the UDP header on, XOR a value that depends only on the invariant IP fields and the length.
    """
    ip_version_6 = b"\x6f\xff\xff\xff" + udp_length.to_bytes(2, "big") + b"\x11\xff" + addresses
    covered = udp_length - 4
    ones = bytearray(covered)
    ones[6:8] = b"\xff\xff"  # UDP checksum
    ones[12] = 0xFF  # BTH.resv8a
    return crc32(ones, crc32(b"\xff" * 8 + ip_version_6)) ^ crc32(bytes(covered))


class Codec:
    """Encodes and decodes for one endpoint. It holds its configuration and a bounded cache, no protocol state."""

    __slots__ = ("_constants", "check_icrc", "dscp_lasthop", "dscp_trimmed", "p_key", "udp_port")

    def __init__(
        self,
        *,
        udp_port: int = MRC_UDP_PORT,
        p_key: int = 0xFFFF,
        dscp_trimmed: int = Dscp.TRIMMED,
        dscp_lasthop: int = Dscp.TRIMMED_LASTHOP,
        check_icrc: bool = True,
    ) -> None:
        self.udp_port = udp_port
        self.p_key = p_key
        self.check_icrc = check_icrc
        self.dscp_trimmed = int(dscp_trimmed)
        self.dscp_lasthop = int(dscp_lasthop)
        self._constants: dict[tuple[bytes, int], int] = {}

    def _constant(self, addresses: bytes, udp_length: int) -> int:
        if len(self._constants) >= _MAX_CONSTANTS:
            self._constants.clear()
        value = self._constants[addresses, udp_length] = icrc_constant(addresses, udp_length)
        return value

    def encode_data(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        flags: int,
        rqmsn: int,
        msn: int,
        tx_timestamp: int,
        va: int,
        rkey: int,
        dma_length: int,
        payload: Buffer,
        immediate: int = 0,
    ) -> bytes:
        """One WRITE packet. TSETH is present unless `tx_timestamp` is NO_TIMESTAMP; FLAG_TS is set to match."""
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 44  # UDP, BTH, METH, RETH, ICRC
        if opcode in _IMM_OPCODES:
            udp_length += 4
        if tx_timestamp >= 0:
            udp_length += 4
            head = _HEAD_DATA_TS.pack(
                0x60000000 | traffic_class << 20 | entropy >> 16,
                udp_length,
                _NEXT_UDP_HOP_64,
                addresses,
                entropy & 0xFFFF,
                self.udp_port,
                udp_length,
                0,
                opcode,
                pad << 4,
                self.p_key,
                dest_qp,
                (flags | FLAG_TS) << 24 | psn,
                rqmsn,
                msn,
                tx_timestamp << 16 | 1,
                va,
                rkey,
                dma_length,
            )
        else:
            head = _HEAD_DATA.pack(
                0x60000000 | traffic_class << 20 | entropy >> 16,
                udp_length,
                _NEXT_UDP_HOP_64,
                addresses,
                entropy & 0xFFFF,
                self.udp_port,
                udp_length,
                0,
                opcode,
                pad << 4,
                self.p_key,
                dest_qp,
                (flags & ~FLAG_TS) << 24 | psn,
                rqmsn,
                msn,
                va,
                rkey,
                dma_length,
            )
        if opcode in _IMM_OPCODES:
            head += IMM.pack(immediate)
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(_PADS[pad], crc)
        packet = b"".join((head, payload, _PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def _finish(self, addresses: bytes, head: bytes) -> bytes:
        length = len(head) - 36  # UDP length: without the IPv6 header, with the ICRC
        constant = self._constants.get((addresses, length))
        if constant is None:
            constant = self._constant(addresses, length)
        packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def _head(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        flags: int,
        udp_length: int,
    ) -> bytes:
        return HEAD.pack(
            0x60000000 | traffic_class << 20 | entropy >> 16,
            udp_length,
            _NEXT_UDP_HOP_64,
            addresses,
            entropy & 0xFFFF,
            self.udp_port,
            udp_length,
            0,
            opcode,
            0,
            self.p_key,
            dest_qp,
            flags << 24 | psn,
        )

    def encode_sack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        flags: int,
        m: int,
        pr: int,
        ack_psn_offset: int,
        entropy: int,
        spdcid: int,
        dpdcid: int,
        cack_psn: int,
        cc_type: int,
        cc_flags: int,
        mpr: int,
        sack_offset: int,
        sack_bitmap: int,
        tx_timestamp: int,
        ooo_count: int,
        restore_cwnd: int,
        rcv_cwnd_pen: int,
        rcvd_bytes: int,
    ) -> bytes:
        """BTH.PSN is `cack_psn`. With `pr` the probe id goes where `ack_psn_offset` is."""
        if pr and ack_psn_offset > 0x7FFF:
            ack_psn_offset -= 0x10000
        head = _HEAD_SACK.pack(
            0x60000000 | traffic_class << 20 | packet_entropy >> 16,
            60,
            _NEXT_UDP_HOP_64,
            addresses,
            packet_entropy & 0xFFFF,
            self.udp_port,
            60,
            0,
            0xDC,
            0,
            self.p_key,
            dest_qp,
            flags << 24 | cack_psn,
            m << 5 | pr << 1,
            ack_psn_offset,
            entropy,
            spdcid,
            dpdcid,
            cack_psn,
            cc_type << 4 | cc_flags,
            mpr,
            sack_offset,
            sack_bitmap,
            tx_timestamp,
            ooo_count,
            restore_cwnd << 31 | rcv_cwnd_pen << 24 | rcvd_bytes,
        )
        return self._finish(addresses, head)

    def encode_nack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        nack_psn: int,
        nack_reason: int,
        entropy: int,
        spdcid: int,
        dpdcid: int,
        tx_timestamp: int,
        *,
        flags: int = 0,
        vendor_info: int = 0,
        cc_type: int = 2,
        cc_flags: int = 0,
    ) -> bytes:
        """BTH.PSN is `nack_psn`."""
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.NACK, dest_qp, nack_psn, flags, 44)
        body = NACK.pack(
            0,
            nack_reason,
            vendor_info,
            entropy,
            spdcid,
            dpdcid,
            nack_psn,
            cc_type << 4 | cc_flags,
            0,
            max(tx_timestamp, 0),
        )
        return self._finish(addresses, head + body)

    def encode_ack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
    ) -> bytes:
        """Transport ACK or NAK of everything up to `psn`."""
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.ACK, dest_qp, psn, 0, 28)
        return self._finish(addresses, head + ACK.pack(syndrome << 24 | msn))

    def encode_probe(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        probe_id: int,
        spdcid: int,
        dpdcid: int,
        tx_timestamp: int,
        *,
        psn: int = 0,
        vendor_info: int = 0,
    ) -> bytes:
        """RELIABILITY PROBE REQUEST; it consumes no PSN."""
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.PROBE, dest_qp, psn, 0, 40)
        body = PROBE.pack(0, 0, vendor_info, probe_id, 0, spdcid, dpdcid, tx_timestamp << 16 | 1)
        return self._finish(addresses, head + body)

    def encode_endpoint_request(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        request_id: int,
        op: int,
        port_status_mask: int,
        tx_timestamp: int,
        *,
        dest_qp: int = 2,
        vendor_info: int = 0,
    ) -> bytes:
        """Port status update (op 0) or EV probe (op 1)."""
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.ENDPOINT_REQUEST, dest_qp, request_id, 0, 40)
        body = REQUEST.pack(op, 0, vendor_info, port_status_mask, 0, tx_timestamp << 16 | 1)
        return self._finish(addresses, head + body)

    def encode_endpoint_response(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        request_id: int,
        op: int,
        tx_timestamp: int,
        *,
        dest_qp: int = 2,
    ) -> bytes:
        """Answers the request whose id it echoes."""
        head = self._head(
            addresses, packet_entropy, traffic_class, Opcode.ENDPOINT_RESPONSE, dest_qp, request_id, 0, 60
        )
        return self._finish(addresses, head + RESPONSE.pack(op << 2, 0, tx_timestamp, 0, 0))

    def decode(self, packet: bytes) -> Message:
        """The message in an IPv6 or IPv4 packet, SRv6 encapsulation taken off. Raises WireError, nothing else."""
        total = len(packet)
        if total < _HEAD_LENGTH or packet[0] >> 4 != 6:
            return self._decode_fully(packet)
        (
            word, length, nh_hops, addresses, source_port, port, udp_length, checksum,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = HEAD.unpack_from(packet)  # fmt: skip
        if length != total - 40:
            raise WireError(Drop.SHORT if length > total - 40 else Drop.TRAILING, f"{total} bytes of IP packet")
        outer = word
        if nh_hops >> 8 != NEXT_UDP:
            packet = packet[encapsulation_length(packet, nh_hops >> 8) :]
            total = len(packet)
            if total < _HEAD_LENGTH or packet[0] >> 4 != 6:
                raise WireError(Drop.SHORT, "inside SRv6")
            (
                word, length, nh_hops, addresses, source_port, port, udp_length, checksum,
                opcode, bits, p_key, dest_qp, flags_psn,
            ) = HEAD.unpack_from(packet)  # fmt: skip
            if nh_hops >> 8 != NEXT_UDP:
                raise WireError(Drop.NEXT_HEADER, f"{nh_hops >> 8} where UDP should be")
            if length != udp_length:
                raise WireError(Drop.LENGTH, f"inner IPv6 says {length} bytes, UDP {udp_length}")
        if port != self.udp_port:
            raise WireError(Drop.PORT, f"{port} where {self.udp_port} should be")
        if bits & 0x0F:
            raise WireError(Drop.TVER, f"{bits & 0x0F} where 0 should be")
        dscp = outer >> 22 & 0x3F
        # A switch marks the outermost header; the inner one may come marked from where there was no SRv6 yet.
        ce = (outer >> 20 & 3) == 3 or (word >> 20 & 3) == 3
        entropy = (word & 0xFFFF) << 16 | source_port
        trimmed = 0
        if dscp == self.dscp_trimmed:
            trimmed = 1
        elif dscp == self.dscp_lasthop:
            trimmed = 2
        if udp_length != total - 40:
            if udp_length < total - 40:
                raise WireError(Drop.LENGTH, f"UDP says {udp_length} bytes, {total - 40} arrived")
            trimmed = trimmed or 1
        if trimmed:
            return self._trimmed(
                packet, trimmed, opcode, dest_qp & 0xFFFFFF, flags_psn, entropy, ce, dscp, addresses, p_key,
                udp_length,
            )  # fmt: skip
        if total < 64:
            raise WireError(Drop.LENGTH, "no room for the ICRC")
        view = memoryview(packet)
        if checksum or dest_qp >> 24:  # fields that the shortcut takes for 0
            dest_qp &= 0xFFFFFF
            if self.check_icrc and full.icrc(packet[:40], packet[40:-4]) != packet[-4:]:
                raise WireError(Drop.ICRC, "mismatch")
        elif self.check_icrc:
            constant = self._constants.get((addresses, udp_length))
            if constant is None:
                constant = self._constant(addresses, udp_length)
            if crc32(view[40:-4]) ^ constant != int.from_bytes(packet[-4:], "little"):
                raise WireError(Drop.ICRC, "mismatch")
        flags = flags_psn >> 24
        psn = flags_psn & 0xFFFFFF
        try:
            if 0xC6 <= opcode <= 0xCB:
                if flags & FLAG_TS:
                    rqmsn, msn, stamp, va, rkey, dma_length = DATA_TS.unpack_from(packet, 60)
                    stamp >>= 16
                    start = 84
                else:
                    rqmsn, msn, va, rkey, dma_length = DATA.unpack_from(packet, 60)
                    stamp = NO_TIMESTAMP
                    start = 80
                immediate = 0
                if opcode in _IMM_OPCODES:
                    (immediate,) = IMM.unpack_from(packet, start)
                    start += 4
                end = total - 4 - (bits >> 4 & 3)
                if end < start or (total - start) & 3:
                    raise WireError(Drop.LENGTH, f"{total - 4 - start} bytes of payload with padding {bits >> 4 & 3}")
                return Data(
                    opcode, dest_qp, psn, flags, entropy, ce, dscp, addresses, p_key, udp_length + 40,
                    rqmsn, msn, stamp, va, rkey, dma_length, immediate, view[start:end],
                )  # fmt: skip
            size = _SIZES.get(opcode)
            if size is None:
                raise WireError(Drop.OPCODE, f"{opcode:#04x} is none of ours")
            if size != total or bits & 0x30:
                raise WireError(Drop.LENGTH, f"{total} bytes where {size} should be")
            if opcode == 0xDC:
                (
                    first, ack_psn_offset, echo, spdcid, dpdcid, cack, cc, mpr, sack_offset, bitmap, stamp, ooo, tail,
                ) = SACK.unpack_from(packet, 60)  # fmt: skip
                return Sack(
                    opcode, dest_qp, psn, flags, entropy, ce, dscp, addresses, p_key,
                    first >> 5 & 3, first >> 1 & 1, ack_psn_offset, echo, spdcid, dpdcid, cack & 0xFFFFFF,
                    cc >> 4, cc & 15, mpr, sack_offset, bitmap, stamp, ooo & 0x7FFF,
                    tail >> 31, tail >> 24 & 0x7F, tail & 0xFFFFFF,
                )  # fmt: skip
            common = (opcode, dest_qp, psn, flags, entropy, ce, dscp, addresses, p_key)
            if opcode == 0xD1:
                (word,) = ACK.unpack_from(packet, 60)
                return Ack(*common, word >> 24, word & 0xFFFFFF)
            if opcode == 0xDD:
                _, reason, vendor, echo, spdcid, dpdcid, nack, cc, _, stamp = NACK.unpack_from(packet, 60)
                return Nack(*common, reason, vendor, echo, spdcid, dpdcid, nack & 0xFFFFFF, cc >> 4, cc & 15, stamp)
            if opcode == 0xDE:
                _, _, vendor, probe_id, _, spdcid, dpdcid, stamp = PROBE.unpack_from(packet, 60)
                return Probe(*common, vendor, probe_id, spdcid, dpdcid, stamp >> 16, udp_length + 40)
            if opcode == 0xD8:
                op, _, vendor, mask, _, stamp = REQUEST.unpack_from(packet, 60)
                return EndpointRequest(*common, op & 3, vendor, mask, stamp >> 16)
            op, _, stamp, _, _ = RESPONSE.unpack_from(packet, 60)
            return EndpointResponse(*common, op >> 2 & 3, stamp)
        except struct.error:
            raise WireError(Drop.LENGTH, f"{total} bytes are too few for opcode {opcode:#04x}") from None

    def _trimmed(
        self,
        packet: bytes,
        trimmed: int,
        opcode: int,
        dest_qp: int,
        flags_psn: int,
        entropy: int,
        ce: bool,
        dscp: int,
        addresses: bytes,
        p_key: int,
        udp_length: int,
    ) -> Data:
        if not 0xC6 <= opcode <= 0xCB:
            raise WireError(Drop.TRIMMED_CONTROL if opcode in _SIZES else Drop.OPCODE, f"{opcode:#04x}")
        result = Data(
            opcode, dest_qp, flags_psn & 0xFFFFFF, flags_psn >> 24, entropy, ce, dscp, addresses, p_key,
            udp_length + 40, 0, 0, NO_TIMESTAMP, 0, 0, 0, 0, memoryview(b""), trimmed,
        )  # fmt: skip
        start = 64
        if len(packet) >= 64:
            result.rqmsn, result.msn = METH.unpack_from(packet, 60)
        if flags_psn >> 24 & FLAG_TS and len(packet) >= 68:
            (stamp,) = IMM.unpack_from(packet, 64)
            result.tx_timestamp = stamp >> 16
            start = 68
        if len(packet) >= start + 16:
            result.va, result.rkey, result.dma_length = RETH.unpack_from(packet, start)
        return result

    def _decode_fully(self, packet: bytes) -> Message:
        """IPv4, and whatever is too odd for the fast path, by the complete codec."""
        trims = (self.dscp_trimmed, self.dscp_lasthop)
        whole = full.decode(bytes(packet), udp_port=self.udp_port, trim_dscps=trims)
        ip, bth = whole.ip, whole.bth
        width = 4 if isinstance(ip, full.Ipv4) else 16
        addresses = ip.src.to_bytes(width, "big") + ip.dst.to_bytes(width, "big")
        flags = bth.ack_req << 7 | bth.rtx << 5 | bth.ts << 4
        common = (bth.opcode, bth.dest_qp, bth.psn, flags, whole.entropy)
        where = (ip.ecn == Ecn.CE, ip.dscp, addresses, bth.p_key)
        if whole.seth is not None and whole.cc_state is not None:
            s, c = whole.seth, whole.cc_state
            return Sack(
                *common, *where, s.m, s.pr, s.ack_psn_offset, s.entropy, s.spdcid, s.dpdcid, s.cack_psn,
                s.cc_type, s.cc_flags, s.mpr, s.sack_offset, s.sack_bitmap, c.tx_timestamp, c.ooo_count,
                c.restore_cwnd, c.rcv_cwnd_pen, c.rcvd_bytes,
            )  # fmt: skip
        if whole.neth is not None:
            n = whole.neth
            return Nack(
                *common, *where, n.nack_reason, n.vendor_info, n.entropy, n.spdcid, n.dpdcid, n.nack_psn,
                n.cc_type, n.cc_flags, n.tx_timestamp,
            )  # fmt: skip
        if whole.aeth is not None:
            return Ack(*common, *where, whole.aeth.syndrome, whole.aeth.msn)
        if whole.peth is not None:
            p = whole.peth
            return Probe(*common, *where, p.vendor_info, p.probe_id, p.spdcid, p.dpdcid, p.tx_timestamp)
        if whole.erth is not None:
            r = whole.erth
            return EndpointRequest(*common, *where, r.op, r.vendor_info, r.port_status_mask, r.tx_timestamp)
        if whole.eeth is not None:
            return EndpointResponse(*common, *where, whole.eeth.op, whole.eeth.tx_timestamp)
        trimmed = 0
        if whole.trimmed:
            last = ip.dscp == self.dscp_lasthop
            trimmed = int(NackReason.TRIMMED_LASTHOP if last else NackReason.TRIMMED)
        meth = whole.meth or full.Meth(0, 0)
        reth = whole.reth or full.Reth(0, 0, 0)
        return Data(
            *common, *where, whole.udp.length + 40, meth.rqmsn, meth.msn,
            NO_TIMESTAMP if whole.tseth is None else whole.tseth.tx_timestamp, reth.va, reth.rkey, reth.dma_length,
            whole.immdt.immediate if whole.immdt is not None and not trimmed else 0,
            memoryview(b"" if trimmed else whole.payload), trimmed,
        )  # fmt: skip
