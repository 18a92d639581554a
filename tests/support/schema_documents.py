"""Documents for Hypothesis: valid ones after a model's JSON schema, and ones with a single thing wrong."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

Path = tuple[str | int, ...]
LETTERS = st.text("abcxyz ÄΩ-_.:/'\"#0", min_size=1, max_size=12).map(lambda text: "x" + text)


def documents(model: type[BaseModel], special: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:  # noqa: C901 - a branch per kind of schema
    """Return valid documents of a model, as JSON; `special`: strategies for definitions that a schema says too little
    of.
    """
    schema = model.model_json_schema()
    definitions: dict[str, Any] = schema.get("$defs", {})

    def of(node: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        if "$ref" in node:
            name = str(node["$ref"]).rsplit("/", 1)[-1]
            return special[name] if name in special else of(definitions[name])
        if "anyOf" in node:
            return st.one_of([of(each) for each in node["anyOf"]])
        if "enum" in node:
            return st.sampled_from(node["enum"])
        if "const" in node:
            return st.just(node["const"])
        return plain(node)

    def plain(node: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        low = node.get("minimum", node.get("exclusiveMinimum", 0))
        high = node.get("maximum", node.get("exclusiveMaximum", max(low, 0) + 1000))
        match node.get("type"):
            case "integer":
                return st.integers(low, high)
            case "number":
                return st.integers(low, int(high)) | st.floats(low, high, allow_subnormal=False)
            case "string" if "pattern" in node:
                return st.from_regex(node["pattern"].strip("^$"), fullmatch=True, alphabet=st.characters(codec="ascii"))
            case "string":
                return LETTERS
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case "array":
                return st.lists(
                    of(node["items"]), min_size=node.get("minItems", 0), max_size=node.get("minItems", 0) + 2
                )
            case "object" if "properties" in node:
                parts = {name: of(each) for name, each in node["properties"].items()}
                needed = set(node.get("required", ()))
                return st.fixed_dictionaries(
                    {name: part for name, part in parts.items() if name in needed},
                    optional={name: part for name, part in parts.items() if name not in needed},
                )
            case _:
                return st.just({})

    def fits(document: Any) -> bool:
        try:
            model.model_validate(document)
        except ValidationError:
            return False
        return True

    return of(schema).filter(fits)


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A document as text with one thing wrong: where, and on which line."""

    text: str
    path: Path
    line: int


def dump(document: Any) -> str:
    """As a person would write it: block style, keys in their order, no line folded."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10**6))


def places(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value with where it is."""
    yield path, document
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in parts:
        yield from places(value, (*path, key))


def put(document: Any, path: Path, value: Any) -> Any:
    """Return the document with another value at a path."""
    changed = copy.deepcopy(document)
    here = changed
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    return changed


def line_of(text: str, path: Path) -> int:
    """Return the line of the last key (or list entry) of a path."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            # The last one: of two alike the second is the one too many.
            key, node = next(pair for pair in reversed(node.value) if pair[0].value == str(part))
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
    return line


#: Values that no key takes, as they are found by the reader (anywhere) or by the schema (where there is one).
NOWHERE = [float("inf"), float("-inf"), float("nan"), int("9" * 60), "\x1b[31m", "a\x00b", b"bytes"]


@st.composite
def wrong(draw: st.DrawFn, document: Any, free: set[str]) -> Wrong:
    """One mutation; below the keys in `free` any key and type may stand."""
    everywhere = [(path, value) for path, value in places(document) if path]
    strict = [(path, value) for path, value in everywhere if not free & set(map(str, path))]
    kind = draw(st.sampled_from(["nowhere", "type", "truth", "unknown", "twice"]))
    if kind == "nowhere":
        leaves = [path for path, value in everywhere if not isinstance(value, dict | list)]
        path = draw(st.sampled_from(leaves))
        changed = put(document, path, draw(st.sampled_from(NOWHERE)))
    elif kind == "type":
        path = draw(st.sampled_from([path for path, value in strict if not isinstance(value, list)]))
        changed = put(document, path, [[draw(st.sampled_from([1, "x"]))]])
    elif kind == "truth":
        # What is null may be a truth value that was left out.
        path = draw(st.sampled_from([path for path, value in strict if not isinstance(value, bool | None)]))
        changed = put(document, path, draw(st.booleans()))
    else:
        mappings = [path for path, value in [((), document), *strict] if isinstance(value, dict)]
        here = draw(st.sampled_from(mappings))
        inner: Any = document
        for part in here:
            inner = inner[part]
        if kind == "unknown" or not inner:
            path = (*here, "zzz")
            changed = put(document, path, draw(st.sampled_from([1, "x", None])))
        else:
            path = (*here, draw(st.sampled_from(sorted(inner))))
            text = _twice(document, path)
            return Wrong(text, path, line_of(text, path))
    text = dump(changed)
    return Wrong(text, path, line_of(text, path))


def _twice(document: Any, path: Path) -> str:
    """Return the text with a key of a mapping a second time, at its end."""
    root = yaml.compose(dump(document), Loader=yaml.SafeLoader)
    node = root
    for part in path[:-1]:
        if isinstance(node, yaml.MappingNode):
            node = next(value for key, value in node.value if key.value == str(part))
        elif isinstance(node, yaml.SequenceNode):
            node = node.value[int(part)]
    assert isinstance(node, yaml.MappingNode)
    key = yaml.ScalarNode("tag:yaml.org,2002:str", str(path[-1]))
    node.value.append((key, yaml.ScalarNode("tag:yaml.org,2002:str", "x")))
    return str(yaml.serialize(root, allow_unicode=True, width=10**6))


def check_wrong(problems: list[str], case: Wrong, name: str) -> None:
    """Every problem is one printable line, and one of them names the place."""
    dotted = ".".join(map(str, case.path))
    assert problems
    for problem in problems:
        assert problem.startswith(f"{name}:")
        assert problem.isprintable()
        assert len(problem) < 600
    # What is wrong may lie inside of the value, and then on a line of its own.
    inside = re.compile(rf"{re.escape(name)}:(\d+): {re.escape(dotted)}(?=[.:])")
    lines = [int(found[1]) for found in map(inside.match, problems) if found]
    assert any(case.line <= line <= case.line + case.text.count("\n") for line in lines), (case, problems)
    assert case.line in lines or f"{dotted}." in "".join(problems), (case, problems)


def same(left: BaseModel, right: BaseModel) -> bool:
    """Return whether two models say the same."""
    return json.loads(left.model_dump_json()) == json.loads(right.model_dump_json())
