"""ctypes binding of the fabric core (`core/fabric/fabric.h`): structures, prototypes, loading."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache

from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.native.build import FABRIC_DIR, build

ABI = 1
NO_TIME = (1 << 64) - 1
MAX_PRIORITIES = 8
SOURCES = (
    "api.c",
    "api_port.c",
    "clock.c",
    "device.c",
    "events.c",
    "forwarding.c",
    "link.c",
    "observe.c",
    "offload.c",
    "pool.c",
    "traffic_manager.c",
)
PORT_DROPS = (
    "queue_full",
    "buffer_full",
    "link_down",
    "loss",
    "burst_loss",
    "blackhole",
    "not_running",
    "host_queue_full",
    "device",
    "rx_ring",
    "no_peer",
    "memory",
)
SWITCH_DROPS = (
    "ingress",
    "egress",
    "priority",
    "mcast_group",
    "clone_session",
    "loop_limit",
    "no_program",
    "no_port",
    "too_long",
    "flushed",
    "memory",
)

E_RANGE, E_EXISTS, E_MISSING, E_BUSY, E_PAST, E_SYSTEM, E_CLOCK, E_LOOP = -2, -3, -4, -5, -6, -7, -8, -9


class CLinkSettings(Structure):
    """struct pf_link_settings."""

    _fields_ = [
        *((name, c_uint64) for name in ("rate_bps", "delay_ns", "reorder_extra_ns", "host_queue_bytes")),
        *(
            (name, c_double)
            for name in (
                "loss",
                "ge_to_bad",
                "ge_to_good",
                "ge_loss_bad",
                "ge_loss_good",
                "corrupt",
                "duplicate",
                "reorder",
            )
        ),
        ("overhead_bytes", c_uint32),
        ("blackhole", c_uint32),
    ]


class CReplica(Structure):
    """struct pf_replica."""

    _fields_ = [("port", c_uint32), ("rid", c_uint32)]


class CLag(Structure):
    """struct pf_lag."""

    _fields_ = [(name, c_uint64) for name in ("count", "p50_ns", "p90_ns", "p99_ns", "max_ns")]


class CQueueStats(Structure):
    """struct pf_queue_stats."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "depth_packets",
            "depth_bytes",
            "max_packets",
            "max_bytes",
            "enqueued_packets",
            "enqueued_bytes",
            "dropped_packets",
            "dropped_bytes",
        )
    ]


