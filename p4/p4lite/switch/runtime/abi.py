"""The C interface of a compiled program: opening it, and the prototypes of control.c."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4lite.switch.errors import (
    AlreadyExists,
    BuildError,
    ControlError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
)
from p4lite.switch.native.description import Description, read_description
from p4lite.switch.program.checks import Checks
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.program.facts import DROP_PORT, ActionFacts, Facts
from p4lite.switch.program.layout import pack_args, unpack_args

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
    "p4c_crc_set": (c_int, [c_void_p, c_uint32, c_uint32, _WORDS]),
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


#: What the refusals of `enum p4_status` mean here.
_ERRORS: dict[str, type[ControlError]] = {
    "not_found": NotFound,
    "exists": AlreadyExists,
    "full": ResourceExhausted,
    "const": PermissionDenied,
    "invalid": OutOfRange,
    "no_memory": ResourceExhausted,
}


class Handle(Checks):
    """One instance; `opened` is what the program was compiled to. A call after `close` raises InvalidArgument."""

    def __init__(
        self,
        program: Facts,
        opened: OpenedProgram,
        *,
        seed: int = 1,
        drop_port: int = DROP_PORT,
        lock: int = 0,
        host: int = 0,
    ):
        """Create a handle of `opened`, which was compiled from `program`.

        `lock` and `host` are addresses as in `struct p4_config`, 0: none.
        """
        self.program = program
        self.opened = opened
        self._c = opened.library
        about = opened.about
        config = about.structures["p4_config"](lock=lock, seed=seed & (2**64 - 1), drop_port=drop_port)
        if host:
            config.host = about.structures["p4_host"].from_address(host)
        self._pointer = int(self._create(config))
        self._view = about.structures["p4_entry_view"]
        self._cell = about.structures["p4_counter"]
        references = about.enums["p4_ref_kind"]
        self._no_ref, self._action_ref = references["none"], references["action"]
        self._member_ref, self._group_ref = references["member"], references["group"]
        self._status = {number: name for name, number in about.enums["p4_status"].items()}
        self._by_index = tuple(program.actions.values())
        self._mutex = threading.RLock()

    def _create(self, config: ctypes.Structure) -> int:
        create = self.opened.function("create", ctypes.c_void_p, ctypes.c_void_p)
        pointer = create(ctypes.addressof(config))
        if not pointer:
            raise BuildError(f"{self.program.name}: out of memory")
        return int(pointer)

    @property
    def pointer(self) -> int:
        """The `struct p4_instance *`. Raises InvalidArgument once it is freed, so that nothing reaches freed memory."""
        if not self._pointer:
            raise InvalidArgument(f"{self.program.name}: the switch is closed, or has another program by now")
        return self._pointer

    def close(self) -> None:
        """Free the C instance; the object is unusable afterwards. The core must have released it before."""
        pointer, self._pointer = self._pointer, 0
        if pointer:
            self.opened.function("destroy", None, ctypes.c_void_p)(pointer)

    def restart(self) -> None:
        """Restore the state after a restart of the switch: the program's initial entries, all else zero."""
        self._c.p4c_restart(self.pointer)

    @contextmanager
    def packet_lock(self) -> Iterator[None]:
        """Hold the lock as the core does while packets run (in this thread, call no control operation within)."""
        self._c.p4c_lock_packets(self.pointer)
        try:
            yield
        finally:
            self._c.p4c_unlock_packets(self.pointer)

    def set_now(self, now_ns: int) -> None:
        """Set the instance's clock, which the fabric core otherwise does with every batch."""
        self._c.p4c_set_now(self.pointer, now_ns)

    def faults(self) -> dict[str, int]:
        """Return what `struct p4_faults` counted, by name."""
        faults = self.opened.about.structures["p4_faults"]()
        self._c.p4c_faults(self.pointer, ctypes.byref(faults))
        return {name: int(getattr(faults, name)) for name in (field[0] for field in faults._fields_)}

    # --- for the operations ---------------------------------------------------------------------------
    def _check(self, status: int, what: str) -> int:
        if status < 0:
            raise _ERRORS.get(self._status.get(status, ""), ControlError)(what)
        return status

    def _pack(self, actions: dict[str, ActionFacts], call: ActionCall, room: int, where: str) -> tuple[int, Any]:
        """Return (action index, the `room` argument words) of a checked call."""
        info = self._check_call(actions, call, where)
        packed = pack_args(info.widths, call.args, room)
        return info.index, c_words(packed)

    def _unpack(self, index: int, packed: Sequence[int]) -> ActionCall:
        action = self._by_index[index]
        return ActionCall(action.name, unpack_args(action.widths, packed))


def check64(where: str, **values: int) -> None:
    """Check numbers that C takes as 64 bits without a sign. Raises InvalidArgument or OutOfRange, which name them."""
    for name, value in values.items():
        if not isinstance(value, int):
            raise InvalidArgument(f"{where}: {name}={value!r}: an int is wanted")
        if not 0 <= value < 1 << 64:
            raise OutOfRange(f"{where}: {name}={value}: does not fit into 64 bits")


def c_words(values: Sequence[int]) -> Any:
    """Return words as an array for C."""
    return (ctypes.c_uint64 * (len(values) + 1))(*values)
