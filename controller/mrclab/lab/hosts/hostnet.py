"""Hosts and links of a real-clock lab: Mininet's namespaces and veth pairs.

All of it is made inside the lab's own namespaces. Every host port is a veth pair; its other end stays in the lab's
network namespace, where the fabric process opens it. MRC itself needs nothing of the hosts' kernels; addresses and
routes are there so that `ping` between host ports works. Nothing is taken away here: it ends with the PID namespace.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import ipaddress
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mrc_host.drivers import netns
from mrc_topo import addressing
from mrc_topo.base.errors import SIMULATE, MrclabError, not_linux
from mrc_topo.topology import Host, Topology

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
    """Return the text of the lab's /etc/hosts: the hosts' names before what the machine's file has.

    Plain names are in the management network, where connections that set MRC up are made; `h1.p0` is in the fabric.
    """
    lines = [f"{address(host.index)} {host.name} {host.name}.mgmt\n" for host in hosts]
    lines += [f"{text} {host.name}.{plane}\n" for host in hosts for plane, text in fabric_addresses(host).items()]
    return "".join(lines) + machine


def fabric_addresses(host: Host) -> dict[str, str]:
    """Return a host's address in each plane, by what is behind its name there, such as p0."""
    return {f"p{port.plane}": addressing.text(port.address) for port in host.ports}


ROUTER = "fe80::1"
#: The priority of rules after the tables of local addresses and of routes (32766).
LAST_RULE = 40000
#: The smallest MTU with which the kernel has IPv6 on an interface.
IPV6_MIN_MTU = 1280
#: What a filter of packets answers (linux/pkt_cls.h).
TC_ACT_OK, TC_ACT_SHOT = 0, 2
INSTALL = (
    "it comes with the Debian package mininet, which `make setup` installs (once, with root's rights); "
    f"where that cannot be, {SIMULATE}"
)
NO_IPV6 = (
    "this machine's kernel has no IPv6, by which the hosts of a lab on the real clock send: start it without "
    f"ipv6.disable=1, or {SIMULATE}"
)


class HostNetError(MrclabError):
    """Hosts or links that cannot be created; the text says why."""


def check_installed() -> None:
    """Check that Mininet is installed before anything is created.

    Raises:
        HostNetError: its Python package or its helper is missing, this is no Linux, or its kernel has no IPv6.
    """
    if why := not_linux():
        raise HostNetError(why)
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            raise HostNetError(NO_IPV6) from None
        raise
    for what, found in (
        ("Mininet", importlib.util.find_spec("mininet") is not None),
        ("Mininet's helper mnexec", shutil.which("mnexec") is not None),
    ):
        if not found:
            raise HostNetError(f"{what} is missing; {INSTALL}")


def switch_interfaces(topology: Topology, hosts: Sequence[Host] | None = None) -> dict[tuple[str, int], str]:
    """Return the fabric's end of every host link, by (T0 name, port); `hosts` restricts it to the links of these
    hosts."""
    names = {}
    for host in topology.hosts if hosts is None else hosts:
        for port in host.ports:
            switch = topology.switch(port.t0)
            place = switch.plane, switch.tier, switch.index
            names[port.t0, port.t0_port] = addressing.switch_interface(*place, port.t0_port)
    return names


def fabric_interfaces(topology: Topology) -> dict[tuple[str, int], str]:
    """Return both ends of every link between switches, by (switch name, port), for one process per switch."""
    names = {}
    for switch in topology.switches:
        for port, link in switch.links.items():
            if not link.is_host_link:
                names[switch.name, port] = addressing.switch_interface(switch.plane, switch.tier, switch.index, port)
    return names


def backend_interfaces(topology: Topology) -> dict[tuple[str, int], tuple[str, str]]:
    """Return a pair of interfaces for every port of every switch, by (switch name, port): the fabric's end, and the end
    of the backend that forwards in its place."""
    return {
        (switch.name, port): (f"w{switch.device_id}-{port}", f"b{switch.device_id}-{port}")
        for switch in topology.switches
        for port in switch.links
    }


def usid_filters(host: Host) -> list[str]:
    """Return the lines for `tc -batch` that have a host's kernel drop what comes for a uSID, after the agent's ring has
    taken it: the first word of the destination, behind the Ethernet header, is compared."""
    code = f"4,32 0 0 38,21 0 1 {addressing.LOCATOR_BLOCK},6 0 0 {TC_ACT_SHOT},6 0 0 {TC_ACT_OK}"
    lines = []
    for port in host.ports:
        lines.append(f"qdisc add dev {port.interface} clsact")
        lines.append(f"filter add dev {port.interface} ingress protocol ipv6 bpf da bytecode '{code}'")
    return lines


