"""`mrclab sh`: a prompt for commands in hosts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import the_lab
from mrclab.lab.hosts import inside
from mrclab.lab.records.rundir import VARIABLE, RunDir


def verb(lab: Lab = None) -> None:
    """Open a prompt: `h3 ping -c 1 ADDRESS` runs in host h3, `hosts` lists hosts, `exit` ends."""
    name = the_lab(lab)
    hosts = list(RunDir(name).read().record.hosts)
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
            inside.run_in_host(RunDir(name).read(), words[1:], host=words[0])
        else:
            verb = subprocess.run(
                [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", *words],
                check=False,
                env={**os.environ, VARIABLE: name},
            )
            if verb.returncode == 130:
                return
