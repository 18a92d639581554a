"""Any endpoint behind Linux interfaces: packets by AF_PACKET, requests by an adapter. Times have tolerances."""

from __future__ import annotations

import ipaddress
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from mrc_conform.adapters import lines
from mrc_conform.adapters.process import Adapter, ProcessAdapter, PromptAdapter
from mrc_conform.device import (
    Arrival,
    Device,
    DeviceError,
    Done,
    EvEntry,
    Local,
    Need,
    PairState,
    Region,
    Remote,
    Settings,
)
from mrc_conform.wire import ENDPOINT_QP, IPV6_BYTES, NEXT_UDP, UDP_BYTES, wire_format
from mrc_topo.base.errors import UsageError

_ETHERTYPE: Final = 0x86DD
_ETHERNET_BYTES: Final = 14
_BTH_AT: Final = IPV6_BYTES + UDP_BYTES
_SOL_PACKET: Final = 263
_IGNORE_OUTGOING: Final = 23
_NEIGHBOUR_S: Final = 2.0


class WireDevice(Device):
    """Packets on interfaces, in the order of planes, and an adapter that asks the endpoint to post.

    `offers`: of the adapter. What it sends to other addresses than the kit's is not looked at.
    """

    name = "an endpoint behind an interface"
    tolerance_ns = 20_000_000
    answer_ns = 3_000_000_000
    quiet_ns = 80_000_000
    timeout = 18

    def __init__(self, interfaces: Sequence[str], macs: Sequence[bytes], adapter: Adapter, kit: bytes) -> None:
        """Open a socket on each interface; `macs` are the endpoint's, `kit` is the address of the kit's packets.

        Raises:
            DeviceError: an interface cannot be opened.
        """
        self.kit_address = kit
        self._adapter = adapter
        self._sockets: list[socket.socket] = []
        self._headers: list[bytes] = []
        self._address = b""
        self._numbers: set[int] = set()
        try:
            for interface, mac in zip(interfaces, macs, strict=True):
                made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERTYPE))
                self._sockets.append(made)
                made.bind((interface, _ETHERTYPE))
                made.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
                made.setblocking(False)
                self._headers.append(mac + made.getsockname()[4] + struct.pack("!H", _ETHERTYPE))
        except OSError as error:
            self._close_sockets()
            raise DeviceError(f"interface {interface}: {error.strerror}; AF_PACKET needs CAP_NET_RAW") from None
        self.offers = lines.offers(adapter.ask("hello"))

    def now(self) -> int:
        """See `Device`."""
        return time.monotonic_ns()

    def start(self, settings: Settings, seed: int) -> None:
        """See `Device`."""
        if settings.planes > len(self._sockets):
            raise DeviceError(f"the case needs {settings.planes} planes; {len(self._sockets)} interfaces were named")
        self._adapter.ask("start", **lines.settings_values(settings, self.timeout))
        self._numbers.clear()
        for each in self._sockets:  # what is still under way from the case before
            while select.select([each], [], [], 0)[0]:
                each.recv(1 << 16)

    def create(self) -> Local:
        """See `Device`."""
        made = lines.local(self._adapter.ask("create"))
        self._address = made.address
        return made

    def connect(self, local: Local, remote: Remote) -> None:
        """See `Device`."""
        self._numbers.add(remote.number)
        self._adapter.ask("connect", number=local.number, **lines.remote_values(remote))

    def send(self, port: int, packet: bytes) -> None:
        """See `Device`."""
        deadline = time.monotonic() + 1
        while True:
            try:
                self._sockets[port].send(self._headers[port] + packet)
                return
            except BlockingIOError:
                select.select([], [self._sockets[port]], [], 0.1)
            except OSError as error:
                raise DeviceError(
                    f"plane {port}: a packet of {len(packet)} bytes was not sent: {error.strerror}"
                ) from None
            if time.monotonic() > deadline:
                raise DeviceError(f"plane {port}: the interface takes no packets")

    def receive(self, until_ns: int) -> Arrival | None:
        """See `Device`."""
        while True:
            left = (until_ns - time.monotonic_ns()) / 1e9
            ready = select.select(self._sockets, [], [], max(left, 0))[0]
            for port, each in enumerate(self._sockets):
                if each in ready:
                    frame = each.recv(1 << 16)
                    if self._is_mine(frame[_ETHERNET_BYTES:]):
                        return Arrival(time.monotonic_ns(), port, frame[_ETHERNET_BYTES:])
            if left <= 0:
                return None

    def _is_mine(self, packet: bytes) -> bool:
        """Return whether a packet is one of the endpoint to a queue pair of the present case."""
        if len(packet) < _BTH_AT + 12:
            return False
        port = (self.udp_port or wire_format().udp_port).to_bytes(2, "big")
        if packet[6] != NEXT_UDP or packet[8:24] != self._address or packet[24:40] != self.kit_address:
            return False
        number = int.from_bytes(packet[_BTH_AT + 5 : _BTH_AT + 8], "big")
        return packet[IPV6_BYTES + 2 : IPV6_BYTES + 4] == port and number in (*self._numbers, ENDPOINT_QP)

    def completions(self, local: Local) -> list[Done]:
        """See `Device`."""
        return lines.completions(self._adapter.ask("completions", number=local.number))

    def close(self) -> None:
        """See `Device`."""
        self._adapter.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()

    def region(self, length: int, *, writable: bool = True) -> Region:
        """See `Device`."""
        return lines.region(self._adapter.ask("region", length=length, writable=writable), length)

    def deregister(self, region: Region) -> None:
        """See `Device`."""
        self._adapter.ask("deregister", rkey=region.rkey)

    def read(self, region: Region) -> bytes:
        """See `Device`."""
        return bytes.fromhex(self._adapter.ask("read", rkey=region.rkey).get("data", ""))

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
        self._adapter.ask(
            "write",
            number=local.number,
            wr_id=wr_id,
            va=va,
            rkey=rkey,
            immediate="-" if immediate is None else immediate,
            solicited=solicited,
            data=data,
        )

    def post_recv(self, local: Local, wr_id: int) -> None:
        """See `Device`."""
        self._adapter.ask("receive", number=local.number, wr_id=wr_id)

    def state(self, local: Local) -> PairState:
        """See `Device`."""
        return PairState(self._adapter.ask("state", number=local.number).get("state", ""))

    def modify(self, local: Local, state: PairState) -> None:
        """See `Device`."""
        self._adapter.ask("modify", number=local.number, state=state.value)

    def close_pair(self, local: Local) -> None:
        """See `Device`."""
        self._adapter.ask("finish", number=local.number)

    def evs(self, local: Local) -> Sequence[EvEntry]:
        """See `Device`."""
        return lines.evs(self._adapter.ask("evs", number=local.number))


