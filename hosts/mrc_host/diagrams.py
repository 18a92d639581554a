"""Pictures from the tables that run: `python -m mrc_host.diagrams [qp|ev|headers|HEADER...] [--dot]`.

Prints Mermaid (or DOT) of the queue pair and EV state machines, and headers as RFCs draw them (`SETH`; `headers`: all),
so that a picture cannot lie.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum

from mrc_host.proto.events import EvState, QpState
from mrc_host.proto.paths.ev import TRANSITIONS as EV_TRANSITIONS
from mrc_host.proto.reliability.qp import TRANSITIONS as QP_TRANSITIONS
from mrc_host.proto.wire.fields import HEADERS, Header

ROW_BITS = 32
Edge = tuple[str, str, str]
INITIAL = {"qp": QpState.RESET.name, "ev": EvState.GOOD.name}


def edges(machine: str) -> list[Edge]:
    """Return (from, to, label) of each edge of a machine; inputs with the same transition share one. Raises
    KeyError.
    """
    tables: dict[str, Iterable[tuple[tuple[Enum, Enum], Enum]]] = {
        "qp": QP_TRANSITIONS.items(),
        "ev": EV_TRANSITIONS.items(),
    }
    labels: dict[tuple[str, str], list[str]] = {}
    for (state, item), target in tables[machine]:
        if state is not target:
            labels.setdefault((state.name, target.name), []).append(str(item.value))
    return [(source, target, ", ".join(names)) for (source, target), names in labels.items()]


def mermaid(machine: str) -> str:
    """Return the machine as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {INITIAL[machine]}"]
    # Mermaid ends a label at ';' and takes ':' for its own.
    lines += [f"    {source} --> {target}: {label.replace(':', '')}" for source, target, label in edges(machine)]
    return "\n".join(lines)


def dot(machine: str) -> str:
    """Return the machine as a DOT graph."""
    lines = [f"digraph {machine} {{", f'    start [shape=point]; start -> "{INITIAL[machine]}";']
    lines += [f'    "{source}" -> "{target}" [label="{label}"];' for source, target, label in edges(machine)]
    return "\n".join([*lines, "}"])


def picture(header: Header) -> str:
    """Return the header with 32 bits to a line, as in RFCs; a name is cut to its room, and stands once in a field of
    lines.
    """
    lines = [f"{header.name}: {header.title}, {header.size} bytes"]
    ruler, row = "+" + "-+" * min(ROW_BITS, header.size * 8), "|"
    for item in header.fields:
        bit, name = item.bit, "0" if item.reserved else item.name
        while bit < item.bit + item.width:
            width = min(item.bit + item.width - bit, ROW_BITS - bit % ROW_BITS)
            row += name[: 2 * width - 1].center(2 * width - 1) + "|"
            bit, name = bit + width, ""
            if bit % ROW_BITS == 0 or bit == header.size * 8:
                lines += [ruler, row]
                row = "|"
    return "\n".join([*lines, ruler])


def main(arguments: list[str]) -> int:
    """Print the pictures asked for; exit code 2 for an unknown argument."""
    names = [argument for argument in arguments if argument != "--dot"]
    unknown = [name for name in names if name not in INITIAL and name.upper() not in HEADERS and name != "headers"]
    if unknown:
        known = ", ".join([*INITIAL, "headers", *HEADERS])
        print(f"unknown machine or header '{unknown[0]}'; known: {known}, option: --dot", file=sys.stderr)
        return 2
    draw = dot if "--dot" in arguments else mermaid
    for name in names or INITIAL:
        if name in INITIAL:
            print(draw(name))
        else:
            chosen = HEADERS if name == "headers" else [name.upper()]
            print("\n\n".join(picture(HEADERS[each]) for each in chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
