"""Every import in the files that no other test runs can be carried out, those inside functions too."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))
OURS = ("benchmarks", "p4lite", "mrc_")


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
