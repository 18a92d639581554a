"""Hours of a small, lightly loaded lab: `PYTHONPATH=tests python -m support.lab.endurance --hours 4`, seeded.

Round after round runs a workload of a random kind, breaks and restores things under it at random, lets controllers
come, go and vanish, and lets the lab rest. Every round must verify every byte and leave nothing broken. Resident
memory of every process must stay flat: what it has in the last quarter of the rounds beyond what it had in the second
(the first warms up) is at most ALLOWED. The clock is virtual; `--clock real` does the same on a real lab.

Exit status: 0, 1 (a round failed, or memory grew), 2 (usage). `--leak BYTES` holds so much more for each second of
the lab, to see the check fail.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil

from mrc_host.workloads import WORKLOADS
from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Action
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import fabric_program
from mrclab.results import verdict
from mrclab.results.expectation import Expectation
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.sessions import session_for
from mrclab.runs.workload import WorkloadSpec
from p4lite.messages import P4RuntimeStub, p4runtime_pb2
from support.lab.labs import SMALL_LOADS, lab_file

#: What allocators and threads may need more, whatever the length; a leak of 1 KB/s has exceeded it in 3 hours.
ALLOWED = 6 << 20
LEAST_ROUNDS = 8
#: Slow links make a light load; queues drain, and timeouts wait, as long as on fast ones in proportion.
LAB: dict[str, Any] = {
    "name": "endurance",
    "links": {"host": {"rate": "2Mbps"}},
    "queues": {"limit": "16KiB", "ecn": {"kmin": "4KiB", "kmax": "8KiB"}, "trim": {"threshold": "12KiB"}},
    "reliability": {"timeout": 20},
}
#: A controller that is there and then, all at once, is not.
VANISHING = """
import os, sys
import grpc
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import fabric_program
device = Device(grpc.insecure_channel(sys.argv[1]), int(sys.argv[2]), "switch", fabric_program().p4info)
device.become_primary(election_id=int(sys.argv[3]))
os._exit(0)
"""


@dataclass
class Tally:
    """What was done, and what went wrong."""

    rounds: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    controllers: Counter[str] = field(default_factory=Counter)
    bytes_verified: int = 0
    problems: list[str] = field(default_factory=list)
    #: Bytes resident after every round, by process.
    memory: dict[str, list[int]] = field(default_factory=dict)


def grown(values: Sequence[int]) -> int:
    """By how much memory grew: median of the last quarter over that of the second; a spare moment counts nothing."""
    quarter = len(values) // 4
    return round(statistics.median(values[-quarter:]) - statistics.median(values[quarter : 2 * quarter]))


def schedule(rng: random.Random, topology: Topology, seconds: float) -> list[tuple[float, Action]]:
    """Failures one after another, each restored before the next: a host keeps a way to every other."""
    links = [link.name for link in topology.links.values() if not link.is_host_link]
    ports = [f"{host.name}:{plane}" for host in topology.hosts for plane in range(topology.lab.planes)]
    switches = [switch.name for switch in topology.switches]
    made: list[tuple[float, Action]] = []
    at = rng.uniform(0.5, 2.0)
    while at < seconds - 3.0:
        kind = rng.choice(("link_down", "link_down", "port_down", "impair", "stop", "freeze", "reboot"))
        settings: dict[str, Any] = {}
        target = rng.choice({"port_down": ports, "link_down": links + ports, "impair": links}.get(kind, switches))
        if kind == "impair":
            key = rng.choice(("loss", "corrupt", "duplicate", "reorder"))
            settings = {key: rng.choice((0.01, 0.1, 0.5))} if rng.random() < 0.8 else {"blackhole": True}
        hold = rng.uniform(0.2, 2.0)
        made += [(at, Action("fail", target, kind, settings=settings)), (at + hold, Action("restore", target))]
        at += hold + rng.expovariate(1 / 8.0) + 0.2
    return made


class Visitors:
    """Controllers and watchers that come, look, and go."""

    def __init__(self, session: Session, rng: random.Random, tally: Tally) -> None:
        self.session, self.rng, self.tally = session, rng, tally

    def visit(self) -> None:
        """One of them, on one switch."""
        switch = self.rng.choice(self.session.topology.switches)
        address = self._address(switch.device_id)
        kind = self.rng.choices(("polite", "reader", "abrupt", "killed"), (8, 8, 8, 1))[0]
        self.tally.controllers[kind] += 1
        election = time.time_ns()  # higher than that of the previous primary
        if kind == "killed":
            arguments = [address, str(switch.device_id), str(election)]
            subprocess.run([sys.executable, "-c", VANISHING, *arguments], check=True, timeout=120)
            return
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]
        with grpc.insecure_channel(address, options=options) as channel:
            if kind == "abrupt":
                hello = p4runtime_pb2.StreamMessageRequest()
                hello.arbitration.device_id = switch.device_id
                hello.arbitration.election_id.low = election
                held = iter([hello])
                answers = P4RuntimeStub(channel).StreamChannel(held)
                next(answers)  # and the channel closes under the stream
                return
            device = Device(channel, switch.device_id, switch.name, fabric_program().p4info)
            try:
                if kind == "polite":
                    device.become_primary(election_id=election)
                else:
                    self.session.program_counters()
            finally:
                device.close()

    def _address(self, device_id: int) -> str:
        if isinstance(self.session, VirtualSession):
            return self.session.server.address
        assert isinstance(self.session, RealSession)
        return self.session.target.address(device_id)


def resident(session: Session) -> Iterator[tuple[str, int]]:
    """Bytes resident of this process and of all of the lab's."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is free, but not given back, is not a leak
    yield "this process", psutil.Process().memory_info().rss
    if isinstance(session, RealSession) and session.state.first is not None:
        for each in psutil.Process(session.state.first.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                yield f"{each.pid} {' '.join(each.cmdline()[-2:])[-60:]}", each.memory_info().rss


def play(session: Session, rng: random.Random, tally: Tally, seconds: float) -> None:
    """One round."""
    topology = session.topology
    workload = rng.choice(sorted(WORKLOADS))
    names = [host.name for host in topology.hosts]
    hosts = None if rng.random() < 0.7 else rng.sample(names, rng.randrange(2, len(names) + 1))
    spec = WorkloadSpec(workload, dict(SMALL_LOADS[workload]), hosts, seconds, qps_per_peer=rng.choice((1, 1, 2)))
    steps = schedule(rng, topology, seconds)
    visitors = Visitors(session, rng, tally)

    def watch(result: RunResult) -> None:
        if rng.random() < 0.05:
            visitors.visit()

    with Recording() as recording:
        result = WorkloadRun(session, spec, steps, watch, recording).go()
        judged = verdict.judge(result, topology, Expectation(valid=False))
        done = "; ".join(f"{at:.3f} s {action.describe()}" for at, action in steps)
        what = f"round {tally.rounds.total()}: {workload} on {', '.join(result.ranks)} for {seconds:.1f} s; {done}"
        for check in judged.checks:
            if not check.passed:
                tally.problems.append(f"{what}: {check.what}: {check.measured}, not {check.expected}")
    tally.rounds[workload] += 1
    tally.failures.update(action.kind for _, action in steps if action.verb == "fail")
    tally.bytes_verified += sum(each.bytes_verified for each in result.progress.values())
    if session.failures.broken:
        tally.problems.append(f"{what}: left broken: {', '.join(session.failures.broken)}")


def endure(
    session: Session,
    hours: float,
    seed: int,
    *,
    first: int = 0,
    longest_s: float = 60.0,
    leak: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Tally:
    """Run rounds until the lab's clock has advanced this far; see the module's docstring."""
    tally, held = Tally(), bytearray()
    begin, wall, said = session.now_ns(), time.perf_counter(), 0.0
    end = begin + round(hours * 3600e9)
    while session.now_ns() < end:
        before = session.now_ns()
        rng = random.Random(f"endurance-{seed}-{first + tally.rounds.total()}")
        play(session, rng, tally, rng.uniform(3.0, longest_s))
        session.advance(rng.uniform(0.0, 3 * longest_s))
        held += b"\1" * round(leak * (session.now_ns() - before) / 1e9)
        for name, used in resident(session):
            tally.memory.setdefault(name, []).append(used)
        if time.perf_counter() - wall - said > 60 or tally.problems:
            said = time.perf_counter() - wall
            passed = (session.now_ns() - begin) / 3600e9
            most = tally.memory["this process"][-1] / 2**20
            say(f"{passed:.2f} h of the lab in {said / 60:.1f} min, {tally.rounds.total()} rounds, {most:.1f} MiB")
        if tally.problems:
            break
    rounds = tally.rounds.total()
    for name, values in tally.memory.items():
        # A process that ended on the way, or a run too short to tell.
        if len(values) < rounds or rounds < LEAST_ROUNDS:
            continue
        if grown(values) > ALLOWED:
            tally.problems.append(f"memory of {name} grew by {grown(values) / 2**20:.1f} MiB: it is not flat")
    return tally


def report(tally: Tally, lab_s: float, wall_s: float) -> None:
    """Print what was done and found."""
    print(
        f"{lab_s / 3600:.2f} h of the lab in {wall_s / 60:.1f} min: {tally.rounds.total()} rounds, "
        f"{tally.failures.total()} failures restored, {tally.controllers.total()} controllers, "
        f"{tally.bytes_verified / 1e6:.0f} MB verified"
    )
    for name, counted in (("rounds", tally.rounds), ("failures", tally.failures), ("controllers", tally.controllers)):
        print(f"{name}: {dict(sorted(counted.items()))}")
    for name, values in tally.memory.items():
        if len(values) >= LEAST_ROUNDS:
            parts = ", ".join(f"{values[len(values) * part // 8] / 2**20:.1f}" for part in range(8))
            print(f"memory of {name}, MiB: {parts}, {values[-1] / 2**20:.1f}; grew by {grown(values) / 2**10:.0f} KiB")
    for problem in tally.problems:
        print(f"FAILED {problem}")


def main(arguments: list[str]) -> int:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="support.lab.endurance", description=__doc__.split("\n")[0])
    parser.add_argument("--hours", type=float, default=4.0, help="of the lab's clock")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the round to begin with, to see it again")
    parser.add_argument("--clock", choices=("virtual", "real"), default="virtual")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of the longest round")
    parser.add_argument("--leak", type=int, default=0, help="bytes a second, to see the check fail")
    options = parser.parse_args(arguments)
    if not 0 < options.hours < 1e6 or not 6 <= options.longest <= 1e6 or options.leak < 0:
        parser.error("--hours must be above 0, --longest at least 6, --leak not negative")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if options.clock == "real":
            os.environ.setdefault("MRCLAB_RUN", f"{folder}/run")
        lab = lab_file(pathlib.Path(folder), "tiny", **LAB)
        with session_for(LabRequest.of(lab, clock=options.clock)) as session:
            begin = session.now_ns()
            tally = endure(
                session,
                options.hours,
                options.seed,
                first=options.first,
                longest_s=options.longest,
                leak=options.leak,
                say=lambda text: print(text, flush=True),
            )
            lab_s = (session.now_ns() - begin) / 1e9
    report(tally, lab_s, time.perf_counter() - began)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
