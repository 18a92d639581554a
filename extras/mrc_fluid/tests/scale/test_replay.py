"""Graphs on the fluid model: closed forms, failures, phases beside messages, and the command."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest
import typer.testing

from mrc_fluid import kernels
from mrc_fluid.clusterfile import parse_cluster
from mrc_fluid.replay import ReplayError
from mrc_fluid.replays import fluid, page
from mrc_fluid.replays.fluid import Bed, FluidResult
from mrc_host.graph.generate import bubble
from mrc_host.graph.graph import GraphError
from mrc_host.graph.source import Source
from mrc_topo.base.errors import ExitCode
from mrclab.cli.app import app

CLUSTER = """
name: few
planes: 4
radix: 16
nics: 32
nics_per_t0: 8
t1_per_plane: 8
port_rate: 100Gbps
base_rtt: 10us
ev: {size: 32, active: 16}
jobs: [{name: graph, kind: ring}]
"""
#: What a NIC carries: four ports, less headers, and the share of a full port.
NIC = 4 * 100e9 * 0.97
runner = typer.testing.CliRunner()


def bed(more: str = "") -> Bed:
    return fluid.bed_of_cluster(parse_cluster(CLUSTER + more, "few.yaml"))


def run(source: Source, where: Bed | None = None, **how: Any) -> FluidResult:
    return fluid.run(source, where or bed(), kernels.reference(), **how)


def goal(folder: pathlib.Path, text: str) -> Source:
    path = folder / "x.goal"
    path.write_text(text)
    return Source(file=str(path))


def reducing(folder: pathlib.Path, ranks: int, size: int) -> Source:
    """Return an all-reduce, as Chakra's JSON."""
    row = {"Id": 1, "NodeType": 7, "data_deps": [], "comm_type": 0, "comm_size": size}
    path = folder / "x.0.json"
    path.write_text(json.dumps({"workload_graph": [row]}))
    return Source(file=str(path), ranks=ranks)


def test_ring_all_reduce_takes_what_its_bytes_take(tmp_path: pathlib.Path) -> None:
    size, ranks = 1 << 30, 8
    for detail in ("messages", "phases"):
        made = run(reducing(tmp_path, ranks, size), detail=detail)
        # Below one T0, so that ports are all that limits it.
        payload = NIC * bed().loaded.cluster.path_mtu / (bed().loaded.cluster.path_mtu + 150)
        expected = 2 * (ranks - 1) / ranks * size * 8 / payload
        assert made.summary.times["all"].mean == pytest.approx(expected, rel=0.03)
        assert made.summary.operations["all_reduce"].count == ranks
        assert made.summary.idle == 1


@pytest.mark.parametrize(("stages", "micro"), [(4, 4), (8, 2), (2, 16)])
def test_pipeline_has_the_bubble_of_its_closed_form(stages: int, micro: int) -> None:
    """All stages compute the same where no layer is an embedding's; then nothing but the bubble is idle."""
    # A long sequence and a small model make the output layer and the transfers small.
    source = Source(
        model="llama3-8b", pipeline=stages, micro_batches=micro, sequence=1 << 20, layers=32, bytes_divisor=10**6
    )
    made = run(source)
    assert made.summary.exposed is not None
    computed = made.rank_steps.mean - made.summary.exposed.mean
    # Of the whole step, not of what a rank takes until it has ended its own part.
    assert 1 - computed / made.summary.times["all"].mean == pytest.approx(bubble(stages, micro), abs=0.02)


def test_messages_share_a_port_and_those_of_a_pair_follow_each_other(tmp_path: pathlib.Path) -> None:
    def took(*sends: tuple[int, int]) -> float:
        ranks: dict[int, list[str]] = {rank: ["calc 1"] for rank in range(4)}
        for src, dst in sends:
            ranks[src].append(f"send 100000000b to {dst}")
            ranks[dst].append(f"recv 100000000b from {src}")
        blocks = "\n".join(f"rank {rank} {{\n" + "\n".join(lines) + "\n}" for rank, lines in ranks.items())
        return run(goal(tmp_path, f"num_ranks 4\n{blocks}\n")).summary.times["all"].mean

    one = took((0, 1))
    assert took((2, 1), (0, 3)) == pytest.approx(one, rel=0.01)
    assert took((0, 1), (2, 1)) == pytest.approx(2 * one, rel=0.02)
    assert took((0, 1), (0, 1)) == pytest.approx(2 * one, rel=0.02)
    assert took((0, 1), (0, 2), (0, 3)) == pytest.approx(3 * one, rel=0.02)


