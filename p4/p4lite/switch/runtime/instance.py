"""The state of one switch: tables, profiles, counters, meters, registers, value sets, by name.

Every operation takes the instance's lock (pipeline.h), so it may be called while the fabric core runs packets
in another thread; a packet sees a table before or after an operation. An operation that raises changed nothing.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from p4lite.switch.program.entry import ActionCall, EntryAction, GroupRef, MatchValue, MemberRef
from p4lite.switch.program.facts import Action, Facts, Table
from p4lite.switch.program.layout import pack_args, unpack_args
from p4lite.switch.runtime.abi import OpenedProgram
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig, StatefulControl
from p4lite.switch.runtime.keys import key_to_words, words_to_key
from p4lite.switch.runtime.profiles import Group, Member, ProfileControl

__all__ = ["CounterValue", "Entry", "Group", "Member", "MeterConfig", "ProgramInstance"]

#: What the refusals of `enum p4_status` mean here.
_ERRORS: dict[str, type[ControlError]] = {
    "not_found": NotFound,
    "exists": AlreadyExists,
    "full": ResourceExhausted,
    "const": PermissionDenied,
    "invalid": OutOfRange,
    "no_memory": ResourceExhausted,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry. `handle` is unique within the table while the entry lives; `priority` 0 where none applies."""

    table: str
    handle: int
    key: tuple[MatchValue, ...]
    priority: int
    action: EntryAction
    is_const: bool
    idle_timeout_ns: int = 0
    idle_ns: int = 0  # time since the last hit (or insertion), by the instance's clock


