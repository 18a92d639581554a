"""Reading YAML documents that people write: every problem in one line with file, line and key, before anything starts.

Files that are none (devices, pipes), that are too large, nest too deep or grow by aliases are refused, and so is what
no document here can mean: keys given twice, numbers that are not finite or absurdly long, control characters, dates.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import typing
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import read_plain

KeyPath = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_DIGITS = 40
#: The first characters by which a spreadsheet recognises a formula in a cell.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: The largest number of problems that are reported; more would not help.
MAX_PROBLEMS = 8
SHOWN = 60

#: Names that become folders, and how errors describe them.
LAB_NAME = r"^[a-z][a-z0-9-]{0,30}$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
POLICY_CLASS = r"^(([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|[^:\x00-\x1f\x7f]+\.py):[A-Za-z_]\w*|@[A-Za-z0-9][A-Za-z0-9._-]*)$"
PROGRAM_FILE = r"\.p4$"
#: A host for ssh(1), a part of its command line: the pattern excludes texts that ssh would read as an option.
SSH_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]*$"
_PATTERNS = {
    LAB_NAME: "lower-case letters, digits and '-', beginning with a letter, at most 31 characters",
    NAME: "letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64 characters",
    POLICY_CLASS: "'module:Class', 'FILE.py:Class', or '@NAME' of an installed package",
    SSH_NAME: "a host as ssh knows it (HOST or USER@HOST: letters, digits, and _ . @ : -, no - first)",
    PROGRAM_FILE: "the name of a P4 source file, which ends in .p4",
}

_TAG = "tag:yaml.org,2002:"
_PLAIN = {_TAG + each for each in ("str", "int", "float", "bool", "null", "seq", "map", "merge")}


#: The key of a JSON schema that lists the names of a field in earlier versions.
FORMERLY = "formerly"


def formerly(*names: str) -> dict[str, Any]:
    """Return the `json_schema_extra` of a field that had other names before; each is refused with the new name."""
    return {FORMERLY: list(names)}


class DocumentError(UsageError):
    """A document that cannot be used; each entry of `problems` is one line for the user."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PlacedError(ValueError):
    """What a validator finds wrong below the value that it checks; `key` leads from that value to the place."""

    def __init__(self, message: str, key: KeyPath) -> None:
        super().__init__(message)
        self.key = key


class Model(BaseModel):
    """Base of documents' models: it refuses unknown keys, numbers that are not finite, and true in the place of 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            wanted = cls.model_fields[str(info.field_name)].annotation
            if wanted is not bool and bool not in typing.get_args(wanted):
                raise ValueError(f"{str(value).lower()} is not a value of this key")
        return value


@dataclass(frozen=True)
class Document:
    """A document that was read. `data` is plain: dicts with string keys, lists, strings, finite numbers, booleans,
    None. `notes`: what was left out of it, a line each for the user."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def problem(self, path: KeyPath, message: str, root: str = "document") -> str:
        """Return one line about a key, or about the whole (`root`) for an empty path."""
        near = path
        while near not in self.lines and near:
            near = near[:-1]
        return f"{self.name}:{self.lines.get(near, 1)}: {dotted(path) or root}: {message}"[:400]

    def explain(self, model: type[BaseModel], error: ValidationError, root: str = "document") -> list[str]:
        """Return what pydantic found wrong with the data and how to correct it, a line each."""
        entries = error.errors()
        problems = [self.problem(place_of(each), explain(model, each), root) for each in entries[:MAX_PROBLEMS]]
        if len(entries) > MAX_PROBLEMS:
            problems.append(f"{self.name}: and {len(entries) - MAX_PROBLEMS} problems more")
        return problems


def printable(text: str) -> str:
    """Return one line of the text without terminal control characters."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return shown if len(shown) <= 200 else shown[:150] + "..." + shown[-40:]


def csv_cell(value: Any) -> Any:
    """Return a value for a cell of a CSV file; put a `'` before a text that a spreadsheet would take for a formula.

    Numbers stay numbers, negative ones too.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def dotted(path: KeyPath) -> str:
    """Return a path of keys as text: `links.host.rate`."""
    return printable(".".join(str(part) for part in path))


