"""Request of a lab: its file, read once, and the options that override it, chosen and checked once."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from mrc_host.node.config import TRANSPORTS as TRANSPORTS
from mrc_topo.base.errors import SIMULATE, UsageError
from mrc_topo.labfile import read_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology
from mrc_topo.units import format_size
from mrclab import extras
from mrclab.lab import payloads
from mrclab.lab import policies as own
from mrclab.lab.records.rundir import RunError
from mrclab.lab.switches import forwarders

#: The number of open files that the smallest labs need, with room for Python's and gRPC's own.
LEAST_FILES = 256
#: The address space of a process of a real-clock lab: gRPC's and the fabric's threads reserve most of it.
LEAST_SPACE = 2 << 30
#: That of the process of a simulation: the programs themselves, and the smallest lab.
LEAST_SIMULATION = 256 << 20
CLOCKS = ("virtual", "real")


class LimitError(RunError):
    """A limit that is too low; the text names it and the remedy."""


def check(clock: str) -> None:
    """Raise the limit of open files as far as allowed, and check the limits.

    Raises:
        LimitError: a limit is too low for a lab on this clock.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        wanted = LEAST_FILES if hard == resource.RLIM_INFINITY else min(LEAST_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < LEAST_FILES:
            raise LimitError(
                f"a process may have {hard} files open here, a lab needs {LEAST_FILES}; raise it (`ulimit -n 1024`)"
            )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    real = clock == "real"
    least = LEAST_SPACE if real else LEAST_SIMULATION
    if space != resource.RLIM_INFINITY and space < least:
        raise LimitError(
            f"a process may have {format_size(space)} of address space here, a lab on the {clock} clock needs "
            f"{format_size(least)}; raise it (`ulimit -v unlimited`){f', or {SIMULATE}' if real else ''}"
        )


@dataclass(frozen=True)
class LabRequest:
    """A lab as requested: `topology` is that of the file `lab`, whose text is `text`, with the given `switch`,
    `compiler`, policies and `payload` (None: those of the file), checked for `clock` (None: not checked). `links`:
    memory (one process runs all switches) or veth. `trust_code`: policies may run on the real clock. `connect`: the
    command that reaches other machines."""

    lab: str
    text: str
    topology: Topology
    transport: str = "mrc"
    links: str = "memory"
    switch: str | None = None
    compiler: str | None = None
    trust_code: bool = False
    connect: str | None = None
    clock: str | None = None

    @classmethod
    def of(
        cls,
        lab: str,
        transport: str = "mrc",
        *,
        switch: str | None = None,
        compiler: str | None = None,
        policies: PoliciesSpec | None = None,
        payload: str | None = None,
        trust_code: bool = False,
        clock: str | None = None,
    ) -> LabRequest:
        """Return the lab of this file or name; with a `clock`, check that it can run on that clock on this machine.

        Raises:
            LabError: there is no such lab, or its file is wrong.
            ReferencePartMissing: the backend cannot run the lab or has another clock, or is not installed.
            PayloadRefused: its packets have no payload, and it needs some.
            RunError: a limit of the shell (`ulimit`) is too low.
            UsageError: it is on several machines, and the extra for that is not here; or there is no such clock or
                transport.
            PolicyRefused: its policies may not run there, or others can change its file, which names code.
        """
        for what, value, known in (("clock", clock, (None, *CLOCKS)), ("transport", transport, TRANSPORTS)):
            if value not in known:
                raise UsageError(f"no {what} {value!r}; known: {', '.join(filter(None, known))}")
        text, file = read_lab(lab)
        if clock is not None:
            check(clock)
            if clock == "real" and file.lab.machines:
                extras.need(*extras.MACHINES, f"{lab}: `machines` on the real clock")
        topology = own.chosen(forwarders.chosen(file, switch, compiler, clock), policies)
        topology = payloads.chosen(topology, payload)
        if clock is not None:
            payloads.check(topology, clock, lab)
            own.check(topology, clock, transport, trust_code=trust_code)
            own.check_lab_file(lab, topology)
        return cls(lab, text, topology, transport, "memory", switch, compiler, trust_code, clock=clock)
