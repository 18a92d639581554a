"""Figures in which something fails while data flows: ports, links, transceivers, switches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mrc_host.proto.events import EvState
from mrc_topo.schema import Lab
from mrclab.results.expectation import Evidence
from mrclab.runs.experiment import Experiment, ExperimentStep, Tree
from mrclab.studies.cells.measure import Cell, Segment, experiment
from mrclab.studies.figures.model import (
    SHARE,
    Axes,
    Figure,
    Mark,
    Measure,
    Point,
    Results,
    Size,
    before,
    bounds,
    bounds_of,
    everything,
    goodput,
    least,
    mean,
    most,
    ratio,
    window,
)

TIME = Axes("time, s", SHARE, "steps")
EIGHT = "8 ports of 100 Gb/s, 800 Gb/s"
#: Of four planes at 5 Mb/s each; that of the paper is 100 Gb/s.
QUEUES = {"limit": "64KiB", "ecn": {"kmin": "8KiB", "kmax": "32KiB"}, "trim": {"threshold": "48KiB"}}
LINK = {"rate": "5Mbps", "delay": "100us"}
#: Fast enough that no ACK timeout of 17 ms fires behind queues.
FAST = {"rate": "20Mbps", "delay": "100us"}
RUN = "run"
CUT = Evidence(dropped=1, evs_lost=1)
DROPPED = Evidence(dropped=1)
NIC = Evidence(carried=0.05, ports_down=2, goodput=0.95)
#: Of a port that fails together with another there is nothing before to compare with.
ALSO = Evidence(ports_down=2)
#: Beside the fault itself: what windows of 50 ms of a few Mb/s scatter.
NEAR = 0.08


def lab(planes: int, t1: int, racks: int = 2, per_rack: int = 2, **more: object) -> Lab:
    """Return a small Clos of slow links; `more`: keys of its lab file."""
    given = {
        "name": "figure",
        "planes": planes,
        "t0_per_plane": racks,
        "t1_per_plane": t1,
        "hosts": racks * per_rack,
        "hosts_per_t0": per_rack,
        "links": {"host": LINK, "fabric": LINK},
        "path_mtu": 2048,
        "queues": QUEUES,
        "ev": {"size": 32 * planes, "active": 16 * planes},
        "clock": "virtual",
        **more,
    }
    return Lab.model_validate(given)


def fail(
    at: float,
    target: str,
    shown: Evidence,
    loss: float = 0.0,
    kind: str = "",
    settings: Mapping[str, float] | None = None,
) -> ExperimentStep:
    """Return the step that breaks something, with the evidence of it and the share of capacity that is lost."""
    return ExperimentStep(at=at, fail=target, kind=kind, settings=dict(settings or {}), loss=loss, evidence=shown)


def restore(at: float, target: str, loss: float = 0.0) -> ExperimentStep:
    """Return the step that mends something, after which this share of capacity is still lost."""
    return ExperimentStep(at=at, restore=target, loss=loss)


def pair_of_eight() -> Lab:
    """Return a lab of two hosts with eight ports each, like the paper's."""
    return lab(8, 4)


def racks() -> Lab:
    """Return two racks of four hosts with four ports each, and half as many uplinks again as needed."""
    return lab(4, 6, per_rack=4)


def one_pair(
    schedule: Sequence[ExperimentStep], duration: float, ev_profile: str = "default", **more: object
) -> Experiment:
    """Return one host writes to one in the other rack; `more`: keys of the experiment file."""
    params = {"message_bytes": 262144, "window": 6, "source": 0, "target": 1}
    workload = {"name": "write_bw", "params": params, "hosts": ["h0", "h2"], "duration": duration}
    return experiment({**workload, "ev_profile": ev_profile}, schedule, **more)


def across(
    schedule: Sequence[ExperimentStep],
    duration: float,
    message_bytes: int = 1048576,
    used: Tree | None = None,
    **more: object,
) -> Experiment:
    """Return each host of a rack of four sends to one of the other, and receives from it.

    Args:
        used: more keys of the workload.
        more: keys of the experiment file.
    """
    params = {"message_bytes": message_bytes, "window": 4, "shift": 4}
    return experiment({"name": "permutation", "params": params, "duration": duration, **(used or {})}, schedule, **more)


def segments(results: Results, name: str = RUN) -> list[Segment]:
    """Return the segments that the steps of the schedule left."""
    return results[name].segments


