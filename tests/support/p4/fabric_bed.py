"""fabric.p4 compiled by every compiler at hand, and whole labs of it on the virtual clock."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess
import tempfile

from mrc_topo import rules
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths
from mrc_topo.rules import TableEntry
from mrc_topo.topology import HostPort, Topology
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch
from p4lite.switch.fabric.values import LinkSettings, QueueLimits
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from p4lite.switch.source import Loaded, load_source
from support.p4.mrc_frames import Frame, mrc_write

SOURCE = pathlib.Path(__file__).parents[3] / "p4" / "programs" / "fabric.p4"
COMPILERS = ("p4lite", "p4c")


@functools.cache
def compiled(compiler: str) -> Loaded | None:
    """fabric.p4 as one compiler gives it; None when that compiler is not installed."""
    if compiler == "p4lite":
        return load_source(SOURCE)
    binary = shutil.which("p4c-bm2-ss")
    if binary is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        output, info = pathlib.Path(folder, "fabric.json"), pathlib.Path(folder, "fabric.p4info.txtpb")
        command = [binary, "--p4v", "16", "-o", str(output), "--p4runtime-files", str(info), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return load_source(output, p4info=info)


@functools.cache
def program(compiler: str) -> LoadedProgram | None:
    """fabric.p4 ready to run, or None."""
    loaded = compiled(compiler)
    return None if loaded is None else load_program(loaded.bmv2, name=f"fabric-{compiler}")


def install(switch: FabricSwitch, entries: list[TableEntry]) -> None:
    """Put a switch's entries in, parameters ordered as the program declares them."""
    loaded = switch.instance.program
    for entry in entries:
        order = [param.name for param in loaded.tables[entry.table].actions[entry.action].params]
        call = ActionCall(entry.action, tuple(entry.params[name] for name in order))
        if entry.default:
            switch.instance.table_set_default(entry.table, call)
            continue
        key: tuple[MatchValue, ...] = tuple(
            Exact(match.value) if match.prefix_length is None else Lpm(match.value, match.prefix_length)
            for match in entry.match
        )
        switch.instance.table_add(entry.table, key, call)


class LabBed:
    """All switches of a topology in one fabric, linked; host ports are external."""

    def __init__(self, topology: Topology, loaded: LoadedProgram, seed: int = 1) -> None:
        self.topology = topology
        self.fabric = Fabric("virtual", seed=seed)
        for each in topology.switches:
            switch = self.fabric.add_switch(each.device_id, name=each.name, priority_queues=rules.PRIORITY_QUEUES)
            switch.load(loaded)
            install(switch, rules.switch_entries(topology, each))
            for number, link in each.links.items():
                settings = LinkSettings(rate_bps=link.spec.rate, delay_ns=link.spec.delay)
                port = switch.add_port(number, to_host=settings, to_switch=settings)
                port.set_queue(QueueLimits(packets=0))
        for link in topology.links.values():
            if not link.is_host_link:
                settings = LinkSettings(rate_bps=link.spec.rate, delay_ns=link.spec.delay)
                low, high = self.switch(link.low.node), self.switch(link.high.node)
                self.fabric.link(low.port(link.low.port), high.port(link.high.port), settings)
        self._host_ports = {
            (topology.switch(port.t0).device_id, port.t0_port): port for host in topology.hosts for port in host.ports
        }

    def switch(self, name: str) -> FabricSwitch:
        """Return the running switch of a name."""
        return self.fabric.switch(self.topology.switch(name).device_id)

    def send(self, port: HostPort, frame: bytes, at_ns: int | None = None) -> None:
        """Send a frame from a host."""
        self.fabric.inject(self.switch(port.t0).port(port.t0_port), frame, at_ns)

    def run(self, duration_ns: int) -> list[tuple[HostPort, bytes]]:
        """Return what host ports received meanwhile, in order."""
        return [
            (self._host_ports[device, port], frame)
            for _, device, port, frame in self.fabric.run_until(self.fabric.now_ns + duration_ns)
        ]

    def counter(self, switch: str, name: str, index: int) -> int:
        """Packets that a counter of the program has counted."""
        return self.switch(switch).instance.counter_read(rules.COUNTERS[name], index).packets

    def waiting(self, switch: str, port: int) -> int:
        """Bytes in a data queue by the program's registers."""
        instance = self.switch(switch).instance
        return (instance.register_read("queue_in", port) - instance.register_read("queue_out", port)) % 2**32

    def drops(self) -> dict[str, int]:
        """Packets dropped by reason, over all switches; reasons with none are left out."""
        found = {
            reason: sum(self.counter(each.name, "drops", index) for each in self.topology.switches)
            for index, reason in rules.DROP_REASONS.items()
        }
        return {reason: count for reason, count in found.items() if count}


def lab_frame(topology: Topology, src: int, dst: int, value: int, **fields: int) -> Frame:
    """Return an MRC WRITE from host to host with an EV, in the lab's encapsulation."""
    inner = mrc_write(topology.hosts[src].address, topology.hosts[dst].address, value, **fields)
    if topology.lab.routing.mode in (RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH):
        return inner.encapsulated(Paths(topology).resolver(src)(value, topology.hosts[dst].address))
    return inner