class ProgramInstance(ProfileControl, StatefulControl):
    """One switch's state. `pointer` is the `struct p4_instance *`, `opened` what it was compiled to."""

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
        """`opened` was compiled from `program`; `lock` and `host` are addresses as in `struct p4_config`, 0: none."""
        self.program = program
        self.opened = opened
        self._c = opened.library
        about = opened.about
        config = about.structures["p4_config"](lock=lock, seed=seed & (2**64 - 1), drop_port=drop_port)
        if host:
            config.host = about.structures["p4_host"].from_address(host)
        self.pointer = int(self._create(config))
        self._view = about.structures["p4_entry_view"]
        self._cell = about.structures["p4_counter"]
        references = about.enums["p4_ref_kind"]
        self._no_ref, self._action_ref = references["none"], references["action"]
        self._member_ref, self._group_ref = references["member"], references["group"]
        self._status = {number: name for name, number in about.enums["p4_status"].items()}
        self._by_index = tuple(program.actions.values())
        self._mutex = threading.RLock()
        self._init_profiles()

    def _create(self, config: ctypes.Structure) -> int:
        create = self.opened.function("create", ctypes.c_void_p, ctypes.c_void_p)
        pointer = create(ctypes.addressof(config))
        if not pointer:
            raise BuildError(f"{self.program.name}: out of memory")
        return int(pointer)

    def close(self) -> None:
        """Frees the C instance; the object is unusable afterwards. The core must have let go of it."""
        if self.pointer:
            self.opened.function("destroy", None, ctypes.c_void_p)(self.pointer)
            self.pointer = 0

    def restart(self) -> None:
        """As after a restart of the switch: tables hold the program's initial entries, all state is zero."""
        self._c.p4c_restart(self.pointer)
        self._init_profiles()

    def _check(self, status: int, what: str) -> int:
        if status < 0:
            raise _ERRORS.get(self._status.get(status, ""), ControlError)(what)
        return status

    # --- actions ------------------------------------------------------------------------------------------
    def _pack(self, actions: dict[str, Action], call: ActionCall, words: int, where: str) -> tuple[int, Any]:
        """(action index, argument words) of a checked call."""
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
        packed = pack_args(info.widths, call.args, words)
        return info.index, _words(packed)

    def _unpack(self, index: int, words: Sequence[int]) -> ActionCall:
        action = self._by_index[index]
        return ActionCall(action.name, unpack_args(action.widths, words))

    def _table(self, name: str) -> Table:
        table = self.program.tables.get(name)
        if table is None:
            raise NotFound(f"there is no table '{name}'")
        return table

    def _reference(self, table: Table, action: EntryAction) -> tuple[int, int, Any]:
        """(kind, number, argument words) of what an entry of the table shall do."""
        where = f"table '{table.name}'"
        if isinstance(action, ActionCall):
            if table.action_profile is not None:
                raise InvalidArgument(f"{where}: entries name members or groups of '{table.action_profile}'")
            index, words = self._pack(table.actions, action, table.arg_words, where)
            return self._action_ref, index, words
        if table.action_profile is None:
            raise InvalidArgument(f"{where}: entries name actions, the table has no action profile")
        nothing = _words([0] * table.arg_words)
        if isinstance(action, MemberRef):
            return self._member_ref, self._member_slot(table.action_profile, action.member), nothing
        if not self.program.action_profiles[table.action_profile].selector:
            raise InvalidArgument(f"{where}: '{table.action_profile}' has no groups")
        return self._group_ref, self._group_slot(table.action_profile, action.group), nothing

    def _writable(self, table: Table) -> None:
        if table.const_entries:
            raise PermissionDenied(f"table '{table.name}': its entries are const")

    # --- tables -------------------------------------------------------------------------------------------
    def table_add(
        self,
        table: str,
        key: tuple[MatchValue, ...],
        action: EntryAction,
        *,
        priority: int = 0,
        idle_timeout_ns: int = 0,
    ) -> int:
        """Adds an entry and returns its handle. Keys in the order of the table's key; lower priority wins."""
        t = self._table(table)
        self._writable(t)
        if not t.key:
            raise InvalidArgument(f"table '{table}' has no key, so it cannot have entries")
        if idle_timeout_ns and not t.support_timeout:
            raise InvalidArgument(f"table '{table}' does not support timeouts")
        words = key_to_words(t, key, priority)
        handle = ctypes.c_uint32()
        with self._mutex:
            kind, number, args = self._reference(t, action)
            status = self._c.p4c_table_insert(
                self.pointer,
                t.index,
                _words(words.value),
                _words(words.mask),
                _words(words.high),
                words.order,
                kind,
                number,
                args,
                idle_timeout_ns,
                ctypes.byref(handle),
            )
            if status < 0:
                full = f"table '{table}' is full ({t.max_size} entries)"
                why = {"exists": f"table '{table}' has an entry with this key", "full": full}
                self._check(status, why.get(self._status.get(status, ""), f"table '{table}': out of memory"))
            self._refer(t, kind, number, 1)
        return handle.value

    def _raw(self, table: Table, handle: int) -> tuple[Any, Any]:
        view = self._view()
        data = (ctypes.c_uint64 * (table.arg_words + 3 * table.key_words + 1))()
        if self._c.p4c_table_get(self.pointer, table.index, handle, ctypes.byref(view), data) < 0:
            raise NotFound(f"table '{table.name}' has no entry {handle}")
        return view, data

    def _action_of(self, table: Table, view: Any, data: Sequence[int]) -> EntryAction | None:
        if view.kind == self._action_ref:
            return self._unpack(view.number, data)
        if view.kind == self._member_ref and table.action_profile is not None:
            return MemberRef(self._member_id(table.action_profile, view.number))
        if view.kind == self._group_ref and table.action_profile is not None:
            return GroupRef(self._group_id(table.action_profile, view.number))
        return None

    def _handle(self, table: Table, handle: int) -> Any:
        if handle < 0:
            raise NotFound(f"table '{table.name}' has no entry {handle}")
        return self._raw(table, handle)[0]

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        """Gives an entry another action, with its counter and idle time kept."""
        t = self._table(table)
        self._writable(t)
        with self._mutex:
            old = self._handle(t, handle)
            self._replace(t, handle, old, action)

    def _replace(self, t: Table, handle: int, old: Any, action: EntryAction) -> None:
        kind, number, args = self._reference(t, action)
        status = self._c.p4c_table_modify(self.pointer, t.index, handle, kind, number, args)
        self._check(status, f"table '{t.name}' has no entry {handle}")
        self._refer(t, kind, number, 1)
        self._refer(t, old.kind, old.number, -1)

    def table_delete(self, table: str, handle: int) -> None:
        t = self._table(table)
        self._writable(t)
        with self._mutex:
            old = self._handle(t, handle)
            self._c.p4c_table_delete(self.pointer, t.index, handle)
            self._refer(t, old.kind, old.number, -1)

    def table_find(self, table: str, key: tuple[MatchValue, ...], *, priority: int = 0) -> int:
        """Handle of the entry with exactly this match key (and priority). Raises NotFound."""
        t = self._table(table)
        w = key_to_words(t, key, priority)
        handle = self._c.p4c_table_find(self.pointer, t.index, _words(w.value), _words(w.mask), _words(w.high), w.order)
        if handle < 0:
            raise NotFound(f"table '{table}' has no entry with this key")
        return int(handle)

    def table_entry(self, table: str, handle: int) -> Entry:
        t = self._table(table)
        if handle < 0:
            raise NotFound(f"table '{table}' has no entry {handle}")
        view, data = self._raw(t, handle)
        a, k = t.arg_words, t.key_words
        value, mask, high = data[a : a + k], data[a + k : a + 2 * k], data[a + 2 * k : a + 3 * k]
        action = self._action_of(t, view, data)
        if action is None:
            raise NotFound(f"table '{table}' has no entry {handle}")
        return Entry(
            table,
            handle,
            words_to_key(t, value, mask, high),
            view.order if t.needs_priority else 0,
            action,
            bool(view.is_const),
            view.timeout_ns,
            max(view.now_ns - view.hit_ns, 0),
        )

    def table_handles(self, table: str) -> Iterator[int]:
        t = self._table(table)
        handle = self._c.p4c_table_next(self.pointer, t.index, 0)
        while handle >= 0:
            yield int(handle)
            handle = self._c.p4c_table_next(self.pointer, t.index, handle + 1)

    def table_entries(self, table: str) -> Iterator[Entry]:
        """All entries, const ones too, in order of handle."""
        for handle in self.table_handles(table):
            try:
                yield self.table_entry(table, handle)
            except NotFound:
                continue  # it went away since

    def table_size(self, table: str) -> int:
        return int(self._c.p4c_table_size(self.pointer, self._table(table).index))

    def table_clear(self, table: str) -> None:
        """Deletes every entry; the default action goes back to the program's."""
        t = self._table(table)
        self._writable(t)
        with self._mutex:
            for handle in list(self.table_handles(table)):
                self.table_delete(table, handle)
            if not t.const_default:
                self.table_reset_default(table)

    def table_set_timeout(self, table: str, handle: int, idle_timeout_ns: int) -> None:
        t = self._table(table)
        if not t.support_timeout:
            raise InvalidArgument(f"table '{table}' does not support timeouts")
        self._handle(t, handle)
        self._c.p4c_table_set_timeout(self.pointer, t.index, handle, idle_timeout_ns)

    def table_default(self, table: str) -> EntryAction | None:
        """The default action; None if the table has none (a miss does nothing)."""
        t = self._table(table)
        return self._action_of(t, *self._raw(t, -1))

    def table_set_default(self, table: str, action: EntryAction) -> None:
        t = self._table(table)
        if t.const_default and action != self.table_default(table):
            raise PermissionDenied(f"table '{table}': its default action is const")
        with self._mutex:
            self._replace(t, -1, self._raw(t, -1)[0], action)

    def table_reset_default(self, table: str) -> None:
        """Back to the default of the program."""
        t = self._table(table)
        default = t.default_entry
        with self._mutex:
            old = self._raw(t, -1)[0]
            if default is None:
                self._c.p4c_table_modify(self.pointer, t.index, -1, self._no_ref, -1, _words([0] * t.arg_words))
                self._refer(t, old.kind, old.number, -1)
                return
            index, args = self._pack(t.actions, default, t.arg_words, f"table '{table}'")
            self._c.p4c_table_modify(self.pointer, t.index, -1, self._action_ref, index, args)
            self._refer(t, old.kind, old.number, -1)

    def idle_entries(self, table: str, now_ns: int | None = None) -> list[int]:
        """Handles of entries idle for their timeout; each is reported anew only after another timeout.

        `now_ns` is the time on the instance's clock, by default its latest.
        """
        t = self._table(table)
        limit = self.table_size(table)
        handles = (ctypes.c_uint32 * (limit + 1))()
        now = self._raw(t, -1)[0].now_ns if now_ns is None else now_ns
        count = self._c.p4c_table_idle(self.pointer, t.index, now, handles, limit)
        return list(handles[:count])

    @contextmanager
    def packet_lock(self) -> Iterator[None]:
        """Holds the lock as the core does while packets run (in this thread, call no control operation within)."""
        self._c.p4c_lock_packets(self.pointer)
        try:
            yield
        finally:
            self._c.p4c_unlock_packets(self.pointer)

    # --- diagnosis ----------------------------------------------------------------------------------------
    def set_now(self, now_ns: int) -> None:
        """Sets the instance's clock, which the fabric core otherwise does with every batch."""
        self._c.p4c_set_now(self.pointer, now_ns)

    def faults(self) -> dict[str, int]:
        """What `struct p4_faults` counted, by name."""
        faults = self.opened.about.structures["p4_faults"]()
        self._c.p4c_faults(self.pointer, ctypes.byref(faults))
        return {name: int(getattr(faults, name)) for name in (field[0] for field in faults._fields_)}


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * (len(values) + 1))(*values)