def tracks(results: Results, near: float = NEAR, glitch: float = 0.3) -> list[Measure]:
    """Measure that goodput follows the capacity, and that the loss of goodput in between is bounded."""
    found = segments(results)
    shares = [ratio(each.settled, each.left) for each in found]
    return [
        Measure("lowest settled goodput over capacity left", least(shares), 1 - near, 1 + near),
        Measure("highest settled goodput over capacity left", most(shares), 1 - near, 1 + near),
        Measure("longest glitch", most([each.glitch_s for each in found]), 0.0, glitch, "s"),
        Measure("least capacity left", least([each.left for each in found]), 0.0, 0.99),
    ]


def unmoved(results: Results, least_mean: float = 1 - NEAR) -> list[Measure]:
    """Measure that goodput stays what it was during every step."""
    found = segments(results)
    return [
        Measure(
            "lowest mean goodput of a step over that before", least([each.mean for each in found]), least_mean, 1.1
        ),
        Measure("queue pairs in error", results[RUN].qp_errors if found else math.nan, 0, 0),
    ]


def stays(results: Results) -> list[Measure]:
    """Measure that no loss of goodput lasts, and that the loss in between is bounded."""
    found = segments(results)
    return [
        Measure(
            "lowest settled goodput of a step over that before",
            least([each.settled for each in found]),
            1 - NEAR,
            1.1,
        ),
        Measure("longest glitch", most([each.glitch_s for each in found]), 0.0, 0.3, "s"),
        Measure("queue pairs in error", results[RUN].qp_errors if found else math.nan, 0, 0),
    ]


def _long(size: Size, quick: float, full: float) -> float:
    return quick if size == "quick" else full


def _one_by_one(size: Size) -> list[Cell]:
    step = _long(size, 0.6, 2.0)
    ports = ["h0:0", "h0:3", "h0:5", "h0:6"]
    down = [fail(step * (number + 1), port, NIC, 0.125 * (number + 1)) for number, port in enumerate(ports)]
    up = [restore(step * (5 + number), port, 0.125 * (3 - number)) for number, port in enumerate(reversed(ports))]
    return [Cell(RUN, pair_of_eight(), one_pair([*down, *up], step * 9), cost=step * 1.2)]


def _flapping_ports(size: Size) -> list[Cell]:
    half, count = _long(size, 0.5, 1.0), 2 if size == "quick" else 5
    schedule: list[ExperimentStep] = []
    for number in range(count):
        at = 1.0 + 2 * half * number
        schedule += [fail(at, "h0:1", NIC, 0.25), fail(at, "h0:6", ALSO, 0.25)]
        schedule += [restore(at + half, port) for port in ("h0:1", "h0:6")]
    duration = 1.0 + 2 * half * count
    return [Cell(RUN, pair_of_eight(), one_pair(schedule, duration), cost=duration * 0.2)]


def _two_at_once(size: Size) -> list[Cell]:
    step = _long(size, 0.6, 2.0)
    rounds = [("h0:0", "h0:4"), ("h2:1", "h2:5"), ("p2-t0.0--p2-t1.0", "p6-t0.0--p6-t1.1")]
    schedule: list[ExperimentStep] = []
    left = [0.25, 0.5, 0.5]
    for number, names in enumerate(rounds):
        for name in names:
            shown = CUT if ":" not in name else NIC if name == names[0] else ALSO
            schedule.append(fail(step * (number + 1), name, shown, left[number]))
    back = [0.5, 0.25, 0.0]
    for number, names in enumerate(reversed(rounds)):
        schedule += [restore(step * (4 + number), name, back[number]) for name in names]
    return [Cell(RUN, pair_of_eight(), one_pair(schedule, step * 7), cost=step * 1.4)]


def _transceiver(size: Size) -> list[Cell]:
    half, count = _long(size, 0.5, 1.5), 2 if size == "quick" else 4
    schedule: list[ExperimentStep] = []
    shown = Evidence(ports_down=4, goodput=0.9)
    for number in range(count):
        at = 0.8 + 2 * half * number
        schedule.append(fail(at, "p0-t0.0", shown, 0.25, "transceiver", {"count": 4}))
        schedule.append(restore(at + half, "p0-t0.0"))
    duration = 0.8 + 2 * half * count
    return [Cell(RUN, racks(), across(schedule, duration), cost=duration * 0.5)]


