"""A requested lab: its file and the options that override it, chosen and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_topo.labfile import load_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology
from mrclab.lab import payloads
from mrclab.lab import policies as own
from mrclab.lab.records import limits
from mrclab.lab.switches import forwarders


@dataclass(frozen=True)
class RequestedLab:
    """A lab as requested: `topology` is that of the file `lab`, with the given `switch`, `compiler`, policies and
    `payload` (None: those of the file). `trust_code`: policies may run on the real clock."""

    lab: str
    topology: Topology
    transport: str = "mrc"
    switch: str | None = None
    compiler: str | None = None
    trust_code: bool = False

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
    ) -> RequestedLab:
        """Return the lab of this file or name; with a `clock`, check that it can run on that clock on this machine.

        Raises:
            LabError: there is no such lab, or its file is wrong.
            ReferencePartMissing: the backend cannot run the lab or has another clock, or is not installed.
            PayloadRefused: its packets have no payload, and it needs some.
            RunError: a limit of the shell (`ulimit`) is too low.
            PolicyRefused: its policies may not run there, or others can change its file, which names code.
        """
        file = load_lab(lab)
        if clock is not None:
            limits.check(clock)
        topology = own.chosen(forwarders.chosen(file, switch, compiler, clock), policies)
        topology = payloads.chosen(topology, payload)
        if clock is not None:
            payloads.check(topology, clock, lab)
            own.check(topology, clock, transport, trust_code=trust_code)
            own.check_lab_file(lab, topology)
        return cls(lab, topology, transport, switch, compiler, trust_code)
