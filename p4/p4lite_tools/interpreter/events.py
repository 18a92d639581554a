"""The events of a packet that the interpreter reports to an observer, in order.

Every event has `where`, its place in the P4 source, if the document has it (`source_info`). Widths are in bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from p4lite.switch.bmv2.reader import JsonNode


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the P4 source: line and column count from 1, `fragment` is the beginning of its text."""

    file: str
    line: int
    column: int
    fragment: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def place_of(node: JsonNode) -> Place | None:
    """Return the `source_info` of an object of the document, if it has one."""
    info = node.get("source_info")
    if info is None:
        return None
    fragment = info.get("source_fragment")
    return Place(
        info["filename"].str(), info["line"].int(), info["column"].int(), fragment.str() if fragment is not None else ""
    )


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `name` is that of its JSON."""

    where: Place | None
    name: ClassVar[str] = "event"

    def __init_subclass__(cls, **options: Any) -> None:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """Return the event for JSON: bytes as hexadecimal digits."""
        return {"event": self.name} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Place):
        return {"file": value.file, "line": value.line, "column": value.column, "fragment": value.fragment}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, NamedValue):
        return {"name": value.name, "value": value.value, "width": value.width}
    return value


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value with its name and width: a field, a key of a table, an argument of an action."""

    name: str
    value: int
    width: int


@dataclass(frozen=True, slots=True)
class PacketStarted(Event):
    """A packet enters the parser; `instance_type` as in v1model (0: it came from outside), also of PSA."""

    port: int
    data: bytes
    instance_type: int


@dataclass(frozen=True, slots=True)
class StateEntered(Event):
    """The parser enters a state; `offset` is the next byte of the packet."""

    state: str
    offset: int


@dataclass(frozen=True, slots=True)
class Extracted(Event):
    """A header was extracted from the bytes at `offset`."""

    header: str
    offset: int
    values: tuple[NamedValue, ...]


@dataclass(frozen=True, slots=True)
class TransitionTaken(Event):
    """The parser goes on with `to` (None: accept), by transition number `number` of the state (None: none matched)."""

    state: str
    number: int | None
    to: str | None


@dataclass(frozen=True, slots=True)
class ParserFailed(Event):
    """The parser stopped with an error of P4, such as PacketTooShort."""

    state: str
    error: str


@dataclass(frozen=True, slots=True)
class PipelineEntered(Event):
    """`ingress` or `egress` begins; of egress `port` is where the packet goes out."""

    pipeline: str
    port: int


@dataclass(frozen=True, slots=True)
class ConditionTested(Event):
    """An `if` of a control was evaluated."""

    condition: str
    holds: bool


def is_of_program(action: str) -> bool:
    """Return whether an action of BMv2 JSON is the program's.

    Compilers name their own ones by file and line (`router29`, `loop7`), or `act`, `act_0`. An action of a control
    has a dot in its name.
    """
    return "." in action or not (action == "act" or action[-1:].isdigit())


@dataclass(frozen=True, slots=True)
class TableApplied(Event):
    """A table was applied; of a miss `entry` is None and the action is the default. `hidden`: made by the compiler."""

    table: str
    keys: tuple[NamedValue, ...]
    hit: bool
    entry: int | None
    action: str | None
    arguments: tuple[NamedValue, ...]
    hidden: bool

    @property
    def called(self) -> str | None:
        """The action that the program calls itself, without a table; None of any other table."""
        return self.action if self.hidden and self.action is not None and is_of_program(self.action) else None


@dataclass(frozen=True, slots=True)
class StatementStarted(Event):
    """A primitive is about to be executed."""

    primitive: str


@dataclass(frozen=True, slots=True)
class FieldChanged(Event):
    """A field has another value than before."""

    field: str
    old: int
    new: int
    width: int


@dataclass(frozen=True, slots=True)
class ValidityChanged(Event):
    """A header became valid or invalid."""

    header: str
    valid: bool


@dataclass(frozen=True, slots=True)
class ChecksumTested(Event):
    """A checksum is verified (`update` False) or updated, if its condition `holds`."""

    field: str
    update: bool
    holds: bool


@dataclass(frozen=True, slots=True)
class RegisterRead(Event):
    register: str
    index: int
    value: int


@dataclass(frozen=True, slots=True)
class RegisterWritten(Event):
    register: str
    index: int
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Counted(Event):
    """A counter's cell has counted the packet; `index` None: a direct counter, of the entry just applied."""

    counter: str
    index: int | None
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Metered(Event):
    """A meter gave a colour: 0 green, 1 yellow, 2 red. `index` None: a direct meter."""

    meter: str
    index: int | None
    colour: int


@dataclass(frozen=True, slots=True)
class ExternCalled(Event):
    """A method of an extern that is written in Python was called."""

    instance: str
    method: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cloned(Event):
    """A copy is made for a mirror session, at `ingress` or `egress`."""

    pipeline: str
    session: int


@dataclass(frozen=True, slots=True)
class Replicated(Event):
    """A multicast group makes a copy for a port."""

    group: int
    port: int
    rid: int


@dataclass(frozen=True, slots=True)
class Resubmitted(Event):
    field_list: int


@dataclass(frozen=True, slots=True)
class Recirculated(Event):
    field_list: int


@dataclass(frozen=True, slots=True)
class DigestSent(Event):
    digest: str
    values: tuple[NamedValue, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Event):
    """The packet ends here; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Deparsed(Event):
    """The deparser wrote these headers."""

    headers: tuple[str, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Sent(Event):
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Logged(Event):
    """The program called log_msg."""

    text: str


@dataclass(frozen=True, slots=True)
class Faulted(Event):
    """The program did what P4 leaves undefined, such as reading beyond a register; it goes on as the switch does."""

    text: str


Observer = Callable[[Event], None]
