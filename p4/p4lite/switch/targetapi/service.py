"""The server's side of the target API: what P4Runtime has no words for.

One unary method per operation; requests and responses are JSON objects (`target_codec`). `target.TargetClient` is
its client and documents each operation. Refusals: INVALID_ARGUMENT for a request of the wrong form, NOT_FOUND for
a switch or port that is not there, FAILED_PRECONDITION for what the fabric refuses, PERMISSION_DENIED for files and
interfaces that were not granted at start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import grpc

from p4lite.switch import errors as program_errors
from p4lite.switch.fabric.fabric import Link, Port, Switch
from p4lite.switch.fabric.values import FabricError, LinkSettings, SwitchState
from p4lite.switch.p4rt.errors import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNAVAILABLE,
    P4RtError,
    abort,
)
from p4lite.switch.p4rt.service import P4RuntimeService
from p4lite.switch.runtime.instance import ProgramInstance
from p4lite.switch.targetapi import codec
from p4lite.switch.targetapi.codec import CodecError, integer, text
from p4lite.switch.targetapi.grants import Grants

log = logging.getLogger("p4lite.target")
PortDirection = Literal["both", "outgoing", "incoming"]
LinkDirection = Literal["both", "a_to_b", "b_to_a"]
Request = dict[str, Any]
Method = Callable[[Request], Any]
_MAX_PORT = 65535


@contextmanager
def refusals() -> Iterator[None]:
    """Turn every refusal below into P4RtError."""
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
    """The target API on the devices of a P4RuntimeService; of the machine it touches what `grants` says."""

    def __init__(self, service: P4RuntimeService, grants: Grants | None = None) -> None:
        self._service = service
        self._grants = grants or Grants()
        self._fabric = service.fabric
        self._lock = threading.Lock()  # one request at a time: the fabric's Python side is not for many threads

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service's methods, to be added to a grpc.Server."""
        methods: dict[str, tuple[Method, tuple[str, ...]]] = {
            "Info": (self._info, ()),
            "AddSwitch": (
                self._add_switch,
                ("device_id", "name", "priority_queues", "drop_port", "cpu_port", "loop_limit"),
            ),
            "RemoveSwitch": (self._remove_switch, ("device_id",)),
            "AddPort": (
                self._add_port,
                ("device_id", "port", "interface", "name", "to_host", "to_switch", "pcap"),
            ),
            "RemovePort": (self._remove_port, ("device_id", "port")),
            "SetPortLink": (self._set_port_link, ("device_id", "port", "outgoing", "incoming")),
            "SetPortUp": (self._set_port_up, ("device_id", "port", "up", "direction")),
            "SetQueue": (self._set_queue, ("device_id", "port", "limits", "priority")),
            "SetBuffer": (self._set_buffer, ("device_id", "port", "limits")),
            "SetCredits": (self._set_credits, ("device_id", "port", "priority", "settings", "source_mac")),
            "SetPfc": (self._set_pfc, ("device_id", "port", "priority", "settings", "source_mac")),
            "Capture": (self._capture, ("device_id", "port", "file", "snaplen")),
            "AddLink": (self._add_link, ("a", "b", "settings", "back")),
            "RemoveLink": (self._remove_link, ("a",)),
            "SetLink": (self._set_link, ("a", "settings", "direction")),
            "SetLinkUp": (self._set_link_up, ("a", "up", "direction")),
            "SetState": (self._set_state, ("device_id", "state")),
            "Restart": (self._restart, ("device_id", "disconnect")),
            "Stats": (self._stats, ("device_ids",)),
            "Samples": (self._samples, ("priority", "reasons", "counters")),
            "ResetStats": (self._reset_stats, ("device_ids",)),
            "Lateness": (self._lateness, ("reset",)),
            "Trace": (self._trace, ("file",)),
            "Faults": (self._faults, ("device_id",)),
            "ReadRegister": (self._read_register, ("device_id", "register", "index")),
            "WriteRegister": (self._write_register, ("device_id", "register", "index", "value")),
            "ResetRegister": (self._reset_register, ("device_id", "register")),
            "ReadCounter": (self._read_counter, ("device_id", "counter", "index")),
        }
        return grpc.method_handlers_generic_handler(
            codec.SERVICE,
            {
                name: self._service.one_to_one(self._guarded(method, keys), bytes, bytes)
                for name, (method, keys) in methods.items()
            },
        )

    def _guarded(self, method: Method, keys: tuple[str, ...]) -> Callable[[bytes, Any], bytes]:
        def call(data: bytes, context: Any) -> bytes:
            try:
                with refusals(), self._lock:
                    return codec.dump(method(codec.check_keys(codec.load(data), "request", keys)))
            except P4RtError as error:
                failure = error
            except Exception as error:
                log.exception("a request failed")
                failure = P4RtError(INTERNAL, f"{type(error).__name__}: {error}")
            abort(context, failure)
            return b""

        return call

    # -- what a request names ----------------------------------------------------------------------------

    def _switch(self, request: Request) -> Switch:
        return self._service.device(integer(request.get("device_id"), "device_id")).switch

    def _port(self, request: Request) -> Port:
        return self._port_of(self._switch(request), request.get("port"), "port")

    def _port_of(self, switch: Switch, value: Any, where: str) -> Port:
        number = integer(value, where, 0, _MAX_PORT)
        port = switch.ports.get(number)
        if port is None:
            known = ", ".join(map(str, switch.ports)) or "none"
            raise P4RtError(NOT_FOUND, f"switch {switch.device_id} has no port {number}; known: {known}")
        return port

    def _end(self, value: Any, where: str) -> Port:
        if not isinstance(value, list) or len(value) != 2:
            raise CodecError(f"{where}: expected [device_id, port], got {value!r}")
        switch = self._service.device(integer(value[0], f"{where}[0]")).switch
        return self._port_of(switch, value[1], f"{where}[1]")

    def _link(self, request: Request) -> tuple[Link, LinkDirection]:
        port = self._end(request.get("a"), "a")
        if port.link is None:
            raise P4RtError(NOT_FOUND, f"port {port.number} of switch {port.device_id} has no link")
        return port.link, cast(LinkDirection, _choice(request, "direction", ("both", "a_to_b", "b_to_a")))

    def _chosen(self, request: Request) -> list[Switch]:
        chosen = request.get("device_ids")
        if chosen is None:
            return [device.switch for device in self._service.devices()]
        if not isinstance(chosen, list):
            raise CodecError(f"device_ids: expected a list, got {chosen!r}")
        return [self._service.device(integer(ident, "device_ids")).switch for ident in chosen]

    def _ports_changed(self, *ports: Port) -> None:
        for port in ports:
            self._service.device(port.device_id).ports_changed()

    # -- switches ----------------------------------------------------------------------------------------

    def _info(self, request: Request) -> Any:
        del request
        return {
            "now_ns": self._fabric.now_ns,
            "events": self._fabric.events(),
            "notifications_lost": self._fabric.notifications_lost(),
            "switches": [self._describe(switch) for switch in self._chosen({})],
        }

    def _describe(self, switch: Switch) -> dict[str, Any]:
        return {
            "device_id": switch.device_id,
            "name": switch.name,
            "state": switch.state.value,
            "program": switch.program.name if switch.program is not None else None,
            "cpu_port": switch.cpu_port,
            "drop_port": switch.drop_port,
            "priority_queues": switch.priority_queues,
            "stream_drops": self._service.device(switch.device_id).stream_drops,
            "ports": [self._describe_port(port) for port in switch.ports.values()],
        }

    def _describe_port(self, port: Port) -> dict[str, Any]:
        link = port.link
        peer = None
        if link is not None:
            other = link.other(port)
            peer = [other.device_id, other.number]
        return {
            "port": port.number,
            "name": port.name,
            "interface": port.interface,
            "peer": peer,
            "up": {"outgoing": port.is_up("outgoing"), "incoming": port.is_up("incoming")},
            "outgoing": codec.plain(port.link_settings("outgoing")),
            "incoming": codec.plain(port.link_settings("incoming")),
        }

    def _add_switch(self, request: Request) -> Any:
        device_id = integer(request.get("device_id"), "device_id")
        options: dict[str, Any] = {
            key: integer(request[key], key, 0, _MAX_PORT)
            for key in ("priority_queues", "drop_port", "cpu_port", "loop_limit")
            if request.get(key) is not None
        }
        if request.get("name") is not None:
            options["name"] = text(request["name"], "name")
        switch = self._fabric.add_switch(device_id, **options)
        self._service.add_device(switch)
        return self._describe(switch)

    def _remove_switch(self, request: Request) -> Any:
        switch = self._switch(request)
        device = self._service.device(switch.device_id)
        self._service.remove_device(switch.device_id)
        with device.lock, self._service.programs:
            self._fabric.remove_switch(switch.device_id)
        return {}

    def _set_state(self, request: Request) -> Any:
        switch = self._switch(request)
        states = tuple(state.value for state in SwitchState)
        switch.set_state(SwitchState(_choice(request, "state", states)))
        return {}

    def _restart(self, request: Request) -> Any:
        device = self._service.device(self._switch(request).device_id)
        with device.lock:
            device.switch.restart()
            device.restarted()
        if request.get("disconnect"):
            self._service.end_streams(device, P4RtError(UNAVAILABLE, f"switch {device.device_id} was restarted"))
        return {}

    # -- ports and links ---------------------------------------------------------------------------------

    def _add_port(self, request: Request) -> Any:
        switch = self._switch(request)
        options: dict[str, Any] = {
            key: text(request[key], key) for key in ("interface", "name") if request.get(key) is not None
        }
        if "interface" in options:
            self._grants.check_interface(options["interface"])
        pcap = None if request.get("pcap") is None else text(request["pcap"], "pcap")
        for key in ("to_host", "to_switch"):
            if request.get(key) is not None:
                options[key] = codec.link_settings(request[key], key)
        port = switch.add_port(integer(request.get("port"), "port", 0, _MAX_PORT), **options)
        if pcap is not None:
            try:
                self._capture_into(port, pcap, 0)
            except BaseException:
                switch.remove_port(port.number)
                raise
        return self._describe_port(port)

    def _remove_port(self, request: Request) -> Any:
        port = self._port(request)
        self._fabric.switch(port.device_id).remove_port(port.number)
        self._ports_changed(port)
        return {}

    def _set_port_link(self, request: Request) -> Any:
        port = self._port(request)
        settings: dict[str, LinkSettings] = {}
        keys: tuple[Literal["outgoing", "incoming"], ...] = ("outgoing", "incoming")
        for key in keys:
            if request.get(key) is not None:
                base = port.link_settings(key)
                settings[key] = codec.link_settings(request[key], key, base)
        port.set_link(outgoing=settings.get("outgoing"), incoming=settings.get("incoming"))
        return self._describe_port(port)

    def _set_port_up(self, request: Request) -> Any:
        port = self._port(request)
        direction = _choice(request, "direction", ("both", "outgoing", "incoming"))
        port.set_up(_flag(request, "up"), cast(PortDirection, direction))
        self._ports_changed(*self._both_ends(port))
        return {}

    def _both_ends(self, port: Port) -> list[Port]:
        return [port] if port.link is None else list(port.link.ports())

    def _set_queue(self, request: Request) -> Any:
        limits = codec.queue_limits(request.get("limits"), "limits")
        priority = request.get("priority")
        if priority is not None:
            integer(priority, "priority", 0, 255)
        self._port(request).set_queue(limits, priority)
        return {}

    def _set_buffer(self, request: Request) -> Any:
        self._port(request).set_buffer(codec.queue_limits(request.get("limits"), "limits"))
        return {}

    def _set_pfc(self, request: Request) -> Any:
        settings = request.get("settings")
        self._port(request).set_pfc(
            integer(request.get("priority"), "priority", 0, 255),
            None if settings is None else codec.pfc_settings(settings, "settings"),
            integer(request.get("source_mac", 0), "source_mac", 0, (1 << 48) - 1),
        )
        return {}

    def _set_credits(self, request: Request) -> Any:
        settings = request.get("settings")
        self._port(request).set_credits(
            integer(request.get("priority"), "priority", 0, 255),
            None if settings is None else codec.credit_settings(settings, "settings"),
            integer(request.get("source_mac", 0), "source_mac", 0, (1 << 48) - 1),
        )
        return {}

    def _capture(self, request: Request) -> Any:
        port, snaplen = self._port(request), integer(request.get("snaplen", 0), "snaplen", 0, (1 << 32) - 1)
        if request.get("file") is None:
            port.capture(None)
        else:
            self._capture_into(port, text(request["file"], "file"), snaplen)
        return {}

    def _capture_into(self, port: Port, name: str, snaplen: int) -> None:
        # The old one first: its last bytes are not to be written into the new one, if that is the same file.
        port.capture(None)
        with self._grants.opened(name) as path:
            self.measure_files()
            port.capture(path, snaplen, limited=True)

    def measure_files(self) -> None:
        """Let captures and traces grow as far as there is room for them."""
        if self._grants.folder is not None:
            self._fabric.set_files_room(self._grants.room())

    def _add_link(self, request: Request) -> Any:
        a, b = self._end(request.get("a"), "a"), self._end(request.get("b"), "b")
        settings = codec.link_settings(request.get("settings") or {}, "settings")
        back = request.get("back")
        self._fabric.link(a, b, settings, None if back is None else codec.link_settings(back, "back"))
        self._ports_changed(a, b)
        return {}

    def _remove_link(self, request: Request) -> Any:
        link, _ = self._link(request)
        self._fabric.unlink(link)
        self._ports_changed(*link.ports())
        return {}

    def _set_link(self, request: Request) -> Any:
        link, direction = self._link(request)
        directions: tuple[Literal["a_to_b", "b_to_a"], ...] = (
            ("a_to_b", "b_to_a") if direction == "both" else (direction,)
        )
        for one in directions:
            link.set(codec.link_settings(request.get("settings"), "settings", link.settings(one)), one)
        return {}

    def _set_link_up(self, request: Request) -> Any:
        link, direction = self._link(request)
        link.set_up(_flag(request, "up"), direction)
        self._ports_changed(*link.ports())
        return {}

    # -- observation -------------------------------------------------------------------------------------

    def _stats(self, request: Request) -> Any:
        return {
            "now_ns": self._fabric.now_ns,
            "switches": {
                str(switch.device_id): {
                    "switch": codec.plain(switch.stats()),
                    "ports": {str(port.number): codec.plain(port.stats()) for port in switch.ports.values()},
                }
                for switch in self._chosen(request)
            },
        }

    def _samples(self, request: Request) -> Any:
        """Of all ports, in a twentieth of the time that statistics take; totals of counters, where there are such."""
        reasons, counters = _names(request, "reasons"), _names(request, "counters")
        switches = self._chosen({})
        ports = [port for switch in switches for port in switch.ports.values()]
        rows = iter(self._fabric.port_samples(ports, integer(request.get("priority"), "priority", 0, 7), reasons))
        return {
            "now_ns": self._fabric.now_ns,
            "switches": {
                str(switch.device_id): {
                    "state": switch.state.value,
                    "ports": {str(number): next(rows) for number in switch.ports},
                    "counters": self._totals(switch, counters),
                }
                for switch in switches
            },
        }

    def _totals(self, switch: Switch, counters: list[str]) -> dict[str, int]:
        """Packets of all cells of those counters that the switch's program has."""
        if not counters or switch.program is None:
            return {}
        device = self._service.device(switch.device_id)
        with device.lock:
            instance = switch.instance
            known = instance.program.counters
            return {name: instance.counter_total(name).packets for name in counters if name in known}

    def _reset_stats(self, request: Request) -> Any:
        for switch in self._chosen(request):
            switch.reset_stats()
        return {}

    def _lateness(self, request: Request) -> Any:
        return codec.plain(self._fabric.lateness(reset=_flag(request, "reset", False)))

    def _trace(self, request: Request) -> Any:
        self._fabric.trace(None)
        if request.get("file") is not None:
            with self._grants.opened(text(request["file"], "file")) as path:
                self.measure_files()
                self._fabric.trace(path, limited=True)
        return {}

    @contextmanager
    def _instance(self, request: Request) -> Iterator[ProgramInstance]:
        """The running program's state, which cannot be replaced meanwhile."""
        device = self._service.device(self._switch(request).device_id)
        with device.lock:
            yield device.switch.instance

    def _faults(self, request: Request) -> Any:
        with self._instance(request) as instance:
            return instance.faults()

    def _read_register(self, request: Request) -> Any:
        name = text(request.get("register"), "register")
        with self._instance(request) as instance:
            if request.get("index") is None:
                return {"values": instance.register_read_all(name)}
            return {"values": [instance.register_read(name, integer(request["index"], "index"))]}

    def _write_register(self, request: Request) -> Any:
        value = request.get("value")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CodecError(f"value: expected an unsigned integer, got {value!r}")
        name, index = text(request.get("register"), "register"), integer(request.get("index"), "index")
        with self._instance(request) as instance:
            instance.register_write(name, index, value)
        return {}

    def _reset_register(self, request: Request) -> Any:
        name = text(request.get("register"), "register")
        with self._instance(request) as instance:
            instance.register_reset(name)
        return {}

    def _read_counter(self, request: Request) -> Any:
        name = text(request.get("counter"), "counter")
        with self._instance(request) as instance:
            if request.get("index") is None:
                values = instance.counter_read_all(name)
            else:
                values = [instance.counter_read(name, integer(request["index"], "index"))]
        return {"values": [[value.packets, value.bytes] for value in values]}


def _names(request: Request, key: str) -> list[str]:
    value = request.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise CodecError(f"{key}: expected a list of names, got {value!r}")
    return value


def _choice(request: Request, key: str, known: tuple[str, ...]) -> str:
    value = request.get(key, known[0] if key == "direction" else None)
    if value not in known:
        raise CodecError(f"{key}: expected one of {', '.join(known)}, got {value!r}")
    return str(value)


def _flag(request: Request, key: str, default: bool | None = None) -> bool:
    value = request.get(key, default)
    if not isinstance(value, bool):
        raise CodecError(f"{key}: expected true or false, got {value!r}")
    return value
