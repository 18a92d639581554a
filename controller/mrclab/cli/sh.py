"""`mrclab sh`: a prompt like Mininet's on a lab that is up."""

from __future__ import annotations

import cmd
import contextlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final

import typer

from mrc_topo import addressing
from mrc_topo.base.errors import MrclabError, UsageError
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology
from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import the_lab
from mrclab.lab.hosts import hostnet, inside
from mrclab.lab.records.rundir import VARIABLE, RunDir
from p4lite.errors import P4liteError

#: Seconds that a ping of `pingall` waits for its answer, and that `iperf` sends.
WAIT_S: Final = 1
IPERF_S: Final = 2


def verb(lab: Lab = None) -> None:
    """Open a prompt as Mininet's on a lab that is up; `help` lists its commands."""
    Prompt(the_lab(lab)).cmdloop()


def in_fabric(topology: Topology, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command with addresses in the place of hosts, and what was put there, a line each.

    `h2` is the address in plane 0, `h2.p1` that in plane 1, `h2.mgmt` that in the management network.

    Raises:
        UsageError: a host has no such plane.
    """
    hosts = {host.name: host for host in topology.hosts}
    found, notes = [], []
    for word in words:
        name, _, network = word.partition(".")
        host = hosts.get(name)
        # Others, such as h1.pcap, are names of files.
        if host is None or not re.fullmatch(rf"{name}(\.mgmt|\.p\d+)?", word):
            found.append(word)
            continue
        network, planes = network or "p0", hostnet.fabric_addresses(host)
        if network == "mgmt":
            address, where = hostnet.address(host.index), "management network, not the fabric"
        elif network in planes:
            address, where = planes[network], f"fabric, plane {network.removeprefix('p')}"
        else:
            known = ", ".join(f"{name}.{plane}" for plane in planes)
            raise UsageError(f"{word}: {name} has no such address; there are {known} and {name}.mgmt")
        found.append(address)
        notes.append(f"{word} is {address} ({where})")
    return found, notes


class Prompt(cmd.Cmd):
    """The prompt: what is no command of it is a verb of mrclab, or a host with a command to run there."""

    prompt = "mrclab> "

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        #: The names that lines of `py` see, and have made.
        self.python: dict[str, Any] = {}
        self.topology = load_lab(RunDir(name).lab_file)
        self.names = [host.name for host in self.topology.hosts]
        self.intro = f"lab {name}; hosts: {', '.join(self.names)}; `HOST COMMAND...` runs there, `help` lists commands"

    def onecmd(self, line: str) -> bool:
        """Carry out a line; a mistake is one line on standard error, and Ctrl-C ends what it does."""
        try:
            return bool(super().onecmd(line))
        except (MrclabError, P4liteError, OSError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
        except KeyboardInterrupt:
            typer.echo()
        return False

    def emptyline(self) -> bool:
        """Do nothing: Cmd would repeat the last line."""
        return False

    def default(self, line: str) -> bool:  # type: ignore[override]  # as that of every command
        """Run `HOST COMMAND...` in a host, and anything else as a verb of mrclab."""
        if line == "EOF":
            return True
        words = shlex.split(line)
        if words[0] in self.names and len(words) > 1:
            command, notes = in_fabric(self.topology, words[1:])
            typer.echo("".join(f"{note}\n" for note in notes), err=True, nl=False)
            inside.run_in_host(RunDir(self.name).read(), command, host=words[0])
            return False
        done = subprocess.run(
            [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", *words],
            check=False,
            env={**os.environ, VARIABLE: self.name},
        )
        return done.returncode == 130

    def completedefault(self, *arguments: Any) -> list[str]:
        """Complete the names of hosts, switches and links."""
        switches = [switch.name for switch in self.topology.switches]
        return [name for name in (*self.names, *switches, *self.topology.links) if name.startswith(arguments[0])]

    def _lab(self) -> contextlib.AbstractContextManager[Any]:
        # Most commands do without a session, which imports gRPC and NumPy.
        from mrclab.api import Lab

        return Lab.attach(self.name)

    def do_exit(self, _: str) -> bool:
        """Leave the prompt; the lab stays up."""
        return True

    do_quit = do_exit

    def do_hosts(self, _: str) -> None:
        """List the hosts."""
        typer.echo(" ".join(self.names))

    def do_nodes(self, _: str) -> None:
        """List hosts and switches."""
        typer.echo(" ".join([*self.names, *(switch.name for switch in self.topology.switches)]))

    def do_links(self, _: str) -> None:
        """List all links, and which failures they have."""
        with self._lab() as lab:
            failed = {cause.target: cause.describe() for cause in lab.causes()}
        for name, link in self.topology.links.items():
            typer.echo(f"{name}: {link.low.node}<->{link.high.node} ({failed.get(name, 'OK')})")

    def do_net(self, _: str) -> None:
        """List what each node's ports lead to."""
        for host in self.topology.hosts:
            typer.echo(f"{host.name}: " + " ".join(f"{p.interface}<->{p.t0}:{p.t0_port}" for p in host.ports))
        for switch in self.topology.switches:
            ends = {port: switch.peer(port) for port in sorted(switch.links)}
            typer.echo(f"{switch.name}: " + " ".join(f"{port}<->{end.node}:{end.port}" for port, end in ends.items()))

    def do_intfs(self, _: str) -> None:
        """List the interfaces of hosts and the ports of switches."""
        for host in self.topology.hosts:
            typer.echo(f"{host.name}: {', '.join(port.interface for port in host.ports)}")
        for switch in self.topology.switches:
            typer.echo(f"{switch.name}: {', '.join(map(str, sorted(switch.links)))}")

    def do_dump(self, _: str) -> None:
        """List hosts with their addresses by plane, and switches with their P4Runtime device ids."""
        for host in self.topology.hosts:
            typer.echo(f"{host.name}: " + " ".join(addressing.text(port.address) for port in host.ports))
        for switch in self.topology.switches:
            typer.echo(f"{switch.name}: device {switch.device_id}, plane {switch.plane}, {switch.tier.name}")

    def do_link(self, line: str) -> None:
        """link A B up|down: break all links between two nodes, or restore them."""
        match shlex.split(line):
            case [one, other, ("up" | "down") as state]:
                ends = {name: {link.low.node, link.high.node} for name, link in self.topology.links.items()}
                between = [name for name, nodes in ends.items() if nodes == {one, other}]
                if not between:
                    raise UsageError(f"no link between {one} and {other}; `links` lists all")
                with self._lab() as lab:
                    for name in between:
                        lab.fail(name) if state == "down" else lab.restore(name)
            case _:
                raise UsageError("write: link A B up, or link A B down")

    def do_pingall(self, _: str) -> None:
        """Ping from every host to every other in each plane, through the fabric."""
        self._ping(self.names)

    def do_pingpair(self, _: str) -> None:
        """Ping between the first two hosts in each plane, through the fabric."""
        self._ping(self.names[:2])

    def _ping(self, names: Sequence[str]) -> None:
        sent = received = 0
        with self._lab() as lab:
            for plane in range(self.topology.lab.planes):
                typer.echo(f"plane {plane}:")
                for one in names:
                    others = [name for name in names if name != one]
                    words = ("ping", "-c", "1", "-W", str(WAIT_S))
                    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                    pings = [lab.hosts[one].popen(*words, lab.hosts[to].addresses[plane], **quiet) for to in others]
                    good = [ping.wait() == 0 for ping in pings]
                    rows = (name if answered else "X" for name, answered in zip(others, good, strict=True))
                    typer.echo(f"{one} -> {' '.join(rows)}")
                    sent, received = sent + len(good), received + sum(good)
        typer.echo(f"*** Results: {1 - received / max(sent, 1):.0%} dropped ({received}/{sent} received)")

    def do_iperf(self, line: str) -> None:
        """iperf A B: measure TCP of the hosts' kernels between two hosts, in plane 0 of the fabric."""
        names = shlex.split(line) or self.names[:2]
        if len(names) != 2 or not set(names) <= set(self.names):
            raise UsageError(f"write: iperf A B, of {', '.join(self.names)}")
        one, other = names
        with self._lab() as lab:
            address = lab.hosts[other].addresses[0]
            serve = ("iperf3", "--server", "--one-off", "--forceflush", "--bind", address)
            with lab.hosts[other].popen(*serve, stdout=subprocess.PIPE, text=True) as server:
                try:
                    _wait_for(server.stdout, "listening")
                    done = lab.hosts[one].run("iperf3", "--client", address, "--time", str(IPERF_S), "--json")
                finally:
                    server.terminate()
        report = json.loads(done.stdout or "{}")
        if done.returncode or "error" in report:
            raise UsageError(f"iperf3: {report.get('error') or done.stderr.strip()}")
        typer.echo(f"{one} -> {other}: {report['end']['sum_received']['bits_per_second'] / 1e6:.2f} Mbit/s")

    def do_py(self, line: str) -> None:
        """py CODE: evaluate Python with `lab` and all hosts by their names; names stay for the next line."""
        with self._lab() as lab:
            self.python |= {**lab.hosts, "lab": lab}
            try:
                try:
                    code = compile(line, "<py>", "eval")
                except SyntaxError:
                    exec(compile(line, "<py>", "exec"), self.python)
                else:
                    typer.echo(str(eval(code, self.python)))
            except Exception as error:  # noqa: BLE001 - a mistake of the user's line
                typer.echo(f"error: {type(error).__name__}: {error}", err=True)

    def do_source(self, line: str) -> bool:
        """source FILE: carry out the lines of a file."""
        lines = Path(line.strip()).read_text(encoding="utf-8").splitlines()
        return any(map(self.onecmd, itertools.filterfalse(lambda each: each.lstrip().startswith("#"), lines)))

    def do_sh(self, line: str) -> None:
        """sh COMMAND: run a command of the shell on this machine."""
        subprocess.run(line, shell=True, check=False)


def _wait_for(lines: IO[str] | Iterable[str] | None, word: str) -> None:
    """Read lines until one has a word, or until they end."""
    for line in lines or ():
        if word in line:
            return
