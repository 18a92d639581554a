"""Bugs of the past, planted again: the change of the source, and the scenario in which the checker must find it.

The subject of a commit is that of the correction. Each bug is planted in a copy of `mrc_host`, which another process
explores with the core interpreted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import mrc_host
from support.checker.scenario import ROCE, FaultKind, Scenario

_PACKAGE: Final = Path(next(iter(mrc_host.__path__)))
_TESTS: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Change:
    """A replacement in a file of `mrc_host/proto`; `old` occurs once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Planted:
    """A bug. `subject`: of the commit that corrected it. `effect`: what the checker sees, in a few words."""

    name: str
    subject: str
    effect: str
    changes: tuple[Change, ...]
    scenario: Scenario


_DROP, _LATE = FaultKind.DROP, FaultKind.LATE
_LINK, _DISABLE, _CUT = FaultKind.LINK, FaultKind.DISABLE, FaultKind.CUT
_RECOVERY: Final = "reliability/recovery.py"
_REQUESTOR: Final = "reliability/requestor.py"
_ROCE_QP: Final = "roce/qp.py"
_ROCE_ENDPOINT: Final = "roce/endpoint.py"
_SLOW: Final = Change(
    "reliability/recovery.py",
    "        if board.slow:  # packets in the exponential phase are in no order, and no less lost\n",
    "        if False:\n",
)
_EARLY_PACKET: Final = Change(_ROCE_QP, "            self.sacked.discard(self.una)\n", "            pass\n")

