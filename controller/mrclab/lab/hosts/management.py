"""The management network of a lab's hosts: TCP over IPv4, for programs that exchange their addresses by it.

Programs of RDMA (perftest, UCX, MPI) meet over TCP before they use the fabric, but the hosts of a lab have ports of the
fabric only. So a bridge in the lab's own network namespace joins one more interface of every host, and a file of names
takes the place of /etc/hosts. Agents never open these interfaces. All of it ends with the lab's namespaces.
"""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Sequence
from typing import Final

from mrc_topo.topology import Host

BRIDGE: Final = "mgmt"
#: The interface of every host.
INTERFACE: Final = "mgmt0"
NETWORK: Final = ipaddress.IPv4Network("172.31.0.0/16")
#: The number of ports that Linux gives a bridge.
MAX_HOSTS: Final = 1023
NAMES: Final = pathlib.Path("/etc/hosts")


def address(index: int) -> str:
    """Return the address of a host, by its index in the lab."""
    return str(NETWORK.network_address + 1 + index)


def bridge_port(index: int) -> str:
    """Return the bridge's end of a host's link."""
    return f"{BRIDGE}-{index}"


def link_lines(hosts: Sequence[tuple[Host, int]]) -> list[str]:
    """Return the lines for `ip -batch` that make the bridge and the links, in the lab's network namespace.

    Args:
        hosts: the hosts on this machine, each with the PID of a process in its namespace.
    """
    # The bridge learns no groups: it would ask for them, and there are none.
    lines = [f"link add {BRIDGE} type bridge mcast_snooping 0", f"link set dev {BRIDGE} addrgenmode none up"]
    for host, pid in hosts:
        port = bridge_port(host.index)
        lines.append(f"link add {port} master {BRIDGE} type veth peer name {INTERFACE} netns {pid}")
        lines.append(f"link set dev {port} addrgenmode none up")
    return lines


def host_lines(host: Host) -> list[str]:
    """Return the lines for `ip -batch` that set up a host's interface, in its network namespace."""
    return [
        f"address add {address(host.index)}/{NETWORK.prefixlen} dev {INTERFACE}",
        f"link set dev {INTERFACE} addrgenmode none up",
    ]


def names(hosts: Sequence[Host], machine: str) -> str:
    """Return the text of the lab's /etc/hosts: the hosts' names before what the machine's file has."""
    lines = [f"{address(host.index)} {host.name}\n" for host in hosts]
    return "".join(lines) + machine
