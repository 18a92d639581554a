"""Request of a lab: its file, read once, and the options that override it, chosen and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_topo.labfile import read_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology
from mrclab.lab import payloads
from mrclab.lab import policies as own
from mrclab.lab.records import limits
from mrclab.lab.switches import forwarders


@dataclass(frozen=True)
class LabRequest:
    """A lab as requested: `topology` is that of the file `lab`, whose text is `text`, with the given `switch`,
    `compiler`, policies and `payload` (None: those of the file). `links`: memory (one process runs all switches) or
    veth. `trust_code`: policies may run on the real clock. `connect`: the command that reaches other machines."""

    lab: str
    text: str
    topology: Topology
    transport: str = "mrc"
    links: str = "memory"
    switch: str | None = None
    compiler: str | None = None
    trust_code: bool = False
    connect: str | None = None

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
            PolicyRefused: its policies may not run there, or others can change its file, which names code.
        """
        text, file = read_lab(lab)
        if clock is not None:
            limits.check(clock)
        topology = own.chosen(forwarders.chosen(file, switch, compiler, clock), policies)
        topology = payloads.chosen(topology, payload)
        if clock is not None:
            payloads.check(topology, clock, lab)
            own.check(topology, clock, transport, trust_code=trust_code)
            own.check_lab_file(lab, topology)
        return cls(lab, text, topology, transport, "memory", switch, compiler, trust_code)
