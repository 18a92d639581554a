"""An endpoint of ours as a device: a virtual clock, ports, memory and completions."""

from __future__ import annotations

import abc
import ipaddress
from collections import deque
from typing import Any, Final

from mrc_conform.device import Arrival, Device, DeviceError, Done, Local, Outcome, PairState, Region, Remote
from mrc_host.access import Access
from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue
from mrc_host.proto.events import QpError
from mrc_host.proto.memory import MemoryRegion

ADDRESS: Final = ipaddress.IPv6Address("fd00:c0::1").packed
_ROOM_BYTES: Final = 1 << 30
_START_NS: Final = 1_000_000_000
_READ_ONLY: Final = int(Access.LOCAL_WRITE | Access.REMOTE_READ)


class CoreDevice(Device, abc.ABC):
    """One endpoint without a network: the kit delivers its packets and takes those that it sends, at once.

    Attributes:
        psn_name: how the endpoint's document names its first PSN.
    """

    psn_name: str

    def __init__(self) -> None:
        self._now = _START_NS
        self._ready: deque[Arrival] = deque()
        self._endpoint: Any = None
        self._pairs: dict[int, tuple[Any, CompletionQueue]] = {}
        self._regions: dict[int, tuple[MemoryRegion, bytearray]] = {}
        self._ports = 1
        self._stalled: set[int] = set()

    def _begin(self, endpoint: object, ports: int) -> None:
        """Take a new endpoint, with nothing left of the one before."""
        self._now = _START_NS
        self._ready.clear()
        self._pairs.clear()
        self._regions.clear()
        self._ports = ports
        self._stalled.clear()
        self._endpoint = endpoint

    @property
    def _core(self) -> Any:
        if self._endpoint is None:
            raise DeviceError(f"{self.name} has not been started")
        return self._endpoint

    def now(self) -> int:
        """See `Device`."""
        return self._now

    def close(self) -> None:
        """See `Device`."""
        self._endpoint = None

    @abc.abstractmethod
    def document(self, remote: Remote) -> object:
        """Return the kit as the peer's document that the endpoint connects to."""

    def create(self) -> Local:
        """See `Device`."""
        core = self._core
        cq = core.create_cq()
        pair = core.create_qp(cq)
        self._pairs[pair.number] = pair, cq
        return Local(ADDRESS, pair.number, core.local_attributes(pair)[self.psn_name])

    def connect(self, local: Local, remote: Remote) -> None:
        """See `Device`."""
        try:
            self._core.connect(self._pairs[local.number][0], self.document(remote), self._now)
        except QpError as error:
            raise DeviceError(str(error)) from None

    def source(self, data: bytes) -> object:
        """Return what the endpoint is told to write from: memory with these bytes."""
        return bytearray(data)

    def post_write(
        self,
        local: Local,
        wr_id: int,
        data: bytes,
        va: int,
        rkey: int,
        immediate: int | None = None,
        solicited: bool = False,
    ) -> None:
        """See `Device`."""
        core, pair = self._core, self._pairs[local.number][0]
        try:
            if immediate is None:
                core.post_write(pair, self.source(data), va, rkey, wr_id)
            else:
                core.post_write_imm(pair, self.source(data), va, rkey, immediate, wr_id, solicited=solicited)
        except QpError as error:
            raise DeviceError(str(error)) from None
        self._collect()

    def send(self, port: int, packet: bytes) -> None:
        """See `Device`."""
        self._collect()
        self._core.receive_datagram(port, packet, self._now)
        self._collect()

    def _collect(self) -> None:
        """Take what the endpoint sends now."""
        more = True
        while more:
            more = False
            for port in set(range(self._ports)) - self._stalled:
                for data in self._core.datagrams_to_send(port, self._now, _ROOM_BYTES):
                    self._ready.append(Arrival(self._now, port, data))
                    more = True

    def receive(self, until_ns: int) -> Arrival | None:
        """See `Device`."""
        self._collect()
        while not self._ready:
            due = self._core.next_timer()
            if due is None or due > until_ns:
                self._now = max(self._now, until_ns)
                self._core.handle_timer(self._now)
                self._collect()
                break
            self._now = max(self._now, due)
            self._core.handle_timer(self._now)
            self._collect()
        return self._ready.popleft() if self._ready else None

    def completions(self, local: Local) -> list[Done]:
        """See `Device`."""
        self._collect()
        return [done(each) for each in self._core.poll(self._pairs[local.number][1])]

    def region(self, length: int, *, writable: bool = True) -> Region:
        """See `Device`."""
        memory = bytearray(length)
        access = None if writable else _READ_ONLY
        made = self._core.register_memory(memory, writable=writable, access=access)
        self._regions[made.rkey] = made, memory
        return Region(made.va, made.rkey, length)

    def deregister(self, region: Region) -> None:
        """See `Device`."""
        self._core.deregister_memory(self._regions[region.rkey][0])

    def read(self, region: Region) -> bytes:
        """See `Device`."""
        return bytes(self._regions[region.rkey][1])

    def post_recv(self, local: Local, wr_id: int) -> None:
        """See `Device`."""
        self._core.post_recv(self._pairs[local.number][0], wr_id)

    def state(self, local: Local) -> PairState:
        """See `Device`."""
        return PairState(self._pairs[local.number][0].state.value)

    def close_pair(self, local: Local) -> None:
        """See `Device`."""
        self._core.close_qp(self._pairs[local.number][0], self._now)
        self._collect()

    def stall_port(self, port: int, stalled: bool) -> None:
        """See `Device`."""
        (self._stalled.add if stalled else self._stalled.discard)(port)
        self._collect()

    def set_port(self, port: int, up: bool) -> None:
        """See `Device`."""
        self._core.set_port_state(port, up, self._now)
        self._collect()


def done(each: Completion) -> Done:
    """Return a completion of our endpoints as the kit knows it."""
    receive = each.kind in (CompletionKind.RECV, CompletionKind.RECV_IMM)
    return Done(each.wr_id, Outcome[each.status.name], receive, each.byte_len, each.immediate)