def load(path: str | os.PathLike[str], name: str, example: str) -> Document:
    """Read a file; `name` stands for it in errors, `example` shows what such a document looks like.

    Raises:
        DocumentError: the file is not such a document.
    """
    return parse(read_text(path, name), name, example)


def read_text(path: str | os.PathLike[str], name: str) -> str:
    """Return the text of a regular file of reasonable size.

    Raises:
        DocumentError: it is something else, larger than `MAX_BYTES`, unreadable, or not UTF-8.
    """
    name = printable(name)
    try:
        text = read_plain(path, MAX_BYTES).decode("utf-8")
        # JSON is YAML but for tabs, which in JSON stand only between values.
        return text.replace("\t", " ") if name.endswith(".json") else text
    except UnicodeDecodeError as error:
        raise DocumentError([f"{name}: cannot be read: not UTF-8 text"]) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DocumentError([f"{name}: cannot be read: {reason}"]) from error


def parse(text: str, name: str, example: str) -> Document:
    """Return the document in a YAML text; see `load`."""
    name = printable(name)
    try:
        _limit(text, name)
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if not isinstance(root, yaml.MappingNode):
                raise DocumentError([f"{name}:1: {example}"])
            lines, problems = _walk(root, name)
            if problems:
                raise DocumentError(problems)
            data = loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise DocumentError([f"{name}{line}: not YAML: {printable(str(error.problem or error.context))}"]) from error
    except yaml.YAMLError as error:
        raise DocumentError([f"{name}: not YAML: {printable(str(error).splitlines()[0])}"]) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise DocumentError([f"{name}: not usable YAML: {printable(str(error))}"]) from error
    return Document(name, data, lines)


def _limit(text: str, name: str) -> None:
    """Check the nesting depth and the number of values as written, without recursion.

    Raises:
        DocumentError: at the first value that exceeds a limit.
    """
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 1
        if depth > MAX_DEPTH:
            raise DocumentError([f"{name}:{line}: nested deeper than {MAX_DEPTH}"])
        if count > 2 * MAX_NODES:
            raise DocumentError([f"{name}:{line}: more than {MAX_NODES} values, which no such file needs"])


def _walk(root: yaml.Node, name: str) -> tuple[dict[KeyPath, int], list[str]]:
    """Return the line of every key, and what is wrong with keys and values. An alias counts each time that it is
    used."""
    lines: dict[KeyPath, int] = {}
    problems: list[str] = []
    waiting: list[tuple[yaml.Node, KeyPath]] = [(root, ())]
    count = 0
    while waiting and len(problems) < MAX_PROBLEMS:
        node, path = waiting.pop()
        count += 1
        line = node.start_mark.line + 1
        if count > MAX_NODES or len(path) > MAX_DEPTH:
            return lines, [f"{name}:{line}: {dotted(path)}: aliases make this too large; write it out"]
        for wrong in _scalar(node):
            problems.append(f"{name}:{line}: {dotted(path)}: {wrong}")
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in reversed(list(node.value)):
                waiting.append((value, (*path, str(key.value))))
            for key, _ in node.value:
                word, line = str(key.value), key.start_mark.line + 1
                lines.setdefault((*path, word), line)
                here = dotted((*path, word))
                if key.tag not in (_TAG + "str", _TAG + "merge"):
                    problems.append(f"{name}:{line}: {here}: a key is a word; quote it")
                elif word in seen:
                    problems.append(f"{name}:{line}: {here}: given twice; keep one")
                problems += [f"{name}:{line}: {here}: {wrong}" for wrong in _scalar(key)]
                seen.add(word)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in reversed(list(enumerate(node.value))):
                lines.setdefault((*path, index), value.start_mark.line + 1)
                waiting.append((value, (*path, index)))
    return lines, problems


