"""Holds a real-clock lab: Mininet's hosts, the fabric process and the agents, until it is asked to end.

    python -m mrclab.lab.daemon NAME TRANSPORT LINKS SWITCH COMPILER [BMV2]

`mrclab.lab.processes.launch` starts it in the lab's own namespaces, in which it is root, and with /run/lab as the only
place that it shares with the commands outside. Everything it starts dies with it: the launcher's process, the first of
the PID namespace, ends with it, and the kernel then ends all others.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import IO, TYPE_CHECKING

from mrc_topo.base.files import write_whole
from mrc_topo.base.rpc import SelectLoop, Server, refusing
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.topology import Host, Switch, Topology
from mrclab.lab import describe
from mrclab.lab.hosts import hostnet
from mrclab.lab.hosts.hostclient import HostClient, HostError
from mrclab.lab.hosts.hostnet import HostNet, HostNetError
from mrclab.lab.processes import namespaces
from mrclab.lab.processes.namespaces import NamespaceError
from mrclab.lab.processes.process import SHELL, ProcessExit, ProgressTimeout, StoppedProcess, cause, frozen, several
from mrclab.lab.records.record import LAB_FOLDER, PROGRAM, LabFolder, LabRecord, last_line
from mrclab.lab.records.rundir import RunError
from mrclab.lab.scheduling import AGENT_NICE, raise_session, shorten_slice
from mrclab.lab.switches.backend import COMMANDS, ForwardingBackend, ProcessSupervisor
from mrclab.lab.switches.bmv2 import Bmv2Switches
from mrclab.lab.switches.forwarders import chosen
from mrclab.lab.switches.kernel import KernelSwitches
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.program import FabricProgram, ProgramError, fabric_program, fill, primary
from p4lite.switch import documents

if TYPE_CHECKING:
    from mrclab.lab.switches.p4rt import Device

#: The time in which a process must answer; it is granted again as long as the process works.
READY_S = 90.0
#: The longest time after which the exit of a child is noticed.
WATCH_S = 0.1
#: The time that all processes together have to end by themselves.
GRACE_S = 2.0
REQUEST_BYTES = 1 << 16
#: The errors that mean that a process does not answer.
UNANSWERED = (HostError, P4RuntimeError)
FAILURES = (HostNetError, HostError, P4RuntimeError, ProgramError, RunError, LabError, OSError)


class StartCancelled(Exception):
    """The daemon received a signal to end while it was still starting."""


def granted(ask: Callable[[], object]) -> bool:
    """Return whether the kernel would grant a request, tried in a separate process."""
    pid = os.fork()
    if pid == 0:
        try:
            ask()
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def may_be_realtime() -> bool:
    """Return whether our processes may run with SCHED_RR."""
    return granted(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))


def may_set_niceness() -> bool:
    """Return whether our processes may take the agents' niceness."""
    return granted(lambda: os.setpriority(os.PRIO_PROCESS, 0, AGENT_NICE))


def forwarding_backend(house: ProcessSupervisor, bmv2: str) -> ForwardingBackend | None:
    """Return the backend that forwards behind the fabric's wires; None: the fabric process forwards. `bmv2`: BMv2's
    program."""
    switch = house.topology.lab.switch
    if switch == "bmv2":
        return Bmv2Switches(house, bmv2)
    return KernelSwitches(house) if switch == "kernel" else None


def first_line(process: subprocess.Popen[bytes], check: Callable[[], object]) -> str:
    """Wait for the first line of output of a starting process, and return it; empty if the process ended without
    one. `check` is called meanwhile."""
    assert process.stdout is not None
    patience = ProgressTimeout(process.pid, READY_S)
    while not patience.over():
        check()
        if select.select([process.stdout], [], [], WATCH_S)[0]:
            return process.stdout.readline().decode()
    return ""


