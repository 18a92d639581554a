"""Messages that a responder keeps until all packets before their end have arrived (`mrc-protocol.md §6`)."""

from __future__ import annotations

from typing import NamedTuple

from mrc_host.proto.events import ErrorReason


class MessageStart(NamedTuple):
    """The first packet of a message of several packets; the last one must agree with it."""

    msn: int
    va: int
    rkey: int
    length: int


class MessageEnd(NamedTuple):
    """The last packet of a message has arrived; the message waits for everything before it."""

    msn: int
    rqmsn: int
    va: int
    rkey: int
    length: int
    size: int  # payload bytes of this packet
    immediate: int | None
    solicited: bool


class RefusedPacket(NamedTuple):
    """A packet that is refused by a transport NAK once everything before it has arrived."""

    psn: int
    syndrome: int
    reason: ErrorReason


class MessageLayout:
    """What all packets of one message must agree on: where PSN 0 would lie, R_Key, and the length in bytes.

    `packets` counts those that have arrived.
    """

    __slots__ = ("base", "length", "packets", "rkey")

    def __init__(self, base: int, rkey: int, length: int) -> None:
        self.base = base
        self.rkey = rkey
        self.length = length
        self.packets = 0
