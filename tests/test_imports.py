"""Every import in the files that no other test runs can be carried out, those inside functions too; and what takes long
to import is imported by the commands that need it alone."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))
OURS = ("benchmarks", "p4lite", "mrc")


#: Runs a command in this process, and then prints which of the modules that it is given have been imported.
COMMAND = """
import json, sys
heavy, sys.argv = json.loads(sys.argv[1]), ["mrclab", *sys.argv[2:]]
from mrclab.cli.entry import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
#: gRPC and P4Runtime's messages; without them protobuf is of no use either.
RPC = ("grpc", "google.protobuf", "p4lite.messages")
RUN = ("run", "write_bw", "--lab", "tiny", "--clock", "virtual", "--duration", "0.01")


def is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def missing(text: str) -> list[str]:
    """Return what a file imports from our packages and does not get, as `module` or `module.name`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in wanted:
            if not module.startswith(OURS):
                continue
            try:
                imported = importlib.import_module(module)
            except ImportError as error:
                if (error.name or "").startswith(OURS):  # an optional library may be missing here
                    found.append(module)
                continue
            inside = hasattr(imported, "__path__") and name and is_module(f"{module}.{name}")
            if name and not inside and not hasattr(imported, name):
                found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_work(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    assert missing(path.read_text(encoding="utf-8")) == []


def test_a_missing_name_is_found() -> None:
    text = "def f():\n    from mrc_host.proto.limits import ConfigError, nothing\n    import mrc_nowhere\n"
    assert missing(text) == ["mrc_host.proto.limits.nothing", "mrc_nowhere"]


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("--version",), ("numpy", "pydantic", "networkx", "rich.console", *RPC)),
        (("--help",), ("numpy", "pydantic", "networkx", *RPC)),
        (("list", "running"), ("numpy", "networkx", "mrc_host.workloads", *RPC)),
        (("up", "--help"), ("numpy", "networkx", "mrclab.runs.experiment", "mrclab.lab.session.real", *RPC)),
        (("topo", "validate", "tiny"), ("networkx", *RPC)),
        (
            RUN,
            (
                "networkx",
                "matplotlib",
                "scapy",
                "pyroute2",
                "asyncio",
                "mrclab.lab.session.real",
                "mrc_machines",
                "p4lite.switch.server",
                *RPC,
            ),
        ),
    ],
    ids=lambda value: value[0],
)
def test_a_command_imports_nothing_that_takes_long_and_that_it_does_not_need(
    words: tuple[str, ...], heavy: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    output = ("-o", str(tmp_path / "results")) if words == RUN else ()
    # The first run after a change may compile the fabric's program, which needs protobuf.
    for _ in range(2 if words == RUN else 1):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, json.dumps(heavy), *words, *output],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
