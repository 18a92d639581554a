"""Labs from files of Mininet, P4 tutorials and p4-utils."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo import mininet_topo
from mrc_topo.base.document import DocumentError
from mrc_topo.labfile import LabError, load_lab, parse_lab
from mrc_topo.schema import HEADER_BYTES
from mrc_topo.topology import Topology
from mrclab import Lab
from mrclab.cli import app as cli
from topo.strategies import graphs

CUSTOM = """
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import CPULimitedHost, Host
from mininet.topo import Topo
from mininet.util import irange

class Quiet(Host):
    pass

class Ring(Topo):
    def build(self, n=3, bw=10):
        for at in irange(1, n):
            self.addSwitch(f"s{at}", dpid=str(at))
            self.addLink(self.addHost(f"h{at}", cls=Quiet, ip=f"10.0.0.{at}"), f"s{at}", port2=7, delay=20)
        for at in irange(1, n):
            self.addLink(f"s{at}", f"s{at % n + 1}", bw=bw, delay="500us", loss=1, max_queue_size=9, use_htb=True)

setLogLevel("info")
topos = {"ring": lambda *args, **options: Ring(*args, **options), "other": lambda: 3}
if __name__ == "__main__":
    Mininet(topo=Ring()).start()
"""
TUTORIAL = {
    "hosts": {"h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["touch never"]}, "h2": {}},
    "switches": {"s1": {"runtime_json": "s1.json"}, "s2": {"program": "build/x.json"}},
    "links": [["h1", "s1-p4"], ["s2-p3", "s1-p1", "2ms", 0.5], ["s2-p2", "h2", 5]],
}
P4_UTILS = {
    "p4_src": "x.p4",
    "topology": {
        "default": {"bw": 5, "auto_arp_tables": False},
        "links": [["h1", "r1", {"delay": "2msec", "loss": 2.5}], ["r1", "s1", {"port2": 6, "weight": 3}], ["s1", "h2"]],
        "hosts": {"h1": {}, "h2": {}},
        "switches": {"s1": {}},
        "routers": {"r1": {"int_conf": "r1.conf"}},
    },
}
LEFT_OUT = "left out, as a lab has nothing of the kind: "


def links(topology: Topology) -> Counter[Any]:
    """Return the ends and settings of all links."""
    assert topology.lab.topology is not None
    limits = {at: link.queue.limit for at, link in enumerate(topology.lab.topology.links) if link.queue is not None}
    return Counter(
        (frozenset(end.partition(":")[0] for end in link.ends), link.rate, link.delay, link.loss, limits.get(at))
        for at, link in enumerate(topology.lab.topology.links)
    )


def main(*words: object) -> int:
    """Return the exit code of a command of mrclab."""
    with mock.patch.object(sys, "argv", ["mrclab", *map(str, words)]), pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def custom(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "custom.py"
    path.write_text(CUSTOM, encoding="utf-8")
    return path


OPTIONS = {"bw": st.sampled_from([1, 0.5, 1000, 2.25]), "delay": st.integers(0, 900)}
MORE = {"loss": st.integers(0, 100), "max_queue_size": st.integers(1, 1000)}


def settings(one: str, other: str, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what `links` has for a link with options whose delay is in ms."""
    rate = int(options["bw"] * 10**6) if "bw" in options else None
    delay = options["delay"] * 10**6 if "delay" in options else None
    limit = options["max_queue_size"] * (4096 + HEADER_BYTES) if "max_queue_size" in options else None
    return frozenset((one, other)), rate, delay, options.get("loss", 0) / 100, limit


