"""The command `mrclab`: its modules take a moment to import, during which Ctrl-C ends it as at any other time."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import threading


def main() -> None:
    """Import the command line and run it; exit code 130 if it is interrupted before that."""
    seek_cycles_seldom()
    _reset_signals()
    check_threads()
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        # We multiply no matrices. OpenBLAS reserves memory for every core, and ends the process where there is too
        # little. Programs that we start inherit this, so that it is not set where they may have all the memory.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from mrclab.cli.app import main as command

    command()


def seek_cycles_seldom() -> None:
    """Have Python search for cycles of objects seldom: imports leave none, and with the usual limit the search takes an
    eighth of their time."""
    gc.set_threshold(200_000, 20, 50)


def check_threads() -> None:
    """End the command with a sentence if it may start no thread.

    OpenBLAS, which numpy loads, starts some and sends SIGINT to its own process where it cannot.
    """
    try:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    except RuntimeError:
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        text = f"no thread can start: you may have {limit} processes and threads here; raise it (`ulimit -u`)"
        sys.exit(f"mrclab: error: {text}")


def _reset_signals() -> None:
    """Handle signals as if the parent had neither ignored nor blocked any.

    Without SIGCHLD the exit code of no process is known, and a blocked SIGTERM could not end a command.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # An exception would come up inside of a module that is being imported, and leave half of it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})
