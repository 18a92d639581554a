"""Client of the target API: ports, links, queues, impairments, state and statistics of a running fabric.

    with TargetClient("unix:/run/user/1000/p4lite/switch-0.sock") as target:
        target.set_link_up((1, 3), False)
        print(target.stats()[1].ports[3].drops)

It talks to the address at which the server also speaks P4Runtime. A link is named by either of its ends,
(device_id, port); its directions `a_to_b` and `b_to_a` are those of its creation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import grpc

from p4lite.switch.fabric.values import (
    CreditSettings,
    Lateness,
    LinkSettings,
    PfcSettings,
    PortSample,
    PortStats,
    QueueLimits,
    SwitchState,
    SwitchStats,
)
from p4lite.switch.targetapi import codec

End = tuple[int, int]
PortDirection = Literal["both", "outgoing", "incoming"]
LinkDirection = Literal["both", "a_to_b", "b_to_a"]


class TargetError(Exception):
    """A refused or failed call: `code` is the gRPC status code's name, the text the server's reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port: where it leads (`interface`, or `peer` = (device_id, port)), its state and settings."""

    port: int
    name: str
    interface: str | None
    peer: End | None
    up_outgoing: bool
    up_incoming: bool
    outgoing: LinkSettings
    incoming: LinkSettings


@dataclass(frozen=True, slots=True)
class SwitchInfo:
    """A switch: `stream_drops` counts messages that a slow controller did not take."""

    device_id: int
    name: str
    state: SwitchState
    program: str | None
    cpu_port: int | None
    drop_port: int
    priority_queues: int
    stream_drops: int
    ports: dict[int, PortInfo]


@dataclass(frozen=True, slots=True)
class FabricInfo:
    """The fabric's clock, how many events it executed, and its switches by device_id."""

    now_ns: int
    events: int
    notifications_lost: int
    switches: dict[int, SwitchInfo]


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Statistics of a switch and of its ports by number, read at `now_ns` of the fabric's clock."""

    now_ns: int
    switch: SwitchStats
    ports: dict[int, PortStats]


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """State of a switch, samples of its ports by number, and packets that counters of its program counted, by their
    names; read at `now_ns` of the fabric's clock."""

    now_ns: int
    state: SwitchState
    ports: dict[int, PortSample]
    counters: dict[str, int]


