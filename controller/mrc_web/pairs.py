"""A pair of hosts, looked at closely: its queue pairs, their EVs with the links that they cross, the window."""

from __future__ import annotations

from mrc_host.ctl_requests import GetPair, PairRow
from mrc_host.proto.statistics import CcStatistics
from mrc_lab.hosts.hostclient import HostError
from mrc_lab.session.base import Session
from mrc_topo.paths import Paths
from mrc_topo.topology import PathError
from mrc_web.state import EvRow, Pair, PairQp


class Pairs:
    """Samples pairs of a session's hosts, and records when an EV was last seen in flight."""

    def __init__(self, session: Session, began_ns: int) -> None:
        self.session = session
        self.began_ns = began_ns
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
        try:
            found = self.session.hosts[source].ask(GetPair(destination))
        except HostError as error:
            made["error"] = str(error)
            return made
        if not found.qps:
            made["error"] = f"{source} has no queue pair to {destination} at present"
        made["qps"] = [self._qp(source, destination, row) for row in found.qps]
        if isinstance(found.cc, CcStatistics):
            made["cwnd"], made["inflight"] = found.cc.cwnd, found.cc.inflight
        made["rtt_ns"] = max((row.srtt_ns for row in found.qps), default=0)
        made["packets"] = sum(row.packets for row in found.qps)
        made["retransmissions"] = sum(row.retransmissions for row in found.qps)
        return made

    def _qp(self, source: str, destination: str, row: PairRow) -> PairQp:
        evs: list[EvRow] = []
        for each in row.evs:
            key = (source, destination, row.qpn, each.ev)
            if each.sent_ns >= 0:
                self._used[key] = each.sent_ns - self.began_ns
            evs.append(
                {
                    "ev": each.ev,
                    "plane": each.plane,
                    "state": each.state.name,
                    "active": each.active,
                    "losses": each.losses,
                    "used_ns": self._used.get(key, -1),
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
