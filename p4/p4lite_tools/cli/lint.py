"""`p4lite lint`: the compiler's warnings, and advice about what packets never reach."""

from __future__ import annotations

import argparse

from p4lite.cli.options import add_compiler
from p4lite.compiler import frontend
from p4lite_tools.advice import lint
from p4lite_tools.cli import common


def run(argv: list[str]) -> int:
    """Check; return 0, 1 if there is something to say, 2 for wrong usage or a program with errors."""
    parser = argparse.ArgumentParser(
        prog="p4lite lint",
        description="Show the compiler's warnings about a P4_16 program, and also: parser states that nothing leads "
        "to, headers valid on some paths of the parser only that are read without a test, tables never applied, "
        "actions that nothing uses, tables without a default action, selects without a default, drops that a later "
        "statement takes back.",
    )
    parser.add_argument("program", metavar="PROG.p4")
    add_compiler(parser)
    return common.run_verb("lint", parser, argv, _lint)


def _lint(arguments: argparse.Namespace) -> int:
    found = lint(frontend.load(arguments.program, arguments.include_dirs, arguments.defines))
    for diagnostic in found:
        print(diagnostic)
    return 1 if found else 0
