"""Scripts of tests in network namespaces of their own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap


def run_in_namespace(name: str, body: str, script: pathlib.Path) -> str:
    """Run a script by this Python in a new network namespace of a name; return what it printed.

    Raises:
        AssertionError: it failed, with what it said.
    """
    script.write_text(textwrap.dedent(body))
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        command = ["ip", "netns", "exec", name, sys.executable, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
