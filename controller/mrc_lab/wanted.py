"""A lab as somebody asks for it: its file, and what shall be instead of what stands there. Chosen and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_lab import policies as own
from mrc_lab.records import limits
from mrc_lab.switches import forwarders
from mrc_topo.labfile import load_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology


@dataclass(frozen=True)
class WantedLab:
    """`topology` is that of the file `lab` with `switch`, `compiler` and policies as asked (None: as there).
    `trust_code`: policies may run on the real clock."""

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
        trust_code: bool = False,
    ) -> WantedLab:
        """The lab of this file or name.

        Raises:
            LabError: there is none, or its file is wrong.
            PartMissing: what shall forward cannot carry it.
        """
        topology = own.chosen(forwarders.chosen(load_lab(lab), switch, compiler), policies)
        return cls(lab, topology, transport, switch, compiler, trust_code)

    def check(self, clock: str) -> None:
        """Checks that it can be had on this clock, here.

        Raises:
            PartMissing: what shall forward or compile is not here, or has another clock only.
            RunError: a limit of the shell (`ulimit`) is too low.
            PolicyRefused: its policies may not run there, or others can change its file, which names code.
        """
        limits.check(clock)
        forwarders.check_clock(self.topology, clock)
        own.check(self.topology, clock, self.transport, trust_code=self.trust_code)
        own.check_lab_file(self.lab, self.topology)
        if clock == "real":
            forwarders.check(self.topology)
