"""The library's reader and writer of JSON, under the sanitizers."""

from __future__ import annotations

import pathlib
import subprocess

from libmrc import build
from p4lite.switch.native.build import SANITIZE
from support.libmrc import PROGRAMS, WARNINGS, compiler, environment


def test_documents_are_read_written_and_refused(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "json"
    subprocess.run(
        [*compiler(), *WARNINGS, *SANITIZE, f"-I{build.SOURCES}", str(PROGRAMS / "json.c"),
         str(build.SOURCES / "json.c"), "-o", str(program)],
        check=True,
    )  # fmt: skip
    done = subprocess.run([str(program)], env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