PLANTED: Final[tuple[Planted, ...]] = (
    Planted(
        "tail not armed",
        "proto: let one packet leave whatever its size, and keep the tail armed",
        "a queue pair waits in RTS for ever for a transport ACK",
        (
            Change(
                _REQUESTOR,
                """        lost = self.lost
        while lost and lost[0].state != LOST:
            lost.pop(0)
        return self.work.current is not None or bool(lost)
""",
                "        return self.work.current is not None or bool(self.lost)\n",
            ),
        ),
        Scenario(messages=("1",), faults=2, kinds=(_DROP, _DISABLE)),
    ),
    Planted(
        "packet larger than the window",
        "proto: let one packet leave whatever its size, and keep the tail armed",
        "a full packet with an immediate waits for ever behind a window of one packet",
        (
            Change(
                "send_ring.py",
                """        if waiting and cc.inflight <= 0 and room < waiting[0].needs:
            room = float(waiting[0].needs)  # with nothing in flight one packet may always leave, whatever its size
""",
                """        if room < cc.mtu and cc.inflight <= 0:
            room = float(cc.mtu)
""",
            ),
        ),
        Scenario(messages=("b4", "1i"), faults=0, window_bytes=1),
    ),
    Planted(
        "acknowledged bytes in flight",
        "proto: take acknowledged packets off the bytes in flight",
        "a lost SACK closes the window for ever, although the transport ACK came",
        (Change(_REQUESTOR, "        self.account.prove(sent)\n", ""),),
        Scenario(messages=("1", "1"), faults=1, kinds=(_DROP,), window_bytes=1),
    ),
    Planted(
        "window of one that ended",
        "proto: give the window of a queue pair that ends to those that wait for it",
        "a queue pair that failed keeps its part of the window that it shared",
        (Change(_REQUESTOR, "        self.account.close()\n", ""),),
        Scenario(messages=("2i", "1@1"), faults=1, kinds=(_DROP,), window_bytes=1, receives=0),
    ),
    Planted(
        "others wait",
        "proto: give the window of a queue pair that ends to those that wait for it",
        "queue pairs that wait for the room of one that failed wait for ever",
        (
            Change(
                _REQUESTOR,
                "            status = CompletionStatus.WR_FLUSH_ERR\n        self._wake_others()\n",
                "            status = CompletionStatus.WR_FLUSH_ERR\n",
            ),
        ),
        Scenario(messages=("2i", "1@1"), faults=1, kinds=(_DROP,), window_bytes=1, receives=0),
    ),
    Planted(
        "probes in every round trip",
        "proto: double the tail's interval until something is acknowledged",
        "probes do not back off while a packet waits for its timeout",
        (
            Change(
                _REQUESTOR,
                "            self.recovery.silence = 0\n            if probe",
                "            self.recovery.progressed()\n            if probe",
            ),
        ),
        Scenario(
            messages=("1",),
            faults=1,
            kinds=(_DROP,),
            timeout=11,
            linear=0,
            doubled=2,
            rack=False,
            probe_interval_ns=10**12,
        ),
    ),
    Planted(
        "rule (c) skipped",
        "proto: infer losses by the round-trip time of each plane",
        "loss rule (c) does not hold in the exponential phase",
        (_SLOW,),
        Scenario(messages=("1",), faults=3, kinds=(_DROP,), linear=0, doubled=4),
    ),
    Planted(
        "probes in ERROR",
        "proto: send no probes for a queue pair in ERROR",
        "a queue pair in ERROR probes when its port returns",
        (
            Change(
                "reliability/qp.py",
                "        if self.evs.streak and self.state is QpState.RTS:\n",
                "        if self.evs.streak:\n",
            ),
        ),
        Scenario(messages=("1",), faults=2, kinds=(_DROP, _LINK)),
    ),
    Planted(
        "SACK held back in ERROR",
        "proto: hold back no SACK of a queue pair that has just ended",
        "a queue pair in ERROR sends a SACK later",
        (Change("reliability/responder.py", "        if due or self._nak is not None:", "        if due:"),),
        Scenario(messages=("2i",), faults=0, receives=0, sack_every=4),
    ),
    Planted(
        "control packets on a dead port",
        "proto: queue no control packet on a port that is down",
        "answers wait on a port that is down, with the state of then",
        (
            Change(
                "ports.py",
                "        if entry.up and len(control) < self.limit:",
                "        if len(control) < self.limit:",
            ),
        ),
        Scenario(messages=("1",), faults=1, kinds=(_DISABLE,)),
    ),
    Planted(
        "no end at the tail",
        "Endpoint core: silence at the tail ends within the retry budget",
        "a queue pair without its transport ACK never fails in a silent network",
        (Change(_RECOVERY, "        if everything_sacked and self.silence > self.budget:\n", "        if False:\n"),),
        Scenario(messages=("1",), faults=1, kinds=(_CUT,)),
    ),
    Planted(
        "questions beyond the retries",
        "proto: bound the questions for a transport ACK by the retries",
        "a queue pair without its transport ACK fails much later than its retries last",
        (
            Change(
                _RECOVERY,
                "self.association.attributes.repeat_ns(self.fruitless if board.outstanding.count else self.silence)\n",
                "board.timeout_ns << min(max(0, self.fruitless - board.linear), _MAX_TAIL_DOUBLINGS)\n",
            ),
        ),
        Scenario(messages=("1",), faults=4, kinds=(_DROP, _CUT), linear=0, doubled=5, probe_interval_ns=10**12),
    ),
    Planted(
        "no ACK in RTR",
        "proto: acknowledge requests of RoCE in RTR, too",
        "a responder in RTR takes requests and never acknowledges them",
        (
            Change(
                _ROCE_ENDPOINT,
                "            if qp is not None and qp.state in (QpState.RTS, QpState.RTR):\n",
                "            if qp is not None and qp.state is QpState.RTS:\n",
            ),
        ),
        Scenario(ROCE, ("1",), 0, stays_rtr=True),
    ),
    Planted(
        "early packet refused",
        "roce: forget that a packet arrived when an RNR NAK refuses it",
        "selective repeat never repeats a packet that was kept early and then refused",
        (Change(_ROCE_QP, "            self.sacked.discard(psn)\n", ""), _EARLY_PACKET),
        Scenario(ROCE, ("1", "1i"), 2, (_DROP,), selective=True, late_receives=True),
    ),
    Planted(
        "RNR NAK lost",
        "proto: answer lost answers of RoCE in all cases, and test the wire",
        "selective repeat waits for ever when the RNR NAK of an early packet is lost",
        (_EARLY_PACKET,),
        Scenario(ROCE, ("1", "1i"), 2, (_DROP,), selective=True, late_receives=True),
    ),
    Planted(
        "posted without a port",
        "roce: fail or move queue pairs whose port is down",
        "a request that is posted while no port is up waits for ever",
        (
            Change(
                _ROCE_ENDPOINT,
                """            if qp.deadline is None:
                qp.deadline = qp.patience(now)
                self._schedule(qp)
""",
                "            pass\n",
            ),
        ),
        Scenario(ROCE, ("1", "1"), 1, (_LINK,), post_any_time=True),
    ),
    Planted(
        "ACK on a dead port",
        "roce: let no answer wait on a port that is down",
        "an ACK waits on a port that is down",
        (
            Change(
                _ROCE_ENDPOINT,
                """            if self._ports.ports[port].up:
                self._lanes[port].acks""",
                """            if True:
                self._lanes[port].acks""",
            ),
        ),
        Scenario(ROCE, ("1",), 1, (_DISABLE,)),
    ),
)


