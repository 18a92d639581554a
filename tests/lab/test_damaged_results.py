"""Result folders that were damaged or changed: each is read, or refused with the file's name; never a traceback."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

from mrclab.results.reading import RESULT, FolderError
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES
from mrclab.web.replay import Recorded
from support.hostile.mutations import changed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("results") / "whole"
    command = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", "run", "write_bw", "--clock"]
    command += ["virtual", "--lab", "tiny", "--duration", "0.02", "-o", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    Recorded(folder)
    return folder


@pytest.mark.parametrize("part", range(3))
def test_no_damage_is_a_traceback(whole: pathlib.Path, tmp_path: pathlib.Path, part: int) -> None:
    rng = random.Random(part)
    refused = 0
    document = json.loads((whole / RESULT).read_text())
    for number in range(100):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        name = rng.choice((RESULT, RESULT, RESULT, SAMPLES, EVENTS))
        path = folder / name
        if name == RESULT and rng.random() < 0.8:
            path.write_text(json.dumps(changed(document, rng)))
        else:
            data = bytearray(path.read_bytes() or b"nothing")
            kind = rng.randrange(4)
            if kind == 0:
                del data[rng.randrange(len(data) + 1) :]
            elif kind == 1:
                path.unlink()
            else:
                for _ in range(rng.randint(1, 50)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            if kind != 1:
                path.write_bytes(data)
        told = ""
        try:
            Recorded(folder)
        except FolderError as error:
            told = str(error)
        refused += bool(told)
        assert not told or str(folder) in told
        assert told.isprintable()
        shutil.rmtree(folder)
    assert refused > 20


def test_the_damaged_file_is_named(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in (RESULT, SAMPLES, EVENTS):
        folder = tmp_path / name
        shutil.copytree(whole, folder)
        (folder / name).write_bytes(b"damaged")
        with pytest.raises(FolderError, match=f"{name}: no results that can be read"):
            RunResult.load(folder)
