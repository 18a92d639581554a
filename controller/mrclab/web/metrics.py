"""Metrics of the live view for Prometheus: text in the exposition format 0.0.4.

A pure function of layout and state. Base units (bytes, seconds), counters end in `_total`, what is not known is absent.
Rates that the lab's own clock gives are gauges: of a simulation, `rate()` would count the seconds of the wall.

The number of series is bounded: each switch, host and link has a fixed number of them, and in a lab of more than
`DETAILED` links or hosts those have none of their own; the sums by plane, tier and state remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from mrc_host.proto.events import EvState
from mrclab.web.state import Layout, ViewState

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
#: In labs with more hosts, or links, than this, single hosts or links have no series of their own.
DETAILED: Final = 1024
#: The largest number of failures in force that are named.
NAMED: Final = 100
PHASES: Final = ("running", "paused", "ended", "lost")
EV_STATES: Final = tuple(each.name for each in EvState)
LINK_STATES: Final = ("up", "cut", "cut_up", "cut_down", "dark", "unknown")
TIERS: Final = ("host", "fabric")
#: The states in which the Clustermapper finds an element.
FINDINGS: Final = ("dead", "lossy")

Type = Literal["counter", "gauge"]
Labels = tuple[str, ...]
#: A family's name, the values of its labels, and the value.
Sample = tuple[str, Labels, float]


@dataclass(frozen=True)
class Family:
    """Series of one name; `labels` are the names of their labels."""

    name: str
    type: Type
    help: str
    labels: Labels = ()

    def __post_init__(self) -> None:
        """Check the naming conventions. Raises ValueError."""
        if self.type not in get_args(Type) or (self.type == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: a counter ends in _total, and nothing else does")


def _families() -> Iterator[Family]:
    yield Family("mrclab_up", "gauge", "1 while the lab, the simulation or the recorded run can be looked at.")
    yield Family("mrclab_lab_info", "gauge", "What is looked at.", ("lab", "mode", "clock", "transport"))
    yield Family("mrclab_phase", "gauge", "1 for the phase that the view is in.", ("phase",))
    yield Family("mrclab_session_seconds", "gauge", "Time of the lab's clock since the view began.")
    yield Family("mrclab_speed_ratio", "gauge", "Speed of the lab's clock over that of the wall.")
    yield Family("mrclab_fidelity_valid", "gauge", "1 while the machine keeps up with the lab.")
    yield Family("mrclab_goodput_bytes_per_second", "gauge", "Payload placed in memory at all hosts.")
    yield Family("mrclab_evs", "gauge", "Entropy values of all queue pairs, by state.", ("state",))
    yield Family("mrclab_detail", "gauge", "1 where each has series of its own, 0 in a lab too large for it.", ("of",))
    # Hosts.
    host, plane = ("host",), ("host", "plane")
    yield Family("mrclab_host_up", "gauge", "1 while the host's agent answers.", host)
    yield Family("mrclab_host_ports_up", "gauge", "Ports of the host that have a carrier.", host)
    yield Family("mrclab_host_delivered_bytes_total", "counter", "Payload placed in memory at the host.", host)
    yield Family("mrclab_host_goodput_bytes_per_second", "gauge", "Payload placed in memory at the host.", host)
    yield Family("mrclab_host_transmitted_bytes_total", "counter", "Bytes sent on a port of the host.", plane)
    yield Family("mrclab_host_received_bytes_total", "counter", "Bytes received on a port of the host.", plane)
    for key, text in COUNTED.items():
        yield Family(f"mrclab_host_{key}_total", "counter", text, host)
    yield Family("mrclab_host_evs", "gauge", "Entropy values of the host's queue pairs, by state.", ("host", "state"))
    yield Family(
        "mrclab_congestion_window_bytes", "gauge", "Window of NSCC, or of what is in its place: sum over peers.", host
    )
    yield Family("mrclab_congestion_inflight_bytes", "gauge", "Bytes in flight: sum over peers.", host)
    yield Family("mrclab_congestion_rtt_seconds", "gauge", "Smoothed round-trip time: mean over peers.", host)
    yield Family(
        "mrclab_congestion_rate_bytes_per_second", "gauge", "Rate that RoCE's DCQCN allows: sum over queue pairs.", host
    )
    # Planes, switches, links.
    yield Family("mrclab_plane_received_bytes_per_second", "gauge", "What all hosts receive on the plane.", ("plane",))
    yield Family("mrclab_plane_ports_up", "gauge", "Host ports on the plane whose link works.", ("plane",))
    yield Family("mrclab_links", "gauge", "Links by plane, tier and state.", ("plane", "tier", "state"))
    switch = ("switch", "plane", "tier")
    yield Family("mrclab_switch_running", "gauge", "1 while the switch runs.", switch)
    yield Family("mrclab_switch_queue_bytes", "gauge", "Bytes that wait in the switch.", switch)
    yield Family(
        "mrclab_switch_dropped_packets_total", "counter", "Packets that the switch dropped, for any reason.", switch
    )
    yield Family("mrclab_switch_lost_packets_total", "counter", "Of those, the packets that a failure cost.", switch)
    yield Family(
        "mrclab_switch_trimmed_packets_total", "counter", "Packets that the switch cut to their headers.", switch
    )
    yield Family("mrclab_switch_marked_packets_total", "counter", "Packets that the switch marked (ECN).", switch)
    link, way = ("link", "plane", "tier"), ("link", "plane", "tier", "direction")
    yield Family("mrclab_link_up", "gauge", "1 while the link carries packets in both directions.", link)
    yield Family("mrclab_link_impaired", "gauge", "1 while a failure makes the link worse.", link)
    yield Family("mrclab_link_denied", "gauge", "1 while the link is on the denylist.", link)
    yield Family("mrclab_link_rate_bytes_per_second", "gauge", "What the link can carry in each direction.", link)
    yield Family(
        "mrclab_link_carried_bytes_total", "counter", "Bytes that the link carried; up is away from hosts.", way
    )
    yield Family("mrclab_link_load_bytes_per_second", "gauge", "What the link carries, by the lab's clock.", way)
    yield Family("mrclab_link_queue_bytes", "gauge", "Bytes that wait for the link in a switch.", way)
    yield Family("mrclab_link_dropped_packets_total", "counter", "Packets dropped at the link, for any reason.", link)
    yield Family("mrclab_link_lost_packets_total", "counter", "Of those, the packets that a failure cost.", link)
    # Failures, findings, the job, the view itself.
    yield Family("mrclab_failures", "gauge", "Failures in force, by kind.", ("kind",))
    yield Family(
        "mrclab_failure_in_force", "gauge", f"1 for each of the first {NAMED} failures in force.", ("target", "kind")
    )
    yield Family("mrclab_denied_elements", "gauge", "Elements on the denylist.")
    yield Family("mrclab_found_elements", "gauge", "Elements that the hosts' probes take for broken.", ("finding",))
    job = ("workload",)
    yield Family("mrclab_job_running", "gauge", "1 while the job runs.", job)
    yield Family("mrclab_job_iterations_total", "counter", "Iterations of the rank that is furthest behind.", job)
    yield Family("mrclab_job_step_seconds", "gauge", "Time of its latest iterations, on average.", job)
    yield Family("mrclab_job_verified_bytes_total", "counter", "Bytes that were compared with what they must be.", job)
    yield Family("mrclab_job_mismatches_total", "counter", "Values that were wrong.", job)
    yield Family("mrclab_job_failures", "gauge", "What failed in the job so far.", job)
    yield Family("mrclab_view_commands_total", "counter", "Commands that browsers gave.")
    yield Family("mrclab_view_log_lines_total", "counter", "Lines of the view's log.")


#: Counters of a host: the name between `mrclab_host_` and `_total`, and its key in `HostState`.
COUNTED: Final = {
    "sent_packets": "Data packets that the host sent.",
    "retransmitted_packets": "Data packets that the host sent again.",
    "lost_packets": "Packets that the host took for lost.",
    "trimmed_packets": "Trimmed packets that the host received.",
    "marked_packets": "Marked packets that the host received.",
    "timeouts": "Packets that timed out.",
}
_KEYS: Final = ("packets", "retransmissions", "losses", "trims", "marks", "timeouts")
FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in _families()}


def render(layout: Layout, state: ViewState) -> str:
    """Return the exposition of a state; `layout` is the one that it refers to. Serve it as `CONTENT_TYPE`.

    Raises:
        ValueError: layout and state do not belong together.
    """
    for key in ("hosts", "switches", "links"):
        if len(layout[key]) != len(state[key]):
            raise ValueError(f"a state of another layout: {key}")
    return generate_latest(_Exposition(layout, state)).decode()


class _Exposition:
    """The methods of a registry that `generate_latest` calls, without a registry: a state is read once."""

    def __init__(self, layout: Layout, state: ViewState) -> None:
        self.layout = layout
        self.state = state

    def collect(self) -> Iterator[Metric]:
        """Yield the families that have a value, in the order of `FAMILIES`."""
        found: dict[str, Metric] = {}
        for name, values, value in samples(self.layout, self.state):
            family = FAMILIES[name]
            metric = found.setdefault(name, Metric(name.removesuffix("_total"), family.help, family.type))
            metric.add_sample(name, dict(zip(family.labels, values, strict=True)), value)
        yield from (found[name] for name in FAMILIES if name in found)


def samples(layout: Layout, state: ViewState) -> Iterator[Sample]:
    """Yield all values; `_Exposition.collect` groups them by family."""
    yield "mrclab_up", (), int(state["phase"] != "lost")
    yield "mrclab_lab_info", (layout["lab"], layout["mode"], layout["clock"], layout["transport"]), 1
    for phase in PHASES:
        yield "mrclab_phase", (phase,), int(state["phase"] == phase)
    yield "mrclab_session_seconds", (), state["t_ns"] / 1e9
    yield "mrclab_speed_ratio", (), float(state["speed"])
    if "valid" in state["fidelity"]:
        yield "mrclab_fidelity_valid", (), int(state["fidelity"]["valid"])
    yield "mrclab_goodput_bytes_per_second", (), state["goodput_bps"] / 8
    evs: Counter[str] = Counter(dict.fromkeys(EV_STATES, 0))
    for host in state["hosts"]:
        evs.update(host.get("ev", {}))
    for name, count in evs.items():
        yield "mrclab_evs", (name,), count
    yield "mrclab_detail", ("hosts",), int(len(layout["hosts"]) <= DETAILED)
    yield "mrclab_detail", ("links",), int(len(layout["links"]) <= DETAILED)
    if len(layout["hosts"]) <= DETAILED:
        yield from _hosts(layout, state)
    yield from _planes(layout, state)
    yield from _switches(layout, state)
    if len(layout["links"]) <= DETAILED:
        yield from _links(layout, state)
    yield from _failures(layout, state)
    yield from _job(state)
    yield "mrclab_view_commands_total", (), state["commands"]
    yield "mrclab_view_log_lines_total", (), state["log_end"]


def _hosts(layout: Layout, state: ViewState) -> Iterator[Sample]:
    for where, host in zip(layout["hosts"], state["hosts"], strict=True):
        label = (where["name"],)
        if "alive" in host:
            yield "mrclab_host_up", label, int(host["alive"])
        plain = ("ports_up", "ports_up", 1), ("delivered_bytes", "delivered_bytes_total", 1)
        for key, name, divisor in (*plain, ("goodput_bps", "goodput_bytes_per_second", 8)):
            if key in host:
                yield f"mrclab_host_{name}", label, _divided(host[key], divisor)  # type: ignore[literal-required]
        for plane, count in enumerate(host.get("tx_bytes", ())):
            yield "mrclab_host_transmitted_bytes_total", (*label, str(plane)), count
        for plane, count in enumerate(host.get("rx_bytes", ())):
            yield "mrclab_host_received_bytes_total", (*label, str(plane)), count
        for key, name in zip(_KEYS, COUNTED, strict=True):
            if key in host:
                yield f"mrclab_host_{name}_total", label, host[key]  # type: ignore[literal-required]
        for ev, count in host.get("ev", {}).items():
            yield "mrclab_host_evs", (*label, ev), count
        control = host.get("cc", {})
        units = {"cwnd": ("window_bytes", 1), "inflight": ("inflight_bytes", 1), "rtt_ns": ("rtt_seconds", 10**9)}
        for key, (name, divisor) in (units | {"rate_bps": ("rate_bytes_per_second", 8)}).items():
            if key in control:
                yield f"mrclab_congestion_{name}", label, _divided(control[key], divisor)  # type: ignore[literal-required]


def _divided(value: int, divisor: int) -> float:
    return value / divisor if divisor != 1 else value


def _tier(name: str) -> str:
    """Return whether a link is a host's port."""
    return "host" if ":" in name else "fabric"


