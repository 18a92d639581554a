"""BMv2 as a lab's switches: a simple_switch_grpc each, behind the fabric's wires.

The wires do what links do. Queues, marks and trims are BMv2's, whose queues count packets: the data queue of a port is
given as many packets per second as full ones fit the link, so that packets wait there and not in the wire. The control
queue has no rate, and queues hold more packets than the program's limit in bytes lets in.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time

from mrc_topo import rules
from mrc_topo.topology import Switch, Topology
from mrclab.lab import describe
from mrclab.lab.processes.process import ProgressTimeout
from mrclab.lab.records.rundir import RunError
from mrclab.lab.switches import offload
from mrclab.lab.switches.backend import FROZEN, RUNNING, STOPPED, ForwardingBackend, ProcessSupervisor
from mrclab.lab.switches.thrift import SimpleSwitch, ThriftError

#: The time in which a switch must answer, granted again as long as it works; it is shorter than the lab's, so that the
#: error names the switch.
READY_S = 30.0
#: The base of the Thrift ports inside the lab's network namespace, where each switch has its own.
THRIFT_PORT = 9090
LOOPBACK = "127.0.0.1"
#: The option for the address at which a BMv2 with nanomsg (the default) reports learning and ageing. Without it BMv2
#: uses a file in /tmp named by the device's number, so that the second of two simultaneous labs would not come up.
NOTIFICATIONS = "--notifications-addr"


def thrift_port(switch: Switch) -> int:
    """Return the port of a switch's Thrift server in the lab."""
    return THRIFT_PORT + switch.device_id


def has_notifications(binary: str) -> bool:
    """Return whether this BMv2 was built with nanomsg: one without it refuses the option."""
    try:
        told = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False, timeout=READY_S)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return False  # such a binary does not start either, and the error then says why
    return NOTIFICATIONS in told.stdout


def packets_per_second(topology: Topology, rate_bps: int) -> int:
    """Return how many full packets a link carries in a second; 0, no limit, for a link without a rate."""
    bits = 8 * (describe.frame_bytes(topology) + topology.lab.link_overhead)
    return max(1, rate_bps // bits) if rate_bps else 0


class Bmv2Switches(ForwardingBackend):
    """BMv2's switches, started as `binary`."""

    p4runtime = True

    def __init__(self, house: ProcessSupervisor, binary: str) -> None:
        super().__init__(house)
        self.binary = binary
        self.notifies = False

    def command(self, switch: Switch) -> list[str]:
        """Return the command of a switch, with no program yet and its ports on the far ends of the wires."""
        words = [self.binary, "--no-p4", "--device-id", str(switch.device_id)]
        words += ["--thrift-port", str(thrift_port(switch))]
        if self.notifies:
            words += [NOTIFICATIONS, f"ipc://{self.house.folder.path / switch.name}.ipc"]
        for port in switch.links:
            words += ["-i", f"{port}@{self.house.net.behind[switch.name, port][1]}"]
        address = self.house.folder.address(switch.name)
        return [*words, "--", "--grpc-server-addr", address, "--priority-queues", str(rules.PRIORITY_QUEUES)]

    def start(self) -> None:
        self.notifies = has_notifications(self.binary)
        # Clients reach the Thrift servers through it.
        self.house.net.batch([], ["link set dev lo up"])
        offload.switch_off(theirs for _, theirs in self.house.net.behind.values())
        for switch in self.house.topology.switches:
            self.house.spawn(switch.name, self.command(switch))
        for switch in self.house.topology.switches:
            self._await(switch)

    def _await(self, switch: Switch) -> None:
        """Wait until a switch answers on both interfaces, and set its queues."""
        check = self.house.check_alive(switch.name)
        patience = ProgressTimeout(self.house.record.roles[switch.name], READY_S)
        while True:
            try:
                with SimpleSwitch((LOOPBACK, thrift_port(switch))) as thrift:
                    self._set_queues(switch, thrift)
                if self._listens(switch):
                    return
                problem = "its P4Runtime server does not come up"
            except ThriftError as error:
                # The server listens a moment before it has its service.
                problem = str(error)
            check()
            if patience.over():
                raise RunError(f"switch {switch.name}: {problem}")
            time.sleep(0.05)

    def _set_queues(self, switch: Switch, thrift: SimpleSwitch) -> None:
        for port, link in switch.links.items():
            thrift.set_queue_depth(port, describe.PACKETS_LIMIT)
            rate = packets_per_second(self.house.topology, link.spec.rate)
            thrift.set_queue_rate(port, rules.DATA_PRIORITY, rate)

    def _listens(self, switch: Switch) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(str(self.house.folder.socket(switch.name))) == 0

    def hold(self, switch: Switch, state: str) -> bool:
        role = switch.name
        now = self.house.record.held.get(role, RUNNING)
        if state == STOPPED:
            self.house.end_unrecorded(role)
        elif now == STOPPED:
            self._launch(switch)
            if state == FROZEN:
                self.house.signal(role, signal.SIGSTOP)
            return True
        else:
            self.house.signal(role, signal.SIGSTOP if state == FROZEN else signal.SIGCONT)
        return False

    def restart(self, switch: Switch) -> None:
        self.house.end_unrecorded(switch.name)
        self._launch(switch)

    def _launch(self, switch: Switch) -> None:
        self.house.folder.socket(switch.name).unlink(missing_ok=True)
        self.house.spawn(switch.name, self.command(switch))
        self._await(switch)

    def set_rate(self, switch: Switch, port: int, rate_bps: int) -> None:
        if self.house.record.held.get(switch.name) is not None:
            return
        try:
            with SimpleSwitch((LOOPBACK, thrift_port(switch))) as thrift:
                rate = packets_per_second(self.house.topology, rate_bps)
                thrift.set_queue_rate(port, rules.DATA_PRIORITY, rate)
        except ThriftError as error:
            self.house.check_alive(switch.name)()
            raise RunError(f"switch {switch.name}: {error}") from error
