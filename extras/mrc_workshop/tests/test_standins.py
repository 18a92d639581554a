"""A learner's classes in another process decide as they do in one's own: the same run, to the last event.

The other process is a thread here, with a socket between; that it is a process of its own is `test_dishonest`.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
import yaml

from mrc_host import policy
from mrc_host.policy import EvInput, EvSet, EvUniverse, NsccConfig, PolicyError, Rtt, Scoreboard
from mrc_host.proto.config import EvConfig, EvMode
from mrc_host.proto.limits import ConfigError
from mrc_topo.labfile import parse_lab
from mrc_workshop.player import LearnerObjects
from mrc_workshop.standins import LearnerProcess
from mrc_workshop.wire import Wire
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment
from support.lab.results import plain

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
from mrclab.lab.management.clustermapper import Clustermapper, Finding
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
    thread = threading.Thread(target=LearnerObjects(Wire(theirs), folder).serve)
    thread.start()
    players = LearnerProcess(Wire(ours), folder, ["mine.py"])
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
    """Return what two runs must have in common: all but a controller's own numbers, which are not asked for."""
    found = {key: value for key, value in plain(result).items() if key not in ("samples", "fabric")}
    for statistics in found["statistics"].values():
        for peer in statistics["peers"]:
            peer["cc"] = {name: peer["cc"][name] for name in ("cwnd", "inflight", "base_rtt_ns", "srtt_ns")}
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


def shape(evs: EvSet) -> object:
    return (
        [list(each) for each in (*evs.order, *evs.backup, *evs.ready)],
        list(evs.state),
        list(evs.cursor),
        list(evs.streak.items()),
        list(evs.losses.items()),
        (evs.usable, evs.floor, evs.probes_to_revive, evs.target),
        list(evs.universe.values),
    )


@pytest.mark.parametrize("name", ["Same", "Turns"])
def test_evs_are_the_same_whatever_happens_to_them(name: str, tmp_path: pathlib.Path) -> None:
    """All that an endpoint does to them, in any order: here and there the same results, states, order and events."""
    (tmp_path / "mine.py").write_text(MINE.replace("SEED", "1"))
    here = policy.load(f"{tmp_path}/mine.py:{name}", "ev")
    with played(tmp_path, yaml.safe_dump(LAB)):
        there = policy.load(f"{tmp_path}/mine.py:{name}", "ev")
        for seed in range(25):
            rng = random.Random(seed)
            config = EvConfig(mode=EvMode.AUTO, count=16, active=8, ev_min_active=3, rescan_rounds=2)
            both: list[Any] = []
            told: tuple[list[Any], list[Any]] = ([], [])
            for make, events in zip((here, there), told, strict=True):
                universe = EvUniverse(config, 2, random.Random(7))
                both.append(make(universe, random.Random(seed), lambda *each, events=events: events.append(each)))
            for step in range(60):
                ev, plane = rng.randrange(16), rng.randrange(2)
                what = rng.choice(["choose"] * 4 + ["apply"] * 6 + ["probe", "usable", "reset", "retune", "fast"])
                item, mark = rng.choice(list(EvInput)), rng.randrange(4)
                mask, value, avoid = rng.randrange(4), 1000 * seed + step, rng.choice((-1, ev))
                outcome = []
                for evs in both:
                    result: object = None
                    if what == "choose":
                        result = evs.choose(plane, avoid)
                    elif what == "apply":
                        result = evs.apply(ev, item)
                    elif what == "probe":
                        result = evs.probe_answered(ev, mark)
                    elif what == "usable":
                        evs.set_usable(evs.usable_planes(3, mask))
                    elif what == "reset":
                        evs.universe.replace(evs.universe.values[ev], value)
                        evs.reset(ev)
                    elif what == "retune":
                        evs.retune(EvConfig(ev_min_active=1 + mark, probes_to_revive=1 + mask))
                    elif evs.ready[plane]:  # what a requestor does without asking
                        evs.cursor[plane] = min(evs.cursor[plane], len(evs.order[plane]) - 1) + 1
                    outcome.append((result, shape(evs)))
                assert outcome[0] == outcome[1], (seed, step, what)
            assert told[0] == told[1]
            assert len(told[0]) > 3


# --- who does not play by the rules ----------------------------------------------------------------------------------


