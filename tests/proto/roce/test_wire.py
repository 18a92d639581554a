"""Packets of RoCE against the layer of Scapy, which is another implementation, and a packet made by hand."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

pytest.importorskip("scapy")

from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw, split_layers

from mrc_host.proto.roce import messages as wire
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.wire import packet
from mrc_host.proto.wire.fields import ROCE_LAYOUTS, RoceOpcode

split_layers(UDP, BTH, dport=4791)  # which the layers of `mrc_host.scapy_mrc` have in other tests of this process

CODEC = RoceCodec()
ADDRESSES = bytes.fromhex("fd00000000000000000000000000000afd00000000000000000000000000000b")
ENTROPY = 0xABCDC123
VA, RKEY = 0x0102030405060708, 0x0A0B0C0D
NAMES = {
    RoceOpcode.SEND_LAST_IMM: "RC_SEND_LAST_WITH_IMMEDIATE",
    RoceOpcode.SEND_ONLY_IMM: "RC_SEND_ONLY_WITH_IMMEDIATE",
    RoceOpcode.WRITE_FIRST: "RC_RDMA_WRITE_FIRST",
    RoceOpcode.WRITE_MIDDLE: "RC_RDMA_WRITE_MIDDLE",
    RoceOpcode.WRITE_LAST: "RC_RDMA_WRITE_LAST",
    RoceOpcode.WRITE_LAST_IMM: "RC_RDMA_WRITE_LAST_WITH_IMMEDIATE",
    RoceOpcode.WRITE_ONLY: "RC_RDMA_WRITE_ONLY",
    RoceOpcode.WRITE_ONLY_IMM: "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE",
    RoceOpcode.ACK: "RC_ACKNOWLEDGE",
    RoceOpcode.ATOMIC_ACK: "RC_ATOMIC_ACKNOWLEDGE",
    RoceOpcode.CNP: "CNP",
    **{op: f"RC_RDMA_{op.name}" for op in RoceOpcode if op.name.startswith("READ_")},
}


def made(opcode: RoceOpcode, psn: int, payload: bytes) -> tuple[bytes, bytes]:
    """Return a packet as our codec makes it, and what stands behind BTH before padding and ICRC."""
    head = (ADDRESSES, ENTROPY, 2)
    if opcode <= RoceOpcode.SEND_ONLY_IMM:
        immediate = b"\xde\xad\xbe\xef" if opcode in wire.WITH_IMM else b""
        return CODEC.encode_send(*head, opcode, 9, psn, True, 0xDEADBEEF, payload, 1), immediate + payload
    reth = VA.to_bytes(8, "big") + RKEY.to_bytes(4, "big") + (5000).to_bytes(4, "big")
    if opcode == RoceOpcode.READ_REQUEST:
        return CODEC.encode_read(*head, 9, psn, VA, RKEY, 5000), reth
    if opcode in (RoceOpcode.COMPARE_SWAP, RoceOpcode.FETCH_ADD):
        body = reth[:12] + bytes(7) + b"\x05" + b"\xff" * 8
        return CODEC.encode_atomic(*head, opcode, 9, psn, VA, RKEY, 5, (1 << 64) - 1), body
    aeth = b"\x1f\x00\x01\x02"
    if opcode == RoceOpcode.ATOMIC_ACK:
        return CODEC.encode_atomic_ack(*head, 9, psn, 0x1F, 0x102, 0xFEDCBA9876543210), aeth + bytes.fromhex(
            "fedcba9876543210"
        )
    if opcode == RoceOpcode.ACK:
        return CODEC.encode_acknowledge(*head, 9, psn, 0x1F, 0x102), aeth
    response = CODEC.encode_response(*head, opcode, 9, psn, 0x1F, 0x102, payload)
    return response, (b"" if opcode == RoceOpcode.READ_RESPONSE_MIDDLE else aeth) + payload


@given(
    st.sampled_from([op for op in RoceOpcode if not 6 <= op <= 0x0B and op != RoceOpcode.CNP]),
    st.integers(0, (1 << 24) - 1),
    st.binary(max_size=21),
)
def test_scapy_reads_the_same_and_computes_the_same_icrc(opcode: RoceOpcode, psn: int, payload: bytes) -> None:
    ours, body = made(opcode, psn, payload)
    theirs: Any = IPv6(ours[:48]) / BTH(ours[48:])
    bth = theirs[BTH]
    assert bth.get_field("opcode").i2s[bth.opcode] == NAMES.get(opcode, f"RC_{opcode.name}")
    assert (bth.dqpn, bth.psn, bth.version, bth.pkey) == (9, psn, 0, 0xFFFF)
    solicited = int(opcode <= RoceOpcode.SEND_ONLY_IMM)
    asks = opcode <= RoceOpcode.READ_REQUEST or opcode >= RoceOpcode.COMPARE_SWAP
    assert (bth.solicited, bth.ackreq) == (solicited, int(asks))
    assert bth.padcount == -len(body) % 4
    if opcode == RoceOpcode.ACK:
        assert (theirs[AETH].syndrome, theirs[AETH].msn) == (0x1F, 0x102)
    else:
        assert bytes(bth.payload) == body + bytes(bth.padcount)
    again: Any = theirs.copy()
    again[BTH].icrc = None  # Scapy's own
    assert bytes(again) == ours
    assert packet.encode(packet.decode(ours, ROCE_LAYOUTS), ROCE_LAYOUTS) == ours


def test_a_fetch_and_add_made_by_hand() -> None:
    """Byte by byte after IBTA's figures of BTH and AtomicETH, the ICRC by its definition for RoCEv2 over IPv6."""
    ip = bytes.fromhex("6020abcd") + (52).to_bytes(2, "big") + b"\x11\x40" + ADDRESSES
    udp = bytes.fromhex("c12312b7") + (52).to_bytes(2, "big") + b"\0\0"
    bth = bytes.fromhex("1400ffff0000000980000007")
    atomic = bytes.fromhex("01020304050607080a0b0c0d00000000000000050000000000000000")
    masked = bytes.fromhex("6fffffff") + ip[4:7] + b"\xff" + ip[8:] + udp[:6] + b"\xff\xff"
    pseudo = b"\xff" * 8 + masked + bth[:4] + b"\xff" + bth[5:] + atomic
    whole = ip + udp + bth + atomic + zlib.crc32(pseudo).to_bytes(4, "little")
    assert CODEC.encode_atomic(ADDRESSES, ENTROPY, 2, wire.FETCH_ADD, 9, 7, VA, RKEY, 5, 0) == whole
    found = CODEC.decode_roce(whole)
    assert isinstance(found, wire.AtomicRequest)
    assert (found.psn, found.va, found.rkey, found.swap_or_add, found.compare) == (7, VA, RKEY, 5, 0)


def test_scapy_packets_are_read() -> None:
    udp = UDP(sport=0xC001, dport=4791, chksum=0)
    made_by_scapy: Any = IPv6(src="fd00::1", dst="fd00::2", fl=5) / udp / BTH(opcode=4, dqpn=77, psn=3, ackreq=1)
    found = CODEC.decode_roce(bytes(made_by_scapy / Raw(b"four")))
    assert isinstance(found, wire.RoceData)
    assert (found.opcode, found.dest_qp, found.psn, found.ack_req, bytes(found.payload)) == (4, 77, 3, True, b"four")
