"""Messages of RoCEv2's reliable connection that its codec decodes, and opcodes (IBTA vol. 1 rel. 1.4, chapter 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from mrc_host.proto.wire.fields import ROCE_LAYOUTS, ImmDt, Reth, RoceOpcode

SEND_FIRST: Final = int(RoceOpcode.SEND_FIRST)
SEND_MIDDLE: Final = int(RoceOpcode.SEND_MIDDLE)
SEND_LAST: Final = int(RoceOpcode.SEND_LAST)
SEND_LAST_IMM: Final = int(RoceOpcode.SEND_LAST_IMM)
SEND_ONLY: Final = int(RoceOpcode.SEND_ONLY)
SEND_ONLY_IMM: Final = int(RoceOpcode.SEND_ONLY_IMM)
FIRST: Final = int(RoceOpcode.WRITE_FIRST)
MIDDLE: Final = int(RoceOpcode.WRITE_MIDDLE)
LAST: Final = int(RoceOpcode.WRITE_LAST)
LAST_IMM: Final = int(RoceOpcode.WRITE_LAST_IMM)
ONLY: Final = int(RoceOpcode.WRITE_ONLY)
ONLY_IMM: Final = int(RoceOpcode.WRITE_ONLY_IMM)
READ_REQUEST: Final = int(RoceOpcode.READ_REQUEST)
RESPONSE_FIRST: Final = int(RoceOpcode.READ_RESPONSE_FIRST)
RESPONSE_MIDDLE: Final = int(RoceOpcode.READ_RESPONSE_MIDDLE)
RESPONSE_LAST: Final = int(RoceOpcode.READ_RESPONSE_LAST)
RESPONSE_ONLY: Final = int(RoceOpcode.READ_RESPONSE_ONLY)
ACKNOWLEDGE: Final = int(RoceOpcode.ACK)
ATOMIC_ACK: Final = int(RoceOpcode.ATOMIC_ACK)
COMPARE_SWAP: Final = int(RoceOpcode.COMPARE_SWAP)
FETCH_ADD: Final = int(RoceOpcode.FETCH_ADD)
CNP: Final = int(RoceOpcode.CNP)

WITH_RETH: Final = frozenset(opcode for opcode, layout in ROCE_LAYOUTS.items() if Reth in layout.parts)
WITH_IMM: Final = frozenset(opcode for opcode, layout in ROCE_LAYOUTS.items() if ImmDt in layout.parts)
OVERHEAD_BYTES: Final = 40 + 8 + 12 + 16 + 4 + 4  # of an Only packet with immediate


@dataclass(slots=True)
class RoceData:
    """A packet of a SEND or RDMA WRITE; `va`, `rkey` and `dma_length` are 0 where there is no RETH."""

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool
    solicited: bool
    entropy: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    dma_length: int
    immediate: int
    payload: memoryview


@dataclass(slots=True)
class ReadRequest:
    """An RDMA READ Request; its responses have the PSNs from its own on."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    dma_length: int


@dataclass(slots=True)
class AtomicRequest:
    """Compare and swap, or fetch and add."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    swap_or_add: int
    compare: int


@dataclass(slots=True)
class ReadResponse:
    """A packet of a READ response. Middle ones have no AETH: their syndrome and MSN are 0."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int
    payload: memoryview


@dataclass(slots=True)
class AtomicAck:
    """The answer to an atomic operation: what the number was before it."""

    opcode: int
    dest_qp: int
    psn: int
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int
    original: int


@dataclass(slots=True)
class RoceAck:
    """ACK or NAK: AETH's syndrome and MSN."""

    opcode: int
    dest_qp: int
    psn: int
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int


@dataclass(slots=True)
class Cnp:
    """Congestion notification: the responder saw CE on packets of this QP."""

    opcode: int
    dest_qp: int
    addresses: bytes
    p_key: int


RoceRequest: TypeAlias = RoceData | ReadRequest | AtomicRequest
RoceAnswer: TypeAlias = RoceAck | ReadResponse | AtomicAck
RoceMessage: TypeAlias = RoceRequest | RoceAnswer | Cnp
#: The class of messages of each opcode.
ROCE_MESSAGES: Final[dict[int, type[RoceMessage]]] = {
    **dict.fromkeys(ROCE_LAYOUTS, RoceData),
    READ_REQUEST: ReadRequest,
    COMPARE_SWAP: AtomicRequest,
    FETCH_ADD: AtomicRequest,
    **dict.fromkeys((RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY), ReadResponse),
    ATOMIC_ACK: AtomicAck,
    ACKNOWLEDGE: RoceAck,
    CNP: Cnp,
}