@given(st.data(), graphs(most_switches=4))
def test_any_network_has_the_same_nodes_links_and_settings_as_a_lab(data: st.DataObject, drawn: Topology) -> None:
    assert drawn.lab.topology is not None
    graph, wanted, plain, utils, tutorial = drawn.lab.topology, Counter[Any](), Counter[Any](), [], []
    installed = [importlib.import_module("mininet.topo").Topo] if importlib.util.find_spec("mininet") else []
    topos = [cls() for cls in (mininet_topo.Topo, *installed)]
    for topo in topos:
        [topo.addHost(name) for name in graph.hosts]
        [topo.addSwitch(name) for name in graph.switches]
    for one, other in (link.ends for link in graph.links):
        timed = data.draw(st.fixed_dictionaries({}, optional=OPTIONS))
        options = timed | data.draw(st.fixed_dictionaries({}, optional=MORE))
        wanted[settings(one, other, options)] += 1
        plain[settings(one, other, {"delay": 0} | timed)] += 1
        for topo in topos:
            topo.addLink(one, other, **options | ({"delay": f"{timed['delay']}ms"} if "delay" in timed else {}))
        utils.append([one, other, options])
        tutorial.append([one, other, timed.get("delay", 0), timed.get("bw")])
    labs = [parse_lab(yaml.safe_dump(mininet_topo.of_topo(topo, "X", {"name": "x"}).data)) for topo in topos]
    nodes: dict[str, Any] = {
        "hosts": {name: {} for name in graph.hosts},
        "switches": {name: {} for name in graph.switches},
    }
    labs.append(parse_lab(json.dumps({"topology": nodes | {"links": utils}}), "x.json"))
    for lab in labs:
        assert links(lab) == wanted
        assert {host.name for host in lab.hosts} == set(graph.hosts)
        assert {switch.name for switch in lab.switches} == set(graph.switches)
        assert lab.notes == ()
    assert links(parse_lab(json.dumps(nodes | {"links": tutorial}), "x.json")) == plain


@pytest.mark.parametrize("installed", [True, False])
def test_a_custom_file_is_a_lab_with_and_without_mininet(
    custom: pathlib.Path, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        pytest.importorskip("mininet.topo", reason="Mininet is not installed")
    else:
        for name in ("mininet", "mininet.topo"):
            monkeypatch.setitem(sys.modules, name, None)
    read = mininet_topo.load(str(custom), "ring,4,bw=2.5")
    lab = parse_lab(yaml.safe_dump(read.data))
    assert read.notes == ("left out, as a lab has nothing of the kind: hosts: cls, ip; links: use_htb; switches: dpid",)
    assert lab.lab.name == "ring"
    assert (len(lab.hosts), len(lab.switches), lab.links["s1--s2"].spec.rate) == (4, 4, 2_500_000)
    assert (lab.switch("s3").peer(7).node, lab.links["h3:0"].spec.delay) == ("h3", 20_000)
    assert mininet_topo.load(str(custom), "Ring").data["topology"]["hosts"] == ["h1", "h2", "h3"]
    assert (sys.modules["mininet"] is None) is not installed
    assert [name for name, module in sys.modules.items() if isinstance(module, mininet_topo._StandIn)] == []


@pytest.mark.parametrize(
    ("old", "new", "topo", "says"),
    [
        ("", "", "rink", "custom.py: --topo: no topology 'rink'; there are ring, other, Ring"),
        ("", "", "other", "custom.py: other: gives int, not a Topo"),
        ("", "", "ring,1,2,3", "custom.py:20: TypeError: .*arguments follow the name: --topo NAME,3"),
        ("import irange", "import (", "ring", "custom.py:6: SyntaxError"),
        ("n=3", "n=no", "ring", "custom.py:12: NameError: name 'no' is not defined"),
        ("topos =", "raise SystemExit(3)\ntopos =", "ring", "custom.py:20: SystemExit: 3"),
        ("500us", "5 parsecs", "ring", "custom.py: s1 -- s2: delay: '5 parsecs' is not usable; write a time such as"),
        ("loss=1", "loss=101", "ring", "custom.py: s1 -- s2: loss: input should be less than or equal to 1"),
        ('f"s{at}", dpid', '"s--1", dpid', "ring", "custom.py: s--1: 's--1' is no name of a node"),
        ('"other": ', '"other": 4, "more": ', "ring", "custom.py: topos: must be a dictionary of functions"),
    ],
)
def test_bad_custom_files_are_refused_with_file_and_place(
    custom: pathlib.Path, capsys: pytest.CaptureFixture[str], old: str, new: str, topo: str, says: str
) -> None:
    custom.write_text(CUSTOM.replace(old, new) if old else CUSTOM, encoding="utf-8")
    with pytest.raises(DocumentError, match=says):
        mininet_topo.load(str(custom), topo)
    assert main("run", "all_to_all", "--custom", custom, "--topo", topo, "--clock", "virtual") == 2
    assert "mrclab: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"s1-p4"', '"s9-p4"', r"t.json:1: links.0: there is no node 's9-p4'; the first are h1, h2, s1, s2"),
        ('["h1", "s1-p4"]', '["h1"]', r"t.json:1: links.0: a link is \[NODE, NODE\]"),
        ("0.5", '"fast"', r"t.json:1: links.1: bw: 'fast' is not usable; write Mbit/s"),
        ('"s1-p4"', '"s1-p1"', r"t.json:1: links.1: port 1 of s1 has a link already"),
        ('"switches"', '"boxes"', r"t.json:1: switches: must be a mapping of names; a topology of P4 tutorials"),
        ('"h2": {}', '"h2": 3', r"t.json:1: hosts.h2: must be a mapping; write \{\}"),
        ('"h2": {}', '"s1": {}', r"t.json:1: switches.s1: is the name of another node, too"),
    ],
)
def test_bad_json_is_refused_with_file_and_place(tmp_path: pathlib.Path, old: str, new: str, says: str) -> None:
    text = json.dumps(TUTORIAL)
    assert old in text
    with pytest.raises(LabError, match=says):
        parse_lab(text.replace(old, new), "t.json", tmp_path)


