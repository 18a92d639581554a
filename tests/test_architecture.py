"""The layers of docs/architecture.md, the protocol core's purity, and the namespaces these rely on."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import grimp
import networkx as nx
import pytest
from importlinter.cli import lint_imports

ROOT = pathlib.Path(__file__).parents[1]
ROOTS = ("p4", "topologies", "controller", "hosts", "extras")
EXTRAS = ("mrc_conform", "mrc_fluid", "mrc_machines", "mrc_torch", "mrc_workshop")
PACKAGES = ("p4lite", "p4lite_tools", "mrc_topo", "mrc_host", "mrclab", *EXTRAS)
# Folders of C, in each of which files use each other in one direction.
C_FOLDERS = ("p4/p4lite/switch/core/fabric", "p4/p4lite/switch/core/program", "hosts/libmrc/src")
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


def _modules(node: ast.stmt) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_import_contracts_of_pyproject_hold() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_tests_of_the_core_can_be_collected_without_the_extras() -> None:
    """`tests/support` serves tests of extras, too."""
    needy = {
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if any(name.partition(".")[0] in EXTRAS for name in _modules(node))
    }
    assert needy == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package: str) -> None:
    """Also packages and what is in them, of which the contract "No circle" says nothing; imports for types count."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = nx.DiGraph(
        (one, other) for one in graph.modules for other in graph.find_modules_directly_imported_by(one)
    )
    circles = [sorted(each) for each in nx.strongly_connected_components(imports) if len(each) > 1]
    assert not circles


def c_uses(folder: pathlib.Path) -> nx.DiGraph:
    """Return which of a folder's C files use which: by `#include "..."`, and by what another one defines for all."""
    texts = {
        path.name: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        for path in sorted((*folder.glob("*.c"), *folder.glob("*.h")))
    }
    # Of what begins in the first column, functions and variables that a header declares.
    begins = re.compile(r"^(?!static\b|extern\b)\w[^;{}()=]*?\b(\w+)(?:\([^;{}]*\)\n\{|(?:\[\])? = \{)", re.MULTILINE)
    headers = "".join(text for name, text in texts.items() if name.endswith(".h"))
    shared = {*re.findall(r"(\w+)\(", headers), *re.findall(r"^extern [^;]*?(\w+)(?:\[\])?;", headers, re.MULTILINE)}
    home = {
        name: file
        for file, text in texts.items()
        if file.endswith(".c")
        for name in begins.findall(text)
        if name in shared
    }
    uses = nx.DiGraph()
    uses.add_nodes_from(texts)
    for file, text in texts.items():
        uses.add_edges_from(
            (file, name) for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE) if name in texts
        )
        if file.endswith(".c"):
            words = set(re.findall(r"(?<!struct )(?<![.>\w\"])\b(\w+)", text))
            uses.add_edges_from((file, home[word]) for word in words & home.keys() if home[word] != file)
    return uses


@pytest.mark.parametrize("folder", C_FOLDERS)
def test_c_files_point_one_way(folder: str) -> None:
    uses = c_uses(ROOT / folder)
    assert uses.number_of_edges() >= uses.number_of_nodes() - 1  # the files were read
    assert not [sorted(circle) for circle in nx.strongly_connected_components(uses) if len(circle) > 1]


def test_circles_of_c_files_are_seen(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\nint below(int);\n')
    (tmp_path / "b.h").write_text('#include "a.h"\nint above(int);\n')
    (tmp_path / "a.c").write_text(
        "/* below() */\nint above(int a)\n{\n    return a;\n}\nint use(void)\n{\n    return below(1);\n}\n"
    )
    (tmp_path / "b.c").write_text("int below(int a)\n{\n    return above(a);\n}\n")
    (tmp_path / "c.c").write_text("static int other(void)\n{\n    return below(2);\n}\n")
    circles = [sorted(circle) for circle in nx.strongly_connected_components(c_uses(tmp_path)) if len(circle) > 1]
    assert sorted(circles) == [["a.c", "b.c"], ["a.h", "b.h"]]


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


def test_messages_of_p4runtime_are_those_of_its_distribution() -> None:
    """Even from the repository's root, where a folder named p4 stands in the way."""
    code = "from p4lite.messages import p4runtime_pb2 as m; print(m.DESCRIPTOR.name)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "p4/v1/p4runtime.proto"
