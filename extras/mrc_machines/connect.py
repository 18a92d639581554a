"""Command that reaches a machine of a lab: the user's own, never one of a file.

A lab file names machines as ssh knows them, and nothing else. What is run with that name is the default below, or what
the user gives by `--connect` or MRCLAB_CONNECT; the name takes the place of `{ssh}` within one word.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping

from mrc_topo.schema import MachineSpec
from mrclab.lab.records.rundir import RunError

VARIABLE = "MRCLAB_CONNECT"
#: ssh must not ask for a password, or whether to trust a host: both must be settled before.
DEFAULT = "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=6 -- {ssh} mrclab"
PLACE = "{ssh}"


def words_for(spec: MachineSpec, given: str | None = None) -> list[str]:
    """Return the command that starts the slice on a machine; `given` is the user's, without the last word, `part`.

    Raises:
        RunError: the text is not a command, or its program is not installed here.
    """
    if spec.ssh is None:
        return [sys.executable, "-P", "-m", "mrc_machines.remote"]
    source = "--connect" if given is not None else VARIABLE
    text = given if given is not None else os.environ.get(VARIABLE, DEFAULT)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RunError(f"{source}: '{text}': {error}") from None
    if not any(PLACE in word for word in words):
        raise RunError(f"{source}: '{text}' has no {PLACE} for the machine; the default is '{DEFAULT}'")
    if PLACE in words[0]:
        raise RunError(f"{source}: '{text}': the lab file would choose the program; begin with one of your own")
    if shutil.which(words[0]) is None:
        raise RunError(f"{source if text != DEFAULT else 'machines'}: there is no program '{words[0]}' in PATH")
    return [*(word.replace(PLACE, spec.ssh) for word in words), "part"]


def commands(machines: Mapping[str, MachineSpec], given: str | None = None) -> dict[str, list[str]]:
    """Return `words_for` of each machine."""
    return {name: words_for(spec, given) for name, spec in machines.items()}
