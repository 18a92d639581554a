"""`mrclab exec`, `sh`, `p4sh`, `capture`: into the hosts, the switches and the wires of a running lab."""

from __future__ import annotations

import math
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from typing import Annotated

import typer

from mrc_control.cli.common import on_lab, the_lab
from mrc_control.cli.common import seconds as waited
from mrc_control.lab import inside
from mrc_control.lab.following import Following
from mrc_control.lab.rundir import RunDir, RunError

Lab = Annotated[str | None, typer.Option("--lab", help="the lab's name, if several are up")]
COPY_INTERVAL_S = 0.2


def execute(
    host: Annotated[str, typer.Argument(help="a host, like h3")],
    command: Annotated[list[str], typer.Argument(help="what to run in its namespace")],
    lab: Lab = None,
) -> None:
    """Run a command in a host's namespace; its exit code is ours."""
    done = inside.run(RunDir(the_lab(lab)).read(), command, host=host)
    raise SystemExit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


def shell(lab: Lab = None) -> None:
    """Prompt for commands: `h3 ping -c 1 ADDRESS` runs in a host, `hosts` lists them, `exit` ends."""
    name = the_lab(lab)
    hosts = list(RunDir(name).read().hosts)
    typer.echo(f"lab {name}; hosts: {', '.join(hosts)}; `HOST COMMAND...` runs there, `exit` ends")
    while True:
        try:
            words = shlex.split(input("mrclab> "))
        except ValueError as error:
            typer.echo(f"error: {error}", err=True)
            continue
        except EOFError:
            return
        if not words:
            continue
        if words[0] in ("exit", "quit"):
            return
        if words[0] == "hosts":
            typer.echo(" ".join(hosts))
        elif words[0] in hosts and len(words) > 1:
            inside.run(RunDir(name).read(), words[1:], host=words[0])
        else:
            verb = subprocess.run(
                [sys.executable, "-P", "-c", "from mrc_control.cli import main; main()", *words], check=False
            )
            if verb.returncode == 130:
                return


def p4sh(
    switch: Annotated[str, typer.Argument(help="a switch, like p0-t0.1")],
    lab: Lab = None,
) -> None:
    """Open p4runtime-shell on a switch (it takes the primary role; tables can be read and changed)."""
    with on_lab(lab) as session:
        device = session.topology.switch(switch).device_id
        address = session.target.address(device)
    # Higher than the daemon's and than whatever was primary before; the switch remembers the highest it has seen.
    command = [sys.executable, "-P", "-m", "p4runtime_sh", "--grpc-addr", address, "--device-id", str(device)]
    command += ["--election-id", f"0,{time.time_ns()}"]
    raise SystemExit(subprocess.run(command, check=False).returncode)


def capture(
    port: Annotated[str, typer.Argument(help="a host port h3:2, or a switch port p0-t0.1:3")],
    output: Annotated[pathlib.Path, typer.Option("-o", help="the pcap-ng file")] = pathlib.Path("capture.pcapng"),
    seconds: Annotated[float, typer.Option(help="how long; 0: until interrupted")] = 0.0,
    lab: Lab = None,
) -> None:
    """Write what crosses a port, both directions, to a file for Wireshark (with docs/mrc.lua)."""
    waited("--seconds", seconds)
    with on_lab(lab) as session:
        node, _, number = port.rpartition(":")
        if not number.isdigit():
            raise RunError(f"'{port}' names no port; write h3:2 or p0-t0.1:3")
        if node.startswith("h"):
            host = session.topology.host(node)
            if int(number) >= len(host.ports):
                raise RunError(f"{node} has ports 0 to {len(host.ports) - 1}")
            place = host.ports[int(number)]
            device, switch_port = session.topology.switch(place.t0).device_id, place.t0_port
        else:
            switch = session.topology.switch(node)
            if int(number) not in switch.links:
                raise RunError(f"{node} has ports {', '.join(map(str, switch.links))}")
            device, switch_port = switch.device_id, int(number)
        with Following(session.run.folder, output) as following:
            session.target.capture(device, switch_port, following.name)
            typer.echo(f"capturing {port} into {output}{'' if seconds else '; Ctrl-C ends'}", err=True)
            try:
                _wait(seconds, following)
            except KeyboardInterrupt:
                pass
            finally:
                session.target.capture(device, switch_port, None)


def _wait(seconds: float, following: Following) -> None:
    """Copies for so many seconds (0: without end), or until SIGTERM; SIGINT raises KeyboardInterrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    deadline = time.monotonic() + seconds if seconds else math.inf
    while (left := deadline - time.monotonic()) > 0:
        following.copy()
        if signal.sigtimedwait([signal.SIGTERM], min(left, COPY_INTERVAL_S)) is not None:
            return


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
    app.command("sh")(shell)
    app.command("p4sh")(p4sh)
    app.command("capture")(capture)
