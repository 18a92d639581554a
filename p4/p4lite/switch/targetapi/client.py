"""Client of the target API: ports, links, queues, impairments, state and statistics of a running fabric.

    with TargetClient("unix:/run/user/1000/p4lite/switch-0.sock") as target:
        target.set_link_up((1, 3), False)
        print(target.stats()[1].ports[3].drops)

It talks to the address at which the server also speaks P4Runtime. A link is named by either of its ends,
(device_id, port); its directions `a_to_b` and `b_to_a` are those of its creation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

import grpc
from google.protobuf.message import Message

from p4lite.switch.errors import TargetError as TargetError
from p4lite.switch.fabric.values import (
    CreditSettings,
    Lateness,
    LinkSettings,
    PfcSettings,
    QueueLimits,
    SwitchState,
)
from p4lite.switch.p4rt import info
from p4lite.switch.targetapi import codec
from p4lite.switch.targetapi import target_pb2 as pb
from p4lite.switch.targetapi.values import (
    AllStats,
    DeviceSample,
    DeviceStats,
    FabricInfo,
    LinkChanges,
    LinkDirection,
    PortDirection,
    PortInfo,
    SwitchInfo,
)

End = tuple[int, int]
M = TypeVar("M", bound=Message)


class TargetClient:
    """A connection to a fabric's server. Every method raises TargetError when the server refuses or is gone."""

    def __init__(
        self, address: str, *, timeout_s: float | None = 10.0, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        """Connect to a server; `credentials` (`grpc.ssl_channel_credentials`) if it speaks TLS.

        `timeout_s` bounds each call in seconds; None is without end, for a server in the same process.
        """
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

    def _call(self, method: str, request: Message, kind: type[M]) -> M:
        stub = self._channel.unary_unary(
            f"/{codec.SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        try:
            answer: M = stub(request, timeout=self.timeout_s, wait_for_ready=self.timeout_s is None)
        except grpc.RpcError as error:
            raise TargetError(error.code().name, f"{self.address}: {method}: {error.details()}") from None
        return answer

    def _do(self, method: str, request: Message) -> None:
        self._call(method, request, pb.Done)

    # -- switches ----------------------------------------------------------------------------------------

    def info(self) -> FabricInfo:
        """Return the switches and ports of the fabric."""
        return codec.value(FabricInfo, self._call("Info", pb.InfoRequest(), pb.FabricInfo))

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
        """Return a new switch without program and ports; P4Runtime serves it from now on."""
        request = pb.AddSwitchRequest(
            device_id=device_id,
            name=name,
            priority_queues=priority_queues,
            drop_port=drop_port,
            cpu_port=cpu_port,
            loop_limit=loop_limit,
        )
        return codec.value(SwitchInfo, self._call("AddSwitch", request, pb.SwitchInfo))

    def remove_switch(self, device_id: int) -> None:
        """Remove a switch with its ports and links; its controllers' streams end."""
        self._do("RemoveSwitch", pb.SwitchRequest(device_id=device_id))

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze (accepts, forwards nothing) or stop a switch; tables stay."""
        self._do("SetState", pb.SetStateRequest(device_id=device_id, state=codec.state_number(SwitchState(state))))

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """Restart a switch as after a reboot, with empty tables, registers and groups.

        `disconnect` also ends the streams of its controllers.
        """
        self._do("Restart", pb.RestartRequest(device_id=device_id, disconnect=disconnect))

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
        """Return a port on an interface that was named when the server started, or one to be linked; `pcap` as in
        `capture`."""
        request = pb.AddPortRequest(
            device_id=device_id,
            port=port,
            interface=interface,
            name=name,
            to_host=codec.changes(to_host),
            to_switch=codec.changes(to_switch),
            pcap=pcap,
        )
        return codec.value(PortInfo, self._call("AddPort", request, pb.PortInfo))

    def remove_port(self, device_id: int, port: int) -> None:
        """Remove a port; its link becomes free, and its queues are flushed."""
        self._do("RemovePort", pb.End(device_id=device_id, port=port))

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | LinkChanges | None = None,
        incoming: LinkSettings | LinkChanges | None = None,
    ) -> PortInfo:
        """Change the directions of a port's link; a dict changes only the settings it names."""
        request = pb.SetPortLinkRequest(
            at=_end((device_id, port)), outgoing=codec.changes(outgoing), incoming=codec.changes(incoming)
        )
        return codec.value(PortInfo, self._call("SetPortLink", request, pb.PortInfo))

    def set_port_up(self, device_id: int, port: int, up: bool, direction: PortDirection = "both") -> None:
        """Cut or restore the link at a port."""
        number = codec.port_direction_number(direction)
        self._do("SetPortUp", pb.SetPortUpRequest(at=_end((device_id, port)), up=up, direction=number))

    def set_queue(self, device_id: int, port: int, limits: QueueLimits, priority: int | None = None) -> None:
        """Set the capacity of one priority's queue, or of each (None)."""
        given = codec.settings(pb.QueueLimits, limits)
        self._do("SetQueue", pb.SetQueueRequest(at=_end((device_id, port)), limits=given, priority=priority))

    def set_credits(
        self, device_id: int, port: int, priority: int, settings: CreditSettings | None, source_mac: int = 0
    ) -> None:
        """Set the credits of a priority at a port, None: off (see `CreditSettings`)."""
        given = None if settings is None else codec.settings(pb.CreditSettings, settings)
        at = _end((device_id, port))
        self._do("SetCredits", pb.SetCreditsRequest(at=at, priority=priority, settings=given, source_mac=source_mac))

    def set_pfc(
        self, device_id: int, port: int, priority: int, settings: PfcSettings | None, source_mac: int = 0
    ) -> None:
        """Set the flow control of a priority at a port, None: off (see `PfcSettings`)."""
        given = None if settings is None else codec.settings(pb.PfcSettings, settings)
        at = _end((device_id, port))
        self._do("SetPfc", pb.SetPfcRequest(at=at, priority=priority, settings=given, source_mac=source_mac))

    def set_buffer(self, device_id: int, port: int, limits: QueueLimits) -> None:
        """Set the capacity of the whole port over all priorities."""
        given = codec.settings(pb.QueueLimits, limits)
        self._do("SetBuffer", pb.SetQueueRequest(at=_end((device_id, port)), limits=given))

    def capture(
        self,
        device_id: int,
        port: int,
        file: str | None,
        snaplen: int = 0,
        *,
        label: str = "",
        outside: bool = False,
    ) -> None:
        """Write both directions of a port to a pcap-ng file; None ends it.

        `file` is a name in the folder for captures and traces that the server was started with. `label` and `outside`
        are as in `Port.capture`.
        """
        at = _end((device_id, port))
        self._do("Capture", pb.CaptureRequest(at=at, file=file, snaplen=snaplen, label=label, outside=outside))

    # -- links -------------------------------------------------------------------------------------------

    def add_link(self, a: End, b: End, settings: LinkSettings | None = None, back: LinkSettings | None = None) -> None:
        """Join two ports; `back` (b to a) is like `settings` (a to b) unless given."""
        there, then = codec.changes(settings), codec.changes(back)
        self._do("AddLink", pb.AddLinkRequest(a=_end(a), b=_end(b), settings=there, back=then))

    def remove_link(self, end: End) -> None:
        """Remove a cable; packets on it are lost, and its ports are free."""
        self._do("RemoveLink", _end(end))

    def set_link(self, end: End, settings: LinkSettings | LinkChanges, direction: LinkDirection = "both") -> None:
        """Change a link; a dict changes only the settings it names."""
        number = codec.link_direction_number(direction)
        self._do("SetLink", pb.SetLinkRequest(at=_end(end), settings=codec.changes(settings), direction=number))

    def set_link_up(self, end: End, up: bool, direction: LinkDirection = "both") -> None:
        """Cut or restore a link; packets on the wire are lost."""
        number = codec.link_direction_number(direction)
        self._do("SetLinkUp", pb.SetLinkUpRequest(at=_end(end), up=up, direction=number))

    # -- observation -------------------------------------------------------------------------------------

    def stats(self, device_ids: Iterable[int] | None = None) -> dict[int, DeviceStats]:
        """Return the statistics of the switches (all when None) by device_id."""
        return codec.value(AllStats, self._call("Stats", _chosen(device_ids), pb.StatsResponse)).switches

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """Return a part of the statistics of all switches, in little time: see `PortSample`.

        Args:
            priority: of the queues whose depth is given.
            reasons: of the drops that are counted apart, as in `PortStats.drops`.
            counters: of the programs; of those that a program has, all cells are added up.
        """
        request = pb.SamplesRequest(priority=priority, reasons=list(reasons), counters=list(counters))
        return codec.samples(self._call("Samples", request, pb.SamplesResponse))

    def reset_stats(self, device_ids: Iterable[int] | None = None) -> None:
        """Reset counters and high-water marks to zero."""
        self._do("ResetStats", _chosen(device_ids))

    def lateness(self, *, reset: bool = False) -> Lateness:
        """Return how far the real clock's loop lags behind."""
        return codec.value(Lateness, self._call("Lateness", pb.LatenessRequest(reset=reset), pb.LatenessResponse))

    def trace(self, file: str | None) -> None:
        """Write one line per packet event to a file, named as for `capture`; None ends it."""
        self._do("Trace", pb.TraceRequest(file=file))

    def faults(self, device_id: int) -> dict[str, int]:
        """Return counts, by kind, of what the program did that BMv2 leaves undefined."""
        found = self._call("Faults", pb.SwitchRequest(device_id=device_id), pb.FaultsResponse)
        return codec.named(found.faults)

    # -- state of the program ----------------------------------------------------------------------------

    def read_register(self, device_id: int, register: str, index: int | None = None) -> list[int]:
        """Return one cell of a register array, or all (None)."""
        request = pb.ReadRequest(device_id=device_id, name=register, index=index)
        found = self._call("ReadRegister", request, pb.RegisterResponse)
        return [int.from_bytes(value, "big") for value in found.values]

    def write_register(self, device_id: int, register: str, index: int, value: int) -> None:
        """Set one cell of a register array."""
        given = info.encode(value)
        self._do("WriteRegister", pb.WriteRegisterRequest(device_id=device_id, name=register, index=index, value=given))

    def reset_register(self, device_id: int, register: str) -> None:
        """Reset a register array to zero."""
        self._do("ResetRegister", pb.ReadRequest(device_id=device_id, name=register))

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """Return (packets, bytes) of one cell of a counter, or of all (None).

        A direct counter has no numbered cells: all of it are those of its entries, and at the end that of misses."""
        request = pb.ReadRequest(device_id=device_id, name=counter, index=index)
        found = self._call("ReadCounter", request, pb.CounterResponse)
        return [(cell.packets, cell.bytes) for cell in found.values]


def _end(end: End) -> pb.End:
    return pb.End(device_id=end[0], port=end[1])


def _chosen(device_ids: Iterable[int] | None) -> pb.StatsRequest:
    return pb.StatsRequest(switches=None if device_ids is None else pb.DeviceIds(device_ids=list(device_ids)))
