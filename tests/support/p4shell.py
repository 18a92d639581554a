"""The environment of p4runtime-shell, for tests that drive it."""

from __future__ import annotations

import pytest

from mrclab.lab import p4shell


def need_shell() -> None:
    """Skip the test where the environment of p4runtime-shell is missing."""
    try:
        p4shell.command("", 0, 0)
    except p4shell.MissingShellError as error:
        pytest.skip(f"{error}, and so does `make setup`")