class CPortStats(Structure):
    """struct pf_port_stats."""

    _fields_ = [
        *((name, c_uint64) for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")),
        ("drops", c_uint64 * len(PORT_DROPS)),
        *((name, c_uint64) for name in ("corrupted", "duplicated", "reordered")),
        ("queues", CQueueStats * MAX_PRIORITIES),
        ("service_lag", CLag),
    ]


class CSwitchStats(Structure):
    """struct pf_switch_stats."""

    _fields_ = [
        *((name, c_uint64) for name in ("received", "ingress", "egress", "transmitted")),
        ("drops", c_uint64 * len(SWITCH_DROPS)),
        *(
            (name, c_uint64)
            for name in (
                "ingress_clones",
                "egress_clones",
                "resubmits",
                "recirculations",
                "replicas",
                "digests",
                "parser_errors",
                "absorbed",
                "copies_missed",
                "other_queued",
            )
        ),
        ("other_drops", c_uint64 * len(PORT_DROPS)),
    ]


class CLateness(Structure):
    """struct pf_lateness."""

    _fields_ = [("loop", CLag), ("busy", CLag), *((n, c_uint64) for n in ("cpu_ns", "wall_ns", "events"))]


class CConfig(Structure):
    """struct pf_config."""

    _fields_ = [
        ("abi", c_uint32),
        ("real_clock", c_uint32),
        *((name, c_uint64) for name in ("seed", "busy_poll_ns", "realtime", "memory_limit_bytes", "round_ns")),
    ]


class CSwitchConfig(Structure):
    """struct pf_switch_config."""

    _fields_ = [
        *((name, c_uint32) for name in ("device_id", "priority_queues", "drop_port", "loop_limit")),
        ("cpu_port", c_int64),
    ]


class CBatch(Structure):
    """struct pf_batch."""

    _fields_ = [
        ("records", c_void_p),
        ("bytes", c_void_p),
        ("count", c_uint64),
        ("size", c_uint64),
        ("now_ns", c_uint64),
    ]


#: struct pf_delivery and the head of struct pf_notification, for struct.unpack.
DELIVERY = "=QIIQQ"
NOTIFICATION = "=QIIIIQ"

_P = c_void_p
_PROTOTYPES: dict[str, tuple[object, ...]] = {
    # name: (result, arguments...)
    "pf_create": (_P, POINTER(CConfig)),
    "pf_destroy": (None, _P),
    "pf_lock": (None, _P),
    "pf_unlock": (None, _P),
    "pf_lock_address": (_P, _P),
    "pf_now": (c_uint64, _P),
    "pf_events": (c_uint64, _P),
    "pf_switch_add": (_P, _P, POINTER(CSwitchConfig)),
    "pf_switch_remove": (c_int, _P),
    "pf_switch_tick": (None, _P),
    "pf_switch_load": (c_int, _P, _P),
    "pf_switch_state": (c_int, _P, c_uint32),
    "pf_switch_restart": (c_int, _P),
    "pf_switch_stats": (c_int, _P, POINTER(CSwitchStats), c_uint32),
    "pf_switch_group": (c_int, _P, c_uint32, POINTER(CReplica), c_uint32),
    "pf_switch_group_delete": (c_int, _P, c_uint32),
    "pf_switch_session": (c_int, _P, c_uint32, c_int64, c_int64, POINTER(CReplica), c_uint32, c_uint32),
    "pf_switch_session_delete": (c_int, _P, c_uint32),
    "pf_switch_packet_out": (c_int, _P, c_char_p, c_uint32),
    "pf_port_add": (c_int, _P, c_uint32, POINTER(_P)),
    "pf_port_remove": (c_int, _P),
    "pf_port_link": (c_int, _P, _P),
    "pf_port_unlink": (c_int, _P),
    "pf_port_interface": (c_int, _P, c_char_p),
    "pf_port_settings": (c_int, _P, c_uint32, POINTER(CLinkSettings)),
    "pf_port_up": (c_int, _P, c_uint32, c_uint32),
    "pf_port_is_up": (c_int, _P, c_uint32),
    "pf_port_queue": (c_int, _P, c_int32, c_uint64, c_uint64),
    "pf_port_stats": (c_int, _P, POINTER(CPortStats), c_uint32),
    "pf_port_capture": (c_int, _P, c_char_p, c_uint32, c_uint32),
    "pf_port_collect": (c_int, _P, c_uint32),
    "pf_port_inject": (c_int, _P, c_char_p, c_uint32, c_uint64, POINTER(c_uint64)),
    "pf_port_generate": (c_int, _P, c_char_p, POINTER(c_uint32), c_uint32, c_uint64, c_uint64, c_uint64),
    "pf_run": (c_int, _P, c_uint64, c_uint32, POINTER(CBatch)),
    "pf_next_event": (c_uint64, _P),
    "pf_start": (c_int, _P),
    "pf_stop": (c_int, _P),
    "pf_lateness": (None, _P, POINTER(CLateness), c_uint32),
    "pf_trace": (c_int, _P, c_char_p, c_uint32),
    "pf_files_room": (None, _P, c_uint64),
    "pf_notify_fd": (c_int, _P),
    "pf_notify_take": (c_uint64, _P, POINTER(c_uint8), c_uint64),
    "pf_notify_lost": (c_uint64, _P),
}


@cache
def library(sanitize: bool = False) -> ctypes.CDLL:
    """The compiled core. Raises FabricError when it cannot be built or loaded."""
    try:
        path = build("fabric-core", [FABRIC_DIR / name for name in SOURCES], sanitize=sanitize)
        lib = ctypes.CDLL(str(path), use_errno=True)
    except BuildError as error:
        raise FabricError(f"the fabric core cannot be built: {error}") from None
    except OSError as error:
        raise FabricError(f"the fabric core cannot be loaded: {error}") from None
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib
