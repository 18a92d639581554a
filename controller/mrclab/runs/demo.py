"""The demonstration: MRC goes on while links, ports and switches die, at a rate that this machine can carry.

On the real clock its verdict has two parts. What must hold on any machine (every byte right, no queue pair dead, what
is broken named by the hosts, failures seen where they were) decides. Times and rates count when the machine kept up,
and not by one run alone: what has missed them is repeated once at half the rate. Where the machine did not keep up,
the same schedule then runs in simulated time, where times are exact; and at once where it could not keep up at all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import yaml

from mrc_host import native
from mrc_host.proto.wire.codec import Codec
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import Interrupted, interruptible
from mrc_topo.labfile import at_rate, load_lab
from mrc_topo.units import format_rate
from mrclab.lab import lifecycle
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunError
from mrclab.lab.requested import LabRequest
from mrclab.results import resultdir
from mrclab.runs.execute import ExperimentView, Outcome, execute
from mrclab.runs.experiment import FOLDER, Experiment, load_experiment

#: What the lab spends on a data packet (agents, switches, links), in decodings of one: `python -m benchmarks lab`.
PACKET_COST = 32.0 if native.COMPILED else 45.0
#: Share of the machine that the demonstration takes at most.
HEADROOM = 0.5
#: Of what others use now, the scheduler gives the lab this much.
FROM_OTHERS = 0.5
#: Mb/s of one link: below, packets of 4 KiB take longer than the timeouts allow; above, nothing more is to be seen.
LEAST_MBPS, MOST_MBPS = 5, 25
#: A machine that carries less than this share of the least rate has no real clock to show: one emulated, for example.
TOO_SLOW = 0.25
MEASURE_S = 1.0
#: ACK timeout of 268 ms; and how often a packet may be trimmed until its queue pair ends, beside 7.
PATIENT_TIMEOUT = 18
PATIENT_RETRIES = 14
PAYLOAD = bytes(4096)

PARTS = {
    "ring": "experiment.yaml",
    "incast": "incast.yaml",
    "link-mrc": "link-mrc.yaml",
    "link-roce": "link-roce.yaml",
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class FreeCapacity:
    """The free capacity of this machine: `cores`, and `decodings` of a packet per second by one of them."""

    cores: float
    decodings: float

    @property
    def packets(self) -> float:
        """Data packets per second that a lab may carry here."""
        return HEADROOM * self.cores * self.decodings / PACKET_COST

    def rate_mbps(self, links: int) -> int:
        """Return the rate of each of the hosts' links, all of them busy, that this machine can carry."""
        return min(max(int(self._carries_mbps(links)), LEAST_MBPS), MOST_MBPS)

    def too_slow(self, links: int) -> bool:
        """Return whether a run on the real clock would measure the machine rather than the lab."""
        return self._carries_mbps(links) < TOO_SLOW * LEAST_MBPS

    def _carries_mbps(self, links: int) -> float:
        return self.packets * len(PAYLOAD) * 8 / 1e6 / links


def measure(seconds: float = MEASURE_S) -> FreeCapacity:
    """Measure the machine for this long, with the work that a lab causes."""
    codec = Codec()
    packet = codec.encode_data(bytes(range(32)), 7, 18, 0xCA, 5, 6, 0x80, 0, 0, 1, 2, 3, 4, PAYLOAD)
    before, wall, cpu = psutil.cpu_times(), time.monotonic(), time.process_time()
    count = 0
    while time.monotonic() < wall + seconds:
        for _ in range(64):
            codec.decode(packet)
        count += 64
    own, took = time.process_time() - cpu, time.monotonic() - wall
    after = psutil.cpu_times()
    idle = max(after.idle - before.idle, 0.0)
    cores = os.cpu_count() or 1
    others = max(cores * took - idle - own, 0.0)
    return FreeCapacity((idle + own + FROM_OTHERS * others) / took, count / max(own, 1e-9))


@functools.cache
def own_mbps() -> int:
    """Return the default lab's own rate, for which the work of the parts is made."""
    return load_lab("default").lab.links.host.rate // 10**6


def lab_at(rate_mbps: int, folder: pathlib.Path) -> pathlib.Path:
    """Return the default lab with this rate on all links, and queues that hold as much time as its own."""
    document = at_rate(load_lab("default").lab, rate_mbps * 10**6) | {"name": "demo"}
    # What a busy machine does late must not be taken for lost; and its late RTTs let seven hosts send so much to one
    # that every other packet is trimmed, some of them a dozen times in a row.
    document["reliability"] |= {"timeout": PATIENT_TIMEOUT, "exp_cnt": PATIENT_RETRIES}
    path = folder / "demo.yaml"
    write_whole(path, yaml.safe_dump(document, sort_keys=False))
    return path


