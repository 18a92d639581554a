"""A learner's classes in another process decide as they do in one's own: the same run, to the last event.

The other process is a thread here, with a socket between; that it is a process of its own is `test_dishonest`.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from mrc_control.results.record import RunResult
from mrc_control.runs import execute
from mrc_control.runs.experiment import Experiment
from mrc_control.session.virtual import VirtualSession
from mrc_control.workshop.player import Player
from mrc_control.workshop.standins import Players
from mrc_control.workshop.wire import Wire
from mrc_host import policy
from mrc_topo.labfile import parse_lab

LAB: dict[str, Any] = {
    "name": "played",
    "planes": 2,
    "t0_per_plane": 2,
    "t1_per_plane": 2,
    "hosts": 4,
    "hosts_per_t0": 2,
    "path_mtu": 1024,
    "seed": 3,
    "ev": {"size": 32, "active": 16, "min_active": 4, "probe_interval": "10ms", "probe_timeout": "20ms"},
    "queues": {"limit": "64KiB", "ecn": {"kmin": "8KiB", "kmax": "24KiB"}, "trim": None},
    "overrides": {"p0-t0.0--p0-t1.1": {"loss": 0.05}, "p1-t0.0--p1-t1.0": {"delay": "2ms"}},
}
MINE = """
from mrc_control.paths.clustermapper import Clustermapper, Finding
from mrc_host.policy import EvSet, LossDetector, Nscc, WindowPolicy

class Ours(Nscc): pass

class Halving(WindowPolicy):
    def on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True):
        super().on_sack(now, newly, rtt_ns, ce, penalty, restore, whole)
        self.cwnd = max(self.cwnd / 2, self.mtu) if ce else min(self.cwnd + newly * self.mtu / self.cwnd, self.max_wnd)

class Same(EvSet): pass

class Turns(EvSet):
    def choose(self, plane, avoid=-1):
        order = self.order[plane]
        for _ in order:
            self.cursor[plane] = (self.cursor[plane] + 1) % len(order)
            if order[self.cursor[plane]] != avoid:
                return order[self.cursor[plane]]
        return -1

class Theirs(LossDetector): pass

class Waits(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        lost = list(super().infer(acked, overtaken, base_rtt_ns, now) or ())
        known = {sent.psn for sent in lost}
        limit = now - 2 * (self.rtt.srtt_ns + 4 * self.rtt.var_ns)
        return lost + [sent for sent in self.in_flight() if sent.sent_ns < limit and sent.psn not in known]

class Finder:
    def locate(self, topology, views):
        assert topology.lab.seed == SEED, topology.lab.seed
        return Clustermapper().locate(topology, views)
"""


@contextlib.contextmanager
def played(folder: pathlib.Path, lab: str) -> Iterator[None]:
    """Policies of this folder are played by another thread."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=Player(Wire(theirs), folder).serve)
    thread.start()
    players = Players(Wire(ours), folder, ["mine.py"])
    try:
        players.begin(lab)
        with policy.supplied(players):
            yield
    finally:
        ours.close()
        thread.join()
        theirs.close()


def ran(lab: str, folder: pathlib.Path) -> RunResult:
    experiment = Experiment.model_validate(
        {
            "name": "played",
            "title": "played",
            "workload": {
                "name": "permutation",
                "params": {"message_bytes": 16384, "window": 2, "shift": 2},
                "duration": 0.15,
            },
            "schedule": [
                {"at": 0.03, "fail": "p0-t0.1--p0-t1.0", "kind": "link_down", "evidence": {"dropped": 1}},
                {"at": 0.08, "fail": "h0:1", "kind": "port_down", "evidence": {"ports_down": 1}},
                {"at": 0.1, "restore": "p0-t0.1--p0-t1.0"},
            ],
        }
    )
    session = VirtualSession(parse_lab(lab, "lab", folder))
    try:
        return execute.run_on(session, experiment)
    finally:
        session.close()


def document(result: RunResult) -> dict[str, Any]:
    """What two runs must have in common: all but a controller's own numbers, which are not asked for."""
    found = {key: value for key, value in result.document().items() if key not in ("samples", "fabric")}
    for statistics in found["statistics"].values():
        for peer in statistics["peers"]:
            peer["cc"] = {name: peer["cc"][name] for name in ("cwnd", "inflight", "base_rtt_ns", "srtt_ns")}
    found["events"] = {name: list(found["events"][name]) for name in found["events"]}
    parsed: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return parsed


@pytest.mark.parametrize(
    "names",
    [
        {"congestion": "Ours", "ev": "Same", "loss": "Theirs"},
        {"congestion": "Halving", "ev": "Turns", "loss": "Waits", "localiser": "Finder"},
    ],
    ids=["ours", "own"],
)
def test_the_same_run_as_in_ones_own_process(names: dict[str, str], tmp_path: pathlib.Path) -> None:
    document_of_lab = LAB | {"policies": {kind: f"mine:{name}" for kind, name in names.items()}}
    lab = yaml.safe_dump(document_of_lab)
    (tmp_path / "mine.py").write_text(MINE.replace("SEED", "3"))
    alone = document(ran(lab, tmp_path))
    (tmp_path / "mine.py").write_text(MINE.replace("SEED", "1"))  # a lab's seed is not told
    with played(tmp_path, lab):
        apart = document(ran(lab, tmp_path))
    assert apart["progress"] == alone["progress"]
    assert apart == alone
    assert '"ASSUMED_BAD"' in json.dumps(alone["events"])
