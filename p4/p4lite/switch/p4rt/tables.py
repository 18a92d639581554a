"""Table entries and what is direct to them: TableEntry, DirectCounterEntry, DirectMeterEntry.

Source: P4Runtime specification, "TableEntry", "DirectCounterEntry", "DirectMeterEntry". Every entry is kept as
the controller wrote it (canonical, serialised), so that reading returns what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4lite.messages import p4runtime_pb2
from p4lite.switch.p4rt.errors import (
    ALREADY_EXISTS,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNIMPLEMENTED,
    P4RtError,
    invalid,
)
from p4lite.switch.p4rt.externs import meter_config, meter_message
from p4lite.switch.p4rt.info import DEFAULT_ONLY, TABLE_ONLY
from p4lite.switch.p4rt.match import action_call, action_message, decode_match, encode_match
from p4lite.switch.p4rt.pipeline import DELETE, INSERT, MODIFY, DeviceTarget, TableBinding, control
from p4lite.switch.p4rt.profiles import Profiles
from p4lite.switch.program.entry import ActionCall, GroupRef, MatchValue, MemberRef

#: P4Runtime's higher priority wins, BMv2's lower: one is this minus the other.
PRIORITY_PIVOT = 0x7FFFFFFF
Key = tuple[tuple[MatchValue, ...], int]


class _Record:
    """One entry: its handle in the table, the controller's message (serialised), its one-shot's group."""

    __slots__ = ("const", "handle", "message", "oneshot")

    def __init__(self, handle: int, message: bytes, const: bool = False, oneshot: int | None = None) -> None:
        self.handle = handle
        self.message = message
        self.const = const
        self.oneshot = oneshot


class DeviceTables:
    """The tables of one device under one pipeline."""

    def __init__(self, target: DeviceTarget, profiles: Profiles) -> None:
        self._target = target
        self._profiles = profiles
        self._records: dict[int, dict[Key, _Record]] = {ident: {} for ident in target.pipeline.tables}
        self._by_handle: dict[int, dict[int, Key]] = {ident: {} for ident in target.pipeline.tables}
        self._defaults: dict[int, bytes] = {}
        for ident, binding in target.pipeline.tables.items():
            self._adopt(ident, binding)

    # -- entries of the program --------------------------------------------------------------------------

    def _adopt(self, ident: int, binding: TableBinding) -> None:
        """Take over the program's own entries, with P4Runtime's priorities."""
        instance = self._target.instance
        with control():
            entries = list(instance.table_entries(binding.target.name))
        for place, entry in enumerate(entries):
            priority = 0
            handle = entry.handle
            if binding.info.needs_priority:
                # The first entry of N gets N, as p4c writes it into its entries files.
                priority = len(entries) - place
                if not any(other.is_const for other in entries):
                    with control():
                        instance.table_delete(binding.target.name, handle)
                        handle = instance.table_add(
                            binding.target.name,
                            entry.key,
                            entry.action,
                            priority=PRIORITY_PIVOT - priority,
                        )
            values: list[MatchValue] = list(entry.key)
            for position, value in zip(binding.order, entry.key, strict=True):
                values[position] = value
            message = p4runtime_pb2.TableEntry(table_id=ident, priority=priority)
            encode_match(binding.info.fields, values, message.match)
            if isinstance(entry.action, ActionCall):
                action_message(self._target.pipeline, binding, entry.action, message.action.action)
            if entry.is_const:
                message.is_const = True
            key: Key = (tuple(values), priority)
            self._remember(ident, key, _Record(handle, message.SerializeToString(), entry.is_const))

    def _remember(self, ident: int, key: Key, record: _Record) -> None:
        self._records[ident][key] = record
        self._by_handle[ident][record.handle] = key

    # -- write -------------------------------------------------------------------------------------------

    def write(self, kind: int, entry: Any) -> None:
        """Apply an update of a TableEntry; the message is taken over and may be changed."""
        binding = self._binding(entry.table_id)
        if entry.is_const:
            raise invalid("is_const must not be set in a write")
        if entry.is_default_action:
            self._write_default(kind, entry, binding)
            return
        key = self._key(entry, binding)
        if kind == DELETE:
            self._delete(key, binding)
            return
        self._check(kind, entry, binding)
        if kind == INSERT:
            self._insert(entry, key, binding)
        else:
            self._modify(entry, key, binding)

    def _insert(self, entry: Any, key: Key, binding: TableBinding) -> None:
        info, name = binding.info, binding.target.name
        if not info.fields:
            raise invalid(f"table '{info.name}' has no key: it takes a default action only")
        if info.is_const:
            raise P4RtError(PERMISSION_DENIED, f"table '{info.name}' has const entries only")
        if key in self._records[info.id]:
            raise P4RtError(ALREADY_EXISTS, f"table '{info.name}' has an entry with this key")
        called = entry.action
        if called.WhichOneof("type") is None:
            raise invalid("an entry to insert needs an action")
        instance = self._target.instance
        meter = meter_config(entry.meter_config) if entry.HasField("meter_config") else None
        action, oneshot = self._action(called, binding)
        priority = PRIORITY_PIVOT - key[1] if info.needs_priority else 0
        try:
            with control():
                handle = instance.table_add(
                    name,
                    binding.target_key(key[0]),
                    action,
                    priority=priority,
                    idle_timeout_ns=entry.idle_timeout_ns,
                )
        except P4RtError:
            self._profiles.drop_oneshot(binding.info.profile_id, oneshot)
            raise
        with control():
            if meter is not None:
                instance.direct_meter_set(name, handle, meter)
            if entry.HasField("counter_data"):
                data = entry.counter_data
                instance.direct_counter_write(name, handle, data.packet_count, data.byte_count)
        self._remember(entry.table_id, key, _Record(handle, _stored(entry), oneshot=oneshot))

    def _modify(self, entry: Any, key: Key, binding: TableBinding) -> None:
        record = self._find(key, binding)
        name = binding.target.name
        instance = self._target.instance
        has_action = entry.HasField("action") and entry.action.WhichOneof("type") is not None
        if record.const and has_action:
            raise P4RtError(PERMISSION_DENIED, "the action of a const entry cannot change")
        meter = meter_config(entry.meter_config) if entry.HasField("meter_config") else None
        if has_action:
            action, oneshot = self._action(entry.action, binding)
            try:
                with control():
                    instance.table_modify(name, record.handle, action)
            except P4RtError:
                self._profiles.drop_oneshot(binding.info.profile_id, oneshot)
                raise
            self._profiles.drop_oneshot(binding.info.profile_id, record.oneshot)
            record.oneshot = oneshot
        with control():
            if binding.info.idle_timeout and not record.const:
                instance.table_set_timeout(name, record.handle, entry.idle_timeout_ns)
            if binding.info.meter_id:
                instance.direct_meter_set(name, record.handle, meter)
            if entry.HasField("counter_data"):
                data = entry.counter_data
                instance.direct_counter_write(name, record.handle, data.packet_count, data.byte_count)
        if not record.const:
            if not has_action:
                old = p4runtime_pb2.TableEntry.FromString(record.message)
                entry.action.CopyFrom(old.action)
            record.message = _stored(entry)

    def _delete(self, key: Key, binding: TableBinding) -> None:
        if binding.info.is_const:
            raise P4RtError(PERMISSION_DENIED, f"table '{binding.info.name}' has const entries only")
        record = self._find(key, binding)
        if record.const:
            raise P4RtError(PERMISSION_DENIED, "a const entry cannot be deleted")
        with control():
            self._target.instance.table_delete(binding.target.name, record.handle)
        self._profiles.drop_oneshot(binding.info.profile_id, record.oneshot)
        del self._records[binding.info.id][key]
        del self._by_handle[binding.info.id][record.handle]

    def _write_default(self, kind: int, entry: Any, binding: TableBinding) -> None:
        info, name, instance = binding.info, binding.target.name, self._target.instance
        if kind != MODIFY:
            raise invalid("the default entry is always there: it can be modified, not inserted or deleted")
        if entry.match or entry.priority:
            raise invalid("the default entry has no match and no priority")
        if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
            raise invalid("the default entry has no idle timeout")
        if info.profile_id:
            raise P4RtError(UNIMPLEMENTED, f"table '{info.name}' has an action profile: its default entry is constant")
        self._check(kind, entry, binding)
        meter = meter_config(entry.meter_config) if entry.HasField("meter_config") else None
        has_action = entry.HasField("action") and entry.action.WhichOneof("type") is not None
        direct_only = entry.HasField("counter_data") or entry.HasField("meter_config")
        if (info.const_default or binding.target.const_default) and (has_action or not direct_only):
            raise P4RtError(PERMISSION_DENIED, f"the default action of table '{info.name}' is const")
        if has_action:
            action, _ = self._action(entry.action, binding, default=True)
            with control():
                instance.table_set_default(name, action)
            self._defaults[info.id] = _stored(entry)
        elif not binding.target.const_default:
            with control():
                instance.table_reset_default(name)
            self._defaults.pop(info.id, None)
        with control():
            if info.meter_id:
                instance.direct_meter_set(name, None, meter)
            if entry.HasField("counter_data"):
                data = entry.counter_data
                instance.direct_counter_write(name, None, data.packet_count, data.byte_count)
            elif not has_action and info.counter_id:
                instance.direct_counter_write(name, None, 0, 0)

    def _check(self, kind: int, entry: Any, binding: TableBinding) -> None:
        info = binding.info
        if entry.HasField("counter_data") and not info.counter_id:
            raise invalid(f"table '{info.name}' has no direct counter")
        if entry.HasField("meter_config") and not info.meter_id:
            raise invalid(f"table '{info.name}' has no direct meter")
        if entry.HasField("meter_counter_data"):
            raise P4RtError(UNIMPLEMENTED, "meters do not count per colour")
        if entry.HasField("time_since_last_hit"):
            raise invalid("time_since_last_hit must not be set in a write")
        if entry.idle_timeout_ns and not info.idle_timeout:
            raise invalid(f"table '{info.name}' does not support idle timeouts")
        if entry.idle_timeout_ns < 0:
            raise invalid("idle_timeout_ns is negative")

    def _action(self, action: Any, binding: TableBinding, *, default: bool = False) -> tuple[Any, int | None]:
        """Return the entry's action for the table and, for a one-shot, the group that was made for it."""
        which = action.WhichOneof("type")
        info, profile = binding.info, binding.info.profile_id
        if which == "action":
            if profile:
                raise invalid(f"table '{info.name}' has an action profile: give a member, group or action set")
            call = action.action
            if info.scopes.get(call.action_id) == (TABLE_ONLY if default else DEFAULT_ONLY):
                role = "the default action" if default else "an entry"
                raise P4RtError(PERMISSION_DENIED, f"this action may not be {role} of table '{info.name}'")
            return action_call(self._target.pipeline, info.scopes, call, info.name), None
        if not profile:
            raise invalid(f"table '{info.name}' has no action profile: give an action")
        if which == "action_profile_member_id":
            self._profiles.check_member(profile, action.action_profile_member_id)
            return MemberRef(action.action_profile_member_id), None
        if which == "action_profile_group_id":
            self._profiles.check_group(profile, action.action_profile_group_id)
            return GroupRef(action.action_profile_group_id), None
        group = self._profiles.add_oneshot(profile, action.action_profile_action_set, info.scopes)
        return GroupRef(group), group

    def _binding(self, ident: int) -> TableBinding:
        binding = self._target.pipeline.tables.get(ident)
        if binding is None:
            raise invalid(f"there is no table with id {ident}")
        return binding

    def _key(self, entry: Any, binding: TableBinding) -> Key:
        """Return an entry's key; its match becomes canonical."""
        info, priority = binding.info, entry.priority
        values = decode_match(binding, entry.match)
        if info.needs_priority:
            if not 0 < priority <= PRIORITY_PIVOT:
                raise invalid(f"table '{info.name}' needs a priority from 1 to 2^31-1")
        elif priority:
            raise invalid(f"table '{info.name}' takes no priority")
        return values, priority

    def _find(self, key: Key, binding: TableBinding) -> _Record:
        record = self._records[binding.info.id].get(key)
        if record is None:
            raise P4RtError(NOT_FOUND, f"table '{binding.info.name}' has no entry with this key")
        return record

    # -- read --------------------------------------------------------------------------------------------

    def read(self, query: Any) -> Iterator[Any]:
        """Yield every TableEntry that a query selects, serialised where the stored entry needs no additions (wildcards:
        specification, "TableEntry / Wildcard Reads")."""
        if not query.table_id:
            for ident in self._records:
                yield from self._read_table(ident, query)
            return
        self._binding(query.table_id)
        yield from self._read_table(query.table_id, query)

    def _read_table(self, ident: int, query: Any) -> Iterator[Any]:
        binding = self._binding(ident)
        if query.table_id:
            self._check_query(query, binding)
        if query.is_default_action:
            message = self._default_entry(ident, binding)
            if message is not None:
                self._complete(message, None, query, binding)
                yield message
            return
        records = self._records[ident]
        if query.match:
            values = decode_match(binding, query.match)
            if query.priority or not binding.info.needs_priority:
                chosen = [found] if (found := records.get((values, query.priority))) else []
            else:
                chosen = [record for key, record in records.items() if key[0] == values]
        elif query.priority:
            chosen = [record for key, record in records.items() if key[1] == query.priority]
        else:
            chosen = list(records.values())
        wanted_action = query.action.action.action_id if query.HasField("action") else 0
        if not (wanted_action or query.controller_metadata or query.metadata or _wants_more(query)):
            yield from [record.message for record in chosen]
            return
        for record in chosen:
            message = p4runtime_pb2.TableEntry.FromString(record.message)
            if query.controller_metadata and message.controller_metadata != query.controller_metadata:
                continue
            if query.metadata and message.metadata != query.metadata:
                continue
            if wanted_action and message.action.action.action_id != wanted_action:
                continue
            self._complete(message, record.handle, query, binding)
            yield message

    def _check_query(self, query: Any, binding: TableBinding) -> None:
        if query.HasField("counter_data") and not binding.info.counter_id:
            raise invalid(f"table '{binding.info.name}' has no direct counter")
        if query.HasField("meter_config") and not binding.info.meter_id:
            raise invalid(f"table '{binding.info.name}' has no direct meter")
        if query.HasField("meter_counter_data"):
            raise P4RtError(UNIMPLEMENTED, "meters do not count per colour")
        if query.HasField("time_since_last_hit") and not binding.info.idle_timeout:
            raise invalid(f"table '{binding.info.name}' does not support idle timeouts")

    def _complete(self, message: Any, handle: int | None, query: Any, binding: TableBinding) -> None:
        instance, name, info = self._target.instance, binding.target.name, binding.info
        with control():
            if query.HasField("counter_data") and info.counter_id:
                count = instance.direct_counter_read(name, handle)
                message.counter_data.packet_count = count.packets
                message.counter_data.byte_count = count.bytes
                message.counter_data.SetInParent()
            if query.HasField("meter_config") and info.meter_id:
                config = instance.direct_meter_config(name, handle)
                if config is not None:
                    meter_message(config, message.meter_config)
            if query.HasField("time_since_last_hit") and info.idle_timeout and handle is not None:
                message.time_since_last_hit.elapsed_ns = instance.table_entry(name, handle).idle_ns
                message.time_since_last_hit.SetInParent()

    def _default_entry(self, ident: int, binding: TableBinding) -> Any:
        stored = self._defaults.get(ident)
        if stored is not None:
            return p4runtime_pb2.TableEntry.FromString(stored)
        with control():
            action = self._target.instance.table_default(binding.target.name)
        message = p4runtime_pb2.TableEntry(table_id=ident, is_default_action=True)
        if action is None:
            action = ActionCall("NoAction")  # what a table does that says nothing else
        if isinstance(action, ActionCall):
            action_message(self._target.pipeline, binding, action, message.action.action)
        elif isinstance(action, MemberRef):
            message.action.action_profile_member_id = action.member
        return message

    # -- direct resources --------------------------------------------------------------------------------

    def _direct(self, entry: Any) -> Iterator[tuple[Any, int | None, TableBinding]]:
        """Yield the entries that a direct resource's `table_entry` means: message with its key, handle, table."""
        tables = [entry.table_id] if entry.table_id else list(self._records)
        for ident in tables:
            binding = self._binding(ident)
            if entry.is_default_action:
                yield p4runtime_pb2.TableEntry(table_id=ident, is_default_action=True), None, binding
            elif entry.table_id and (entry.match or entry.priority):
                record = self._find(self._key(entry, binding), binding)
                yield _key_of(record.message), record.handle, binding
            else:
                for record in list(self._records[ident].values()):
                    yield _key_of(record.message), record.handle, binding

    def write_counter(self, kind: int, entry: Any) -> None:
        """Apply a DirectCounterEntry (MODIFY only)."""
        handle, binding = self._direct_one(kind, entry, "counter")
        if entry.HasField("data"):
            with control():
                self._target.instance.direct_counter_write(
                    binding.target.name, handle, entry.data.packet_count, entry.data.byte_count
                )

    def write_meter(self, kind: int, entry: Any) -> None:
        """Apply a DirectMeterEntry (MODIFY only); without config every packet is green."""
        if entry.HasField("counter_data"):
            raise P4RtError(UNIMPLEMENTED, "meters do not count per colour")
        config = meter_config(entry.config) if entry.HasField("config") else None
        handle, binding = self._direct_one(kind, entry, "meter")
        with control():
            self._target.instance.direct_meter_set(binding.target.name, handle, config)

    def _direct_one(self, kind: int, entry: Any, what: str) -> tuple[int | None, TableBinding]:
        if kind != MODIFY:
            raise invalid(f"a direct {what} can only be modified")
        if not entry.HasField("table_entry") or not entry.table_entry.table_id:
            raise invalid(f"a direct {what} needs a table_entry with a table_id")
        binding = self._binding(entry.table_entry.table_id)
        if not getattr(binding.info, f"{what}_id"):
            raise invalid(f"table '{binding.info.name}' has no direct {what}")
        if entry.table_entry.is_default_action:
            return None, binding
        return self._find(self._key(entry.table_entry, binding), binding).handle, binding

    def read_counters(self, query: Any) -> Iterator[Any]:
        """Yield every DirectCounterEntry that a query asks for."""
        for message, handle, binding in self._direct(query.table_entry):
            if not binding.info.counter_id:
                if query.table_entry.table_id:
                    raise invalid(f"table '{binding.info.name}' has no direct counter")
                continue
            with control():
                count = self._target.instance.direct_counter_read(binding.target.name, handle)
            result = p4runtime_pb2.DirectCounterEntry(table_entry=message)
            result.data.packet_count = count.packets
            result.data.byte_count = count.bytes
            result.data.SetInParent()
            yield result

    def read_meters(self, query: Any) -> Iterator[Any]:
        """Yield every DirectMeterEntry that a query asks for."""
        if query.HasField("counter_data"):
            raise P4RtError(UNIMPLEMENTED, "meters do not count per colour")
        for message, handle, binding in self._direct(query.table_entry):
            if not binding.info.meter_id:
                if query.table_entry.table_id:
                    raise invalid(f"table '{binding.info.name}' has no direct meter")
                continue
            with control():
                config = self._target.instance.direct_meter_config(binding.target.name, handle)
            result = p4runtime_pb2.DirectMeterEntry(table_entry=message)
            if config is not None:
                meter_message(config, result.config)
            yield result

    # -- idle timeouts -----------------------------------------------------------------------------------

    def idle_entry(self, ident: int, handle: int) -> Any:
        """Return the TableEntry to report as idle (key, metadata and timeout), or None when it is gone."""
        key = self._by_handle.get(ident, {}).get(handle)
        if key is None:
            return None
        message = p4runtime_pb2.TableEntry.FromString(self._records[ident][key].message)
        message.ClearField("action")
        return message


def _wants_more(query: Any) -> bool:
    """Return whether a query selects values that are not stored."""
    return any(query.HasField(name) for name in ("counter_data", "meter_config", "time_since_last_hit"))


def _stored(entry: Any) -> bytes:
    """Return a written entry as a read returns it, without the values of its direct resources."""
    entry.ClearField("counter_data")
    entry.ClearField("meter_config")
    return bytes(entry.SerializeToString())


def _key_of(stored: bytes) -> Any:
    message = p4runtime_pb2.TableEntry.FromString(stored)
    message.ClearField("action")
    for name in ("metadata", "controller_metadata", "idle_timeout_ns", "is_const"):
        message.ClearField(name)
    return message
