"""Call paths of docs/architecture.md: how often they return to a module that they had left."""

from __future__ import annotations

from mrc_topo import units
from support.callpath import CallPath, walked


def test_path_that_enters_a_module_twice_has_one_return() -> None:
    path = CallPath((("a", "f"), ("b", "g"), ("b", "h"), ("a", "k")))
    assert path.modules == ["a", "b", "a"]
    assert path.returns == 1


def test_walk_notes_only_the_first_call_of_each_function_of_ours() -> None:
    path = walked(lambda: [units.format_time(units.parse_time_ns(each)) for each in ("5ms", "7ms")])
    names = ["parse_time_ns", "_parse", "format_time", "_format"]
    assert path.functions == tuple(("mrc_topo.units", name) for name in names)
    assert path.returns == 0
