"""Documents of the live view: a layout, which does not change, and a state, which does many times a second.

Both are plain JSON. The state refers to the layout by place: item i of `links` is link i of the layout. Bytes, packets
and drops are totals since the hosts' and switches' own beginning, and never fall unless one starts again; `*_bps` are
rates over the time since the sample before. Times are ns after `Layout.began_ns` of the session's clock.

What is not known (a host that does not answer, a switch that is dead, a recorded run that does not have it) is absent
from its row, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NotRequired, TypedDict

from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Setting
from mrclab.lab.faults.kinds import KINDS, OfPort, OfSwitch

FORMAT: Final = 1

Mode = Literal["lab", "simulation", "run"]


class HostLayout(TypedDict):
    """A host; its port number is the plane. `tenant`: empty for a host in none, left out in a lab without tenants."""

    name: str
    t0: int
    tenant: NotRequired[str]


class SwitchLayout(TypedDict):
    """A switch; `tier` is t0 or t1, `index` its number in plane and tier."""

    name: str
    plane: int
    tier: str
    index: int


class LinkLayout(TypedDict):
    """A link: `low` is a host or T0, `high` a T0 or T1. `up` is from low to high."""

    name: str
    plane: int
    low: str
    low_port: int
    high: str
    high_port: int
    rate_bps: int
    delay_ns: int


class KindLayout(TypedDict):
    """A kind of failure: the elements it fits (link, port, switch), its settings, and whether it can hit one direction
    alone."""

    name: str
    summary: str
    fits: list[str]
    takes: list[str]
    directed: bool


class Layout(TypedDict):
    """The part of a view that does not change during a session.

    `mode`: a lab on the real clock, a simulation, or a recorded run. `can`: the commands that are possible.
    `length_ns`: the length of a recorded run. `queue_limit`: bytes that one queue of a switch holds.
    """

    format: int
    number: int
    mode: Mode
    lab: str
    description: str
    transport: str
    clock: str
    began_ns: int
    length_ns: NotRequired[int]
    planes: int
    queue_limit: int
    hosts: list[HostLayout]
    switches: list[SwitchLayout]
    links: list[LinkLayout]
    kinds: list[KindLayout]
    workloads: Mapping[str, Mapping[str, int | str | None]]
    experiments: list[str]
    can: list[str]


class Congestion(TypedDict, total=False):
    """Congestion control of a host's senders: window and bytes in flight (sums over peers), round-trip time (mean over
    peers); under RoCE the rate."""

    cwnd: int
    inflight: int
    rtt_ns: int
    rate_bps: int


class HostState(TypedDict, total=False):
    """A host, as `mrc_host.node.samples.condense` returns it. `alive`: its agent answers; `error`: why it does not.

    `goodput_bps`: payload placed at this host. `tx_bytes`, `rx_bytes`, `tx_bps`, `rx_bps`: by plane. `ev`: how many
    EVs of its queue pairs are in each state (GOOD, SKIP, ASSUMED_BAD, DENIED). `denied_evs`: how many it keeps denied,
    for later queue pairs, too.
    """

    alive: bool
    error: str
    ports_up: int
    delivered_bytes: int
    goodput_bps: int
    tx_bytes: list[int]
    rx_bytes: list[int]
    tx_bps: list[int]
    rx_bps: list[int]
    packets: int
    retransmissions: int
    losses: int
    trims: int
    marks: int
    timeouts: int
    ev: dict[str, int]
    denied_evs: int
    cc: Congestion


class SwitchState(TypedDict, total=False):
    """A switch. `state`: running, frozen, stopped or dead. `queue_bytes` wait in it; it lost `drops` packets for any
    reason, `lost` of them because of a failure; `trimmed` and `marked` count packets, where the program counts them."""

    state: str
    queue_bytes: int
    drops: int
    lost: int
    trimmed: int
    marked: int


class LinkRow(TypedDict, total=False):
    """A link: the rates in each direction, and the bytes that wait at its low (`up_`) and high (`down_`) end, if that
    end is a switch. `state`: up, cut, cut_up, cut_down (one direction), or dark (one end does not run); `impaired`: a
    failure in force makes it worse; `denied`: it is on the denylist."""

    state: str
    impaired: bool
    denied: bool
    up_bytes: int
    down_bytes: int
    up_bps: int
    down_bps: int
    up_queue_bytes: int
    down_queue_bytes: int
    drops: int
    lost: int


class PlaneState(TypedDict):
    """A plane: the bytes that hosts received on it, and how many of its host ports have a working link."""

    rx_bps: int
    ports_up: int


class ActiveFailure(TypedDict):
    """A failure in force (`mrclab.lab.faults.action.Action`), with its description."""

    target: str
    kind: str
    direction: str
    settings: dict[str, Setting]
    text: str


class Scheduled(TypedDict):
    """A step of an experiment's schedule."""

    t_ns: int
    text: str
    breaks: bool