def part(name: str, lab: pathlib.Path | None = None, rate_mbps: int | None = None) -> Experiment:
    """Return a part of the demonstration, on a lab of this rate if one is given; work is scaled with the rate."""
    experiment = load_experiment(str(FOLDER / "demo" / PARTS[name]))
    if lab is None or rate_mbps is None:
        return experiment
    params = dict(experiment.workload.params)
    for key in ("size_bytes", "message_bytes"):
        if key in params:
            params[key] = max(params[key] * rate_mbps // own_mbps() // 4096, 1) * 4096
    workload = experiment.workload.model_copy(update={"params": params})
    return experiment.model_copy(update={"lab": str(lab), "workload": workload})


class Demo:
    """One demonstration.

    Args:
        folder: of its results; a folder for each part.
        say: called with each line of progress.
        show: shows the outcome of a part.
        live: whether there is a live view in the terminal.
        view: one in a browser.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        say: Say,
        show: Callable[[Outcome], None],
        *,
        live: bool = True,
        view: ExperimentView | None = None,
    ) -> None:
        self.folder = folder
        self.say = say
        self.show = show
        self.live = live
        self.view = view
        #: Of the last run on the real clock: whether a job failed or something died; whether all that must hold did.
        self.failed = False
        self.held = False

    def _run(self, name: str, experiment: Experiment, clock: str) -> Outcome:
        lasts = experiment.workload.duration
        how = "simulated time" if clock == "virtual" else "real clock"
        self.say(f"{experiment.title} ({how}{'' if lasts is None else f', {lasts:.0f} s'})")
        outcome = execute(
            experiment, clock, folder=self.folder / name, live=self.live, progress=self.say, view=self.view
        )
        if outcome.signal:
            self.show(outcome)
            raise Interrupted(outcome.signal)
        return outcome

    def go(self, clock: str, rate_mbps: int | None = None) -> bool:
        """Run all parts; return whether every result holds that must hold (with times, where they count).

        Raises:
            Interrupted: by a signal; what was started has been taken down.
        """
        with interruptible(), resultdir.prepared(self.folder, 0.0):
            good = self._real(rate_mbps) if clock == "real" else self._virtual("ring", rate_mbps or own_mbps())
            return self._beside() and good

    def _real(self, rate_mbps: int | None) -> bool:
        links = sum(len(host.ports) for host in load_lab("default").hosts)
        if rate_mbps is None:
            self.say(f"measuring for {MEASURE_S:.0f} s what this machine can carry")
            machine = measure()
            if machine.too_slow(links):
                self.say(
                    f"{machine.cores:.1f} cores are free here, which carry {machine.packets:.0f} packets/s: too few "
                    "for the real clock (--rate tries it all the same); in simulated time"
                )
                return self._virtual("ring", own_mbps())
            rate_mbps = machine.rate_mbps(links)
            self.say(
                f"{machine.cores:.1f} cores are free here, which carry {machine.packets:.0f} packets/s with as much to "
                f"spare: links of {format_rate(rate_mbps * 10**6)} (--rate chooses another)"
            )
        passed, valid = self._on_lab(rate_mbps, "")
        if self.failed or passed or (valid and not self.held):
            return passed
        half = max(rate_mbps // 2, 1)
        why = "times were missed" if valid else "the machine did not keep up, so times do not count"
        self.say(f"{why}; once more at {format_rate(half * 10**6)}")
        passed, valid_again = self._on_lab(half, "-half-rate")
        if self.failed or passed or (valid and valid_again):
            return passed
        simulated = max(half, LEAST_MBPS)  # which no machine is too slow for
        self.say(
            "the machine is too busy for times to count; the same schedule in simulated time, whose times are exact, "
            f"at {format_rate(simulated * 10**6)}"
        )
        return self._virtual("ring-simulated", simulated) and self.held

    def _on_lab(self, rate_mbps: int, suffix: str) -> tuple[bool, bool]:
        """Run the parts on the real clock; return whether all passed, and whether the machine kept up."""
        lab = lab_at(rate_mbps, self.folder)
        self.say("bringing the lab up; the first lab of a program compiles its switches, which takes up to a minute")
        lifecycle.up(LabRequest.of(str(lab), clock="real"), self.say)
        self.say("the lab is up")
        verdicts = []
        self.failed = False
        try:
            for name in ("ring", "incast"):
                outcome = self._run(f"{name}{suffix}", part(name, lab, rate_mbps), "real")
                self.show(outcome)
                verdicts.append(outcome.verdict)
                self.failed |= bool(outcome.verdict.deaths or outcome.result.failures)
                if self.failed:
                    break
        finally:
            with contextlib.suppress(RunError):  # it is gone already
                rundir.down("demo")
        self.held = all(each.holds for each in verdicts) and not self.failed
        return all(each.passed for each in verdicts) and not self.failed, all(each.valid for each in verdicts)

    def _virtual(self, name: str, rate_mbps: int) -> bool:
        outcome = self._run(name, part("ring", lab_at(rate_mbps, self.folder), rate_mbps), "virtual")
        self.show(outcome)
        return outcome.verdict.passed

    def _beside(self) -> bool:
        """Run the same failure under MRC and under RoCE, in simulated time."""
        mrc, roce = (self._run(name, part(name), "virtual") for name in ("link-mrc", "link-roce"))
        for name, outcome in (("MRC", mrc), ("RoCE", roce)):
            result = outcome.result
            lowest = min((each.dip for each in outcome.verdict.recoveries if each.breaks), default=1.0)
            done = min(each.iterations for each in result.progress.values())
            ended = "the job failed: " + result.failures[0] if result.failures else "the job went on"
            self.say(f"{name:>4}: {done} iterations, goodput down to {lowest:.0%}; {ended}")
        return mrc.verdict.passed and not roce.verdict.holds
