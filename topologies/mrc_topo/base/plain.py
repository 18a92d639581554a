"""Typed documents: dataclasses to plain JSON values and back, checked on the way in.

Fields travel by their names, in their order. `IntEnum` and `StrEnum` travel by value, other enumerations by name; a
`NamedTuple` travels as a list. What arrives with an unknown key, without a key that has no default, or with a value of
another type is refused with the path to it. A field whose type is `object` takes any value as it is.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar, Union

from mrc_topo.base import interruption
from mrc_topo.base.errors import UsageError

T = TypeVar("T")
Decoder = Callable[[object, str], Any]
#: Metadata of a field that defaults to None: its key is left out of the document while it is None.
OMIT_NONE: Final = types.MappingProxyType({"omit_none": True})
_SCALARS: Final = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    types.NoneType: "null",
}
_SHOWN: Final = 60
#: Decoding a list of this length or more looks for signals between its values.
_LONG: Final = 4096


class DecodeError(UsageError):
    """A document that is not of the expected type; the text names the key and what it expects."""


@dataclass(frozen=True)
class Range:
    """The integers allowed by `Annotated[int, Range(low, high)]`, both ends included."""

    low: int
    high: int


def encode(value: object) -> Any:
    """Return the plain JSON value of a document: dict, list, text, number, true, false or null."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if dataclasses.is_dataclass(kind):
        found = {}
        for name, omit in _encoded_fields(kind):
            each = getattr(value, name)
            if not (omit and each is None):
                found[name] = encode(each)
        return found
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(each) for key, each in value.items()}
    if isinstance(value, Enum):
        return value.value if isinstance(value, int | str) else value.name
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence | deque):
        return [encode(each) for each in value]
    if isinstance(value, int | float):  # of a subclass, such as NumPy's float64
        return value
    raise TypeError(f"no document can hold {value!r}")


@functools.cache
def _encoded_fields(kind: type) -> tuple[tuple[str, bool], ...]:
    return tuple((each.name, bool(each.metadata.get("omit_none"))) for each in dataclasses.fields(kind))


def decode(kind: type[T], value: object, where: str = "", *, lenient: bool = False) -> T:
    """Return a document of type `kind` from plain JSON values.

    Args:
        where: what stands in front of the keys in errors.
        lenient: leaves out unknown keys, as for files of other versions.

    Raises:
        DecodeError: an unknown or a missing key, or a value of another type.
    """
    made: T = _decoder(typing.cast("Any", kind), lenient)(value, where)
    return made


