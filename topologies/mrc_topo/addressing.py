"""Names, numbers and addresses of everything in a lab, all by rule (docs/topology.md).

Nothing is looked up or assigned: plane and index determine name, ports, MAC, IPv6 address and uSID.

====================  =======================================  ==========================
what                  rule                                     example
====================  =======================================  ==========================
host address          `fd4d:5248:T0::SLOT+1`                   h3: `fd4d:5248:1::2`
host port address     `fd4d:5248:T0:PLANE+1::SLOT+1`           h3:2: `fd4d:5248:1:3::2`
uSID of a T0          hex digits `P4II`                        plane 2, T0 1: `2401`
uSID of a T1          hex digits `P8II`                        plane 2, T1 0: `2800`
uSID of a host port   hex digits `PCSS`, known at its T0 only  plane 2, slot 1: `2c01`
uSID of a tenant      hex digits `PENN`, known at T0s only     plane 2, tenant 1: `2e01`
uSID carrier          block, uSIDs, zeros                      `fd4d:5243:2400:2800:2401:2c01::`
====================  =======================================  ==========================

The index takes the low ten bits, so a plane may have 1023 switches of a tier. uSID 0 would end a carrier;
no rule yields it. Ports have numbers below 512, so slots leave the upper half of their uSIDs to tenants.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import Final

#: Locator block of all uSIDs ("MC"), upper 32 bits of an address.
LOCATOR_BLOCK: Final = 0xFD4D5243
#: Prefix of all host addresses ("MH"), upper 32 bits of an address.
HOST_BLOCK: Final = 0xFD4D5248
MAX_PLANES: Final = 16
MAX_INDEX: Final = 1023
#: BMv2 has 511 ports at most; 511 itself is its drop port.
MAX_PORT: Final = 510
#: The index of tenant 0 among the uSIDs of host ports.
FIRST_TENANT: Final = 512
MAX_TENANTS: Final = MAX_INDEX - FIRST_TENANT
#: uSIDs that fit behind the locator block.
CARRIER_USIDS: Final = 6
UDP_PORT: Final = 4791


class Tier(Enum):
    """The part of the network that a uSID or a switch belongs to; the value is the uSID's kind field (two bits)."""

    T0 = 1
    T1 = 2
    HOST = 3


def usid(plane: int, tier: Tier, index: int) -> int:
    """Return the 16-bit uSID: plane in four bits, kind in two, index in ten."""
    if not 0 <= plane < MAX_PLANES or not 0 <= index <= MAX_INDEX:
        raise ValueError(f"no uSID for plane {plane}, index {index}")
    return plane << 12 | tier.value << 10 | index


def parse_usid(value: int) -> tuple[int, Tier, int]:
    """Return (plane, tier, index) of a uSID. Raises ValueError for one that no rule yields."""
    kind = value >> 10 & 3
    if not 0 < value <= 0xFFFF or kind == 0:
        raise ValueError(f"{value:#06x} is not a uSID of this laboratory")
    return value >> 12, Tier(kind), value & 0x3FF


def carrier(usids: tuple[int, ...]) -> bytes:
    """Return the 16-byte destination address that holds these uSIDs, first one first."""
    if len(usids) > CARRIER_USIDS:
        raise ValueError(f"{len(usids)} uSIDs do not fit one carrier of {CARRIER_USIDS}")
    value = LOCATOR_BLOCK
    for entry in usids:
        value = value << 16 | entry
    return (value << 16 * (CARRIER_USIDS - len(usids))).to_bytes(16, "big")


def parse_carrier(address: bytes) -> tuple[int, ...]:
    """Return the uSIDs in a carrier, up to the first zero. Raises ValueError if the locator block is not ours."""
    if len(address) != 16 or int.from_bytes(address[:4], "big") != LOCATOR_BLOCK:
        raise ValueError(f"{address.hex(':')} is outside the locator block")
    entries = [int.from_bytes(address[i : i + 2], "big") for i in range(4, 16, 2)]
    used = entries[: entries.index(0)] if 0 in entries else entries
    if any(entries[len(used) :]):
        raise ValueError(f"{address.hex(':')} has a uSID after the end of its carrier")
    return tuple(used)


