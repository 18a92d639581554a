"""The two counts of lost packets of a run, which differ: what the fabric dropped, and what the hosts took for lost."""

from __future__ import annotations

from dataclasses import dataclass

from mrclab.results.record import RunResult

#: What is counted, and why the two differ, in a sentence each.
EXPLAINED = (
    "Dropped: packets of all kinds (data, acknowledgements, probes) that failures stopped in the fabric.",
    "Taken for lost: data packets that hosts, as senders, gave up waiting for, and sent again.",
    "They differ, because hosts go on probing a dead path and senders do not wait for probes and acknowledgements; "
    "and because senders also give up packets that were trimmed, or only late.",
)


@dataclass(frozen=True)
class Losses:
    """Packets: `dropped` in the fabric because of failures (not of full queues), and `taken` for lost by the hosts."""

    dropped: int
    taken: int

    def __bool__(self) -> bool:
        return bool(self.dropped or self.taken)


def losses_of(result: RunResult) -> Losses:
    """Return the counts of a run, over the whole of it."""
    fabric = result.recording.fabric
    dropped = fabric.growth([name for name in fabric.columns if name.endswith(".lost")])
    return Losses(sum(dropped.values()), result.totals()["losses"])
