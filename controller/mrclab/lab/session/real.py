"""A lab on the real clock, brought up by `mrclab up`: its agents, its fabric process, its namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import grpc
import psutil

from mrc_host.answers import HostFidelity
from mrc_host.requests import Provide, Provided
from mrc_topo import rules
from mrc_topo.base import interruption
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrc_topo.labfile import load_lab
from mrclab.lab import describe, scheduling
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import FaultLedger, LedgerState
from mrclab.lab.hosts import inside
from mrclab.lab.hosts.hostclient import HostClient, HostError
from mrclab.lab.hosts.hostnet import switch_interfaces
from mrclab.lab.processes.process import Process, ProcessExit, StoppedProcess, wait_dead
from mrclab.lab.processes.process import frozen as is_frozen
from mrclab.lab.records.record import LAB_FOLDER, LabFolder
from mrclab.lab.records.rundir import LabDied, RunDir, RunError
from mrclab.lab.session.base import Session
from mrclab.lab.session.fabricset import FabricSet
from mrclab.lab.session.fidelity import Fidelity, MachineFidelity, judge
from mrclab.lab.session.load import ProcessLoad
from mrclab.lab.session.wired import WiredFabric
from mrclab.lab.switches import forwarders
from mrclab.lab.switches.backend import COMMANDS, dead_switch
from mrclab.lab.switches.program import FabricProgram, ProgramDocument, fabric_program, fill, primary, shipped_document

#: The time within which an agent ends, and another comes up, on a busy machine.
AGENT_S = 30.0


class RunRecord:
    """The ledger of failures in a lab's run directory: one process at a time changes lab and record."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.file = run.path / "faults.json"

    def read(self) -> LedgerState:
        try:
            return decode(LedgerState, json.loads(self.file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return LedgerState()
        except (OSError, ValueError, DecodeError) as error:
            raise RunError(f"{self.file}: {error}; `mrclab down {self.run.name}` ends the lab") from error

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Callable[[LedgerState], None]]:
        with self.run.exclusive():
            yield lambda state: write_whole(self.file, json.dumps(encode(state), indent=1))


@dataclass(frozen=True)
class AgentProcess:
    """An agents' process: the hosts that it runs, and its memory with all rings, in bytes."""

    hosts: list[str]
    memory_bytes: int


class RealSession(Session):
    """Connects to the lab of a name; a `fresh` one was brought up for this session, which reports all of its exits.

    Raises:
        RunError: the lab is not up.
        LabDied: the lab was brought up for this session, and is not up any more.
    """

    clock = "real"
    #: The machine of each host and switch, of a lab on several.
    machine_of: Mapping[str, str] = {}

    def __init__(self, name: str, *, fresh: bool = False) -> None:
        self.run = RunDir(name)
        state, folder = self.run.read(), self.run.folder
        gone = LabDied if fresh else RunError
        why = "; ".join(death.text() for death in self.run.deaths(state.first)) if state.first else ""
        if state.first is None or not state.first.alive():
            told = f": {why}" if why else ""
            raise gone(f"lab '{name}' has died{told}; `mrclab cleanup` removes what it left")
        record = state.record
        if record.phase != "up":
            told = f": {record.error or why}" if record.error or why else ""
            raise gone(f"lab '{name}' is {record.phase}{told}")
        self.state = state
        self.first = state.first
        #: The exits before the session began, which it does not report.
        self.mourned = set() if fresh else {(death.role, death.how) for death in record.deaths}
        chosen = forwarders.chosen(load_lab(pathlib.Path(state.lab_file)), state.switch, state.compiler)
        self.topology = chosen.for_transport(state.transport)
        self.clients = {host: HostClient(host, folder.socket(host)) for host in record.hosts}
        self.hosts = self.clients
        #: The gRPC addresses of the fabric processes with their device ids, and of switches that are servers of their
        #: own.
        self.addresses, self.switches = folder.fabric(record), folder.switches(record)
        self.target = self._connect()
        self._load = ProcessLoad(self.run, self.switches)
        self.fabric = self.target
        self.failures = FaultLedger(self.topology, self._refill, RunRecord(self.run), self._ready)
        self.denied = set(state.denied)
        self.veth_links = state.links == "veth"
        self._interfaces = switch_interfaces(self.topology)
        self._inside = LabFolder(pathlib.Path(LAB_FOLDER))

    def _connect(self) -> FabricSet:
        if self.state.switch == "p4lite":
            return FabricSet(self.addresses)
        commands = self.run.socket(COMMANDS)
        return WiredFabric(
            self.addresses, self.topology, commands, self.switches, self._refill, lambda: self.program.p4info
        )

    def _ready(self, action: Action) -> None:
        """Refuse a failure at a switch whose process is dead."""
        for death in self.run.deaths(self.first):
            if death.role == action.target:
                raise FailureError(dead_switch(action.target, death.how, self.run.name))

    @property
    def program(self) -> FabricProgram:
        made = self.run.program_file
        return FabricProgram.load(made) if made.exists() else fabric_program()

    def counter_names(self) -> Mapping[str, str]:
        # The counters of the project's own program are known without compiling it.
        return self.program.counters if self.run.program_file.exists() else rules.COUNTERS

    def program_document(self) -> ProgramDocument:
        return self.program.document() if self.run.program_file.exists() else shipped_document()

    def deaths(self) -> list[ProcessExit]:
        found = self.run.deaths(self.first)
        return [death for death in found if (death.role, death.how) not in self.mourned]

    def frozen(self) -> list[StoppedProcess]:
        found = {each.role: each for each in self.run.frozen()}
        # An agent that was restarted is not a child of the lab's first process.
        for host, dead in ((each.role, each) for each in self.run.deaths(self.first)):
            if host in self.clients and dead.role not in found:
                with contextlib.suppress(HostError):
                    if is_frozen(self._agent(host).pid):
                        found[host] = StoppedProcess(host)
        return list(found.values())

    def harm(self) -> list[str]:
        """Describe the exits in the lab since it came up, and the frozen processes."""
        dead, frozen = self.run.deaths(self.first), self.frozen()
        return [death.text() for death in dead] + [each.text() for each in frozen]

    def lost(self) -> dict[str, str]:
        """Return, by name, a sentence about how each lost machine was lost, of a lab on several."""
        return {}

    def machines(self) -> dict[str, MachineFidelity]:
        """Return the data about each machine of a lab on several: its address, its slice, its clock, its tunnels."""
        return {}

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def advance(self, seconds: float) -> None:
        interruption.sleep(seconds)

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        # The host's kernel sees a lost carrier when the far end of the veth pair goes down.
        place = self.topology.host(host).ports[port]
        interface = self._interfaces[place.t0, place.t0_port]
        command = ["ip", "link", "set", "dev", interface, "up" if up else "down"]
        done = inside.run(self.state, command, files=False, capture_output=True, text=True)
        if done.returncode:
            raise RunError(f"{interface}: {done.stderr.strip()}")

    def p4runtime_address(self, switch: str) -> str:
        return self.target.address(self.topology.switch(switch).device_id)

    def _agent(self, host: str, *, exclusive: bool = False) -> Process:
        """Return the agent that serves a host's socket, whichever process started it; with `exclusive` it must serve no
        other host.

        Raises:
            HostError: there is no agent, or it serves other hosts, too.
        """
        first = self.state.first
        assert first is not None
        lab = os.readlink(f"/proc/{first.pid}/ns/pid")
        sockets = {str(self._inside.socket(name)): name for name in self.clients}
        for each in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                words = each.cmdline()
                names = [sockets[word] for word in words if word in sockets] if "mrc_host.agent" in words else []
                if host in names and self._lives_in(each.pid, lab):
                    if exclusive and len(names) > 1:
                        raise HostError(
                            f"host {host}: its agent's process carries {', '.join(names)}, which would share its fate; "
                            f"bring the lab up with {describe.PER_HOST} in its file"
                        )
                    return Process.of(host, each.pid)
        raise HostError(f"host {host}: its agent is gone")

    @staticmethod
    def _lives_in(pid: int, lab: str) -> bool:
        """Return whether a process is in a PID namespace, and is neither a zombie nor an outside wrapper."""
        return os.readlink(f"/proc/{pid}/ns/pid") == lab and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

    def freeze_agent(self, host: str) -> None:
        self._agent(host, exclusive=True).signal(signal.SIGSTOP)

    def thaw_agent(self, host: str) -> None:
        self._agent(host, exclusive=True).signal(signal.SIGCONT)

    def kill_agent(self, host: str) -> None:
        agent = self._agent(host, exclusive=True)
        agent.signal(signal.SIGKILL)
        wait_dead(agent, AGENT_S)
        self.clients[host].close()

    def restart_agent(self, host: str) -> None:
        words = describe.agent_command(self._inside, [host])
        with self.run.folder.log(host).open("ab") as log:
            inside.start(self.state, words, host=host, stdout=log, stderr=log)
        try:
            self.clients[host].connect(wait_s=AGENT_S)
        except HostError as error:
            raise HostError(f"{error}; see {self.run.folder.log(host)}") from error

    def signal_process(self, role: str, number: int) -> bool:
        found = [each for each in self.run.processes() if each.role == role]
        for each in found:
            each.signal(number)
        return bool(found)

    def agents(self) -> list[AgentProcess]:
        """Return the agents' processes."""
        found = []
        for process, hosts in self.run.agents().items():
            with contextlib.suppress(psutil.Error):
                found.append(AgentProcess(hosts, psutil.Process(process.pid).memory_info().rss))
        return found

    @contextlib.contextmanager
    def changing_denied(self) -> Iterator[None]:
        with self.run.change() as state:
            self.denied = set(state.denied)
            yield
            state.denied = sorted(self.denied)

    def denied_now(self) -> set[str]:
        self.denied = set(self.run.read().denied)
        return self.denied

    def _refill(self, name: str) -> None:
        if self.state.switch == "kernel":
            return  # the daemon sets its routes
        switch = self.topology.switch(name)
        program = self.program
        with grpc.insecure_channel(self.target.address(switch.device_id)) as channel:
            device = primary(channel, switch, program)
            fill(self.topology, switch, device, program)
            device.close()

    def fidelity(self) -> Fidelity:
        hosts = {}
        for name, client in self.clients.items():
            with contextlib.suppress(HostError):
                found = client.ask(Provide(Provided.FIDELITY))
                assert isinstance(found, HostFidelity)
                hosts[name] = found
        wired = self.target if isinstance(self.target, WiredFabric) else None
        measured = Fidelity(
            fabric=self.target.lateness(),
            hosts=hosts,
            switches={} if wired is None else self._load.measure(self._received(wired, begin=False)),
            scheduling=scheduling.measure(self.run),
            machine=scheduling.machine_activity(self.run),
        )
        reasons = judge(measured, describe.base_rtt_ns(self.topology, self.clock))
        return replace(measured, valid=not reasons, reasons=reasons)

    def _received(self, fabric: WiredFabric, *, begin: bool) -> dict[str, tuple[int, int]]:
        """See `WiredFabric.received`; nothing where the program does not count what it receives."""
        counter = self.counter_names().get("port_rx")
        return {} if counter is None else fabric.received(counter, begin=begin)

    def reset_fidelity(self) -> None:
        self.target.lateness(reset=True)
        if isinstance(self.target, WiredFabric):
            self._load.reset(self._received(self.target, begin=True))
        for client in self.clients.values():
            client.ask(Provide(Provided.RESET_FIDELITY))

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.target.close()
