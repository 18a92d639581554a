"""Interfaces that join no segments."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mrc_control.lab import offload
from support.namespaces import run

pytestmark = pytest.mark.netns


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    names = f"oa{os.getpid() % 100000}", f"ob{os.getpid() % 100000}"
    run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
    yield names
    run("ip", "link", "del", names[0])


def test_all_that_libpcap_asks_for_is_switched_off(pair: tuple[str, str]) -> None:
    assert offload.is_on(pair[0], "tso")
    offload.switch_off([pair[0], "no-such-one"])
    on = {what for what in ("tso", "gso", "gro") if offload.is_on(pair[0], what)}
    assert on == set()
    assert offload.is_on(pair[1], "tso")
