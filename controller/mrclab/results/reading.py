"""Reading the files of an earlier run, which may have been damaged or changed in any way."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import struct
import types
import typing
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass

from mrc_topo.base import interruption
from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import read_plain
from mrc_topo.base.plain import DecodeError, decode

T = typing.TypeVar("T")
_hints = functools.cache(typing.get_type_hints)

RESULT = "result.json"
#: The most bytes and values of a document of a run: a value takes up to a hundred bytes of memory.
MAX_BYTES, MAX_VALUES = 128 << 20, 10_000_000
#: What reading raises where bytes, names, types or values are not those that a run writes.
DAMAGE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, RecursionError),
    *(MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error, struct.error, DecodeError),
)


class FolderError(UsageError):
    """A folder in which results cannot be written or read; the text gives the reason and the remedy."""


def folder_of(path: pathlib.Path) -> pathlib.Path:
    """Return the folder of a run for its own path or that of its result.json."""
    return path.parent if path.name == RESULT else path


def recorded_in(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder if it is that of a run.

    Raises:
        FolderError: it is not; names the runs in it, if there are some.
    """
    if not (folder / RESULT).is_file():
        inside = [printable(name) for name in sorted(each.parent.name for each in folder.glob(f"*/{RESULT}"))[:8]]
        raise FolderError(
            f"{printable(str(folder))}: no recorded run: it has no {RESULT}; "
            + (f"there are some in it: {', '.join(inside)}" if inside else "`mrclab run NAME -o FOLDER` records one")
        )
    return folder


@contextlib.contextmanager
def readable(path: pathlib.Path) -> Iterator[None]:
    """Name the file in every error about its contents.

    Raises:
        FolderError: what is in the file is not what a run writes; names the file.
    """
    try:
        yield
    except DAMAGE as error:
        text = printable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        raise FolderError(
            f"{printable(str(path))}: no results that can be read ({text}); it is damaged or missing: run it again"
        ) from error


def document_of(path: pathlib.Path) -> dict[str, typing.Any]:
    """Return the JSON document in a file of a run.

    Raises:
        FolderError: it is no mapping, or too large, or no plain file; names the file.
    """
    with readable(path):
        data = read_plain(path, MAX_BYTES)
        if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values, which no such file needs")
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("it is not a mapping")
    return document


def of_any_version(kind: type[T], value: object, where: str) -> T:
    """Return a typed document from a JSON value that this or an earlier version wrote.

    Raises:
        DecodeError: a value is of another type; `where` stands in front of its key.
    """
    try:
        return decode(kind, value, where, lenient=True)
    except DecodeError:
        return decode(kind, completed(kind, value), where, lenient=True)


def completed(kind: object, value: object) -> object:
    """Return a JSON value with the fields that an older version did not write: numbers are 0, texts and lists empty.

    Args:
        kind: the type that the value shall be decoded as; dataclasses are completed at any depth.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        chosen = _alternative(arguments, value)
        return value if chosen is None else completed(chosen, value)
    if origin is not None and isinstance(value, Mapping):
        return {key: completed(arguments[1], each) for key, each in value.items()}
    if origin is not None and isinstance(value, list) and arguments:
        return [completed(arguments[0], each) for each in value]
    if not (isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping)):
        return value
    interruption.check()
    hints = _hints(kind)
    made = {key: completed(hints[key], each) if key in hints else each for key, each in value.items()}
    for each in fields(kind):
        if each.default is MISSING and each.default_factory is MISSING:
            made.setdefault(each.name, _nothing(hints[each.name]))
    return made


def _alternative(kinds: tuple[object, ...], value: object) -> object:
    """Return the first table, list or dataclass of a union that a value can be by its keys with fixed values."""
    for kind in kinds:
        if typing.get_origin(kind) is not None and isinstance(value, Mapping | list):
            return kind
        if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
            fixed = {name: hint for name, hint in _hints(kind).items() if _is_fixed(hint)}
            if all(value.get(name) in typing.get_args(hint) for name, hint in fixed.items()):
                return kind
    return None


def _is_fixed(hint: object) -> bool:
    return typing.get_origin(hint) is typing.Literal


def _nothing(kind: object) -> object:
    """Return the JSON value that stands for nothing of a type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in arguments else _nothing(arguments[0])
    if _is_fixed(kind):
        return arguments[0]
    if isinstance(kind, type) and is_dataclass(kind):
        return completed(kind, {})
    found: dict[object, object] = {int: 0, float: 0.0, str: "", bool: False}
    return found[kind] if kind in found else {} if isinstance(origin, type) and issubclass(origin, Mapping) else []
