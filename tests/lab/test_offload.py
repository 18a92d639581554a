"""Interfaces that join no segments."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from mrclab.lab.switches import bmv2
from support.namespaces import run

pytestmark = pytest.mark.netns


def is_on(interface: str, what: str) -> bool:
    """Return whether one of `bmv2.SWITCHES` is on: a getter of ethtool has the number before its setter's."""
    value = array.array("I", [bmv2.SWITCHES[what] - 1, 0])
    request = struct.pack("16sP16x", interface.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, bmv2.SIOCETHTOOL, request)
    return bool(value[1])


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    names = f"oa{os.getpid() % 100000}", f"ob{os.getpid() % 100000}"
    run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
    yield names
    run("ip", "link", "del", names[0])


def test_all_that_libpcap_asks_for_is_switched_off(pair: tuple[str, str]) -> None:
    assert is_on(pair[0], "tso")
    bmv2.switch_off([pair[0], "no-such-one"])
    on = {what for what in ("tso", "gso", "gro") if is_on(pair[0], what)}
    assert on == set()
    assert is_on(pair[1], "tso")