def test_units_and_dependencies_take_their_time(tmp_path: pathlib.Path) -> None:
    text = """
num_ranks 2
rank 0 {
a: calc 1000000
b: calc 500000 cpu 1
c: calc 3000000
s: send 10b to 1
s requires c
s irequires b
}
rank 1 {
r: recv 10b from 0
d: calc 2000000
d requires r
}
"""
    made = run(goal(tmp_path, text))
    assert made.summary.times["all"].mean == pytest.approx(6e-3, rel=0.01)
    assert made.summary.exposed is not None
    assert made.summary.exposed.max == pytest.approx(4e-3, rel=0.01)
    # The first rank waits for nothing; where both of its units compute counts once.
    assert made.summary.exposed.mean == pytest.approx(2e-3, rel=0.02)


MOE = Source(
    model="mixtral-8x7b", tensor=2, pipeline=2, data=4, experts=4, micro_batches=2, exchanges=1, utilisation_percent=90
)


def test_phases_are_near_messages() -> None:
    fine, coarse = run(MOE, detail="messages"), run(MOE, detail="phases")
    assert coarse.messages < fine.messages / 2
    assert coarse.summary.times["all"].mean == pytest.approx(fine.summary.times["all"].mean, rel=0.02)


def test_failure_costs_time_and_its_repair_gives_it_back() -> None:
    spread = replace(MOE, placement="random")  # so that most messages cross a T1
    whole = run(spread, steps=2)
    assert [saw for *_, saw in whole.summary.steps] == [False, False]
    step = whole.summary.times["all"].mean
    links = "\n".join(f"  - {{at: 1ms, fail: p{plane}-t1.{number}}}" for plane in range(4) for number in range(6))
    broken = run(spread, bed(f"failures:\n{links}\n"))
    assert broken.summary.times["all"].mean > 1.03 * step
    assert broken.summary.steps[0][3]
    once = run(spread, bed(), steps=2, extra=fluid.event_of(f"p0-t1.3@1ms+{round(step * 5e8)}ns", bed().loaded))
    assert [saw for *_, saw in once.summary.steps] == [True, False]
    assert once.summary.steps[1][2] == pytest.approx(whole.summary.steps[1][2], rel=0.01)


def test_rank_without_a_path_waits_for_its_repair_or_ends_the_run(tmp_path: pathlib.Path) -> None:
    source = goal(tmp_path, "num_ranks 2\nrank 0 {\nsend 100000000b to 1\n}\nrank 1 {\nrecv 100000000b from 0\n}\n")
    took = run(source).summary.times["all"].mean
    ports = [event for plane in range(4) for event in fluid.event_of(f"h1:{plane}@1ms+50ms", bed().loaded)]
    again = run(source, extra=ports).summary.times["all"].mean
    assert again == pytest.approx(took + 50e-3, rel=0.02)
    with pytest.raises(ReplayError, match="rank 0 has no path to rank 1"):
        run(source, extra=[event for event in ports if event.by > 0])


