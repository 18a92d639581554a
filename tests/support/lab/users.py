"""Other users, for tests that run as the machine's root: a command as another user, with a folder of that user."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

#: Ends a test whose command hangs. An emulated machine takes minutes to start a lab.
PATIENCE_S = 600
#: The user ID of the account `nobody`.
NOBODY = 65534
MRCLAB = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()"]


def mrclab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command as ourselves, which must end with an exit code and without a traceback."""
    done = subprocess.run([*MRCLAB, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@contextlib.contextmanager
def home(uid: int) -> Iterator[pathlib.Path]:
    """Yield a folder that only this user can open, in a place that everybody can reach."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mrc", dir="/tmp"))
    os.chown(folder, uid, uid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder: pathlib.Path) -> dict[str, str]:
    """Return what a user's commands find: no trace of ours."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MRCLAB_RUN": str(folder / "run"),
        "COLUMNS": "200",
    }


def as_user(uid: int, *words: str) -> list[str]:
    """Return the command that runs `words` as a user.

    `setpriv` changes the user, not `Popen(user=)`: Python would fork this process for that, and gRPC's fork handlers
    can end the child before it executes the command.
    """
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]


def popen(uid: int, folder: pathlib.Path, *words: str) -> subprocess.Popen[str]:
    """Start a command as a user, in the user's folder."""
    return subprocess.Popen(
        as_user(uid, *words),
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(uid: int, folder: pathlib.Path, *words: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
    """Run a command as a user, in the user's folder."""
    with popen(uid, folder, *words) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def can_read_our_code(uid: int) -> bool:
    """Return whether another user can run mrclab from this checkout."""
    with home(uid) as folder:
        return run(uid, folder, *MRCLAB, "--help").returncode == 0
