"""The command `mrclab`: its modules take a moment to import, during which Ctrl-C ends it as at any other time."""

from __future__ import annotations

import os
import signal
import sys

from mrc_cli.verbs import ASK
from mrc_common.interruption import reset_signals


def main() -> None:
    """Import the command line and run it; exit code 130 if it is interrupted before that.

    Candidates for a shell come from a module of their own, because the command line takes too long to import for a key.
    """
    reset_signals()
    # An exception would come up inside of a module that is being imported, and leave half of it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if sys.argv[1:2] == [ASK]:
        from mrc_cli.tab import main as command
    else:
        from mrc_cli.app import main as command
    command()
