"""Tunnels are tried before a lab uses them: what does not come through is named, by direction."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from mrc_machines import probe, session
from mrc_machines.coordinator import silent_tunnels
from mrc_machines.sources import digest
from mrc_topo.labfile import parse_lab
from mrc_topo.placement import Placement
from p4lite.switch.fabric.values import TunnelStats

TOKEN = "1234"
SECONDS = 60.0


@contextlib.contextmanager
def tunnel() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        one.connect(other.getsockname())
        other.connect(one.getsockname())
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


def test_tunnels_that_work_are_not_silent_and_nothing_is_left_in_them() -> None:
    with tunnel() as (a, b), tunnel() as (c, d), ThreadPoolExecutor(2) as pool:
        ends = [{"first": a, "second": c}, {"first": b, "second": d}]
        works = [pool.submit(probe.probe, each, TOKEN, SECONDS) for each in ends]
        assert [work.result() for work in works] == [[], []]
        for each in ends:
            probe.drain(each)
        for end in (a, b, c, d):
            with pytest.raises(BlockingIOError):
                end.recv(1)


def test_a_tunnel_that_works_in_one_direction_is_silent_at_one_end() -> None:
    with tunnel() as (a, b):
        over = threading.Event()

        def deaf() -> None:
            """Make an end of a tunnel to which nothing comes."""
            while not over.wait(0.02):
                b.send(probe.MAGIC + TOKEN.encode() + b" silent")

        thread = threading.Thread(target=deaf)
        thread.start()
        assert probe.probe({"x": a}, TOKEN, 0.5) == []
        over.set()
        thread.join()
        probe.drain({"x": a, "y": b})
        a.send(b"something else")
        assert probe.probe({"x": b}, TOKEN, 0.3) == ["x"]


def test_an_end_whose_peer_is_not_there_is_silent() -> None:
    with tunnel() as (a, b):
        b.close()
        assert probe.probe({"x": a}, TOKEN, 0.3) == ["x"]


def placed() -> Placement:
    lab = {
        "name": "two", "planes": 1, "t0_per_plane": 2, "t1_per_plane": 1, "hosts": 2, "hosts_per_t0": 1,
        "machines": {
            "m1": {"address": "10.0.0.1", "hosts": ["h0"], "switches": ["p0-t0.0", "p0-t1.0"]},
            "m2": {"ssh": "y", "address": "10.0.0.2", "hosts": ["h1"], "switches": ["p0-t0.1"]},
        },
    }  # fmt: skip
    return Placement(parse_lab(yaml.safe_dump(lab)))


def test_a_run_names_tunnels_through_which_little_came() -> None:
    placement = placed()
    (link,) = placement.tunnels

    def counts(*each: tuple[int, int]) -> dict[str, dict[str, TunnelStats]]:
        """Of both machines, sent and received."""
        return {f"m{k}": {link: TunnelStats(sent, got, 0, 0, 0, 0)} for k, (sent, got) in enumerate(each, 1)}

    before = counts((1000, 1000), (1000, 1000))
    assert session.silent_tunnels(placement, before, counts((2000, 1990), (1999, 1998))) == []
    (said,) = session.silent_tunnels(placement, before, counts((2000, 2000), (2000, 1003)))
    assert f"tunnel {link}: of 1000 datagrams from machine m1 (10.0.0.1:47000), 3 arrived at machine m2" in said
    assert session.silent_tunnels(placement, before, counts((1010, 1000), (1000, 1000))) == []
    lost = {"m1": counts((9000, 0), (0, 0))["m1"]}
    assert session.silent_tunnels(placement, before, lost) == []


def test_silent_tunnels_are_named_with_both_addresses() -> None:
    placement = placed()
    (link,) = placement.tunnels
    assert silent_tunnels(placement, {"m1": [], "m2": []}) == []
    (said,) = silent_tunnels(placement, {"m1": [], "m2": [link, "no such link"]})
    assert f"tunnel {link}: no datagram from 10.0.0.1:47000 arrives at machine m2 (10.0.0.2:47000)" in said


def test_sources_differ_by_content_and_name_and_by_nothing_else(tmp_path: pathlib.Path) -> None:
    def tree(name: str, **files: str) -> str:
        folder = tmp_path / name / "package"
        folder.mkdir(parents=True)
        for key, text in files.items():
            (folder / key.replace("_", ".")).write_text(text)
        return digest([folder])

    one = tree("one", a_py="x", b_c="y")
    assert tree("same", a_py="x", b_c="y", cache_pyc="z") == one
    assert len({one, tree("content", a_py="x", b_c="z"), tree("name", c_py="x", b_c="y")}) == 3
