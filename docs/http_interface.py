"""Tables of the HTTP interface of the live view: `python docs/http_interface.py` prints them for `docs/reference`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mrc_topo.base.document import Model
from mrclab.web import state
from mrclab.web.actions import MODELS

#: The events of `GET /api/stream`: the document that each has as data, and what it is.
EVENTS: Final[Mapping[str, tuple[Any, str]]] = {
    "layout": (state.Layout, "the lab, at first and whenever another one is shown; all others are of this layout"),
    "history": (None, "rows of the curves so far: time, goodput, each plane, each host, mean time of an iteration"),
    "completions": (state.Completions, "completion times, when they change"),
    "log": (state.LogRow, "a list of new lines of the log, at first the latest 300"),
    "state": (state.ViewState, "the newest state, ten times a second; a slow reader does not get those in between"),
    "pair": (state.Pair, "the pair that the address names, five times a second"),
    "end": (None, "the command has ended; no more events follow"),
}
_TYPES: Final = {"string": "text", "number": "number", "integer": "whole number", "boolean": "true or false"}


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def actions_table() -> list[str]:
    """Return the table of all actions with their fields."""
    rows = []
    for name, model in MODELS.items():
        fields = "; ".join(f"`{field}`: {what}" for field, what in fields_of(model).items())
        rows.append([f"`{name}`", " ".join((model.__doc__ or "").split()), fields or "none"])
    return table(["`NAME`", "what it does", "fields"], rows)


def events_table() -> list[str]:
    """Return the table of all events with the keys of their data."""
    rows = []
    for name, (document, what) in EVENTS.items():
        keys = [] if document is None else [f"`{key}`" for key in document.__annotations__]
        rows.append([f"`{name}`", what, ", ".join(keys) or "none"])
    return table(["event", "what", "keys of its data"], rows)


def fields_of(model: type[Model]) -> dict[str, str]:
    """Return the type of each field of an action, with its bounds, and whether it may be left out."""
    schema = model.model_json_schema()
    needed = schema.get("required", [])
    return {
        name: _type(each) if name in needed else f"{_type(each)} ({_default(each)})"
        for name, each in schema.get("properties", {}).items()
    }


def _default(schema: Mapping[str, Any]) -> str:
    """Return what holds where a field is left out."""
    default = schema.get("default")
    return f"default: `{json.dumps(default).strip(chr(34))}`" if default else "optional"


def _type(schema: Mapping[str, Any]) -> str:
    if kinds := [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]:
        return " or ".join(_type(each) for each in kinds)
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, Mapping) and inner else "object"
    return ", ".join([_TYPES[schema["type"]], *_bounds(schema)])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, words in (
        ("exclusiveMinimum", "above"),
        ("minimum", "at least"),
        ("maximum", "at most"),
    ):
        if key in schema:
            yield f"{words} {schema[key]:g}"


def main() -> None:
    """Print both tables."""
    print("\n".join([*actions_table(), "", *events_table()]))


if __name__ == "__main__":
    main()