def usid_prefix(value: int) -> int:
    """Return the upper 48 bits of an address whose first uSID is `value`."""
    return LOCATOR_BLOCK << 16 | value


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """The addresses of hosts by rule, below the prefix of `bits` bits that `value` (128 bits) begins with: 16 bits for
    the T0, 16 for the plane, and the slot at the end."""

    value: int
    bits: int

    def host(self, t0: int, slot: int) -> bytes:
        """Return a host's address, which is the same on all planes because QPs are bound to it."""
        return (self.t0(t0) | (slot + 1)).to_bytes(16, "big")

    def port(self, plane: int, t0: int, slot: int) -> bytes:
        """Return the address of one port of a host; reachable in its plane only."""
        return (self.t0(t0) | (plane + 1) << 96 - self.bits | (slot + 1)).to_bytes(16, "big")

    def t0(self, t0: int) -> int:
        """Return the 128-bit value of the prefix, 16 bits longer, that holds all addresses of a T0's hosts."""
        return self.value | t0 << 112 - self.bits

    @property
    def network(self) -> ipaddress.IPv6Network:
        """The prefix."""
        return ipaddress.IPv6Network((self.value, self.bits))

    def __str__(self) -> str:
        """Return the prefix as text."""
        return str(self.network)


#: The addresses of hosts that are in no tenant.
COMMON_PLAN: Final = AddressPlan(HOST_BLOCK << 96, 32)


def tenant_usid(plane: int, tenant: int) -> int:
    """Return the uSID by which every T0 of a plane takes the outer header off and routes by a tenant's table (uDT6)."""
    return usid(plane, Tier.HOST, FIRST_TENANT + tenant)


def host_address(t0: int, slot: int) -> bytes:
    """Return the address of a host that is in no tenant."""
    return COMMON_PLAN.host(t0, slot)


def text(address: bytes) -> str:
    """Return an IPv6 address of 16 bytes as text: `fd4d:5248::1`."""
    return str(ipaddress.IPv6Address(address))


def host_name(host: int) -> str:
    """Return the name of a host: `h3`."""
    return f"h{host}"


def host_port_name(host: int, plane: int) -> str:
    """Return the name of a host port, which is also the id of its link to the T0: `h3:2` in plane 2."""
    return f"h{host}:{plane}"


def switch_name(plane: int, tier: Tier, index: int) -> str:
    """Return the name of a switch: `p0-t1.2` is T1 number 2 of plane 0."""
    return f"p{plane}-{tier.name.lower()}.{index}"


def fabric_link_name(plane: int, t0: int, t1: int) -> str:
    """Return the name of a link between switches, the T0 first: `p0-t0.1--p0-t1.0`."""
    return f"{switch_name(plane, Tier.T0, t0)}--{switch_name(plane, Tier.T1, t1)}"


def host_interface(host: int, plane: int) -> str:
    """Return the name of a host's interface; it is shorter than the kernel's limit of 15 characters."""
    return f"h{host}-p{plane}"


def switch_interface(plane: int, tier: Tier, index: int, port: int) -> str:
    """Return the name of the interface behind a switch port, where there is one."""
    return f"p{plane}{tier.name.lower()}.{index}-{port}"


def host_mac(host: int, plane: int) -> int:
    """Return the 48-bit MAC address of a host port: `02:0P:00:00:HH:HH`."""
    return 0x02 << 40 | plane << 32 | host


def switch_mac(plane: int, tier: Tier, index: int, port: int) -> int:
    """Return the 48-bit MAC address of a switch port: `02:KP:II:II:NN:NN`, K 1 for a T0 and 2 for a T1."""
    return 0x02 << 40 | tier.value << 36 | plane << 32 | index << 16 | port


def mac_text(mac: int) -> str:
    """Return a 48-bit MAC address as text: `02:10:00:01:00:03`."""
    return mac.to_bytes(6, "big").hex(":")
