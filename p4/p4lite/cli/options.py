"""Options that several verbs share."""

from __future__ import annotations

import argparse


def add_compiler(parser: argparse.ArgumentParser) -> None:
    """Add the options of the compiler: `include_dirs` and `defines`."""
    parser.add_argument(
        "-I", "--include", dest="include_dirs", metavar="DIR", action="append", default=[], help="search includes here"
    )
    parser.add_argument(
        "-D", "--define", dest="defines", metavar="NAME[=VALUE]", action="append", default=[], help="define a macro"
    )
