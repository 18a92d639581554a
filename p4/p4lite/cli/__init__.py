"""The `p4lite` command: one module per verb, imported only when that verb is called.

A verb's module offers `run(argv: list[str]) -> int`; the exit code is 0, 1 for a failed run, 2 for usage.
"""

from __future__ import annotations

import errno
import importlib
import io
import signal
import sys

from p4lite.files import discard_output, open_standard_streams
from p4lite.terminal import protect

VERBS = {
    "compile": "compile a P4_16 program to BMv2 JSON and P4Info",
    "format": "format P4 programs, or check that they are",
    "graph": "draw parsers and control flow as SVG",
    "lsp": "serve editors by the Language Server Protocol",
    "switch": "run a switch, after simple_switch_grpc",
    "stf": "run a test written in p4c's STF language",
    "trace": "show what a program does with a packet, by source line",
    "debug": "run packets through a program with breakpoints",
    "coverage": "measure which parts of a program packets reach",
    "diff": "send the same packets through two programs, show the first difference",
    "lint": "show warnings, and what packets never reach",
    "wrappers": "write p4c's and BMv2's commands, served by p4lite, into a folder",
}
#: What a full disk, a limit or a broken device makes of printing.
OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def usage() -> str:
    """Return the help text of the command."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, text in VERBS.items()]
    return "\n".join(["usage: p4lite VERB ...   (p4lite VERB --help tells more)", "", *lines])


def print_any_text() -> None:
    """Let standard output replace a character that its encoding lacks by `?`; by default printing it would fail. Both
    standard streams escape what would control a terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    protect()


def main(argv: list[str] | None = None) -> int:
    """Run the command `p4lite`; return the exit code."""
    open_standard_streams()
    print_any_text()
    # A parent may ignore it; without it the exit code of the C compiler is not known.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        discard_output()
        return 1
    except OSError as error:
        # `write_whole` names the file that it could not write; what is printed has no name.
        if error.filename is not None or error.errno not in OUTPUT_ERRORS:
            raise
        print(f"p4lite: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        discard_output()
        return 1


def _main(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0 if args else 2
    verb, rest = args[0], args[1:]
    if verb not in VERBS:
        print(f"p4lite: error: no verb '{verb}'; known: {', '.join(VERBS)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"p4lite.cli.{verb}")
    try:
        return int(module.run(rest))
    except KeyboardInterrupt:
        return 130
