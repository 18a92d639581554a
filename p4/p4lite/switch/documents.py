"""JSON documents as dataclasses: `read` checks a document against the types of the fields, `plain` writes one.

Types of fields: int, float (a probability), bool, str, Literal, dataclasses, `X | None`, `tuple[X, ...]`,
`dict[str, X]`, `dict[int, X]` (whose keys are numbers in text). `Annotated[int, Range(LOW, HIGH)]` bounds an integer,
and `Annotated[tuple[X, X], "[a, b]"]` says what the items of a pair are.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Hashable
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from p4lite.switch.errors import DocumentError

V = TypeVar("V")


class IntegerRange(NamedTuple):
    """The smallest and the largest value of an integer."""

    low: int = 0
    high: int = (1 << 63) - 1


PortNumber = Annotated[int, IntegerRange(0, 65535)]
Number32 = Annotated[int, IntegerRange(0, (1 << 32) - 1)]
Mac = Annotated[int, IntegerRange(0, (1 << 48) - 1)]


def read(kind: type[V], value: object, where: str) -> V:
    """Return `value` as a `kind`. Raises DocumentError, which names the place below `where` ("": at the top)."""
    read_value: Callable[[object, str], V] = _reader(cast(Hashable, kind))
    return read_value(value, where)


def plain(value: Any) -> Any:
    """Return the plain value that `read` accepts, ready for JSON; None values are left out."""
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(item) for name, item in items if item is not None}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@cache
def _reader(hint: Any) -> Callable[[object, str], Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _reader(next(part for part in parts if part is not types.NoneType))
        return lambda value, where: None if value is None else inner(value, where)
    if origin is Annotated:
        return (
            _integer(parts[1])
            if isinstance(parts[1], IntegerRange)
            else _pair(parts[1], _reader(get_args(parts[0])[0]))
        )
    if origin is Literal:
        return _choice(parts)
    if origin is dict:
        return _dict(parts[0], _reader(parts[1]))
    if origin is tuple:
        return _list(_reader(parts[0]))
    if dataclasses.is_dataclass(hint):
        return _record(hint)  # type: ignore[arg-type]
    return {int: _integer(IntegerRange()), float: _probability, bool: _boolean, str: _text}[hint]


def _integer(bounds: IntegerRange) -> Callable[[object, str], int]:
    def read_integer(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not bounds.low <= value <= bounds.high:
            raise DocumentError(f"{where}: expected an integer from {bounds.low} to {bounds.high}, got {value!r}")
        return value

    return read_integer


def _probability(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise DocumentError(f"{where}: expected a number from 0 to 1, got {value!r}")
    return float(value)


def _boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise DocumentError(f"{where}: expected true or false, got {value!r}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DocumentError(f"{where}: expected a string, got {value!r}")
    return value


def _choice(known: tuple[object, ...]) -> Callable[[object, str], object]:
    def read_choice(value: object, where: str) -> object:
        if value not in known:
            raise DocumentError(f"{where}: expected {' or '.join(map(str, known))}, got {value!r}")
        return value

    return read_choice


def _list(inner: Callable[[object, str], Any]) -> Callable[[object, str], tuple[Any, ...]]:
    def read_list(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise DocumentError(f"{where}: expected a list, got {value!r}")
        return tuple(inner(item, f"{where}[{index}]") for index, item in enumerate(value))

    return read_list


def _pair(names: str, inner: Callable[[object, str], Any]) -> Callable[[object, str], tuple[Any, Any]]:
    def read_pair(value: object, where: str) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise DocumentError(f"{where}: expected {names}, got {value!r}")
        return inner(value[0], f"{where}[0]"), inner(value[1], f"{where}[1]")

    return read_pair


def _dict(key: type, inner: Callable[[object, str], Any]) -> Callable[[object, str], dict[Any, Any]]:
    def read_dict(value: object, where: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise DocumentError(f"{where}: expected an object, got {value!r}")
        for name in value:
            if key is int and not str(name).isdigit():
                raise DocumentError(f"{where}: '{name}' is not a number")
        return {key(name): inner(item, f"{where}.{name}") for name, item in value.items()}

    return read_dict


def _record(kind: type) -> Callable[[object, str], Any]:
    hints = get_type_hints(kind, include_extras=True)
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]

    def read_record(value: object, where: str) -> Any:
        label = where or kind.__name__.removesuffix("Description").lower()
        if not isinstance(value, dict):
            raise DocumentError(f"{label}: expected an object, got {value!r}")
        for key in value:
            if key not in hints:
                raise DocumentError(f"{label}: no such key '{key}'; known: {', '.join(hints)}")
        for key in needed:
            if key not in value:
                raise DocumentError(f"{label}: needs '{key}'")
        prefix = f"{where}." if where else ""
        return kind(**{key: _reader(hints[key])(item, f"{prefix}{key}") for key, item in value.items()})

    return read_record
