"""The routes by which Linux forwards as a switch of a lab does, from the entries of the program's tables.

A switch's own uSID is the behaviour End with the flavour NEXT-C-SID (kernel 6.1 and later), other uSIDs are /48 routes,
addresses go to host ports or over all uplinks.
"""

from __future__ import annotations

from typing import Final

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.topology import Switch, Topology

#: The next hop on every port, whatever device is there.
NEIGHBOUR: Final = "fe80::1"


def _usid_prefix(entry: rules.TableEntry) -> str:
    """Return the 48 bits that a table of uSIDs matches, as an IPv6 prefix."""
    return f"{addressing.text((entry.match[0].value << 80).to_bytes(16, 'big'))}/48"


def routes(topology: Topology, switch: Switch, interfaces: dict[int, str]) -> list[str]:
    """Return the routes of a switch for `ip -6 -batch`; `interfaces` by port number."""
    lines = []
    numbers = [topology.uplink_number(t1) for t1 in range(topology.lab.t1_per_plane)]
    uplinks = [interfaces[number] for number in numbers] if switch.tier is Tier.T0 else []
    some = next(iter(interfaces.values()))
    for entry in rules.switch_entries(topology, switch):
        if entry.table == rules.LOCAL_USID:
            end = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
            lines.append(f"route add {_usid_prefix(entry)} {end} dev {some}")
        elif entry.table == rules.USID_ROUTES:
            port = interfaces[entry.params["port"]]
            lines.append(f"route add {_usid_prefix(entry)} via {NEIGHBOUR} dev {port} onlink")
        elif entry.table == rules.HOST_ROUTES:
            match = entry.match[0]
            prefix = f"{addressing.text(match.value.to_bytes(16, 'big'))}/{match.prefix_length}"
            action = entry.action.rpartition(".")[2]
            if action == "forward":
                lines.append(f"route add {prefix} via {NEIGHBOUR} dev {interfaces[entry.params['port']]} onlink")
            elif action == "go_up":
                hops = " ".join(f"nexthop via {NEIGHBOUR} dev {each} onlink" for each in uplinks)
                lines.append(f"route add {prefix} {hops}")
            else:
                lines.append(f"route add blackhole {prefix}")
    return lines
