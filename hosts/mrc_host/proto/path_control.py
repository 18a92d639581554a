"""Control of the paths of an MRC endpoint by users and node controllers: see and set EVs, probe, refuse data."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.config import EndpointConfig
from mrc_host.proto.context import EVERYBODY, EndpointContext
from mrc_host.proto.events import EvState
from mrc_host.proto.limits import check_range
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.paths.ev_profile import Universes
from mrc_host.proto.paths.node_ops import NodeOperations
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.statistics import EvRow
from mrc_host.proto.wire.fields import NackReason

_REFUSALS: Final = (
    NackReason.NO_BITMAP,
    NackReason.NO_PKT_BUFFER,
    NackReason.NO_RESOURCE,
    NackReason.UNEXP_EVENT,
)


class PathControl(CommonEndpoint):
    """See the module's docstring; `endpoint.Endpoint` is the whole."""

    __slots__ = ("_node", "_qps", "_universes", "config", "context", "peers")

    def __init__(self, config: EndpointConfig, context: EndpointContext, rng: random.Random) -> None:
        super().__init__(context.ports, context.memory, context.events)
        self.config = config
        self.context = context
        self.peers: dict[bytes, Peer] = {}  # by source and destination address of what they send
        self._node = NodeOperations(context, self.peers)
        self._qps: dict[int, QueuePair] = {}
        self._universes = Universes(config.ports.count, rng)
        self._universes.take(config.ev)  # the endpoint's own profile also serves unknown peers, and stays

    def query_evs(self, qp: QueuePair) -> list[EvRow]:
        """Return one dict per EV: ev, plane, state, active, losses."""
        return qp.evs.rows()

    def set_ev_state(self, qp: QueuePair, ev: int, state: EvState, now: int) -> None:
        """Set an EV to DENIED, or undo that by any other state. Raises KeyError for an unknown EV.

        A denial holds for every later queue pair to the same peer, too, until it has been undone for all queue pairs to
        that peer for which it was made.
        """
        context = self.context
        context.now = now
        index = qp.evs.universe.index[ev]
        denied = context.denied.setdefault(qp.peer.address, set()) if qp.connected else set()
        if state is EvState.DENIED:
            denied.add(ev)
            qp.denied.add(ev)
            qp.evs.apply(index, EvInput.DENY)
        else:
            qp.denied.discard(ev)
            others = (each for each in self._qps.values() if each.connected and qp.connected and each.peer is qp.peer)
            if not any(ev in each.denied for each in others):
                denied.discard(ev)
            qp.evs.apply(index, EvInput.ALLOW)
        if qp.connected and not denied:
            del context.denied[qp.peer.address]

    def modify_ev_profile(self, qp: QueuePair, **settings: Any) -> None:
        """Change settings of a queue pair's EV profile that are looked up each time. Raises ConfigError."""
        config = dataclasses.replace(qp.ev_config, **settings)
        qp.association.ev_config = config
        qp.evs.retune(config)

    def deny_evs(self, evs: Iterable[int], denied: bool, now: int) -> int:
        """Deny EVs towards all peers, or allow them again: for all queue pairs, present and future, that have them.

        Returns how many EVs of present queue pairs that concerned.
        """
        context = self.context
        context.now = now
        everybody = context.denied.setdefault(EVERYBODY, set())
        count = 0
        for ev in evs:
            if denied:
                everybody.add(ev)
            else:
                for values in context.denied.values():
                    values.discard(ev)
            for qp in self._qps.values():
                if not denied:
                    qp.denied.discard(ev)
                index = qp.evs.universe.index.get(ev)
                if index is not None:
                    qp.evs.apply(index, EvInput.DENY if denied else EvInput.ALLOW)
                    count += 1
        context.denied = {address: values for address, values in context.denied.items() if values}
        return count

    def set_denials(self, denials: Mapping[bytes, Iterable[int]], now: int) -> int:
        """Make the EVs that are denied towards each peer exactly these: for its queue pairs, present and future.

        Returns how many EVs changed, counted for each queue pair, and once for a peer that has none.
        """
        context = self.context
        context.now = now
        before = context.denied
        context.denied = {address: set(values) for address, values in denials.items() if values}
        count = 0
        with_pair: set[bytes] = set()
        for qp in self._qps.values():
            qp.denied.clear()
            address = qp.peer.address if qp.connected else EVERYBODY
            with_pair.add(address)
            denied = context.denied_towards(address)
            for value, index in qp.evs.universe.index.items():
                if qp.evs.denies(value) != (value in denied):
                    qp.evs.apply(index, EvInput.DENY if value in denied else EvInput.ALLOW)
                    count += 1
        for address in (before.keys() | context.denied.keys()) - with_pair:
            count += len(before.get(address, set()) ^ context.denied.get(address, set()))
        return count

    def replace_ev(self, qp: QueuePair, old: int, new: int, now: int) -> None:
        """Replace a value of the QP's profile by another one of the same plane, for all QPs that use the profile.

        Raises KeyError when the profile lacks `old`, ConfigError when it has `new`.
        """
        self.context.now = now
        universe = qp.evs.universe
        index = universe.replace(old, new)
        for other in self._qps.values():
            if other.evs.universe is universe:
                other.denied.discard(old)
                other.evs.reset(index)
        for peer in self.peers.values():
            for route in peer.routes:
                if route.universe is universe:
                    route.replaced(old, new)

    def probe_ev(
        self, peer: bytes, ev: int, plane: int, now: int, timeout_ns: int | None = None, dscp: int | None = None
    ) -> int:
        """Send an EV probe (ERTH op 1) to `peer`; the token comes back in a `ProbeResult` event.

        It travels by the endpoint's own EV profile, in the class of `dscp` (None: that of control). Raises ConfigError
        when that has no path on `ev` to `peer`.
        """
        self.context.now = now
        check_range("plane", plane, 0, self.config.ports.count - 1)
        if dscp is not None:
            check_range("dscp", dscp, 0, 63)
        if peer == self.config.address:
            self.context.ports.looping = True
        timeout = self.config.ev.probe_timeout_ns if timeout_ns is None else timeout_ns
        return self._node.probe(peer, self._universes.of(self.config.ev), ev, plane, now, timeout, dscp)

    def set_receive_pressure(self, penalty: int, *, restore: bool = False, refuse: NackReason | None = None) -> None:
        """Set the responder's flow control (`mrc-protocol.md §8`): `penalty` (0..127) goes into every SACK.

        With `refuse` new data is answered by that NACK (NO_BITMAP, NO_PKT_BUFFER, NO_RESOURCE, UNEXP_EVENT). Raises
        ValueError.
        """
        check_range("penalty", penalty, 0, 127)
        if refuse is not None and refuse not in _REFUSALS:
            raise ValueError(f"refuse is {refuse.name}; allowed: {', '.join(reason.name for reason in _REFUSALS)}")
        self.context.penalty = penalty
        self.context.restore = int(restore)
        self.context.refuse = 0 if refuse is None else int(refuse)
