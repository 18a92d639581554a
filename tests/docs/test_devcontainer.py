""".devcontainer/devcontainer.json is one, and what it names exists."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from support import cli, docs

ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / ".devcontainer" / "devcontainer.json"

#: Properties of the metadata reference of containers.dev for a container from an image, with their types.
PROPERTIES: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "image": str,
    "build": dict,
    "forwardPorts": list,
    "portsAttributes": dict,
    "otherPortsAttributes": dict,
    "remoteEnv": dict,
    "remoteUser": str,
    "containerEnv": dict,
    "containerUser": str,
    "updateRemoteUserUID": bool,
    "userEnvProbe": str,
    "overrideCommand": bool,
    "shutdownAction": str,
    "init": bool,
    "privileged": bool,
    "capAdd": list,
    "securityOpt": list,
    "mounts": list,
    "features": dict,
    "customizations": dict,
    "workspaceFolder": str,
    "workspaceMount": str,
    "runArgs": list,
    "hostRequirements": dict,
    "waitFor": str,
    **dict.fromkeys(
        ("initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand"),
        (str, list, dict),
    ),
    "postAttachCommand": (str, list, dict),
}


def read(text: str) -> dict[str, Any]:
    """JSON with whole lines of comments."""
    document = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    unknown = [key for key in document if key not in PROPERTIES]
    assert not unknown, f"no properties of devcontainer.json: {unknown}"
    for key, value in document.items():
        assert isinstance(value, PROPERTIES[key]), key
    return dict(document)


@pytest.fixture
def document() -> dict[str, Any]:
    return read(FILE.read_text(encoding="utf-8"))


def commands(document: dict[str, Any]) -> list[list[str]]:
    """Return the simple commands of all phases."""
    lines = [value for key, value in document.items() if key.endswith("Command") and isinstance(value, str)]
    return [part for line in lines for part in docs.Command(FILE, 1, line).parts]


def test_command_of_the_dev_container_is_accepted_by_its_parser(document: dict[str, Any]) -> None:
    found = commands(document)
    assert ["make", "setup"] in found
    ours = [words for words in found if words[0] != "apt-get"]
    assert [problem for words in ours if (problem := cli.problem(words))] == []


def test_dev_container_asks_for_no_privileges(document: dict[str, Any]) -> None:
    assert not {"privileged", "capAdd", "securityOpt", "runArgs", "mounts"} & set(document)
    assert document["remoteUser"] != "root"


def test_dev_container_agrees_with_the_makefile(document: dict[str, Any]) -> None:
    # The environment that the Makefile makes; tests/platforms/test_image.py compares the packages.
    makefile = (ROOT / "Makefile").read_text()
    assert "VENV := .venv\n" in makefile
    assert document["remoteEnv"]["PATH"].startswith("${containerWorkspaceFolder}/.venv/bin:")
    assert document["hostRequirements"]["cpus"] >= 2
    for port in document["forwardPorts"]:
        assert str(port) in document["portsAttributes"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"onCreateComand": "make setup"}, "onCreateComand"),
        ({"forwardPorts": "8000"}, "forwardPorts"),
    ],
)
def test_mistake_in_the_dev_container_file_is_reported(
    change: dict[str, Any], said: str, document: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError, match=said):
        read(json.dumps({**document, **change}))
    assert cli.problem(["make", "stup"]) is not None
