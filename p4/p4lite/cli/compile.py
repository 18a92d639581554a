"""`p4lite compile`: a P4_16 program to BMv2 JSON and P4Info."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from p4lite import terminal
from p4lite.cli.options import add_compiler
from p4lite.compiler.diagnostics import CompileError, Diagnostic
from p4lite.files import write_whole

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
WATCH_INTERVAL_S = 0.3


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="p4lite compile",
        description="Compile a P4_16 program for v1model or PSA to BMv2 JSON and P4Info. Without -o, only check it.",
    )
    p.add_argument("program", metavar="PROG.p4", help="the program; '-' is standard input")
    p.add_argument("-o", "--output", metavar="OUT.json", help="write the BMv2 JSON here ('-' is standard output)")
    p.add_argument("--p4info", metavar="OUT.txtpb", help="write the P4Info here, in protobuf's text format")
    add_compiler(p)
    p.add_argument("--watch", action="store_true", help="compile again whenever the program or an include changes")
    p.add_argument("-w", "--no-warnings", action="store_true", help="do not show warnings")
    p.add_argument("--Werror", dest="werror", action="store_true", help="a warning fails the run")
    return p


def run(argv: Sequence[str]) -> int:
    """Run the verb; 0: done, 1: the program has errors or a file cannot be written, 2: wrong usage."""
    try:
        args = parser().parse_args(list(argv))
    except SystemExit as e:
        return EXIT_OK if e.code in (0, None) else EXIT_USAGE
    if args.watch:
        if args.program == "-":
            print("p4lite compile: error: --watch needs a file, not standard input", file=sys.stderr)
            return EXIT_USAGE
        return _watch(args)
    return _compile(args)[0]


def _show(diagnostics: Iterable[Diagnostic], warnings: bool) -> int:
    """Print diagnostics; return the number of warnings."""
    count = 0
    for d in diagnostics:
        if d.severity == "warning":
            count += 1
            if not warnings:
                continue
        print(d, file=sys.stderr)
    return count


def _compile(args: argparse.Namespace) -> tuple[int, set[str]]:
    """Compile once; return the exit code and the files that were read."""
    with terminal.shown("p4lite compile"):
        return _compile_shown(args)


def _compile_shown(args: argparse.Namespace) -> tuple[int, set[str]]:
    from p4lite import compiler
    from p4lite.compiler import backend

    try:
        if args.program == "-":
            compiled = compiler.compile_text(_stdin(), "<stdin>", args.include_dirs, args.defines)
        else:
            compiled = compiler.compile_program(args.program, args.include_dirs, args.defines)
        p4info = compiled.p4info if args.p4info else ""
    except CompileError as e:
        _show(e.diagnostics, not args.no_warnings)
        return EXIT_FAILED, {d.pos.file for d in e.diagnostics} | {args.program}
    sources = set(compiled.program.reporter.sources)
    warnings = _show(compiled.warnings, not args.no_warnings)
    if args.werror and warnings:
        print(f"{args.program}: error: {warnings} warnings, and --Werror is given", file=sys.stderr)
        return EXIT_FAILED, sources
    terminal.step(f"{args.program}: writing")
    try:
        if args.output:
            _write(args.output, backend.to_text(compiled.bmv2))
        if args.p4info:
            _write(args.p4info, p4info)
    except OSError as e:
        print(f"{e.filename or args.output}: error: cannot write: {e.strerror}", file=sys.stderr)
        return EXIT_FAILED, sources
    return EXIT_OK, sources


_stdin_text: list[str] = []


def _stdin() -> str:
    """Return standard input, read once."""
    if not _stdin_text:
        from p4lite.compiler.preprocessor import decode_source

        _stdin_text.append(decode_source("<stdin>", sys.stdin.buffer.read()))
    return _stdin_text[0]


def _write(path: str, text: str) -> None:
    """Write a file whole or not at all."""
    if path == "-":
        sys.stdout.write(text)
        return
    write_whole(path, text)


def _stamp(files: set[str]) -> dict[str, int]:
    stamps = {}
    for f in files:
        try:
            stamps[f] = Path(f).stat().st_mtime_ns
        except OSError:
            stamps[f] = 0
    return stamps


def _watch(args: argparse.Namespace) -> int:
    """Compile at every change until interrupted."""
    try:
        while True:
            began = time.perf_counter()
            code, files = _compile(args)
            files = files | {args.program}
            took = time.perf_counter() - began
            print(f"{args.program}: {'compiled' if code == 0 else 'failed'} in {took:.2f} s; watching", file=sys.stderr)
            stamps = _stamp(files)
            while _stamp(files) == stamps:
                time.sleep(WATCH_INTERVAL_S)
    except KeyboardInterrupt:
        return EXIT_OK
