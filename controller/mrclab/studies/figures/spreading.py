"""Figures of damage that spreads to other flows: a second flow on a path, a pause storm, a flapping link."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mrc_topo.schema import Lab
from mrclab.results.expectation import Evidence
from mrclab.studies.cells.measure import Cell, Measured, changed, experiment
from mrclab.studies.figures.failures import CUT, DROPPED, FAST, across, fail, lab, restore, segments
from mrclab.studies.figures.model import (
    POLICIES,
    SHARE,
    Axes,
    Figure,
    Line,
    Mark,
    Measure,
    Point,
    Results,
    Size,
    bounds_of,
    each_goodput,
    everything,
    least,
    line_of,
    most,
    one_host,
    percent,
    ratio,
    window,
)

RUN = "run"
TIME = Axes("time, s", SHARE, "steps")
#: What is measured once a step has settled.
SETTLED_S = 0.5


#: Where only the first flow's packets go up: to the T1 that the second flow is forced onto, and to the other.
SHARED, FREE = "p0-t0.0:3", "p0-t0.0:4"
FIRST, SECOND = "h2", "h3"


LINES = {
    FIRST: "first flow",
    SECOND: "second flow",
    SHARED: "first flow, on the path of the second",
    FREE: "first flow, on its other path",
}


def _forced_points(results: Results) -> Iterator[Point]:
    line = one_host()(results)
    for name, result in results.items():
        for what, rows in result.watched.items():
            for time, rate in rows:
                yield Point(name, LINES[what], round(time, 2), percent(rate, line))


def _forced_marks(results: Results) -> Iterator[Mark]:
    result, line = results[RUN], one_host()(results)
    for each in result.segments:
        possible = percent(result.possible_bps, line)
        yield Mark(each.at_s + SETTLED_S, each.until_s, 0.85 * possible, 1.05 * possible, possible)


def _forced(size: Size) -> list[Cell]:
    step = 1.5 if size == "quick" else 5.0
    link = {"rate": "20Mbps", "delay": "1ms"}
    queues = {"limit": "256KiB", "ecn": {"kmin": "3KiB", "kmax": "9KiB"}, "trim": {"threshold": "192KiB"}}
    evs = {"size": 2, "active": 2, "min_active": 1}
    room = lab(1, 2, racks=3, links={"host": link, "fabric": link}, queues=queues, ev=evs)
    schedule = [fail(step, "p0-t0.2--p0-t1.1", CUT)]
    params = {"message_bytes": 262144, "window": 6, "shift": 2}
    hosts = ["h0", "h4", "h2", "h3"]  # h0 to h2 and h4 to h3, and back
    workload = {"name": "permutation", "params": params, "hosts": hosts, "duration": 3 * step}
    return [Cell(RUN, room, experiment(workload, schedule), cost=0.35 * step, watch=(FIRST, SECOND, SHARED, FREE))]


def _forced_judged(results: Results) -> list[Measure]:
    result, steps = results[RUN], segments(results)
    at, end = (steps[0].at_s, steps[0].until_s) if steps else (math.nan, math.nan)
    rows = result.watched
    early, late = (at / 2, at), (at + SETTLED_S, end)
    shares = [
        ratio(window(rows[SHARED], *when), window(rows[SHARED], *when) + window(rows[FREE], *when))
        for when in (early, late)
    ]
    possible = result.possible_bps
    return [
        Measure("first flow: share of its packets on the path in question, before", shares[0], 0.4, 0.6),
        Measure(
            "first flow: that share once the second is forced onto it, over before", ratio(*shares[::-1]), 0.0, 0.8
        ),
        Measure(
            "first flow afterwards, of what its link carries", ratio(window(rows[FIRST], *late), possible), 0.85, 1.05
        ),
        Measure(
            "second flow afterwards, of what its link carries", ratio(window(rows[SECOND], *late), possible), 0.85, 1.05
        ),
    ]


VARIANTS = (("MRC", "mrc"), ("RoCE", "roce"))
#: The host whose NIC is stuck, and those that neither send to it nor get anything from it.
STUCK, PARTNER = "h0", "h4"


def lossless(room: Lab) -> Lab:
    """Return a lab with the queues of RoCE's fabric and the same ECN."""
    queues = {"limit": "512KiB", "ecn": room.queues.ecn, "trim": None, "pfc": {"xoff": "16KiB"}}
    return changed(room, queues=queues)


def _storm(size: Size) -> list[Cell]:
    step = 1.0 if size == "quick" else 4.0
    link = {"rate": "20Mbps", "delay": "100us"}
    plain = lab(
        *(1, 4),
        per_rack=4,
        path_mtu=1024,
        links={"host": link, "fabric": link},
        reliability={"timeout": 18},
        ev={"size": 64, "active": 32},
    )
    others = tuple(f"h{number}" for number in range(8) if f"h{number}" not in (STUCK, PARTNER))
    made = []
    for name, transport in VARIANTS:
        roce = transport == "roce"
        shown = Evidence(pause_frames=1, paused=step / 2 if roce else None)
        schedule = [fail(step, f"{STUCK}:0", shown, kind="pause_storm"), restore(2 * step, f"{STUCK}:0")]
        # As many paths as it takes for a host not to miss the stuck one's by the luck of a hash.
        used = {"qps_per_peer": 4 if roce else 1}
        run = across(schedule, 3 * step, 65536, used, transport=transport)
        made.append(Cell(name, lossless(plain) if roce else plain, run, cost=step, watch=others, may_fail=roce))
    return made