def test_lab_is_taken_as_a_fluid_and_reported(tmp_path: pathlib.Path) -> None:
    source = reducing(tmp_path, 4, 200_000)
    command = [
        "replay",
        "--lab",
        "default",
        "--set",
        f"file={source.file}",
        "--set",
        "ranks=4",
        "--set",
        "iterations=2",
    ]
    done = runner.invoke(app, [*command, "-o", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["training"]["times"]["all"]["count"] == 2
    assert json.loads((tmp_path / "out" / "replay.json").read_text())["ranks"] == 4
    assert "all_reduce" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "name a fabric: --cluster"),
        (["--lab", "default"], "give file=TRACE"),
        (["--lab", "default", "--set", "model=llama3-8b", "--set", "data=9"], "9 ranks on 8 hosts"),
        (["--lab", "default", "--set", "model=llama3-8b", "--fail", "p9-t1.0@1ms"], "nothing is called 'p9-t1.0'"),
        (["--lab", "default", "--set", "model=llama3-8b", "--fail", "p0-t1.0"], "write p0-t1.3@5ms"),
        (["--lab", "default", "--set", "model=llama3-8b", "--detail", "fine"], "--detail fine; known: auto"),
        (["--lab", "default", "--set", "model=llama3-8b", "--set", "iterations=5000"], "from 1 to 1000"),
    ],
)
def test_mistake_ends_with_two_and_starts_nothing(tmp_path: pathlib.Path, options: list[str], text: str) -> None:
    done = runner.invoke(app, ["replay", *options, "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, GraphError)
    assert done.exception.exit_code is ExitCode.USAGE
    assert text in str(done.exception)


def crossing(folder: pathlib.Path) -> Source:
    """Return an all-reduce of 32 ranks of which most have their neighbour below another T0."""
    return replace(reducing(folder, 32, 1 << 30), placement="fragmented")


def test_a_t1_that_is_dead_from_the_start_takes_its_share_of_the_fabric(tmp_path: pathlib.Path) -> None:
    """Half as many T1s as NICs below a T0, so that links between switches limit; one of 16 T1s is dead."""
    text = CLUSTER.replace("t1_per_plane: 8", "t1_per_plane: 4").replace("size: 32, active: 16", "size: 16, active: 8")
    where = fluid.bed_of_cluster(parse_cluster(text, "few.yaml"))

    def took(source: Source) -> tuple[float, FluidResult]:
        dead = run(source, where, detail="phases", extra=fluid.event_of("p0-t1.3@0s", where.loaded))
        whole = run(source, where, detail="phases")
        return dead.summary.times["all"].mean / whole.summary.times["all"].mean, dead

    share, dead = took(crossing(tmp_path))
    assert share == pytest.approx(16 / 15, rel=0.02)
    assert dead.known == ["p0-t1.3"]
    # In the order of racks three of four ranks send below their T0, and the others have links enough.
    share, dead = took(reducing(tmp_path, 32, 1 << 30))
    assert share == pytest.approx(1, rel=1e-3)
    assert (dead.carried.crossing, dead.carried.queue_pairs) == (4, 32)
    said = "\n".join(page.notes(dead))
    assert "4 of 32 queue pairs cross links between switches" in said
    assert "broken from the start, and known to all hosts (denylist): p0-t1.3" in said


def test_goodput_is_of_all_payload(tmp_path: pathlib.Path) -> None:
    made = run(reducing(tmp_path, 8, 1 << 30), detail="phases", steps=2)
    payload = 2 * 2 * 7 * (1 << 30)
    assert made.carried.payload == pytest.approx(payload)
    assert made.carried.goodput_bps == pytest.approx(payload * 8 / made.carried.seconds)
    # All of a ring's messages are under way at the same time; its further steps are latency, without a message.
    assert 0.9 < made.carried.under_way_s / made.carried.seconds < 1
    assert made.carried.goodput_under_way_bps == pytest.approx(8 * NIC * 4096 / (4096 + 150), rel=0.03)
    assert made.document()["goodput_bps"] == made.carried.goodput_bps
    assert page.notes(made)[0].startswith("goodput of all ranks: 2")
    computing = goal(tmp_path, "num_ranks 2\nrank 0 {\na: calc 1000000\ns: send 1000000b to 1\ns requires a\n}\n"
                     "rank 1 {\nr: recv 1000000b from 0\n}\n")  # fmt: skip
    late = run(computing).carried
    assert late.seconds == pytest.approx(1e-3 + late.under_way_s, rel=0.02)


def test_notes_say_where_a_table_has_no_spread(tmp_path: pathlib.Path) -> None:
    source = reducing(tmp_path, 32, 1 << 20)
    dead = fluid.event_of("p0-t1.3@5us", bed().loaded)
    coarse, fine = (run(source, detail=detail, extra=dead) for detail in ("phases", "messages"))
    assert coarse.summary.operations["all_reduce"].p50 == coarse.summary.operations["all_reduce"].max
    said, other = ("\n".join(page.notes(each)) for each in (coarse, fine))
    assert "no spread in a group" in said
    assert "take tails from packets" in said
    assert "no spread" not in other
    assert "all ranks find dead EVs equally fast; take tails from packets" in other
    assert "spread" not in "\n".join(page.notes(run(source, detail="messages")))
    assert "beside packets: a T1 is dead: no comparison has 32 NICs" in said
    assert "no spread in a group" in page.render(coarse)


def test_a_graph_without_a_message_is_refused_with_what_to_set() -> None:
    with pytest.raises(GraphError, match=r"nothing for a fabric to carry; .*--set data=8"):
        run(Source(model="llama3-8b"))