class Job(TypedDict, total=False):
    """The workload that runs or ran last. `iterations`: those of the slowest rank; `step_ns`: the mean duration of its
    latest iterations; `completion_ns`: the same, or how long the present one lasts already, if that is longer (0: none
    has begun, or iterations overlap); `ended_ns`: when it ended (-1: not yet); `verdict`: so far (`good`, `failed`), or
    of the finished experiment."""

    name: str
    workload: str
    params: Mapping[str, object]
    hosts: list[str]
    running: bool
    began_ns: int
    ended_ns: int
    iterations: int
    step_ns: int
    completion_ns: int
    bytes_verified: int
    mismatches: int
    failures: list[str]
    verdict: str
    schedule: list[Scheduled]


class FidelityState(TypedDict, total=False):
    """Whether the machine keeps up (`mrclab.lab.session.fidelity`); for a simulation this always holds."""

    valid: bool
    simulated: bool
    reasons: list[str]


class ViewState(TypedDict):
    """A lab at a moment.

    `number` counts states of this view; `layout` is the number of the layout that this one refers to. `phase`: running,
    paused, ended (no more states follow), lost (the lab is gone; `problem` says why). `speed`: the clock's speed
    relative to the wall's, `asked_speed`: the chosen one (0: as fast as possible). `log_end`: how many lines the log
    has had. `found`: the elements that the hosts' probes find dead or lossy; `captures`: ports whose packets are
    written to a file. `commands`: how many commands were carried out.
    """

    format: int
    number: int
    layout: int
    t_ns: int
    phase: Literal["running", "paused", "ended", "lost"]
    problem: str
    speed: float
    asked_speed: float
    hosts: list[HostState]
    switches: list[SwitchState]
    links: list[LinkRow]
    planes: list[PlaneState]
    goodput_bps: int
    broken: list[ActiveFailure]
    denied: list[str]
    found: dict[str, str]
    captures: list[str]
    job: Job | None
    fidelity: FidelityState
    log_end: int
    commands: int


class Completions(TypedDict):
    """The completion times of a run. `rows`: times (ns) in order, and for each the median and P99 (ns, None: nothing
    ended) of what ended in the `window_ns` before it, and how many that were. `what` ended: step or flow; empty, with
    `why`, where single completion times are not known."""

    what: Literal["", "step", "flow"]
    window_ns: int
    rows: list[list[int | None]]
    why: str


class ChangedEv(TypedDict):
    """An EV that a line of the log names: when it changed, its value, and the queue pair with its peer (empty where
    nothing names the peer)."""

    t_ns: int
    ev: int
    peer: str
    qpn: int


class LogRow(TypedDict):
    """A line of the log. `what`: command, failure, restore, ev, port, qp, fault, found, job, death, note; `element`:
    the link, switch or host concerned, if any. `t_ns` of a failure or a restore is when it began, so that it is before
    what the hosts noticed of it, and `done_ns` when it was done. `changed`: how many EVs changed; `evs`: the first of
    them, oldest first, empty when they are no longer kept."""

    number: int
    t_ns: int
    what: str
    text: str
    element: str
    done_ns: NotRequired[int]
    changed: NotRequired[int]
    evs: NotRequired[list[ChangedEv]]


