"""The server's side of the target API: what P4Runtime has no words for.

One method for each `rpc` of target.proto, of the same name in snake case; the client documents each. Refusals:
INVALID_ARGUMENT for a request of the wrong form, NOT_FOUND for a switch or port that is not there, FAILED_PRECONDITION
for what the fabric refuses, PERMISSION_DENIED for files and interfaces that were not granted at start.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import grpc
from google.protobuf.message import DecodeError, Message

from p4lite.switch import errors as program_errors
from p4lite.switch.fabric.fabric import FabricSwitch, Link, Port
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.p4rt import info
from p4lite.switch.p4rt.errors import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNAVAILABLE,
    P4RtError,
)
from p4lite.switch.p4rt.service import P4RuntimeService
from p4lite.switch.runtime.loader import ProgramInstance
from p4lite.switch.targetapi import codec
from p4lite.switch.targetapi import target_pb2 as pb
from p4lite.switch.targetapi.codec import CodecError
from p4lite.switch.targetapi.grants import Grants
from p4lite.switch.targetapi.inside import port_info, switch_info, totals
from p4lite.switch.targetapi.values import (
    AllStats,
    DeviceSample,
    DeviceStats,
    FabricInfo,
    SwitchInfo,
)

Method = Callable[[Any], Message | None]
_DONE = pb.Done()
_MAC_LIMIT = 1 << 48


@contextmanager
def refusals() -> Iterator[None]:
    """Turn every refusal within the context into P4RtError."""
    try:
        yield
    except CodecError as error:
        raise P4RtError(INVALID_ARGUMENT, str(error)) from None
    except FabricError as error:
        raise P4RtError(FAILED_PRECONDITION, str(error)) from None
    except program_errors.GrantError as error:
        raise P4RtError(PERMISSION_DENIED, str(error)) from None
    except program_errors.NotFound as error:
        raise P4RtError(NOT_FOUND, str(error)) from None
    except (program_errors.ControlError, program_errors.ProgramError, program_errors.BuildError) as error:
        raise P4RtError(INVALID_ARGUMENT, str(error)) from None


class TargetService:
    """The target API on the devices of a P4RuntimeService; of the machine it uses only what `grants` allows."""

    def __init__(self, service: P4RuntimeService, grants: Grants | None = None) -> None:
        self._service = service
        self._grants = grants or Grants()
        self._fabric = service.fabric
        self._lock = threading.Lock()  # One request at a time, because the fabric's Python side is not thread-safe.

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the service's methods, to be added to a grpc.Server."""
        methods = pb.DESCRIPTOR.services_by_name["Target"].methods
        return grpc.method_handlers_generic_handler(
            codec.SERVICE,
            {
                each.name: self._service.one_to_one(
                    self._guarded(getattr(self, _method_name(each.name)), getattr(pb, each.input_type.name).FromString),
                    bytes,
                    bytes,
                )
                for each in methods
            },
        )

    def _guarded(self, method: Method, read: Callable[[bytes], Message]) -> Callable[[bytes, Any], bytes]:
        def call(data: bytes) -> bytes:
            request = _read(read, data)
            with refusals(), self._lock:
                return (method(request) or _DONE).SerializeToString()

        return lambda data, context: bytes(self._service.guard(context, call, data))

    # -- what a request names ----------------------------------------------------------------------------

    def _switch(self, device_id: int) -> FabricSwitch:
        return self._service.device(device_id).switch

    def _port(self, end: pb.End) -> Port:
        switch = self._switch(end.device_id)
        port = switch.ports.get(end.port)
        if port is None:
            known = ", ".join(map(str, switch.ports)) or "none"
            raise P4RtError(NOT_FOUND, f"switch {switch.device_id} has no port {end.port}; known: {known}")
        return port

    def _link(self, end: pb.End) -> Link:
        port = self._port(end)
        if port.link is None:
            raise P4RtError(NOT_FOUND, f"port {port.number} of switch {port.device_id} has no link")
        return port.link

    def _switches(self) -> list[FabricSwitch]:
        return [device.switch for device in self._service.devices()]

    def _chosen(self, request: pb.StatsRequest) -> list[FabricSwitch]:
        if not request.HasField("switches"):
            return self._switches()
        return [self._switch(device_id) for device_id in request.switches.device_ids]

    def _ports_changed(self, *ports: Port) -> None:
        for port in ports:
            self._service.device(port.device_id).ports_changed()

    # -- switches ----------------------------------------------------------------------------------------

    def info(self, request: pb.InfoRequest) -> pb.FabricInfo:
        """See `TargetClient.info`."""
        del request
        fabric = self._fabric
        switches = {switch.device_id: self._describe(switch) for switch in self._switches()}
        return codec.message(
            pb.FabricInfo, FabricInfo(fabric.now_ns, fabric.events(), fabric.notifications_lost(), switches)
        )

    def _describe(self, switch: FabricSwitch) -> SwitchInfo:
        return switch_info(switch, self._service.device(switch.device_id).stream_drops)

    def add_switch(self, request: pb.AddSwitchRequest) -> pb.SwitchInfo:
        """See `TargetClient.add_switch`."""
        switch = self._fabric.add_switch(**_given(request))
        self._service.add_device(switch)
        return codec.message(pb.SwitchInfo, self._describe(switch))

    def remove_switch(self, request: pb.SwitchRequest) -> None:
        """See `TargetClient.remove_switch`."""
        device = self._service.device(request.device_id)
        self._service.remove_device(request.device_id)
        with device.lock, self._service.programs:
            self._fabric.remove_switch(request.device_id)

    def set_state(self, request: pb.SetStateRequest) -> None:
        """See `TargetClient.set_state`."""
        self._switch(request.device_id).set_state(codec.state(request.state))

    def restart(self, request: pb.RestartRequest) -> None:
        """See `TargetClient.restart`."""
        device = self._service.device(request.device_id)
        with device.lock:
            device.switch.restart()
            device.restarted()
        if request.disconnect:
            self._service.end_streams(device, P4RtError(UNAVAILABLE, f"switch {device.device_id} was restarted"))

    # -- ports and links ---------------------------------------------------------------------------------

    def add_port(self, request: pb.AddPortRequest) -> pb.PortInfo:
        """See `TargetClient.add_port`."""
        switch = self._switch(request.device_id)
        if request.HasField("interface"):
            self._grants.check_interface(request.interface)
        port = switch.add_port(
            request.port,
            interface=request.interface if request.HasField("interface") else None,
            name=request.name if request.HasField("name") else None,
            to_host=codec.link_settings(request.to_host, "to_host"),
            to_switch=codec.link_settings(request.to_switch, "to_switch"),
        )
        if request.HasField("pcap"):
            try:
                self._capture_into(port, request.pcap)
            except BaseException:
                switch.remove_port(port.number)
                raise
        return codec.message(pb.PortInfo, port_info(port))

    def remove_port(self, request: pb.End) -> None:
        """See `TargetClient.remove_port`."""
        port = self._port(request)
        self._switch(port.device_id).remove_port(port.number)
        self._ports_changed(port)

    def set_port_link(self, request: pb.SetPortLinkRequest) -> pb.PortInfo:
        """See `TargetClient.set_port_link`."""
        port = self._port(request.at)
        keys: tuple[Literal["outgoing", "incoming"], ...] = ("outgoing", "incoming")
        settings = {
            key: codec.link_settings(getattr(request, key), key, port.link_settings(key))
            for key in keys
            if request.HasField(key)
        }
        port.set_link(outgoing=settings.get("outgoing"), incoming=settings.get("incoming"))
        return codec.message(pb.PortInfo, port_info(port))

    def set_port_up(self, request: pb.SetPortUpRequest) -> None:
        """See `TargetClient.set_port_up`."""
        port = self._port(request.at)
        port.set_up(_up(request), codec.port_direction(request.direction))
        self._ports_changed(*self._both_ends(port))

    def _both_ends(self, port: Port) -> list[Port]:
        return [port] if port.link is None else list(port.link.ports())

    def set_queue(self, request: pb.SetQueueRequest) -> None:
        """See `TargetClient.set_queue`."""
        limits = codec.queue_limits(request.limits, "limits")
        self._port(request.at).set_queue(limits, request.priority if request.HasField("priority") else None)

    def set_buffer(self, request: pb.SetQueueRequest) -> None:
        """See `TargetClient.set_buffer`."""
        self._port(request.at).set_buffer(codec.queue_limits(request.limits, "limits"))

    def set_pfc(self, request: pb.SetPfcRequest) -> None:
        """See `TargetClient.set_pfc`."""
        settings = codec.pfc_settings(request.settings, "settings") if request.HasField("settings") else None
        self._port(request.at).set_pfc(request.priority, settings, _mac(request.source_mac))

    def set_credits(self, request: pb.SetCreditsRequest) -> None:
        """See `TargetClient.set_credits`."""
        settings = codec.credit_settings(request.settings, "settings") if request.HasField("settings") else None
        self._port(request.at).set_credits(request.priority, settings, _mac(request.source_mac))

    def capture(self, request: pb.CaptureRequest) -> None:
        """See `TargetClient.capture`."""
        port = self._port(request.at)
        if request.HasField("file"):
            label, outside = request.label, request.outside
            self._capture_into(port, request.file, snaplen=request.snaplen, label=label, outside=outside)
        else:
            port.capture(None)

    def _capture_into(self, port: Port, name: str, **options: Any) -> None:
        # The old capture ends first: its last bytes must not be written into the new one, if that is the same file.
        port.capture(None)
        with self._grants.opened(name) as path:
            self.measure_files()
            port.capture(path, limited=True, **options)

    def measure_files(self) -> None:
        """Let captures and traces grow as far as there is room for them."""
        if self._grants.folder is not None:
            self._fabric.set_files_room(self._grants.room())

    def add_link(self, request: pb.AddLinkRequest) -> None:
        """See `TargetClient.add_link`."""
        a, b = self._port(request.a), self._port(request.b)
        settings = codec.link_settings(request.settings, "settings")
        self._fabric.link(
            a, b, settings, codec.link_settings(request.back, "back") if request.HasField("back") else None
        )
        self._ports_changed(a, b)

    def remove_link(self, request: pb.End) -> None:
        """See `TargetClient.remove_link`."""
        link = self._link(request)
        self._fabric.unlink(link)
        self._ports_changed(*link.ports())

    def set_link(self, request: pb.SetLinkRequest) -> None:
        """See `TargetClient.set_link`."""
        link, direction = self._link(request.at), codec.link_direction(request.direction)
        directions: tuple[Literal["a_to_b", "b_to_a"], ...] = (
            ("a_to_b", "b_to_a") if direction == "both" else (direction,)
        )
        for one in directions:
            link.set(codec.link_settings(request.settings, "settings", link.settings(one)), one)

    def set_link_up(self, request: pb.SetLinkUpRequest) -> None:
        """See `TargetClient.set_link_up`."""
        link = self._link(request.at)
        link.set_up(_up(request), codec.link_direction(request.direction))
        self._ports_changed(*link.ports())

    # -- observation -------------------------------------------------------------------------------------

    def stats(self, request: pb.StatsRequest) -> pb.StatsResponse:
        """See `TargetClient.stats`."""
        now_ns = self._fabric.now_ns
        found = {
            switch.device_id: DeviceStats(
                now_ns, switch.stats(), {port.number: port.stats() for port in switch.ports.values()}
            )
            for switch in self._chosen(request)
        }
        return codec.message(pb.StatsResponse, AllStats(found))

    def samples(self, request: pb.SamplesRequest) -> pb.SamplesResponse:
        """Return samples of all ports in a twentieth of the time of statistics, and totals of the counters named."""
        if request.priority > 7:
            raise CodecError(f"priority: expected an integer from 0 to 7, got {request.priority}")
        switches = self._switches()
        ports = [port for switch in switches for port in switch.ports.values()]
        rows = iter(self._fabric.port_samples(ports, request.priority, request.reasons))
        now_ns = self._fabric.now_ns
        found = {
            switch.device_id: DeviceSample(
                now_ns,
                switch.state,
                {number: next(rows) for number in switch.ports},
                self._totals(switch, request.counters),
            )
            for switch in switches
        }
        return codec.samples_message(now_ns, found)

    def _totals(self, switch: FabricSwitch, counters: Sequence[str]) -> dict[str, int]:
        """Return packets of all cells of those counters that the switch's program has."""
        with self._service.device(switch.device_id).lock:
            return totals(switch, counters)

    def reset_stats(self, request: pb.StatsRequest) -> None:
        """See `TargetClient.reset_stats`."""
        for switch in self._chosen(request):
            switch.reset_stats()

    def lateness(self, request: pb.LatenessRequest) -> pb.LatenessResponse:
        """See `TargetClient.lateness`."""
        return codec.message(pb.LatenessResponse, self._fabric.lateness(reset=request.reset))

    def trace(self, request: pb.TraceRequest) -> None:
        """See `TargetClient.trace`."""
        self._fabric.trace(None)
        if request.HasField("file"):
            with self._grants.opened(request.file) as path:
                self.measure_files()
                self._fabric.trace(path, limited=True)

    # -- state of the program ----------------------------------------------------------------------------

    @contextmanager
    def _instance(self, device_id: int) -> Iterator[ProgramInstance]:
        """Yield the running program's state, which cannot be replaced meanwhile."""
        device = self._service.device(device_id)
        with device.lock:
            yield device.switch.instance

    def faults(self, request: pb.SwitchRequest) -> pb.FaultsResponse:
        """See `TargetClient.faults`."""
        with self._instance(request.device_id) as instance:
            return pb.FaultsResponse(faults=codec.counts(instance.faults()))

    def read_register(self, request: pb.ReadRequest) -> pb.RegisterResponse:
        """See `TargetClient.read_register`."""
        with self._instance(request.device_id) as instance:
            if request.HasField("index"):
                values = [instance.register_read(request.name, request.index)]
            else:
                values = instance.register_read_all(request.name)
        return pb.RegisterResponse(values=[info.encode(value) for value in values])

    def write_register(self, request: pb.WriteRegisterRequest) -> None:
        """See `TargetClient.write_register`."""
        with self._instance(request.device_id) as instance:
            instance.register_write(request.name, request.index, int.from_bytes(request.value, "big"))

    def reset_register(self, request: pb.ReadRequest) -> None:
        """See `TargetClient.reset_register`."""
        with self._instance(request.device_id) as instance:
            instance.register_reset(request.name)

    def read_counter(self, request: pb.ReadRequest) -> pb.CounterResponse:
        """See `TargetClient.read_counter`."""
        with self._instance(request.device_id) as instance:
            if request.HasField("index"):
                values = [instance.counter_read(request.name, request.index)]
            else:
                values = instance.counter_read_all(request.name)
        return pb.CounterResponse(values=[pb.CounterCell(packets=each.packets, bytes=each.bytes) for each in values])


def _method_name(name: str) -> str:
    """Return the method of an `rpc`: SetPortUp is set_port_up."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _read(read: Callable[[bytes], Message], data: bytes) -> Message:
    try:
        return read(data)
    # The pure-Python runtime lets several kinds of error escape on malformed bytes.
    except (DecodeError, ValueError, IndexError, TypeError, RecursionError) as error:
        raise P4RtError(INVALID_ARGUMENT, f"the request is not of the form that target.proto says: {error}") from None


def _given(request: Message) -> dict[str, Any]:
    """Return the fields that a request has, and its device, which may be 0."""
    return {"device_id": 0} | {field.name: item for field, item in request.ListFields()}


def _up(request: pb.SetPortUpRequest | pb.SetLinkUpRequest) -> bool:
    if not request.HasField("up"):
        raise CodecError("up: expected true or false; it is missing")
    return request.up


def _mac(value: int) -> int:
    if value >= _MAC_LIMIT:
        raise CodecError(f"source_mac: expected an integer from 0 to {_MAC_LIMIT - 1}, got {value}")
    return value
