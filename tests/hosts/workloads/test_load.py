"""Workload `load`: how much it offers, from where to where, and what it refuses."""

from __future__ import annotations

import itertools
import pathlib
from collections import Counter
from typing import Any

import pytest

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_host.workloads.base import Surroundings
from mrc_host.workloads.flows import Flow
from mrc_host.workloads.load import Load
from mrc_host.workloads.sizes import PUBLISHED, SizeDistribution
from mrc_topo.base.plain import encode

SIZE, BPS = 8, 10**11
LAB = Surroundings(BPS, [0, 0, 0, 0, 1, 1, 1, 1], 7, True)


def flows(size: int = SIZE, lab: Surroundings = LAB, **params: Any) -> list[Flow]:
    """Return all flows, in the order of the list."""
    matrix = Load.matrix(size, Load.complete(Load.fitted(params, lab)))
    return sorted(itertools.chain(*matrix.out), key=lambda each: each.number)


@pytest.mark.parametrize("arrivals", ["poisson", "deterministic", "bursty"])
@pytest.mark.parametrize("name", ["web_search", "hadoop"])
def test_flows_offer_the_load(name: str, arrivals: str) -> None:
    time_ns = 3_000_000_000 if name == "web_search" else 150_000_000
    made = flows(load=0.4, time_ns=time_ns, sizes=name, arrivals=arrivals)
    offered = sum(each.bytes for each in made) * 8e9 / time_ns / (SIZE * BPS)
    assert offered == pytest.approx(0.4, rel=0.06)
    assert all(0 <= each.start_ns < time_ns for each in made)


def test_arrivals_have_the_gaps_of_their_kind() -> None:
    def variation(arrivals: str) -> float:
        starts = [each.start_ns for each in flows(time_ns=50_000_000, sizes="hadoop", arrivals=arrivals)]
        gaps = [after - before for before, after in itertools.pairwise(starts)]
        mean = sum(gaps) / len(gaps)
        return float(sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2)

    assert variation("deterministic") < 1e-6
    assert variation("poisson") == pytest.approx(1, rel=0.1)
    assert variation("bursty") == pytest.approx(2 * 8 - 1, rel=0.2)


def test_the_seed_decides_and_the_lab_gives_one() -> None:
    once = flows(sizes="hadoop")
    assert once == flows(sizes="hadoop", seed=7) != flows(sizes="hadoop", seed=8)


def test_published_means_are_those_of_the_sources() -> None:
    means = {name: SizeDistribution(points).mean_bytes() for name, points in PUBLISHED.items()}
    assert {name: round(mean) for name, mean in means.items()} == {
        "web_search": 1_711_250, "hadoop": 120_421, "ali_storage": 40_870, "google_rpc": 2919,
    }  # fmt: skip


def share(made: list[Flow], wanted: set[tuple[int, int]]) -> float:
    return sum((each.source, each.target) in wanted for each in made) / len(made)


def test_matrices_choose_pairs() -> None:
    given: dict[str, Any] = {"sizes": "hadoop", "time_ns": 30_000_000, "load": 0.3}
    every = set(itertools.permutations(range(SIZE), 2))
    near = {(a, b) for a, b in every if LAB.racks[a] == LAB.racks[b]}
    assert share(flows(**given), near) == pytest.approx(3 / 7, rel=0.1)
    assert share(flows(**given, matrix="rack", local=0.8), near) == pytest.approx(0.8, rel=0.05)
    assert share(flows(**given, matrix="rack", local=0), near) == 0
    made = flows(**given, matrix="permutation")
    targets = {each.source: each.target for each in made}
    assert {(each.source, each.target) for each in made} == set(targets.items())
    assert sorted(targets.values()) == list(range(SIZE))
    incast = itertools.groupby(flows(**given, matrix="incast", fan_in=5), key=lambda each: each.start_ns)
    for _, group in incast:
        together = list(group)
        assert (len(together), len({each.target for each in together})) == (5, 1)
        assert len({each.source for each in together}) == 5
    made = flows(**given, matrix="hot", hot=0.2)
    got = Counter(each.target for each in made)
    assert got.most_common(1)[0][1] / len(made) == pytest.approx(0.2 * 7 / 8 + 1 / 8 / 7, rel=0.25)
    made = flows(**given, matrix=[[0, 1, 1], [2, 3, 1], [4, 5, 1], [6, 7, 1], [1, 0, 2]])
    assert share(made, {(1, 0)}) == pytest.approx(1 / 3, rel=0.1)