def _others(result: Measured) -> float:
    """Return what the hosts without part in it get during the storm, over before."""
    steps = result.segments
    if not steps:
        return math.nan
    at, until = steps[0].at_s, steps[0].until_s
    rates = [sum(window(rows, *when) for rows in result.watched.values()) for when in ((at / 2, at), (at + 0.3, until))]
    return ratio(rates[1], rates[0])


def _storm_judged(results: Results) -> list[Measure]:
    mrc, roce = (results[name] for name, _ in VARIANTS)
    return [
        Measure("hosts without part in it, under MRC, over before", _others(mrc), 0.92, 1.08),
        Measure("hosts without part in it, under RoCE with PFC, over before", _others(roce), 0.0, 0.5),
        Measure("queue pairs of MRC in error", mrc.qp_errors if mrc.segments else math.nan, 0, 0),
    ]


def _storm_points(results: Results) -> Iterator[Point]:
    for name, result in results.items():
        line = _others_line(results)
        for rows in zip(*result.watched.values(), strict=True):
            yield Point(name, name, rows[0].t_s, percent(sum(each.bps for each in rows), line))


def _others_line(results: Results) -> Line:
    first = next(iter(results.values()))
    return line_of(len(first.watched), first)


def _storm_marks(results: Results) -> Iterator[Mark]:
    line = _others_line(results)
    for result, (low, high) in zip(results.values(), ((0.92, 1.08), (0.0, 0.5)), strict=True):
        for each in result.segments[:1]:
            base = percent(sum(window(rows, each.at_s / 2, each.at_s) for rows in result.watched.values()), line)
            yield Mark(each.at_s + 0.3, each.until_s, low * base, high * base)


def _flap(size: Size) -> list[Cell]:
    down = 0.6 if size == "quick" else 3.0
    schedule = [fail(0.8, FLAPPING, DROPPED), restore(0.8 + down, FLAPPING)]
    plain = lab(1, 6, per_rack=4, links={"host": FAST, "fabric": FAST}, reliability={"timeout": 14})
    return [
        Cell(
            name,
            lossless(plain) if transport == "roce" else plain,
            across(schedule, 1.6 + down, 262144, transport=transport),
            cost=0.45 * (1.6 + down),
            may_fail=transport == "roce",
        )
        for name, transport in VARIANTS
    ]


def _flap_marks(results: Results) -> Iterator[Mark]:
    result, line = results[VARIANTS[0][0]], everything()(results)
    for each in result.segments:
        yield bounds_of(result, line, each, 5 / 6, 1.1)


FLAPPING = "p0-t0.0--p0-t1.0"


def _flap_judged(results: Results) -> list[Measure]:
    mrc, roce = (results[name] for name, _ in VARIANTS)
    steps = mrc.segments
    return [
        Measure("queue pairs of RoCE in error", roce.qp_errors, 1, math.inf),
        Measure("queue pairs of MRC in error", mrc.qp_errors if steps else math.nan, 0, 0),
        Measure("longest glitch under MRC", most([each.glitch_s for each in steps]), 0.0, 0.5, "s"),
        Measure("lowest settled goodput under MRC, over before", least([each.settled for each in steps]), 5 / 6, 1.1),
    ]


FIGURES = [
    Figure(
        "14",
        "A second flow is forced onto one of two paths",
        "a QP with two EVs of one plane, and a second flow that is forced onto one of them (Fig. 14)",
        "3 racks, 2 T1s, 20 Mb/s; both flows end in the same rack; an uplink of the second one's T0 fails, so that it "
        "has one path left. ECN marks far below NSCC's target delay; changed after a first result: with marks from "
        "16 KiB on, NSCC slowed the second flow down before the first one had many",
        "the first flow moves to its other path; both stay near line rate",
        _forced,
        _forced_judged,
        _forced_points,
        Axes("time, s", "flows: payload; paths: packets; % of line rate", "steps"),
        differs="an ECN mark makes a QP pass over an EV once (SKIP_ONCE), so of two EVs the other one gets at most two "
        "packets of three: the first flow keeps a third on the path of which the second one needs all",
        line=one_host(),
        marks=_forced_marks,
        alternatives=POLICIES,
    ),
    Figure(
        "storm",
        "A pause storm spreads",
        "a NIC that is stuck asks for pauses without end; with PFC what waits for it fills the fabric (section on why "
        "RoCE is not enough)",
        "one plane of 2 racks of 4 hosts, 20 Mb/s, xoff 16 KiB; each host sends to one of the other rack; RoCE with "
        "4 QPs, PFC and DCQCN, MRC in its lossy class",
        "hosts that have nothing to do with the stuck one lose at least half of their goodput under RoCE, and nothing "
        "under MRC",
        _storm,
        _storm_judged,
        _storm_points,
        Axes("time, s", "hosts without part in it, % of line rate", "steps"),
        line=_others_line,
        marks=_storm_marks,
    ),
    Figure(
        "flap",
        "A link flaps: a RoCE job ends, an MRC job goes on",
        "a link between T0 and T1 flaps, and with it the job that is pinned to it (section on why RoCE is not enough)",
        "one plane of 6 T1s, 20 Mb/s, permutation of 8 hosts; a link is down for 0.6 s; RoCE gives up after 8 timeouts "
        "of 17 ms. Changed after a first result: at 5 Mb/s timeouts fired behind queues, and MRC had 17 % of line rate",
        "queue pairs of RoCE fail, none of MRC does, whose goodput stays above the 5/6 of its T0's uplinks that are "
        "left",
        _flap,
        _flap_judged,
        each_goodput,
        TIME,
        line=everything(),
        marks=_flap_marks,
    ),
]