class EvRow(TypedDict):
    """An EV of a queue pair. `links`: the links that it crosses, by index in the layout (empty where switches choose).
    `used_ns`: when it was last seen in flight (-1: never since observation began); `losses`: the losses inferred on it.
    `since_ns`: when it came into its state, `cause`: why. Both are of the host's log, which has no changes between GOOD
    and SKIP; -1 and empty where it does not have the latest change.
    """

    ev: int
    plane: int
    state: str
    active: bool
    losses: int
    used_ns: int
    since_ns: int
    cause: str
    links: list[int]


class PairQp(TypedDict):
    """A queue pair of a selected pair of hosts."""

    qpn: int
    state: str
    evs: list[EvRow]


class Pair(TypedDict):
    """A selected pair of hosts: the queue pairs from `source` to `destination`, and the source's congestion control
    towards the destination. `error`: why there is no data."""

    source: str
    destination: str
    error: str
    qps: list[PairQp]
    cwnd: int
    inflight: int
    rtt_ns: int
    packets: int
    retransmissions: int


def kinds_layout() -> list[KindLayout]:
    """Return all kinds of failure."""
    found: list[KindLayout] = []
    for kind in KINDS.values():
        fits = ["switch"] if isinstance(kind, OfSwitch) else ["port"] if isinstance(kind, OfPort) else ["link", "port"]
        found.append(
            {
                "name": kind.name,
                "summary": kind.summary,
                "fits": fits,
                "takes": sorted(kind.takes),
                "directed": kind.directed,
            }
        )
    return found


def layout_of(
    topology: Topology,
    mode: Mode,
    *,
    clock: str,
    transport: str,
    began_ns: int,
    can: list[str],
    workloads: Mapping[str, Mapping[str, int | str | None]] | None = None,
    experiments: Sequence[str] = (),
    length_ns: int | None = None,
) -> Layout:
    """Return the layout of a lab."""
    lab = topology.lab
    made: Layout = {
        "format": FORMAT,
        "number": 0,
        "mode": mode,
        "lab": lab.name,
        "description": lab.description,
        "transport": transport,
        "clock": clock,
        "began_ns": began_ns,
        "planes": lab.planes,
        "hosts": [
            {"name": host.name, "t0": host.t0, "tenant": host.segment.name}
            if lab.tenants
            else {"name": host.name, "t0": host.t0}
            for host in topology.hosts
        ],
        "switches": [
            {"name": each.name, "plane": each.plane, "tier": each.tier.name.lower(), "index": each.index}
            for each in topology.switches
        ],
        "links": [
            {
                "name": link.name,
                "plane": link.plane,
                "low": link.low.node,
                "low_port": link.low.port,
                "high": link.high.node,
                "high_port": link.high.port,
                "rate_bps": link.spec.rate,
                "delay_ns": link.spec.delay,
            }
            for link in topology.links.values()
        ],
        "queue_limit": topology.lab.queues.limit,
        "kinds": kinds_layout(),
        "workloads": workloads or {},
        "experiments": list(experiments),
        "can": can,
    }
    if length_ns is not None:
        made["length_ns"] = length_ns
    return made


def calm(layout: Layout, number: int) -> ViewState:
    """Return the state of an undisturbed lab without traffic, at its tenth of a second `number`."""
    planes = range(layout["planes"])
    return {
        "format": FORMAT,
        "number": number,
        "layout": layout["number"],
        "t_ns": number * 100_000_000,
        "phase": "running",
        "problem": "",
        "speed": 1.0,
        "asked_speed": 1.0,
        "hosts": [{"alive": True, "goodput_bps": 0, "rx_bps": [0 for _ in planes]} for _ in layout["hosts"]],
        "switches": [{"state": "running", "queue_bytes": 0} for _ in layout["switches"]],
        "links": [{"state": "up", "impaired": False, "denied": False} for _ in layout["links"]],
        "planes": [{"rx_bps": 0, "ports_up": 1} for _ in planes],
        "goodput_bps": 0,
        "broken": [],
        "denied": [],
        "found": {},
        "captures": [],
        "job": None,
        "fidelity": {"valid": True, "reasons": []},
        "log_end": 0,
        "commands": 0,
    }
