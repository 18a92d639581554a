"""Options that several verbs share, and lines of commands from a terminal or a script."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from p4lite import api
from p4lite.api.program import Program
from p4lite.api.switch import ALL_PORTS, MAX_PRIORITIES, Switch
from p4lite.cli.options import add_compiler
from p4lite.errors import P4liteError
from p4lite_tools.entries import Captured, CaptureError, load_entries, read_capture
from p4lite_tools.interpreter.events import Observer

#: A longer text is no number that an option takes.
LONGEST_NUMBER = 40
MOST_PACKETS = 10**9
MAX_SEED = 2**63 - 1


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an option that takes whole numbers in these bounds."""

    def parse(text: str) -> int:
        if (
            len(text) > LONGEST_NUMBER
            or not re.fullmatch(r"[+-]?\d+", text, re.ASCII)
            or not least <= int(text) <= most
        ):
            raise argparse.ArgumentTypeError(f"'{text[:LONGEST_NUMBER]}': give a whole number from {least} to {most}")
        return int(text)

    return parse


def percent(text: str) -> float:
    """Parse an option that takes a percentage."""
    if len(text) > LONGEST_NUMBER or not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) > 100:
        raise argparse.ArgumentTypeError(f"'{text[:LONGEST_NUMBER]}': give a number from 0 to 100")
    return float(text)


#: The type of options that take a port.
PORT = whole(ALL_PORTS.start, ALL_PORTS.stop - 1)


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the program and what its compiler needs."""
    parser.add_argument("program", metavar="PROG", help="P4 source (.p4) or BMv2 JSON")
    add_compiler(parser)


def add_packets(parser: argparse.ArgumentParser) -> None:
    """Add packets, their port and the table entries."""
    parser.add_argument(
        "--packet", action="append", default=[], metavar="HEX|PCAP", help="a packet, or a capture; may be repeated"
    )
    parser.add_argument("--port", type=PORT, default=1, metavar="N", help="the port at which they come in (default 1)")
    add_entries(parser)


def add_entries(parser: argparse.ArgumentParser) -> None:
    """Add the files of table entries."""
    parser.add_argument(
        "--entries",
        action="append",
        default=[],
        metavar="FILE",
        help="table entries: commands of simple_switch_CLI, or .json of p4lang/tutorials; may be repeated",
    )
    parser.add_argument(
        "--priority-queues", type=whole(1, MAX_PRIORITIES), default=1, metavar="N", help="of every port (default 1)"
    )


def load(arguments: argparse.Namespace, path: str | None = None) -> Program:
    """Return the program of the command line. Raises P4liteError."""
    source = Path(arguments.program if path is None else path)
    return api.compile(source, include_dirs=arguments.include_dirs, defines=arguments.defines)


def switch_for(program: Program, arguments: argparse.Namespace, observers: Sequence[Observer]) -> Switch:
    """Return an interpreted switch with the entries of the command line, whose observers see packets only."""
    switch = Switch(
        program, backend="interpreter", ports=ALL_PORTS, priority_queues=arguments.priority_queues, observers=observers
    )
    for path in arguments.entries:
        load_entries(Path(path), switch.control, switch.replication)
    return switch


def packets(given: Sequence[str]) -> list[Captured]:
    """Return the packets of `--packet`. Raises CaptureError."""
    found: list[Captured] = []
    for text in given:
        digits = re.sub(r"[\s:]", "", text).removeprefix("0x")
        if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", digits) and not Path(text).exists():
            found.append(Captured(bytes.fromhex(digits)))
        elif not Path(text).exists():
            raise CaptureError(f"--packet {text}: neither a capture file nor an even number of hexadecimal digits")
        else:
            found += read_capture(Path(text))
    return found


def in_colour() -> bool:
    """Return whether standard output is a terminal that may be coloured (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def run_verb(
    verb: str, parser: argparse.ArgumentParser, argv: Sequence[str], run: Callable[[argparse.Namespace], int]
) -> int:
    """Parse and run; return the exit code: 2 for wrong usage or input, which is explained on standard error."""
    try:
        arguments = parser.parse_args(list(argv))
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return run(arguments)
    except P4liteError as error:
        print(f"p4lite {verb}: {error}", file=sys.stderr)
        return 2


def typed(prompt: str) -> str | None:
    """Return the next line that is typed; None at the end."""
    try:
        return input(prompt)
    except EOFError:
        print()
        return None


def scripted(lines: TextIO, prompt: str) -> str | None:
    """Return the next line of a script, and print it behind the prompt; None at the end."""
    line = lines.readline()
    if line.strip():
        print(f"{prompt}{line.rstrip()}")
    return line or None


def complete_words(words: Callable[[str, str], list[str]]) -> None:
    """Complete words by the Tab key, where Python has readline; `words` gets the line and the word, its last."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = words(readline.get_line_buffer()[: readline.get_endidx()], text)
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
