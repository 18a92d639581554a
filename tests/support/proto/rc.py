"""Two RoCE endpoints on one virtual clock, and a wire that loses, repeats and delays packets as it is told."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from mrc_host.access import Access
from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.config import WireConfig
from mrc_host.proto.events import Event, QpState
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.receive import Element, Scatter
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair

ALL = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC)
MTU = 256
LATENCY = 1000
MS = 1_000_000


@dataclasses.dataclass
class End:
    """One endpoint with a queue pair, its completion queue and a region."""

    core: RoceEndpoint
    cq: CompletionQueue
    qp: RoceQueuePair
    memory: bytearray
    region: MemoryRegion

    def place(self, offset: int, length: int) -> Scatter:
        return Scatter([(self.region, offset, length)])

    def element(self, offset: int, length: int) -> Element:
        return Element(self.region.va + offset, length, self.region.rkey)

    def events(self) -> list[Event]:
        return list(iter(self.core.next_event, None))


class Wire:
    """`loss`, `repeats` and `delays` are the shares of packets that are lost, come twice, or are late.

    `rule(sender, packet)` drops a packet by returning True. `sent` has all packets with the index of their sender.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        loss: float = 0.0,
        repeats: float = 0.0,
        delays: float = 0.0,
        connect: bool = True,
        size: int = 1 << 16,
        **config: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self.loss, self.repeats, self.delays = loss, repeats, delays
        self.now = 0
        self.rule: Callable[[int, bytes], bool] = lambda sender, packet: False
        self.sent: list[tuple[int, bytes]] = []
        self._flying: list[tuple[int, int, int, bytes]] = []
        self._serial = itertools.count()
        self.ends: list[End] = []
        for index in range(2):
            settings: dict[str, Any] = {"wire": WireConfig(mtu=MTU), "timeout": 6, "initial_psn": 0xFFFFF0} | config
            core = RoceEndpoint(RoceConfig(bytes(15) + bytes([index + 1]), **settings), random.Random(seed + index))
            cq = core.create_cq()
            memory = bytearray(size)
            self.ends.append(End(core, cq, core.create_qp(cq), memory, core.register_memory(memory, access=ALL)))
        if connect:
            self.connect()

    def connect(self) -> None:
        a, b = self.ends
        documents = [end.core.local_attributes(end.qp) for end in self.ends]
        a.core.connect(a.qp, documents[1], self.now)
        b.core.connect(b.qp, documents[0], self.now)

    def _flush(self) -> None:
        for index, end in enumerate(self.ends):
            for packet in end.core.datagrams_to_send(0, self.now, 1 << 20):
                self.sent.append((index, packet))
                if self.rule(index, packet) or self.rng.random() < self.loss:
                    continue
                copies = 2 if self.rng.random() < self.repeats else 1
                for _ in range(copies):
                    late = self.rng.randrange(8 * LATENCY) if self.rng.random() < self.delays else 0
                    entry = (self.now + LATENCY + late, next(self._serial), 1 - index, packet)
                    heapq.heappush(self._flying, entry)

    def step(self, until: int) -> bool:
        """Go to the next moment at which something happens; False when nothing does before `until`."""
        self._flush()
        times = [self._flying[0][0]] if self._flying else []
        times += [due for end in self.ends if (due := end.core.next_timer()) is not None]
        if not times or min(times) > until:
            self.now = until
            return False
        self.now = max(self.now, min(times))
        while self._flying and self._flying[0][0] <= self.now:
            _, _, index, packet = heapq.heappop(self._flying)
            self.ends[index].core.receive_datagram(0, packet, self.now)
        for end in self.ends:
            end.core.handle_timer(self.now)
        return True

    def run(self, duration: int = 100 * MS) -> None:
        """Run until nothing happens any more, or so long."""
        until = self.now + duration
        while self.step(until):
            pass

    def completions(self, index: int) -> list[Completion]:
        return self.ends[index].core.poll(self.ends[index].cq, 1 << 20)

    def opcodes(self, sender: int) -> list[int]:
        return [packet[48] for index, packet in self.sent if index == sender]

    def states(self) -> Sequence[QpState]:
        return [end.qp.state for end in self.ends]
