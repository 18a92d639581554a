"""Exercises by name: a plain name is never a file."""

from __future__ import annotations

import pathlib

import pytest

from mrc_workshop import exercise


def test_a_plain_name_is_never_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "01-switch").mkdir()
    (tmp_path / "01-switch" / "exercise.yaml").write_text("nonsense")
    (tmp_path / "mine").write_text("nonsense")
    assert exercise.find("1").content.title
    with pytest.raises(exercise.WorkshopError, match=r"mine: no exercise of that name; known: .*; a file is given by"):
        exercise.find("mine")
