"""What leads to a machine is the user's choice; a lab file has a name in it, and nothing that could be run."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mrc_machines.connect import DEFAULT, VARIABLE, words_for
from mrc_topo.schema import MachineSpec
from mrclab.lab.records.rundir import RunError


def spec(ssh: str | None) -> MachineSpec:
    return MachineSpec(address="10.0.0.1", ssh=ssh)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH is not installed (apt-get install openssh-client)")
def test_ssh_leads_to_a_machine_and_asks_nobody() -> None:
    words = words_for(spec("user@there"), DEFAULT)
    assert words[0] == "ssh"
    assert words[-4:] == ["--", "user@there", "mrclab", "part"]
    assert "BatchMode=yes" in words


def test_this_machine_needs_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "false {ssh}")
    assert words_for(spec(None)) == [sys.executable, "-P", "-m", "mrc_machines.remote"]
    assert words_for(spec("a")) == ["false", "a", "part"]


@pytest.mark.parametrize(
    ("given_words", "hint"),
    [
        ("ssh there mrclab", "has no {ssh} for the machine"),
        ("{ssh} mrclab", "the lab file would choose the program"),
        ("./{ssh} mrclab", "the lab file would choose the program"),
        ("ssh '{ssh}", "No closing quotation"),
        ("", "has no {ssh}"),
        ("no-such-program-here {ssh}", "there is no program 'no-such-program-here' in PATH"),
    ],
)
def test_a_way_that_is_none(given_words: str, hint: str) -> None:
    with pytest.raises(RunError, match="--connect") as caught:
        words_for(spec("there"), given_words)
    assert hint in str(caught.value)


@given(st.text(min_size=1, max_size=30) | st.text("-ab@. $;`'\"{}\n", min_size=1, max_size=10))
def test_no_name_becomes_an_option_or_several_words(name: str) -> None:
    document: dict[str, Any] = {"address": "10.0.0.1", "ssh": name}
    try:
        made = MachineSpec.model_validate(document)
    except ValidationError:
        return
    words = words_for(made, "sh -c '# {ssh}' {ssh}")
    assert words == ["sh", "-c", f"# {name}", name, "part"]
    assert not name.startswith("-")
    assert name.isascii()
    assert not set(name) & set(" \t\n$;&|<>`'\"\\(){}*?!#~%")
