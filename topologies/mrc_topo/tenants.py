"""Tenants of a lab: hosts that reach each other and nobody else, each with an address plan of its own."""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from mrc_topo import addressing
from mrc_topo.addressing import COMMON_PLAN, AddressPlan
from mrc_topo.base.document import Model, PlacedError, printable
from mrc_topo.units import parse_size_bytes

RANGE: Final = re.compile(r"h(\d{1,5})\.\.h(\d{1,5})\Z")
#: The name is part of names of VRFs, which Linux cuts at 15 characters.
TENANT: Final = re.compile(r"[a-z][a-z0-9-]{0,9}\Z")
#: What tables call the hosts in no tenant.
COMMON_NAME: Final = "none"
#: The bits of a plan: its 32 bits of T0 and plane leave room for slots.
SHORTEST, LONGEST = 16, 64
NOT_FOR_HOSTS: Final = [ipaddress.IPv6Network(text) for text in ("::/32", "fe80::/10", "ff00::/8")]
LOCATORS: Final = ipaddress.IPv6Network((addressing.LOCATOR_BLOCK << 96, 32))


class Decapsulation(Enum):
    """The place at which SRv6's outer header is taken off a tenant's packets."""

    HOST = "host"
    T0 = "t0"


def _prefix(text: str) -> str:
    """Return the prefix of an address plan as usual. Raises ValueError for another text."""
    try:
        found = ipaddress.IPv6Network(text)
    except ValueError:
        raise ValueError(
            f"'{printable(text)}' is not an IPv6 prefix, or has bits behind it; write one such as 2001:db8:a::/48"
        ) from None
    if not SHORTEST <= found.prefixlen <= LONGEST:
        raise ValueError(f"{found} must be of {SHORTEST} to {LONGEST} bits, which T0, plane and slot follow")
    if any(found.overlaps(other) for other in (*NOT_FOR_HOSTS, LOCATORS)):
        raise ValueError(
            f"{found} is not for hosts: it has loopback, IPv4-mapped, link-local or multicast addresses, or uSIDs "
            f"({LOCATORS}); write one such as 2001:db8:a::/48"
        )
    return str(found)


class TenantSpec(Model):
    """A tenant: its `hosts` are names, shell patterns, or a range (`h0..h7`); their addresses are in the prefix
    `addresses`. The outer header of their packets is taken off at the `host`, or at its T0 (`t0`), which then routes by
    the tenant's own table. `max_wnd` bounds its hosts' congestion windows in bytes, in the place of `cc.max_wnd`."""

    hosts: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(min_length=1)]
    addresses: Annotated[str, Field(max_length=64), AfterValidator(_prefix)]
    decapsulation: Decapsulation = Decapsulation.HOST
    max_wnd: Annotated[int, BeforeValidator(parse_size_bytes), Field(ge=1, le=2**31 - 1)] | None = None

    @property
    def network(self) -> ipaddress.IPv6Network:
        """The prefix of its addresses."""
        return ipaddress.IPv6Network(self.addresses)


@dataclass(frozen=True, slots=True)
class Segment:
    """The hosts of a tenant, numbered from 1 in the order of the file; number 0 are those in no tenant."""

    number: int = 0
    name: str = ""
    plan: AddressPlan = COMMON_PLAN
    decapsulation: Decapsulation = Decapsulation.HOST
    max_wnd: int | None = None

    def usid(self, plane: int) -> int | None:
        """Return the uSID of the tenant's table at the T0s of a plane; None where hosts decapsulate."""
        at_t0 = self.decapsulation is Decapsulation.T0
        return addressing.tenant_usid(plane, self.number) if at_t0 else None


COMMON: Final = Segment()


def segments(tenants: Mapping[str, TenantSpec], hosts: Sequence[str]) -> dict[str, Segment]:
    """Return the segment of each host. Raises PlacedError, placed below `tenants`."""
    found: dict[str, Segment] = {}
    plans = {"the hosts in no tenant": COMMON_PLAN.network}
    for number, (name, spec) in enumerate(tenants.items(), 1):
        if name == COMMON_NAME:
            raise PlacedError("is what hosts in no tenant are called; choose another name", (name,))
        if not TENANT.match(name):
            raise PlacedError("a tenant's name has small letters, digits and '-', a letter first, at most 10", (name,))
        if number > addressing.MAX_TENANTS:
            raise PlacedError(f"there are uSIDs for {addressing.MAX_TENANTS} tenants; leave some out", (name,))
        other = next((each for each, plan in plans.items() if plan.overlaps(spec.network)), None)
        if other is not None:
            raise PlacedError(
                f"{spec.addresses} overlaps {plans[other]} of {other}, so addresses would not tell them apart; give "
                "each a prefix of its own",
                (name, "addresses"),
            )
        plans[f"tenant {name}"] = spec.network
        plan = AddressPlan(int(spec.network.network_address), spec.network.prefixlen)
        segment = Segment(number, name, plan, spec.decapsulation, spec.max_wnd)
        for index, word in enumerate(spec.hosts):
            key = (name, "hosts", index)
            members = named(word, hosts, key)
            if not members:
                raise PlacedError(f"'{printable(word)}' is no host of the lab; it has {', '.join(hosts)}"[:200], key)
            for host in members:
                if found.setdefault(host, segment) is not segment:
                    raise PlacedError(f"{host} is in tenant {found[host].name} already; a host is in one only", key)
    return {host: found.get(host, COMMON) for host in hosts}


def named(word: str, names: Iterable[str], key: tuple[str | int, ...]) -> list[str]:
    """Return the names that an entry at `key` stands for: a name, a shell pattern, or a range of hosts. Raises
    PlacedError for a range with a name that is not there."""
    if found := RANGE.match(word):
        first, last = int(found[1]), int(found[2])
        if first > last:
            raise PlacedError(f"'{word}' ends before it begins", key)
        wanted, known = [f"h{index}" for index in range(first, last + 1)], set(names)
        unknown = next((name for name in wanted if name not in known), None)
        if unknown is not None:
            raise PlacedError(f"'{word}': there is no {unknown}", key)
        return wanted
    return [name for name in names if fnmatch.fnmatchcase(name, word)]
