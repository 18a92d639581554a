"""Every YAML, JSON and Python example of the documentation is taken by what it is an example for."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml

from mrc_topo.labfile import parse_lab
from mrclab.runs import compare, experiment
from mrclab.studies.chaos.schedule import Schedule
from mrclab.studies.sweeps import page, plan, spec
from mrclab.studies.sweeps.cluster import ClusterSpec
from p4lite.switch import documents
from p4lite.switch.description import PortDescription
from p4lite.switch.server import FabricServer
from support import docs
from support.amount import LONG
from support.verbs.bed import bed

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("workshop/**/*.md")),
]
BLOCKS = [block for page in PAGES for block in docs.blocks(page)]
KNOWN = {"sh", "console", "yaml", "json", "python", "p4", "mermaid", "text", "diff"}


def of(language: str) -> list[Any]:
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language == language]


def test_block_of_a_page_names_a_known_language() -> None:
    assert [(block.place, block.language) for block in BLOCKS if block.language not in KNOWN] == []


@pytest.mark.parametrize("block", [pytest.param(each, id=each.place) for each in BLOCKS if each.language == "text"])
def test_block_of_text_contains_no_command_line(block: docs.Block) -> None:
    """What looks like a command line must be in a block of commands, or nothing checks it."""
    assert [line for line in block.text.splitlines() if line.startswith(("mrclab ", "p4lite ", "$ "))] == []


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_example_of_a_page_is_accepted_by_its_schema(block: docs.Block, tmp_path: pathlib.Path) -> None:
    """By its keys: a sweep, a cluster, an experiment, a comparison, a schedule of chaos, a lab, or a part of one."""
    document = yaml.safe_load(block.text)
    topology = document.get("topology", {})
    if "nodes" in topology:  # a containerlab topology, which is read for the lab behind it
        return
    if "from" in topology:
        (tmp_path / topology["from"]).write_text(BLOCKS[BLOCKS.index(block) - 1].text, encoding="utf-8")
        parse_lab(block.text, block.place, tmp_path)
        return
    if {"cannot", "departs"} & set(document):
        pytest.importorskip("mrc_conform.profile", reason="needs the extra mrc_conform").Profile.model_validate(
            document
        )
    elif "scrape_configs" in document:  # Prometheus' own; the live view takes the token as Bearer alone
        assert [each["authorization"]["type"] for each in document["scrape_configs"]] == ["Bearer"]
    elif {"grid", "cases", "hypercube"} & set(document):
        page.check(plan.make(spec.parse_sweep(block.text, block.place)))
    elif "comparison" in document:  # its file is an example of its own
        spec.parse_sweep(block.text, block.place)
    elif set(document) <= set(ClusterSpec.model_fields):
        ClusterSpec.model_validate(document)
    elif "workload" in document and "variants" not in document:
        experiment.parse(experiment.Experiment, block.text, block.place, experiment.EXAMPLE)
    elif "variants" in document:
        experiment.parse(compare.Comparison, block.text, block.place, "name: x")
    elif "steps" in document:
        experiment.parse(Schedule, block.text, block.place, "name: x")
    else:
        parse_lab(block.text if "name" in document else f"name: part\n{block.text}", block.place)


@pytest.mark.parametrize("block", of("json"))
def test_fabric_description_of_a_page_starts_a_fabric(block: docs.Block, tmp_path: pathlib.Path) -> None:
    """A fabric's description. In virtual time, where it needs no interfaces, and with the switch at its link's end."""
    description = json.loads(block.text)
    if "hosts" in description:  # a network of the P4 tutorials
        parse_lab(block.text, str(block.file), tmp_path)
        return
    if "tunnel" in description:  # a port of one, on the real clock alone
        documents.read(PortDescription, description, "")
        return
    (switch,) = description["switches"]
    other = {
        "device_id": 2,
        "program": switch["program"],
        "include_dirs": switch["include_dirs"],
        "ports": [{"port": 1}],
    }
    description["switches"].append(other)
    description["clock"] = "virtual"
    for port in switch["ports"]:
        port.pop("interface", None)
    shutil.copytree(ROOT / "p4/programs", tmp_path, dirs_exist_ok=True)
    (tmp_path / "captures").mkdir()
    with contextlib.closing(FabricServer.from_description(description, tmp_path).fabric) as fabric:
        assert sorted(fabric.switches) == [1, 2]


@contextlib.contextmanager
def _switch(source: str, folder: pathlib.Path) -> Iterator[str]:
    """Run a switch beside an example; its address replaces the one that the page has."""
    description = {
        "clock": "virtual",
        "switches": [{"device_id": 1, "ports": [{"port": 3}]}, {"device_id": 2, "ports": [{"port": 1}]}],
        "links": [{"a": [1, 3], "b": [2, 1]}],
    }
    with FabricServer.from_description(description, folder) as server:
        yield source.replace("unix:/run/p4lite/switch-1.sock", server.start())


@contextlib.contextmanager
def _samples(source: str, folder: pathlib.Path) -> Iterator[str]:
    program = pathlib.Path(sys.executable).with_name("mrclab")
    options = "--lab tiny --hosts h1,h0 --duration 0.3 --clock virtual"
    subprocess.run([program, "run", "write_bw", *options.split(), "-o", folder], check=True, timeout=120)
    yield source


@contextlib.contextmanager
def _programs(text: str, folder: pathlib.Path) -> Iterator[str]:
    """Run a program for two hosts: the other one runs the same."""
    source = text.replace("/run/lab/meet", str(folder / "meet"))
    with bed(folder) as hosts:
        other = subprocess.Popen([sys.executable, "-c", source], env={**os.environ, "MRC_DEVICE": hosts.path(1)})
        with mock.patch.dict(os.environ, {"MRC_DEVICE": hosts.path(0)}):
            yield source
        assert other.wait(60) == 0


#: What an example needs around it, by a word of it: names that it uses, and what goes on meanwhile.
AROUND = {
    "TargetClient(": ("from p4lite.switch.targetapi.client import TargetClient", _switch),
    "verbs.open_device(": ("", _programs),
    "samples.npz": ("import numpy as np", _samples),
}


@pytest.mark.parametrize("block", of("python"))
def test_python_example_of_a_page_runs(
    block: docs.Block, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "mrc_torch" in block.text:
        pytest.skip("needs torch and as many programs as ranks: extras/mrc_torch/tests/collectives/test_ddp.py runs it")
    if block.path.name == "scale-accuracy.md" and not LONG:
        pytest.skip("computes for long: MRCLAB_LONG=1 runs it, as make soak does")
    if "mininet.topo" in block.text:
        pytest.importorskip("mininet.topo", reason="Mininet is not installed")
    monkeypatch.chdir(tmp_path)
    for saved in (each for each in BLOCKS if each.path == block.path and each.file is not None):
        (tmp_path / str(saved.file)).write_text(saved.text, encoding="utf-8")
    if "@pytest.mark" in block.text:
        (tmp_path / "test_page.py").write_text(block.text, encoding="utf-8")
        words = ["-P", "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), "test_page.py"]
        assert subprocess.run([sys.executable, *words], check=False).returncode == 0
        return
    imports, around = next((each for word, each in AROUND.items() if word in block.text), ("", None))
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.ExitStack() as stack:
        source = block.text if around is None else stack.enter_context(around(block.text, tmp_path))
        exec(compile(f"{imports}\n{source}", block.place, "exec"), names)
        for test in [value for name, value in names.items() if name.startswith("test_")]:
            test()
    if "delivered" in names:
        assert isinstance(names["delivered"], np.ndarray)
        assert names["delivered"].max() > 0


@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("yaml", "name: a\nplane: 2\n", "plane"),
        ("yaml", "queues: {limt: 64KiB}\n", "limt"),
        ("yaml", "name: a\ntitle: A\nexperiment: lossy-link\ngrid: {lab.plane: [2]}\n", "did you mean 'planes'"),
        ("yaml", "name: a\nworkload: {name: ring_all_reduse, duration: 1}\n", "ring_all_reduse"),
    ],
)
def test_mistake_in_a_yaml_example_is_reported_with_its_cause(
    language: str, text: str, error: str, tmp_path: pathlib.Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```{language}\n{text}```\n")
    (block,) = docs.blocks(page)
    with pytest.raises(Exception, match=error):
        test_yaml_example_of_a_page_is_accepted_by_its_schema(block, tmp_path)