def _planes(layout: Layout, state: ViewState) -> Iterator[Sample]:
    for number, plane in enumerate(state["planes"]):
        yield "mrclab_plane_received_bytes_per_second", (str(number),), plane["rx_bps"] / 8
        yield "mrclab_plane_ports_up", (str(number),), plane["ports_up"]
    counted: Counter[Labels] = Counter()
    for where, link in zip(layout["links"], state["links"], strict=True):
        counted[str(where["plane"]), _tier(where["name"]), link.get("state", "unknown")] += 1
    # All combinations are listed, so that a state without members falls to 0 instead of keeping its last value.
    for plane_number in range(layout["planes"]):
        for tier in TIERS:
            for name in LINK_STATES:
                labels = (str(plane_number), tier, name)
                yield "mrclab_links", labels, counted[labels]


def _switches(layout: Layout, state: ViewState) -> Iterator[Sample]:
    families = {
        "queue_bytes": "queue_bytes",
        "drops": "dropped_packets_total",
        "lost": "lost_packets_total",
        "trimmed": "trimmed_packets_total",
        "marked": "marked_packets_total",
    }
    for where, switch in zip(layout["switches"], state["switches"], strict=True):
        labels = (where["name"], str(where["plane"]), where["tier"])
        if "state" in switch:
            yield "mrclab_switch_running", labels, int(switch["state"] == "running")
        for key, name in families.items():
            if key in switch:
                yield f"mrclab_switch_{name}", labels, switch[key]  # type: ignore[literal-required]


