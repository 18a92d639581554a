"""The state of one switch: tables, profiles, counters, meters, registers, value sets, by name.

Every operation takes the instance's lock (pipeline.h), so it may be called while the fabric core runs packets
in another thread; a packet sees a table before or after an operation. An operation that raises changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p4lite.switch.program import ActionCall, EntryAction, MatchValue, Program


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry. `handle` is unique within the table for its lifetime; `priority` 0 where none applies."""

    table: str
    handle: int
    key: tuple[MatchValue, ...]
    priority: int
    action: EntryAction
    is_const: bool
    idle_timeout_ns: int = 0
    idle_ns: int = 0  # time since the last hit (or insertion), by the instance's clock


@dataclass(frozen=True, slots=True)
class CounterValue:
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Two-rate three-colour marker (RFC 2698); rates per second, bursts in the meter's unit."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class Member:
    profile: str
    member: int
    action: ActionCall


@dataclass(frozen=True, slots=True)
class Group:
    profile: str
    group: int
    members: tuple[int, ...]
    max_size: int


class ProgramInstance:
    """One switch's state. `pointer` is the `struct p4_instance *`, `program_pointer` the `struct p4_program *`."""

    program: Program
    pointer: int
    program_pointer: int

    def __init__(
        self, program: Program, *, seed: int = 1, drop_port: int = 511, lock: int = 0, host: int = 0
    ):
        raise NotImplementedError

    def close(self) -> None:
        """Frees the C instance; the object is unusable afterwards. The core must have let go of it."""
        raise NotImplementedError

    def restart(self) -> None:
        """As after a restart of the switch: tables hold the program's initial entries, all state is zero."""
        raise NotImplementedError

    # tables -----------------------------------------------------------------------------------------------
    def table_add(
        self,
        table: str,
        key: tuple[MatchValue, ...],
        action: EntryAction,
        *,
        priority: int = 0,
        idle_timeout_ns: int = 0,
    ) -> int:
        """Adds an entry and returns its handle. Keys in the order of the table's key."""
        raise NotImplementedError

    def table_modify(self, table: str, handle: int, action: EntryAction) -> None:
        raise NotImplementedError

    def table_delete(self, table: str, handle: int) -> None:
        raise NotImplementedError

    def table_find(self, table: str, key: tuple[MatchValue, ...], *, priority: int = 0) -> int:
        """Handle of the entry with exactly this match key (and priority). Raises NotFound."""
        raise NotImplementedError

    def table_entry(self, table: str, handle: int) -> Entry:
        raise NotImplementedError

    def table_entries(self, table: str) -> Iterator[Entry]:
        """All entries, const ones too, in order of handle."""
        raise NotImplementedError

    def table_size(self, table: str) -> int:
        raise NotImplementedError

    def table_clear(self, table: str) -> None:
        """Deletes every entry; the default action goes back to the program's."""
        raise NotImplementedError

    def table_set_timeout(self, table: str, handle: int, idle_timeout_ns: int) -> None:
        raise NotImplementedError

    def table_default(self, table: str) -> EntryAction | None:
        """The default action; None if the table has none (a miss does nothing)."""
        raise NotImplementedError

    def table_set_default(self, table: str, action: EntryAction) -> None:
        raise NotImplementedError

    def table_reset_default(self, table: str) -> None:
        """Back to the default of the program."""
        raise NotImplementedError

    def idle_entries(self, table: str) -> list[int]:
        """Handles of entries idle for their timeout or longer; each is reported anew only after another timeout."""
        raise NotImplementedError

    # action profiles and selectors ------------------------------------------------------------------------
    def member_add(self, profile: str, action: ActionCall, member: int | None = None) -> int:
        """Adds a member with the given id, or the lowest free one."""
        raise NotImplementedError

    def member_modify(self, profile: str, member: int, action: ActionCall) -> None:
        raise NotImplementedError

    def member_delete(self, profile: str, member: int) -> None:
        """Raises InvalidArgument while an entry or group refers to it."""
        raise NotImplementedError

    def members(self, profile: str) -> Iterator[Member]:
        raise NotImplementedError

    def group_add(
        self, profile: str, members: Iterable[int] = (), group: int | None = None, *, max_size: int = 0
    ) -> int:
        """Adds a group; a member listed n times has weight n."""
        raise NotImplementedError

    def group_modify(self, profile: str, group: int, members: Iterable[int]) -> None:
        raise NotImplementedError

    def group_delete(self, profile: str, group: int) -> None:
        raise NotImplementedError

    def groups(self, profile: str) -> Iterator[Group]:
        raise NotImplementedError

    # counters, meters, registers --------------------------------------------------------------------------
    def counter_read(self, counter: str, index: int) -> CounterValue:
        raise NotImplementedError

    def counter_read_all(self, counter: str) -> list[CounterValue]:
        raise NotImplementedError

    def counter_write(self, counter: str, index: int, packets: int, bytes_: int) -> None:
        raise NotImplementedError

    def counter_reset(self, counter: str) -> None:
        raise NotImplementedError

    def direct_counter_read(self, table: str, handle: int | None) -> CounterValue:
        """Counter of an entry, or of the default entry (None)."""
        raise NotImplementedError

    def direct_counter_write(self, table: str, handle: int | None, packets: int, bytes_: int) -> None:
        raise NotImplementedError

    def meter_config(self, meter: str, index: int) -> MeterConfig | None:
        """None: not configured, every packet is green."""
        raise NotImplementedError

    def meter_set(self, meter: str, index: int, config: MeterConfig | None) -> None:
        raise NotImplementedError

    def direct_meter_config(self, table: str, handle: int | None) -> MeterConfig | None:
        raise NotImplementedError

    def direct_meter_set(self, table: str, handle: int | None, config: MeterConfig | None) -> None:
        raise NotImplementedError

    def register_read(self, register: str, index: int) -> int:
        raise NotImplementedError

    def register_read_all(self, register: str) -> list[int]:
        raise NotImplementedError

    def register_write(self, register: str, index: int, value: int) -> None:
        raise NotImplementedError

    def register_reset(self, register: str) -> None:
        raise NotImplementedError

    # parser value sets ------------------------------------------------------------------------------------
    def value_set_add(self, value_set: str, value: int) -> None:
        """`value` is the parts concatenated without padding, as wide as ValueSetInfo.width."""
        raise NotImplementedError

    def value_set_delete(self, value_set: str, value: int) -> None:
        raise NotImplementedError

    def value_set_values(self, value_set: str) -> list[int]:
        raise NotImplementedError

    def value_set_clear(self, value_set: str) -> None:
        raise NotImplementedError

    # diagnosis --------------------------------------------------------------------------------------------
    def faults(self) -> dict[str, int]:
        """What `struct p4_faults` counted, by name."""
        raise NotImplementedError
