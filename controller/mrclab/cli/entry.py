"""The command `mrclab`: its modules take a moment to import, during which Ctrl-C ends it as at any other time."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import the command line and run it; exit code 130 if it is interrupted before that."""
    _reset_signals()
    from mrclab.cli.app import main as command

    command()


def _reset_signals() -> None:
    """Handle signals as if the parent had neither ignored nor blocked any.

    Without SIGCHLD the exit code of no process is known, and a blocked SIGTERM could not end a command.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # An exception would come up inside of a module that is being imported, and leave half of it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})
