"""Lengths of packets whose payload may not be there, and what the encoders of an endpoint share."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


def wire_length(packet: bytes) -> int:
    """Return how long an IPv6 packet says that it is: with its payload, whether that is there or not."""
    return 40 + (packet[4] << 8 | packet[5])


def with_zeros(packet: bytes, missing: int) -> bytes:
    """Return a packet with zeros in the place of the bytes that are missing before its ICRC."""
    return b"".join((packet[:-4], bytes(missing), packet[-4:]))


@mypyc_attr(allow_interpreted_subclasses=True)
class Sealing:
    """The state that the encoders of one endpoint share: its port and its partition key.

    With `length_only` the payload and its padding are left out of what they encode, while all lengths in headers count
    them; the ICRC is then one of the headers.
    """

    __slots__ = ("length_only", "p_key", "udp_port")

    def __init__(self, udp_port: int, p_key: int, length_only: bool = False) -> None:
        self.udp_port = udp_port
        self.p_key = p_key
        self.length_only = length_only
