"""Words of packets as hosts outside a fabric hand them to it."""

from __future__ import annotations

from array import array


def words(*numbers: int) -> bytearray:
    """Return numbers of 64 bits in the machine's order (`p4lite.switch.fabric.outside.ExternalHosts.send`)."""
    return bytearray(array("Q", numbers))
