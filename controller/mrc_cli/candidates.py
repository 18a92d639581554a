"""What may stand at a place of a command line: by a table of all verbs, and by the run directories of running labs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mrc_common.plain import DecodeError, decode

if TYPE_CHECKING:
    from mrc_lab.records.record import LabNames


class Kind(StrEnum):
    """What an argument or the value of an option is the name of.

    Where there is no name (`FREE`), the shell offers files.
    """

    FREE = "free"
    LAB = "lab"
    RUNNING = "running lab"
    CLOCK = "clock"
    TRANSPORT = "transport"
    SWITCH_KIND = "kind of switch"
    COMPILER = "compiler"
    PAYLOAD = "payload"
    LINKS = "links"
    RUNNABLE = "experiment or workload"
    EXPERIMENT = "experiment"
    COMPARISON = "comparison"
    SWEEP = "sweep"
    CLUSTER = "cluster"
    EXERCISE = "exercise"
    FIGURE = "figure"
    SCENARIO = "scenario"
    LISTED = "kind of list"
    FAILURE = "kind of failure"
    DIRECTION = "direction"
    SHELL = "shell"
    FORMAT = "format"
    COLLECTIVE = "collective operation"
    HOST = "host"
    PORT = "port"
    SWITCH = "switch"
    ELEMENT = "element"
    PROCESS = "process"


#: Kinds that are read from a running lab.
LIVE = frozenset((Kind.RUNNING, Kind.HOST, Kind.PORT, Kind.SWITCH, Kind.ELEMENT, Kind.PROCESS))


@dataclass(frozen=True)
class CommandTable:
    """A command: its options, each with what its value is (None: it has none); its arguments in order, of which the
    last may be repeated; and, of a group, its commands, with the one that is meant where none is named."""

    options: dict[str, Kind | None] = field(default_factory=dict)
    arguments: list[Kind] = field(default_factory=list)
    repeats: bool = False
    commands: list[str] = field(default_factory=list)
    default: str = ""


@dataclass(frozen=True)
class Table:
    """All commands by their words (`workshop start`; the empty text is `mrclab` itself), and names by kind."""

    commands: dict[str, CommandTable]
    names: dict[str, list[str]]


def candidates(known: Table, before: Sequence[str], current: str) -> list[str]:
    """Return what may stand for `current` after the words `before`, the command's own name left out."""
    path, words = "", list(before)
    while words and words[0] in known.commands[path].commands:
        word = words.pop(0)
        path = f"{path} {word}".strip()
    command = known.commands[path]
    first = command.commands if not words and not current.startswith("-") else []
    if command.default:
        command = known.commands[f"{path} {command.default}"]
    lab, place, value = _walk(command, words)
    if value is None and current.startswith("--") and "=" in current:
        option, _, start = current.partition("=")
        kind = command.options.get(option)
        if kind is None:
            return []
        return [f"{option}={each}" for each in _named(known, kind, start, lab)]
    if value is not None:
        return _named(known, value, current, lab)
    if current.startswith("-"):
        return [each for each in command.options if each.startswith(current)]
    found = [each for each in first if each.startswith(current)]
    if not command.arguments or (place >= len(command.arguments) and not command.repeats):
        return found
    return found + _named(known, command.arguments[min(place, len(command.arguments) - 1)], current, lab)


def _walk(command: CommandTable, words: Sequence[str]) -> tuple[str | None, int, Kind | None]:
    """Return the lab that the words name, the number of arguments in them, and what the last word's value would be."""
    lab, place, waiting = None, 0, None
    option = ""
    for word in words:
        if waiting is not None:
            if option == "--lab":
                lab = word
            waiting = None
        elif word.startswith("-"):
            option, equals, given = word.partition("=")
            if equals and option == "--lab":
                lab = given
            waiting = None if equals else command.options.get(option)
        else:
            if command.arguments and command.arguments[min(place, len(command.arguments) - 1)] is Kind.RUNNING:
                lab = word
            place += 1
    return lab, place, waiting


def _named(known: Table, kind: Kind, start: str, lab: str | None) -> list[str]:
    """Return the names of a kind that begin with `start`. With several after commas (`h0,h3`), complete the last."""
    head, comma, last = start.rpartition(",")
    names = live_names(kind, lab) if kind in LIVE else known.names.get(kind.value, [])
    taken = set(head.split(","))
    return [f"{head}{comma}{each}" for each in names if each.startswith(last) and each not in taken]


def live_names(kind: Kind, lab: str | None) -> list[str]:
    """Return the names of running labs, or of the elements of one: `lab`, that of `MRCLAB_LAB`, or of all of them."""
    from mrc_lab.records import rundir, shells
    from mrc_lab.records.record import LabNames

    runs = rundir.all_runs()
    if kind is Kind.RUNNING:
        return [each.name for each in runs]
    wanted = lab or os.environ.get(shells.VARIABLE)
    found: dict[str, None] = {}
    for run in runs:
        if wanted in (None, run.name):
            with contextlib.suppress(OSError, ValueError, DecodeError):
                names = decode(LabNames, json.loads(run.names_file.read_text(encoding="utf-8")))
                found |= dict.fromkeys(_elements(kind, names))
    return list(found)


def _elements(kind: Kind, names: LabNames) -> Iterable[str]:
    """Return the elements of a lab that are of a kind."""
    match kind:
        case Kind.HOST:
            return names.hosts
        case Kind.PORT:
            return names.ports
        case Kind.SWITCH:
            return names.switches
        case Kind.PROCESS:
            return ["labd", "fabric", *names.hosts]
        case _:
            return [*names.switches, *names.links, *names.ports]
