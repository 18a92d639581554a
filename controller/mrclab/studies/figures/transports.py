"""Figures in which transports are compared, or one is measured by size: collectives, permutation, incast, latency."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from mrc_topo.schema import Lab
from mrclab.studies.cells.measure import Cell, changed, experiment
from mrclab.studies.figures.failures import lab
from mrclab.studies.figures.model import (
    Axes,
    Figure,
    Mark,
    Measure,
    Point,
    Results,
    Size,
    least,
    most,
    one_host,
    own_rates,
    ratio,
    shares,
)

KIB = 1024
LARGE_MTU = "no loss with path MTU 4096"
HEADERS = (
    "with a path MTU of 1 KiB MRC's SRv6 header, its RETH in every packet and a SACK for each packet take a tenth of "
    "the link more than RoCE's headers; with 4 KiB, beside it, most of the difference is gone"
)
SRV6 = (
    "of 4 KiB packets SRv6 takes 1 % of the link and a SACK for each packet 3 % of the way back, which a ring and "
    "all-to-all use as much; RoCE's 16 queue pairs have neither"
)
ONE = "after a collision DCQCN's recovery is slow against so short a transfer"
CONDITIONS = {"no loss": 0.0, "0.1 %": 0.001, "1 %": 0.01}
#: Name, transport, queue pairs per peer.
VARIANTS = (("MRC 1 QP", "mrc", 1), ("RoCE 1 QP", "roce", 1), ("RoCE 16 QPs", "roce", 16))


def long_links(hosts: int) -> Lab:
    """Return a lab of two planes with round trips of some 17 ms; a transport takes about one to repair a loss."""
    link = {"rate": "50Mbps", "delay": "2ms"}
    return lab(
        *(2, 4, hosts // 4, 4),
        path_mtu=1024,
        links={"host": link, "fabric": link},
        queues={"limit": "512KiB", "ecn": {"kmin": "64KiB", "kmax": "256KiB"}, "trim": {"threshold": "384KiB"}},
        ev={"size": 128, "active": 64},
        reliability={"timeout": 16},
    )


def lossless(room: Lab) -> Lab:
    """Return the fabric on which RoCE is deployed: PFC and ECN, no trimming, and headroom for packets that a pause is
    too late for.
    """
    queues = {"limit": "2MiB", "ecn": room.queues.ecn, "trim": None, "pfc": {"xoff": "128KiB"}}
    # The shortest ACK timeout that no pause reaches without loss; with a shorter one RoCE repeats what is on its way.
    return changed(room, queues=queues, reliability={"timeout": 18})


INFINIBAND = "InfiniBand-like"


def infiniband(room: Lab, buffer: str = "64KiB") -> Lab:
    """Return the fabric with credits and adaptive routing per packet; adapters put packets in order and know no
    congestion. What is modelled and what is not is in docs/fabric.md."""
    return changed(
        room,
        queues={"limit": "2MiB", "ecn": None, "trim": None, "credits": {"buffer": buffer}},
        roce={"repair": "reorder", "congestion_control": False},
        routing={"adaptive": {}},
        reliability={"timeout": 18},
    )


def _collective(name: str, workload: str, what: str, differs: str = "") -> Figure:
    def cells(size: Size) -> list[Cell]:
        hosts = 16 if size == "quick" else 64
        sizes = [4 << 20] if size == "quick" else [4 << 20, 16 << 20]  # 64 MiB at 64 ranks take 20 GiB of memory
        made = []
        plain = long_links(hosts)
        # What loses packets is not an InfiniBand, whose links repeat them.
        ways = [(*each, condition) for each in VARIANTS for condition in CONDITIONS.items()]
        ways.append((INFINIBAND, "roce", 1, ("no loss", 0.0)))
        ways += [(*each, (LARGE_MTU, 0.0)) for each in VARIANTS if each[0] != VARIANTS[1][0]]
        for number in sizes:
            # Every rank sends nearly twice the vector in a ring, and nearly all of it to the others in all-to-all.
            key, value = ("size_bytes", number) if workload == "ring_all_reduce" else ("block_bytes", number // hosts)
            for variant, transport, qps, (condition, loss) in ways:
                params = {key: value, "iterations": 1}
                run = {"name": workload, "params": params, "limit": 60, "qps_per_peer": qps}
                room = infiniband(plain) if variant == INFINIBAND else lossless(plain) if transport == "roce" else plain
                if condition == LARGE_MTU:
                    room = changed(room, path_mtu=4096)
                made.append(
                    Cell(
                        f"{variant}, {condition}, {number // KIB} KiB",
                        room,
                        experiment(run, transport=transport),
                        {"loss": loss} if loss else {},
                        1,
                        cost=number * hosts / 1.6e7,
                    )
                )
        return made

    def seconds(results: Results, variant: str, condition: str) -> float:
        """Return the time of the largest size, s; infinite where it failed."""
        found = [each for name, each in results.items() if name.startswith(f"{variant}, {condition}, ")]
        value = found[-1].iteration_s
        return math.inf if value is None else value

    def judge(results: Results) -> list[Measure]:
        mrc, one, many = (name for name, _, _ in VARIANTS)
        clean = seconds(results, mrc, "no loss")
        small = seconds(results, many, "no loss") / clean
        large = ratio(seconds(results, many, LARGE_MTU), seconds(results, mrc, LARGE_MTU))
        return [
            Measure(
                "RoCE 1 QP over MRC, no loss",
                seconds(results, one, "no loss") / clean,
                1.5,
                2.7,
                paper=2.0,
                differs=ONE,
            ),
            Measure(
                "RoCE 16 QPs over MRC, no loss",
                small,
                1.0,
                math.inf,
                paper=1.05,
                differs=HEADERS if large >= small + 0.05 else "",
            ),
            Measure(
                "RoCE 16 QPs over MRC, no loss, path MTU 4096",
                large,
                1.0,
                math.inf,
                paper=1.05,
                differs=SRV6 if large >= 0.95 else "",
            ),
            Measure("InfiniBand-like over MRC, no loss", seconds(results, INFINIBAND, "no loss") / clean, 0.7, 4.0),
            Measure("MRC at 0.1 % over none", seconds(results, mrc, "0.1 %") / clean, 0.95, 1.25),
            Measure("MRC at 1 % over none", seconds(results, mrc, "1 %") / clean, 1.005, 3.5),
            Measure("RoCE 1 QP at 1 % over MRC at 1 %", _over(results, one, mrc), 2.0, math.inf),
            Measure("RoCE 16 QPs at 1 % over MRC at 1 %", _over(results, many, mrc), 1.3, math.inf),
        ]

    def _over(results: Results, one: str, other: str) -> float:
        slow, fast = seconds(results, one, "1 %"), seconds(results, other, "1 %")
        return slow / fast if math.isfinite(fast) else math.nan

    def points(results: Results) -> Iterator[Point]:
        for run, each in results.items():
            variant, condition, length = run.split(", ")
            if each.iteration_s is not None and condition in CONDITIONS:
                place = float(list(CONDITIONS).index(condition))
                yield Point(run, f"{variant}, {length}", place, each.iteration_s * 1e3)

    def marks(results: Results) -> Iterator[Mark]:
        mrc, one, many = (name for name, _, _ in VARIANTS)
        length = list(results)[-1].rpartition(", ")[2]
        clean, _, slow = (1e3 * seconds(results, mrc, each) for each in CONDITIONS)
        for variant, place, low, high, paper in (
            (one, 0, 1.5 * clean, 2.7 * clean, 2.0 * clean),
            (many, 0, clean, math.inf, 1.05 * clean),
            (mrc, 1, 0.95 * clean, 1.25 * clean, math.nan),
            (mrc, 2, 1.005 * clean, 3.5 * clean, math.nan),
            (one, 2, 2.0 * slow, math.inf, math.nan),
            (many, 2, 1.3 * slow, math.inf, math.nan),
        ):
            if math.isfinite(low):
                yield Mark(place, place, low, high, paper, f"{variant}, {length}")

    return Figure(
        name,
        f"{what[0].upper()}{what[1:]} with and without loss",
        f"{what} of 16 and 64 NICs by MRC with 1 QP, RoCE with 1 and 16, at 0, 0.1 and 1 % loss (Fig. {name})",
        "16 ranks (64 with --full) of two ports of 50 Mb/s, 4 MiB (16 MiB, too, with --full); RoCE with PFC, ECN and "
        "DCQCN, InfiniBand-like (without loss only: its links repeat) with credits and adaptive routing; one plane for "
        "each QP, and the shortest ACK timeout that pauses do not reach (268 ms; MRC: 67). Changed after a first "
        "result: RoCE had no PFC, and MRC's timeout, which fired behind queues without loss",
        "RoCE with 1 QP needs about twice as long; 0.1 % costs MRC little; at 1 % MRC slows to a third at worst, and "
        "RoCE far more",
        cells,
        judge,
        points,
        Axes("packets lost on links between switches", "time of an iteration, ms", "bars", ticks=tuple(CONDITIONS)),
        differs,
        marks=marks,
        many=1,
    )


def _permutation(size: Size) -> list[Cell]:
    per_rack = 8
    # A round trip holds some 35 packets, as that of the paper's fabric: a window of a few packets cannot fill a path.
    link = {"rate": "20Mbps", "delay": "4ms"}
    plain = lab(
        *(1, per_rack, 2, per_rack),
        path_mtu=2048,
        links={"host": link, "fabric": link},
        queues={"limit": "256KiB", "ecn": {"kmin": "32KiB", "kmax": "128KiB"}, "trim": {"threshold": "192KiB"}},
        ev={"size": 128, "active": 64},
    )
    length = 3.0 if size == "quick" else 8.0
    params = {"message_bytes": 1 << 20, "window": 4, "shift": per_rack}
    workload = {"name": "permutation", "params": params, "duration": length, "qps_per_peer": 1}
    rooms = (
        (VARIANTS[0][0], "mrc", plain),
        (VARIANTS[1][0], "roce", lossless(plain)),
        (INFINIBAND, "roce", infiniband(plain)),
    )
    return [
        Cell(name, room, experiment(workload, transport=transport), cost=0.7 * length)
        for name, transport, room in rooms
    ]


def _permutation_judged(results: Results) -> list[Measure]:
    mrc, roce = (own_rates(results[name]) for name, _, _ in VARIANTS[:2])
    credits = own_rates(results[INFINIBAND])
    possible = results[VARIANTS[0][0]].payload_share or 0.0
    return [
        Measure("slowest stream under MRC, of what headers and SACKs leave", ratio(least(mrc), possible), 0.9, 1.0),
        Measure("slowest stream under MRC, of line rate", least(mrc), 0.8, 1.0),
        Measure("slowest stream under RoCE 1 QP, of line rate", least(roce), 0.1, 0.55),
        Measure("fastest stream under RoCE 1 QP, of line rate", most(roce), 0.7, 1.0),
        Measure("slowest stream under InfiniBand-like, of line rate", least(credits), 0.6, 1.0),
    ]


def _permutation_marks(results: Results) -> Iterator[Mark]:
    last = len(own_rates(results[VARIANTS[1][0]])) - 1
    yield Mark(-0.4, 0.4, 10, 55)
    yield Mark(-0.4, 0.4, 80, 100)
    yield Mark(last - 0.4, last + 0.4, 70, 100)


def _in_rack(cell: Cell) -> Cell:
    """Return the cell with traffic between neighbours in a rack, which share no link, so that nothing can collide."""
    return cell.with_workload(name="send_recv", params={"message_bytes": 1 << 20, "window": 4})


def _streams(results: Results) -> Iterator[Point]:
    for name, result in results.items():
        for number, share in enumerate(sorted(own_rates(result))):
            yield Point(name, name, float(number), 100 * share)


LAT_SIZE = 32 * KIB


def _one_lab() -> Lab:
    link = {"rate": "50Mbps", "delay": "100us"}
    return lab(
        *(4, 4),
        path_mtu=4096,
        links={"host": link, "fabric": link},
        queues={"limit": "256KiB", "ecn": {"kmin": "32KiB", "kmax": "128KiB"}, "trim": {"threshold": "192KiB"}},
        ev={"size": 128, "active": 64},
    )


def _latency(size: Size) -> list[Cell]:
    count = 100 if size == "quick" else 1000
    made: list[Cell] = []
    for name, target in (("T0-local", "h1"), ("across T1", "h2")):
        params = {"message_bytes": 2, "source": 0, "target": 1, "iterations": count}
        run = experiment({"name": "write_lat", "params": params, "hosts": ["h0", target]})
        made.append(Cell(name, _one_lab(), run, cost=count / 300))
    for length in (2 * KIB, 8 * KIB, LAT_SIZE, 128 * KIB):
        params = {"message_bytes": length, "window": 16, "source": 0, "target": 1}
        bounds = {"hosts": ["h0", "h2"], "duration": 0.5, "qps_per_peer": 4}
        run = experiment({"name": "write_bw", "params": params, **bounds})
        made.append(Cell(f"4 QPs, {length} B", _one_lab(), run, cost=0.6))
    return made


def _typical(results: Results, name: str) -> float:
    return float(results[name].latency[0].times.typical) if results[name].latency else math.nan


def _latency_judged(results: Results) -> list[Measure]:
    share = least(shares(results[f"4 QPs, {LAT_SIZE} B"]))
    far = ratio(_typical(results, "across T1"), _typical(results, "T0-local"))
    return [
        Measure("latency across T1 over T0-local", far, 1.5, 2.5),
        Measure("4 QPs of 32 KiB: payload, of line rate", share, 0.9, 1.0),
    ]


def _latency_marks(results: Results) -> Iterator[Mark]:
    yield Mark(LAT_SIZE / 1.4, LAT_SIZE * 1.4, 90, 100, 96)


def _latency_points(results: Results) -> Iterator[Point]:
    for name in results:
        if name.startswith("4 QPs"):
            yield Point(name, "4 QPs", float(name.split()[2]), 100 * least(shares(results[name])))


def _local(cell: Cell) -> Cell:
    """Return the cell with both hosts in the same rack."""
    return cell.with_workload(hosts=["h0", "h1"])


SIZES = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB)


def _send_recv(size: Size) -> list[Cell]:
    length = 0.5 if size == "quick" else 2.0
    bounds = {"hosts": ["h0", "h2", "h1", "h3"], "duration": length}
    return [
        Cell(
            f"{number} B",
            _one_lab(),
            experiment({"name": "send_recv", "params": {"message_bytes": number, "window": 2}, **bounds}),
            cost=length * 0.6,
        )
        for number in SIZES
    ]


def _send_recv_judged(results: Results) -> list[Measure]:
    rates = [least(shares(results[name])) for name in results]
    steps = [later / earlier if earlier else math.nan for earlier, later in itertools.pairwise(rates)]
    return [
        Measure("per NIC with the largest messages, of line rate", rates[-1], 0.8, 1.0),
        Measure("per NIC with the smallest messages, of line rate", rates[0], 0.0, 0.5),
        Measure("least growth from one size to the next", least(steps), 0.98, math.inf),
    ]


def _send_recv_points(results: Results) -> Iterator[Point]:
    for name, result in results.items():
        for each in result.streams:
            line, stream = f"{each.source} to {each.destination}", each.stream
            yield Point(name, line, float(stream.message_bytes), 100 * ratio(stream.average_bps, result.host_bps))


def _send_recv_marks(results: Results) -> Iterator[Mark]:
    yield Mark(SIZES[-2] * 1.4, SIZES[-1], 80, 100)
    yield Mark(SIZES[0], SIZES[0] * 1.4, 0, 50)


def _largest(cell: Cell) -> Cell:
    """Return the cell with the largest message size."""
    return cell.with_params(message_bytes=SIZES[-1])


FIGURES = [
    Figure(
        "table",
        "Latency of 2 B, bandwidth of 4 QPs by size",
        "1 QP: latency of 2 B below one T0 and across T1; 4 QPs: bandwidth by size, at least 96 % of line at 32 KB",
        "4 ports of 50 Mb/s, links of 100 us, path MTU 4096; share of payload: headers take 3 to 4 % of the line",
        "across T1 about twice as long; at least 90 % of line rate as payload at 32 KiB",
        _latency,
        _latency_judged,
        _latency_points,
        Axes("message", "payload, % of line rate", log_x=True),
        without=_local,
        line=one_host(),
        marks=_latency_marks,
    ),
    Figure(
        "15",
        "Send and receive by size",
        "sendrecv between pairs of hosts, bandwidth per NIC by message size (Fig. 15)",
        "4 ports of 50 Mb/s, both ways at once, two messages of a stream under way at a time",
        "bandwidth per NIC grows with the size, to at least 80 % of line rate",
        _send_recv,
        _send_recv_judged,
        _send_recv_points,
        Axes("message", "payload per NIC, % of line rate", log_x=True),
        without=_largest,
        line=one_host(),
        marks=_send_recv_marks,
    ),
    _collective("16", "ring_all_reduce", "ring all-reduce"),
    _collective("17", "all_to_all", "all-to-all"),
    Figure(
        "20",
        "Permutation across racks",
        "eight hosts of a rack each to one of another, as many T1s (Fig. 20)",
        "16 hosts of one port of 20 Mb/s, 8 T1s, both ways at once; RoCE by ECMP, with PFC and DCQCN; InfiniBand-like: "
        "credits, and adaptive routing per packet; links of 4 ms, so that a round trip holds 35 packets as in the "
        "paper's fabric. Changed after a first result: with links of 0.1 ms a window held 8 packets, which do not fill "
        "a path of four hops, and MRC had 0.73 of line rate; and a stream's rate is that over its own time, not "
        "over that of all, in which a fast one waits for credits behind slow data on its peer's only QP",
        "with RoCE 1 QP some streams get a half or a third or less; with MRC all are near line rate: at least 90 % of "
        "what headers and SACKs leave of it",
        _permutation,
        _permutation_judged,
        _streams,
        Axes("stream, by rate", "payload, % of line rate"),
        without=_in_rack,
        line=one_host(),
        marks=_permutation_marks,
    ),
]
