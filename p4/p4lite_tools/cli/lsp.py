"""`p4lite lsp`: the language server, which editors start."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from p4lite.cli.options import add_compiler

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="p4lite lsp",
        description="Serve an editor by the Language Server Protocol over standard input and output: diagnostics, "
        "definitions, references, hover, completion, rename, outline and formatting. Needs the extra p4lite[lsp].",
    )
    add_compiler(p)
    p.add_argument("--stdio", action="store_true", help="the default, which some editors name")
    return p


def run(argv: Sequence[str]) -> int:
    """Run the verb until the editor ends the session; 1 without pygls, 2 for wrong usage."""
    try:
        args = parser().parse_args(list(argv))
    except SystemExit as end:
        return EXIT_OK if end.code in (0, None) else EXIT_USAGE
    if importlib.util.find_spec("pygls") is None:
        print("p4lite lsp: error: pygls is not installed: pip install 'p4lite[lsp]'", file=sys.stderr)
        return EXIT_FAILED
    from p4lite_tools.editor.server import serve

    serve(args.include_dirs, args.defines)
    return EXIT_OK