def _transceiver_judged(results: Results) -> list[Measure]:
    down = [each.settled for each in segments(results) if each.left < 1]
    up = [each.settled for each in segments(results) if each.left == 1]
    return [
        Measure("lowest goodput with 4 of 16 ports of a rack down", least(down), 0.69, 0.81),
        Measure("highest goodput with 4 of 16 ports of a rack down", most(down), 0.69, 0.81),
        Measure("lowest goodput between", least(up), 1 - NEAR, 1 + NEAR),
        Measure("queue pairs in error", results[RUN].qp_errors if down else math.nan, 0, 0),
    ]


def _transceiver_marks(results: Results) -> Iterator[Mark]:
    line = everything()(results)
    for result in results.values():
        for each in result.segments:
            low, high = (0.69, 0.81) if each.left < 1 else (1 - NEAR, 1 + NEAR)
            yield bounds_of(result, line, each, low, high)


EVS_8 = 8


def _t1_freezes(size: Size) -> list[Cell]:
    step = _long(size, 0.8, 3.0)
    schedule = [
        fail(step, "p1-t1.2", CUT, kind="freeze"),
        fail(2 * step, "p1-t1.2", DROPPED, kind="reboot"),
        restore(3 * step, "p1-t1.2"),
    ]
    profiles = [{"kind": "ev", "name": "few", "settings": {"active": EVS_8}}]
    used = {"ev_profile": "few", "qps_per_peer": 12}  # enough to know the share to a tenth
    document = across(schedule, 4 * step, used=used, profiles=profiles)
    return [Cell(RUN, racks(), document, cost=step * 2.7)]


def _t1_freezes_judged(results: Results) -> list[Measure]:
    found, result = segments(results), results[RUN]
    share = ratio(result.qps_hit, result.qps) if found else math.nan
    # EVs are spread over the planes first, and one T1 is of one plane.
    wanted = 1 - (1 - 1 / 6) ** (EVS_8 / 4)
    scatter = 2 * math.sqrt(wanted * (1 - wanted) / max(result.qps, 1))
    rest = found[1:]
    return [
        Measure("queue pairs that lose something on it", share, wanted - scatter, wanted + scatter),
        Measure("glitch when it freezes", found[0].glitch_s if found else math.nan, 0.0, 0.5, "s"),
        Measure(
            "goodput once the T1 is avoided, over before", found[0].settled if found else math.nan, 1 - NEAR, 1 + NEAR
        ),
        Measure(
            "lowest mean goodput from its reboot on, over before",
            least([each.mean for each in rest]),
            1 - NEAR,
            1 + NEAR,
        ),
        # All senders go on to their next messages, and so to other queue pairs, at about the same time.
        Measure("longest glitch from its reboot on", most([each.glitch_s for each in rest]), 0.0, 0.3, "s"),
    ]


def _switch_down(name: str, loss: float, shown: Evidence) -> Callable[[Size], list[Cell]]:
    def cells(size: Size) -> list[Cell]:
        step = _long(size, 0.8, 3.0)
        schedule = [fail(step, name, shown, loss, "stop"), restore(2 * step, name)]
        return [Cell(RUN, racks(), across(schedule, 3 * step), cost=step * 1.8)]

    return cells


def _links_in_steps(size: Size) -> list[Cell]:
    step = _long(size, 0.5, 2.0)
    links = [f"p{number}-t0.{number % 2}--p{number}-t1.{number}" for number in range(4)]
    links += ["p0-t0.0--p0-t1.3", "p2-t0.1--p2-t1.5"][: 0 if size == "quick" else 2]
    schedule = [fail(step * (number + 1), link, CUT) for number, link in enumerate(links)]
    return [Cell(RUN, racks(), across(schedule, step * (len(links) + 1)), cost=step * 0.6 * (len(links) + 1))]


NO_ROOM = (
    "the last steps leave as many uplinks at a T0 as it has hosts, so that links have no room for an uneven share; "
    "with one link of each plane down goodput stays within 8 %"
)


def _links_judged(results: Results) -> list[Measure]:
    lowest, *rest = stays(results)
    one_each = [each.settled for each in segments(results)[:4]]
    return [replace(lowest, differs=NO_ROOM if least(one_each) >= lowest.low else ""), *rest]


