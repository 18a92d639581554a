"""A lab on the virtual clock: fabric, hosts and controller in one process, deterministic, without root.

It is a simulation: the same programs, tables, packets and protocol core as on the real clock, but time is simulated.
"""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mrc_host import running
from mrc_host.answers import Software
from mrc_host.drivers.virtual import VirtualDriver
from mrc_host.node.host import CommandError, HostNode
from mrc_topo import rules
from mrc_topo.base import interruption
from mrc_topo.base.plain import decode, encode
from mrc_topo.base.rpc import Request
from mrc_topo.topology import Host, Topology
from mrclab.lab import describe, payloads, policies
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.hosts.hostclient import HostError, HostGone, Plain
from mrclab.lab.processes.process import StoppedProcess
from mrclab.lab.session import counters
from mrclab.lab.session.base import Session
from mrclab.lab.session.fidelity import Fidelity
from mrclab.lab.switches import forwarders
from mrclab.lab.switches.program import DirectTables, FabricProgram, fill, primary, program_of
from p4lite.switch import listen
from p4lite.switch.assembly import assemble
from p4lite.switch.fabric.fabric import Port
from p4lite.switch.targetapi.inside import FabricInside
from p4lite.switch.targetapi.values import DeviceSample, DeviceStats

if TYPE_CHECKING:
    import grpc

    from p4lite.api.values import Control
    from p4lite.switch.server import FabricServer
    from p4lite.switch.targetapi.client import TargetClient

#: The number of new objects after which Python searches for cycles while simulated time passes, instead of 700: packets
#: form no cycles, and the search takes some percent of such a run.
LOOK_FOR_CYCLES_AFTER: Final = 50_000
A = TypeVar("A")


