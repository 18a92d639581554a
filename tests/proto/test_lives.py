"""Lives of endpoints go on as they were recorded."""

from __future__ import annotations

import json

import pytest

from support.proto import lives

#: Lives in one test.
TOGETHER = 20


@pytest.mark.parametrize("first", range(0, lives.LIVES, TOGETHER))
def test_lives_are_as_recorded(first: int) -> None:
    """A change that is meant is recorded by `PYTHONPATH=tests python -m support.proto.lives --record`; `lives SEED` of
    both versions shows what changed."""
    recorded = json.loads(lives.RECORD.read_text(encoding="utf-8"))
    seeds = range(first, first + TOGETHER)
    assert [seed for seed in seeds if lives.digest(seed) != recorded[seed]] == []


def test_a_life_is_decided_by_its_seed_and_has_what_its_user_did() -> None:
    once = lives.lines_of(4)
    assert once == lives.lines_of(4)
    assert len(once) > 100