def by_name(name: str) -> Planted:
    """Return a planted bug. Raises ValueError for an unknown name."""
    for each in PLANTED:
        if each.name == name:
            return each
    raise ValueError(f"no planted bug '{name}'; known: {', '.join(each.name for each in PLANTED)}")


def plant(bug: Planted, folder: Path) -> None:
    """Copy `mrc_host` into a folder, with the bug in it. Raises ValueError when the source is no longer as it was."""
    copy = folder / "mrc_host"
    shutil.copytree(_PACKAGE, copy, ignore=shutil.ignore_patterns("__compiled__", "__pycache__"))
    for change in bug.changes:
        path = copy / "proto" / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise ValueError(
                f"planted bug '{bug.name}': {change.file} has its text {text.count(change.old)} times, not once; "
                "correct `old` in tests/support/checker/planted.py"
            )
        path.write_text(text.replace(change.old, change.new))


@dataclass(frozen=True)
class Found:
    """What the checker found of a planted bug: nothing (`problem` is None), or how."""

    problem: str | None
    events: int
    states: int
    seconds: float
    lines: tuple[str, ...]


def find(bug: Planted, seconds: float = 300.0) -> Found:
    """Plant a bug and look for it, with ever more faults up to those of its scenario."""
    with tempfile.TemporaryDirectory(prefix="mrclab-planted-") as folder:
        plant(bug, Path(folder))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((folder, str(_TESTS), os.environ.get("PYTHONPATH", ""))),
            "MRCLAB_PURE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        run = subprocess.run(
            [sys.executable, "-m", __name__, json.dumps(bug.scenario.to_dict()), str(seconds), folder],
            env=environment, capture_output=True, text=True, timeout=4 * seconds + 60, check=False,
        )  # fmt: skip
    if run.returncode:
        raise RuntimeError(f"planted bug '{bug.name}': {run.stderr.strip()}")
    document = json.loads(run.stdout)
    return Found(lines=tuple(document.pop("lines")), **document)


def _explore(scenario: Scenario, seconds: float, folder: str) -> Found:
    """Look for a bug in this process."""
    import dataclasses

    from support.checker.replay import counterexample, replay
    from support.checker.search import explore

    if not str(next(iter(mrc_host.__path__))).startswith(folder):
        raise RuntimeError(f"mrc_host is that of {next(iter(mrc_host.__path__))}, not the copy in {folder}")
    states, spent = 0, 0.0
    for faults in range(scenario.faults + 1):
        result = explore(dataclasses.replace(scenario, faults=faults), seconds=seconds - spent)
        states, spent = states + result.states, spent + result.seconds
        if result.problem is not None:
            found = counterexample(result)
            run = replay(found.scenario, found.steps)
            return Found(found.problem, len(found.steps), states, spent, tuple(run.lines()))
    return Found(None, 0, states, spent, ())


def main() -> None:
    """Explore a scenario with the `mrc_host` of a folder, and print what was found as JSON."""
    import dataclasses

    parser = argparse.ArgumentParser(prog="python -m support.checker.planted")
    parser.add_argument("scenario")
    parser.add_argument("seconds", type=float)
    parser.add_argument("folder")
    chosen = parser.parse_args()
    scenario = Scenario.from_dict(json.loads(chosen.scenario))
    print(json.dumps(dataclasses.asdict(_explore(scenario, chosen.seconds, chosen.folder))))


if __name__ == "__main__":
    main()
