"""A qlog-like event trace: one JSON object per line to any callable; no cost but a test when it is off.

Every line has `t` (ns), `name` (`category:event`) and the fields of that event; `EVENTS` lists them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

EVENTS: Final = {
    "qp:state": "qpn, old, new, reason",
    "packet:sent": "qpn, psn, ev, port, size, tx (transmissions so far), new (false: a retransmission)",
    "packet:received": "qpn, psn, ev, port, ce, verdict",
    "packet:trimmed": "qpn, psn, ev, port",
    "packet:lost": "qpn, psn, ev, reason (nack, same_ev, rack, timeout, port_down), tx",
    "sack:received": "qpn, cack, ack_psn, ev, m",
    "nack:received": "qpn, psn, ev, reason",
    "probe:sent": "qpn, id, ev, port, why",
    "probe:result": "qpn, id, ev, answered",
    "ev:state": "qpn, ev, plane, old, new, cause",
    "cc:cwnd": "peer, cwnd, inflight, rtt, qdelay, case",
    "port:state": "port, up, peer",
    "wr:completed": "qpn, wr_id, status",
    "drop": "reason, port",
}


class Tracer:
    """Writes events as JSON lines to `sink`; `only` restricts it to some names or categories (`"ev"`)."""

    __slots__ = ("_only", "_sink")

    def __init__(self, sink: Callable[[str], object], only: frozenset[str] | None = None) -> None:
        self._sink = sink
        self._only = only

    def __call__(self, now: int, event: str, **fields: Any) -> None:
        """Record `event` at `now`. Raises KeyError for an event that EVENTS does not list."""
        EVENTS[event]
        only = self._only
        if only is None or event in only or event.partition(":")[0] in only:
            self._sink(json.dumps({"t": now, "name": event, **fields}, separators=(",", ":")))
