"""A process that fails and restores links of its own in a lab's record that it shares with others.

Here and not in a test: a process that is spawned imports its function by name, which a test module has not.
"""

from __future__ import annotations

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.session.real import RunRecord
from support.lab.fake_lab import FakeLab


def flap_links(number: int, name: str) -> None:
    """Leave the first of its four links broken."""
    fake = FakeLab(load_lab("default"))
    run = RunDir(name)
    ledger = FaultLedger(fake.topology, fake.refill, RunRecord(run))
    targets = list(fake.topology.links)[number * 4 : number * 4 + 4]
    for turn in range(10):
        for target in targets:
            ledger.fail(fake, Action("fail", target))
        for target in targets[1:]:
            ledger.restore(fake, target)
        if turn < 9:
            ledger.restore(fake, targets[0])
