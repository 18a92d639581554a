"""The MRC endpoint: a sans-IO protocol core with five methods towards its driver, and verbs towards its user.

Driver: `receive_datagram`, `datagrams_to_send`, `next_timer`, `handle_timer`, `next_event`. The driver
owns sockets and clock; it hands in `now` (integer ns, never going backwards) and the room of each port,
and adds the Ethernet header. Port p is in plane p. After any call the driver asks every port for
datagrams and re-reads `next_timer`.

A loop without I/O, two endpoints on one virtual clock:

    for port in range(planes):
        for packet in a.datagrams_to_send(port, now, budget_bytes=9000):
            b.receive_datagram(port, packet, now + 5_000)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.config import CcConfig, EndpointConfig, EvConfig, ReliabilityConfig
from mrc_host.proto.events import EvState, Event, QpState
from mrc_host.proto.fields import NackReason
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.qp import QueuePair
from mrc_host.proto.trace import Tracer


class Endpoint:
    """One node: queue pairs, memory regions, completion queues, ports. See the module's docstring."""

    def __init__(self, config: EndpointConfig, rng: random.Random, tracer: Tracer | None = None) -> None:
        """`rng` is the only source of randomness; `tracer` receives the event trace."""
        raise NotImplementedError

    # --- the driver's five methods ---

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        """Take one IPv6 packet (no Ethernet header) that arrived on `port`. Bad input is counted and dropped."""
        raise NotImplementedError

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """IPv6 packets to put on `port` now, in order, together at most `budget_bytes` long.

        Control packets come first. A packet that does not fit the rest of the budget waits for the next
        call. An empty list means that nothing may go now: call again after any other call or timer.
        """
        raise NotImplementedError

    def next_timer(self) -> int | None:
        """When `handle_timer` wants to be called (ns), or None."""
        raise NotImplementedError

    def handle_timer(self, now: int) -> None:
        """Do what is due at `now`. Harmless when nothing is."""
        raise NotImplementedError

    def next_event(self) -> Event | None:
        """The oldest event not yet taken, or None."""
        raise NotImplementedError

    # --- memory and completions ---

    def register_memory(
        self, buffer: bytearray | memoryview, va: int | None = None, *, writable: bool = True
    ) -> MemoryRegion:
        """Register a buffer; `.rkey`, `.va`, `.length` are what a peer needs to write to it."""
        raise NotImplementedError

    def deregister_memory(self, region: MemoryRegion) -> None:
        """Forget a region; later writes to it are refused."""
        raise NotImplementedError

    def create_cq(self, depth: int = 65536) -> CompletionQueue:
        """A completion queue; an overflow moves the queue pairs that use it to ERROR."""
        raise NotImplementedError

    def poll(self, cq: CompletionQueue, limit: int = 64) -> list[Completion]:
        """Take up to `limit` completions, oldest first."""
        raise NotImplementedError

    # --- queue pairs ---

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        reliability: ReliabilityConfig | None = None,
        ev: EvConfig | None = None,
        cc: CcConfig | None = None,
    ) -> QueuePair:
        """A queue pair in RESET; profiles not given are those of the endpoint's configuration."""
        raise NotImplementedError

    def destroy_qp(self, qp: QueuePair, now: int) -> None:
        """Flush and forget a queue pair; packets that still arrive for it are counted as unknown_qp."""
        raise NotImplementedError

    def local_attributes(self, qp: QueuePair) -> dict[str, Any]:
        """What the peer must know, as one JSON-serialisable document (`mrc-protocol.md §4`).

        Moves a queue pair in RESET to INIT.
        """
        raise NotImplementedError

    def connect(self, qp: QueuePair, remote: Mapping[str, Any], now: int) -> None:
        """Negotiate with the peer's `local_attributes` and go INIT -> RTR -> RTS.

        Raises `QpError` when the document lacks a key, contradicts ours (MTU, ports) or the state is wrong.
        """
        raise NotImplementedError

    def modify(self, qp: QueuePair, state: QpState, now: int, **attributes: Any) -> None:
        """One transition at a time, with the attributes it needs (see `qp.REQUIRED`); ERROR and RESET always.

        Raises `QpError` for a transition that the state table does not have or a missing attribute.
        """
        raise NotImplementedError

    def set_mpr(self, qp: QueuePair, units: int) -> None:
        """Dynamic MPR: change the responder's window (units of 128 PSNs); SACKs carry it from now on."""
        raise NotImplementedError

    def post_write(
        self,
        qp: QueuePair,
        local: bytes | bytearray | memoryview | MemoryRegion,
        remote_va: int,
        rkey: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Write `local[local_offset:][:length]` to the peer's memory; the buffer is the QP's until completion.

        Raises `QpError` in a state before RTS; in ERROR the request completes with a flush error.
        """
        raise NotImplementedError

    def post_write_imm(
        self,
        qp: QueuePair,
        local: bytes | bytearray | memoryview | MemoryRegion,
        remote_va: int,
        rkey: int,
        immediate: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Like `post_write`, and delivers a 32-bit immediate to one posted receive of the peer."""
        raise NotImplementedError

    def post_recv(self, qp: QueuePair, wr_id: int, count: int = 1) -> None:
        """Post `count` receives, each for one immediate."""
        raise NotImplementedError

    # --- ports, EVs, receiver pressure ---

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        """The link of a port went down or came up: remap at once and tell every peer (`mrc-protocol.md §7`)."""
        raise NotImplementedError

    def query_evs(self, qp: QueuePair) -> list[dict[str, Any]]:
        """One dict per EV: ev, plane, state, active, losses, sent."""
        raise NotImplementedError

    def set_ev_state(self, qp: QueuePair, ev: int, state: EvState, now: int) -> None:
        """The controller's word: DENIED, or anything else to undo it. Raises KeyError for an unknown EV."""
        raise NotImplementedError

    def replace_ev(self, qp: QueuePair, old: int, new: int, now: int) -> None:
        """Replace one value of the QP's EV universe by another one of the same plane."""
        raise NotImplementedError

    def probe_ev(self, peer: bytes, ev: int, plane: int, now: int, timeout_ns: int | None = None) -> int:
        """Send an EV probe (ERTH op 1) to `peer`; the token comes back in a `ProbeResult` event."""
        raise NotImplementedError

    def set_receive_pressure(self, penalty: int, *, restore: bool = False, refuse: NackReason | None = None) -> None:
        """Responder flow control (`mrc-protocol.md §8`): `penalty` (0..127) goes into every SACK;
        with `refuse` new data is answered by that NACK (NO_BITMAP, NO_PKT_BUFFER, NO_RESOURCE, UNEXP_EVENT)."""
        raise NotImplementedError

    # --- observation ---

    def statistics(self) -> dict[str, Any]:
        """A JSON-serialisable snapshot: endpoint counters, drops by reason, ports, peers (cc), queue pairs."""
        raise NotImplementedError
