"""The command `mrclab`: its modules take a moment to import, during which Ctrl-C ends it as at any other time."""

from __future__ import annotations

import sys


def main() -> None:
    """Import the command line and run it; exit code 130 if it is interrupted before that."""
    try:
        from mrc_cli.app import main as command
    except KeyboardInterrupt:
        sys.exit(130)
    command()
