"""Tables of an instance: entries by handle, default entries, idle times."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from p4lite.switch.errors import InvalidArgument, NotFound, OutOfRange, PermissionDenied
from p4lite.switch.program.entry import (
    ActionCall,
    EntryAction,
    Exact,
    GroupRef,
    Lpm,
    MatchValue,
    MemberRef,
    Optional,
    Range,
    Ternary,
)
from p4lite.switch.program.facts import KeyFacts, TableFacts
from p4lite.switch.program.layout import KeyWords
from p4lite.switch.runtime.abi import c_words, check64
from p4lite.switch.runtime.profiles import ProfileControl

_WANTED: dict[str, tuple[type, ...]] = {
    "exact": (Exact,),
    "valid": (Exact,),
    "lpm": (Lpm,),
    "ternary": (Ternary, Optional),  # p4c writes optional keys as ternary
    "range": (Range,),
    "optional": (Optional, Ternary),
}


def _fits(value: int, key: KeyFacts, table: TableFacts) -> int:
    if not 0 <= value < (1 << key.width):
        raise OutOfRange(f"table '{table.name}': {value} does not fit into the {key.width} bits of '{key.name}'")
    return value


def _put(words: KeyWords, key: KeyFacts, match: MatchValue, table: TableFacts) -> None:
    full = (1 << key.width) - 1
    where = f"table '{table.name}', key '{key.name}'"
    if isinstance(match, Exact):
        value = _fits(match.value, key, table)
        words.put(key.place, value, full, value)
    elif isinstance(match, Lpm):
        value = _fits(match.value, key, table)
        if not 0 <= match.prefix_len <= key.width:
            raise OutOfRange(f"{where}: a prefix of {match.prefix_len} bits in a key of {key.width}")
        mask = full ^ (full >> match.prefix_len)
        if value & ~mask:
            raise InvalidArgument(f"{where}: {value:#x} has bits set beyond its prefix of {match.prefix_len} bits")
        words.put(key.place, value, mask, value | (full ^ mask))
        if table.kind == "lpm":
            words.order = key.width - match.prefix_len
    elif isinstance(match, Ternary):
        value, mask = _fits(match.value, key, table), _fits(match.mask, key, table)
        if value & ~mask:
            raise InvalidArgument(f"{where}: {value:#x} has bits set outside its mask {mask:#x}")
        words.put(key.place, value, mask, value)
    elif isinstance(match, Range):
        low, high = _fits(match.low, key, table), _fits(match.high, key, table)
        if low > high:
            raise InvalidArgument(f"{where}: the range {low} to {high} is empty")
        words.put(key.place, low, full, high)
    elif match.value is None:
        words.put(key.place, 0, 0, 0)
    else:
        value = _fits(match.value, key, table)
        words.put(key.place, value, full, value)


def key_to_words(table: TableFacts, key: Sequence[MatchValue], priority: int) -> KeyWords:
    """Check a match key against a table. Raises InvalidArgument or OutOfRange."""
    if len(key) != len(table.key):
        raise InvalidArgument(f"table '{table.name}' has {len(table.key)} keys, not {len(key)}")
    words = KeyWords(table.key_words)
    for info, match in zip(table.key, key, strict=True):
        if not isinstance(match, _WANTED[info.match]):
            kind = type(match).__name__
            raise InvalidArgument(f"table '{table.name}': key '{info.name}' is of type {info.match}, not {kind}")
        _put(words, info, match, table)
    if table.needs_priority:
        if not -(2**31) <= priority < 2**31:
            raise OutOfRange(f"table '{table.name}': the priority {priority} does not fit into 32 bits")
        words.order = priority
    elif priority != 0:
        raise InvalidArgument(f"table '{table.name}' of type {table.kind} takes no priority")
    if table.kind != "range":
        words.high = [0] * table.key_words
    return words


def words_to_key(
    table: TableFacts, value: Sequence[int], mask: Sequence[int], high: Sequence[int]
) -> tuple[MatchValue, ...]:
    out: list[MatchValue] = []
    for info in table.key:
        v, m = info.place.take(value), info.place.take(mask)
        if info.match in ("exact", "valid"):
            out.append(Exact(v))
        elif info.match == "lpm":
            out.append(Lpm(v, m.bit_count()))
        elif info.match == "ternary":
            out.append(Ternary(v, m))
        elif info.match == "range":
            out.append(Range(v, info.place.take(high)))
        else:
            out.append(Optional(v if m else None))
    return tuple(out)


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


def check_timeout(table: TableFacts, idle_timeout_ns: int, *, always: bool = False) -> None:
    """Check the time after which an entry is idle, 0: never. `always`: refuse 0, too, if the table has no timeouts.

    Raises:
        InvalidArgument: the table does not support timeouts, or the time is not a number.
        OutOfRange: it has more than 64 bits or is negative.
    """
    if (idle_timeout_ns or always) and not table.support_timeout:
        raise InvalidArgument(f"table '{table.name}' does not support timeouts")
    check64(f"table '{table.name}'", idle_timeout_ns=idle_timeout_ns)


class TableControl(ProfileControl):
    """The part of ProgramInstance that concerns tables."""

    def _reference(self, table: TableFacts, action: EntryAction) -> tuple[int, int, Any]:
        """Return (kind, number, argument words) of what an entry of the table shall do."""
        self._check_kind(table, action)
        if isinstance(action, ActionCall):
            index, words = self._pack(table.actions, action, table.arg_words, f"table '{table.name}'")
            return self._action_ref, index, words
        assert table.action_profile is not None
        nothing = c_words([0] * table.arg_words)
        if isinstance(action, MemberRef):
            return self._member_ref, self._member_slot(table.action_profile, action.member), nothing
        return self._group_ref, self._group_slot(table.action_profile, action.group), nothing

    def table_add(
        self,
        table: str,
        key: tuple[MatchValue, ...],
        action: EntryAction,
        *,
        priority: int = 0,
        idle_timeout_ns: int = 0,
    ) -> int:
        """Add an entry and return its handle. Keys in the order of the table's key; lower priority wins."""
        t = self._writable(table)
        if not t.key:
            raise InvalidArgument(f"table '{table}' has no key, so it cannot have entries")
        check_timeout(t, idle_timeout_ns)
        words = key_to_words(t, key, priority)
        handle = ctypes.c_uint32()
        with self._mutex:
            kind, number, args = self._reference(t, action)
            status = self._c.p4c_table_insert(
                self.pointer,
                t.index,
                c_words(words.value),
                c_words(words.mask),
                c_words(words.high),
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

    def _raw(self, table: TableFacts, handle: int) -> tuple[Any, Any]:
        if not -1 <= handle < 1 << 32:
            raise NotFound(f"table '{table.name}' has no entry {handle}")
        view = self._view()
        data = (ctypes.c_uint64 * (table.arg_words + 3 * table.key_words + 1))()
        if self._c.p4c_table_get(self.pointer, table.index, handle, ctypes.byref(view), data) < 0:
            raise NotFound(f"table '{table.name}' has no entry {handle}")
        return view, data

    def _action_of(self, table: TableFacts, view: Any, data: Sequence[int]) -> EntryAction | None:
        if view.kind == self._action_ref:
            return self._unpack(view.number, data)
        if view.kind == self._member_ref and table.action_profile is not None:
            return MemberRef(self._member_id(table.action_profile, view.number))
        if view.kind == self._group_ref and table.action_profile is not None:
            return GroupRef(self._group_id(table.action_profile, view.number))
        return None

    def _handle(self, table: TableFacts, handle: int) -> Any:
        if handle < 0:
            raise NotFound(f"table '{table.name}' has no entry {handle}")
        return self._raw(table, handle)[0]

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        """Give an entry another action, with its counter and idle time kept."""
        t = self._writable(table)
        with self._mutex:
            old = self._handle(t, handle)
            self._replace(t, handle, old, action)

    def _replace(self, t: TableFacts, handle: int, old: Any, action: EntryAction) -> None:
        kind, number, args = self._reference(t, action)
        status = self._c.p4c_table_modify(self.pointer, t.index, handle, kind, number, args)
        self._check(status, f"table '{t.name}' has no entry {handle}")
        self._refer(t, kind, number, 1)
        self._refer(t, old.kind, old.number, -1)

    def table_delete(self, table: str, handle: int) -> None:
        t = self._writable(table)
        with self._mutex:
            old = self._handle(t, handle)
            self._c.p4c_table_delete(self.pointer, t.index, handle)
            self._refer(t, old.kind, old.number, -1)

    def table_find(self, table: str, key: tuple[MatchValue, ...], *, priority: int = 0) -> int:
        """Return the handle of the entry with exactly this match key (and priority). Raises NotFound."""
        t = self._table(table)
        w = key_to_words(t, key, priority)
        handle = self._c.p4c_table_find(
            self.pointer, t.index, c_words(w.value), c_words(w.mask), c_words(w.high), w.order
        )
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
        """Yield all entries, const ones too, in order of handle."""
        for handle in self.table_handles(table):
            try:
                yield self.table_entry(table, handle)
            except NotFound:
                continue  # it went away since

    def table_size(self, table: str) -> int:
        return int(self._c.p4c_table_size(self.pointer, self._table(table).index))

    def table_clear(self, table: str) -> None:
        """Delete every entry; the default action goes back to the program's."""
        t = self._writable(table)
        with self._mutex:
            for handle in list(self.table_handles(table)):
                self.table_delete(table, handle)
            if not t.const_default:
                self.table_reset_default(table)

    def table_set_timeout(self, table: str, handle: int, idle_timeout_ns: int) -> None:
        t = self._table(table)
        check_timeout(t, idle_timeout_ns, always=True)
        self._handle(t, handle)
        self._c.p4c_table_set_timeout(self.pointer, t.index, handle, idle_timeout_ns)

    def table_default(self, table: str) -> EntryAction | None:
        """Return the default action; None if the table has none (a miss does nothing)."""
        t = self._table(table)
        return self._action_of(t, *self._raw(t, -1))

    def table_set_default(self, table: str, action: EntryAction) -> None:
        t = self._table(table)
        if t.const_default and action != self.table_default(table):
            raise PermissionDenied(f"table '{table}': its default action is const")
        with self._mutex:
            self._replace(t, -1, self._raw(t, -1)[0], action)

    def table_reset_default(self, table: str) -> None:
        """Reset a table's default entry to that of the program."""
        t = self._table(table)
        default = t.default_entry
        with self._mutex:
            old = self._raw(t, -1)[0]
            if default is None:
                self._c.p4c_table_modify(self.pointer, t.index, -1, self._no_ref, -1, c_words([0] * t.arg_words))
                self._refer(t, old.kind, old.number, -1)
                return
            index, args = self._pack(t.actions, default, t.arg_words, f"table '{table}'")
            self._c.p4c_table_modify(self.pointer, t.index, -1, self._action_ref, index, args)
            self._refer(t, old.kind, old.number, -1)

    def idle_entries(self, table: str, now_ns: int | None = None) -> list[int]:
        """Return the handles of entries idle for their timeout; each is reported again only after another timeout.

        `now_ns` is the time on the instance's clock, by default its latest.
        """
        t = self._table(table)
        limit = self.table_size(table)
        handles = (ctypes.c_uint32 * (limit + 1))()
        now = self._raw(t, -1)[0].now_ns if now_ns is None else now_ns
        count = self._c.p4c_table_idle(self.pointer, t.index, now, handles, limit)
        return list(handles[:count])
