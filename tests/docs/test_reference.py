"""The pages made from the program have all of it, and what they show can be written like that."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mrc_host.workloads import WORKLOADS
from mrc_topo import schema, units
from mrc_topo.schema import parse_depth
from mrclab.cli.app import app
from mrclab.lab.faults.kinds import KINDS
from mrclab.runs.experiment import Experiment
from mrclab.studies.sweeps import measure

ROOT = pathlib.Path(__file__).parents[2]


pytest.importorskip("mrc_conform", reason="the pages are made from the core and all extras")


def load() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("docs_reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference = load()
PARSERS = {
    "rate": units.parse_rate_bps,
    "time": units.parse_time_ns,
    "size": units.parse_size_bytes,
    "size, time, or share of the base RTT": parse_depth,
}


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for info in model.model_fields.values():
        for inner in reference._inner(info.annotation):
            yield from models(inner)


def test_page_of_commands_has_every_verb_and_option() -> None:
    page = reference.cli()
    for path, command in reference._verbs(typer.main.get_command(app), "mrclab"):
        section = page.partition(f"### {path}\n")[2].partition("\n#")[0]
        assert section, path
        for each in command.params:
            names = each.opts if each.param_type_name == "option" else [each.metavar or each.name.upper()]
            assert all(f"`{name}" in section or f", {name}" in section for name in names), (path, names)


@pytest.mark.parametrize(("name", "model"), [("lab_file", schema.Lab), ("experiment_file", Experiment)])
def test_page_of_a_file_format_has_every_key(name: str, model: type[BaseModel]) -> None:
    page = getattr(reference, name)()
    for each in models(model):
        assert all(f"| `{key}` |" in page for key in each.model_fields), each


def test_page_of_experiments_has_every_workload_and_failure() -> None:
    page = reference.experiment_file()
    assert all(f"### {name}\n" in page for name in WORKLOADS)
    assert all(f"| `{name}` | " in page for name in KINDS)


def test_page_of_sweep_measures_has_every_measure() -> None:
    page = reference.sweep_measures()
    assert all(f"| `{name}` | " in page for columns in measure.METRICS.values() for name in columns)


def test_default_on_the_page_is_read_back_as_the_same_value() -> None:
    seen = 0
    for model in models(schema.Lab):
        for key, info in model.model_fields.items():
            default = info.get_default(call_default_factory=True)
            if (unit := reference._unit(info)) and isinstance(default, int):
                assert PARSERS[unit[0]](reference._default(info)) == default, key
                seen += 1
    assert seen >= 15


@given(st.sampled_from(sorted(PARSERS)), st.integers(0, 10**13))
def test_number_with_unit_is_read_back_as_the_same_value(unit: str, value: int) -> None:
    assert PARSERS[unit](reference.written(value, *reference.UNITS_WRITTEN[unit])) == value


@pytest.mark.parametrize("title", sorted(reference.API))
def test_python_page_names_only_existing_modules(title: str) -> None:
    modules = re.findall(r"^::: (\S+)$", reference.api(title), re.M)
    assert modules
    for module in modules:
        assert importlib.util.find_spec(module) is not None, module


def test_missing_key_on_a_page_fails_the_test_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail where something is left out."""
    whole: Any = reference.lab_file
    monkeypatch.setattr(reference, "lab_file", lambda: whole().replace("| `probe_interval` |", "| |"))
    with pytest.raises(AssertionError):
        test_page_of_a_file_format_has_every_key("lab_file", schema.Lab)
