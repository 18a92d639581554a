"""The C interface of a compiled program: opening it, and the prototypes of control.c."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4lite.switch.errors import BuildError
from p4lite.switch.native.description import Description, read_description

_WORDS = POINTER(c_uint64)
# name: (result, arguments); the name of a structure is a pointer to it
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "p4c_table_insert": (
        c_int,
        [c_void_p, c_uint32, _WORDS, _WORDS, _WORDS, c_int64, c_uint32, c_int32, _WORDS, c_uint64, POINTER(c_uint32)],
    ),
    "p4c_table_modify": (c_int, [c_void_p, c_uint32, c_int64, c_uint32, c_int32, _WORDS]),
    "p4c_table_delete": (c_int, [c_void_p, c_uint32, c_int64]),
    "p4c_table_find": (c_int64, [c_void_p, c_uint32, _WORDS, _WORDS, _WORDS, c_int64]),
    "p4c_table_get": (c_int, [c_void_p, c_uint32, c_int64, "p4_entry_view", _WORDS]),
    "p4c_table_next": (c_int64, [c_void_p, c_uint32, c_int64]),
    "p4c_table_size": (c_uint32, [c_void_p, c_uint32]),
    "p4c_table_set_timeout": (c_int, [c_void_p, c_uint32, c_int64, c_uint64]),
    "p4c_table_idle": (c_uint32, [c_void_p, c_uint32, c_uint64, POINTER(c_uint32), c_uint32]),
    "p4c_direct_counter_write": (c_int, [c_void_p, c_uint32, c_int64, c_uint64, c_uint64]),
    "p4c_meter_set": (c_int, [c_void_p, c_int32, c_uint32, c_int64, _WORDS]),
    "p4c_meter_get": (c_int, [c_void_p, c_int32, c_uint32, c_int64, _WORDS]),
    "p4c_counter_read": (c_int, [c_void_p, c_uint32, c_uint64, c_uint64, "p4_counter"]),
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
    "p4c_faults": (None, [c_void_p, "p4_faults"]),
    "p4c_generation": (c_uint32, [c_void_p]),
    "p4c_set_now": (None, [c_void_p, c_uint64]),
}


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """A program's shared object: its control operations, typed, the address of its `struct p4_program`, and the
    description of its structures (`core/program/describe.c`)."""

    library: ctypes.CDLL
    pointer: int
    about: Description

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return one of the functions in `struct p4_program`, with its types."""
        program = self.about.structures["p4_program"].from_address(self.pointer)
        return ctypes.CFUNCTYPE(result, *arguments)(int(getattr(program, name)))


def open_program(path: Path) -> OpenedProgram:
    """Load a program's shared object. Raises BuildError."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path}: cannot load: {error}") from None
    if not hasattr(library, "p4lite_program") or not hasattr(library, "p4lite_description"):
        raise BuildError(f"{path}: is not a compiled program")
    about = read_description(library, "p4lite_description")
    library.p4lite_program.restype = c_void_p
    library.p4lite_program.argtypes = []
    address = int(library.p4lite_program())
    built, ours = c_uint32.from_address(address).value, about.enums["p4_constant"]["abi"]
    if built != ours:
        raise BuildError(f"{path}: built for interface {built}, this is {ours}; delete the file")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = [POINTER(about.structures[a]) if isinstance(a, str) else a for a in arguments]
    return OpenedProgram(library, address, about)
