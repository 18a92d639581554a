"""ctypes views of pipeline.h and of the control operations of control.c."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from p4lite.switch.errors import BuildError

N_FIELDS = 17  # P4F_COUNT


class Host(ctypes.Structure):
    _fields_ = [("context", c_void_p), ("log_msg", c_void_p), ("assert_failed", c_void_p)]


class Config(ctypes.Structure):
    _fields_ = [("host", Host), ("lock", c_void_p), ("seed", c_uint64), ("drop_port", c_uint32)]


class EntryView(ctypes.Structure):
    _fields_ = [
        ("order", c_int64),
        ("hit_ns", c_uint64),
        ("timeout_ns", c_uint64),
        ("now_ns", c_uint64),
        ("packets", c_uint64),
        ("bytes", c_uint64),
        ("kind", c_uint32),
        ("number", c_int32),
        ("is_const", c_uint32),
    ]


class CounterCell(ctypes.Structure):
    _fields_ = [("packets", c_uint64), ("bytes", c_uint64)]


FAULTS = (
    "register_index",
    "counter_index",
    "meter_index",
    "stack_index",
    "division",
    "hash_zero",
    "random_range",
    "assertion",
    "parser_loop",
    "no_member",
)


class Faults(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in FAULTS]


class TargetField(ctypes.Structure):
    _fields_ = [("offset", c_int32), ("size", c_uint8), ("width", c_uint8)]


class ProgramStruct(ctypes.Structure):
    _fields_ = [
        ("abi", c_uint32),
        ("phv_size", c_uint32),
        ("max_header_bytes", c_uint32),
        ("queueing_metadata", c_uint32),
        ("name", ctypes.c_char_p),
        ("fields", TargetField * N_FIELDS),
        *[
            (name, c_void_p)
            for name in (
                "create",
                "destroy",
                "restart",
                "phv_init",
                "phv_reset",
                "phv_copy",
                "reset_metadata",
                "parse",
                "ingress",
                "egress",
                "header_length",
                "deparse",
                "copy_field_list",
                "digest",
            )
        ],
    ]


_WORDS = POINTER(c_uint64)
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "p4c_table_insert": (
        c_int,
        [c_void_p, c_uint32, _WORDS, _WORDS, _WORDS, c_int64, c_uint32, c_int32, _WORDS, c_uint64, POINTER(c_uint32)],
    ),
    "p4c_table_modify": (c_int, [c_void_p, c_uint32, c_int64, c_uint32, c_int32, _WORDS]),
    "p4c_table_delete": (c_int, [c_void_p, c_uint32, c_int64]),
    "p4c_table_find": (c_int64, [c_void_p, c_uint32, _WORDS, _WORDS, _WORDS, c_int64]),
    "p4c_table_get": (c_int, [c_void_p, c_uint32, c_int64, POINTER(EntryView), _WORDS]),
    "p4c_table_next": (c_int64, [c_void_p, c_uint32, c_int64]),
    "p4c_table_size": (c_uint32, [c_void_p, c_uint32]),
    "p4c_table_set_timeout": (c_int, [c_void_p, c_uint32, c_int64, c_uint64]),
    "p4c_table_idle": (c_uint32, [c_void_p, c_uint32, c_uint64, POINTER(c_uint32), c_uint32]),
    "p4c_direct_counter_write": (c_int, [c_void_p, c_uint32, c_int64, c_uint64, c_uint64]),
    "p4c_meter_set": (c_int, [c_void_p, c_int32, c_uint32, c_int64, _WORDS]),
    "p4c_meter_get": (c_int, [c_void_p, c_int32, c_uint32, c_int64, _WORDS]),
    "p4c_counter_read": (c_int, [c_void_p, c_uint32, c_uint64, c_uint64, POINTER(CounterCell)]),
    "p4c_counter_write": (c_int, [c_void_p, c_uint32, c_uint64, c_uint64, c_uint64, c_uint64]),
    "p4c_register_read": (c_int, [c_void_p, c_uint32, c_uint64, c_uint64, _WORDS]),
    "p4c_register_write": (c_int, [c_void_p, c_uint32, c_uint64, c_uint64, _WORDS]),
    "p4c_member_set": (c_int, [c_void_p, c_uint32, c_uint32, c_int32, _WORDS]),
    "p4c_group_set": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, POINTER(c_uint32)]),
    "p4c_vset_set": (c_int, [c_void_p, c_uint32, c_uint32, ctypes.c_char_p]),
    "p4c_vset_get": (c_uint32, [c_void_p, c_uint32, ctypes.c_char_p, c_uint32]),
    "p4c_restart": (c_int, [c_void_p]),
    "p4c_lock_packets": (None, [c_void_p]),
    "p4c_unlock_packets": (None, [c_void_p]),
    "p4c_faults": (None, [c_void_p, POINTER(Faults)]),
    "p4c_generation": (c_uint32, [c_void_p]),
    "p4c_set_now": (None, [c_void_p, c_uint64]),
}


ABI = 1


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """A program's shared object: its control operations, typed, and the address of its `struct p4_program`."""

    library: ctypes.CDLL
    pointer: int


def open_program(path: Path) -> OpenedProgram:
    """Loads a program's shared object. Raises BuildError."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path}: cannot load: {error}") from None
    if not hasattr(library, "p4lite_program"):
        raise BuildError(f"{path}: is no compiled program")
    library.p4lite_program.restype = ctypes.c_void_p
    library.p4lite_program.argtypes = []
    address = int(library.p4lite_program())
    abi = ctypes.c_uint32.from_address(address).value
    if abi != ABI:
        raise BuildError(f"{path}: built for interface {abi}, this is {ABI}; delete the file")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return OpenedProgram(library, address)
