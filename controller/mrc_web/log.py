"""The log of a live view: what was done, what the hosts made of it, what their probes say; each line numbered."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from mrc_host.answers import Event, EvEvent, FaultEvent, PortEvent, QpEvent
from mrc_topo import addressing
from mrc_topo.topology import Topology
from mrc_web.state import LogRow

#: The number of lines that are kept.
LINES = 2000


class Log:
    """The newest lines. One thread writes; others may call `since`."""

    def __init__(self) -> None:
        self._rows: deque[LogRow] = deque(maxlen=LINES)
        self.end = 0

    def add(self, t_ns: int, what: str, text: str, element: str = "") -> None:
        """Add a line; see `LogRow`."""
        self._rows.append({"number": self.end, "t_ns": t_ns, "what": what, "text": text, "element": element})
        self.end += 1

    def since(self, number: int) -> list[LogRow]:
        """Return the lines from a number on, oldest first, as far as they are still kept."""
        rows = list(self._rows)
        first = rows[0]["number"] if rows else self.end
        return rows[max(number - first, 0) :]


class LogWriter:
    """Describes the events of hosts in words, and equal events of one moment in one line."""

    def __init__(self, topology: Topology, add: Callable[[int, str, str, str], None]) -> None:
        self._add = add
        self._names = {host.address.hex(): host.name for host in topology.hosts}
        self._texts = {addressing.text(host.address): host.name for host in topology.hosts}

    def tell(self, host: str, rows: Iterable[Event], began_ns: int) -> None:
        """Add one line for each event of a host, and one for all EVs of a plane that changed alike."""
        evs: Counter[tuple[int, str, str, str]] = Counter()
        first: dict[tuple[int, str, str, str], int] = {}
        for row in rows:
            at = row.t_ns - began_ns
            match row:
                case EvEvent():
                    key = (row.plane, row.old, row.new, row.cause)
                    evs[key] += 1
                    first.setdefault(key, at)
                case PortEvent():
                    owner = self._names.get(row.peer, row.peer) if row.peer else host
                    word = "up" if row.up else "down"
                    seen = "" if owner == host else f"{host} hears: "
                    self._add(at, "port", f"{seen}{owner}:{row.port} is {word}", f"{owner}:{row.port}")
                case QpEvent():
                    peer = f" to {row.peer}" if row.peer else ""
                    if row.reason:
                        self._add(at, "qp", f"{host}: QP {row.qpn}{peer} ends: {row.reason}", host)
                case FaultEvent():
                    self._add(at, "fault", f"{host}: internal fault in {row.where}: {row.error}", host)
        for key, count in evs.items():
            plane, old, new, cause = key
            many = "1 EV" if count == 1 else f"{count} EVs"
            self._add(first[key], "ev", f"{host}: {many} of plane {plane}: {old} → {new} ({cause})", f"{host}:{plane}")
