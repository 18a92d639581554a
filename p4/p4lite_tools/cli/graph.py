"""`p4lite graph`: the parser and the control flow of a P4_16 program as a picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from p4lite.cli.options import add_compiler
from p4lite.compiler import architecture, frontend
from p4lite.compiler.diagnostics import CompileError
from p4lite_tools import graph


def run(argv: list[str]) -> int:
    """Draw a program; return 0 if drawn, 1 if it has errors or the picture cannot be made, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="p4lite graph",
        description="Draw the parser's states and the flow of control through the tables of a P4_16 program.",
    )
    add = parser.add_argument
    add("program", metavar="PROG.p4")
    add("-o", "--output", required=True, metavar="OUT", help="OUT.svg, .png or .pdf (by Graphviz), OUT.dot; - is dot")
    add("-b", "--block", action="append", default=[], choices=list(architecture.BLOCKS), help="draw only this block")
    add_compiler(parser)
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if args.output != "-" and Path(args.output).suffix.lower() not in graph.SUFFIXES:
        print(f"p4lite graph: error: -o {args.output}: end it in one of {', '.join(graph.SUFFIXES)}", file=sys.stderr)
        return 2
    try:
        program = frontend.load(args.program, args.include_dirs, args.defines)
        dot = graph.to_dot(program, args.block)
        if args.output == "-":
            print(dot, end="")
        else:
            graph.render(dot, Path(args.output))
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except graph.GraphError as error:
        print(f"p4lite graph: error: {error}", file=sys.stderr)
        return 1
    return 0
