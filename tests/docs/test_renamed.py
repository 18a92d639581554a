"""The glossary's table of renamed names, and `docs/words.py`, which refuses the old ones."""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def checked(folder: pathlib.Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "docs/words.py", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_class_with_an_old_name_of_its_package_is_refused_with_the_new_name(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "mrclab.lab"
    folder.mkdir()
    (folder / "one.py").write_text("x = 1\n\n\nclass Household:\n    pass\n")
    code, text = checked(tmp_path)
    assert code == 1
    assert text == f"{folder}/one.py:4: 'Household' was renamed to 'ProcessSupervisor' (docs/glossary.md)\n"


def test_old_name_of_another_package_is_not_refused(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "mrc_other"
    folder.mkdir()
    (folder / "one.py").write_text("class Household:\n    pass\n")
    assert checked(tmp_path) == (0, "")
