"""The Linux kernel as a lab's switches: a network namespace each, behind the fabric's wires, with routes for tables.

Routes come of the same entries as the P4 program's tables (`mrc_topo.rules`): a switch's own uSID is the behaviour End
with the flavour NEXT-C-SID, other uSIDs are /48 routes, addresses go to host ports or over all uplinks. The kernel
neither marks nor trims, so its labs do without; queues are the wires'. Tenants have a table each, chosen by the source.
"""

from __future__ import annotations

import os
import pathlib
import time

from mrc_topo import addressing, rules
from mrc_topo.export import NEIGHBOUR, policy, routes
from mrc_topo.topology import Switch
from mrclab.lab.records.rundir import RunError
from mrclab.lab.switches.backend import ForwardingBackend

READY_S = 10.0
SETTINGS = {
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv6/conf/default/forwarding": "1",
    #: The fields that choose among uplinks: addresses, flow label and next header.
    "net/ipv6/fib_multipath_hash_policy": "0",
}


class KernelSwitches(ForwardingBackend):
    """The switches' namespaces, each held by a sleeping process."""

    p4runtime = False

    def start(self) -> None:
        processes = {
            switch.name: self.house.spawn(switch.name, ["mnexec", "-n", "sleep", "infinity"])
            for switch in self.house.topology.switches
        }
        for switch in self.house.topology.switches:
            self._configure_switch(switch, processes[switch.name].pid)

    def _configure_switch(self, switch: Switch, pid: int) -> None:
        net, role = self.house.net, switch.name
        self._await_namespace(role, pid)
        ports = {port: net.behind[role, port][1] for port in switch.links}
        net.batch([], [f"link set dev {name} netns {pid}" for name in ports.values()])
        inside = ["mnexec", "-a", str(pid)]
        lines = []
        for port, name in ports.items():
            mac = addressing.mac_text(addressing.switch_mac(switch.plane, switch.tier, switch.index, port))
            # Without an address of its own it sends nothing by itself.
            lines.append(f"link set dev {name} addrgenmode none address {mac} mtu {net.mtu}")
        net.batch(inside, lines)
        settings = SETTINGS | {f"net/ipv6/conf/{name}/disable_ipv6": "0" for name in ports.values()}
        net.write_settings(inside, settings)
        lines = ["link set dev lo up", *(f"link set dev {name} up" for name in ports.values())]
        for port, name in ports.items():
            there = addressing.mac_text(rules.next_mac(self.house.topology, switch, port))
            lines.append(f"neighbour replace {NEIGHBOUR} lladdr {there} dev {name} nud permanent")
        net.batch(inside, lines)
        net.batch(inside, policy(self.house.topology, switch, ports), "-6")
        for table in routes(self.house.topology, switch, ports).values():
            net.batch(inside, table, "-6")

    def _await_namespace(self, role: str, pid: int) -> None:
        ours, check = os.readlink("/proc/self/ns/net"), self.house.check_alive(role)
        deadline = time.monotonic() + READY_S
        while pathlib.Path(f"/proc/{pid}/ns/net").readlink() == pathlib.Path(ours):
            check()
            if time.monotonic() > deadline:
                raise RunError(f"switch {role}: this machine makes no network namespace for it")
            time.sleep(0.01)

    def hold(self, switch: Switch, state: str) -> bool:
        # The wires are frozen or down, which stops all that the switch could do.
        return False

    def restart(self, switch: Switch) -> None:
        inside = ["mnexec", "-a", str(self.house.record.roles[switch.name])]
        ports = {port: self.house.net.behind[switch.name, port][1] for port in switch.links}
        for name, table in routes(self.house.topology, switch, ports).items():
            self.house.net.batch(inside, [f"route flush table {name} proto boot", *table], "-6")

    def set_rate(self, switch: Switch, port: int, rate_bps: int) -> None:
        # The wire applies the rate.
        return None