def _started(command: Sequence[str], lines: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command in the present network namespace that reads these lines."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as text:
        text.write("\n".join(lines) + "\n")
        text.seek(0)
        return subprocess.Popen(command, stdin=text, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str], what: str) -> None:
    """Wait for a command. Raises HostNetError if it failed."""
    _, errors = process.communicate()
    if process.returncode:
        raise HostNetError(f"{what}: {'; '.join(errors.strip().splitlines()[:2])}")


class HostNet:
    """Namespaces and links of a topology; with `veth` the fabric's links are veth pairs, too. Where another backend
    than p4lite forwards, a veth pair joins each port of the fabric to that of the switch behind it. `hosts`: those on
    this machine (None: all). `check` is called between the steps, and may raise."""

    def __init__(
        self,
        topology: Topology,
        *,
        veth: bool = False,
        hosts: Sequence[Host] | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        self.topology = topology
        self.hosts = topology.hosts if hosts is None else tuple(hosts)
        self.veth = veth
        self.behind = {} if topology.lab.switch == "p4lite" else backend_interfaces(topology)
        self.interfaces = switch_interfaces(topology, self.hosts)
        if veth:
            self.interfaces |= fabric_interfaces(topology)
        #: Whether the hosts have a management network, which labs can do without.
        self.managed = False
        self._net: Any = None
        self._check = check

    def start(self) -> None:
        """Create hosts and links.

        Raises:
            HostNetError: Mininet is missing or refuses.
        """
        try:
            self._start()
        except SystemExit as error:
            # Mininet exits like this when one of its programs is missing, after it has named the program.
            raise HostNetError(f"Mininet gives up; labd.log tells why; {INSTALL}") from error

    def _start(self) -> None:
        check_installed()
        from mininet.net import Mininet

        # Mininet waits for ever for a host that could not be created, so this comes first.
        try:
            probe = subprocess.run(["mnexec", "-n", "true"], capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostNetError(f"mnexec: {error}; {INSTALL}") from error
        if probe.returncode:
            reason = probe.stderr.strip() or f"exit code {probe.returncode}"
            raise HostNetError(f"this machine makes no network namespaces for hosts (mnexec: {reason})")
        # Otherwise Mininet would first raise the limits of the machine itself, which are not ours to change.
        Mininet.inited = True
        self._net = Mininet(topo=None, build=False, controller=None, waitConnected=False)
        for host in self.hosts:
            self._check()
            self._net.addHost(host.name, ip=None)
        self.batch([], self._links())
        self._join_management()
        # The far ends come up first, because a port without carrier gets no addresses.
        self._configure_root()
        self._configure_hosts()

    def _links(self) -> list[str]:
        """Return the lines for `ip -batch` that make the links, except those of the management network."""
        lines = []
        for host in self.hosts:
            for port in host.ports:
                near = f"{self.interfaces[port.t0, port.t0_port]} address {addressing.mac_text(port.gateway_mac)}"
                far = f"{port.interface} address {addressing.mac_text(port.mac)} netns {self.pid(host.name)}"
                lines.append(f"link add {near} type veth peer name {far}")
        pairs = list(self.behind.values())
        for link in self.topology.links.values() if self.veth else ():
            if not link.is_host_link:
                low, high = (self.interfaces[end.node, end.port] for end in (link.low, link.high))
                pairs.append((low, high))
        return lines + [f"link add {one} type veth peer name {other}" for one, other in pairs]

    def _join_management(self) -> None:
        """Join the hosts by a management network, where the kernel has bridges with enough ports."""
        if len(self.hosts) > MAX_HOSTS:
            print(f"no management network: a bridge joins at most {MAX_HOSTS} hosts", file=sys.stderr)
            return
        try:
            self.batch([], link_lines([(host, self.pid(host.name)) for host in self.hosts]))
            self.managed = True
        except HostNetError as error:
            print(f"no management network: {error}", file=sys.stderr)

    @property
    def mtu(self) -> int:
        """The MTU of every interface."""
        return max(self.topology.lab.interface_mtu, IPV6_MIN_MTU)

    def batch(self, prefix: Sequence[str], lines: Sequence[str], *options: str) -> None:
        """Run lines by `ip -batch`, behind a command that enters a namespace.

        Raises:
            HostNetError: `ip` refuses one of them.
        """
        self._check()
        _finish(_started([*prefix, "ip", *options, "-batch", "-"], lines), f"{' '.join(prefix)} ip")

    def write_settings(self, prefix: Sequence[str], settings: Mapping[str, str]) -> None:
        """Write files below /proc/sys by a command that enters a namespace. Raises as `batch`."""
        lines = ["set -e", *(f"echo {value} > /proc/sys/{name}" for name, value in settings.items())]
        _finish(_started([*prefix, "sh"], lines), " ".join(prefix))

    def _configure_root(self) -> None:
        names = [*self.interfaces.values(), *(name for pair in self.behind.values() for name in pair)]
        for name in names:
            # The fabric's end has no address, so that no packet of the kernel itself enters the lab.
            pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1", encoding="utf-8")
        lines = [f"link set dev {name} mtu {self.mtu} up" for name in names]
        self.batch([], lines)

    def _configure_hosts(self) -> None:
        """Set up the hosts' interfaces, addresses and routes, all hosts at once.

        Raises:
            HostNetError: `ip` refuses one of them.
        """
        running = []
        for host in self.hosts:
            with netns.inside(f"/proc/{self.pid(host.name)}/ns/net"):
                for name, value in self._settings(host).items():
                    pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}").write_text(value, encoding="utf-8")
                running.append((host, _started(["ip", "-batch", "-"], self._host_lines(host))))
        for host, process in running:
            _finish(process, f"ip of {host.name}")
        # The agent receives MRC's packets, most of which have addresses without a route in the kernel. The kernel shall
        # not answer each with an error. Packets for the kernel, such as pings, match earlier rules. Packets to a uSID
        # need no rule if the kernel can drop them before it looks for a route, which takes it longer than the rest. A
        # kernel without rules answers.
        running = []
        for host in self.hosts:
            with netns.inside(f"/proc/{self.pid(host.name)}/ns/net"):
                rules = [f"rule add pref {LAST_RULE} iif {port.interface} blackhole" for port in host.ports]
                running.append((host, _started(["ip", "-6", "-batch", "-"], rules)))
                if shutil.which("tc"):
                    running.append((host, _started(["tc", "-batch", "-"], usid_filters(host))))
        for host, process in running:
            with contextlib.suppress(HostNetError):
                _finish(process, host.name)

    def _settings(self, host: Host) -> dict[str, str]:
        """Return what is written for a host, by the file below /proc/sys/net/ipv6/conf."""
        # All routes are static. The kernel would ask for routers on every port, and a capture show its packets.
        settings = {f"{port.interface}/router_solicitations": "0" for port in host.ports}
        # A run begins when no packet moves. The kernel would look for a second whether another has its link-local
        # address, and report its groups again within another second. The latter is in ms.
        settings |= {f"{port.interface}/dad_transmits": "0" for port in host.ports}
        settings |= {f"{port.interface}/mldv2_unsolicited_report_interval": "10" for port in host.ports}
        # A kernel started with ipv6.disable_ipv6=1 has IPv6, but switches it off on each new interface.
        names = ["lo", *(port.interface for port in host.ports)]
        return settings | {f"{name}/disable_ipv6": "0" for name in names}

    def _host_lines(self, host: Host) -> list[str]:
        """Return the lines for `ip -batch` that set up a host, in its network namespace."""
        lines = ["link set dev lo up"]
        if self.managed:
            lines += host_lines(host)
        for port in host.ports:
            lines.append(f"link set dev {port.interface} mtu {self.mtu} up")
            lines.append(f"address add {addressing.text(port.address)}/128 dev {port.interface} nodad")
            mac = addressing.mac_text(port.gateway_mac)
            lines.append(f"neighbour replace {ROUTER} lladdr {mac} dev {port.interface} nud permanent")
            for peer in self.topology.hosts:
                if peer.index != host.index:
                    there = addressing.text(peer.ports[port.plane].address)
                    lines.append(f"route replace {there}/128 via {ROUTER} dev {port.interface} onlink")
        return lines

    def pid(self, host: str) -> int:
        """Return a process in the host's namespace; it lives as long as the lab."""
        return int(self._net.get(host).pid)

    def shells(self) -> dict[str, subprocess.Popen[bytes]]:
        """Return the process that holds each host's namespace, by host."""
        return {host.name: self._net.get(host.name).shell for host in self.hosts}

    def command(self, host: str) -> list[str]:
        """Return the words that precede a command to run it in the host."""
        return ["mnexec", "-a", str(self.pid(host))]
