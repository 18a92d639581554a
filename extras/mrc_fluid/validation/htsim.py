"""A scenario by uet-htsim, the simulator of the Ultra Ethernet Consortium, where the user has built it.

mrclab ships nothing of it: this module writes the files that `htsim_uec` reads, runs it, and reads what it prints. It
has no planes and no failures while it runs, so only scenarios without these can be compared.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from mrc_fluid.validation.outcome import ScenarioError, ScenarioOutcome, of_flows
from mrc_fluid.validation.scenario import (
    BDP_BYTES,
    DELAY_NS,
    ECN_HIGH,
    ECN_LOW,
    MTU,
    NIC_BPS,
    Backend,
    FlowSpec,
    Quantity,
    Scenario,
)
from mrc_topo.base import interruption
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import write_whole

#: htsim's packets have a header of 64 bytes in their size.
PACKET_BYTES = MTU + 64
#: Simulated time after which it stops, us; far more than any scenario takes.
END_US = 20_000
#: CPU time after which a run counts as without an end, s.
LIMIT_S = 600
_FINISHED = re.compile(r"^Flow \S+ flowId (\d+) uecSrc \d+ finished at ([0-9.eE+]+) ", re.MULTILINE)
#: Packets sent first and again, ACKs and NACKs, of its last lines.
TOTALS = re.compile(r"^New: (\d+) Rtx: (\d+) RTS: \d+ Bounced: \d+ ACKs: (\d+) NACKs: (\d+) ", re.MULTILINE)


class HtsimError(UsageError):
    """A binary that cannot be used; the text names it and the remedy."""


@dataclass(frozen=True)
class Algorithms:
    """Algorithms of htsim: the sprayer (`-load_balancing_algo`), congestion control (`-sender_cc_algo`), and how many
    paths a flow has (`-paths`)."""

    spraying: str = "mixed"
    control: str = "nscc"
    paths: int = 64


@dataclass(frozen=True)
class Htsim:
    """A binary of `htsim_uec`."""

    binary: pathlib.Path
    algorithms: Algorithms = field(default_factory=Algorithms)

    @classmethod
    def found(cls, path: pathlib.Path) -> Htsim:
        """Return the binary at a path.

        Raises:
            HtsimError: there is none.
        """
        if not path.is_file() or not os.access(path, os.X_OK):
            raise HtsimError(f"{path} is no program; give the path of htsim_uec, which its sources build by cmake")
        return cls(path.absolute())

    def outcome(self, scenario: Scenario, seed: int, folder: pathlib.Path) -> ScenarioOutcome:
        """Write the input files of a scenario into a folder, run it, and return the outcome; the output is kept.

        Raises:
            ScenarioError: it ended with an error, or not all flows ended.
        """
        flows = scenario.flows(seed)
        name = f"{scenario.name}-{seed}"
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.topo", topology(scenario))
        write_whole(folder / f"{name}.cm", matrix(scenario, flows))
        line = self.command(scenario, seed, folder, name)
        try:
            # It also writes `idmap.txt` into the folder in which it runs.
            done = interruption.run(line, timeout=LIMIT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            raise ScenarioError(f"{name}: htsim did not end in {LIMIT_S} s") from None
        write_whole(folder / f"{name}.out", done.stdout)
        for left in (f"{name}.dat", "idmap.txt"):
            (folder / left).unlink(missing_ok=True)
        if done.returncode:
            text = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or [f"code {done.returncode}"]
            raise ScenarioError(f"{name}: htsim ended with code {done.returncode}: {text[0][:200]}")
        return parsed(scenario, seed, flows, done.stdout)

    def command(self, scenario: Scenario, seed: int, folder: pathlib.Path, name: str) -> list[str]:
        """Return the command line of a run."""
        slow = scenario.fabric.slow_t1s
        # Its queues trim when they are full, as ours do at the threshold.
        queue = [str(BDP_BYTES // PACKET_BYTES)]
        marks = [str(round(BDP_BYTES * share / PACKET_BYTES)) for share in (ECN_LOW, ECN_HIGH)]
        return [
            str(self.binary), "-tm", str(folder / f"{name}.cm"), "-topo", str(folder / f"{name}.topo"),
            "-o", str(folder / f"{name}.dat"), "-end", str(END_US), "-seed", str(seed), "-mtu", str(PACKET_BYTES),
            "-linkspeed", str(NIC_BPS // 10**6), "-q", *queue, "-ecn", *marks, "-paths", str(self.algorithms.paths),
            "-sender_cc_only", "-sender_cc_algo", self.algorithms.control,
            "-load_balancing_algo", self.algorithms.spraying, *(["-failed", str(slow)] if slow else []),
            *([] if scenario.fabric.trims else ["-disable_trim"]),
        ]  # fmt: skip


def topology(scenario: Scenario) -> str:
    """Return htsim's topology file of a scenario: T0s are its tier 0, T1s its tier 1, T2s its tier 2.

    Raises:
        ScenarioError: it has no such topology.
    """
    fabric = scenario.fabric
    if not scenario.htsim or fabric.planes > 1:
        raise ScenarioError(f"{scenario.name}: htsim has no planes, and no failures while it runs")
    rate = NIC_BPS // 10**9
    radix = [(fabric.per_t0, fabric.t1s), (fabric.t0s // fabric.pods, fabric.t1_uplinks), (fabric.pods, 0)]
    lines = [f"Nodes {fabric.hosts}", f"Tiers {fabric.tiers}", f"Podsize {fabric.hosts_per_pod}"]
    for tier, (down, up) in enumerate(radix[: fabric.tiers]):
        lines += ["", f"Tier {tier}", f"Downlink_speed_Gbps {rate}", f"Radix_Down {down}"]
        lines += [f"Radix_Up {up}"] if up else []
        lines += [f"Downlink_Latency_ns {DELAY_NS}", "Switch_Latency_ns 0"]
        lines += [f"Oversubscribed {down // up}"] if up and down > up else []
    return "\n".join(lines) + "\n"


def matrix(scenario: Scenario, flows: Sequence[FlowSpec]) -> str:
    """Return htsim's connection matrix; it reads times as microseconds."""
    rows = [
        f"{flow.source}->{flow.target} id {number} start {flow.start_ns // 1000} size {flow.bytes}"
        for number, flow in enumerate(flows, 1)
    ]
    return "\n".join([f"Nodes {scenario.fabric.hosts}", f"Connections {len(rows)}", *rows]) + "\n"


def parsed(scenario: Scenario, seed: int, flows: Sequence[FlowSpec], output: str) -> ScenarioOutcome:
    """Return the outcome from what htsim printed.

    Raises:
        ScenarioError: a flow has no end, or there is no summary.
    """
    ends = {int(number): float(at) for number, at in _FINISHED.findall(output)}
    missing = [number for number in range(1, len(flows) + 1) if number not in ends]
    totals = TOTALS.search(output)
    if missing or totals is None:
        text = f"{len(missing)} of {len(flows)} flows did not end" if missing else "its last line is not the summary"
        raise ScenarioError(f"{scenario.name}, seed {seed}: htsim: {text}")
    times = [ends[number] - flow.start_ns / 1e3 for number, flow in enumerate(flows, 1)]
    new, again, _, refused = map(int, totals.groups())
    sent = new + again
    values = of_flows(flows, times)
    values |= {Quantity.TRIMMED: 100 * refused / sent, Quantity.AGAIN: 100 * again / sent}
    return ScenarioOutcome(scenario.name, Backend.HTSIM, seed, values, times, {})
