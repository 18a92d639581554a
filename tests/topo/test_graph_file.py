"""Graphs from containerlab topologies and DOT files."""

from __future__ import annotations

import os
import pathlib
import sys
import textwrap

import pytest

from mrc_topo import draw, export, labfile
from mrc_topo.labfile import LabError, load_lab, parse_lab
from mrc_topo.rules import check_routes
from mrc_topo.shipped import install, requirement
from mrc_topo.topology import Topology
from mrclab.cli import app as cli
from mrclab.lab import describe

CLAB = """
name: leafspine
topology:
  defaults: {kind: nokia_srlinux}
  groups: {servers: {kind: linux}}
  nodes:
    spine1: {type: ixr-d3}
    spine2:
    leaf1: {startup-config: /etc/shadow}
    leaf2: {}
    client1: {kind: linux, exec: ["touch /tmp/never"], binds: ["/:/host"]}
    client2: {group: servers}
  links:
    - endpoints: ["spine1:e1-10", "leaf1:e1-2"]
    - endpoints: ["spine1:e1-9", "leaf2:e1-1"]
    - {endpoints: ["spine2:e1-1", "leaf1:e1-1"], mtu: 1500}
    - type: veth
      endpoints: [{node: spine2, interface: e1-2}, {node: leaf2, interface: e1-2}]
    - endpoints: ["client1:eth1", "leaf1:e1-3"]
    - endpoints: ["client2:eth1", "leaf2:e1-3"]
"""
DOT = """
graph fabric {
  label="a picture"; node [shape=box kind=switch];
  edge [delay="1ms" color=red];
  subgraph cluster_hosts { node [kind=host]; "h-a"; hb }
  s0 -- {s1 s2} [rate="5Mbps"];
  s1:p2 -- s2:p1;
  "h-a" -- s1; hb:eth2 -- s2; hb:eth1 -- s1; "h-a" -- s2
}
"""


MANY = " ".join(f"n{at}" for at in range(100))


def load(folder: pathlib.Path, text: str, file: str = "fabric.clab.yml", **spec: object) -> Topology:
    """Return the lab of a file with this text; `spec` are other keys of `topology`."""
    (folder / file).write_text(text, encoding="utf-8")
    (folder / "my.yaml").write_text(f"name: mine\ntopology: { ({'from': file} | spec)!r}\n", encoding="utf-8")
    return load_lab(folder / "my.yaml")


def dot(folder: pathlib.Path, text: str, **spec: object) -> Topology:
    """Return the lab of a DOT text."""
    pytest.importorskip("pydot", reason="DOT needs the extra `dot`")
    return load(folder, text, "fabric.dot", **spec)


def test_containerlab_nodes_links_and_interfaces_become_a_lab(tmp_path: pathlib.Path) -> None:
    topology = load(tmp_path, CLAB)
    assert [host.name for host in topology.hosts] == ["client1", "client2"]
    assert {each.name: each.tier.name for each in topology.switches} == {
        "spine1": "T1", "spine2": "T1", "leaf1": "T0", "leaf2": "T0",
    }  # fmt: skip
    # Ports follow the natural order of interfaces: e1-9 comes before e1-10.
    assert {port: topology.switch("spine1").peer(port).node for port in (1, 2)} == {1: "leaf2", 2: "leaf1"}
    assert {port: topology.switch("leaf1").peer(port).node for port in (1, 2, 3)} == {
        1: "spine2",
        2: "spine1",
        3: "client1",
    }
    assert check_routes(topology) == 4
    assert topology.lab.topology is not None
    assert topology.lab.topology.source is None
    # A lab that is up reads its file again, elsewhere.
    text = labfile.read_lab(tmp_path / "my.yaml")[0]
    assert parse_lab(text).lab == topology.lab
    assert labfile.read_lab("ring")[0] == labfile.lab_path("ring").read_text(encoding="utf-8"), (
        "others stay as they are"
    )