@contextlib.contextmanager
def _garbage_collected_rarely() -> Iterator[None]:
    """Let the garbage collector ignore objects that exist now, while the context lasts."""
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(LOOK_FOR_CYCLES_AFTER, *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


@dataclass(frozen=True)
class Served:
    """The server of a simulation, and what calls it."""

    server: FabricServer
    target: TargetClient
    channel: grpc.Channel
    address: str


class VirtualHost:
    """A host that is commanded by function calls."""

    def __init__(self, session: VirtualSession, name: str) -> None:
        self.session = session
        self.name = name
        self.dead = False
        self.frozen = False

    def ask(self, request: Request[A]) -> A:
        """See `hostclient.HostControl`."""
        answer: A = decode(request.answer, self.request(request.verb, **encode(request)))
        return answer

    def request(self, verb: str, **arguments: Any) -> Plain:
        """See `hostclient.HostControl`."""
        if self.dead:
            raise HostGone(f"host {self.name}: its agent is gone (stopped)")
        if self.frozen:
            raise HostError(f"host {self.name}: its agent does not answer (frozen)")
        return self.session.command(self.name, verb, arguments)


class VirtualSession(Session):
    """Builds the lab; `close` frees it. `transport` is mrc or roce.

    `nodes` are the hosts, `simulated` is the fabric, and `fabric` commands it. Calls within the process fill its
    tables. P4Runtime and the target API are served once `server`, `target` or `p4runtime_address` is asked for; a lab
    with a program of its own, or with one by p4c, is served from the beginning.
    """

    clock = "virtual"
    #: Whether an earlier simulation of this process may have left cycles of objects.
    _littered = False

    def __init__(self, topology: Topology, transport: str = "mrc") -> None:
        if VirtualSession._littered:
            # Objects that were ignored while time passed count as old, and Python hardly ever looks at old ones.
            gc.collect()
        VirtualSession._littered = True
        forwarders.check_clock(topology, self.clock)
        policies.check_files(topology)
        payloads.check(topology, self.clock)
        self.topology = topology = topology.for_transport(transport)
        self.transport = transport
        self._program = program_of(topology)
        self._started: dict[str, int] = {}
        plan = describe.FabricPlan(listen.PRIVATE, "virtual", {})
        self.simulated = assemble(describe.fabric_description(topology, plan))
        self.fabric = FabricInside(self.simulated)
        self._served: Served | None = None
        ours = topology.lab.program is None and topology.lab.compiler == "p4lite"
        self._tables = DirectTables(self._program) if ours else None
        if not ours:
            self._serve()
        for switch in topology.switches:
            self._refill(switch.name)
        planes = topology.lab.planes
        outside = self.simulated.outside(
            [self._port(host, plane) for host in topology.hosts for plane in range(planes)]
        )
        places = {host.name: range(at * planes, (at + 1) * planes) for at, host in enumerate(topology.hosts)}
        self.nodes = {host.name: self._node(host, transport) for host in topology.hosts}
        paths = {name: node.datapath for name, node in self.nodes.items()}
        length_only = topology.lab.payload == "length"
        self.driver = VirtualDriver(outside, paths, places, topology.lab.interface_mtu, length_only)
        self.virtual_hosts = {name: VirtualHost(self, name) for name in places}
        self.hosts = self.virtual_hosts
        self._carriers = {(host.name, plane): True for host in topology.hosts for plane in range(topology.lab.planes)}
        self.failures = FaultLedger(topology, self._refill, clock=self.now_ns)
        self.denied = set()

    @property
    def program(self) -> FabricProgram:
        return self._program

    def _node(self, host: Host, transport: str, seed: str | None = None) -> HostNode:
        config = describe.host_config(self.topology, host, self.clock, transport)
        return HostNode(config, random.Random(config.seed if seed is None else seed))

    def command(self, host: str, verb: str, arguments: Mapping[str, Any]) -> Plain:
        """Carry out a verb of a host. Raises HostError."""
        try:
            answer: Plain = self.nodes[host].command(verb, dict(arguments), self.now_ns())
        except CommandError as error:
            raise HostError(str(error), error.number, error.code) from error
        self.driver.touch(host)
        return answer

    def _port(self, host: Host, plane: int) -> tuple[Port, bytes]:
        """Return the switch's end of a host's cable, and the Ethernet header of frames that the host sends there."""
        port = host.ports[plane]
        switch = self.topology.switch(port.t0)
        header = port.gateway_mac.to_bytes(6, "big") + port.mac.to_bytes(6, "big") + b"\x86\xdd"
        return self.simulated.switch(switch.device_id).port(port.t0_port), header

    def _refill(self, name: str) -> None:
        switch = self.topology.switch(name)
        if self._served is None:
            assert self._tables is not None  # other programs are served from the beginning
            self._tables.fill(self.topology, switch, self.simulated.switch(switch.device_id))
            return
        # Arbitration is repeated each time, because another controller may have been primary since.
        device = primary(self._served.channel, switch, self._program, patient=True)
        try:
            fill(self.topology, switch, device, self._program)
        finally:
            # An open stream has threads that wake up many times a second even without messages.
            device.close()

    def now_ns(self) -> int:
        return self.driver.now

    def stats(self) -> dict[int, DeviceStats]:
        # Calls over gRPC would take ten times as long.
        return FabricInside(self.simulated).stats()

    def unread(self) -> Mapping[str, Sequence[int]]:
        return {name: self.driver.unread(name) for name in self.hosts}

    def samples(self, counted: Iterable[str] = ()) -> dict[int, DeviceSample]:
        return FabricInside(self.simulated).samples(rules.DATA_PRIORITY, counters.FAILURE_DROPS, counted)

    def fabric_sample(self) -> counters.FabricSample:
        return counters.sample_inside(self.topology, self.simulated)

    def advance(self, seconds: float) -> None:
        interruption.check()
        with _garbage_collected_rarely():
            self.driver.run_until(self.driver.now + round(seconds * 1e9))

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        self._carriers[host, port] = up
        self._send_carriers(host)

    def _send_carriers(self, host: str) -> None:
        """Send a node the carriers of its ports, if it runs."""
        agent = self.virtual_hosts[host]
        if agent.frozen or agent.dead:
            return
        for (name, port), up in self._carriers.items():
            if name == host:
                self.nodes[host].datapath.set_carrier(port, up, self.driver.now)
        self.driver.touch(host)

    def _serve(self) -> Served:
        """Serve P4Runtime and the target API from now on."""
        if self._served is None:
            # Few runs are asked for a server, and importing gRPC takes longer than building a small simulation.
            import grpc

            from p4lite.switch.server import FabricServer
            from p4lite.switch.targetapi.client import TargetClient

            server = FabricServer(self.simulated, listen.PRIVATE, patient=True)
            if self._tables is not None and self.simulated.switches:
                server.adopt(self._program.p4info, self._program.bmv2)
            address = server.start()
            target = TargetClient(address, timeout_s=None)
            channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)])
            self._served = Served(server, target, channel, address)
            # From here on P4Runtime has to know when a switch is restarted.
            self.fabric = target
        return self._served

    @property
    def server(self) -> FabricServer:
        """The server of P4Runtime and of the target API."""
        return self._serve().server

    @property
    def target(self) -> TargetClient:
        """A client of the target API."""
        return self._serve().target

    def p4runtime_address(self, switch: str) -> str:
        return self._serve().address

    def control(self, switch: str) -> Control:
        return self.simulated.switch(self.topology.switch(switch).device_id).instance

    def _agent(self, host: str) -> VirtualHost:
        agent = self.virtual_hosts[host]
        if agent.dead:
            raise HostError(f"host {host}: its agent is gone (stopped)")
        return agent

    def freeze_agent(self, host: str) -> None:
        self._agent(host).frozen = True
        self.driver.hold(host)

    def thaw_agent(self, host: str) -> None:
        self._agent(host).frozen = False
        self.driver.release(host)
        self._send_carriers(host)

    def kill_agent(self, host: str) -> None:
        self._agent(host).dead = True
        self.driver.hold(host, dead=True)

    def restart_agent(self, host: str) -> None:
        agent = self.virtual_hosts[host]
        # A restarted node must differ for its peers, as a real one does.
        started = self._started[host] = self._started.get(host, 1) + 1
        config = describe.host_config(self.topology, self.topology.host(host), self.clock, self.transport)
        seed = f"{config.seed} {started}"
        agent.dead = agent.frozen = False
        node = self.nodes[host] = self._node(self.topology.host(host), self.transport, seed)
        self._send_carriers(host)
        self.driver.release(host, node.datapath)

    def frozen(self) -> list[StoppedProcess]:
        return [StoppedProcess(name) for name, host in self.virtual_hosts.items() if host.frozen]

    def fidelity(self) -> Fidelity:
        # Simulated time waits for the machine, so no process can be late.
        payload = "length" if self.topology.lab.payload == "length" else ""
        return Fidelity(valid=True, simulated=True, payload=payload, software=Software(**running.document()))

    def reset_fidelity(self) -> None:
        return None

    def close(self) -> None:
        if self._served is None:
            self.simulated.close()
            return
        self._served.target.close()
        self._served.channel.close()
        self._served.server.stop()
