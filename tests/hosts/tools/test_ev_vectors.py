"""`python -m mrc_host.ev_vectors`: the expansion of EVs against published vectors, and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrc_host import ev_vectors

EV_VECTORS = Path(__file__).parents[2] / "vectors" / "ev_expansion.json"


def test_ev_vectors_expand(capsys: pytest.CaptureFixture[str]) -> None:
    assert ev_vectors.main([str(EV_VECTORS)]) == 0
    assert capsys.readouterr().out == "5 cases, 5 equal, 0 different\n"


def test_ev_vectors_print_each_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(EV_VECTORS.read_text())
    document["cases"][1]["expanded"][3] = "00" * 32
    document["cases"][4]["fields"][2]["init"] = "0x500"
    document["cases"][2]["evs"][0] = "3312" + "00" * 29 + "01"
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    assert ev_vectors.main([str(path)]) == 1
    out = capsys.readouterr().out
    assert f"case 1 (Structured EV Generated 2): evs[3]: expands to b8d71b43{'0' * 56}, should be {'0' * 64}" in out
    assert out.count("case 4 (SRv6 Generated w/ Fixed)") == 8
    assert "case 2 (Structured EV Generated w/ Fixed & Weird Mask): evs[0]: has bits set beyond the 16" in out
    assert out.endswith("5 cases, 2 equal, 3 different\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": []}, "'fields' must be a list that is not empty"),
        ({"fields": [{"init": 1}]}, "fields[0] lacks 'width'"),
        ({"fields": [{"width": 16, "maks": 1}]}, "fields[0] has no 'maks'"),
        ({"fields": [{"width": 16, "mask": "0x1ffff"}]}, "fields[0]: ev field mask is 131071; allowed: 0 to 65535"),
        ({"fields": [{"width": 16, "mask": "seven"}]}, "fields[0].mask is 'seven', not a whole number"),
        ({"fields": [{"width": 17}]}, "fields[0] is 17 bits wide; the format has 16"),
        ({"format_widths": [16]}, "2 fields, and 1 widths in the format"),
        ({"format_widths": [200, 200]}, "the format is 400 bits wide"),
        ({"evs": ["12"]}, "1 evs, and 8 expanded"),
        ({"evs": ["12"] * 8}, "evs[0] is not 64 hexadecimal digits"),
        ({"expanded": ["xy" * 32] * 8}, "expanded[0] is not hexadecimal"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_bad_ev_vectors_are_named(
    change: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(EV_VECTORS.read_text())
    document["cases"][0].update(change)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document))
    assert ev_vectors.main([str(path)]) == 2
    assert f"case 0 (Structured EV Explicit): {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "non-empty list 'cases'"), ('{"cases": [3]}', "case 0 (?): not an object")],
)
def test_ev_vector_files_that_cannot_be_used(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    assert ev_vectors.main([str(path)]) == 2
    assert message in capsys.readouterr().err
    assert ev_vectors.main([]) == 2
    assert ev_vectors.main([str(tmp_path / "none.json")]) == 2