class Crooked:
    """The other end of a wire, which answers what it is told to."""

    def __init__(self, *answers: object) -> None:
        ours, self._theirs = socket.socketpair()
        self.players = LearnerProcess(Wire(ours), pathlib.Path("/learner"), ["mine.py"])
        for each in answers:
            data = each if isinstance(each, bytes) else json.dumps(each).encode()
            self._theirs.sendall(len(data).to_bytes(4, "big") + data if not isinstance(each, bytes) else each)

    def close(self) -> None:
        self._theirs.close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"\xff" * 8, "a message of 4294967295 bytes"),
        (b"\0\0\0\2hm", "no message: JSONDecodeError"),
        (b"\0\0\0\2{}", "no message: no list"),
        (["draw", 1 << 30], "draws 1073741824 random bits at a time"),
        (["draw"], "answered with nonsense"),
        (["policy", "x" * 9999], "x" * 4000),
        (["something"], "nothing"),
    ],
    ids=["length", "json", "object", "draw", "short", "long", "word"],
)
def test_an_answer_that_is_none_ends_the_run(answer: object, told: str) -> None:
    other = Crooked(answer)
    with pytest.raises(PolicyError) as raised:
        other.players.ask(["call"], "mine.py: Mine.choose", random.Random(1))
    assert told in str(raised.value)
    assert len(str(raised.value)) <= 4100
    other.close()


def test_who_is_gone_ends_the_run() -> None:
    other = Crooked()
    other.close()
    with pytest.raises(PolicyError, match=r"mine.py: Mine.infer: its process ended before it had answered"):
        other.players.ask(["call"], "mine.py: Mine.infer")


@pytest.mark.parametrize("file", ["/learner/other.py", "/elsewhere/mine.py", "/learner/more/mine.py"])
def test_classes_come_from_the_files_to_edit_only(file: str) -> None:
    other = Crooked(["ok", 0])
    with pytest.raises(ConfigError, match=r"is in none of the files to edit: mine\.py"):
        other.players(f"{file}:Mine", "ev")
    other.close()


UNIVERSE = EvUniverse(EvConfig(mode=EvMode.EXPLICIT, values=((1, 2, 3), (4, 5, 6)), active=4), 2, random.Random(1))
TOLD: dict[str, Any] = {
    "state": "00" * 6,
    "order": [[0, 1], [3, 4]],
    "backup": [[2], [5]],
    "ready": None,
    "cursor": [0, 0],
    "streak": [],
    "losses": [],
    "numbers": [3, 1, 2, 2, 0],
}


@pytest.mark.parametrize(
    ("result", "told", "says"),
    [
        (0, {"state": "04" + "00" * 5}, "left states that are not GOOD, SKIP, ASSUMED_BAD or DENIED"),
        (0, {"state": "00"}, "left states"),
        (0, {"order": [[0, 99], [3]]}, "left '99' where a number below 6 belongs"),
        (0, {"order": [[0]]}, "where a set of EVs for each of 2 planes belongs"),
        (0, {"cursor": ["a", 0]}, "left 'a' where a number"),
        (0, {"cursor": [-1, 0]}, "left '-1' where a number"),
        (0, {"streak": [[0, 1.5]]}, "left '1.5' where a number"),
        (0, {"numbers": [1]}, "where 5 numbers belong"),
        (0, {"moves": [[0, 0, 2, 5, 1]]}, "told of a change of EV 0 to 2, and left it in 0"),
        (0, {"moves": [[0, 2, 0, 7, 1]]}, "told of a change of EV 0 from 2 to 0 that did not take place"),
        (0, {"moves": [[0, 0, 2, 99, 1]]}, "that did not take place"),
        (3, {}, "returned EV 3 of plane 1 for a packet on plane 0"),
        (17, {}, "returned EV 17, which is not in the profile"),
        (0, {"state": "03" + "00" * 5}, "returned EV 0, which is DENIED"),
        ("0", {}, "returned '0', not the index of an EV"),
        (0, "nothing", "Mine.choose: "),
    ],
)
def test_evs_that_cannot_be_are_refused(result: object, told: object, says: str) -> None:
    other = Crooked(["ok", 0], ["ok", 1, TOLD], ["ok", result, told])
    seen: list[tuple[object, ...]] = []
    evs = other.players("/learner/mine.py:Mine", "ev")(UNIVERSE, random.Random(1), lambda *each: seen.append(each))
    with pytest.raises(PolicyError) as raised:
        evs.choose(0)
    assert says in str(raised.value)
    assert seen == []
    other.close()


