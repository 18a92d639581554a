"""Figures of RoCE and MRC in the same trouble: an incast with a victim, tails, a dead path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from mrc_topo.schema import Lab
from mrclab.runs.experiment import Tree
from mrclab.studies.cells.measure import Cell, Measured, changed, experiment
from mrclab.studies.figures.failures import DROPPED, FAST, across, fail, lab, restore
from mrclab.studies.figures.model import (
    POLICIES,
    SHARE,
    Alternative,
    Axes,
    Figure,
    Mark,
    Measure,
    Point,
    Results,
    Size,
    each_goodput,
    everything,
    least,
    mean,
    most,
    one_host,
    own_rates,
    ratio,
    shares,
)
from mrclab.studies.figures.transports import INFINIBAND, infiniband, long_links, lossless

SENDERS = 7
MARKED = (
    "the victim's packets are marked in the queue before the rack, which it shares with the seven, and DCQCN slows it "
    "to the rate of one of them; queues of 16 KiB hold 13 packets here, where the paper's hold a round trip and more"
)
FEW = "the fabric has four links upwards, and how many of them are paused at a time decides what the victim keeps"
#: What only a lossless fabric needs: room for what every port may have sent.
LOSSLESS = {"limit": "512KiB", "trim": None, "pfc": {"xoff": "16KiB"}}
ECN = {"kmin": "4KiB", "kmax": "16KiB"}


def _rack_lab(queues: Tree) -> Lab:
    """Return one plane, as RoCE would have it: ten hosts, two to a T0, four T1s."""
    link = {"rate": "20Mbps", "delay": "100us"}
    links = {"host": link, "fabric": link}
    return lab(1, 4, racks=5, path_mtu=1024, queues=queues, links=links, ev={"size": 64, "active": 32})


def _incast(size: Size) -> list[Cell]:
    length = 1.5 if size == "quick" else 6.0
    mrc = {"limit": "32KiB", "ecn": {"kmin": "3KiB", "kmax": "7KiB"}, "trim": {"threshold": "8KiB"}}
    variants = (
        ("MRC", "mrc", mrc),
        ("RoCE, PFC and DCQCN", "roce", {**LOSSLESS, "ecn": ECN}),
        ("RoCE, PFC only", "roce", {**LOSSLESS, "ecn": None}),
    )
    params = {"message_bytes": 65536, "target": 0, "victim": [8, 1], "sources": [2, 3, 4, 5, 6, 7, 9]}
    workload = {"name": "incast", "params": params, "duration": length}
    rooms = [(name, transport, _rack_lab(queues)) for name, transport, queues in variants]
    rooms.append((INFINIBAND, "roce", infiniband(_rack_lab(LOSSLESS), "16KiB")))
    return [
        # A pause that outlasts the ACK timeout makes RoCE send again what was not lost.
        Cell(
            name,
            changed(room, reliability={"timeout": 18}) if transport == "roce" else room,
            experiment(workload, transport=transport),
            cost=0.25 * length,
        )
        for name, transport, room in rooms
    ]


def _rates(results: Results, name: str, target: str) -> list[float]:
    """Return the rates of all streams to a host, as shares of line rate."""
    result = results[name]
    # The victim is alone: another stream's last messages do not count against its rate.
    rates = own_rates(result) if target == "h1" else shares(result)
    return [rate for each, rate in zip(result.streams, rates, strict=True) if each.destination == target]


def _jain(rates: list[float]) -> float:
    return ratio(sum(rates) ** 2, len(rates) * sum(rate * rate for rate in rates))


def _incast_judged(results: Results) -> list[Measure]:
    names = list(results)
    victims = [least(_rates(results, name, "h1")) for name in names]
    to_target = [_rates(results, name, "h0") for name in names]
    both = results[names[1]]
    over_all = zip(both.streams, shares(both), strict=True)  # compared with the senders, over the time of all
    slowed = least([rate for each, rate in over_all if each.destination == "h1"])
    return [
        # The paper's victim keeps its rate under MRC, loses 25 % with DCQCN, and has 30 to 100 of 400 Gb/s with PFC.
        Measure("the victim under MRC, of line rate", victims[0], 0.7, 1.0, paper=1.0),
        Measure(
            "the victim under RoCE with PFC only, of line rate", victims[2], 0.05, 0.3, paper=65 / 400, differs=FEW
        ),
        Measure(
            "the victim under RoCE with PFC and DCQCN over MRC's",
            ratio(victims[1], victims[0]),
            0.65,
            0.85,
            paper=0.75,
            differs=MARKED if slowed <= 1.5 * mean(to_target[1]) else "",
        ),
        Measure("the victim under InfiniBand-like over MRC's", ratio(victims[3], victims[0]), 0.0, 0.9),
        Measure("Jain's index of the seven under MRC", _jain(to_target[0]), 0.9, 1.0),
        Measure("their sum under MRC, of line rate", sum(to_target[0]), 0.7, 1.0),
        Measure("senders under MRC", len(to_target[0]), SENDERS, SENDERS),
        Measure("pause frames with PFC only", _pauses(results[names[2]], 0.0), 1, math.inf),
        Measure("what RoCE with PFC only lost", results[names[2]].retransmissions, 0, 0),
    ]


def _pauses(result: Measured, since_s: float) -> float:
    """Pause frames that switches sent from then on."""
    before = [each.pauses for each in result.queues if each.t_s <= since_s]
    return result.queues[-1].pauses - (before[-1] if before else 0.0) if result.queues else math.nan


def _one_sender(cell: Cell) -> Cell:
    """Return the cell with one sender, so that no queue grows."""
    return cell.with_params(sources=[2])


def _incast_points(results: Results) -> Iterator[Point]:
    for name in results:
        for rate in _rates(results, name, "h1"):
            yield Point(name, name, 0.0, 100 * rate)
        for number, rate in enumerate(sorted(_rates(results, name, "h0"))):
            yield Point(name, name, 1.0 + number, 100 * rate)


def _incast_marks(results: Results) -> Iterator[Mark]:
    mrc, both, pfc, credits = results
    victim = 100 * least(_rates(results, mrc, "h1"))
    yield Mark(0, 0, 70, 100, 100, mrc)
    yield Mark(0, 0, 0.65 * victim, 0.85 * victim, 0.75 * victim, both)
    yield Mark(0, 0, 5, 30, 6500 / 400, pfc)
    yield Mark(0, 0, 0, 0.9 * victim, series=credits)


PROFILES = ("paper", "nvidia", "hpcc")
FLOWS = (3, 7, 11, 15)
#: Seconds to leave out: what a sender at line rate queues before the first notification reaches it is not measured.
STEADY_S = 0.5


def _profiles(size: Size) -> list[Cell]:
    """Return the cells in which n hosts send to one below the same switch."""
    length = 1.5 if size == "quick" else 6.0
    link = {"rate": "50Mbps", "delay": "50us"}
    made = []
    for profile in PROFILES:
        for flows in FLOWS:
            queues = {
                "limit": "512KiB",
                "trim": None,
                "pfc": {"xoff": "8KiB"},
                "ecn": {"kmin": "5KiB", "kmax": "200KiB"},
            }
            room = lab(1, 0, racks=1, per_rack=16, path_mtu=1024, queues=queues, links={"host": link, "fabric": link})
            room = changed(room, ev={"size": 8, "active": 4}, roce={"dcqcn": profile})
            params = {"message_bytes": 65536, "target": 0, "sources": list(range(1, flows + 1))}
            workload = {"name": "incast", "params": params, "duration": length}
            run = experiment(workload, transport="roce")
            made.append(Cell(f"{profile}, {flows} flows", room, run, cost=0.3 * length))
    return made


def _steady_queue(result: Measured) -> float:
    return most([each.longest_bytes for each in result.queues if each.t_s >= STEADY_S])


def _profiles_judged(results: Results) -> list[Measure]:
    few, many = (_pauses(results[f"{PROFILES[0]}, {flows} flows"], STEADY_S) for flows in (FLOWS[0], FLOWS[-1]))
    queues = [_steady_queue(results[f"{profile}, {FLOWS[-1]} flows"]) for profile in PROFILES]
    # Beside a queue that stays empty any other is infinitely longer.
    longest = math.inf if least(queues) == 0 < most(queues) else ratio(most(queues), least(queues))
    return [
        Measure(f"pause frames in steady state, {PROFILES[0]}, {FLOWS[0]} flows", few, 0, 0),
        Measure(f"pause frames in steady state, {PROFILES[0]}, {FLOWS[-1]} flows", many, 1, math.inf),
        Measure("longest queue over the shortest, of the profiles", longest, 1.5, math.inf),
    ]


def _marked_gently(cell: Cell) -> Cell:
    """Return the cell with ECN that rises to 1 % at 200 KiB, as DCQCN's authors have it, and room for such a queue."""
    queues = cell.lab.queues.model_dump(mode="json", exclude_unset=True)
    # The slope is that from 5 KiB on to 1 % at 200 KiB; beyond it goes on, where the authors mark all packets.
    gentle = {"ecn": {"kmin": "5KiB", "kmax": f"{5 + 100 * 195}KiB"}, "limit": "4MiB", "pfc": {"xoff": "128KiB"}}
    return replace(cell, lab=changed(cell.lab, queues={**queues, **gentle}))


