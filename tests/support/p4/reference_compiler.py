"""p4c's compiler for BMv2 as a process, where it is installed (an uninstalled one needs P4C_16_INCLUDE_PATH)."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from p4lite.messages import p4info_pb2

P4C = "p4c-bm2-ss"
TIMEOUT_S = 120.0
ERROR = re.compile(r"\berror: (.*)")
BUG = re.compile(r"Compiler Bug.*|.*COMPILER BUG.*|.*Exiting with SIG.*")


class P4cRefused(Exception):
    """p4c refuses the program; the text is its first error."""


class P4cCrashed(Exception):
    """p4c ends by a fault of its own, or not at all; the text is its message."""


@dataclass(frozen=True)
class CompiledByP4c:
    """What p4c makes of a program: BMv2 JSON, and P4Info in protobuf's text format."""

    document: dict[str, Any]
    p4info: str


def compiled_by_p4c(p4c: str, text: str) -> CompiledByP4c:
    """Compile the text of a program.

    Raises:
        P4cRefused: there is an error in the program, or p4c cannot do something for BMv2.
        P4cCrashed: p4c itself fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, made, info = (Path(folder) / f"program.{ending}" for ending in ("p4", "json", "txtpb"))
        source.write_text(text, encoding="utf-8")
        command = [p4c, "--std", "p4-16", str(source), "-o", str(made), "--p4runtime-files", str(info)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise P4cCrashed(f"not done in {TIMEOUT_S:.0f} s") from None
        bug, said = BUG.search(done.stderr), ERROR.search(done.stderr)
        if bug or (done.returncode != 0 and not said):
            raise P4cCrashed(done.stderr[bug.start() :][:500] if bug else f"exit code {done.returncode}")
        if done.returncode != 0 and said:
            raise P4cRefused(said[1])
        return CompiledByP4c(json.loads(made.read_text(encoding="utf-8")), info.read_text(encoding="utf-8"))


def p4info_of(text: str) -> Any:
    """Return a P4Info message; fields of a later version of P4Runtime are left out."""
    return text_format.Parse(text, p4info_pb2.P4Info(), allow_unknown_field=True)