def test_changes_of_evs_that_took_place_are_told() -> None:
    moves = [[0, 0, 1, 0, 0], [0, 1, 2, 5, 1]]
    other = Crooked(["ok", 0], ["ok", 1, TOLD], ["ok", True, {"state": "02" + "00" * 5, "moves": moves}])
    seen: list[tuple[object, ...]] = []
    evs = other.players("/learner/mine.py:Mine", "ev")(UNIVERSE, random.Random(1), lambda *each: seen.append(each))
    assert evs.apply(0, EvInput.LOSS) is True
    assert [each[:3] for each in seen] == [(0, 0, 1), (0, 1, 2)]
    other.close()


def test_the_cause_of_a_change_is_what_took_place() -> None:
    """Not what a policy says it was: a mark that it calls a loss, or a turn that it calls an answered probe."""
    bad, good = {"state": "02" + "00" * 5, "moves": [[0, 0, 2, 5, 1]]}, {"state": "00" * 6, "moves": [[0, 2, 0, 7, 1]]}
    other = Crooked(["ok", 0], ["ok", 1, TOLD], ["ok", True, bad], ["ok", 0, good])
    seen: list[tuple[object, ...]] = []
    evs = other.players("/learner/mine.py:Mine", "ev")(UNIVERSE, random.Random(1), lambda *each: seen.append(each))
    evs.apply(0, EvInput.SKIP_ONCE)
    evs.choose(0)
    assert [each[3] for each in seen] == [EvInput.SKIP_ONCE, EvInput.TURN]
    other.close()


@pytest.mark.parametrize(
    "told", [[float("nan"), 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], ["9", 1, 1, 1, 1, 1], [1, 2], None]
)
def test_windows_that_cannot_be_are_refused(told: object) -> None:
    other = Crooked(["ok", 0], ["ok", 1, [9000.0, 1e6, 1000, 0, 0, 1100]], ["ok", None, told])
    window = other.players("/learner/mine.py:Mine", "congestion")(NsccConfig(), 1100)
    with pytest.raises(PolicyError, match=r"mine.py: Mine.on_loss: "):
        window.on_loss(5, 1100)
    other.close()


@pytest.mark.parametrize("lost", [[7], ["x"], [[]], 5])
def test_losses_of_what_is_not_in_flight_are_refused(lost: object) -> None:
    other = Crooked(["ok", 0], ["ok", 1, None], ["ok", lost, None])
    detector = other.players("/learner/mine.py:Mine", "loss")(Scoreboard(0, 1000, 3, 1, 1), Rtt(1), True, True)
    with pytest.raises(PolicyError, match=r"mine.py: Mine.infer: named something lost that is not in flight"):
        detector.infer([], None, 1000, 5)
    other.close()


class _Asking:
    """The other process, which asks for so many draws of 32 bits before it answers."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.drawn: list[int] = []
        self.sent: list[Any] = []

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)
        if len(message) == 1:
            self.drawn.append(int(message[0]))

    def receive(self) -> list[Any]:
        self.left -= 1
        return ["draw", 32] if self.left >= 0 else ["ok"]


def test_the_generator_of_an_endpoint_cannot_be_recovered_from_what_is_drawn() -> None:
    """624 draws of 32 bits are the state of Python's generator, from which all that was drawn and will be follows."""
    wire, rng = _Asking(2000), random.Random("seed")
    players = LearnerProcess(cast(Any, wire), pathlib.Path(), [])
    players.ask(["call", 0], "", rng)
    own = random.Random("seed")
    wanted = [own.getrandbits(32) for _ in range(2000)]
    same = sum(one == other for one, other in zip(wire.drawn, wanted, strict=True))
    assert same == 8192 // 32
    assert wire.drawn[:same] == wanted[:same]
    assert len(set(wire.drawn)) > 1990
    again = _Asking(2000)
    LearnerProcess(cast(Any, again), pathlib.Path(), []).ask(["call", 0], "", random.Random("seed"))
    assert again.drawn == wire.drawn, "the same run gets the same numbers"


def test_what_differs_between_links_is_not_told() -> None:
    wire = _Asking(0)
    LearnerProcess(cast(Any, wire), pathlib.Path(), []).begin(
        "name: tiny\nseed: 77\noverrides: {p0-t0.0--p0-t1.0: {loss: 0.05}}\npolicies: {ev: policy:Mine}\nplanes: 2\n"
    )
    assert yaml.safe_load(wire.sent[0][1]) == {"name": "tiny", "planes": 2, "seed": 1}