GENTLE = Alternative("ECN up to 1 %, xoff 128 KiB", "Zhu et al., SIGCOMM 2015: Pmax 1 %", _marked_gently)


def _profiles_points(results: Results) -> Iterator[Point]:
    for name, result in results.items():
        profile, flows, _ = name.replace(",", "").split()
        yield Point(name, f"profile {profile}", float(flows), _steady_queue(result) / 1024)
        yield Point(name, f"profile {profile}", float(flows), _pauses(result, STEADY_S), below=True)


def _three(cell: Cell) -> Cell:
    """Return the cell with three flows."""
    return cell.with_params(sources=[1, 2, 3])


BOTH = (("MRC", "mrc"), ("RoCE", "roce"))


def _tail(size: Size) -> list[Cell]:
    count = 15 if size == "quick" else 60  # five seeds have 300
    workload = {"name": "ring_all_reduce", "params": {"size_bytes": 1 << 20, "iterations": count}, "limit": 600}
    return [
        Cell(
            name,
            lossless(long_links(8)) if transport == "roce" else long_links(8),
            experiment(workload, transport=transport),
            {"loss": 0.001},
            3,
            cost=count * 0.28,
        )
        for name, transport in BOTH
    ]


def _tail_judged(results: Results) -> list[Measure]:
    mrc, roce = (
        most([ratio(each.times.max, each.times.mean) for each in results[name].iterations]) for name, _ in BOTH
    )
    lossy = all(result.lost for result in results.values())
    return [
        Measure("slowest over mean under MRC", mrc if lossy else math.nan, 1.0, 1.6),
        Measure("slowest over mean under RoCE", roce if lossy else math.nan, 1.2, math.inf),
        Measure("slowest over mean, RoCE's over MRC's", ratio(roce, mrc) if lossy else math.nan, 1.05, math.inf),
        Measure("slowest under MRC over the mean under RoCE", _slowest(results) if lossy else math.nan, 0.0, 1.0),
    ]


