"""The fabric core's C interface (`core/fabric/fabric.h`): loading, prototypes, and one fabric in it.

Structures, enumerations and constants are the library's own description (`core/fabric/describe.c`); nothing of
them is repeated here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, Final

from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.native.build import FABRIC_DIR, build
from p4lite.switch.native.description import Description, read_description

#: From the top down: each uses those behind it. `describe.c`, `offload.c`, `tunnel.c` and `xdp.c` stand alone.
SOURCES = (
    "api.c",
    "run.c",
    "device.c",
    "switch.c",
    "flow.c",
    "link.c",
    "base.c",
    "describe.c",
    "offload.c",
    "tunnel.c",
    "xdp.c",
)

_P = c_void_p
#: Of a packet with missing bytes, behind these (PF_TAIL_BYTES).
TAIL_BYTES: Final = 4
_OWNERS_AT_ONCE: Final = 256
_PROTOTYPES: dict[str, tuple[object, ...]] = {
    # name: (result, arguments...); the name of a structure is a pointer to it
    "pf_create": (_P, "pf_config"),
    "pf_destroy": (None, _P),
    "pf_lock": (None, _P),
    "pf_unlock": (None, _P),
    "pf_lock_address": (_P, _P),
    "pf_now": (c_uint64, _P),
    "pf_events": (c_uint64, _P),
    "pf_switch_add": (_P, _P, "pf_switch_config"),
    "pf_switch_remove": (c_int, _P),
    "pf_switch_tick": (None, _P),
    "pf_switch_load": (c_int, _P, _P),
    "pf_switch_state": (c_int, _P, c_uint32),
    "pf_switch_restart": (c_int, _P),
    "pf_switch_stats": (c_int, _P, "pf_switch_stats", c_uint32),
    "pf_switch_group": (c_int, _P, c_uint32, "pf_replica", c_uint32),
    "pf_switch_group_delete": (c_int, _P, c_uint32),
    "pf_switch_session": (c_int, _P, c_uint32, c_int64, c_int64, "pf_replica", c_uint32, c_uint32),
    "pf_switch_session_delete": (c_int, _P, c_uint32),
    "pf_switch_packet_out": (c_int, _P, c_char_p, c_uint32),
    "pf_port_add": (c_int, _P, c_uint32, POINTER(_P)),
    "pf_port_remove": (c_int, _P),
    "pf_port_patch": (c_int, _P, _P),
    "pf_port_link": (c_int, _P, _P),
    "pf_port_unlink": (c_int, _P),
    "pf_open_interfaces": (c_int, _P, POINTER(c_char_p), c_uint32),
    "pf_port_interface": (c_int, _P, c_char_p),
    "pf_port_tunnel": (c_int, _P, c_int, c_char_p, c_uint32, c_uint32),
    "pf_port_tunnel_stats": (c_int, _P, "pf_tunnel_stats", c_uint32),
    "pf_port_settings": (c_int, _P, c_uint32, "pf_link_settings"),
    "pf_port_up": (c_int, _P, c_uint32, c_uint32),
    "pf_port_is_up": (c_int, _P, c_uint32),
    "pf_port_queue": (c_int, _P, c_int32, c_uint64, c_uint64),
    "pf_port_stats": (c_int, _P, "pf_port_stats", c_uint32),
    "pf_port_samples": (c_int, _P, POINTER(_P), c_uint32, c_uint32, c_uint64, "pf_port_sample"),
    "pf_port_pfc": (c_int, _P, c_uint32, "pf_pfc_settings"),
    "pf_port_pfc_stats": (c_uint32, _P, "pf_pfc_stats"),
    "pf_port_credits": (c_int, _P, c_uint32, "pf_credit_settings"),
    "pf_port_credit_stats": (c_uint32, _P, "pf_credit_stats"),
    "pf_port_capture": (c_int, _P, c_char_p, c_char_p, c_uint32, c_uint32),
    "pf_port_collect": (c_int, _P, c_uint32),
    "pf_port_inject": (c_int, _P, c_char_p, c_uint32, c_uint64, POINTER(c_uint64)),
    "pf_port_generate": (c_int, _P, c_char_p, POINTER(c_uint32), c_uint32, c_uint64, c_uint64, c_uint64),
    "pf_run": (c_int, _P, c_uint64, c_uint32, "pf_batch"),
    "pf_transmitters": (c_int, _P, POINTER(_P), c_uint32, "pf_transmitter", POINTER(c_uint64)),
    "pf_send": (c_int, _P, POINTER(_P), c_char_p, c_uint64, "pf_piece", POINTER(c_uint64)),
    "pf_exchange": (
        c_int,
        _P,
        POINTER(_P),
        c_char_p,
        c_uint64,
        "pf_piece",
        c_uint64,
        c_uint64,
        POINTER(c_uint64),
        "pf_batch",
    ),
    "pf_returned": (c_uint64, _P, POINTER(_P), c_uint64, c_uint32),
    "pf_start": (c_int, _P),
    "pf_stop": (c_int, _P),
    "pf_lateness": (None, _P, "pf_lateness", c_uint32),
    "pf_trace": (c_int, _P, c_char_p, c_uint32),
    "pf_files_room": (None, _P, c_uint64),
    "pf_notify_fd": (c_int, _P),
    "pf_notify_take": (c_uint64, _P, POINTER(c_uint8), c_uint64),
    "pf_notify_lost": (c_uint64, _P),
}


@cache
def library(sanitize: bool = False) -> tuple[ctypes.CDLL, Description]:
    """Return the compiled core and its description. Raises FabricError when it cannot be built or loaded."""
    try:
        path = build("fabric-core", [FABRIC_DIR / name for name in SOURCES], sanitize=sanitize)
        lib = ctypes.CDLL(str(path), use_errno=True)
        about = read_description(lib, "pf_description")
    except BuildError as error:
        raise FabricError(f"the fabric core cannot be built: {error}") from None
    except OSError as error:
        raise FabricError(f"the fabric core cannot be loaded: {error}") from None
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = [POINTER(about.structures[a]) if isinstance(a, str) else a for a in arguments]
    return lib, about


class _Closed:
    """Replaces the core once the fabric is closed: remaining references get an error, not a crash."""

    def __getattr__(self, name: str) -> Any:
        raise FabricError("the fabric is closed")


class FabricCore:
    """One fabric in the C core: `c` has the library's functions, `pointer` is the `struct fabric *`.

    After `close` every call raises FabricError. `config` are the fields of `struct pf_config`.
    """

    def __init__(self, *, seed: int, sanitize: bool, **config: int) -> None:
        self.seed = seed
        #: How many ports were removed; objects that hold addresses of ports look whether it has changed.
        self.ports_freed = 0
        self.c: Any
        self.c, self._about = library(sanitize)
        constants = self._about.enums["pf_constant"]
        self.no_time = constants["no_time"] % (1 << 64)
        self.none = constants["none"]
        self.queue_each, self.queue_buffer = constants["queue_each"], constants["queue_buffer"]
        self.max_priorities = constants["max_priorities"]
        self.port_drops = self._about.names("pf_port_drop")
        self.switch_drops = self._about.names("pf_switch_drop")
        self.notification_kinds = self._about.names("pf_notification_kind")
        self.states = self._about.enums["pf_state"]
        self.port_sample = self._about.record("pf_port_sample")
        self.notification = self._about.record("pf_notification")
        self._errors = {number: name for name, number in self._about.enums["pf_error"].items()}
        self.pointer = self.c.pf_create(ctypes.byref(self.new("pf_config", abi=constants["abi"], seed=seed, **config)))
        if not self.pointer:
            raise FabricError(f"cannot make a fabric: {os.strerror(ctypes.get_errno())}")

    def new(self, structure: str, **fields: Any) -> Any:
        """Return a structure of fabric.h; its other fields are 0."""
        return self._about.structures[structure](**fields)

    def array(self, structure: str, count: int) -> Any:
        """Return an array of `count` structures, at least one."""
        return (self._about.structures[structure] * max(1, count))()

    def failure(self, result: int) -> str:
        """Return the name of a PF_E* code in lower case without prefix; "" for success."""
        return self._errors.get(result, "") if result < 0 else ""

    @property
    def now_ns(self) -> int:
        """The fabric's clock."""
        return int(self.c.pf_now(self.pointer))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the event loop between two batches (re-entrant)."""
        self.c.pf_lock(self.pointer)
        try:
            yield
        finally:
            self.c.pf_unlock(self.pointer)

    def deliveries(self, batch: Any) -> Iterator[tuple[int, int, int, bytes, int]]:
        """Yield time (ns), device, port, packet, and how many bytes are missing in it, of each delivery of a batch."""
        count = batch.count
        for each in (self._about.structures["pf_delivery"] * count).from_address(batch.records) if count else ():
            packet, missing = ctypes.string_at(each.stored, each.length - each.missing), each.missing
            if each.middle:
                packet = packet[:-TAIL_BYTES] + ctypes.string_at(each.middle, missing) + packet[-TAIL_BYTES:]
                missing = 0
            yield each.time_ns, each.device_id, each.port, packet, missing

    def close(self) -> None:
        """Free everything."""
        pointer, self.pointer = self.pointer, None
        c, self.c = self.c, _Closed()
        borrowed = (_P * _OWNERS_AT_ONCE)()
        while count := c.pf_returned(pointer, borrowed, _OWNERS_AT_ONCE, 1):
            for owner in borrowed[:count]:  # the packets that are under way (`core/python/ferry.c`)
                ctypes.pythonapi.Py_DecRef(_P(owner))
        c.pf_destroy(pointer)
