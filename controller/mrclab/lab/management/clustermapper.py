"""The Clustermapper: names the failed link or switch from what the hosts' probes say, and from nothing else.

Every host probes its own T0 and the T1s of every plane and gets its probes back itself
(`mrc_host.node.mapper`). A probe to the T0 crosses the host's link and the T0; a probe to a T1 crosses one more link
and the T1. So, per plane:

* all hosts of a T0 lose it: the T0 has failed; only one of several does: its link has;
* a T0 answers but a T1 does not: seen from all T0s, the T1 has failed; seen from some, their links to it have.

In a graph, a host also probes the links between switches, up to two links away (`GraphTopology.probe_paths`). A probe
says nothing of what is farther away while something nearer on its way is faulty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict

from mrc_host.answers import ProbeRow
from mrc_host.requests import GetMap
from mrc_topo import addressing
from mrc_topo.addressing import Tier
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.topology import Topology
from mrclab.lab.hosts.hostclient import HostControl, HostError

#: A target is dead if none of this many latest probes was answered, and lossy if some were not.
DEAD_AFTER = 2
LOSSY_SHARE = 0.1
LOSSY_PROBES = 10


class Probed(TypedDict):
    """A host's probes of one target (`Localiser`), as in `mrc_host.answers.ProbeRow`."""

    target: str
    port: int
    history: Sequence[int]
    sent: NotRequired[int]
    lost: NotRequired[int]
    late: NotRequired[int]
    rtt_ns: NotRequired[int]


#: The views of all hosts: by host, a list of targets.
Views = Mapping[str, Sequence[Probed]]

HEALTHY, LOSSY, DEAD = 0, 1, 2
#: The grade of an element, and the hosts whose probes show it.
Seen = tuple[int, list[str]]
WORDS = {LOSSY: "lossy", DEAD: "dead"}


@dataclass(frozen=True)
class Finding:
    """An element that is dead or lossy by the hosts' probes; `witnesses` are the hosts whose probes show it."""

    element: str
    state: str
    witnesses: tuple[str, ...]


def grade(history: Sequence[int]) -> int:
    """Return HEALTHY, LOSSY or DEAD for a target's latest answers (newest last)."""
    if len(history) >= DEAD_AFTER and not any(history[-DEAD_AFTER:]):
        return DEAD
    recent = history[-LOSSY_PROBES:]
    lost = recent.count(0)
    # A single lost probe may be chance; two of ten are not.
    return LOSSY if lost >= 2 and lost >= LOSSY_SHARE * len(recent) else HEALTHY


def probed(row: ProbeRow) -> Probed:
    """Return a host's answer about a target in the form that localisers take."""
    return Probed(
        target=row.target,
        port=row.port,
        history=row.history,
        sent=row.sent,
        lost=row.lost,
        late=row.late,
        rtt_ns=row.rtt_ns,
    )


def collect(hosts: Mapping[str, HostControl]) -> dict[str, list[Probed]]:
    """Return every host's view; hosts that do not answer are left out."""
    views = {}
    for name, host in hosts.items():
        with contextlib.suppress(HostError):
            views[name] = [probed(each) for each in host.ask(GetMap()).probes]
    return views


class Localiser(Protocol):
    """Locates faults from the hosts' probes; `Clustermapper` is the built-in one (docs/extending.md).

    `views[HOST]` lists that host's targets: `port` (its plane), `target` (a T0 or T1 of that plane; in a graph the
    host's switch or a link between switches, by `Topology.probe_paths`) and `history`, its latest probes, oldest
    first: 1 answered, 0 lost. A host whose agent does not answer has no view.
    """

    def locate(self, topology: Topology, views: Views) -> list[Finding]:
        """Return the faulty elements that explain the hosts' views."""


class Clustermapper:
    """The localiser of a lab whose file names no other."""

    def locate(self, topology: Topology, views: Views) -> list[Finding]:
        """See the module's docstring."""
        return locate(topology, views)


def locate(topology: Topology, views: Views) -> list[Finding]:
    """Return the faulty elements that explain the hosts' views, plane by plane."""
    grades = {
        (name, probe["port"], probe["target"]): grade(probe["history"])
        for name, view in views.items()
        for probe in view
    }
    findings: list[Finding] = []
    if isinstance(topology, GraphTopology):
        return _in_graph(topology, grades, views)
    for plane in range(topology.lab.planes):
        reachable = _tier0(topology, views, grades, plane, findings)
        _tier1(topology, reachable, grades, plane, findings)
    return findings


