"""The log of a live view: what was done, what the hosts made of it, what their probes say; each line numbered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from mrc_host.answers import Event, EvEvent, FaultEvent, HostStatistics, MrcHostStatistics, PortEvent, QpEvent
from mrc_topo import addressing
from mrc_topo.topology import Topology
from mrclab.web.state import ChangedEv, LogRow

#: The number of lines that are kept.
LINES: Final = 2000
#: The number of EVs that a line names, and that all lines together do; beyond it the oldest lines name none.
EVS_OF_A_LINE: Final = 64
EVS: Final = 4096
#: The number of queue pairs of a host whose peers are remembered.
QPS: Final = 8192
#: A line names this many peers, and the number of those beyond them.
PEERS: Final = 4


@dataclass(frozen=True)
class LogLine:
    """A line without its number; see `LogRow`. `changed`: how many EVs changed, of which `evs` are the first."""

    t_ns: int
    what: str
    text: str
    element: str = ""
    done_ns: int | None = None
    changed: int = 0
    evs: Sequence[ChangedEv] = ()


class Log:
    """The newest lines. One thread writes; others may call `since`."""

    def __init__(self) -> None:
        self._rows: deque[LogRow] = deque(maxlen=LINES)
        #: Changes of EVs, which are many, push out none of the other lines.
        self._changes: deque[LogRow] = deque(maxlen=LINES)
        #: The lines that name EVs, oldest first.
        self._named: deque[LogRow] = deque()
        self._evs = 0
        self.end = 0

    def add(self, t_ns: int, what: str, text: str, element: str = "") -> None:
        """Add a line; see `LogRow`."""
        self.append(LogLine(t_ns, what, text, element))

    def append(self, line: LogLine) -> None:
        """Add a line."""
        row: LogRow = {
            "number": self.end,
            "t_ns": line.t_ns,
            "what": line.what,
            "text": line.text,
            "element": line.element,
        }
        if line.done_ns is not None:
            row["done_ns"] = line.done_ns
        if line.changed:
            row["changed"] = line.changed
            row["evs"] = list(line.evs)
            self._evs += len(line.evs)
            self._named.append(row)
        while self._evs > EVS:
            oldest = self._named.popleft()
            self._evs -= len(oldest["evs"])
            # Another thread may be encoding the old list, which stays as it is.
            oldest["evs"] = []
        (self._changes if line.what == "ev" else self._rows).append(row)
        self.end += 1

    def since(self, number: int) -> list[LogRow]:
        """Return the lines from a number on, oldest first, as far as they are still kept."""
        rows = (row for kept in (list(self._rows), list(self._changes)) for row in kept if row["number"] >= number)
        return sorted(rows, key=itemgetter("number"))


class Peers:
    """The peers of queue pairs, by host and number. Hosts log the EVs of a queue pair by its number alone.

    Args:
        known: those that are known already.
    """

    def __init__(self, topology: Topology, known: Mapping[tuple[str, int], str] | None = None) -> None:
        self._hosts = {host.name for host in topology.hosts}
        self._texts = {addressing.text(host.address): host.name for host in topology.hosts}
        self._peers: dict[str, dict[int, str]] = {}
        for (host, qpn), peer in (known or {}).items():
            self._peers.setdefault(host, {})[qpn] = peer

    def of(self, host: str, qpn: int) -> str:
        """Return the peer of a queue pair; empty where nothing names it."""
        return self._peers.get(host, {}).get(qpn, "")

    def learn(self, host: str, events: Iterable[Event]) -> bool:
        """Learn the peers that events name; return whether EVs changed of queue pairs of which nothing is known."""
        mine = self._peers.setdefault(host, {})
        lacking = False
        for event in events:
            if isinstance(event, QpEvent) and event.peer in self._hosts:
                mine.pop(event.qpn, None)
                mine[event.qpn] = event.peer
            elif isinstance(event, EvEvent) and event.qpn not in mine:
                lacking = True
        while len(mine) > QPS:
            del mine[next(iter(mine))]
        return lacking

    def know(self, host: str, statistics: HostStatistics, events: Iterable[Event]) -> None:
        """Take the peers from the statistics of a host; queue pairs of the events that are not in them remain
        without."""
        mine = self._peers.setdefault(host, {})
        mine |= self.in_statistics(statistics)
        for event in events:
            if isinstance(event, EvEvent):
                mine.setdefault(event.qpn, "")

    def in_statistics(self, statistics: HostStatistics) -> dict[int, str]:
        """Return the peers of a host's present queue pairs of MRC, by number."""
        if not isinstance(statistics, MrcHostStatistics):
            return {}
        named = ((qp.qpn, self._texts.get(qp.peer or "")) for qp in statistics.qps)
        return {qpn: peer for qpn, peer in named if peer is not None}


class LogWriter:
    """Describes the events of hosts in words, and equal events of one moment in one line."""

    def __init__(self, topology: Topology, append: Callable[[LogLine], None], peers: Peers) -> None:
        self._append = append
        self._peers = peers
        self._names = {host.address.hex(): host.name for host in topology.hosts}

    def tell(self, host: str, rows: Iterable[Event], began_ns: int) -> None:
        """Add one line for each event of a host, and one for all EVs of a plane that changed alike; it names them."""
        evs: dict[tuple[int, str, str, str], list[ChangedEv]] = {}
        for row in rows:
            at = row.t_ns - began_ns
            match row:
                case EvEvent():
                    peer = self._peers.of(host, row.qpn)
                    changed: ChangedEv = {"t_ns": at, "ev": row.ev, "peer": peer, "qpn": row.qpn}
                    evs.setdefault((row.plane, row.old, row.new, row.cause), []).append(changed)
                case PortEvent():
                    owner = self._names.get(row.peer, row.peer) if row.peer else host
                    word = "up" if row.up else "down"
                    seen = "" if owner == host else f"{host} hears: "
                    text = f"{seen}{owner}:{row.port} is {word}"
                    self._append(LogLine(at, "port", text, f"{owner}:{row.port}"))
                case QpEvent():
                    to = f" to {row.peer}" if row.peer else ""
                    if row.reason:
                        self._append(LogLine(at, "qp", f"{host}: QP {row.qpn}{to} ends: {row.reason}", host))
                case FaultEvent():
                    self._append(LogLine(at, "fault", f"{host}: internal fault in {row.where}: {row.error}", host))
        for (plane, old, new, cause), found in evs.items():
            text = f"{host}: {_which(found, plane)}: {old} → {new} ({cause})"
            first = found[:EVS_OF_A_LINE]
            self._append(LogLine(found[0]["t_ns"], "ev", text, f"{host}:{plane}", changed=len(found), evs=first))


def _which(evs: Sequence[ChangedEv], plane: int) -> str:
    """Return which EVs changed: one by its value, peer and queue pair, several by their number and their peers."""
    peers = sorted({each["peer"] for each in evs if each["peer"]})
    if len(evs) == 1:
        (ev,) = evs
        to = f" to {ev['peer']}" if ev["peer"] else ""
        return f"EV {ev['ev']:08x}{to}, QP {ev['qpn']}, plane {plane}"
    return f"{len(evs)} EVs of plane {plane}{f' to {listed(peers)}' if peers else ''}"


def listed(names: Sequence[str], most: int = PEERS) -> str:
    """Return names as a list for people, with the number of those beyond `most`."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)