def _many_flap(size: Size) -> list[Cell]:
    half, count = _long(size, 0.8, 2.0), 2 if size == "quick" else 5
    links = [f"p{plane}-t0.{plane % 2}--p{plane}-t1.{t1}" for plane, t1 in ((0, 0), (1, 2), (2, 4), (3, 5))]
    schedule: list[ExperimentStep] = []
    for number in range(count):
        at = 0.8 + 2 * half * number
        schedule += [fail(at, link, DROPPED) for link in links]
        schedule += [restore(at + half, link) for link in links]
    duration = 0.8 + 2 * half * count
    return [Cell(RUN, racks(), across(schedule, duration), cost=duration * 0.5)]


def _lossy(size: Size) -> list[Cell]:
    step = _long(size, 1.0, 3.0)
    schedule = [fail(step, LOSSY, Evidence(dropped=5, evs_lost=1), settings={"loss": 0.2})]
    profiles = [{"kind": "ev", "name": "few", "settings": {"active": EVS_16}}]
    document = one_pair(schedule, 3 * step, "few", profiles=profiles)
    return [Cell(RUN, lab(4, 4), document, cost=step * 0.4, watch=(LOSSY_PORT,), watch_evs="h0")]


EVS_16 = 16
LOSSY, LOSSY_PORT = "p0-t0.0--p0-t1.1", "p0-t0.0:4"


def _lossy_judged(results: Results) -> list[Measure]:
    result = results[RUN]
    found = segments(results)
    sent = result.watched[LOSSY_PORT]
    before = [rate for time, rate in sent if found and found[0].at_s / 2 < time < found[0].at_s]
    after = [rate for time, rate in sent if found and time > (found[0].at_s + found[0].until_s) / 2]
    return [
        # A sixteenth of the packets losing a fifth costs goodput 1.3 %, which no bound on goodput can tell from noise.
        # Whether the EV left shows in what the link still carries.
        Measure("traffic on the lossy path, after over before", ratio(mean(after), mean(before)), 0.0, 0.3, paper=0.0),
        Measure("glitch", found[0].glitch_s if found else math.nan, 0.0, 0.3, "s"),
        Measure("queue pairs that left an EV", result.qps_hit, 1, result.qps),
        # A standby takes the place of each EV that leaves: the QP sends on as many as before, whenever it is asked.
        Measure("fewest active EVs", least([each.active for each in result.active_evs]), EVS_16, EVS_16, paper=EVS_16),
    ]


def _lossy_unused(results: Results) -> str:
    """Return why a seed does not count: EVs are drawn, and with some seeds none of the 16 crosses the path."""
    result = results[RUN]
    begin = result.segments[0].at_s if result.segments else math.inf
    # Probes go everywhere; a path that an EV uses has a sixteenth of the goodput beside them.
    used = window(result.watched[LOSSY_PORT], begin / 2, begin) >= before(result) / EVS_16 / 2
    return "" if used else "none of the QP's 16 EVs crosses the path, which carried but probes before the failure"


def _lossy_points(results: Results) -> Iterator[Point]:
    yield from goodput(results)
    for name, result in results.items():
        for number, (time, _, _) in enumerate(result.series):
            until = time + 0.05
            active = [each.active for each in result.active_evs if each.t_s <= until or not number]
            state = {each.ev: each.state for each in result.ev_changes if each.t_s <= until}
            bad = sum(each == EvState.ASSUMED_BAD.name for each in state.values())
            if active:
                yield Point(name, "active EVs", time, active[-1] if number else active[0], below=True)
            yield Point(name, "ASSUMED_BAD EVs", time, bad, below=True)


