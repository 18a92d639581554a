"""STF's names and key values, turned into those of a program.

Names match exactly or as a unique suffix, as p4c's BMv2 runner has it; a stack element may be written `h$1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue, Optional, Range, Ternary
from p4lite.switch.program.facts import ActionFacts, KeyFacts, TableFacts
from p4lite.switch.stf.parse import Args, parse_number

T = TypeVar("T")
#: STF's priorities: the higher wins; BMv2's command line gets this minus the priority.
PRIORITY_PIVOT = 10000
_STACK = re.compile(r"\$([0-9]+)")
_BITS = {"0x": 4, "0b": 1, "0o": 3}


class NameProblem(Exception):
    """An unknown name or an invalid value; the text lists the known ones."""


def resolve(name: str, known: Mapping[str, T], what: str) -> T:
    """Return the element called `name`, or the only one whose name ends in it."""
    if name in known:
        return known[name]
    for suffix in ("." + name, name):
        found = [full for full in known if full.endswith(suffix)]
        if len(found) == 1:
            return known[found[0]]
        if found:
            raise NameProblem(f"{what} '{name}' is ambiguous: {', '.join(found)}")
    raise NameProblem(f"no {what} '{name}'; known: {', '.join(known) or 'none'}")


def key_position(name: str, key: Iterable[KeyFacts]) -> int:
    """Return which key of a table an STF name means."""
    wanted = _STACK.sub(r"[\1]", name)
    names = [part.name for part in key]
    tests = (
        lambda full: full == wanted,
        lambda full: full == wanted + "$",
        lambda full: full in (wanted + ".$valid$", wanted + ".isValid()"),
        lambda full: wanted.endswith((".valid", ".$valid", ".isValid")) and _valid_of(wanted) == _valid_of(full),
        lambda full: full.endswith(("." + wanted, "." + wanted + "$")),
        lambda full: wanted in ("valid", "$valid") and _valid_of(full) is not None,
    )
    for test in tests:
        found = [position for position, full in enumerate(names) if test(full)]
        if found:
            return found[0]
    raise NameProblem(f"no key '{name}'; known: {', '.join(names) or 'none'}")


def _valid_of(name: str) -> str | None:
    """Return the header whose validity a name means."""
    for ending in (".$valid$", ".$valid", ".isValid()", ".isValid", ".valid"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return None


def table_key(table: TableFacts, given: Args) -> tuple[MatchValue, ...]:
    """Return the match values of an `add`; keys not given match everything (exact ones: 0)."""
    values: list[MatchValue] = [part.everything() or Exact(0) for part in table.key]
    for name, value in given:
        position = key_position(name, table.key)
        values[position] = match_value(table.key[position], value)
    return tuple(values)


def match_value(key: KeyFacts, value: str) -> MatchValue:
    """Return one key's value in any of STF's forms: number, wildcards `*`, `v/len`, `v&&&mask`, `low->high`."""
    try:
        return _match_value(key, value)
    except ValueError:
        raise NameProblem(f"'{value}' is not a value for the {key.match} key '{key.name}'") from None


def _match_value(key: KeyFacts, value: str) -> MatchValue:
    kind = key.match
    if kind in ("exact", "valid"):
        return Exact(parse_number(value))
    if kind == "optional":
        return Optional(None if value.strip("0xXbBoO*") == "" and "*" in value else parse_number(value))
    if kind == "range":
        low, arrow, high = value.partition("->")
        return Range(parse_number(low), parse_number(high if arrow else low))
    if kind == "lpm":
        return _lpm(key.width, value)
    number, operator, mask = value.partition("&&&")
    if operator:
        bits = parse_number(mask)
        return Ternary(parse_number(number) & bits, bits)
    return _ternary(key.width, value)


def _lpm(width: int, value: str) -> Lpm:
    number, slash, length = value.partition("/")
    if slash:
        prefix = parse_number(length)
    elif number.isdigit():
        prefix = width
    else:
        # A prefix is as long as the digits before the wildcards, whatever the field's width.
        prefix = (len(number) - 2 - number.count("*")) * _BITS[number[:2].lower()]
    bits = parse_number(number.replace("*", "0"))
    shift = max(width - prefix, 0)
    return Lpm(bits >> shift << shift, prefix)


def _ternary(width: int, value: str) -> Ternary:
    if value.isdigit():
        return Ternary(int(value), (1 << width) - 1)
    per_digit = _BITS[value[:2].lower()]
    mask = 0
    for digit in value[2:]:
        mask = mask << per_digit | (0 if digit == "*" else (1 << per_digit) - 1)
    return Ternary(parse_number(value.replace("*", "0")), mask & ((1 << width) - 1))


def action_call(table: TableFacts, name: str, args: Args) -> ActionCall:
    """Return the call of one of a table's actions with arguments by name."""
    action: ActionFacts = resolve(name, table.actions, f"action of table '{table.name}'")
    given = dict(args)
    values = []
    for param in action.params:
        if param.name not in given:
            raise NameProblem(f"action '{action.name}' needs an argument '{param.name}'")
        values.append(parse_number(given.pop(param.name)))
    if given:
        raise NameProblem(f"action '{action.name}' has no parameter '{next(iter(given))}'")
    return ActionCall(action.name, tuple(values))