class InterfaceDevice(WireDevice):
    """An endpoint that the kit knows nothing of but its address."""

    def __init__(self, interfaces: Sequence[str], peer: str, adapter: str, udp_port: int | None = None) -> None:
        """Find the endpoint's MAC addresses and start the adapter (an empty one: prompts).

        `peer`: an IPv6 address, or `ADDRESS@MAC,MAC...` with the MAC address behind each interface.

        Raises:
            UsageError: an address or interface that does not exist.
            DeviceError: the endpoint does not answer neighbour discovery, or the adapter cannot be started.
        """
        text, _, macs = peer.partition("@")
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError as error:
            raise UsageError(
                f"--peer {peer}: {error}; write ADDRESS, or ADDRESS@MAC,MAC with a MAC for each interface"
            ) from None
        for interface in interfaces:
            try:
                socket.if_nametoindex(interface)
            except OSError:
                raise UsageError(f"--interface {interface}: there is no such interface; `ip link` lists them") from None
        if macs:
            found = [_mac(each, peer) for each in macs.split(",")]
            if len(found) != len(interfaces):
                raise UsageError(f"--peer {peer}: {len(found)} MAC addresses for {len(interfaces)} interfaces")
        else:
            found = [_neighbour(interface, address) for interface in interfaces]
        asked = ProcessAdapter(adapter) if adapter else PromptAdapter()
        try:
            super().__init__(interfaces, found, asked, _own_address(interfaces[0]))
        except BaseException:
            asked.close()
            raise
        self.name = f"the endpoint {text} behind {', '.join(interfaces)}"
        self.udp_port = udp_port
        self.offers = self.offers - {Need.EXACT_TIME}


def _mac(text: str, where: str) -> bytes:
    try:
        found = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        found = b""
    if len(found) != 6:
        raise UsageError(f"--peer {where}: {text} is no MAC address")
    return found


def _own_address(interface: str) -> bytes:
    """Return an IPv6 address of an interface, a global one if there is one. Raises UsageError when there is none."""
    found = []
    with open("/proc/net/if_inet6", encoding="ascii") as table:
        for line in table:
            address, _, _, scope, _, name = line.split()
            if name == interface:
                found.append((int(scope, 16), bytes.fromhex(address)))
    if not found:
        raise UsageError(f"--interface {interface}: it has no IPv6 address; give it one (`ip addr add`)")
    return min(found)[1]


def _neighbour(interface: str, address: ipaddress.IPv6Address) -> bytes:
    """Return the MAC address of a neighbour, by the kernel's neighbour discovery. Raises DeviceError without one."""
    from pyroute2 import IPRoute

    index = socket.if_nametoindex(interface)
    with IPRoute() as routes, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asking:
        deadline = time.monotonic() + _NEIGHBOUR_S
        while time.monotonic() < deadline:
            try:
                asking.sendto(b"", (str(address), 9, 0, index))
            except OSError as error:
                raise DeviceError(f"{interface}: {address} cannot be reached: {error.strerror}") from None
            for entry in routes.get_neighbours(ifindex=index, dst=str(address)):
                found = dict(entry["attrs"]).get("NDA_LLADDR")
                if found:
                    return bytes.fromhex(str(found).replace(":", ""))
            time.sleep(0.1)
    raise DeviceError(
        f"{interface}: {address} does not answer neighbour discovery; name its MAC address by --peer {address}@MAC"
    )