class TargetClient:
    """A connection to a fabric's server. Every method raises TargetError when the server refuses or is gone."""

    def __init__(
        self, address: str, *, timeout_s: float | None = 10.0, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        """`credentials` (`grpc.ssl_channel_credentials`) for a server that speaks TLS; `timeout_s`: of a call, s;
        None: without end, for a server in the same process."""
        self.address = address
        self.timeout_s = timeout_s
        options = [("grpc.max_receive_message_length", 64 << 20)]
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=options)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> TargetClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_ready(self, timeout_s: float = 10.0) -> None:
        """Wait until the server answers; TargetError after timeout_s."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise TargetError("UNAVAILABLE", f"{self.address}: no server answers") from None

    def call(self, method: str, **request: Any) -> Any:
        """One operation by its name; arguments that are None are left out."""
        given = {key: value for key, value in request.items() if value is not None}
        stub = self._channel.unary_unary(
            f"/{codec.SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            data = stub(codec.dump(given), timeout=self.timeout_s, wait_for_ready=self.timeout_s is None)
        except grpc.RpcError as error:
            code = error.code()
            raise TargetError(code.name, f"{self.address}: {method}: {error.details()}") from None
        return codec.load(data)

    # -- switches ----------------------------------------------------------------------------------------

    def info(self) -> FabricInfo:
        """What there is."""
        found = self.call("Info")
        switches = [_switch_info(item) for item in found["switches"]]
        return FabricInfo(
            found["now_ns"],
            found["events"],
            found["notifications_lost"],
            {switch.device_id: switch for switch in switches},
        )

    def add_switch(
        self,
        device_id: int,
        *,
        name: str | None = None,
        priority_queues: int | None = None,
        drop_port: int | None = None,
        cpu_port: int | None = None,
        loop_limit: int | None = None,
    ) -> SwitchInfo:
        """A new switch without program and ports; P4Runtime serves it from now on."""
        return _switch_info(
            self.call(
                "AddSwitch",
                device_id=device_id,
                name=name,
                priority_queues=priority_queues,
                drop_port=drop_port,
                cpu_port=cpu_port,
                loop_limit=loop_limit,
            )
        )

    def remove_switch(self, device_id: int) -> None:
        """Take a switch away with its ports and links; its controllers' streams end."""
        self.call("RemoveSwitch", device_id=device_id)

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze (accepts, forwards nothing) or stop a switch; tables stay."""
        self.call("SetState", device_id=device_id, state=SwitchState(state).value)

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """As after a reboot: tables, registers, groups empty. `disconnect` ends its controllers' streams too."""
        self.call("Restart", device_id=device_id, disconnect=disconnect)

    # -- ports -------------------------------------------------------------------------------------------

    def add_port(
        self,
        device_id: int,
        port: int,
        *,
        interface: str | None = None,
        name: str | None = None,
        to_host: LinkSettings | None = None,
        to_switch: LinkSettings | None = None,
        pcap: str | None = None,
    ) -> PortInfo:
        """A port on an interface that the server was told of at start, or one to be linked; `pcap` as in `capture`."""
        return _port_info(
            self.call(
                "AddPort",
                device_id=device_id,
                port=port,
                interface=interface,
                name=name,
                to_host=None if to_host is None else codec.plain(to_host),
                to_switch=None if to_switch is None else codec.plain(to_switch),
                pcap=pcap,
            )
        )

    def remove_port(self, device_id: int, port: int) -> None:
        """Take a port away; its link becomes free, its queues are flushed."""
        self.call("RemovePort", device_id=device_id, port=port)

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | dict[str, Any] | None = None,
        incoming: LinkSettings | dict[str, Any] | None = None,
    ) -> PortInfo:
        """Change the directions of a port's link; a dict changes only the settings it names."""
        return _port_info(
            self.call(
                "SetPortLink",
                device_id=device_id,
                port=port,
                outgoing=_settings(outgoing),
                incoming=_settings(incoming),
            )
        )

    def set_port_up(self, device_id: int, port: int, up: bool, direction: PortDirection = "both") -> None:
        """Cut or mend the link at a port."""
        self.call("SetPortUp", device_id=device_id, port=port, up=up, direction=direction)

    def set_queue(self, device_id: int, port: int, limits: QueueLimits, priority: int | None = None) -> None:
        """Capacity of one priority's queue, or of each (None)."""
        self.call("SetQueue", device_id=device_id, port=port, limits=codec.plain(limits), priority=priority)

    def set_credits(
        self, device_id: int, port: int, priority: int, settings: CreditSettings | None, source_mac: int = 0
    ) -> None:
        """Credits of a priority at a port, None: off (see `CreditSettings`)."""
        wanted = None if settings is None else codec.plain(settings)
        self.call(
            "SetCredits", device_id=device_id, port=port, priority=priority, settings=wanted, source_mac=source_mac
        )

    def set_pfc(
        self, device_id: int, port: int, priority: int, settings: PfcSettings | None, source_mac: int = 0
    ) -> None:
        """Flow control of a priority at a port, None: off (see `PfcSettings`)."""
        wanted = None if settings is None else codec.plain(settings)
        self.call("SetPfc", device_id=device_id, port=port, priority=priority, settings=wanted, source_mac=source_mac)

    def set_buffer(self, device_id: int, port: int, limits: QueueLimits) -> None:
        """Capacity of the whole port over all priorities."""
        self.call("SetBuffer", device_id=device_id, port=port, limits=codec.plain(limits))

    def capture(self, device_id: int, port: int, file: str | None, snaplen: int = 0) -> None:
        """Write both directions of a port to a pcap-ng file; None ends it.

        `file` is a name in the folder for captures and traces that the server was started with.
        """
        self.call("Capture", device_id=device_id, port=port, file=file, snaplen=snaplen)

    # -- links -------------------------------------------------------------------------------------------

    def add_link(self, a: End, b: End, settings: LinkSettings | None = None, back: LinkSettings | None = None) -> None:
        """Join two ports; `back` (b to a) is like `settings` (a to b) unless given."""
        self.call("AddLink", a=list(a), b=list(b), settings=_settings(settings), back=_settings(back))

    def remove_link(self, end: End) -> None:
        """Take a cable away; what is on it is lost, its ports are free."""
        self.call("RemoveLink", a=list(end))

    def set_link(self, end: End, settings: LinkSettings | dict[str, Any], direction: LinkDirection = "both") -> None:
        """Change a link; a dict changes only the settings it names."""
        self.call("SetLink", a=list(end), settings=_settings(settings), direction=direction)

    def set_link_up(self, end: End, up: bool, direction: LinkDirection = "both") -> None:
        """Cut or mend a link; what is on the wire is lost."""
        self.call("SetLinkUp", a=list(end), up=up, direction=direction)

    # -- observation -------------------------------------------------------------------------------------

    def stats(self, device_ids: Iterable[int] | None = None) -> dict[int, DeviceStats]:
        """Statistics of the switches (all when None) by device_id."""
        found = self.call("Stats", device_ids=None if device_ids is None else list(device_ids))
        return {
            int(ident): DeviceStats(
                found["now_ns"],
                codec.switch_stats(item["switch"]),
                {int(number): codec.port_stats(port) for number, port in item["ports"].items()},
            )
            for ident, item in found["switches"].items()
        }

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """A part of the statistics of all switches, in little time: see `PortSample`.

        Args:
            priority: of the queues whose depth is told.
            reasons: of the drops that are counted apart, as in `PortStats.drops`.
            counters: of the programs; of those that a program has, all cells are added up.
        """
        found = self.call("Samples", priority=priority, reasons=list(reasons), counters=list(counters))
        return {
            int(ident): DeviceSample(
                found["now_ns"],
                SwitchState(item["state"]),
                {int(number): PortSample._make(port) for number, port in item["ports"].items()},
                item["counters"],
            )
            for ident, item in found["switches"].items()
        }

    def reset_stats(self, device_ids: Iterable[int] | None = None) -> None:
        """Zero counters and high-water marks."""
        self.call("ResetStats", device_ids=None if device_ids is None else list(device_ids))

    def lateness(self, *, reset: bool = False) -> Lateness:
        """How far the real clock's loop lags behind."""
        return codec.lateness(self.call("Lateness", reset=reset))

    def trace(self, file: str | None) -> None:
        """Write one line per packet event to a file, named as for `capture`; None ends it."""
        self.call("Trace", file=file)

    def faults(self, device_id: int) -> dict[str, int]:
        """What the program did that BMv2 leaves undefined, counted by kind."""
        return {str(name): int(count) for name, count in self.call("Faults", device_id=device_id).items()}

    # -- state of the program ----------------------------------------------------------------------------

    def read_register(self, device_id: int, register: str, index: int | None = None) -> list[int]:
        """One cell of a register array, or all (None)."""
        found = self.call("ReadRegister", device_id=device_id, register=register, index=index)
        return [int(value) for value in found["values"]]

    def write_register(self, device_id: int, register: str, index: int, value: int) -> None:
        """Set one cell of a register array."""
        self.call("WriteRegister", device_id=device_id, register=register, index=index, value=value)

    def reset_register(self, device_id: int, register: str) -> None:
        """Zero a register array."""
        self.call("ResetRegister", device_id=device_id, register=register)

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """(packets, bytes) of one cell of an indirect counter, or of all (None)."""
        found = self.call("ReadCounter", device_id=device_id, counter=counter, index=index)
        return [(packets, octets) for packets, octets in found["values"]]


def _settings(value: LinkSettings | dict[str, Any] | None) -> dict[str, Any] | None:
    return codec.plain(value) if isinstance(value, LinkSettings) else value


def _port_info(item: dict[str, Any]) -> PortInfo:
    peer = item["peer"]
    return PortInfo(
        item["port"],
        item["name"],
        item["interface"],
        None if peer is None else (peer[0], peer[1]),
        item["up"]["outgoing"],
        item["up"]["incoming"],
        codec.link_settings(item["outgoing"], "outgoing"),
        codec.link_settings(item["incoming"], "incoming"),
    )


def _switch_info(item: dict[str, Any]) -> SwitchInfo:
    ports = [_port_info(port) for port in item["ports"]]
    return SwitchInfo(
        item["device_id"],
        item["name"],
        SwitchState(item["state"]),
        item["program"],
        item["cpu_port"],
        item["drop_port"],
        item["priority_queues"],
        item["stream_drops"],
        {port.port: port for port in ports},
    )
