"""Draw the picture of the packages in reference/code-map.md from the import graph.

    python docs/house.py            writes picture and table
    python docs/house.py --check    exit code 1 when they are not those of the tree

An arrow says that modules of one package import those of another. Arrows that follow from others are left out.
"""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import sys

import grimp
import networkx as nx

PAGE = pathlib.Path(__file__).with_name("reference") / "code-map.md"
BEGIN, END = "<!-- from `python docs/house.py` -->\n", "<!-- end -->\n"
HOUSES = {
    "mrclab": 2, "mrc_topo": 1, "mrc_host": 2, "p4lite": 2, "p4lite_tools": 1,
    "mrc_conform": 1, "mrc_fluid": 1, "mrc_machines": 1, "mrc_torch": 1, "mrc_workshop": 1,
}  # fmt: skip
"""Our packages, and down to which depth the packages in them are rooms of their own."""


def rooms(graph: grimp.ImportGraph, package: str, depth: int) -> list[str]:
    """Return a package and, down to a depth, those inside it."""
    inside = [child for child in sorted(graph.find_children(package)) if graph.find_children(child)] if depth else []
    return [package, *(room for child in inside for room in rooms(graph, child, depth - 1))]


def arrows(graph: grimp.ImportGraph, all_rooms: list[str]) -> nx.DiGraph:
    """Which room imports which, without what follows from other arrows."""

    def room(module: str) -> str:
        return max((each for each in all_rooms if f"{module}.".startswith(f"{each}.")), key=len)

    found = nx.DiGraph()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            one, other = room(module), room(imported)
            # A package and what is in it are one place.
            if not f"{one}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{one}."):
                found.add_edge(one, other)
    if not nx.is_directed_acyclic_graph(found):
        raise SystemExit(f"a circle of rooms: {nx.find_cycle(found)}")
    return nx.transitive_reduction(found)


def about(room: str) -> str:
    """Return the first sentence of a package's docstring."""
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def picture() -> str:
    """Return the picture as Mermaid, and a table of the packages."""
    graph = grimp.build_graph(*HOUSES, cache_dir=None)
    by_house = {house: rooms(graph, house, depth) for house, depth in HOUSES.items()}
    every = [room for found in by_house.values() for room in found]
    edges = sorted(arrows(graph, every).edges)
    shown = {room for edge in edges for room in edge}
    lines = ["```mermaid", "flowchart TD"]
    for house, found in by_house.items():
        lines.append(f"    subgraph {house}")
        for room in found:
            name = room.removeprefix(f"{house}.") if room != house else "modules of its own" if found[1:] else house
            if room in shown:
                lines.append(f'        {room.replace(".", "_")}_["{name}"]')
        lines.append("    end")
    lines += [f"    {one.replace('.', '_')}_ --> {other.replace('.', '_')}_" for one, other in edges]
    lines += ["```", "", "| package | what is in it |", "|---|---|"]
    lines += [f"| {room} | {about(room)} |" for room in every]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    new = picture()
    if "--check" in sys.argv[1:]:
        if old != new:
            print(f"{PAGE}: not the picture of this tree; run: python docs/house.py", file=sys.stderr)
        return int(old != new)
    PAGE.write_text(before + BEGIN + new + END + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