def _scalar(node: yaml.Node) -> Iterator[str]:
    """Yield what is wrong with one value by itself."""
    if node.tag not in _PLAIN:
        kind = printable(node.tag.removeprefix(_TAG))
        yield f"a {kind} is nothing that can stand here; quote it if it is meant as text"
    elif node.tag == _TAG + "int" and len(node.value) > MAX_DIGITS:
        yield f"a number of {len(node.value)} digits; at most {MAX_DIGITS}"
    elif isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "float":
        try:
            value = yaml.constructor.SafeConstructor().construct_yaml_float(node)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            yield f"a finite number is needed, not {printable(node.value)[:SHOWN]}"
    elif node.tag == _TAG + "str":
        bad = next(
            (each for each in node.value if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t"), ""
        )
        if bad:
            yield f"the character U+{ord(bad):04X} cannot stand in a text"


def unknown_key(model: type[BaseModel], path: KeyPath) -> tuple[KeyPath, str] | None:
    """Return the path of the first unknown key on the way to a place in a model's documents, and the correct keys
    there; None if all are known. Below a key that takes any content (`params`), all keys are known."""
    for length in range(1, len(path) + 1):
        here = path[:length]
        allowed = {} if isinstance(here[-1], int) else _fields(model, here)
        if allowed and here[-1] not in allowed:
            return here, explain(model, {"loc": here, "msg": "", "type": "extra_forbidden"})
    return None


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _fields(model: type[BaseModel], path: KeyPath) -> dict[str, dict[str, Any]]:
    """Return the keys that are allowed at the end of `path`, each with its JSON schema."""
    schema = _schema(model)
    definitions = schema.get("$defs", {})
    here = schema
    for part in path[:-1]:
        if isinstance(part, int):
            step = here.get("items", {})
        else:
            step = here.get("properties", {}).get(part) or here.get("additionalProperties") or {}
            if not isinstance(step, dict):  # any content is allowed there
                return {}
        options = [step, *step.get("anyOf", []), *step.get("allOf", [])]
        found = next((option for option in options if "$ref" in option), None)
        here = definitions.get(str(found["$ref"]).rsplit("/", 1)[-1], step) if found else step
        if found is None and "items" not in here:
            here = next((option for option in options if "items" in option), here)
        if not isinstance(here, dict):
            return {}
    properties: dict[str, dict[str, Any]] = here.get("properties", {})
    return properties


def place_of(entry: Any) -> KeyPath:
    """Return the path of the key about which pydantic says something."""
    error = entry.get("ctx", {}).get("error")
    return (*entry["loc"], *(error.key if isinstance(error, PlacedError) else ()))


def explain(model: type[BaseModel], entry: Any) -> str:
    """Return what pydantic found wrong with the data and how to correct it, a line each."""
    path: KeyPath = tuple(entry["loc"])
    message = printable(str(entry["msg"]).removeprefix("Value error, "))
    if entry["type"] == "extra_forbidden":
        fields = _fields(model, path)
        for name, schema in fields.items():
            if path[-1] in schema.get(FORMERLY, ()):
                return f"was renamed; write '{name}' instead"
        allowed = list(fields)
        near = difflib.get_close_matches(str(path[-1]), allowed, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"allowed here: {', '.join(allowed)}"
        return f"unknown key; {hint}"
    if entry["type"] == "missing":
        return f"is required; add '{path[-1]}: ...'"
    if entry["type"] == "string_pattern_mismatch" and (words := _PATTERNS.get(entry["ctx"]["pattern"])):
        return f"use {words}, not {_show(entry['input'])}"
    if not entry["type"].startswith("value_error"):
        given = entry.get("input")
        shown = f", not {_show(given)}" if isinstance(given, str | int | float | bool) or given is None else ""
        return message[:1].lower() + message[1:] + shown
    return message


def _show(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**SHOWN:
        return "a number of more than 60 digits"
    text = printable(repr(value))
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
