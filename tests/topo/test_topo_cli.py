"""`mrclab topo` and the pictures."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from mrc_topo import draw
from mrc_topo.labfile import builtin_labs, load_lab
from mrclab.cli.topo import app


def mrclab_topo(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_validate(tmp_path: pathlib.Path) -> None:
    good = mrclab_topo("validate", "default", "tiny")
    assert good.exit_code == 0
    assert "default: good: 8 hosts, 24 switches, 64 links" in good.output
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nhosts: 5000\n")
    failed = mrclab_topo("validate", "tiny", str(bad))
    assert failed.exit_code == 2
    assert "tiny: good" in failed.output
    assert f"{bad}:2: hosts: " in failed.output


def test_validate_warns_of_headroom_with_the_number_needed(tmp_path: pathlib.Path) -> None:
    lab = tmp_path / "small.yaml"
    lab.write_text("name: small\nqueues: {trim: null, pfc: {xoff: 16KiB, headroom: 1KiB}}\n")
    told = mrclab_topo("validate", str(lab))
    assert told.exit_code == 0
    assert f"mrclab topo: warning: {lab}: queues.pfc.headroom (1024 bytes) is too small for h0:0 and" in told.output
    assert "which need " in told.output
    assert "warning" not in mrclab_topo("validate", "tiny").output


def test_show_tables_and_json() -> None:
    assert "fd4d:5248:1::2" in mrclab_topo("show", "tiny").output
    data = json.loads(mrclab_topo("show", "tiny", "--json").output)
    assert len(data["hosts"]) == 4
    assert data["switches"][0]["ports"]["3"] == "p0-t0.0--p0-t1.0"
    assert data["links"][0]["ends"] == [["h0", 0], ["p0-t0.0", 1]]
    entries = json.loads(mrclab_topo("show", "tiny", "--switch", "p0-t1.0").output)
    assert {entry["table"].rsplit(".", 1)[-1] for entry in entries} >= {"local_usid", "usid_routes", "ports"}


def test_errors_are_one_line_and_exit_2() -> None:
    for words in (("show", "nolab"), ("show", "tiny", "--switch", "p9"), ("draw", "nolab"), ("plan", "--radix", "7")):
        result = mrclab_topo(*words)
        assert result.exit_code == 2
        assert result.output.startswith("mrclab topo: error: ")
        assert result.output.count("\n") == 1
    assert mrclab_topo("draw", "tiny", "-o", "/nonexistent/x.svg").exit_code == 2


def test_topo_plan_prints_the_numbers_of_the_paper() -> None:
    text = mrclab_topo("plan", "--radix", "512", "--planes", "8").output
    for words in ("131,072", "6,144", "10,240", "524,288", "786,432", "2,048", "0.391%", "3.125%", "12.500%"):
        assert words in text
    multi, single = json.loads(mrclab_topo("plan", "--json").output)
    assert (multi["tiers"], single["tiers"]) == (2, 3)


@pytest.mark.parametrize("name", sorted(builtin_labs()))
def test_picture_shows_every_element_once(name: str, tmp_path: pathlib.Path) -> None:
    topology = load_lab(name)
    output = tmp_path / "lab.svg"
    assert mrclab_topo("draw", name, "-o", str(output)).exit_code == 0
    root = ET.fromstring(output.read_text())
    shown = [element.get("data-name") for element in root.iter() if element.get("data-name")]
    expected = [*topology.links, *(s.name for s in topology.switches), *(h.name for h in topology.hosts)]
    assert sorted(shown, key=str) == sorted(expected)
    width = float(root.get("width", 0))
    for line in root.iter("{http://www.w3.org/2000/svg}line"):
        assert 0 <= float(line.get("x1", -1)) <= width


def test_description_is_escaped() -> None:
    topology = load_lab("tiny")
    lab = topology.lab.model_copy(update={"description": "<b> & co"})
    root = ET.fromstring(draw.to_svg(type(topology)(lab)))
    assert any("<b> & co" in (each.text or "") for each in root.iter())


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_source_is_accepted_by_graphviz() -> None:
    source = mrclab_topo("draw", "tiny", "--dot").output
    done = subprocess.run(["dot", "-Tplain"], input=source, capture_output=True, text=True, check=True)
    assert sum(line.startswith("edge") for line in done.stdout.splitlines()) == 16
