"""Contents of a P4 program, said once: tables, actions, counters and so on, as frozen dataclasses.

The C of a program (`codegen`) and its control operations (`runtime`) both go by these. `index` is an object's place
in the C arrays of its kind, `place` and the counts of words say how keys and arguments lie in an entry
(`layout.py`), and `node` is the object's place in the JSON, for what only the C needs: bodies, edges, hashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from p4lite.switch.bmv2.model import Bmv2Architecture, FieldRef, Header, Model
from p4lite.switch.bmv2.reader import JsonNode
from p4lite.switch.program.entry import ActionCall, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.layout import KeyField

#: The port to which v1model's programs send what they drop, unless the switch is given another one.
DROP_PORT = 511


@dataclass(frozen=True, slots=True)
class ParamFacts:
    name: str
    width: int


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """An action; several in one JSON may share a name (`NoAction`), their `id` differs."""

    name: str
    id: int
    index: int
    params: tuple[ParamFacts, ...]
    node: JsonNode = field(repr=False, compare=False)
    widths: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Bits of each parameter; every entry that is written asks for them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(param.width for param in self.params))


#: Jumps backwards in one run of an action, after which it ends.
MAX_JUMPS_BACK = 1_000_000


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key of a table: `match` is exact, lpm, ternary, range, optional or valid."""

    name: str
    match: str
    width: int
    place: KeyField
    target: FieldRef
    mask: int | None = None

    def everything(self) -> MatchValue | None:
        """Return the match that fits every value; None if the key's match type has none."""
        if self.match == "lpm":
            return Lpm(0, 0)
        if self.match == "ternary":
            return Ternary(0, 0)
        if self.match == "range":
            return Range(0, (1 << self.width) - 1)
        return Optional(None) if self.match == "optional" else None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table. `kind` is the JSON's match_type: exact, lpm, ternary or range; the last two need priorities.

    `direct_meter` and `action_profile` are names. Of a table with a profile `default_entry` still names an action.
    """

    name: str
    id: int
    index: int
    pipeline: str
    kind: str
    type: str  # simple, indirect, indirect_ws
    key: tuple[KeyFacts, ...]
    key_words: int
    actions: dict[str, ActionFacts]
    arg_words: int
    max_size: int
    with_counters: bool
    direct_meter: str | None
    support_timeout: bool
    action_profile: str | None
    const_entries: bool
    const_default: bool  # neither action nor arguments of the default may change
    default_entry: ActionCall | None
    node: JsonNode = field(repr=False, compare=False)

    @property
    def needs_priority(self) -> bool:
        return self.kind in ("ternary", "range")


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile (`selector` False) or action selector; `tables` that use it, `actions` they allow."""

    name: str
    id: int
    index: int
    max_size: int
    selector: bool
    tables: tuple[str, ...]
    actions: dict[str, ActionFacts]
    arg_words: int
    node: JsonNode = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Array:
    """A counter, meter or register array. A direct one belongs to the entries of `table`.

    `width`: bits of a register, else 0; `initial`: what its cells hold first. Of a meter, which has two rates and three
    colours, `unit` is bytes or packets.
    """

    name: str
    id: int
    index: int
    size: int
    node: JsonNode = field(repr=False, compare=False)
    width: int = 0
    unit: str = ""
    direct: bool = False
    table: str | None = None
    initial: int = 0


@dataclass(frozen=True, slots=True)
class ValueSetFacts:
    """A parser value set; `widths` are the key's parts in bits, most significant first, together `width`."""

    name: str
    id: int
    index: int
    width: int
    widths: tuple[int, ...]
    max_size: int

    @property
    def bytes(self) -> int:
        """Of one value, padded on the left."""
        return (self.width + 7) // 8


@dataclass(frozen=True, slots=True)
class Digest:
    """A learn list: one message is its fields, big-endian, each padded to whole bytes, concatenated."""

    name: str
    id: int
    fields: tuple[FieldRef, ...]

    def split(self, sample: bytes) -> tuple[int, ...]:
        """Return the field values of one serialised sample."""
        values, at = [], 0
        for ref in self.fields:
            size = (ref.field.width + 7) // 8
            values.append(int.from_bytes(sample[at : at + size], "big"))
            at += size
        return tuple(values)


@dataclass(frozen=True, eq=False)
class Facts:
    """A BMv2 JSON as far as declarations go. Dictionaries are keyed by name (actions: by id), in the JSON's order."""

    name: str
    model: Model = field(repr=False)
    pipelines: dict[str, JsonNode] = field(repr=False)
    tables: dict[str, TableFacts]
    actions: dict[int, ActionFacts]
    action_profiles: dict[str, Profile]
    counters: dict[str, Array]
    meters: dict[str, Array]
    registers: dict[str, Array]
    value_sets: dict[str, ValueSetFacts]
    learn_lists: tuple[Digest, ...]
    field_lists: dict[int, tuple[FieldRef, ...]]  # by id: what a clone, resubmission or recirculation keeps

    @property
    def architecture(self) -> Bmv2Architecture:
        """The architecture of the program, which shows in its parsers."""
        return self.model.architecture

    @property
    def source(self) -> str:
        """Path of the JSON, or "<memory>"."""
        return self.model.root.source

    @property
    def json(self) -> dict[str, Any]:
        """The document."""
        document: dict[str, Any] = self.model.root.value
        return document

    @property
    def headers(self) -> dict[str, Header]:
        """Headers and metadata by name."""
        return self.model.headers

    @property
    def errors(self) -> dict[str, int]:
        """Error constants and their numbers."""
        return self.model.errors

    @property
    def digests(self) -> dict[str, Digest]:
        """Learn lists by name; of several with one name (p4c: one type, many calls) the last."""
        return {digest.name: digest for digest in self.learn_lists}
