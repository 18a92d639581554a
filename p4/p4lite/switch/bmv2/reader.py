"""A JSON value that knows its place, so that every complaint about it can name that place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from p4lite.files import ReadError, read_bytes
from p4lite.recursion import DOCUMENT_LIMIT, deep_recursion
from p4lite.switch.errors import ProgramError

_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "an integer",
    bool: "a boolean",
    type(None): "null",
}


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ProgramError, which names the file."""
    try:
        text = read_bytes(path).decode()
    except ReadError as error:
        raise ProgramError(str(error)) from None
    except UnicodeDecodeError:
        raise ProgramError(f"{path}: not a BMv2 JSON: the file is binary") from None
    try:
        with deep_recursion(DOCUMENT_LIMIT):
            data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{path}: not a BMv2 JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProgramError(f"{path}: not a BMv2 JSON: the top level is not an object")
    return data


class JsonNode:
    """`value` at `path` of the JSON file `source`; accessors raise ProgramError when the shape is wrong."""

    __slots__ = ("path", "source", "value")

    def __init__(self, value: Any, source: str, path: str = ""):
        self.value = value
        self.source = source
        self.path = path

    def __bool__(self) -> bool:
        return True  # an empty array is still there

    def error(self, message: str) -> ProgramError:
        return ProgramError(f"{self.source}: {self.path or 'top level'}: {message}")

    def fail(self, message: str) -> NoReturn:
        raise self.error(message)

    def _wrong(self, wanted: str) -> NoReturn:
        self.fail(f"expected {wanted}, found {_KINDS.get(type(self.value), type(self.value).__name__)}")

    def __getitem__(self, key: str | int) -> JsonNode:
        if isinstance(key, int):
            if not isinstance(self.value, list):
                self._wrong("an array")
            if key >= len(self.value):
                self.fail(f"expected at least {key + 1} items, found {len(self.value)}")
            return JsonNode(self.value[key], self.source, f"{self.path}[{key}]")
        if not isinstance(self.value, dict):
            self._wrong("an object")
        if key not in self.value:
            self.fail(f"the key '{key}' is missing")
        return JsonNode(self.value[key], self.source, f"{self.path}.{key}" if self.path else key)

    def get(self, key: str) -> JsonNode | None:
        """Return the value under `key`; None if it is missing or null."""
        if not isinstance(self.value, dict):
            self._wrong("an object")
        return self[key] if self.value.get(key) is not None else None

    def items(self, key: str | None = None) -> Iterator[JsonNode]:
        """Yield the items of this array, or of the array under `key` (none if that is missing or null)."""
        node: JsonNode | None = self if key is None else self.get(key)
        if node is None:
            return
        if not isinstance(node.value, list):
            node._wrong("an array")
        for i in range(len(node.value)):
            yield node[i]

    def names(self) -> list[str]:
        """Return the keys of this object."""
        if not isinstance(self.value, dict):
            self._wrong("an object")
        return list(self.value)

    def __len__(self) -> int:
        if not isinstance(self.value, list | dict):
            self._wrong("an array")
        return len(self.value)

    def str(self) -> str:
        if not isinstance(self.value, str):
            self._wrong("a string")
        return str(self.value)

    def int(self, low: int | None = None, high: int | None = None) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self._wrong("an integer")
        if (low is not None and self.value < low) or (high is not None and self.value > high):
            self.fail(f"{self.value} is out of range ({low} to {high})")
        return int(self.value)

    def bool(self) -> bool:
        if not isinstance(self.value, bool):
            self._wrong("a boolean")
        return bool(self.value)

    def flag(self, key: str, default: bool = False) -> bool:  # type: ignore[valid-type]
        node = self.get(key)
        return default if node is None else node.bool()

    def hex(self) -> int:  # type: ignore[valid-type]
        """Return a hexstr: optional minus, optional 0x, hexadecimal digits."""
        text = self.str()
        body = text[1:] if text.startswith("-") else text
        if body.startswith(("0x", "0X")):
            body = body[2:]
        if not body or not all(c in "0123456789abcdefABCDEF" for c in body):
            self.fail(f"'{text[:60]}' is not a hexadecimal string")
        value = int(body, 16)
        return -value if text.startswith("-") else value

    def hex_bytes(self) -> bytes:
        """Return a hexstr without sign as bytes; an odd number of digits gets a leading 0."""
        text = self.str()
        body = text[2:] if text.startswith(("0x", "0X")) else text
        try:
            return bytes.fromhex("0" * (len(body) % 2) + body)
        except ValueError:
            self.fail(f"'{text[:60]}' is not a hexadecimal string")
