"""Step times that the documentation states for the fluid model beside packets, each by both models."""

from __future__ import annotations

import pathlib
import re

import pytest

from mrc_fluid import kernels
from mrc_fluid.replays import fluid
from mrc_host.graph.source import Source
from mrc_topo.labfile import load_lab
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import steps
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/run-a-trace.md").read_text()
#: The table of step times: what is run, the lab, and how far the fluid model is off, %.
SAID = dict(re.findall(r"^\| ([^|]+) \| `[^|]*` \| ([-+0-9.]+) % \|$", PAGE, re.M))
MIXTRAL = {"model": "mixtral-8x7b", "pipeline": 2, "data": 4, "experts": 2, "exchanges": 1, "micro_batches": 4}


def off(lab: str, **source: object) -> float:
    """Return how far the fluid model's time of a step is off that of packets, in percent."""
    return both(lab, source)[0]


def both(lab: str, source: dict[str, object]) -> tuple[float, float]:
    """Return the same, and of exposed communication."""
    topology = load_lab(lab)
    session = VirtualSession(topology)
    try:
        run = WorkloadRun(session, WorkloadSpec("trace", source, limit_s=120), []).go()
    finally:
        session.close()
    assert not run.failures
    packets = steps.summary(run)
    assert packets is not None
    made = fluid.run(Source(**source), fluid.bed_of_lab(topology), kernels.reference())  # type: ignore[arg-type]
    assert packets.exposed is not None
    assert made.summary.exposed is not None
    pairs = ((made.summary.times["all"], packets.times["all"]), (made.summary.exposed, packets.exposed))
    time, exposed = (100 * (one.mean / other.mean - 1) for one, other in pairs)
    return time, exposed


def goal(folder: pathlib.Path, text: str) -> dict[str, str]:
    (folder / "x.goal").write_text(text)
    return {"file": str(folder / "x.goal")}


def tree(ranks: int) -> str:
    """Return a binomial tree of messages of one byte as GOAL."""
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        low = rank & -rank or ranks
        lines += [f"rank {rank} {{", *([f"r: recv 1b from {rank - low} tag 0"] if rank else [])]
        for bit in range(low.bit_length() - 2, -1, -1):
            lines += [f"s{bit}: send 1b to {rank + (1 << bit)} tag 0", *([f"s{bit} requires r"] if rank else [])]
        lines.append("}")
    return "\n".join(lines)


def test_the_example_of_a_schedule_takes_what_the_page_says(tmp_path: pathlib.Path) -> None:
    (text,) = re.findall(r"<!-- file: pass-on.goal -->\n```text\n(.*?)```", PAGE, re.S)
    assert off("tiny", **goal(tmp_path, text)) == pytest.approx(float(SAID["`pass-on.goal`, 3 ranks"]), abs=0.06)


@pytest.mark.long
def test_rings_at_once_over_links_that_carry_acknowledgements_take_what_the_page_says() -> None:
    said = SAID["two all-reduces one after the other, 4 ranks"]
    assert off("tiny", file=str(ROOT / "tests/vectors/chakra/ctrl")) == pytest.approx(float(said), abs=0.06)


@pytest.mark.long
def test_small_messages_take_what_the_page_says(tmp_path: pathlib.Path) -> None:
    said = SAID["GOAL, binomial tree of messages of 1 byte, 32 ranks"]
    assert off("training-64", **goal(tmp_path, tree(32))) == pytest.approx(float(said), abs=0.6)


@pytest.mark.long
def test_a_mixture_of_experts_takes_what_the_page_says() -> None:
    said = SAID["Mixtral 8x7B, 8 GPUs"]
    time, exposed = both("default", {**MIXTRAL, "bytes_divisor": 160000, "time_divisor": 40})
    assert time == pytest.approx(float(said), abs=0.06)
    (other,) = re.findall(r"off by ([0-9.]+) % for Mixtral", PAGE)
    assert abs(exposed) == pytest.approx(float(other), abs=0.06)
