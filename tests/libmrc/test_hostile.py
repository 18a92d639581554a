"""A short campaign of hostile programs; `python -m support.hostile.campaign` runs longer ones."""

from __future__ import annotations

import shutil

import pytest

from support.hostile.campaign import campaign

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


def test_an_agent_survives_programs_that_treat_it_badly() -> None:
    outcome = campaign(seconds=4.0, kills=10, seed=1)
    assert not outcome.wrong
    assert outcome.rounds > 0
    assert outcome.runs["killed"] >= 10
    assert sum(outcome.ejected.values()) > 0
