"""Random programs of calls with effects: compiled, they do what the language's rules of evaluation say."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings

from support.p4.cases import INPUT, run_on, switch
from support.p4.random_programs import programs

Meaning = Callable[[dict[str, int]], dict[str, int]]
PACKETS = ({"a": 0, "b": 0}, {"a": 1, "b": 255}, {"a": 200, "b": 3})


@settings(max_examples=120, deadline=None)
@given(programs())
def test_random_programs(program: tuple[dict[str, str], Meaning]) -> None:
    parts, meaning = program
    compiled = switch(**parts)
    for values in PACKETS:
        assert run_on(compiled, **values) == meaning(INPUT | values), parts
