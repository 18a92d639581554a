"""write_lat, as perftest's ib_write_lat: two ranks write to each other in turn, and the round trip is halved."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.answers import LatencyTimes, Measured
from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate
from mrc_host.workloads.measure import Distribution


@dataclass(frozen=True)
class LatencyParameters(Parameters):
    """Parameters of `WriteLat`."""

    message_bytes: int = 8
    source: int = 0
    target: int = 1


class WriteLat(Workload[LatencyParameters]):
    """Parameters: `message_bytes`; `source`, which measures; `target`, which answers; `iterations`.

    The source measures half round trips: `latency_ns` of `measured`.
    """

    name = "write_lat"
    title = "write_lat, as perftest's ib_write_lat: two ranks write to each other in turn, and the round trip is halved"
    parameters = LatencyParameters

    def __init__(self, rank: int, size: int, params: LatencyParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.bytes = params.message_bytes
        ends = (params.source, params.target)
        self.role = ends.index(rank) if rank in ends else None
        self.peer = ends[1 - self.role] if self.role is not None else rank
        self.sent_ns = 0
        self.arrivals = 0
        self.answered = 0
        self.waiting = False
        self.latencies = Distribution()

    @classmethod
    def memory_bytes(cls, size: int, params: LatencyParameters) -> int:
        ends = {params.source, params.target}
        if len(ends) != 2 or max(ends) >= size:
            raise WorkloadError(
                f"workload {cls.name}: source and target must be two ranks below {size}, not {sorted(ends)}"
            )
        if params.message_bytes < 1:
            raise WorkloadError(f"workload {cls.name}: message_bytes must be at least 1")
        return 4 * params.message_bytes

    @classmethod
    def peers(cls, rank: int, size: int, params: LatencyParameters) -> set[int]:
        ends = (params.source, params.target)
        return {ends[1 - ends.index(rank)]} if rank in ends else set()

    def begin(self, now: int) -> None:
        self.waiting = False
        self.advance(now)

    def measured(self) -> Measured:
        times = self.latencies.summary()
        if times is None:
            return Measured()
        return Measured(latency_ns=LatencyTimes(**vars(times), message_bytes=self.bytes, peer=self.peer))

    def _write(self, sender: int) -> None:
        number = self.progress.iterations
        own = (number & 1) * self.bytes
        self.write_pattern(own, self.bytes, 2 * number + sender + 1)
        self.put(self.peer, own, 2 * self.bytes + own, self.bytes, tag=0, imm=immediate(number, 0))

    def arrived(self, peer: int, imm: int, now: int) -> None:
        self.arrivals += 1
        if self.running:
            self.advance(now)

    def awaits(self) -> set[int]:
        return {self.peer} if self.running and self.arrivals <= self.progress.iterations else set()

    def advance(self, now: int) -> None:
        number = self.progress.iterations
        if self.role == 0 and not self.waiting:
            if self.outstanding:
                return
            self.waiting = True
            self.sent_ns = now
            self._write(0)
        if self.arrivals > number and (self.role == 0 or not self.outstanding):
            slot = (2 + (number & 1)) * self.bytes
            if self.answered == number:
                self.answered += 1
                self.check_pattern(slot, self.bytes, 2 * number + 2 - int(self.role or 0))
                if self.role == 1:
                    self._write(1)
                else:
                    self.latencies.add((now - self.sent_ns) // 2)
        if self.answered > number and not self.outstanding:
            self.end_iteration(now)
