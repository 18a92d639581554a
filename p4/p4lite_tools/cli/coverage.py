"""`p4lite coverage`: which parts of a program packets reach."""

from __future__ import annotations

import argparse
from pathlib import Path

from p4lite.files import ReadError, read_text, write_whole
from p4lite_tools.cli import common
from p4lite_tools.cli.common import percent
from p4lite_tools.coverage import Coverage, CoverageError, page
from p4lite_tools.stf.engine import OnSwitch, run_on
from p4lite_tools.stf.parse import StfError, parse_stf


def run(argv: list[str]) -> int:
    """Measure; return 0, 1 if a share is below --fail-under, 2 for wrong usage or input."""
    parser = argparse.ArgumentParser(
        prog="p4lite coverage",
        description="Run packets through a program and show how many of its lines, parser transitions, conditions, "
        "actions and entries they reach.",
    )
    common.add_program(parser)
    add = parser.add_argument
    add("--packets", action="append", default=[], metavar="HEX|PCAP", help="a packet, or a capture; may be repeated")
    add("--port", type=common.PORT, default=1, metavar="N", help="the port at which they come in (default 1)")
    common.add_entries(parser)
    add(
        "--stf", action="append", default=[], metavar="FILE", help="packets and entries of an STF test; may be repeated"
    )
    add("--data", metavar="FILE", help="add to the counts of this file, and write it")
    add("--lcov", metavar="FILE", help="write the counts in lcov's format")
    add("--html", metavar="FILE", help="write one page with the annotated source")
    add("--fail-under", type=percent, metavar="PERCENT", help="exit with 1 if fewer of the lines are reached")
    return common.run_verb("coverage", parser, argv, _coverage)


def _coverage(arguments: argparse.Namespace) -> int:
    program = common.load(arguments)
    coverage = Coverage(program)
    if arguments.data is not None and Path(arguments.data).exists():
        coverage.merge(Path(arguments.data))
    if arguments.packets:
        with common.switch_for(program, arguments, [coverage]) as switch:
            for packet in common.packets(arguments.packets):
                switch.send(arguments.port, packet.data)
            coverage.take_entries(switch.control)
    for path in arguments.stf:
        with common.switch_for(program, arguments, [coverage]) as switch:
            # What a test expects is not compared: `p4lite stf` does.
            run_on(OnSwitch(switch), parse_stf(_text(path), path), path)
            coverage.take_entries(switch.control)
    for path, text in ((arguments.lcov, coverage.lcov), (arguments.html, lambda: page(coverage))):
        if path is not None:
            _write(path, text())
    if arguments.data is not None:
        try:
            coverage.save(Path(arguments.data))
        except OSError as error:
            raise CoverageError(f"{arguments.data}: cannot write: {error.strerror}") from None
    for line in coverage.summary():
        print(line)
    reached, total = coverage.share("lines")
    return int(arguments.fail_under is not None and 100 * reached < arguments.fail_under * total)


def _text(path: str) -> str:
    try:
        return read_text(path)
    except ReadError as error:
        raise StfError(str(error)) from None


def _write(path: str, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise CoverageError(f"{path}: cannot write: {error.strerror}") from None