def _in_graph(topology: GraphTopology, grades: Mapping[tuple[str, int, str], int], views: Views) -> list[Finding]:
    """Find what is faulty in a graph: host links and T0s first, then what is one link beyond, and two."""
    probes = [
        (host.ports[each.plane].name, host.name, each, grades.get((host.name, each.plane, each.target), HEALTHY))
        for host in topology.hosts
        if host.name in views
        for each in topology.probe_paths(host.index)
    ]
    bad: dict[str, Seen] = {}
    at: dict[str, dict[str, Seen]] = {}
    for port, host, probe, each in probes:
        if not probe.links:
            at.setdefault(probe.target, {})[port] = (each, [host])
            if each:
                bad[port] = (each, [host])
    for length in (1, 2):
        links: dict[str, Seen] = {}
        for port, host, probe, each in probes:
            if len(probe.links) == length and bad.keys().isdisjoint({port, *probe.switches[:-1], *probe.links[:-1]}):
                least, witnesses = links.get(probe.target, (DEAD, []))
                # Hosts share the link: if one of them still gets its probes back, it is not dead.
                links[probe.target] = (min(least, each), [*witnesses, host])
        for switch in topology.switches:
            own = {link.name: links[link.name] for link in switch.links.values() if link.name in links}
            if length == 1:
                own |= at.get(switch.name, {})
            if len(own) > 1 and all(each for each, _ in own.values()):
                bad[switch.name] = (
                    max(each for each, _ in own.values()),
                    [host for _, seen in own.values() for host in seen],
                )
                for name in own:
                    links.pop(name, None)
                    bad.pop(name, None)
        for name, (each, witnesses) in links.items():
            ends = (topology.links[name].low.node, topology.links[name].high.node)
            if each and bad.keys().isdisjoint(ends):
                bad[name] = (each, witnesses)
    return [Finding(name, WORDS[each], tuple(dict.fromkeys(hosts))) for name, (each, hosts) in bad.items()]


def _tier0(
    topology: Topology,
    views: Views,
    grades: Mapping[tuple[str, int, str], int],
    plane: int,
    findings: list[Finding],
) -> dict[int, list[str]]:
    """Find failed host links and T0s; return, for each T0, the hosts whose path to it is healthy."""
    reachable: dict[int, list[str]] = {}
    for t0 in range(topology.lab.t0_per_plane):
        name = addressing.switch_name(plane, Tier.T0, t0)
        hosts = [host.name for host in topology.hosts_of(t0) if host.name in views]
        bad = {host: each for host in hosts if (each := grades.get((host, plane, name), HEALTHY))}
        reachable[t0] = [host for host in hosts if host not in bad]
        if bad and len(bad) == len(hosts) and len(hosts) > 1:
            findings.append(Finding(name, WORDS[max(bad.values())], tuple(bad)))
            continue
        for host, each in bad.items():
            findings.append(Finding(f"{host}:{plane}", WORDS[each], (host,)))
    return reachable


def _tier1(
    topology: Topology,
    reachable: Mapping[int, list[str]],
    grades: Mapping[tuple[str, int, str], int],
    plane: int,
    findings: list[Finding],
) -> None:
    for t1 in range(topology.lab.t1_per_plane):
        name = addressing.switch_name(plane, Tier.T1, t1)
        seen = {
            t0: [grades.get((host, plane, name), HEALTHY) for host in hosts] for t0, hosts in reachable.items() if hosts
        }
        # A T0's hosts share the link to the T1: if one of them still reaches the T1, the link is not dead.
        bad = {t0: min(each) for t0, each in seen.items() if min(each)}
        if bad and len(bad) == len(seen) and len(seen) > 1:
            witnesses = tuple(host for t0 in bad for host in reachable[t0])
            findings.append(Finding(name, WORDS[max(bad.values())], witnesses))
            continue
        for t0, each in bad.items():
            link = addressing.fabric_link_name(plane, t0, t1)
            findings.append(Finding(link, WORDS[each], tuple(reachable[t0])))


def view_of(topology: Topology, hosts: Mapping[str, HostControl], localiser: Localiser | None = None) -> dict[str, str]:
    """Return `dead` or `lossy` by element, as the hosts see it now; by our own localiser unless another is given."""
    found = (localiser or Clustermapper()).locate(topology, collect(hosts))
    return {finding.element: finding.state for finding in found}