def test_an_all_to_all_runs_beside_the_load() -> None:
    made = flows(sizes="hadoop", all_to_all_bytes=99)
    beside, load = made[: SIZE * (SIZE - 1)], made[SIZE * (SIZE - 1) :]
    assert {(each.source, each.target) for each in beside} == set(itertools.permutations(range(SIZE), 2))
    assert {(each.bytes, each.start_ns) for each in beside} == {(99, 0)}
    assert [each.bytes for each in load] == [each.bytes for each in flows(sizes="hadoop")]


def test_a_trace_is_stretched_to_the_load(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.csv").write_text("source,target,bytes,start\n0,1,1MB,5us\n3,2,1MB,6us\n0,1,2MB,9us\n")
    params = Load.placed({"trace": "t.csv", "load": 0.2}, tmp_path)
    made = flows(**params)
    # 4 MB at 20 % of 8 x 100 Gb/s.
    assert [each.start_ns for each in made] == [0, 50_000, 200_000]
    assert [(each.source, each.target, each.bytes) for each in made] == [
        (0, 1, 10**6),
        (3, 2, 10**6),
        (0, 1, 2 * 10**6),
    ]


def test_flows_share_memory_only_where_packets_have_no_bytes() -> None:
    given: dict[str, Any] = {"sizes": "hadoop", "load": 0.3, "time_ns": 2_000_000}
    made = flows(**given)
    assert {each.offset for each in made} == {0}
    own = flows(lab=Surroundings(BPS, LAB.racks, 7, False), **given)
    assert [(each.source, each.target, each.bytes) for each in own] == [
        (each.source, each.target, each.bytes) for each in made
    ]
    for rank in range(SIZE):
        mine = sorted((each.offset, each.offset + each.bytes) for each in own if rank in (each.source, each.target))
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(mine))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"load": 0}, "load is 0"),
        ({"load": 1.01}, "load"),
        ({"load": True}, "load"),
        ({"sizes": []}, "empty"),
        ({"sizes": [[1000, 50]]}, "100"),
        ({"sizes": [[1000, 50], [900, 100]]}, "row 1"),
        ({"sizes": "unheard"}, "web_search"),
        ({"matrix": "unheard"}, "permutation"),
        ({"matrix": []}, "empty"),
        ({"matrix": [[0, 1, 1], [0, 8, 1]]}, "row 1: there is no rank 8"),
        ({"matrix": [[0, 1, 1]]}, "12.5%"),
        ({"matrix": [[0, 0, 1]]}, "row 0"),
        ({"matrix": "hot"}, "receives"),
        ({"matrix": "incast"}, "fan_in"),
        ({"matrix": "rack", "racks": [0] * 8}, "other racks"),
        ({"matrix": "rack", "racks": [0]}, "racks"),
        ({"trace": [[0, 9, 5, 0], [0, 1, 5, 9]]}, "rank 9"),
        ({"trace": [[0, 1, 5, 0]]}, "begin at once"),
        ({"time_ns": 1}, "no flow"),
        ({"time_ns": 10**12}, "give less"),
        ({"arrivals": "never"}, "poisson"),
        ({"host_bps": 0}, "host_bps"),
    ],
)
def test_what_makes_no_load_is_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        flows(**params)


@pytest.mark.parametrize(
    ("key", "text", "place"),
    [
        ("sizes", "size,share\n", ":1"),
        ("sizes", "size,share\n1kB,50\n2kB,40\n", ":3"),
        ("sizes", "bytes\n5\n", ":1"),
        ("sizes", "size,share\n1kB,x\n", ":2"),
        ("matrix", "source,target,weight\n0,1,1\n0,x,1\n", ":3"),
        ("matrix", "source,target,weight\n0,1,1\n0,70,1\n", ":3"),
        ("matrix", "source,target,weight\n", ":1"),
        ("trace", "source,target,bytes,start\n0,1,1,x\n", ":2"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: pathlib.Path, key: str, text: str, place: str) -> None:
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(WorkloadError, match=rf"f\.csv{place}"):
        flows(**Load.placed({key: "f.csv"}, tmp_path))


def test_a_file_of_sizes_is_carried_in_the_parameters(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s.csv").write_text("size,share\n1kB,50\n2kB,100\n")
    params = Load.placed({"sizes": "s.csv"}, tmp_path)
    assert Load.complete(params).sizes == ((1000, 50.0), (2000, 100.0))
    assert {each.bytes for each in flows(**params, time_ns=10_000)} <= set(range(1000, 2001))
    assert encode(params) == params  # what hosts are told


def test_a_file_that_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(WorkloadError, match="hadoop"):
        WORKLOADS["load"].placed({"sizes": "s.csv"}, tmp_path)
