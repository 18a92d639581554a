"""Simulate hosts in several processes, with the fabric in this one: the same result to the byte as in one process.

A host concerns another one only by packets, and a packet is on its way for at least the delay of the links between
them. So the fabric goes on in a thread while the processes (`partition_worker.py`) handle the arrivals that are known,
as far as no packet that they can still send reaches a switch; then both exchange packets and go on. The fabric takes
packets of one instant in an order that does not depend on which process they come from.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from mrc_common.errors import MrclabError
from mrc_lab.hosts.hostclient import HostError, Plain
from mrc_lab.session.partition_worker import (
    Begin,
    Carriers,
    Command,
    Hold,
    Links,
    Order,
    React,
    Refused,
    Release,
    Reply,
    Setup,
    main,
)
from mrc_lab.session.shared_bytes import SharedBytes
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology
from p4lite.switch.fabric.outside import ExternalHosts, PackedArrivals, Transmitter

#: A process with fewer hosts waits longer for the others than it works.
LEAST_HOSTS: Final = 8
#: So does one whose hosts send fewer packets than this between two exchanges. Measured with 64 hosts and links of
#: several delays: 20 packets take twice as long in two processes as in one, 40 as long, 200 less.
LEAST_PACKETS = 50
#: After this long without an answer to a request to end, a process is killed.
END_S: Final = 5.0


def processes(lab: Lab, cores: int) -> int:
    """Return in how many processes the hosts of a lab are simulated; up to 1, in the command's own.

    Between two exchanges the hosts can send what their links carry in the links' delay.
    """
    bits = lab.hosts * lab.host_rate_bps * lab.links.host.delay // 10**9
    return min(cores, lab.hosts // LEAST_HOSTS, bits // (8 * lab.path_mtu) // LEAST_PACKETS)


class PartitionError(MrclabError):
    """A process that simulates hosts has ended before the run."""


class _Process:
    """One process, its hosts, and the memory that it shares with this one."""

    def __init__(self, setup: Setup, arrived: SharedBytes) -> None:
        self.hosts = list(setup.places)
        self.arrived = arrived
        self.sent = [SharedBytes(), SharedBytes()]
        self.reply = Reply(0, 0, 0, 0)
        ours, theirs = socket.socketpair()
        with theirs:
            one, other = (each.fd for each in self.sent)
            self._process = subprocess.Popen(
                # Not by -m: the classes of orders would then have two names.
                [sys.executable, "-P", "-c", f"from {main.__module__} import main; main({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), arrived.fd, one, other),
                start_new_session=True,  # an interrupt at the terminal concerns this process, which ends the others
            )
        self.connection = Connection(ours.detach())
        self.tell(Setup(**{**vars(setup), "sent": (one, other)}))

    def tell(self, order: Order | Setup) -> None:
        """Send an order; `hear` returns its reply."""
        try:
            self.connection.send(order)
        except OSError as error:
            raise self._ended() from error

    def hear(self) -> Reply:
        """Return the reply to the last order."""
        try:
            reply: Reply = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        self.reply = reply
        return reply

    def _ended(self) -> PartitionError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.returncode
        if code is None:
            how = "does not answer any more"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}; its messages are above"
        names = self.hosts[0] if len(self.hosts) == 1 else f"{self.hosts[0]} to {self.hosts[-1]}"
        return PartitionError(f"the process that simulates {names} {how}; without --cores one process simulates all")

    def send_to(self, fabric: ExternalHosts) -> int:
        """Hand the fabric what the hosts have sent by the last reply; return how many bytes of words that was."""
        reply = self.reply
        self.reply = Reply(reply.turn, 0, 0, reply.wake_ns)
        if reply.words:
            with self.sent[reply.turn].view(reply.words + reply.octets) as view:
                words, octets = view[: reply.words], view[reply.words :]
                try:
                    fabric.send_packed(words, octets)
                finally:
                    words.release()
                    octets.release()
        return reply.words

    def close(self) -> None:
        """End the process and wait for it."""
        self.connection.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for each in self.sent:
            each.close()


class PartitionedHosts:
    """Hosts that several processes simulate, and the commands for them.

    Args:
        topology, transport: the lab.
        fabric: where the hosts' packets go.
        places: for each host, the places of its ports in the fabric, in order.
        count: how many processes.
    """

    def __init__(
        self, topology: Topology, transport: str, fabric: ExternalHosts, places: Mapping[str, range], count: int
    ) -> None:
        self.fabric = fabric
        self.now = fabric.now_ns
        self._places = dict(places)
        self._arrived = SharedBytes()
        self._processes: list[_Process] = []
        self._of: dict[str, _Process] = {}
        names = list(places)
        mtu = topology.lab.interface_mtu
        try:
            for number in range(count):
                # Neighbours talk to each other most: equal parts of the hosts in their order.
                own = names[len(names) * number // count : len(names) * (number + 1) // count]
                part = {name: places[name] for name in own}
                wanted = {place for each in part.values() for place in each}
                read = fabric.format._replace(
                    places={port: place for port, place in fabric.format.places.items() if place in wanted}
                )
                setup = Setup(topology, transport, part, fabric.headers, read, mtu, self._arrived.fd, (-1, -1))
                process = _Process(setup, self._arrived)
                self._processes.append(process)
                self._of.update(dict.fromkeys(own, process))
            for process in self._processes:
                process.hear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()
        self._arrived.close()

    # --- commands ---

    def command(self, host: str, verb: str, arguments: Mapping[str, Any]) -> Plain:
        """Carry out a verb of a host. Raises HostError."""
        answer = self._ask(host, Command(host, self.now, self._links_of(host), verb, arguments))
        if isinstance(answer, Refused):
            raise HostError(answer.text, answer.number, answer.code)
        assert answer is not None  # every verb has an answer
        return answer

    def set_carriers(self, host: str, up: Sequence[tuple[int, bool]]) -> None:
        """Set the carriers of a host's ports: (port, whether it is up)."""
        self._ask(host, Carriers(host, self.now, self._links_of(host), up))

    def hold(self, host: str, *, dead: bool = False) -> None:
        """See `VirtualDriver.hold`."""
        self._ask(host, Hold(host, dead))

    def release(self, host: str, seed: str | None = None, up: Sequence[tuple[int, bool]] = ()) -> None:
        """Continue a host, or with a seed a new one in its place with these carriers (see `VirtualDriver.release`)."""
        self._ask(host, Release(host, self.now, self._links(), seed, up))

    def _ask(self, host: str, order: Order) -> Plain | Refused | None:
        process = self._of[host]
        process.tell(order)
        answer = process.hear().answer
        process.send_to(self.fabric)
        return answer

    def _links_of(self, host: str) -> dict[int, Transmitter]:
        return {place: self.fabric.transmitter(place) for place in self._places[host]}

    def _links(self) -> Links:
        links = self.fabric.transmitters()
        return Links(links, max(self.fabric.lookahead_ns() - 1, 0))

    # --- time ---

    def run_until(self, end_ns: int) -> None:
        """Do as `VirtualDriver.run_until`."""
        links = self._links()
        self._tell_all(Begin(self.now, links.links, links.ahead_ns))
        fabric, ahead = self.fabric, links.ahead_ns
        arrivals: PackedArrivals | None = None
        while True:
            wake = min(process.reply.wake_ns for process in self._processes)
            first = min(arrivals.first_ns, wake) if arrivals else wake
            known = fabric.known_ns
            react = self._react(arrivals, known, end_ns)
            for process in self._processes:
                process.tell(react)
            sent = 0
            for process in self._processes:
                sent += process.send_to(fabric)
            # No packet that a host sends from now on reaches a switch before this.
            limit = max(min(first + ahead, end_ns), fabric.now_ns)
            fabric.begin([], [], limit, end_ns)
            try:
                for process in self._processes:
                    process.hear()
            finally:
                found = fabric.finish_packed()
            arrivals = found if found.records_bytes else None
            if fabric.surprises:
                for process in self._processes:
                    process.send_to(fabric)
                links = self._links()
                ahead = links.ahead_ns
                self._tell_all(links)
            wake = min(process.reply.wake_ns for process in self._processes)
            waiting = any(process.reply.words for process in self._processes)
            if not (arrivals or wake < end_ns or waiting) and limit >= end_ns:
                break
        self.now = max(self.now, end_ns)

    def _tell_all(self, order: Order) -> None:
        for process in self._processes:
            process.tell(order)
        for process in self._processes:
            process.hear()

    def _react(self, arrivals: PackedArrivals | None, known_ns: int, end_ns: int) -> React:
        """Copy arrivals to the shared memory, and return the order to handle them."""
        if arrivals is None:
            return React(0, 0, known_ns, end_ns)
        size = arrivals.records_bytes + arrivals.octets_bytes
        with self._arrived.view(size) as view:
            to = (ctypes.c_char * size).from_buffer(view)
            ctypes.memmove(to, arrivals.records, arrivals.records_bytes)
            ctypes.memmove(ctypes.addressof(to) + arrivals.records_bytes, arrivals.octets, arrivals.octets_bytes)
            del to
        return React(arrivals.records_bytes, arrivals.octets_bytes, known_ns, end_ns)
