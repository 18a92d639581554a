"""One instance of a compiled program in C: its life, its lock, and the arguments that its functions take."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.program.facts import ActionFacts, Facts, TableFacts
from p4lite.switch.program.layout import pack_args, unpack_args
from p4lite.switch.runtime.abi import OpenedProgram

#: What the refusals of `enum p4_status` mean here.
_ERRORS: dict[str, type[ControlError]] = {
    "not_found": NotFound,
    "exists": AlreadyExists,
    "full": ResourceExhausted,
    "const": PermissionDenied,
    "invalid": OutOfRange,
    "no_memory": ResourceExhausted,
}


class Handle:
    """One instance; `opened` is what the program was compiled to. A call after `close` raises InvalidArgument."""

    def __init__(
        self,
        program: Facts,
        opened: OpenedProgram,
        *,
        seed: int = 1,
        drop_port: int = 511,
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
        info = actions.get(call.name)
        if info is None:
            raise InvalidArgument(f"{where}: no action '{call.name}' here")
        if len(call.args) != len(info.params):
            raise InvalidArgument(
                f"{where}: action '{call.name}' takes {len(info.params)} arguments, not {len(call.args)}"
            )
        for value, param in zip(call.args, info.params, strict=True):
            if not 0 <= value < (1 << param.width):
                raise OutOfRange(f"{where}: {value} does not fit into the {param.width} bits of '{param.name}'")
        packed = pack_args(info.widths, call.args, room)
        return info.index, c_words(packed)

    def _unpack(self, index: int, packed: Sequence[int]) -> ActionCall:
        action = self._by_index[index]
        return ActionCall(action.name, unpack_args(action.widths, packed))

    def _table(self, name: str) -> TableFacts:
        table = self.program.tables.get(name)
        if table is None:
            raise NotFound(f"there is no table '{name}'")
        return table


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
