"""BMv2 as a lab's switches: a simple_switch_grpc each, behind the fabric's wires, its queues set by Thrift.

The wires do what links do. Queues, marks and trims are BMv2's, whose queues count packets: the data queue of a port is
given as many packets per second as full ones fit the link, so that packets wait there and not in the wire. The control
queue has no rate, and queues hold more packets than the program's limit in bytes lets in.
"""

from __future__ import annotations

import ctypes
import fcntl
import signal
import socket
import struct
import time
from collections.abc import Iterable

from mrc_topo import rules
from mrc_topo.topology import Switch, Topology
from mrclab.lab import describe
from mrclab.lab.processes.process import ProgressTimeout
from mrclab.lab.records.rundir import RunError
from mrclab.lab.switches.backend import FROZEN, RUNNING, STOPPED, ForwardingBackend, ProcessSupervisor
from mrclab.lab.switches.forwarders import bmv2_options

SIOCETHTOOL = 0x8946
#: The ethtool commands that switch segmentation (TCP, UDP, generic) and generic reception, and (flags) large reception.
SWITCHES = {"tso": 0x1F, "ufo": 0x22, "gso": 0x24, "gro": 0x2C, "lro": 0x26}


class _Value(ctypes.Structure):
    _fields_ = [("command", ctypes.c_uint32), ("data", ctypes.c_uint32)]


class _Request(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 16), ("value", ctypes.POINTER(_Value)), ("rest", ctypes.c_char * 16)]


def switch_off(interfaces: Iterable[str]) -> None:
    """Switch off all offloads of `SWITCHES`; skip one that an interface does not support."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in interfaces:
            for command in SWITCHES.values():
                value = _Value(command, 0)
                request = _Request(name.encode(), ctypes.pointer(value))
                try:
                    fcntl.ioctl(sock, SIOCETHTOOL, request)
                except OSError:
                    continue


SERVICE = "simple_switch"
VERSION = 0x80010000
CALL, REPLY = 1, 2
STOP, I32, I64, STRING = 0, 8, 10, 11
NAME_BYTES = 1 << 12
TIMEOUT_S = 10.0


class ThriftError(Exception):
    """A switch that does not answer, or refuses a call; the text names the call."""


class SimpleSwitch:
    """The Thrift client of one simple_switch. A context manager.

    Args:
        address: host and port.

    Raises:
        ThriftError: no server listens.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._number = 0
        try:
            self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        except OSError as error:
            raise ThriftError(f"no Thrift server at {address[0]}:{address[1]}: {error.strerror}") from error
        self._answer = self._socket.makefile("rb")

    def __enter__(self) -> SimpleSwitch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._socket.close()

    def set_queue_rate(self, port: int, priority: int, packets_per_s: int) -> None:
        """Limit the packets per second that leave one queue of a port (0: no limit)."""
        fields = ((I32, port), (I32, priority), (I64, packets_per_s))
        self._set("set_egress_priority_queue_rate", *fields)

    def set_queue_depth(self, port: int, packets: int) -> None:
        """Limit the packets that each queue of a port holds."""
        self._set("set_egress_queue_depth", (I32, port), (I32, packets))

    def _set(self, method: str, *fields: tuple[int, int]) -> None:
        answer = self.call(method, *fields)
        if answer != 0:
            raise ThriftError(f"{method}: the switch answers {answer}")

    def call(self, method: str, *fields: tuple[int, int]) -> int:
        """Call a method that takes integers, (type, value) by position, and return one.

        Raises:
            ThriftError: it is refused, or the connection breaks.
        """
        self._number += 1
        name = f"{SERVICE}:{method}".encode()
        message = struct.pack(">II", VERSION | CALL, len(name)) + name + struct.pack(">I", self._number)
        for number, (kind, value) in enumerate(fields, 1):
            message += struct.pack(">BHi" if kind == I32 else ">BHq", kind, number, value)
        try:
            self._socket.sendall(message + bytes([STOP]))
            return self._result(method)
        except (OSError, struct.error) as error:
            raise ThriftError(f"{method}: the switch does not answer ({error})") from error

    def _read(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        return struct.unpack(form, self._answer.read(size))

    def _result(self, method: str) -> int:
        version, length = self._read(">II")
        if version & 0xFFFF0000 != VERSION or length > NAME_BYTES:
            raise ThriftError(f"{method}: no answer of Thrift's binary protocol")
        self._answer.read(length)
        (number,) = self._read(">I")
        if number != self._number:
            raise ThriftError(f"{method}: the answer to another call")
        found: int | None = None
        text = ""
        while (kind := self._read(">B")[0]) != STOP:
            (field,) = self._read(">H")
            if kind == I32:
                (value,) = self._read(">i")
                found = value if field == 0 else found
            elif kind == I64:
                (value,) = self._read(">q")
                found = value if field == 0 else found
            elif kind == STRING:
                text = self._answer.read(self._read(">I")[0]).decode(errors="replace")
            else:
                raise ThriftError(f"{method}: an answer of type {kind}, which no call here has")
        if version & 0xFF != REPLY or found is None:
            raise ThriftError(f"{method}: {text or 'refused'}")
        return found


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
        self.notifies = NOTIFICATIONS in bmv2_options(self.binary)
        # Clients reach the Thrift servers through it.
        self.house.net.batch([], ["link set dev lo up"])
        switch_off(theirs for _, theirs in self.house.net.behind.values())
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
