"""Our RoCEv2 baseline on a virtual clock (`mrc_host.proto.roce`)."""

from __future__ import annotations

import random

from mrc_conform.device import DeviceError, Local, Need, PairState, Region, Remote, Settings
from mrc_conform.devices.core import ADDRESS, CoreDevice
from mrc_conform.wire import Transport
from mrc_host.access import Access
from mrc_host.proto.config import PortsConfig, WireConfig
from mrc_host.proto.receive import Element, Scatter
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.endpoint import RoceEndpoint

_ALL = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC)


class VirtualRoce(CoreDevice):
    """See the module's docstring."""

    name = "our RoCEv2 endpoint, virtual clock"
    transport = Transport.ROCE
    offers = frozenset(Need) - {Need.EVS, Need.DENY, Need.PRESSURE}
    psn_name = "initial_psn"

    def start(self, settings: Settings, seed: int) -> None:
        """See `Device`."""
        config = RoceConfig(
            address=ADDRESS,
            wire=WireConfig(mtu=settings.mtu, p_key=settings.p_key),
            ports=PortsConfig(count=settings.planes),
            line_rate_bps=settings.line_rate_bps,
            timeout=self.timeout if settings.timeout is None else settings.timeout,
            initial_psn=settings.first_psn,
            **settings.roce,  # type: ignore[arg-type]
        )
        self._begin(RoceEndpoint(config, random.Random(seed)), settings.planes)

    def document(self, remote: Remote) -> object:
        """See `CoreDevice`."""
        return {
            "transport": "roce",
            "qpn": remote.number,
            "address": remote.address.hex(),
            "initial_psn": remote.psn,
            "mtu": remote.mtu,
        }

    def region(self, length: int, *, writable: bool = True) -> Region:
        """Register memory with all rights, or for READ alone."""
        if not writable:
            return super().region(length, writable=False)
        memory = bytearray(length)
        made = self._core.register_memory(memory, access=_ALL)
        self._regions[made.rkey] = made, memory
        return Region(made.va, made.rkey, length)

    def post_send(
        self, local: Local, wr_id: int, data: bytes, immediate: int | None = None, *, fence: bool = False
    ) -> None:
        """See `Device`."""
        self._core.post_send(self._pairs[local.number][0], bytearray(data), wr_id, immediate=immediate, fence=fence)
        self._collect()

    def _place(self, target: Region, length: int) -> Scatter:
        return Scatter([(self._regions[target.rkey][0], 0, length)])

    def post_read(
        self, local: Local, wr_id: int, target: Region, length: int, va: int, rkey: int, *, fence: bool = False
    ) -> None:
        """See `Device`."""
        pair = self._pairs[local.number][0]
        self._core.post_read(pair, self._place(target, length), va, rkey, wr_id, fence=fence)
        self._collect()

    def post_swap(self, local: Local, wr_id: int, target: Region, va: int, rkey: int, compare: int, swap: int) -> None:
        """See `Device`."""
        pair = self._pairs[local.number][0]
        self._core.post_compare_swap(pair, self._place(target, 8), va, rkey, compare, swap, wr_id)
        self._collect()

    def post_add(self, local: Local, wr_id: int, target: Region, va: int, rkey: int, add: int) -> None:
        """See `Device`."""
        self._core.post_fetch_add(self._pairs[local.number][0], self._place(target, 8), va, rkey, add, wr_id)
        self._collect()

    def post_receive(self, local: Local, wr_id: int, target: Region, place: int, length: int) -> None:
        """See `Device`."""
        element = Element(target.va + place, length, target.rkey)
        self._core.post_receive(self._pairs[local.number][0], wr_id, (element,))

    def modify(self, local: Local, state: PairState) -> None:
        """See `Device`."""
        pair = self._pairs[local.number][0]
        if state is PairState.ERROR:
            self._core.fail_qp(pair)
        elif state is PairState.RESET:
            self._core.reset_qp(pair)
        else:
            raise DeviceError(f"{self.name} goes to ERROR and RESET on demand, not to {state.value}")
        self._collect()
