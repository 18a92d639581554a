"""A small part of the campaign of damaged files (`support.hostile.mutations`), of every kind."""

from __future__ import annotations

import pytest

from support.hostile import mutations

COUNT, SEED = 12, 7


def test_damaged_files_are_read_or_refused_in_lines_of_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = dict(mutations.targets(tmp_path_factory.mktemp("base")))
    assert len(kinds) > 12  # of the core alone
    found = {name: mutations.attack(target, COUNT, SEED) for name, target in kinds.items()}
    assert {name: wrong for name, (_, wrong) in found.items() if wrong} == {}
    assert all(refused > 0 for refused, _ in found.values()), found
