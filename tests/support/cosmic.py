"""List Cosmic Ray's mutants of Python files, or make one: a program for the interpreter that has Cosmic Ray.

Cosmic Ray needs a newer parso than p4runtime-shell allows, so it is installed in an environment of its own, and this
module imports nothing else than it. `python cosmic.py list FILE...` prints a JSON list of [file, line from 1, column
from 0, operator, occurrence]; `python cosmic.py make FILE OPERATOR OCCURRENCE` prints the changed source.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterator


def mutants_of(name: str) -> Iterator[tuple[str, int, int, str, int]]:
    """Yield file, line, column, operator and occurrence of every mutant of a file."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast_from_path(pathlib.Path(name))))
    for operator_name in operator_names():
        operator_class = get_operator(operator_name)
        if operator_class.arguments():
            continue
        operator = operator_class()
        positions = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, ((line, column), _) in enumerate(positions):
            yield name, line, column, operator_name, occurrence


def main(arguments: list[str]) -> int:
    """Run as the entry point; return 2 for wrong usage."""
    match arguments:
        case ["list", *names] if names:
            print(json.dumps([mutant for name in names for mutant in mutants_of(name)]))
        case ["make", name, operator, occurrence]:
            from cosmic_ray.mutating import mutate_code
            from cosmic_ray.plugins import get_operator

            source = pathlib.Path(name).read_text(encoding="utf-8")
            sys.stdout.write(mutate_code(source, get_operator(operator)(), int(occurrence)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
