"""The ICRC from a plain CRC: constants of addresses and lengths, kept (`mrc-protocol.md §2`)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from mrc_host.proto.wire import crc

crc32: Final = crc.crc32
# The constants are at most a few hundred per peer; more means forged addresses, so start again.
_MAX_CONSTANTS: Final = 8192


def icrc_constant(addresses: bytes, udp_length: int) -> int:
    """Return the constant that turns a plain CRC into the ICRC for these addresses and this UDP length.

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


def wire_length(packet: bytes) -> int:
    """Return how long an IPv6 packet says that it is: with its payload, whether that is there or not."""
    return 40 + (packet[4] << 8 | packet[5])


def with_zeros(packet: bytes, missing: int) -> bytes:
    """Return a packet with zeros in the place of the bytes that are missing before its ICRC."""
    return b"".join((packet[:-4], bytes(missing), packet[-4:]))


@mypyc_attr(allow_interpreted_subclasses=True)
class Sealing:
    """The state that the encoders of one endpoint share: its port, its partition key, and a bounded cache of ICRC
    constants.

    With `length_only` the payload and its padding are left out of what they encode, while all lengths in headers count
    them; the ICRC is then one of the headers.
    """

    __slots__ = ("_constants", "length_only", "p_key", "udp_port")

    def __init__(self, udp_port: int, p_key: int, length_only: bool = False) -> None:
        self.udp_port = udp_port
        self.p_key = p_key
        self.length_only = length_only
        self._constants: dict[tuple[bytes, int], int] = {}

    def _holds(self, packet: bytes, addresses: bytes, udp_length: int) -> bool:
        """Return whether the ICRC of a packet without its payload is that of its headers.

        As in a whole packet it does not cover the UDP checksum and BTH.resv8a, whose bytes are taken for 0.
        """
        covered = b"".join((packet[40:46], b"\0\0", packet[48:52], b"\0", packet[53:-4]))
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        return (crc32(covered) ^ constant).to_bytes(4, "little") == packet[-4:]

    def _constant(self, addresses: bytes, udp_length: int) -> int:
        if len(self._constants) >= _MAX_CONSTANTS:
            self._constants.clear()
        value = icrc_constant(addresses, udp_length)
        self._constants[addresses, udp_length] = value
        return value