def _slowest(results: Results) -> float:
    mrc, roce = (results[name].iterations for name, _ in BOTH)
    return ratio(most([each.times.max for each in mrc]), most([each.times.mean for each in roce]))


def _tail_points(results: Results) -> Iterator[Point]:
    for name, result in results.items():
        for number, key in enumerate(("min", "typical", "mean", "max")):
            times = [getattr(each.times, key) for each in result.iterations]
            yield Point(name, name, float(number), most(times) / 1e6)


def _tail_marks(results: Results) -> Iterator[Mark]:
    for (name, _), (low, high) in zip(BOTH, ((1.0, 1.6), (1.2, math.inf)), strict=True):
        typical = most([each.times.mean for each in results[name].iterations]) / 1e6
        yield Mark(3, 3, low * typical, high * typical, series=name)


def _dead_path(size: Size) -> list[Cell]:
    length = 4.0 if size == "quick" else 10.0
    schedule = [fail(0.8, "p0-t1.0", DROPPED, kind="freeze"), restore(length - 0.8, "p0-t1.0")]
    return [
        Cell(
            name,
            lab(1, 4, per_rack=4, links={"host": FAST, "fabric": FAST}, reliability={"timeout": 14}),
            across(schedule, length, 262144, transport=transport),
            cost=length * 0.28,
            may_fail=transport == "roce",
        )
        for name, transport in BOTH
    ]


