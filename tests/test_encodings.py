"""No file of ours is read or written in the encoding of the user's locale, and commands print what it lacks as `?`.

In a locale such as de_DE.ISO-8859-1, Python's default before 3.15 would put other characters into reports than their
pages declare, or fail.
"""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (
    "controller",
    "docs",
    "examples",
    "experiments",
    "extras",
    "hosts",
    "p4/p4lite",
    "p4/p4lite_tools",
    "release",
    "topologies",
    "workshop",
)
#: Functions that open a file, by name, and the position of their argument `mode`.
MODES = {"open": 0, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0}
#: Those whose mode is a binary one unless it is given.
BINARY = ("NamedTemporaryFile", "TemporaryFile")
#: Names whose `open` and `read_text` are no functions that open a text file.
OTHERS = ("os", "tarfile", "webbrowser", "window", "made", "document")


def opens_text(call: ast.Call) -> bool:
    """Return whether a call opens, reads or writes a text file without naming its encoding."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = getattr(function.value, "id", "") if isinstance(function, ast.Attribute) else ""
    if (owner in OTHERS and name != "fdopen") or any(each.arg == "encoding" for each in call.keywords):
        return False
    if name == "read_text":
        return not call.args
    if name == "write_text":
        return len(call.args) < 2
    if name not in MODES:
        return False
    position = MODES[name] + (name == "open" and (isinstance(function, ast.Name) or owner == "gzip"))
    modes = [*call.args[position : position + 1], *(each.value for each in call.keywords if each.arg == "mode")]
    if not modes:
        return name not in BINARY and owner != "gzip"
    return isinstance(modes[0], ast.Constant) and "b" not in str(modes[0].value)


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_opened_with_an_encoding(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not {"__compiled__", "tests"} & set(path.parts):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
            found += [f"{path.relative_to(ROOT)}:{call.lineno}" for call in calls if opens_text(call)]
    assert not found, 'add encoding="utf-8"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path.read_text()", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.write_text(text)", True),
        ("open(name)", True),
        ("open(name, 'wb')", False),
        ("path.open('r')", True),
        ("path.open('rb')", False),
        ("TemporaryFile()", False),
        ("NamedTemporaryFile('w')", True),
        ("gzip.open(name, 'rt')", True),
        ("gzip.open(name)", False),
        ("os.fdopen(number, 'w')", True),
    ],
)
def test_call_is_recognised(text: str, expected: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert opens_text(call) is expected


@pytest.mark.parametrize(
    "code",
    [
        "from mrclab.cli.entry import main; sys.argv = ['mrclab', 'topo', 'show', 'tiny']; main()",
        "import p4lite.cli as cli; cli.usage = lambda: '\\u2192'; cli.main(['--help'])",
    ],
)
def test_command_prints_what_the_encoding_of_standard_output_lacks(code: str) -> None:
    command = [sys.executable, "-c", f"import sys; {code}"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout
