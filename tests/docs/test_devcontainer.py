""".devcontainer/devcontainer.json asks for no privileges, and its commands can be typed."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from support import cli, docs

FILE = pathlib.Path(__file__).parents[2] / ".devcontainer" / "devcontainer.json"


@pytest.fixture
def document() -> dict[str, Any]:
    """JSON with whole lines of comments."""
    return dict(json.loads(re.sub(r"^\s*//.*$", "", FILE.read_text(encoding="utf-8"), flags=re.M)))


def test_command_of_the_dev_container_is_accepted_by_its_parser(document: dict[str, Any]) -> None:
    lines = [value for key, value in document.items() if key.endswith("Command")]
    commands = [part for line in lines for part in docs.Command(FILE, 1, line).parts]
    assert ["make", "setup"] in commands
    assert [problem for words in commands if (problem := cli.problem(words))] == []


def test_dev_container_asks_for_no_privileges(document: dict[str, Any]) -> None:
    assert not {"privileged", "capAdd", "securityOpt", "runArgs", "mounts"} & set(document)
    assert document["remoteUser"] != "root"