def test_an_export_of_ours_is_read_again(tmp_path: pathlib.Path) -> None:
    import yaml

    ring = load_lab("ring")
    text = yaml.safe_dump(export.document(ring))
    again = load(tmp_path, text, roles={"s?": "switch"})
    assert {frozenset((each.low, each.high)) for each in again.links.values()} == {
        frozenset((each.low, each.high)) for each in ring.links.values()
    }
    drawn = dot(tmp_path, draw.to_dot(ring))
    assert {each.name for each in drawn.hosts} == {each.name for each in ring.hosts}
    assert len(drawn.links) == len(ring.links)


def test_dot_nodes_edges_subgraphs_and_defaults_become_a_lab(tmp_path: pathlib.Path) -> None:
    topology = dot(tmp_path, DOT)
    assert [host.name for host in topology.hosts] == ["h-a", "hb"]
    assert [port.t0 for port in topology.host("hb").ports] == ["s1", "s2"], "eth1 comes before eth2"
    assert [port.t0 for port in topology.host("h-a").ports] == ["s1", "s2"]
    assert {name: (link.spec.rate, link.spec.delay) for name, link in topology.links.items() if "--" in name} == {
        "s0--s1": (5_000_000, 1_000_000), "s0--s2": (5_000_000, 1_000_000), "s1--s2": (20_000_000, 1_000_000),
    }  # fmt: skip


def test_roles_say_what_a_file_does_not(tmp_path: pathlib.Path) -> None:
    plain = "graph { x1 -- a -- b -- x2 }"
    topology = dot(tmp_path, plain, roles={"x1": "host", "x*": "host"})
    assert [host.name for host in topology.hosts] == ["x1", "x2"]
    with pytest.raises(LabError, match=r"my.yaml:2: topology: no node of fabric.dot is a host: .*host, linux.* roles"):
        dot(tmp_path, plain)
    with pytest.raises(LabError, match=r"my.yaml:2: topology.roles.y\*: no node has such a name; there are x1, a"):
        dot(tmp_path, plain, roles={"y*": "host"})
    with pytest.raises(LabError, match=r"topology.roles.x1: input should be 'host' or 'switch', not 'router'"):
        dot(tmp_path, plain, roles={"x1": "router"})
    assert dot(tmp_path, "graph { a [kind=pc]; b [kind=pc]; a -- s -- b }", host_kinds=["pc"]).lab.hosts == 2


def test_both_directions_of_a_directed_graph_are_one_link(tmp_path: pathlib.Path) -> None:
    text = "digraph { a [kind=host]; b [kind=host]; a -> s; s -> a; s -> b; b -> s }"
    assert len(dot(tmp_path, text).links) == 2
    assert len(dot(tmp_path, "strict graph { a [kind=host]; b [kind=host]; a -- s -- b; s -- a }").links) == 2
    with pytest.raises(LabError, match=r"^fabric.dot: s -- r: s and r have a link already"):
        dot(tmp_path, "graph { a [kind=host]; a -- s -- r; s -- r }")


OUTSIDE = """    - {type: mgmt-net, endpoint: {node: leaf1, interface: e1-9}, host-interface: leaf1}
    - {type: vxlan, endpoint: {node: leaf1, interface: e1-10}, remote: 10.0.0.1, vni: 1, udp-port: 14788}
    - endpoints: ["leaf2:e1-9", "macvlan:eth0"]
    - endpoints: ["host:veth1", "leaf2:e1-10"]
    - {type: dummy, endpoint: {node: client1, interface: eth2}}
"""


