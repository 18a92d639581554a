"""`p4lite format`: P4 programs in one style, in which only white space differs from what was written."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence

from p4lite.compiler.diagnostics import CompileError
from p4lite.files import write_whole

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="p4lite format",
        description="Format P4 programs: print one, or with --write change the files. Only white space changes; "
        "comments, preprocessor lines and most line breaks stay. The program need not be complete.",
    )
    p.add_argument("programs", metavar="PROG.p4", nargs="+", help="programs; '-' is standard input")
    how = p.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="print what would change; exit code 1 if anything would")
    how.add_argument("--write", action="store_true", help="write the result into the files")
    return p


def run(argv: Sequence[str]) -> int:
    """Run the verb; 0: done, 1: --check found something or a file cannot be used, 2: wrong usage."""
    try:
        args = parser().parse_args(list(argv))
    except SystemExit as end:
        return EXIT_OK if end.code in (0, None) else EXIT_USAGE
    if len(args.programs) > 1 and not (args.check or args.write):
        print("p4lite format: error: several programs need --write or --check", file=sys.stderr)
        return EXIT_USAGE
    if args.write and "-" in args.programs:
        print("p4lite format: error: --write needs files, not standard input", file=sys.stderr)
        return EXIT_USAGE
    worst = EXIT_OK
    for path in args.programs:
        try:
            worst = max(worst, _format(path, args))
        except CompileError as error:
            print(error, file=sys.stderr)
            worst = EXIT_FAILED
        except OSError as error:
            if error.filename is None:
                raise  # not the program could not be written, but standard output
            print(f"{path}: error: cannot write: {error.strerror}", file=sys.stderr)
            worst = EXIT_FAILED
    return worst


def _format(path: str, args: argparse.Namespace) -> int:
    from p4lite.compiler.preprocessor import decode_source, read_source
    from p4lite_tools.editor.format import format_text

    before = decode_source("<stdin>", sys.stdin.buffer.read()) if path == "-" else read_source(path)
    after = format_text(before)
    if args.check:
        if before == after:
            return EXIT_OK
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), path, f"{path} (formatted)"
        )
        sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in lines)
        return EXIT_FAILED
    if not args.write:
        sys.stdout.write(after)
    elif before != after:
        write_whole(path, after)
        print(f"{path}: formatted", file=sys.stderr)
    return EXIT_OK