@functools.cache
def _decoder(kind: Any, lenient: bool) -> Decoder:
    """Return the function that checks and builds a value of a type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is object or kind is Any:
        return lambda value, where: value
    if origin is Annotated:
        return _annotated(_decoder(arguments[0], lenient), arguments[1:])
    if origin is Literal:
        expected = "one of " + ", ".join(map(str, arguments))
        return lambda value, where: value if value in arguments else _refuse(value, where, expected)
    if origin in (Union, types.UnionType):
        return _union(arguments, lenient)
    if origin is not None:
        return _collection(origin, arguments, lenient)
    if kind in _SCALARS:
        return _scalar(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enumeration(kind)
    if dataclasses.is_dataclass(kind):
        return _document(kind, lenient)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind, include_extras=True)
        row = _row([_decoder(hints[name], lenient) for name in kind._fields], ", ".join(kind._fields))
        return lambda value, where: kind(*row(value, where))
    raise TypeError(f"no document can hold {kind!r}")


def _refuse(value: object, where: str, expected: str) -> Any:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    raise DecodeError(f"{where or 'the document'} is {shown}; expected: {expected}")


def _allowed(kind: type) -> frozenset[type]:
    """Return the types of the values of a scalar type: whole numbers count as numbers, too, and keep their type; true
    and false do not."""
    return frozenset((int, float) if kind is float else (kind,))


def _scalar(kind: type) -> Decoder:
    expected = _SCALARS[kind]
    allowed = _allowed(kind)
    return lambda value, where: value if type(value) in allowed else _refuse(value, where, expected)


def _annotated(inner: Decoder, notes: Sequence[object]) -> Decoder:
    (bounds,) = (each for each in notes if isinstance(each, Range))
    expected = f"an integer from {bounds.low} to {bounds.high}"

    def check(value: object, where: str) -> object:
        found = inner(value, where) if type(value) is int else _refuse(value, where, expected)
        return found if bounds.low <= found <= bounds.high else _refuse(value, where, expected)

    return check


def _union(kinds: Sequence[Any], lenient: bool) -> Decoder:
    decoders = [_decoder(each, lenient) for each in kinds]

    def check(value: object, where: str) -> object:
        problems: list[DecodeError] = []
        for decoder in decoders:
            try:
                return decoder(value, where)
            except DecodeError as error:
                problems.append(error)
        # The most specific error is reported: that of a wrong key inside, if any alternative matched that far.
        raise max(problems, key=lambda each: len(str(each).partition(" is ")[0]))

    return check


def _collection(origin: Any, arguments: Sequence[Any], lenient: bool) -> Decoder:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(_key(arguments[0]), _decoder(arguments[1], lenient))
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        row = _row([_decoder(each, lenient) for each in arguments], f"{len(arguments)} values")
        return lambda value, where: tuple(row(value, where))
    item = _decoder(arguments[0], lenient)
    build = origin if origin in (tuple, set, frozenset) else list
    # Counters and histories are long lists of numbers, checked many times a second.
    plain = _allowed(arguments[0]) if arguments[0] in _SCALARS else frozenset()

    def check(value: object, where: str) -> object:
        if not isinstance(value, list | tuple):
            _refuse(value, where, "a list")
        values = typing.cast("list[Any]", value)
        if plain and plain.issuperset(map(type, values)):
            return build(values)
        return build([item(each, f"{where}[{index}]") for index, each in enumerate(_watched(values))])

    return check


def _watched(values: list[Any]) -> Iterable[Any]:
    """Return the values; those of a long list look for signals between them, as all that takes long does."""
    return values if len(values) < _LONG else (_checked(each) for each in values)


def _checked(value: Any) -> Any:
    interruption.check()
    return value


def _row(decoders: Sequence[Decoder], expected: str) -> Decoder:
    def check(value: object, where: str) -> list[object]:
        if not isinstance(value, list | tuple) or len(value) != len(decoders):
            _refuse(value, where, f"a list of {expected}")
        values = typing.cast("list[object]", value)
        return [
            decoder(each, f"{where}[{at}]") for at, (decoder, each) in enumerate(zip(decoders, values, strict=True))
        ]

    return check


def _key(kind: Any) -> Decoder:
    """Return the function that checks a key of a table; in JSON all keys are texts."""
    if kind is not int:
        return _decoder(kind, False)

    def number(value: object, where: str) -> int:
        if isinstance(value, str) and value.isdecimal() and value.isascii():
            return int(value)
        return value if type(value) is int else _refuse(value, where, "a whole number as a key")

    return number


def _table(key: Decoder, item: Decoder) -> Decoder:
    def check(value: object, where: str) -> object:
        if not isinstance(value, Mapping):
            _refuse(value, where, "an object")
        table = typing.cast("Mapping[object, object]", value)
        return {key(name, where): item(each, f"{where}[{name!r}]") for name, each in table.items()}

    return check


def _enumeration(kind: type[Enum]) -> Decoder:
    by_value = issubclass(kind, IntEnum | StrEnum | IntFlag)
    known: Mapping[object, Enum] = {each.value if by_value else each.name: each for each in kind}
    if issubclass(kind, IntFlag):
        most = sum(each.value for each in kind)
        numbers = _annotated(_scalar(int), [Range(0, most)])
        return lambda value, where: kind(numbers(value, where))
    expected = "one of " + ", ".join(map(str, known))

    def check(value: object, where: str) -> object:
        if isinstance(value, kind):
            return value
        return known[value] if type(value) in (str, int) and value in known else _refuse(value, where, expected)

    return check


def _document(kind: Any, lenient: bool) -> Decoder:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {each.name: _decoder(hints[each.name], lenient) for each in dataclasses.fields(kind)}
    needed = [
        each.name
        for each in dataclasses.fields(kind)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]

    def check(value: object, where: str) -> object:
        if not isinstance(value, Mapping):
            _refuse(value, where, "an object")
        given = typing.cast("Mapping[str, object]", value)
        front = f"{where}." if where else ""
        found = {}
        for name, each in given.items():
            if name in fields:
                found[name] = fields[name](each, f"{front}{name}")
            elif not lenient:
                raise DecodeError(f"unknown key '{front}{name}'; known: {', '.join(sorted(fields)) or 'none'}")
        for name in needed:
            if name not in found:
                raise DecodeError(f"key '{front}{name}' is missing")
        return kind(**found)

    return check
