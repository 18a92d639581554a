"""The table of reasons: which test needs each change of state, call, comparison and argument of the protocol."""

from __future__ import annotations

import ast
import collections
import re

from support import mutants

#: How many rows may name neither a test nor a reason. Fewer is better; a new one needs a test, or goes.
MOST_WITHOUT = 163


def test_every_change_of_state_has_its_row_in_the_table() -> None:
    """New ones get theirs by `make mutants PART=proto MUTANTS=--table`."""
    there = {mutant.key for path in mutants.PARTS["proto"].paths() for mutant in mutants.reasoned(path)}
    assert there == set(mutants.read_table())


def test_the_tests_that_the_table_names_exist() -> None:
    named = collections.defaultdict(set)
    for _, noticed in mutants.read_table().values():
        if "::" in noticed:
            path, _, test = noticed.partition("::")
            named[path].add(re.split(r"\[|::", test)[0])
    assert named
    for path, tests in named.items():
        tree = ast.parse((mutants.ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        machines = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert tests <= functions | machines, path


def test_few_rows_of_the_table_name_neither_a_test_nor_a_reason() -> None:
    """A reason begins with `equal` (nothing changes) or `tie` (one value changes, and either is right there)."""
    without = [key for key, (_, noticed) in mutants.read_table().items() if noticed == mutants.NOTHING]
    assert len(without) <= MOST_WITHOUT, "\n".join(map(str, without))
    reasons = [noticed for _, noticed in mutants.read_table().values() if re.match("equal|tie", noticed)]
    assert reasons
    assert all(re.match(r"(equal|tie): \w", each) for each in reasons)
