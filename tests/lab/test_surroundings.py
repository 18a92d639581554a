"""The campaign of `support.hostile.surroundings`, in a few of its surroundings; `make soak` runs all."""

from __future__ import annotations

import pytest

from support.hostile import surroundings


@pytest.mark.root
def test_commands_end_with_a_sentence_in_surroundings_that_lack_something(monkeypatch: pytest.MonkeyPatch) -> None:
    assert surroundings.main(["list", "cleanup", "--in", "home absent", "--in", "64 files", "--in", "200 MB"]) == 0
    # What dies of a signal is not as it should be.
    monkeypatch.setattr(surroundings, "COMMAND", "sh -c 'kill -9 $$' #")
    monkeypatch.setattr(surroundings, "PREPARE", ())
    assert surroundings.main(["version", "--in", "as usual"]) == 1
