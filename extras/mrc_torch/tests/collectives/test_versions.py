"""The backend with a torch that it is not for: importing torch works, using the backend says which versions will do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import re
import sys
import tomllib
import types
from typing import Any

import pytest

import mrc_torch
from mrc_torch.training import ranks
from mrc_torch.versions import FIRST, LAST, refusal
from mrclab.runs.experiment import ExperimentError

ROOT = pathlib.Path(__file__).parents[4]
GOOD = ["2.7.0", "2.8.0+cpu", "2.15.0", "2.15.1a0+git1234"]
BAD = ["1.13.1", "2.4.1+cu121", "2.6.0+cpu", "2.16.0", "3.0", "main"]


@pytest.mark.parametrize("version", GOOD)
def test_supported_torch_version_is_accepted(version: str) -> None:
    assert refusal(version) is None


@pytest.mark.parametrize("version", BAD)
def test_unsupported_torch_version_is_refused_with_a_remedy(version: str) -> None:
    assert refusal(version) == (
        f"the backend mrc is for torch 2.7 to 2.15, and this is torch {version}: `pip install 'torch>=2.7,<2.16'`"
    )


def test_extra_installs_a_supported_torch_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [each for each in project["optional-dependencies"]["torch"] if each.startswith("torch>")]
    bounds = dict(re.findall(r"(>=|<)([\d.]+)", wanted))
    assert bounds == {">=": f"{FIRST[0]}.{FIRST[1]}", "<": f"{LAST[0]}.{LAST[1] + 1}"}


class Backend:
    """As torch's, as far as it is used."""

    made: object = None

    @classmethod
    def register_backend(cls, name: str, creator: object, devices: list[str]) -> None:
        assert (name, devices) == ("mrc", ["cpu"])
        cls.MRC = name  # type: ignore[attr-defined]
        cls.made = creator


def test_old_torch_is_refused_on_use_and_not_on_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch calls `register` while it is imported: an error there would be the end of every program with torch."""
    backend = type("Backend", (Backend,), {})
    torch, distributed = types.ModuleType("torch"), types.ModuleType("torch.distributed")
    torch.__dict__.update(__version__="2.6.0", distributed=distributed)
    distributed.__dict__.update(is_available=lambda: True, Backend=backend)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    mrc_torch.register()
    mrc_torch.register()
    made: list[Any] = vars(backend)["made"]
    assert callable(made)
    with pytest.raises(RuntimeError, match=r"for torch 2\.7 to 2\.15, and this is torch 2\.6\.0"):
        made(None, 0, 2, None)


def test_a_torch_without_distributed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch, distributed = types.ModuleType("torch"), types.ModuleType("torch.distributed")
    torch.__dict__.update(__version__="2.15.0", distributed=distributed)
    distributed.__dict__.update(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    mrc_torch.register()


def test_job_is_refused_with_an_unsupported_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.5.1")
    with pytest.raises(ExperimentError, match=r"for torch 2\.7 to 2\.15, and this is torch 2\.5\.1"):
        ranks.need("torch", "sklearn")
