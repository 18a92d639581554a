"""Signatures of the data path's encoders: `generate.py` makes encoders of these and of the table of headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from mrc_host.proto.roce.messages import (
    ACKNOWLEDGE,
    ATOMIC_ACK,
    CNP,
    COMPARE_SWAP,
    FETCH_ADD,
    FIRST,
    LAST,
    LAST_IMM,
    MIDDLE,
    ONLY,
    ONLY_IMM,
    READ_REQUEST,
    RESPONSE_FIRST,
    RESPONSE_LAST,
    RESPONSE_MIDDLE,
    RESPONSE_ONLY,
    SEND_FIRST,
    SEND_LAST,
    SEND_LAST_IMM,
    SEND_MIDDLE,
    SEND_ONLY,
    SEND_ONLY_IMM,
)  # fmt: skip
from mrc_host.proto.wire.fields import MRC_LAYOUTS, Opcode
from mrc_host.proto.wire.icrc import Sealing
from mrc_host.proto.wire.messages import FLAG_ACK_REQ

Buffer: TypeAlias = bytes | bytearray | memoryview

F = TypeVar("F", bound=Callable[..., Any])

_WRITES = tuple(opcode for opcode, layout in MRC_LAYOUTS.items() if layout.payload)


def encodes(*opcodes: int, **given: str) -> Callable[[F], F]:
    """Declare a method as the signature of the encoder of these opcodes.

    Parameters are fields of the layout by name; fields that are no parameter get their default. `given` has the
    expression of a field that is not simply the parameter of its name. Besides, by name: `self` (with `udp_port`,
    `p_key` and the ICRC constants), `addresses`, `entropy` (`packet_entropy` where a header has an `entropy`),
    `traffic_class`, `opcode` where there are several, `outer` (what goes around the packet), `payload`, of which `size`
    bytes from `begin` on are sent, or all if that is negative. TSETH is there unless `tx_timestamp` is NO_TIMESTAMP.
    """

    def declare(method: F) -> F:
        method.declared = opcodes, given  # type: ignore[attr-defined]
        return method

    return declare


class Signatures(Sealing):
    """`addresses` is source and destination, 16 + 16 bytes (4 + 4 on IPv4). `traffic_class` is DSCP << 2 | ECN.
    `entropy` or `packet_entropy` is the 32-bit EV that the packet travels with."""

    @encodes(*_WRITES)
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
        se: int = 0,
        begin: int = 0,
        size: int = -1,
        outer: bytes = b"",
    ) -> bytes:
        """Encode one WRITE packet. TSETH is present unless `tx_timestamp` is NO_TIMESTAMP; FLAG_TS is set to match."""
        raise NotImplementedError

    @encodes(
        Opcode.SACK,
        psn="cack_psn",
        ack_psn_offset="ack_psn_offset if ack_psn_offset <= 0x7FFF or not pr else ack_psn_offset - 0x10000",
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
        outer: bytes = b"",
    ) -> bytes:
        """Encode a SACK. BTH.PSN is `cack_psn`. With `pr` the probe id goes where `ack_psn_offset` is."""
        raise NotImplementedError

    @encodes(Opcode.NACK, psn="nack_psn", tx_timestamp="max(tx_timestamp, 0)")
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
        outer: bytes = b"",
    ) -> bytes:
        """Encode a NACK. BTH.PSN is `nack_psn`."""
        raise NotImplementedError

    @encodes(Opcode.ACK)
    def encode_ack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        outer: bytes = b"",
    ) -> bytes:
        """Encode a transport ACK or NAK of everything up to `psn`."""
        raise NotImplementedError

    @encodes(Opcode.PROBE)
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
        outer: bytes = b"",
    ) -> bytes:
        """Encode a RELIABILITY PROBE REQUEST; it consumes no PSN."""
        raise NotImplementedError

    @encodes(Opcode.ENDPOINT_REQUEST, psn="request_id")
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
        outer: bytes = b"",
    ) -> bytes:
        """Encode a port status update (op 0) or EV probe (op 1)."""
        raise NotImplementedError

    @encodes(Opcode.ENDPOINT_RESPONSE, psn="request_id")
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
        outer: bytes = b"",
    ) -> bytes:
        """Answer the request whose id it echoes."""
        raise NotImplementedError


class RoceSignatures(Sealing):
    """Those of RoCEv2's reliable connection; parameters are as in `Signatures`."""

    @encodes(
        FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM,
        flags=f"{FLAG_ACK_REQ} if ack_req else 0",
    )  # fmt: skip
    def encode_write(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        ack_req: bool,
        va: int,
        rkey: int,
        dma_length: int,
        immediate: int,
        payload: Buffer,
        se: int = 0,
        begin: int = 0,
        size: int = -1,
        outer: bytes = b"",
    ) -> bytes:
        """Encode one packet of an RDMA WRITE."""
        raise NotImplementedError

    @encodes(
        SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM,
        flags=f"{FLAG_ACK_REQ} if ack_req else 0",
    )  # fmt: skip
    def encode_send(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        ack_req: bool,
        immediate: int,
        payload: Buffer,
        se: int = 0,
        begin: int = 0,
        size: int = -1,
        outer: bytes = b"",
    ) -> bytes:
        """Encode one packet of a SEND."""
        raise NotImplementedError

    @encodes(READ_REQUEST, flags=f"{FLAG_ACK_REQ}")
    def encode_read(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        va: int,
        rkey: int,
        dma_length: int,
        outer: bytes = b"",
    ) -> bytes:
        """Encode an RDMA READ Request."""
        raise NotImplementedError

    @encodes(RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY, msn="msn & 0xFFFFFF")
    def encode_response(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        payload: Buffer,
        begin: int = 0,
        size: int = -1,
        outer: bytes = b"",
    ) -> bytes:
        """Encode one packet of a READ response."""
        raise NotImplementedError

    @encodes(COMPARE_SWAP, FETCH_ADD, flags=f"{FLAG_ACK_REQ}")
    def encode_atomic(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        va: int,
        rkey: int,
        swap_or_add: int,
        compare: int,
        outer: bytes = b"",
    ) -> bytes:
        """Encode an atomic request."""
        raise NotImplementedError

    @encodes(ATOMIC_ACK, msn="msn & 0xFFFFFF")
    def encode_atomic_ack(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        original: int,
        outer: bytes = b"",
    ) -> bytes:
        """Encode the answer to an atomic request."""
        raise NotImplementedError

    @encodes(CNP)
    def _encode_cnp(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        payload: Buffer,
        begin: int = 0,
        size: int = -1,
        outer: bytes = b"",
    ) -> bytes:
        """Encode a CNP, but for BECN."""
        raise NotImplementedError

    @encodes(ACKNOWLEDGE, msn="msn & 0xFFFFFF")
    def encode_acknowledge(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        outer: bytes = b"",
    ) -> bytes:
        """Encode an ACK or NAK."""
        raise NotImplementedError
