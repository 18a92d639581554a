"""Cluster files that cannot be: file, line, key and remedy, before anything is computed."""

from __future__ import annotations

import pathlib

import pytest

from mrc_fluid.clusterfile import ClusterError, builtin_clusters, load_cluster, parse_cluster

GOOD = "name: c\nradix: 16\nplanes: 2\nnics: 64\nev: {size: 16, active: 8}\njobs: [{name: j}]\n"

WRONG = [
    ("nics: 64", "nics: 200", "c.yaml:2: radix: radix too small: 200 NICs need 25 T0s", "lower nics to 128"),
    ("radix: 16", "radix: 16\nt1_per_plane: 12", "c.yaml:2: radix: a T0 needs 8 + 12 = 20 ports", "raise radix"),
    ("size: 16", "size: 18", "c.yaml:5: ev.size: more EVs than paths: 18 EVs", "lower ev.size to 16 at most"),
    ("active: 8", "active: 7", "c.yaml:5: ev.active: 7 EVs cannot be spread equally", "multiple of 2"),
    ("active: 8", "active: 8, min_active: 9", "c.yaml:5: ev.active: min_active (9)", "must hold"),
    ("name: j}", "name: j, group: 7}", "c.yaml:6: jobs.0.group: 64 NICs cannot be divided", "divisor of 64"),
    ("name: j}", "name: j, peers: 64}", "c.yaml:6: jobs.0.peers: 64 peers", "63 at most"),
    ("name: j}", "name: j, nics: 100}", "c.yaml:6: jobs: the jobs take 100 NICs", "lower nics"),
    ("name: j}", "name: j}, {name: k}", "c.yaml:6: jobs.1.nics: two jobs take all", "how many"),
    ("jobs:", "bin: 20s\njobs:", "c.yaml:6: bin: longer than duration", "lower it"),
    ("jobs:", "failures: [{fail: p9-t1.0}]\njobs:", "c.yaml:6: failures.0.fail: nothing is called 'p9", "p1-t1.7"),
    ("jobs:", "failures: [{fail: t1s, count: 17}]\njobs:", "c.yaml:6: failures.0.fail: 17 t1s", "has 16"),
    ("jobs:", "failures: [{fail: t1s, repeat: 2}]\njobs:", "c.yaml:6: failures.0.repeat: needs", "every"),
    ("jobs:", "trace: none.csv\njobs:", "none.csv: cannot be read", "No such file"),
    (
        "jobs:",
        "random: [{fail: links, between: 1us, repair: 1s}]\njobs:",
        "random.0.between: about 10000000 fail",
        "raise",
    ),
    ("radix: 16", "radx: 16", "c.yaml:2: radx: unknown key", "did you mean 'radix'?"),
    ("nics: 64", "nics: 1", "c.yaml:4: nics", "greater than or equal to 2"),
]


@pytest.mark.parametrize(("old", "new", "begins", "remedy"), WRONG, ids=[each[1][:24] for each in WRONG])
def test_what_is_wrong_is_named_with_its_place_and_remedy(
    tmp_path: pathlib.Path, old: str, new: str, begins: str, remedy: str
) -> None:
    parse_cluster(GOOD, "c.yaml")
    assert old in GOOD
    with pytest.raises(ClusterError) as error:
        parse_cluster(GOOD.replace(old, new, 1), "c.yaml", tmp_path)
    assert begins in str(error.value)
    assert remedy in str(error.value)


def test_a_trace_is_read_and_its_mistakes_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.csv").write_text("at,element,for\n1s,p0-t0.1--p0-t1.2,500ms\n2s,h3:1,\n")
    events = parse_cluster(GOOD + "trace: t.csv\n", "c.yaml", tmp_path).events
    assert [(event.at, event.by, event.name) for event in events] == [
        (10**9, 1, "p0-t0.1--p0-t1.2"), (15 * 10**8, -1, "p0-t0.1--p0-t1.2"), (2 * 10**9, 1, "h3:1"),
    ]  # fmt: skip
    (tmp_path / "t.csv").write_text("at,element,for\n1s,p7-t0.1,\nsoon,h0:0,\n")
    with pytest.raises(ClusterError) as error:
        parse_cluster(GOOD + "trace: t.csv\n", "c.yaml", tmp_path)
    assert "t.csv:2: nothing is called 'p7-t0.1'" in str(error.value)
    assert "t.csv:3: 'soon' is not a time" in str(error.value)


@pytest.mark.parametrize("name", builtin_clusters())
def test_clusters_that_come_with_the_project_can_be(name: str) -> None:
    assert load_cluster(name).cluster.name == name


def test_an_unknown_cluster_is_refused_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match=r"no cluster of that name; known: .*cluster-131k"):
        load_cluster("cluster-13k")