def test_ports_units_and_what_a_lab_lacks_are_those_of_the_json(tmp_path: pathlib.Path) -> None:
    (folder := tmp_path / "Pod topo").mkdir()
    (folder / "topology.json").write_text(json.dumps(TUTORIAL, indent="\t"), encoding="utf-8")
    lab = load_lab(folder / "topology.json")
    assert (lab.lab.name, lab.switch("s1").peer(4).node) == ("pod-topo", "h1")
    settings = [(each.rate, each.delay) for each in lab.lab.topology.links]
    assert settings == [(None, None), (500_000, 2_000_000), (None, 5_000_000)]
    assert lab.notes == (LEFT_OUT + "hosts: commands, ip, mac; switches: program, runtime_json",)
    (folder / "my.yaml").write_text("name: mine\ntopology: {from: topology.json}\n", encoding="utf-8")
    assert load_lab(folder / "my.yaml").links.keys() == lab.links.keys()
    other = parse_lab(json.dumps(P4_UTILS), "p4app.json")
    whole = [(each.rate, each.delay, each.loss) for each in other.lab.topology.links]
    assert whole == [(5_000_000, 2_000_000, 0.025), (5_000_000, None, 0), (5_000_000, None, 0)]
    assert other.switch("s1").peer(6).node == "r1"
    assert other.notes == (LEFT_OUT + "file: p4_src; links: auto_arp_tables, weight; routers: int_conf",)
    # Reading a lab runs no code.
    (folder / "code.py").write_text("raise AssertionError", encoding="utf-8")
    (folder / "my.yaml").write_text("name: mine\ntopology: {from: code.py}\n", encoding="utf-8")
    with pytest.raises(LabError, match=r"my.yaml:2: topology.from: code.py: .* mrclab up --custom code.py"):
        load_lab(folder / "my.yaml")


def test_all_to_all_passes_on_a_lab_of_each_kind(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], custom: pathlib.Path
) -> None:
    class Pair(mininet_topo.Topo):
        def build(self, loss: int = 0) -> None:
            for name in ("h1", "h2"):
                self.addLink(self.addHost(name, cpu=0.5), "s1", bw=10, delay=20, loss=loss)
            self.addSwitch("s1")

    for name, document in (("topology", TUTORIAL), ("p4app", P4_UTILS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    plain: dict[str, Any] = {}
    for source in (Pair, Pair(loss=1), tmp_path / "topology.json", str(tmp_path / "p4app.json")):
        for keys in (plain, plain | {"seed": 3}):
            with Lab(source, **keys) as lab:
                assert lab.run("all_to_all", iterations=1, block="16KiB").passed
            assert f": {LEFT_OUT}" in capsys.readouterr().err
    assert lab.topology.lab.seed == 3
    words = ("--custom", custom, "--topo", "ring", "--clock", "virtual", "-o", tmp_path / "out")
    assert main("run", "all_to_all", *words) == 0
    assert main("run", "--again", tmp_path / "out") == 0
    assert main("run", "all_to_all", "--lab", "tiny", *words) == 2
    assert main("up", "--topo", "ring") == 2


@pytest.mark.lab
def test_up_takes_custom_topologies_and_json(custom: pathlib.Path, tmp_path: pathlib.Path) -> None:
    custom.write_text(CUSTOM.replace('"ring"', '"mn-ring"'), encoding="utf-8")
    (tmp_path / "mn-pair.json").write_text(json.dumps(TUTORIAL), encoding="utf-8")
    labs: dict[str, list[object]] = {
        "mn-ring": ["--custom", custom, "--topo", "mn-ring"],
        "mn-pair": [tmp_path / "mn-pair.json"],
    }
    for name, words in labs.items():
        try:
            assert main("up", *words) == 0
            assert main("run", "all_to_all", "--lab", name, "--clock", "real", "-o", tmp_path / name) == 0
        finally:
            main("down", name)
