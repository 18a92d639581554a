"""`p4lite debug`: stop packets in a program, and look at what they and the switch hold."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path

from p4lite.files import ReadError, read_text
from p4lite_tools.cli import common
from p4lite_tools.cli.common import complete_words, scripted, typed
from p4lite_tools.commands import CommandError
from p4lite_tools.debugger import PROMPT, Debugger
from p4lite_tools.entries import load_entries


def run(argv: list[str]) -> int:
    """Debug a program; return 0, 1 if a command of a script failed, 2 for wrong usage or input."""
    parser = argparse.ArgumentParser(
        prog="p4lite debug",
        description="Run packets through a program with breakpoints. Commands are those of simple_switch_CLI and "
        "break, watch, run, step, next, continue, print, set, list; 'help' lists them. Without a terminal they are "
        "read from standard input.",
    )
    common.add_program(parser)
    common.add_packets(parser)
    parser.add_argument("--script", metavar="FILE", help="read the commands from a file")
    return common.run_verb("debug", parser, argv, _debug)


def _debug(arguments: argparse.Namespace) -> int:
    program = common.load(arguments)
    interactive = arguments.script is None and sys.stdin.isatty()
    read = (lambda: typed(PROMPT)) if interactive else _script(arguments.script)
    debugger = Debugger(program, read, colour=common.in_colour())
    for path in arguments.entries:
        load_entries(Path(path), debugger.switch.control, debugger.switch.replication)
    debugger.packets.extend((arguments.port, packet.data) for packet in common.packets(arguments.packet))
    if interactive:
        complete_words(debugger.complete)
    debugger.loop()
    return 0 if interactive or not debugger.failures else 1


def _script(path: str | None) -> Callable[[], str | None]:
    """Return a reader of the commands of a file, or of standard input."""
    try:
        text = sys.stdin.read() if path is None else read_text(path)
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input is not UTF-8 text (byte 0x{error.object[error.start]:02x})") from None
    except ReadError as error:
        raise CommandError(f"--script {error}") from None
    lines = io.StringIO(text)
    return lambda: scripted(lines, PROMPT)