def test_links_out_of_the_lab_are_left_out_and_said(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, more = load(tmp_path, CLAB), load(tmp_path, CLAB + OUTSIDE)
    assert plain.notes == ()
    assert list(more.links) == list(plain.links)
    assert more.lab == plain.lab
    (note,) = more.notes
    assert (
        "5 links: fabric.clab.yml:21: topology.links.6 (mgmt-net), fabric.clab.yml:22: topology.links.7 (vxlan)" in note
    )
    assert note.endswith("topology.links.8 (macvlan) and 2 more")
    assert more.for_transport("roce").notes == more.notes
    # Commands say it.
    monkeypatch.setattr(sys, "argv", ["mrclab", "topo", "show", str(tmp_path / "my.yaml")])
    with pytest.raises(SystemExit):
        cli.main()
    assert f"warning: {tmp_path / 'my.yaml'}: {note}" in capsys.readouterr().err
    assert describe.warnings(more, "virtual", "mrc") == [note]


def test_a_node_may_have_the_name_of_a_type_of_links(tmp_path: pathlib.Path) -> None:
    text = CLAB.replace("client1", "host").replace("type: veth", "type: [veth]")
    assert load(tmp_path, text).notes == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"graph {{ {{{MANY}}} -- {{{MANY}}} }}", r"more than 8192 links"),
        ("graph { a -- ", r"my.yaml:2: topology.from: fabric.dot: not DOT: .*line:1"),
        ("a -- b", r"fabric.dot: not DOT"),
        ("graph { a [kind=host]; a -- s; s -- s }", r"^fabric.dot: s -- s: s is linked to itself"),
        ('graph { a [kind=host]; a -- s [rate=fast] }', r"^fabric.dot: a -- s: rate: 'fast' is not a rate"),
        ('graph { a [kind=host]; b [kind=host]; a -- s -- "x/../y" -- b }', r"^fabric.dot: x/../y: .* is no name"),
        ("graph { a [kind=host]; b [kind=host]; a -- s; b }", r"^fabric.dot: b: b has no link"),
        ("graph {" + "subgraph {" * 3000 + "}" * 3001, r"fabric.dot: not usable DOT: nested too deep"),
        ("graph { " + "a" * 100_000 + " }", r"fabric.dot: larger than 100000 bytes"),
    ],
    ids=["many", "unfinished", "no-dot", "loop", "rate", "name", "alone", "nested", "large"],
)  # fmt: skip
def test_bad_dot_is_refused_with_the_file_and_the_edge(tmp_path: pathlib.Path, text: str, says: str) -> None:
    with pytest.raises(LabError, match=says):
        dot(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"spine1:e1-9"', '"spine9:e1-9"', r"fabric.clab.yml:15: topology.links.1: there is no node 'spine9'; spine1,"),
        ('"client1:eth1"', '"hosts:eth1"', r"topology.links.4: there is no node 'hosts'"),
        ('"client1:eth1", ', "", r"links.4: a link between two nodes has endpoints: .*have one of the types host"),
        ("leaf2: {}", "lea--f2: {}", r"topology.links.1: there is no node 'leaf2'"),
        ("client2:", "client_with_a_name_of_more_than_31:", r"yml:12: topology.nodes.client_.* is no name of a node"),
        ("topology:\n", "topologies:\n", r"topology.from: fabric.clab.yml:1: document: has no topology"),
        ("  nodes:\n", "  nodes: [a]\n  nodez:\n", r"fabric.clab.yml:6: topology.nodes: must be a mapping"),
        ("  links:\n", "  links: &a [*a]\n  linkz:\n", r"fabric.clab.yml"),
    ],
)  # fmt: skip
def test_bad_containerlab_files_are_refused_with_file_line_and_remedy(
    tmp_path: pathlib.Path, old: str, new: str, says: str
) -> None:
    assert old in CLAB
    with pytest.raises(LabError, match=says):
        load(tmp_path, CLAB.replace(old, new))


def test_files_are_read_only_beside_the_lab_file_and_only_if_they_are_files(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "labs"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "outside.yml").write_text(CLAB, encoding="utf-8")
    (folder / "link.yml").symlink_to("../outside.yml")
    (folder / "inside.yml").symlink_to("below/fabric.yml")
    os.mkfifo(folder / "pipe.yml")
    (folder / "folder.yml").mkdir()
    (folder / "large.yml").write_text("#" * 1_000_001, encoding="utf-8")
    for file, says in (
        ("../outside.yml", "is not beside the lab file; put it into the same folder or below"),
        (str(tmp_path / "outside.yml"), "is not beside the lab file"),
        ("link.yml", "is not beside the lab file"),
        ("pipe.yml", "a pipe, not a file"),
        ("folder.yml", "a directory, not a file"),
        ("large.yml", "larger than 1000000 bytes"),
        ("none.yml", "No such file"),
        ("fabric.toml", "give a DOT file .*, a containerlab topology"),
    ):
        (folder / "my.yaml").write_text(f"name: mine\ntopology:\n  from: {file}\n", encoding="utf-8")
        with pytest.raises(LabError, match=rf"my.yaml:3: topology.from: .*{says}"):
            load_lab(folder / "my.yaml")
    (folder / "below" / "fabric.yml").write_text(CLAB, encoding="utf-8")
    for file in ("below/fabric.yml", "inside.yml"):
        (folder / "my.yaml").write_text(f"name: mine\ntopology: {{from: {file}}}\n", encoding="utf-8")
        assert load_lab(folder / "my.yaml").lab.hosts == 2