def _dead_path_judged(results: Results) -> list[Measure]:
    mrc, roce = (results[name] for name, _ in BOTH)
    there = bool(mrc.segments)
    return [
        Measure("queue pairs of MRC in error", mrc.qp_errors if there else math.nan, 0, 0),
        Measure("queue pairs of RoCE in error", roce.qp_errors, 1, math.inf),
        Measure("glitch under MRC", mrc.segments[0].glitch_s if there else math.nan, 0.0, 0.5, "s"),
    ]


FIGURES = [
    Figure(
        "18-21",
        "Seven to one, and a victim in the same rack",
        "7 to 1 incast and a victim flow to another host of the rack, which meets it in queues before that rack "
        "(head-of-line blocking); DCQCN, PFC only, MRC (Fig. 18, 21)",
        "one plane of 5 T0s and 4 T1s, 20 Mb/s; xoff 16 KiB per port, DCQCN with its usual parameters; "
        "InfiniBand-like: credits for 16 KiB per port, adaptive routing, no congestion control",
        "the victim keeps its rate only under MRC; the seven share fairly",
        _incast,
        _incast_judged,
        _incast_points,
        Axes(
            "the victim, and the seven by rate",
            "payload, % of line rate",
            "bars",
            ticks=("victim", *(f"{number + 1}" for number in range(SENDERS))),
        ),
        without=_one_sender,
        line=one_host("400 Gb/s"),
        marks=_incast_marks,
    ),
    Figure(
        "22",
        "The leaf's queue under DCQCN, by profile and number of flows",
        "15 to 1 incast below one leaf, three profiles of DCQCN's parameters (Fig. 22)",
        "16 hosts of 50 Mb/s below one switch; ECN from 5 to 200 KiB, xoff 8 KiB per port; 'paper' is the default",
        "the default falls into PFC beyond about 10 flows",
        _profiles,
        _profiles_judged,
        _profiles_points,
        Axes("flows", "longest queue, KiB", "lines", below="pause frames"),
        differs="a lab's xoff is fixed per port, and the more ports share a queue the less of it each holds, where "
        "the paper's switches divide a shared buffer; and a lab marks all packets from kmax on, not 1 % of them, so "
        "queues stay short",
        without=_three,
        alternatives=(GENTLE,),
    ),
    Figure(
        "tail",
        "The tail of a collective under 0.1 % loss",
        "the slowest of many makes a collective's time: it beside the mean (section on why RoCE is not enough)",
        "ring all-reduce of 1 MiB over 8 ranks, links with 2 ms of delay; RoCE with PFC and DCQCN",
        "the slowest stays near the mean under MRC, and does not under RoCE",
        _tail,
        _tail_judged,
        _tail_points,
        Axes("", "time of an iteration, ms", "bars", ticks=("min", "typical", "mean", "slowest")),
        differs="at this loss every iteration meets some seven losses, each of which costs RoCE much the same, so its "
        "mean is as far up as its slowest; MRC's few losses at the end of a message wait for its ACK timeout",
        marks=_tail_marks,
        alternatives=POLICIES,
    ),
    Figure(
        "dead-path",
        "A T1 stands still: a RoCE job ends, an MRC job goes on",
        "a flow that is pinned to a path dies with it (section on why RoCE is not enough)",
        "one plane of 4 T1s, 20 Mb/s, permutation of 8 hosts; retries end after some half a second. Changed after a "
        "first result: at 5 Mb/s timeouts fired behind queues, and MRC was slower than RoCE",
        "queue pairs of RoCE fail, none of MRC does",
        _dead_path,
        _dead_path_judged,
        each_goodput,
        Axes("time, s", SHARE, "steps"),
        line=everything(),
    ),
]
