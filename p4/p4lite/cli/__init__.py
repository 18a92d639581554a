"""The `p4lite` command: one module per verb, imported only when that verb is called.

A verb's module offers `run(argv: list[str]) -> int`; the exit code is 0, 1 for a failed run, 2 for usage.
"""

from __future__ import annotations

import errno
import importlib
import io
import signal
import sys
from dataclasses import dataclass

from p4lite.contributions import GET_TOOLS, tables
from p4lite.files import discard_output, open_standard_streams
from p4lite.terminal import protect


@dataclass(frozen=True)
class Verb:
    """A verb: what it does, and the module that does it."""

    text: str
    module: str


_CORE = {
    "compile": Verb("compile a P4_16 program to BMv2 JSON and P4Info", "p4lite.cli.compile"),
    "switch": Verb("run a switch, after simple_switch_grpc", "p4lite.cli.switch"),
}
#: The entry points of tables of more verbs.
TABLES = "p4lite.verbs"
#: What a full disk, a limit or a broken device makes of printing.
OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def verbs() -> dict[str, Verb]:
    """Return the verbs that are installed: those of the core, and those that entry points bring."""
    found = dict(_CORE)
    for table in tables(TABLES):
        found |= table
    return found


def usage() -> str:
    """Return the help text of the command."""
    known = verbs()
    width = max(map(len, known))
    lines = [f"  {name:<{width}}  {verb.text}" for name, verb in known.items()]
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
    # The verbs of the core start without a search of all that is installed.
    known = _CORE if args[0] in _CORE else verbs()
    if args[0] not in known:
        hint = "" if len(known) > len(_CORE) else f"; if it is a tool, {GET_TOOLS}"
        print(f"p4lite: error: no verb '{args[0]}'; known: {', '.join(known)}{hint}", file=sys.stderr)
        return 2
    module = importlib.import_module(known[args[0]].module)
    try:
        return int(module.run(args[1:]))
    except KeyboardInterrupt:
        return 130
