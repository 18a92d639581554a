"""Reliability probes of one queue pair: they test a path and refresh SACK state (`mrc-protocol.md §7`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from mrc_host.proto.paths.association import Association
from mrc_host.proto.paths.ev import ASSUMED_BAD, EvInput
from mrc_host.proto.stats import RequestorCounters
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.messages import Sack

_ROUNDS: Final = 4
COUNT: Final = 1 << 16


class Nonces:
    """Draws each of the 65536 numbers once before any comes again."""

    __slots__ = ("_boxes", "_count", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._boxes: list[bytes] = []  # made by the first draw: most queue pairs never probe
        self._count = 0

    def draw(self) -> int:
        """Draw the next number."""
        if not self._boxes:
            self._boxes = [self._rng.randbytes(256) for _ in range(_ROUNDS)]
        left, right = self._count >> 8 & 0xFF, self._count & 0xFF
        self._count += 1
        for box in self._boxes:
            left, right = right, left ^ box[right]
        return left << 8 | right


_WINDOW_SHARE: Final = 8  # a burst of probes is at most this part of the window
_REMEMBERED: Final = 64  # timeouts after which an answer is no longer expected
_PROBE_BYTES: Final = 80  # IPv6, UDP, BTH, PETH, ICRC


class PendingProbe(NamedTuple):
    """A probe that is not yet answered. `revival`: it asks whether an ASSUMED_BAD EV works again.

    `proven`: every PSN up to this one was acknowledged before, so an honest answer acknowledges it as well.
    """

    ev: int
    plane: int
    sent_ns: int
    revival: bool
    proven: int


class Prober(Timed):
    """Sends PETH probes, matches the answers (SACKs with pr=1), and expires the rest.

    For each EV the oldest probe that was given up is kept for a while: where queues are long, its late answer shows how
    long to wait.
    """

    __slots__ = ("_burst_from", "_counters", "_nonces", "_proven", "_rtt_ns", "association", "given_up", "pending")

    def __init__(self, association: Association, counters: RequestorCounters, proven: Callable[[], int]) -> None:
        """Create a prober; `proven()` returns the PSN up to which everything has been acknowledged."""
        self.association = association
        self._counters = counters
        self._proven = proven
        self.pending: dict[int, PendingProbe] = {}
        self.given_up: dict[int, tuple[int, PendingProbe]] = {}  # by EV: (identifier, probe)
        self._rtt_ns = 0  # of probes: the longest lately
        self._nonces = Nonces(association.context.rng)
        self._burst_from = 0

    def send(self, ev: int, now: int, revival: bool) -> None:
        """Send one probe on an EV (index), over the port of its plane."""
        association = self.association
        context = association.context
        plane = association.evs.universe.planes[ev]
        value = association.evs.universe.values[ev]
        nonce = self._nonces.draw()
        while nonce in self.pending:
            nonce = self._nonces.draw()
        self.pending[nonce] = PendingProbe(ev, plane, now, revival, self._proven())
        packet = context.codec.encode_probe(
            association.peer.addresses,
            value,
            context.tc_probe,
            association.remote_number,
            nonce,
            association.number & 0xFFFF,
            association.remote_number & 0xFFFF,
            now >> 7 & 0xFFFF,
        )
        association.route.send(packet, value, plane)
        self._counters.probes_sent += 1
        if context.trace is not None:
            why = "revival" if revival else "tail"
            context.trace(now, "probe:sent", qpn=association.number, id=nonce, ev=value, port=plane, why=why)
        self.schedule(now)

    def schedule(self, now: int, *, soon: bool = False) -> None:
        """Arm the probe timer unless it is; `soon` probes bad EVs at once (their plane came back)."""
        timers = self.association.context.timers
        if soon:
            timers.arm(TimerKind.EV_PROBE, self, now)
        elif not timers.is_armed(TimerKind.EV_PROBE, self):
            timers.arm(TimerKind.EV_PROBE, self, now + self._interval())

    def _interval(self) -> int:
        """Return the probe interval with its jitter."""
        config = self.association.ev_config
        spread = int(config.probe_interval_ns * config.probe_jitter)
        return max(1, config.probe_interval_ns + self.association.context.rng.randint(-spread, spread))

    def answered(self, sack: Sack, now: int) -> PendingProbe | None:
        """Handle a SACK with pr=1: update the EV's state; return its probe, None if this QP sent no such probe."""
        probe_id = sack.probe_id
        probe = self.pending.get(probe_id)
        if probe is not None and self._is_answer(sack, probe):
            del self.pending[probe_id]
        else:
            ev = self.association.evs.universe.index.get(sack.entropy, -1)
            known, probe = self.given_up.get(ev, (-1, None))
            if probe is None or known != probe_id or not self._is_answer(sack, probe):
                return None
            del self.given_up[ev]
        rtt = now - probe.sent_ns
        self._rtt_ns = max(rtt, self._rtt_ns + (rtt - self._rtt_ns >> 3))
        association = self.association
        mark = sack.m
        self._counters.probes_answered += 1
        self._trace_result(probe_id, probe.ev, answered=True, now=now)
        if probe.revival:
            association.evs.probe_answered(probe.ev, mark)
        elif mark == 1:
            association.evs.apply(probe.ev, EvInput.SKIP_ONCE)
        elif mark == 2:
            association.evs.apply(probe.ev, EvInput.ALWAYS_SKIP)
        return probe

    def _is_answer(self, sack: Sack, probe: PendingProbe) -> bool:
        """Return whether a SACK with the probe's identifier echoes its fields; if not, it answers an earlier probe."""
        if sack.entropy != self.association.evs.universe.values[probe.ev]:
            return False
        return self.association.attributes.peer_service_time or sack.tx_timestamp == probe.sent_ns >> 7 & 0xFFFF

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Expire probes without answer; probe the ASSUMED_BAD EVs whose plane is up, a burst at most."""
        association = self.association
        timeout = max(association.ev_config.probe_timeout_ns, 2 * self._rtt_ns)
        for probe_id, probe in list(self.pending.items()):
            if now - probe.sent_ns < timeout:
                continue
            del self.pending[probe_id]
            _, older = self.given_up.get(probe.ev, (-1, None))
            if older is None or now - older.sent_ns > _REMEMBERED * timeout:
                self.given_up[probe.ev] = probe_id, probe
            if association.context.trace is not None:
                value = association.evs.universe.values[probe.ev]
                association.context.trace(
                    now, "probe:result", qpn=association.number, id=probe_id, ev=value, answered=False
                )
            if association.peer.planes >> probe.plane & 1:
                association.evs.apply(probe.ev, EvInput.PROBE_TIMEOUT)
        planes = association.evs.universe.planes
        waiting = {probe.ev for probe in self.pending.values()}
        usable = association.peer.planes
        bad = [
            ev
            for ev in association.evs.streak
            if ev not in waiting and usable >> planes[ev] & 1 and association.evs.state[ev] == ASSUMED_BAD
        ]
        if bad:
            start = self._burst_from % len(bad)
            burst = (bad[start:] + bad[:start])[: self._burst()]
            self._burst_from = start + len(burst)
            size = _PROBE_BYTES + association.route.outer_bytes
            for ev in burst:
                if association.context.ports.may_probe(planes[ev], size, now):
                    self.send(ev, now, revival=True)
        if association.evs.streak or self.pending:
            self.schedule(now)

    def _burst(self) -> int:
        """Return how many probes may leave at once. They add load, so a smaller window allows fewer."""
        share = int(self.association.qpcc.cc.cwnd) // (
            _WINDOW_SHARE * (_PROBE_BYTES + self.association.route.outer_bytes)
        )
        return max(1, min(self.association.ev_config.probe_burst, share))

    def _trace_result(self, probe_id: int, ev: int, *, answered: bool, now: int) -> None:
        association = self.association
        trace = association.context.trace
        if trace is not None:
            value = association.evs.universe.values[ev]
            trace(now, "probe:result", qpn=association.number, id=probe_id, ev=value, answered=answered)

    def clear(self) -> None:
        """Forget all probes."""
        self.association.context.timers.cancel(TimerKind.EV_PROBE, self)
        self.pending.clear()
        self.given_up.clear()
