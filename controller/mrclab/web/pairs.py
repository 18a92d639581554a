"""A pair of hosts, looked at closely: its queue pairs, their EVs with the links that they cross, the window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mrc_host.answers import Event, EvEvent
from mrc_host.ctl_requests import GetPair, PairRow
from mrc_host.proto.statistics import CcStatistics
from mrc_host.requests import GetEvents, GetStatistics
from mrc_topo.paths import Paths
from mrc_topo.topology import PathError
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.session.base import Session
from mrclab.web.log import Peers, listed
from mrclab.web.state import EvRow, Pair, PairQp

#: The number of EVs of a host whose latest changes are remembered.
CHANGES: Final = 20_000
#: A message names this many peers.
NAMED: Final = 12


class Pairs:
    """Samples pairs of a session's hosts, and records when an EV was last seen in flight and when it last changed.

    The changes are from the host's log: all that it still has when a pair is first looked at, and from then on those
    that `learn` is called with.
    """

    def __init__(self, session: Session, began_ns: int) -> None:
        self.session = session
        self.began_ns = began_ns
        self._peers = Peers(session.topology)
        #: The latest change of EVs by host, and by queue pair, value and plane.
        self._changes: dict[str, dict[tuple[int, int, int], EvEvent]] = {}
        self._paths = Paths(session.topology)
        self._places = {name: at for at, name in enumerate(session.topology.links)}
        self._links: dict[tuple[str, str, int, int], list[int]] = {}
        self._used: dict[tuple[str, str, int, int], int] = {}

    def look(self, source: str, destination: str) -> Pair:
        """Return the present state of a pair."""
        made: Pair = {
            "source": source,
            "destination": destination,
            "error": "",
            "qps": [],
            "cwnd": 0,
            "inflight": 0,
            "rtt_ns": 0,
            "packets": 0,
            "retransmissions": 0,
        }
        host = self.session.hosts[source]
        try:
            if source not in self._changes:
                events = host.ask(GetEvents()).events
                self._changes[source] = {}
                self.learn(source, events)
            found = host.ask(GetPair(destination))
            if not found.qps:
                made["error"] = self._without(source, destination)
        except HostError as error:
            made["error"] = str(error)
            return made
        made["qps"] = [self._qp(source, destination, row) for row in found.qps]
        if isinstance(found.cc, CcStatistics):
            made["cwnd"], made["inflight"] = found.cc.cwnd, found.cc.inflight
        made["rtt_ns"] = max((row.srtt_ns for row in found.qps), default=0)
        made["packets"] = sum(row.packets for row in found.qps)
        made["retransmissions"] = sum(row.retransmissions for row in found.qps)
        return made

    def learn(self, host: str, events: Iterable[Event]) -> None:
        """Learn the changes of EVs from the next events of a host's log, or of ones that are known already; of a host
        that no page shows they are not kept."""
        mine = self._changes.get(host)
        if mine is None:
            return
        for event in events:
            if not isinstance(event, EvEvent):
                continue
            key = (event.qpn, event.ev, event.plane)
            before = mine.get(key)
            if before is None or before.t_ns <= event.t_ns:
                mine.pop(key, None)
                mine[key] = event
        while len(mine) > CHANGES:
            del mine[next(iter(mine))]

    def _without(self, source: str, destination: str) -> str:
        """Return why there is nothing to show of a pair without a queue pair. Raises HostError."""
        statistics = self.session.hosts[source].ask(GetStatistics())
        peers = sorted(set(self._peers.in_statistics(statistics).values()), key=list(self.session.hosts).index)
        some = (
            f"it has some to {listed(peers, NAMED)}"
            if peers
            else "it has none at all; a workload or a program makes them"
        )
        return f"{source} has no queue pair to {destination} at present; {some}"

    def _qp(self, source: str, destination: str, row: PairRow) -> PairQp:
        evs: list[EvRow] = []
        changes = self._changes[source]
        for each in row.evs:
            key = (source, destination, row.qpn, each.ev)
            if each.sent_ns >= 0:
                self._used[key] = each.sent_ns - self.began_ns
            change = changes.get((row.qpn, each.ev, each.plane))
            if change is not None and change.new != each.state.name:
                change = None
            evs.append(
                {
                    "ev": each.ev,
                    "plane": each.plane,
                    "state": each.state.name,
                    "active": each.active,
                    "losses": each.losses,
                    "used_ns": self._used.get(key, -1),
                    "since_ns": -1 if change is None else change.t_ns - self.began_ns,
                    "cause": "" if change is None else change.cause,
                    "links": self._crossed(source, destination, each.ev, each.plane),
                }
            )
        return {"qpn": row.qpn, "state": row.state, "evs": evs}

    def _crossed(self, source: str, destination: str, value: int, plane: int) -> list[int]:
        key = (source, destination, value, plane)
        if key not in self._links:
            topology = self.session.topology
            try:
                path = self._paths.path_of_ev(
                    topology.host(source).index, topology.host(destination).index, value, plane
                )
            except PathError:
                path = None
            self._links[key] = [] if path is None else [self._places[name] for name in path.links]
        return self._links[key]

    def forget(self, kept: set[tuple[str, str]]) -> None:
        """Drop the history of pairs that no page shows."""
        for memory in (self._used, self._links):
            for key in [key for key in memory if key[:2] not in kept]:
                del memory[key]
        sources = {source for source, _ in kept}
        for source in [source for source in self._changes if source not in sources]:
            del self._changes[source]
