"""The layers of docs/architecture.md, the protocol core's purity, and the namespaces these rely on."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import grimp
import networkx as nx
import pytest
from importlinter.cli import lint_imports

ROOT = pathlib.Path(__file__).parents[1]
ROOTS = ("p4", "topologies", "controller", "hosts", "extras")
PACKAGES = ("p4lite", "mrc_topo", "mrc_host", "mrclab", "mrc_conform", "mrc_fluid", "mrc_torch", "mrc_workshop")
# What would give the protocol core I/O, clocks, threads or hidden randomness.
IMPURE = {
    "asyncio", "ctypes", "io", "logging", "multiprocessing", "os", "pathlib", "secrets", "select",
    "selectors",
    "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "datetime", "uuid",
}  # fmt: skip


def imports(path: pathlib.Path, package: str) -> set[str]:
    """Absolute dotted names that a file imports; relative imports are resolved against `package`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join(parts[: len(parts) - node.level + 1] + ([base] if base else []))
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def test_import_contracts_of_pyproject_hold() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package: str) -> None:
    """Also packages and what is in them, of which the contract "No circle" says nothing; imports for types count."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = nx.DiGraph(
        (one, other) for one in graph.modules for other in graph.find_modules_directly_imported_by(one)
    )
    circles = [sorted(each) for each in nx.strongly_connected_components(imports) if len(each) > 1]
    assert not circles


def test_picture_is_of_this_tree() -> None:
    """`python docs/house.py` makes it."""
    command = [sys.executable, "docs/house.py", "--check"]
    assert not subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr


@pytest.mark.parametrize("path", sorted((ROOT / "hosts/mrc_host/proto").rglob("*.py")), ids=lambda p: p.name)
def test_protocol_core_is_sans_io(path: pathlib.Path) -> None:
    package = ".".join(path.parent.relative_to(ROOT / "hosts").parts)
    names = imports(path, package)
    assert not {name.split(".")[0] for name in names} & IMPURE
    ours = {name for name in names if name.split(".")[0] == "mrc_host"}
    # The rights to memory are an enumeration and nothing else; the verbs, which do not import the core, share it.
    assert all(name.startswith(("mrc_host.proto", "mrc_host.access")) for name in ours), ours
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random", f"{path}:{node.lineno}: global randomness"


def test_source_roots_are_no_packages() -> None:
    for root in ROOTS:
        assert not (ROOT / root / "__init__.py").exists(), root


def test_p4_v1_is_the_p4runtime_distribution() -> None:
    """Even from the repository's root, where a folder named p4 stands in the way."""
    code = "import p4.v1.p4runtime_pb2 as m; print(m.__file__)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert str(ROOT / "p4") not in out
    assert out.strip().endswith("p4/v1/p4runtime_pb2.py")
