"""A workload on an endpoint: its memory region, its queue pairs, and the puts under way."""

from __future__ import annotations

import dataclasses
import functools
import mmap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from mrc_host.answers import JobProgress, JobWaiting, QpWaiting
from mrc_host.node.datapath import TimedCalls
from mrc_host.node.stacks import Profiles, Stack
from mrc_host.proto.events import QpState
from mrc_host.proto.transport import Pair
from mrc_host.requests import DEFAULT_PROFILE, RankAttributes, RegionAttributes
from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.base import MAX_MEMORY_BYTES

RECEIVES = 512
P_co = TypeVar("P_co", bound=Pair, covariant=True)


@functools.cache
def address_space() -> memoryview:
    """Return read-only memory as large as any region, for regions of which only the length matters.

    All those of a process are part of it; pages that are never touched take no memory.
    """
    return memoryview(mmap.mmap(-1, MAX_MEMORY_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ))


class Job(Generic[P_co]):
    """One rank's workload. QPs go to every rank that writes to this one or is written to.

    With `qps_per_peer` > 1 a put is cut into as many parts, one per QP (RoCE's way to more than one path); the workload
    is notified once, when all parts have arrived.

    Raises:
        WorkloadError: an unknown workload or parameter.
    """

    def __init__(
        self,
        stack: Stack[P_co],
        alarms: TimedCalls,
        workload: str,
        params: object,
        rank: int,
        names: Sequence[str],
        addresses: Sequence[str],
        qps_per_peer: int,
        profiles: Profiles,
    ) -> None:
        kind = WORKLOADS.get(workload)
        if kind is None:
            raise WorkloadError(f"no workload '{workload}'; known: {', '.join(sorted(WORKLOADS))}")
        size, checked = len(names), kind.complete(params)
        self.stack = stack
        self.alarms = alarms
        self.wakes = 0
        self.closed = False
        self.rank = rank
        self.ev_profile = self.cc_profile = DEFAULT_PROFILE
        self.names = list(names)
        self.addresses = list(addresses)
        needed = kind.plan(size, checked)
        self.view = address_space()[:needed] if stack.length_only else memoryview(bytearray(needed))
        self.region = stack.endpoint.register_memory(self.view)
        self.workload = kind(rank, size, checked, self, self.view)
        mine = kind.peers(rank, size, checked)
        peers = mine | {peer for peer in range(size) if rank in kind.peers(peer, size, checked)}
        self.qps: Mapping[int, Sequence[P_co]] = {
            peer: stack.create(addresses[peer], qps_per_peer, profiles) for peer in sorted(peers)
        }
        self.remote: dict[int, tuple[int, int]] = {}
        self._next_wr = 0
        #: Work requests on queue pairs: given to them, and ended by them, well or not.
        self.requests_posted = 0
        self.requests_ended = 0
        self._parts: dict[int, list[int]] = {}
        self._immediates: Counter[tuple[int, int]] = Counter()

    def attributes(self) -> RankAttributes:
        """Return what the peers need: the region, and by peer the documents of queue pairs."""
        endpoint = self.stack.endpoint
        return RankAttributes(
            RegionAttributes(self.region.va, self.region.rkey, len(self.view)),
            {peer: [endpoint.local_attributes(qp) for qp in qps] for peer, qps in self.qps.items()},
        )

    def connect(self, peers: Mapping[int, RankAttributes], now: int) -> None:
        """Connect every QP with what `attributes` gave at the peers."""
        endpoint = self.stack.endpoint
        for peer, qps in self.qps.items():
            if peer not in peers:
                raise ValueError(f"attributes of rank {peer} ({self.names[peer]}) are missing")
            theirs = peers[peer]
            self.remote[peer] = (theirs.region.va, theirs.region.rkey)
            for qp, document in zip(qps, theirs.qps[self.rank], strict=True):
                endpoint.connect(qp, document, now)
                endpoint.post_recv(qp, 0, RECEIVES)

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """See `workloads.base.Channel`."""
        endpoint = self.stack.endpoint
        va, rkey = self.remote[peer]
        wr_id = self._next_wr
        self._next_wr += 1
        qps = self.qps[peer]
        self._parts[wr_id] = [len(qps), tag]
        share = -(-length // len(qps) // 4) * 4
        for index, qp in enumerate(qps):
            first = min(index * share, length)
            part = min(share, length - first)
            own, target = offset + first, va + remote_offset + first
            if imm is None:
                endpoint.post_write(qp, self.view, target, rkey, wr_id, local_offset=own, length=part)
            else:
                endpoint.post_write_imm(qp, self.view, target, rkey, imm, wr_id, local_offset=own, length=part)
            self.requests_posted += 1

    def wake(self, at_ns: int) -> None:
        """See `workloads.base.Channel`."""
        self.alarms.set(at_ns, self._woken)

    def _woken(self, now: int) -> None:
        if self.closed:
            return
        self.wakes += 1
        try:
            self.workload.woken(now)
        except Exception as error:
            self.workload.failed(self.rank, f"internal fault: {type(error).__name__}: {error}", now)
            raise

    def put_done(self, peer: int, wr_id: int, now: int) -> None:
        """Handle the completion of a put's work request."""
        parts = self._parts[wr_id]
        parts[0] -= 1
        if parts[0] == 0:
            del self._parts[wr_id]
            self.workload.put_done(peer, parts[1], now)

    def arrived(self, peer: int, qpn: int, imm: int, now: int) -> None:
        """Handle an immediate that arrived on one of the peer's QPs."""
        endpoint = self.stack.endpoint
        qps = self.qps[peer]
        for qp in qps:
            if qp.number == qpn:
                endpoint.post_recv(qp, 0, 1)
        key = (peer, imm)
        self._immediates[key] += 1
        if self._immediates[key] == len(qps):
            del self._immediates[key]
            self.workload.arrived(peer, imm, now)

    def failed(self, peer: int, reason: str, now: int) -> None:
        """Handle a QP to the peer that failed."""
        self.workload.failed(peer, f"{self.names[peer]}: {reason}", now)

    def progress(self) -> JobProgress:
        """Return the workload's progress, and that of its queue pairs."""
        states = [qp.state is QpState.RTS for qps in self.qps.values() for qp in qps]
        return dataclasses.replace(
            self.workload.progress,
            done=self.workload.done,
            qps=len(states),
            qps_in_rts=sum(states),
            requests_posted=self.requests_posted,
            requests_ended=self.requests_ended,
            moved=self.moved(),
        )

    def moved(self) -> int:
        """Return a number that changes with any progress of this job.

        Progress is a packet placed or acknowledged, a timed call of the workload, an iteration, or the end of the
        workload or of a queue pair.
        """
        progress = self.workload.progress
        total = (
            int(self.workload.done)
            + self.wakes
            + progress.iterations
            + progress.bytes_sent
            + progress.bytes_verified
            + progress.mismatches
        )
        for qps in self.qps.values():
            for qp in qps:
                total += self.stack.moved(qp)
                total += qp.state is QpState.ERROR
        return total

    def waiting(self, now: int) -> JobWaiting:
        """Return what this rank waits for."""
        rows = []
        for peer, qps in self.qps.items():
            for qp in qps:
                found = self.stack.waiting(qp, now)
                if found is not None:
                    rows.append(QpWaiting.of(found, qp.number, self.names[peer], now))
        workload = self.workload
        return JobWaiting(
            qps=sorted(rows, key=lambda row: -row.for_ns),
            done=workload.done,
            puts=workload.outstanding,
            what=workload.waits_for(),
            awaits=[self.names[rank] for rank in sorted(workload.awaits())],
            failure=workload.progress.failure,
        )

    def close(self, now: int) -> None:
        """Destroy the QPs and forget the region."""
        self.closed = True
        endpoint = self.stack.endpoint
        for qps in self.qps.values():
            for qp in qps:
                endpoint.destroy_qp(qp, now)
        endpoint.deregister_memory(self.region)
