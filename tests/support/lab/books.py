"""A campaign for the books: random labs, transports, workloads, failures and durations; every run must balance.

PYTHONPATH=tests python -m support.lab.books --runs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass
from typing import Any

import yaml

from mrc_topo.graph_topology import build_topology
from mrc_topo.labfile import builtin_labs
from mrc_topo.schema import Lab
from mrclab.lab.faults.action import Action
from mrclab.lab.session.base import closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.lab.labs import SMALL_LOADS

#: Failures of switches, and settings of impaired links.

SWITCHES = ("stop", "freeze", "reboot")
IMPAIRED = (
    {"loss": 0.05}, {"loss": 0.5}, {"duplicate": 0.1}, {"corrupt": 0.05}, {"delay_ns": 2_000_000},
    {"reorder": 0.2, "reorder_extra_ns": 3_000_000}, {"rate_bps": 2_000_000},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A random run: the lab's document, the transport, what runs, and failures at times in seconds."""

    lab: dict[str, Any]
    transport: str
    spec: WorkloadSpec
    schedule: list[tuple[float, Action]]

    @classmethod
    def draw(cls, rng: random.Random) -> Case:
        """Return the case of a source of randomness."""
        lab = yaml.safe_load(builtin_labs()["tiny"].read_text())
        lab |= {
            "seed": rng.randrange(1 << 20),
            "planes": rng.randint(1, 3),
            "t0_per_plane": rng.choice([1, 2, 2, 3]),
            "t1_per_plane": rng.randint(1, 3),
            "hosts_per_t0": rng.randint(1, 3),
            "payload": rng.choice(["bytes", "length"]),
        }
        lab["hosts"] = max(lab["t0_per_plane"] * lab["hosts_per_t0"], 2)
        lab["hosts_per_t0"] = -(-lab["hosts"] // lab["t0_per_plane"])
        lab["ev"] = {"size": 32 * lab["planes"], "active": 16 * lab["planes"]}
        limit = rng.choice([16, 32, 64])
        lab["queues"] = {
            "limit": f"{limit}KiB",
            "ecn": {"kmin": f"{limit // 8}KiB", "kmax": f"{limit // 2}KiB"},
            "trim": {"threshold": f"{limit // 2}KiB"} if rng.random() < 0.8 else None,
        }
        transport = rng.choice(["mrc", "mrc", "mrc", "roce"])
        names = [name for name in SMALL_LOADS if name != "trace"]
        name = rng.choice(names)
        params = {
            key: value * rng.choice([1, 3, 20]) if "bytes" in key else value for key, value in SMALL_LOADS[name].items()
        }
        duration = rng.choice([None, None, 0.05, 0.3, 1.1])
        if duration is None and name != "flows":
            params["iterations"] = rng.randint(1, 4)
        spec = WorkloadSpec(name, params, duration_s=duration)
        topology = build_topology(Lab.model_validate(lab))
        links, switches = list(topology.links), [switch.name for switch in topology.switches]
        schedule: list[tuple[float, Action]] = []
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            at, lasts = rng.uniform(0.0, 0.3), rng.uniform(0.001, 0.3)
            fail = _failure(rng, links, switches)
            schedule.append((at, fail))
            if rng.random() < 0.8:
                schedule.append((at + lasts, Action("restore", fail.target, fail.kind)))
        return cls(lab, transport, spec, schedule)

    def run(self) -> RunResult:
        """Run it in simulated time."""
        topology = build_topology(Lab.model_validate(self.lab))
        with closing(VirtualSession(topology, self.transport)) as session, Recording() as recording:
            return WorkloadRun(session, self.spec, self.schedule, recording=recording).go()


def _failure(rng: random.Random, links: list[str], switches: list[str]) -> Action:
    if rng.random() < 0.3:
        return Action("fail", rng.choice(switches), rng.choice(SWITCHES))
    link = rng.choice(links)
    if rng.random() < 0.5:
        return Action("fail", link, "impair", settings=dict(rng.choice(IMPAIRED)))
    return Action("fail", link, "port_down" if ":" in link else "link_down")


def main() -> int:
    """Run the campaign; print what it covered and every case that does not balance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    entries: dict[str, int] = {}
    wrong = ended = 0
    begun = time.process_time()
    for number in range(asked.runs):
        seed = asked.seed * 1_000_000 + number
        case = Case.draw(random.Random(seed))
        result = case.run()
        assert result.books is not None
        ended += not result.failures
        for each in result.books.balances:
            entries[each.identity] = entries.get(each.identity, 0) + each.entries
        unbalanced = [each for each in result.books.balances if each.unbalanced]
        if unbalanced:
            wrong += 1
            print(f"case {seed}: {case}", *unbalanced, sep="\n  ", flush=True)
    seconds, total = time.process_time() - begun, sum(entries.values())
    print(f"{asked.runs} runs ({ended} without a failure of a rank), {total} entries; {wrong} runs do not balance")
    print(f"{seconds:.0f} CPU s; entries by identity:")
    for name, count in entries.items():
        print(f"  {name}: {count}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
