"""Reading lab files: YAML to `Lab`, with errors that name file, line, key and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mrc_topo.schema import Lab
from mrc_topo.topology import Topology, TopologyError

KeyPath = tuple[str | int, ...]


class LabError(Exception):
    """A lab file that cannot be used; each entry of `problems` is one line for the user."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def builtin_labs() -> dict[str, Path]:
    """The lab files that come with the project, by name; empty when only the wheel is installed."""
    folder = Path(__file__).resolve().parent.parent / "labs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_lab(name_or_path: str | Path) -> Topology:
    """The topology of a lab file, or of a lab that comes with the project by its name. Raises LabError."""
    given = str(name_or_path)
    path = Path(name_or_path)
    labs = builtin_labs()
    if not path.exists() and given in labs:
        path = labs[given]
    if not path.exists():
        known = ", ".join(labs) or "none"
        raise LabError([f"{given}: no such lab file and no lab of that name; known labs: {known}"])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise LabError([f"{given}: cannot be read: {reason}"]) from error
    return parse_lab(text, given)


def parse_lab(text: str, name: str = "<lab>") -> Topology:
    """The topology that YAML text describes; `name` stands in errors. Raises LabError."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise LabError([f"{name}{line}: not YAML: {error.problem or error.context}"]) from error
    except yaml.YAMLError as error:
        raise LabError([f"{name}: not YAML: {str(error).splitlines()[0]}"]) from error
    except (ValueError, RecursionError) as error:
        raise LabError([f"{name}: not usable YAML: {error}"]) from error
    if not isinstance(node, yaml.MappingNode) or not isinstance(data, dict):
        raise LabError([f"{name}:1: a lab file is a mapping such as 'planes: 4'; see topologies/labs"])
    keys = list(_keys(node))
    lines = {path: line for path, line, _ in keys}
    duplicates = [f"{name}:{line}: {_dotted(path)}: given twice; keep one" for path, line, again in keys if again]
    if duplicates:
        raise LabError(duplicates)
    try:
        lab = Lab.model_validate(data)
    except ValidationError as error:
        raise LabError([_explain(name, lines, entry) for entry in error.errors()]) from error
    try:
        return Topology(lab)
    except TopologyError as error:
        at = _line_of(lines, error.key)
        raise LabError([f"{name}:{at}: {_dotted(error.key)}: {error}"]) from error


def _keys(root: yaml.Node) -> Iterator[tuple[KeyPath, int, bool]]:
    """(path, line from 1, whether the key stands there a second time) of every key.

    An aliased node is visited where it is met first, so that cycles and bombs of aliases end.
    """
    waiting: list[tuple[yaml.Node, KeyPath]] = [(root, ())]
    visited = set()
    while waiting:
        node, path = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                word = str(key.value)
                yield (*path, word), key.start_mark.line + 1, word in seen
                seen.add(word)
                waiting.append((value, (*path, word)))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(value, (*path, index)) for index, value in enumerate(node.value)]


def _line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """The line of the key, or of the nearest key around it."""
    while path not in lines and path:
        path = path[:-1]
    return lines.get(path, 1)


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path) or "lab"


def _fields(path: KeyPath) -> list[str]:
    """The keys that are allowed where `path` ends."""
    schema: dict[str, Any] = Lab.model_json_schema()
    definitions = schema.get("$defs", {})
    here = schema
    for part in path[:-1]:
        step = here.get("properties", {}).get(part) or here.get("additionalProperties") or {}
        options = [step, *step.get("anyOf", []), *step.get("allOf", [])]
        reference = next((option["$ref"] for option in options if "$ref" in option), None)
        here = definitions.get(str(reference).rsplit("/", 1)[-1], step) if reference else step
        if not isinstance(here, dict):
            return []
    return list(here.get("properties", {}))


def _explain(name: str, lines: dict[KeyPath, int], entry: Any) -> str:
    """One line for one of pydantic's errors."""
    path: KeyPath = tuple(entry["loc"])
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "extra_forbidden":
        allowed = _fields(path)
        near = difflib.get_close_matches(str(path[-1]), allowed, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"allowed here: {', '.join(allowed)}"
        message = f"unknown key; {hint}"
    elif entry["type"] == "missing":
        message = f"is required; add '{path[-1]}: ...'"
    elif entry["type"] == "string_pattern_mismatch":
        message = "use lower-case letters, digits and '-', beginning with a letter, at most 31 characters"
    elif not entry["type"].startswith("value_error"):
        given = entry.get("input")
        shown = f", not {given!r}" if isinstance(given, str | int | float | bool) or given is None else ""
        message = message[:1].lower() + message[1:] + shown
    return f"{name}:{_line_of(lines, path)}: {_dotted(path)}: {message}"
