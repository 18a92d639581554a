"""What an editor knows of a program, wherever the editor was started."""

from __future__ import annotations

import pathlib

import pytest

from p4lite_tools.editor.analysis import analyse

TEXT = '#include "types.p4"\nstruct s_t { h_t h; }\nconst bit<8> ONE = 1;\nconst bit<8> TWO = ONE + WRONG;\n'


@pytest.mark.parametrize("cwd", [".", "below", "/", "/usr"])
def test_places_have_the_file_that_the_editor_names(
    cwd: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "types.p4").write_text("header h_t { bit<8> a; }\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / cwd)
    path = str(tmp_path / "prog.p4")
    found = analyse(TEXT, path)
    assert [decl.name for decl in found.own()] == ["s_t", "ONE", "TWO"]
    assert [(str(d.pos.file), d.pos.line) for d in found.diagnostics if d.pos.line] == [(path, 4)]
    use = found.use_at(2, 14)
    assert use is not None
    assert use.decl.pos.file == str(tmp_path / "types.p4")
    assert found.use_at(4, 20) is not None