FIGURES = [
    Figure(
        "5-9d",
        "Many T0-T1 links flap at once",
        "T0-T1 links flap under a training job, many at a time (Fig. 5, 9d)",
        "4 planes, 2 racks of 4 hosts, 6 T1s a plane, 5 Mb/s a port; a link of each plane flaps, all at the same time",
        "negligible: goodput stays within 8 % of what it was, no QP fails",
        _many_flap,
        unmoved,
        goodput,
        TIME,
        line=everything(),
        marks=bounds(1 - NEAR, 1.1, settled=False),
    ),
    Figure(
        "6-7",
        "A transceiver of a T0 flaps: four NIC links at once",
        "a T0 transceiver carries four NIC links of one plane and flaps (Fig. 6, 7)",
        "4 planes, 2 racks of 4 hosts, 5 Mb/s a port; all four hosts of a rack lose plane 0",
        "a quarter less for the hosts of four planes while it is down, all of it again afterwards; no QP fails",
        _transceiver,
        _transceiver_judged,
        goodput,
        TIME,
        line=everything(),
        marks=_transceiver_marks,
    ),
    Figure(
        "8",
        "A T1 stops forwarding, and is rebooted in mid-job",
        "a T1 switch forwards nothing with its links up, and is later rebooted under load (Fig. 8)",
        "6 T1s a plane; 32 QPs with 8 active EVs each, two of them in the T1's plane",
        "a dip and recovery; QPs with an EV over that T1 see loss (about 1-(1-1/T1s)^EVs); the reboot is invisible",
        _t1_freezes,
        _t1_freezes_judged,
        goodput,
        TIME,
        line=everything(),
        marks=bounds(1 - NEAR, 1 + NEAR),
    ),
    Figure(
        "9a",
        "NIC ports fail one by one, and return",
        "eight 100 Gb/s ports, of which four fail one after another and return (Fig. 9a)",
        "eight ports of 5 Mb/s; one pair of hosts in two racks",
        "throughput tracks capacity within 8 %, and each glitch lasts 0.3 s at most",
        _one_by_one,
        tracks,
        goodput,
        TIME,
        line=everything(EIGHT),
        marks=bounds(1 - NEAR, 1 + NEAR),
    ),
    Figure(
        "9b",
        "Two NIC ports flap at the same time",
        "two of eight NIC ports flap (Fig. 9b)",
        "eight ports of 5 Mb/s; both are down for half of each period",
        "throughput tracks capacity within 8 %, and each glitch lasts 0.3 s at most",
        _flapping_ports,
        tracks,
        goodput,
        TIME,
        line=everything(EIGHT),
        marks=bounds(1 - NEAR, 1 + NEAR),
    ),
    Figure(
        "9c",
        "T0-T1 links go down in steps",
        "T0-T1 links are taken down step by step (Fig. 9c)",
        "6 uplinks for 4 hosts at each T0, of which one or two fail in each plane",
        "minimal change: goodput settles within 8 % of what it was, and each glitch lasts 0.3 s at most",
        _links_in_steps,
        _links_judged,
        goodput,
        TIME,
        line=everything(),
        marks=bounds(1 - NEAR, 1.1),
    ),
    Figure(
        "10",
        "A T0 goes down",
        "a T0 switch is lost (Fig. 10)",
        "4 planes; its rack of 4 hosts loses one",
        "one plane is lost: a quarter of the goodput, for as long as it is down",
        _switch_down("p1-t0.1", 0.25, Evidence(carried=0.05, ports_down=4, goodput=0.9)),
        tracks,
        goodput,
        TIME,
        line=everything(),
        marks=bounds(1 - NEAR, 1 + NEAR),
    ),
    Figure(
        "11",
        "A T1 goes down",
        "a T1 switch is lost (Fig. 11)",
        "6 T1s a plane, of which 4 would do",
        "nothing lasting: goodput within 8 % of what it was",
        _switch_down("p2-t1.1", 0.0, Evidence(dropped=1, carried=0.2, evs_lost=1)),
        stays,
        goodput,
        TIME,
        line=everything(),
        marks=bounds(1 - NEAR, 1.1),
    ),
    Figure(
        "12-13",
        "One of 16 paths loses a fifth of its packets",
        "a QP with 16 EVs, one of which loses 20 % (Fig. 12, 13)",
        "4 planes of 4 T1s, 16 active EVs and as many standbys",
        "the EV leaves, a standby takes its place, goodput stays flat",
        _lossy,
        _lossy_judged,
        _lossy_points,
        replace(TIME, below="EVs of the QP"),
        line=everything(),
        marks=bounds(1 - NEAR, 1 + NEAR),
        leave_out=_lossy_unused,
    ),
    Figure(
        "19",
        "NIC ports and T0-T1 links fail two at once",
        "links fail in pairs (Fig. 19)",
        "eight ports of 5 Mb/s; two ports of the sender, two of the receiver, two uplinks",
        "throughput tracks capacity within 8 %, and each glitch lasts 0.3 s at most",
        _two_at_once,
        tracks,
        goodput,
        TIME,
        line=everything(EIGHT),
        marks=bounds(1 - NEAR, 1 + NEAR),
    ),
]
