"""The routes by which Linux forwards as a switch of a lab does, from the entries of the program's tables.

A switch's own uSID is the behaviour End with the flavour NEXT-C-SID (kernel 6.1 and later), other uSIDs are /48 routes,
addresses go to host ports or over all uplinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.topology import Switch, Topology

#: The next hop on every port, whatever device is there.
NEIGHBOUR: Final = "fe80::1"


def prefix_of(entry: rules.TableEntry) -> str:
    """Return what an entry of a table of uSIDs (48 bits) or of host addresses matches, as an IPv6 prefix."""
    match = entry.match[0]
    if entry.table == rules.HOST_ROUTES:
        return f"{addressing.text(match.value.to_bytes(16, 'big'))}/{match.prefix_length}"
    return f"{addressing.text((match.value << 80).to_bytes(16, 'big'))}/48"


def uplinks(topology: Topology, switch: Switch, interfaces: Mapping[int, str]) -> list[str]:
    """Return the interfaces of a switch that lead to T1s; none of a T1."""
    if switch.tier is not Tier.T0:
        return []
    return [interfaces[topology.uplink_number(t1)] for t1 in range(topology.lab.t1_per_plane)]


def routes(topology: Topology, switch: Switch, interfaces: dict[int, str]) -> list[str]:
    """Return the routes of a switch for `ip -6 -batch`; `interfaces` by port number."""
    lines = []
    some = next(iter(interfaces.values()))
    for entry in rules.switch_entries(topology, switch):
        if entry.table == rules.LOCAL_USID:
            end = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
            lines.append(f"route add {prefix_of(entry)} {end} dev {some}")
        elif entry.table == rules.USID_ROUTES:
            port = interfaces[entry.params["port"]]
            lines.append(f"route add {prefix_of(entry)} via {NEIGHBOUR} dev {port} onlink")
        elif entry.table == rules.HOST_ROUTES:
            prefix = prefix_of(entry)
            action = entry.action.rpartition(".")[2]
            if action == "forward":
                lines.append(f"route add {prefix} via {NEIGHBOUR} dev {interfaces[entry.params['port']]} onlink")
            elif action == "go_up":
                hops = " ".join(
                    f"nexthop via {NEIGHBOUR} dev {each} onlink" for each in uplinks(topology, switch, interfaces)
                )
                lines.append(f"route add {prefix} {hops}")
            else:
                lines.append(f"route add blackhole {prefix}")
    return lines
