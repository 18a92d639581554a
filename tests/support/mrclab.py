"""`python -m support.mrclab COMMAND ...` is `mrclab COMMAND ...`, where no such program is installed.

`within` runs a command in this process, which saves a second of imports where what starts is not what is tested.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import sys
from unittest import mock


def within(*words: str, cwd: pathlib.Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `mrclab WORDS` here; return exit code and output as of a process."""
    from mrclab.cli.app import main

    out, error, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["mrclab", *words]))
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(contextlib.chdir(cwd or pathlib.Path.cwd()))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(error))
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), error.getvalue())


if __name__ == "__main__":
    from mrclab.cli.entry import main

    sys.argv[0] = "mrclab"
    main()
