"""Values of keys, arguments and cells as people write them, and the operations that both backends offer."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeGuard, TypeVar

from p4lite.switch.codegen.calculations import Crc
from p4lite.switch.errors import InvalidArgument, NotFound, OutOfRange
from p4lite.switch.multicast import Replication
from p4lite.switch.program.entry import ActionCall, EntryAction, Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import Facts, KeyFacts
from p4lite.switch.runtime.arrays import CounterValue, MeterConfig
from p4lite.switch.runtime.profiles import Group, ProfileMember
from p4lite.switch.runtime.tables import Entry

#: A number as an int, bytes (big-endian), or text: decimal, 0x, 0b, a MAC address, an IPv4 or IPv6 address.
Scalar = int | bytes | str
#: What gets each event of an interpreted packet, and a Python object in the place of an extern instance.
Observer = Callable[[Any], None]
PythonExtern = Any
T = TypeVar("T")


class Missing(NotFound, KeyError):
    """No such entry, group or name; a KeyError, too, as with other mappings."""

    def __str__(self) -> str:
        return Exception.__str__(self)


_MAC = re.compile(r"[0-9a-fA-F]{1,2}(?:[:-][0-9a-fA-F]{1,2}){5}")
_NUMBERS = "an int, bytes, '10', '0x0a', '00:00:0a:00:00:01', '10.0.0.1' or '2001:db8::1'"
_FORMS = {
    "exact": "",
    "valid": "True or False, ",
    "lpm": "'VALUE/LENGTH', (value, length), ",
    "ternary": "'VALUE&&&MASK', (value, mask), None for anything, ",
    "range": "'LOW->HIGH', (low, high), ",
    "optional": "None for anything, ",
}


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value is an int, and not True or False."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Scalar, width: int, where: str) -> int:
    """Return a value of `width` bits. Raises InvalidArgument, which says what is allowed, or OutOfRange."""
    found = _number(value)
    if found is None:
        raise InvalidArgument(f"{where}: {value!r} is not a number; write {_NUMBERS}")
    if not 0 <= found < (1 << width):
        raise OutOfRange(f"{where}: {value!r} does not fit into {width} bits")
    return found


def _number(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _MAC.fullmatch(text):
        return int("".join(part.zfill(2) for part in re.split("[:-]", text)), 16)
    try:
        if "." in text or ":" in text:
            return int(ipaddress.ip_address(text))
        return int(text, 0) if text[:2].lower() in ("0x", "0b", "0o") else int(text)
    except ValueError:
        return None


def match(key: KeyFacts, value: object, where: str) -> MatchValue:
    """Return what an entry matches at a key, from a value, a pair or a text. Raises InvalidArgument or OutOfRange."""
    place = f"{where}, key '{key.name}'"
    if isinstance(value, Exact | Lpm | Ternary | Range | Optional):
        return value
    first, second = _parts(key.match, value)
    if first is None:
        return _anything(key, place)
    if not isinstance(first, int | bytes | str):
        raise InvalidArgument(
            f"{place}: {value!r} does not match {_a(key.match)} key; write {_FORMS[key.match]}{_NUMBERS}"
        )
    low = number(first, key.width, place)
    full = (1 << key.width) - 1
    if key.match == "lpm":
        length = key.width if second is None else number(second, 16, place)
        if length > key.width:
            raise OutOfRange(f"{place}: a prefix of {length} bits in a key of {key.width}")
        return Lpm(low & (full ^ (full >> length)), length)
    if key.match == "ternary":
        mask = full if second is None else number(second, key.width, place)
        return Ternary(low & mask, mask)
    if key.match == "range":
        return Range(low, low if second is None else number(second, key.width, place))
    return Optional(low) if key.match == "optional" else Exact(low)


def _a(word: str) -> str:
    return f"an {word}" if word in ("exact", "lpm", "optional") else f"a {word}"


def _parts(kind: str, value: object) -> tuple[object, Scalar | None]:
    """Return the value and what goes with it: a length, a mask, an upper end."""
    if isinstance(value, tuple) and len(value) == 2 and kind in ("lpm", "ternary", "range"):
        return value[0], value[1]
    between = {"lpm": "/", "ternary": "&&&", "range": "->"}.get(kind)
    if isinstance(value, str) and between is not None and between in value:
        first, _, second = value.partition(between)
        return first, second.strip()
    return value, None


def _anything(key: KeyFacts, place: str) -> MatchValue:
    found = key.everything()
    if found is not None:
        return found
    raise InvalidArgument(f"{place}: {_a(key.match)} key needs a value; write {_NUMBERS}")


def find(name: str, known: Mapping[str, T], what: str) -> str:
    """Return the full name of what is called `name`, or is the only one whose name ends in `.name`. Raises Missing."""
    if not isinstance(name, str):
        raise Missing(f"{name!r} is not a name; there are: {', '.join(known) or 'none'}")
    if name in known:
        return name
    ends = [full for full in known if full.endswith("." + name)]
    if len(ends) == 1:
        return ends[0]
    problem = f"'{name}' means several: {', '.join(ends)}" if ends else f"there is no {what} '{name}'"
    raise Missing(f"{problem}; there are: {', '.join(known) or 'none'}")


class Control(Protocol):
    """Tables, arrays and profiles of a switch; `ProgramInstance` says what each operation does."""

    @property
    def program(self) -> Facts: ...
    def table_add(
        self,
        table: str,
        key: tuple[MatchValue, ...],
        action: EntryAction,
        *,
        priority: int = 0,
        idle_timeout_ns: int = 0,
    ) -> int: ...
    def table_modify(self, table: str, handle: int, action: EntryAction) -> None: ...
    def table_delete(self, table: str, handle: int) -> None: ...
    def table_find(self, table: str, key: tuple[MatchValue, ...], *, priority: int = 0) -> int: ...
    def table_entry(self, table: str, handle: int) -> Entry: ...
    def table_entries(self, table: str) -> Iterator[Entry]: ...
    def table_size(self, table: str) -> int: ...
    def table_clear(self, table: str) -> None: ...
    def table_default(self, table: str) -> EntryAction | None: ...
    def table_set_default(self, table: str, action: EntryAction) -> None: ...
    def table_reset_default(self, table: str) -> None: ...
    def table_set_timeout(self, table: str, handle: int, idle_timeout_ns: int) -> None: ...
    def counter_read(self, counter: str, index: int) -> CounterValue: ...
    def counter_read_all(self, counter: str) -> list[CounterValue]: ...
    def counter_write(self, counter: str, index: int, packets: int, bytes_: int) -> None: ...
    def counter_reset(self, counter: str) -> None: ...
    def direct_counter_read(self, table: str, handle: int | None) -> CounterValue: ...
    def direct_counter_write(self, table: str, handle: int | None, packets: int, bytes_: int) -> None: ...
    def meter_config(self, meter: str, index: int) -> MeterConfig | None: ...
    def meter_set(self, meter: str, index: int, config: MeterConfig | None) -> None: ...
    def direct_meter_config(self, table: str, handle: int | None) -> MeterConfig | None: ...
    def direct_meter_set(self, table: str, handle: int | None, config: MeterConfig | None) -> None: ...
    def register_read(self, register: str, index: int) -> int: ...
    def register_read_all(self, register: str) -> list[int]: ...
    def register_write(self, register: str, index: int, value: int) -> None: ...
    def register_reset(self, register: str) -> None: ...
    def set_crc(self, name: str, crc: Crc) -> None: ...
    def value_set_add(self, value_set: str, value: int) -> None: ...
    def value_set_delete(self, value_set: str, value: int) -> None: ...
    def value_set_values(self, value_set: str) -> list[int]: ...
    def member_add(self, profile: str, action: ActionCall, member: int | None = None) -> int: ...
    def member_modify(self, profile: str, member: int, action: ActionCall) -> None: ...
    def member_delete(self, profile: str, member: int) -> None: ...
    def members(self, profile: str) -> Iterator[ProfileMember]: ...
    def group_add(
        self, profile: str, members: Iterable[int] = (), group: int | None = None, *, max_size: int = 0
    ) -> int: ...
    def group_modify(self, profile: str, group: int, members: Iterable[int]) -> None: ...
    def group_delete(self, profile: str, group: int) -> None: ...
    def groups(self, profile: str) -> Iterator[Group]: ...


class Backend(Protocol):
    """A switch that packets go through; `digests` gives those since the last call, by name."""

    @property
    def control(self) -> Control: ...
    @property
    def replication(self) -> Replication: ...
    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]: ...
    def advance(self, duration_ns: int) -> None: ...
    @property
    def now_ns(self) -> int: ...
    def digests(self) -> list[tuple[str, tuple[int, ...]]]: ...
    def close(self) -> None: ...