def _links(layout: Layout, state: ViewState) -> Iterator[Sample]:
    for where, link in zip(layout["links"], state["links"], strict=True):
        labels = (where["name"], str(where["plane"]), _tier(where["name"]))
        yield "mrclab_link_rate_bytes_per_second", labels, where["rate_bps"] / 8
        if "state" in link:
            yield "mrclab_link_up", labels, int(link["state"] == "up")
        for key in ("impaired", "denied"):
            if key in link:
                yield f"mrclab_link_{key}", labels, int(link[key])
        for key, name in (("drops", "dropped_packets_total"), ("lost", "lost_packets_total")):
            if key in link:
                yield f"mrclab_link_{name}", labels, link[key]  # type: ignore[literal-required]
        for way in ("up", "down"):
            ends = (f"{way}_bytes", "carried_bytes_total", 1), (f"{way}_bps", "load_bytes_per_second", 8)
            for key, name, divisor in (*ends, (f"{way}_queue_bytes", "queue_bytes", 1)):
                if key in link:
                    yield f"mrclab_link_{name}", (*labels, way), _divided(link[key], divisor)  # type: ignore[literal-required]


def _failures(layout: Layout, state: ViewState) -> Iterator[Sample]:
    for kind, count in _counted((each["name"] for each in layout["kinds"]), (each["kind"] for each in state["broken"])):
        yield "mrclab_failures", (kind,), count
    named = dict.fromkeys((each["target"], each["kind"]) for each in state["broken"])
    for labels in list(named)[:NAMED]:
        yield "mrclab_failure_in_force", labels, 1
    yield "mrclab_denied_elements", (), len(state["denied"])
    for finding, count in _counted(FINDINGS, state["found"].values()):
        yield "mrclab_found_elements", (finding,), count


def _counted(known: Iterable[str], names: Iterable[str]) -> list[tuple[str, int]]:
    """Return how often each name occurs; 0 for a known name that does not occur."""
    found: Counter[str] = Counter(dict.fromkeys(known, 0))
    found.update(names)
    return sorted(found.items())


def _job(state: ViewState) -> Iterator[Sample]:
    job = state["job"]
    if job is None:
        return
    label = (job.get("workload", ""),)
    if "running" in job:
        yield "mrclab_job_running", label, int(job["running"])
    if "step_ns" in job:
        yield "mrclab_job_step_seconds", label, job["step_ns"] / 1e9
    for key, name in (("iterations", "iterations"), ("bytes_verified", "verified_bytes"), ("mismatches", "mismatches")):
        if key in job:
            yield f"mrclab_job_{name}_total", label, job[key]  # type: ignore[literal-required]
    yield "mrclab_job_failures", label, len(job.get("failures", ()))
