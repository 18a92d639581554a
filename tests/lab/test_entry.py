"""Ctrl-C while the command's modules are imported ends it without a traceback."""

from __future__ import annotations

import subprocess
import sys


def test_an_interrupted_import_is_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mrclab.cli.app': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from mrclab.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