def release(process: subprocess.Popen[bytes]) -> None:
    """Let a process that was started with `--wait` begin; one that has died is noticed when it does not answer."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as line:
        line.write(b"\n")


class Daemon:
    """One lab from start to end. A slice of a lab on several machines overrides the first methods."""

    #: Descriptors that the fabric's process inherits.
    inherited: tuple[int, ...] = ()

    def __init__(self, folder: LabFolder, topology: Topology, transport: str, links: str, bmv2: str = "") -> None:
        self.folder = folder
        self.topology = topology = topology.for_transport(transport)
        self.transport = transport
        self.hosts, self.switches = self.elements()
        self.net = HostNet(topology, veth=links == "veth", hosts=self.hosts, check=self.check_ended)
        self.names = folder.path / "hosts"
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        #: Mininet's processes that hold the hosts' namespaces.
        self.shells: dict[str, subprocess.Popen[bytes]] = {}
        #: The processes whose exits are recorded; a role may have another process later.
        self._buried: list[subprocess.Popen[bytes]] = []
        self.devices: list[Device] = []
        #: The backend that forwards, where the fabric process does not.
        self.behind = forwarding_backend(self, bmv2)
        self.loop = SelectLoop()
        self.record = LabRecord(roles={"labd": os.getpid()})
        #: Set by a signal. It is no `Event`, because the main thread may hold an event's lock when the signal comes.
        self.ended = False
        self.starting = True
        # The hard limits on priorities may be raised for an ordinary user; the soft limits follow them.
        for limit in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE):
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (hard, hard))
        self.realtime = may_be_realtime()
        self.nice = may_set_niceness()
        if self.nice:
            raise_session("self")

    def elements(self) -> tuple[list[Host], list[Switch]]:
        """Return the hosts and switches that run here."""
        return list(self.topology.hosts), list(self.topology.switches)

    def wired(self, plan: describe.FabricPlan) -> describe.FabricPlan:
        """Return a plan of the hosts' interfaces with what else the links of `elements` lead to."""
        return plan

    def abandoned(self) -> str:
        """Return why no command can end the lab any more, though its run directory is there; empty while one can."""
        return ""

    def write(self) -> None:
        """Record the present state."""
        self.folder.write(self.record)

    def start(self) -> None:
        """Start all processes, in the order in which one needs the other."""
        self.write()
        made = self.folder.path / PROGRAM
        program = FabricProgram.load(made) if made.exists() else fabric_program()
        # Fabric and agents import their modules while the namespaces are made and the switches are filled.
        roles = [switch.name for switch in self.topology.switches] if self.net.veth else ["fabric"]
        for role in roles:
            self._spawn_fabric(role)
        groups = self._spawn_agents()
        self._mount_names()
        self.net.start()
        self._write_names()
        self.shells = {f"{name}{SHELL}": shell for name, shell in self.net.shells().items()}
        self.record.roles |= {role: shell.pid for role, shell in self.shells.items()}
        fabric: dict[str, list[int]] = {}
        servers: dict[str, list[int]] = fabric
        if self.behind is not None:
            self.behind.start()
            if self.behind.p4runtime:
                self.record.switches = {switch.name: switch.device_id for switch in self.topology.switches}
            servers = {name: [device] for name, device in self.record.switches.items()}
            Server(self.folder.socket(COMMANDS), self.loop, refusing(self.behind.verbs(), FAILURES), REQUEST_BYTES)
        if self.net.veth:
            for switch in self.topology.switches:
                self._start_fabric(switch.name, [switch])
                fabric[switch.name] = [switch.device_id]
        else:
            self._start_fabric("fabric", self.switches)
            fabric["fabric"] = [switch.device_id for switch in self.switches]
        for role, devices in servers.items():
            self.push(program, self.folder.address(role), devices)
        self._start_agents(groups)
        self.record.fabric = fabric
        self.record.hosts = {host.name: self.net.pid(host.name) for host in self.hosts}
        self.record_exits()
        if self.record.deaths:
            # A process may have died after it had answered; a lab without it is not up.
            self.check_ended()
            raise RunError(several(self.record.deaths))
        self.record.phase = "up"
        self.write()
        self.starting = False

    def _mount_names(self) -> None:
        """Mount the lab's file of names on /etc/hosts, before the hosts' mount namespaces are copied from ours."""
        try:
            self.names.write_text(hostnet.NAMES.read_text(encoding="utf-8"), encoding="utf-8")
            namespaces.mount_file(self.names, hostnet.NAMES)
        except (OSError, NamespaceError) as error:
            print(f"hosts have no names: {error}", file=sys.stderr)

    def _write_names(self) -> None:
        """Name the hosts that have a management network. The file stays the same one, because it is mounted."""
        if self.net.managed and self.names.exists():
            self.names.write_text(hostnet.names(self.hosts, self.names.read_text(encoding="utf-8")), encoding="utf-8")

    def end(self, number: int) -> None:
        """Handle SIGTERM and SIGINT: end a running lab, or stop starting one after the step that it is at."""
        if not self.ended:
            self.record.deaths.append(ProcessExit.now("labd", f"was told to end by {signal.Signals(number).name}"))
        self.ended = True

    def check_ended(self) -> None:
        """Raise StartCancelled if a lab that is starting has been asked to end."""
        if self.starting and self.ended:
            raise StartCancelled

    def record_exits(self) -> None:
        """Record which children have died since the last call, why they died, and which are frozen."""
        processes = self.children | self.shells
        dead = {role: process for role, process in processes.items() if process.poll() is not None}
        fresh = []
        for role, process in dead.items():
            if process not in self._buried:
                others = [each for each, carrier in dead.items() if carrier is process and each != role]
                last = last_line(self.folder.log(role)) if process.returncode > 0 else ""
                fresh.append(ProcessExit.now(role, cause(process.returncode, others) + (last and f": {last}")))
        self._buried = list(dead.values())
        now = time.time()
        stopped = {
            role: self.record.frozen.get(role, now)
            for role, process in processes.items()
            if process.returncode is None and frozen(process.pid)
        }
        if fresh or stopped != self.record.frozen:
            self.record.deaths += fresh
            self.record.frozen = stopped
            self.write()

    def await_exit(self, seconds: float) -> None:
        """Wait until a child's exit is recorded: the kernel closes its sockets before it can be reaped."""
        deadline = time.monotonic() + seconds
        while not self.record.deaths and time.monotonic() < deadline:
            time.sleep(WATCH_S)
            with contextlib.suppress(OSError):
                self.record_exits()

    def check_alive(self, role: str) -> Callable[[], None]:
        """See `behind.ProcessSupervisor`."""

        def check() -> None:
            self.check_ended()
            self.record_exits()
            death = next((each for each in self.record.deaths if each.role == role), None)
            if death is not None:
                raise RunError(self._last(role) or death.text())

        return check

    def _check_answers(self, role: str) -> Callable[[], None]:
        check, patience = self.check_alive(role), ProgressTimeout(self.children[role].pid, READY_S)

        def check_answers() -> None:
            check()
            if patience.over():
                raise RunError(f"host {role}: its agent does not answer in {patience.ends - patience.began:.0f} s")

        return check_answers

    def spawn(self, role: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """See `behind.ProcessSupervisor`."""
        with self._log(role) as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._keep(process, role)
        return process

    def signal(self, role: str, number: int) -> None:
        """See `behind.ProcessSupervisor`."""
        if role in self.children:
            self.children[role].send_signal(number)

    def end_unrecorded(self, role: str) -> None:
        """See `behind.ProcessSupervisor`."""
        process = self.children.pop(role, None)
        if process is not None:
            process.kill()
            process.wait()

    def _keep(self, process: subprocess.Popen[bytes], *roles: str) -> None:
        """Register a child that was started."""
        for role in roles:
            self.children[role] = process
            self.record.roles[role] = process.pid
        self.write()
        self.check_ended()

    def _log(self, role: str) -> IO[bytes]:
        return self.folder.log(role).open("wb")

    def _last(self, role: str) -> str:
        lines = self.folder.log(role).read_text(errors="replace", encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else ""

    def _spawn_fabric(self, role: str) -> None:
        """Spawn a fabric process, which waits for `_start_fabric`."""
        command = [sys.executable, "-P", "-m", "p4lite.switch.server", "--wait", "--fabric"]
        with self._log(role) as log:
            process = subprocess.Popen(
                [*command, str(self._description(role))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=self.inherited,
            )
        self._keep(process, role)

    def _description(self, role: str) -> pathlib.Path:
        return self.folder.path / f"{role}.fabric.json"

    def _start_fabric(self, role: str, switches: list[Switch]) -> None:
        """Have a fabric process carry these switches, and listen on the role's socket."""
        wires = {place: pair[0] for place, pair in self.net.behind.items()}
        address, interfaces = self.folder.address(role), self.net.interfaces
        plan = self.wired(describe.FabricPlan(address, "real", interfaces, realtime=self.realtime, behind=wires))
        description = describe.fabric_description(self.topology, plan, switches)
        write_whole(self._description(role), json.dumps(documents.plain(description)))
        process = self.children[role]
        release(process)
        # What `push` needs takes as long to import as the process takes to start, and both can be done at once.
        import mrclab.lab.switches.p4rt  # noqa: F401

        words = first_line(process, self.check_ended).split()
        if len(words) != 2 or words[0] != "ready":
            raise RunError(f"the process of {role} did not start: {self._last(role) or 'no word from it'}")

    def push(self, program: FabricProgram, address: str, devices: list[int]) -> None:
        """Load program and tables into the switches behind an address, by P4Runtime. They never change afterwards."""
        import grpc

        channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)])
        for switch in (each for each in self.topology.switches if each.device_id in devices):
            self.check_ended()
            device = primary(channel, switch, program, first=True)
            fill(self.topology, switch, device, program)
            self.devices.append(device)

    def _spawn_agents(self) -> list[list[str]]:
        """Spawn the agents, which wait for `_start_agents`; return the hosts of each."""
        groups = describe.agent_groups(self.topology, self.hosts)
        for names in groups:
            agent = describe.agent_command(self.folder, names, wait=True)
            command = ["nice", "-n", str(AGENT_NICE), *agent] if self.nice else agent
            with self._log(names[0]) as log:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
            for name in names[1:]:
                os.link(self.folder.log(names[0]), self.folder.log(name))
            self._keep(process, *names)
        return groups

    def _start_agents(self, groups: list[list[str]]) -> None:
        for host in self.hosts:
            config = describe.host_config(self.topology, host, "real", self.transport)
            config = replace(config, netns=f"/proc/{self.net.pid(host.name)}/ns/net")
            write_whole(self.folder.config(host.name), json.dumps(vars(config), default=asdict))
        for names in groups:
            release(self.children[names[0]])
        for host in self.hosts:
            client = HostClient(host.name, self.folder.socket(host.name))
            try:
                client.connect(wait_s=math.inf, check=self._check_answers(host.name))
            except HostError as error:
                raise RunError(self._last(host.name) or str(error)) from error
            client.close()

    def wait(self) -> None:
        """Serve until SIGTERM or SIGINT, or until the lab can no longer be ended by a command.

        The latter holds when the run directory is gone, or when the lab is `abandoned`.

        A child that dies is not restarted, because an experiment must see its death.
        """
        while not self.ended and self.folder.record_file.exists():
            with contextlib.suppress(OSError):
                self.record_exits()
            self.loop.run(WATCH_S)
            if why := self.abandoned():
                self.record.deaths.append(ProcessExit.now("labd", f"has ended: {why}"))
                self.ended = True

    def stop(self) -> None:
        """Terminate the children, which may have files to finish; all other processes end with the namespace."""
        if self.record.phase != "failed":
            self.record.phase = "ending"
        with contextlib.suppress(OSError):
            self.write()
        for device in self.devices:
            device.close()
        for process in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in self.children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def main(argv: list[str], kind: type[Daemon] = Daemon) -> int:
    """Run as the entry point of this kind of daemon; the folder holds the lab file already."""
    if len(argv) not in (5, 6):
        print("usage: python -m mrclab.lab.daemon NAME TRANSPORT LINKS SWITCH COMPILER [BMV2]", file=sys.stderr)
        return 2
    name, transport, links, switch, compiler = argv[:5]
    folder = LabFolder(pathlib.Path(LAB_FOLDER))
    daemon: Daemon | None = None
    shorten_slice()
    try:
        topology = chosen(load_lab(folder.path / f"{name}.yaml"), switch, compiler)
        daemon = kind(folder, topology, transport, links, *argv[5:])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _: daemon.end(got) if daemon else None)
        daemon.loop.wake_on_signals()
        daemon.start()
        daemon.wait()
        code = 0
    except StartCancelled:
        code = 0
    except FAILURES as error:
        record = daemon.record if daemon is not None else LabRecord()
        text = str(error)
        if daemon is not None:
            # A process that does not answer may have died without a chance to report why.
            daemon.await_exit(GRACE_S)
            told = [
                several(record.deaths),
                *(StoppedProcess(role, since).text() for role, since in record.frozen.items()),
            ]
            # The text about an exit includes the last error line, and explains why a dead process does not answer.
            known = any(text in each for each in told) or bool(record.deaths and isinstance(error, UNANSWERED))
            told.append("" if known else text)
            text = "; ".join(filter(None, told))
        record.phase, record.error = "failed", text
        with contextlib.suppress(OSError):
            folder.write(record)
        code = 1
    finally:
        if daemon is not None:
            daemon.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
