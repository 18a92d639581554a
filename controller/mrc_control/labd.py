"""Holds a real-clock lab: Mininet's hosts, the fabric process and the agents, until it is told to end.

    python -m mrc_control.labd NAME

`mrclab up` starts it. Everything it starts dies with it, and everything is recorded in the run directory first.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

import grpc

from mrc_control import labbuild
from mrc_control.hostclient import HostClient, HostError
from mrc_control.hostnet import HostNet, HostNetError, dying
from mrc_control.p4rt import Device, P4RuntimeError
from mrc_control.program import FabricProgram, ProgramError, fabric_program
from mrc_control.rundir import Process, RunDir, RunError, claim_machine
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.topology import Switch, Topology

READY_S = 90.0
AGENT_NICE = "-15"
FAILURES = (HostNetError, HostError, P4RuntimeError, ProgramError, RunError, LabError, OSError)


class Stopped(Exception):
    """The daemon was told to end while it was still starting."""


class Daemon:
    """One lab from start to end."""

    def __init__(self, run: RunDir, topology: Topology, transport: str, links: str) -> None:
        self.run = run
        self.topology = topology
        self.transport = transport
        self.net = HostNet(topology, veth=links == "veth")
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.devices: list[Device] = []
        self.ended = threading.Event()
        self.starting = True

    def start(self) -> None:
        """Brings everything up, in the order in which one needs the other."""
        with self.run.change() as state:
            state.processes.append(Process.of("labd", os.getpid()))
            state.interfaces = list(self.net.interfaces.values())
        program = fabric_program()
        self.net.start()
        fabric: dict[str, list[int]] = {}
        if self.net.veth:
            for switch in self.topology.switches:
                fabric[self._start_fabric(switch.name, [switch])] = [switch.device_id]
        else:
            fabric[self._start_fabric("fabric", None)] = [switch.device_id for switch in self.topology.switches]
        for address, devices in fabric.items():
            self.push(program, address, devices)
        self._start_agents()
        with self.run.change() as state:
            state.fabric = fabric
            state.hosts = {
                host.name: {"pid": self.net.pid(host.name), "socket": str(self.run.socket(host.name))}
                for host in self.topology.hosts
            }
            state.phase = "up"
        self.starting = False

    def end(self) -> None:
        """What SIGTERM and SIGINT do: end a running lab, or give up starting one at once."""
        self.ended.set()
        if self.starting:
            self.starting = False
            raise Stopped

    def _spawn(self, role: str, process: subprocess.Popen[bytes]) -> None:
        self.children[role] = process
        with self.run.change() as state:
            state.processes.append(Process.of(role, process.pid))

    def _log(self, role: str) -> IO[bytes]:
        return (self.run.path / f"{role}.log").open("wb")

    def _start_fabric(self, role: str, switches: list[Switch] | None) -> str:
        """Starts a process with these switches (all when None); returns its gRPC address."""
        plan = labbuild.FabricPlan("127.0.0.1:0", "real", self.net.interfaces)
        description = self.run.path / f"{role}.fabric.json"
        description.write_text(json.dumps(labbuild.fabric_description(self.topology, plan, switches)))
        command = dying([sys.executable, "-m", "p4lite.switch.server", "--fabric", str(description)])
        with self._log(role) as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        self._spawn(role, process)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], READY_S)
        words = process.stdout.readline().decode().split() if ready else []
        if len(words) != 2 or words[0] != "ready":
            text = (self.run.path / f"{role}.log").read_text().strip().splitlines()
            raise RunError(f"the process of {role} did not start: {text[-1] if text else 'no word from it'}")
        return words[1]

    def push(self, program: FabricProgram, address: str, devices: list[int]) -> None:
        """Program and tables of the switches behind an address, by P4Runtime. They never change afterwards."""
        channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)])
        for switch in (each for each in self.topology.switches if each.device_id in devices):
            device = Device(channel, switch.device_id, switch.name, program.p4info)
            device.become_primary()
            device.set_pipeline(program.bmv2)
            labbuild.push_rules(self.topology, switch, device)
            self.devices.append(device)

    def _start_agents(self) -> None:
        for host in self.topology.hosts:
            config = self.run.path / f"{host.name}.json"
            config.write_text(json.dumps(labbuild.host_config(self.topology, host, "real", self.transport)))
            agent = [sys.executable, "-m", "mrc_host.agent", str(config), str(self.run.socket(host.name))]
            # Hosts keep time; whatever else the machine does can wait a little.
            command = ["nice", "-n", AGENT_NICE, *agent]
            with self._log(host.name) as log:
                self._spawn(host.name, self.net.popen(host.name, command, stdout=log, stderr=log))
        for host in self.topology.hosts:
            client = HostClient(host.name, self.run.socket(host.name))
            try:
                client.connect(wait_s=READY_S / 3)
            except HostError as error:
                text = (self.run.path / f"{host.name}.log").read_text().strip().splitlines()
                raise RunError(text[-1] if text else str(error)) from error
            client.close()

    def wait(self) -> None:
        """Until SIGTERM or SIGINT, or until the run directory is gone: nobody could find the lab to end it then.

        A child that dies is left dead: an experiment must see that.
        """
        while not self.ended.wait(0.5) and self.run.exists():
            for process in self.children.values():
                process.poll()

    def stop(self) -> None:
        """Ends everything, in the reverse order."""
        for device in self.devices:
            device.close()
        for process in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self.children.values():
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.net.stop()


def only_one() -> socket.socket:
    """The claim on the machine: two real-clock labs would share interface names and disturb each other's time.

    Raises:
        RunError: another one is up.
    """
    claim = claim_machine()
    if claim is None:
        raise RunError("another real-clock lab is up; `mrclab status` names it, `mrclab down` ends it")
    return claim


def main(argv: list[str]) -> int:
    """Entry point; the run directory with a state that names the lab file exists already."""
    if len(argv) != 1:
        print("usage: python -m mrc_control.labd NAME", file=sys.stderr)
        return 2
    run = RunDir(argv[0])
    state = run.read()
    daemon: Daemon | None = None
    claim: socket.socket | None = None
    try:
        claim = only_one()
        daemon = Daemon(run, load_lab(pathlib.Path(state.lab_file)), state.transport, state.links)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.end() if daemon else None)
        daemon.start()
        daemon.wait()
        code = 0
    except Stopped:
        code = 0
    except FAILURES as error:
        with contextlib.suppress(RunError, OSError), run.change() as changed:
            changed.phase, changed.error = "failed", str(error)
        code = 1
    finally:
        if daemon is not None:
            daemon.stop()
        if claim is not None:
            claim.close()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
