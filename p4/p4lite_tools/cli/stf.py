"""`p4lite stf`: run a test in p4c's STF language on a program, in virtual time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from p4lite import terminal
from p4lite.api.program import Program
from p4lite.api.switch import MAX_PRIORITIES, Switch
from p4lite.cli.options import add_compiler
from p4lite.files import ReadError, read_text
from p4lite.switch.bmv2.model import Bmv2Architecture
from p4lite.switch.errors import BuildError, InvalidArgument, ProgramError
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.source import load_source
from p4lite_tools.cli.common import whole
from p4lite_tools.stf.engine import OnSwitch, ports_of, run_on, run_stf
from p4lite_tools.stf.parse import Statement, StfError, parse_stf


def run(argv: list[str]) -> int:
    """Run a test; return 0 if it passed, 1 if it failed, 2 for wrong usage or an unsupported STF feature or program."""
    parser = argparse.ArgumentParser(
        prog="p4lite stf",
        description="Run an STF test on a program in virtual time; prints PASS, or FAIL with what differed. A program "
        "for v1model runs compiled, one for PSA in the interpreter.",
    )
    parser.add_argument("program", metavar="PROG", help="P4 source (.p4) or BMv2 JSON")
    parser.add_argument("test", metavar="TEST.stf")
    parser.add_argument("--priority-queues", type=whole(1, MAX_PRIORITIES), default=1, metavar="N")
    add_compiler(parser)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    path = Path(arguments.test)
    try:
        statements = parse_stf(read_text(path), arguments.test)
    except (ReadError, StfError) as error:
        return _refuse(str(error))
    try:
        with terminal.shown("p4lite stf"):
            return _test(arguments, statements)
    except ProgramError as error:
        return _refuse(f"the program is not supported: {error}")
    except (FabricError, BuildError, InvalidArgument) as error:
        return _refuse(str(error))
    except StfError as error:
        print(f"FAIL {arguments.test}\n{error}")
        return 1


def _test(arguments: argparse.Namespace, statements: list[Statement]) -> int:
    loaded = load_source(
        Path(arguments.program),
        include_dirs=arguments.include_dirs,
        defines=arguments.defines,
        with_p4info=False,
    )
    program = Program(arguments.program, loaded.bmv2)
    if program.facts.architecture is Bmv2Architecture.V1MODEL:
        result = run_stf(loaded.program(), statements, arguments.test, priority_queues=arguments.priority_queues)
    else:
        with Switch(
            program, backend="interpreter", ports=ports_of(statements), priority_queues=arguments.priority_queues
        ) as switch:
            result = run_on(OnSwitch(switch), statements, arguments.test)
    summary = f"{result.packets_in} packets in, {result.packets_out} out"
    if result.passed:
        print(f"PASS {arguments.test} ({summary})")
        return 0
    print(f"FAIL {arguments.test} ({summary})")
    for failure in result.failures:
        print(failure)
    return 1


def _refuse(message: str) -> int:
    print(f"p4lite stf: unsupported: {message}", file=sys.stderr)
    return 2