def test_a_file_and_links_of_the_lab_exclude_each_other(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match=r"my.yaml:2: topology.links: the file of topology.from has it"):
        load(tmp_path, CLAB, links=[["a", "b"]])


def test_without_pydot_the_error_has_the_command(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(LabError, match=r"fabric.dot: DOT needs pydot: pip install ") as caught:
        load(tmp_path, textwrap.dedent(DOT), "fabric.dot")
    assert caught.value.packages == requirement("dot")
    assert install("dot") in str(caught.value)


def test_nodes_without_links_are_left_out_with_a_warning(tmp_path: pathlib.Path) -> None:
    tools = CLAB.replace("  links:", "    gnmic: {kind: linux}\n    grafana: {kind: linux}\n  links:")
    tools += '    - endpoints: ["gnmic:eth1", "mgmt-net:gnmic"]\n'
    topology = load(tmp_path, tools)
    assert [host.name for host in topology.hosts] == ["client1", "client2"]
    assert [note for note in topology.notes if "gnmic, grafana" in note]


ALL_LINUX = """
topology:
  defaults: {kind: linux}
  nodes: {rt1: , rt2: , pc1: , pc2: }
  links:
    - endpoints: ["rt1:eth1", "rt2:eth1"]
    - endpoints: ["pc1:eth1", "rt1:eth2"]
    - endpoints: ["pc2:eth1", "rt2:eth2"]
"""


def test_a_fabric_of_linux_nodes_is_refused_with_the_roles_that_help(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError) as refused:
        load(tmp_path, ALL_LINUX)
    text = str(refused.value)
    assert "my.yaml:2: topology: all nodes of fabric.clab.yml are of kind linux" in text
    assert 'roles: {"rt*": switch}' in text
    assert len(load(tmp_path, ALL_LINUX, roles={"rt*": "switch"}).switches) == 2
    # A pattern that would take a host, too, is not proposed.
    with pytest.raises(LabError, match=r'roles: \{"rt1": switch\}'):
        load(tmp_path, ALL_LINUX.replace("pc", "rt1"))


PARALLEL = CLAB + '    - endpoints: ["spine1:e1-11", "leaf1:e1-9"]\n'


def test_parallel_links_are_refused_or_become_one_with_the_rate_of_all(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match=r"fabric.clab.yml:\d+: topology.links.6: .*parallel: merge"):
        load(tmp_path, PARALLEL)
    merged, usual = load(tmp_path, PARALLEL, parallel="merge"), load(tmp_path, CLAB)
    faster = [link for link in usual.links if merged.links[link].spec.rate == 2 * usual.links[link].spec.rate]
    assert merged.links.keys() == usual.links.keys()
    assert len(faster) == 1


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${LEAF}", "leaf9"), ("$LEAF", "leaf9"), ("${NONE:=leaf9}", "leaf9"), ("${NONE:-leaf9}", "leaf9"),
        ("${NONE=leaf9}", "leaf9"), ("${EMPTY:=leaf9}", "leaf9"), ("leaf9${EMPTY=x}", "leaf9"),
        ("${LEAF:=no}", "leaf9"),
        ("leaf9${NONE:+x}", "leaf9"), ("${LEAF+leaf9}", "leaf9"),
    ],
)  # fmt: skip
def test_variables_are_expanded_as_containerlab_does(
    written: str, value: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAF", "leaf9")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NONE", raising=False)
    # What nothing sets stays as it is, and so does the text of an image.
    text = CLAB.replace("leaf1", written).replace("{type: ixr-d3}", '{image: "srl:${NONE}"}')
    assert value in {switch.name for switch in load(tmp_path, text).switches}
