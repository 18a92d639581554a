"""Ctrl-C while the command's modules are imported ends it without a traceback."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from mrclab.cli.entry import check_threads
from mrclab.cli.errors import report_errors


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


def test_a_library_for_which_there_is_no_memory_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, report_errors():
        raise ImportError("/x/cygrpc.so: failed to map segment from shared object")
    assert ended.value.code == 1
    assert "no memory is left" in capsys.readouterr().err
    with pytest.raises(ImportError), report_errors():
        raise ImportError("No module named 'x'")


def test_a_limit_of_threads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_threads()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(SystemExit) as ended:
        check_threads()
    # Python writes such a text to standard error, and exits with 1.
    assert "raise it (`ulimit -u`)" in str(ended.value.code)
