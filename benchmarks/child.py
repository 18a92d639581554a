"""A benchmark's `measure` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def measured(module: str, *arguments: int | str, **environment: str) -> dict[str, Any]:
    """Return what `measure(*arguments)` of a module of this package returns, with these variables beside our own.

    Raises:
        RuntimeError: the process failed; with what it said.
    """
    listed = ", ".join(map(repr, arguments))
    code = f"import json; from benchmarks.{module} import measure; print(json.dumps(measure({listed})))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
