"""Signatures of the data path's encoders: `compiled.py` makes `fast.Encoders` of these signatures and the table."""

from __future__ import annotations

from typing import TypeAlias

from mrc_host.proto.wire.compiled import encodes
from mrc_host.proto.wire.fields import MRC_LAYOUTS, Opcode
from mrc_host.proto.wire.icrc import Sealing

Buffer: TypeAlias = bytes | bytearray | memoryview

_WRITES = tuple(opcode for opcode, layout in MRC_LAYOUTS.items() if layout.payload)


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
    ) -> bytes:
        """Answer the request whose id it echoes."""
        raise NotImplementedError
