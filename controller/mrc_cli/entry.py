"""The command `mrclab`: its modules take a moment to import, during which Ctrl-C ends it as at any other time."""

from __future__ import annotations

import sys

from mrc_cli.verbs import ASK


def main() -> None:
    """Import the command line and run it; exit code 130 if it is interrupted before that.

    Candidates for a shell come from a module of their own, because the command line takes too long to import for a key.
    """
    try:
        if sys.argv[1:2] == [ASK]:
            from mrc_cli.tab import main as command
        else:
            from mrc_cli.app import main as command
    except KeyboardInterrupt:
        sys.exit(130)
    command()
