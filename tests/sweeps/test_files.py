"""Sweep files: what is wrong is told with file, line, key and remedy, before anything starts; points and digests."""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.base.document import unknown_key
from mrc_topo.schema import Lab
from mrclab.cli.app import main
from mrclab.runs import sessions
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.sweeps import page, plan, spec, work
from mrclab.studies.sweeps.spec import Hypercube, Range, Source, Span, known_sweeps, load_sweep, parse_sweep

BASE = """\
name: mine
title: A small one
lab:
  planes: 2
  t0_per_plane: 1
  t1_per_plane: 0
  hosts: 2
  hosts_per_t0: 2
  ev: {size: 8, active: 4}
experiment:
  workload: {name: write_bw, params: {message_bytes: 4096}}
"""


def source(more: str, base: str = BASE) -> Source:
    return parse_sweep(base + more, "mine.yaml")


def made(more: str, base: str = BASE) -> plan.SweepPlan:
    found = plan.make(source(more, base))
    page.check(found)
    return found


GRID = "grid: {lab.ev.active: [4, 8], experiment.workload.params.message_bytes: [1024, 4096]}\n"

WRONG = [
    ("grid: {lab.ev.activ: [4, 8]}\n", "mine.yaml:12: grid.lab.ev.activ: unknown key; did you mean 'active'?"),
    ("grid: {ev.active: [4, 8]}\n", "mine.yaml:12: grid.ev.active: unknown key; did you mean 'lab.ev.active'?"),
    ("grid:\n  labb.ev: [4]\n", "mine.yaml:13: grid.labb.ev: unknown key; it begins with `lab.` or `experiment.`"),
    ("grid: {experiment.workload.parms.x: [1]}\n", "'experiment.workload.parms': unknown key; did you mean 'params'?"),
    ("grid: {experiment.transprt: [mrc]}\n", "did you mean 'transport'?"),
    ("grid: {lab.seed: [1, 2]}\n", "seeds are given by `seeds`"),
    ("grid: {comparison.clock: [real]}\n", "mine.yaml:12: grid.comparison.clock: unknown key"),
    ("set: {lab.planes: 2}\n" + "grid: {lab.planes: [2, 4]}\n", "mine.yaml:13: grid.lab.planes: is in set, too"),
    ("grid: {lab.ev.active: []}\n", "mine.yaml:12: grid.lab.ev.active: a list of values"),
    ("grid: {lab.ev.active: {low: 1, high: 9}}\n", "mine.yaml:12: grid.lab.ev.active.steps: is required"),
    ("grid: {lab.ev.active: {low: 9, high: 1, steps: 3}}\n", "low (9) must be below high (1)"),
    ("grid: {lab.ev.active: {low: 1, high: 2, steps: 3}}\n", "has 2 twice"),
    ("grid: {lab.ev.active: [4, 5]}\n", "mine.yaml:12: grid.lab.ev.active: lab: ev.size (8) and ev.active (5) must be"),
    ("grid: {lab.hosts: [2, many]}\n", "grid.lab.hosts: lab.hosts: input should be a valid integer"),
    ("grid: {experiment.workload.params.mesage: [1]}\n", "no parameter 'mesage'; known: "),
    ("grid: {experiment.schedule.0.at: [1]}\n", "experiment.schedule"),
    ("grid: {lab.planes.x: [1]}\n", "'planes' is 2, which has no 'x'"),
    ("cases: [{name: a, experiment.schedule: [{at: 1, fail: p9-t0.0, evidence: {dropped: 1}}]}]\n", "p9-t0.0"),
    ("cases: [{name: a, lab.hosts: 2}, {name: a, lab.hosts: 1}]\n", "two cases are 'a'"),
    (GRID + "repetitions: 3\n", "mine.yaml:13: repetitions: in simulated time a seed's run is the same each time"),
    (GRID + "seeds: [1, 1]\n", "a seed is given twice"),
    (GRID + "seeds: 0\n", "a seed is from 0"),
    (GRID + "seeds: true\n", "a number of seeds (5: seeds 1 to 5)"),
    (GRID + "plots: [{y: goodput}]\n", "mine.yaml:13: plots.0.y: no measure 'goodput'; did you mean 'goodput_bps'?"),
    (GRID + "plots: [{y: jain, x: lab.ev}]\n", "'lab.ev' is not a key of this sweep; did you mean 'lab.ev.active'?"),
    ("", "nothing is swept"),
    (GRID + "comparison: mrc-vs-roce\n", "exactly one of experiment and comparison"),
    (GRID + "gird: 3\n", "mine.yaml:13: gird: unknown key; did you mean 'grid'?"),
    ("hypercube: {points: 4, keys: {lab.ev.size: {low: 8, high: 64, multiple: 2}}}\n", "did you mean 'multiple_of'?"),
]


@pytest.mark.parametrize(("more", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_plan_of_a_wrong_sweep_names_the_fault_before_any_session(
    more: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "session_for", None)
    with pytest.raises(ExperimentError) as error:
        made(more)
    assert said in str(error.value), str(error.value)


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ("grid: {" + ", ".join(f"{key}: {{low: 1, high: 1000, steps: 1000}}" for key in (
            "lab.hosts", "lab.radix", "lab.planes")) + "}\n", 10**9),
        ("hypercube: {points: 1000, keys: {lab.ev.size: {low: 8, high: 64}}}\nseeds: 1000\n", 10**6),
        (GRID + "seeds: 1000000000\n", 4 * 10**9),
    ],
)  # fmt: skip
def test_too_many_runs_are_refused_with_their_number_at_once(more: str, number: int) -> None:
    begin = time.process_time()
    with pytest.raises(ExperimentError, match=rf"mine.yaml:12: \w+: {number} runs \(.*are more than the 100000"):
        made(more)
    assert time.process_time() - begin < 1


def test_a_grid_is_every_combination_the_first_key_slowest() -> None:
    found = made(GRID + "seeds: [7, 11]\n")
    values = [(*run.point.values.values(), run.seed) for run in found.runs]
    assert values == list(itertools.product((4, 8), (1024, 4096), (7, 11)))
    lab, content = found.documents(found.runs[-1])
    assert (lab["ev"], lab["seed"]) == ({"size": 8, "active": 8}, 11)
    assert content["workload"] == {"name": "write_bw", "params": {"message_bytes": 4096}}
    assert len({run.digest for run in found.runs}) == 8


def test_a_comparison_needs_nothing_but_seeds() -> None:
    found = made("seeds: 3\n", base="name: mine\ntitle: mine\ncomparison: mrc-vs-roce\n")
    assert [run.seed for run in found.runs] == [1, 2, 3]


def test_cases_change_several_keys_and_are_combined_with_the_grid() -> None:
    found = made(
        "set: {lab.path_mtu: 512}\ngrid: {lab.ev.active: [4, 8]}\n"
        "cases: [{name: few, lab.ev.min_active: 2}, {lab.queues.trim.threshold: 8KiB}]\n"
    )
    assert [(run.point.case, run.point.values["lab.ev.active"]) for run in found.runs] == [
        ("few", 4), ("threshold 8KiB", 4), ("few", 8), ("threshold 8KiB", 8),
    ]  # fmt: skip
    assert found.documents(found.runs[1])[0]["queues"] == {"trim": {"threshold": "8KiB"}}
    assert found.documents(found.runs[0])[0]["path_mtu"] == 512


def test_a_lab_may_be_swept_by_name() -> None:
    found = made("grid: {experiment.lab: [tiny, incast]}\nset: {lab.path_mtu: 512}\n")
    labs = [found.documents(run)[0] for run in found.runs]
    assert [(each["name"], each["path_mtu"]) for each in labs] == [("tiny", 512), ("incast", 512)]


def test_a_comparison_is_swept_too() -> None:
    base = "name: c\ntitle: C\ncomparison: mrc-vs-roce\n"
    found = made("grid: {comparison.conditions.1.impair.loss: [0.001, 0.01], lab.hosts: [4]}\n", base)
    contents: list[Any] = [found.documents(run)[1] for run in found.runs]
    assert [each["conditions"][1]["impair"] for each in contents] == [
        {"loss": 0.001},
        {"loss": 0.01},
    ]
    with pytest.raises(ExperimentError, match=r"entries, none is '9'"):
        made("grid: {comparison.variants.9.qps_per_peer: [1, 2]}\n", base)


@given(st.integers(1, 60), st.integers(0, 1000), st.booleans())
def test_a_latin_hypercube_meets_each_part_once(points: int, seed: int, log: bool) -> None:
    scale = "log" if log else "linear"
    spans = {"a": Span(low=1.0, high=64.0, scale=scale), "b": Span(low=1, high=1 << 40)}  # type: ignore[arg-type]
    cube = Hypercube(points=points, seed=seed, keys=spans)
    rows = list(spec.latin_hypercube(cube))
    assert rows == list(spec.latin_hypercube(cube))
    for key in ("a", "b"):
        low, high = float(spans[key].low), float(spans[key].high)
        values = [row[key] for row in rows]
        shares = [
            math.log(value / low) / math.log(high / low) if key == "a" and log else (value - low) / (high - low)
            for value in values
        ]
        assert sorted(min(int(share * points + 1e-9), points - 1) for share in shares) == list(range(points))


def test_a_latin_hypercube_is_the_same_for_ever() -> None:
    cube = Hypercube(points=4, seed=3, keys={"x": Span(low=0, high=1000)})
    assert [row["x"] for row in spec.latin_hypercube(cube)] == PINNED


PINNED = [651, 906, 266, 3]


@given(st.integers(1, 500), st.integers(1, 500), st.integers(2, 40), st.sampled_from([1, 4, 7]))
def test_a_range_has_both_ends_and_its_multiples(low: int, more: int, steps: int, multiple: int) -> None:
    span = Range(low=low * multiple, high=(low + more) * multiple, steps=steps, multiple_of=multiple)
    values = span.values()
    assert (values[0], values[-1], len(values)) == (span.low, span.high, steps)
    assert values == sorted(values)
    assert all(value % multiple == 0 for value in values)


KEYS = st.sampled_from(
    ["ev", "active", "queues", "trim", "threshold", "hosts", "overrides", "x", "links", "rate", 0, 3]
)


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_a_key_is_known_or_the_unknown_part_is_named(path: list[Any]) -> None:
    found = unknown_key(Lab, tuple(path))
    if found is not None:
        part, text = found
        assert tuple(path[: len(part)]) == part
        assert text.startswith("unknown key; ")


@given(st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("de"), st.integers())), st.integers())
def test_a_change_changes_one_place(content: dict[str, Any], value: int) -> None:
    before = json.dumps(content)
    after: Any = spec.changed(content, ("a", "d"), value)
    assert json.dumps(content) == before
    assert after["a"]["d"] == value
    after["a"].pop("d")
    assert {key: each for key, each in after.items() if key != "a"} == {k: v for k, v in content.items() if k != "a"}
    assert after["a"] == {key: each for key, each in content.get("a", {}).items() if key != "d"}


def test_digests_are_of_all_that_a_result_depends_on(tmp_path: pathlib.Path) -> None:
    def digests(more: str = "", base: str = BASE) -> set[str]:
        return {run.digest for run in made(GRID + more, base).runs}

    first = digests()
    assert digests() == first
    assert digests("plots: [{y: jain}]\nmay_fail: true\n") == first  # how it is shown changes no run
    assert digests("seeds: 2\n") > first  # more seeds keep what is done
    assert not digests("set: {lab.path_mtu: 512}\n") & first
    assert not digests(base=BASE.replace("size: 8", "size: 16")) & first
    program = tmp_path / "mine.p4"
    program.write_text("1")
    one = digests(f"set: {{lab.program: {program}}}\n")
    program.write_text("2")
    assert not digests(f"set: {{lab.program: {program}}}\n") & one


@pytest.mark.parametrize("name", sorted(known_sweeps()))
def test_every_bundled_sweep_can_be_run(name: str) -> None:
    found = plan.make(load_sweep(name))
    page.check(found)
    assert found.source.sweep.name == name
    assert found.runs


def test_a_plan_is_made_again_from_its_own_file() -> None:
    found = made(GRID + "seeds: 2\n")
    text = json.dumps(found.document())
    again = plan.make(parse_sweep(json.dumps(json.loads(text)["sweep"]), "sweep.json"), check=False)
    assert [run.digest for run in again.runs] == [run.digest for run in found.runs]


def test_the_command_refuses_in_one_line_and_makes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("lab.hosts", "lab.radix", "lab.planes")
    spans = ", ".join(f"{key}: {{low: 1, high: 1000, steps: 1000}}" for key in keys)
    (tmp_path / "big.yaml").write_text(BASE + "grid: {" + spans + "}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mrclab", "sweep", "big.yaml"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("mrclab: error: big.yaml:12: grid: 1000000000 runs")
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["big.yaml"]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([4, 0.25, "mrc", None], ["4", "0.25", "mrc", "default"]),
        ([[{"at": 1, "loss": 0.1}], [{"at": 1, "loss": 0.2}]], ["loss=0.1", "loss=0.2"]),
        ([{"loss": 0.1, "seed": 3}, {"loss": 0.2, "seed": 4}], ["loss=0.1, seed=3", "loss=0.2, seed=4"]),
        ([[{"at": 1}, {"at": 2}], [{"at": 3}, {"at": 4}]], ["0.at=1, 1.at=2", "0.at=3, 1.at=4"]),
        ([[], [{"at": 1}]], ["nothing", "at=1"]),
        ([{"loss": 0.1}, "mrc"], ["loss=0.1", "mrc"]),
    ],
)
def test_a_value_with_parts_is_called_by_what_differs(values: list[object], wanted: list[str]) -> None:
    assert spec.labels(values) == wanted


def test_curves_and_runs_of_a_report_have_short_labels() -> None:
    """A schedule is a JSON text in sweep.csv."""
    schedules = (
        "[{at: 0.5, fail: p0-t0.0, evidence: {dropped: 1}}]",
        "[{at: 0.7, fail: p0-t0.0, evidence: {dropped: 1}}]",
    )
    grid = f"grid: {{experiment.schedule: [{', '.join(schedules)}], lab.ev.active: [4, 8]}}\n"
    found = made(grid + "plots: [{y: goodput_share, x: lab.ev.active}]\n")
    kinds = work.columns(found)
    rows = [
        dict.fromkeys(kinds)
        | {key: work.cell(run.point.values.get(key), kinds[key]) for key in found.keys}
        | {"run": run.digest, "status": "good", "goodput_share": 0.5}
        for run in found.runs
    ]
    (chart,) = page.charts(found, rows)
    assert list(chart.curves) == ["at=0.5", "at=0.7"]
    assert [row["experiment.schedule"] for row in page._labelled(found, rows)] == ["at=0.5"] * 2 + ["at=0.7"] * 2


GENTLE = """\
from mrc_host.policy import WindowPolicy


class Gentle(WindowPolicy):
    pass
"""
#: The ways in which a sweep file names a policy beside it, and those of a class that there is not, with the place.
POLICIES = [
    'grid: {experiment.policies.congestion: [null, "mycc:Gentle"]}\n',
    'set: {experiment.policies: {congestion: "mycc:Gentle"}}\nseeds: 2\n',
    'cases: [{name: ours}, {name: mine, lab.policies.congestion: "mycc.py:Gentle"}]\n',
    'cases: [{name: ours}, {name: mine, lab.policies: {congestion: "mycc:Gentle"}}]\n',
]
INLINE = (
    ("experiment:\n", 'experiment:\n  policies: {congestion: "mycc:Gentle"}\n'),
    ("lab:\n", "lab:\n  policies: {congestion: mycc:Gentle}\n"),
)
MISSING = [
    ('grid: {experiment.policies.congestion: [null, "nocc:Gentle"]}\n', "grid.experiment.policies.congestion"),
    ('cases: [{name: a}, {name: b, lab.policies.congestion: "nocc:Gentle"}]\n', "cases.1.lab.policies.congestion"),
    ('cases: [{name: a}, {name: b, lab.policies.congestion: "@nocc"}]\n', "cases.1.lab.policies.congestion"),
]


@pytest.mark.parametrize(
    ("base", "more"), [*((BASE, more) for more in POLICIES), *((BASE.replace(*each), "seeds: 2\n") for each in INLINE)]
)
def test_a_policy_is_found_beside_the_sweep_file(base: str, more: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mycc.py").write_text(GENTLE)
    (tmp_path / "mine.yaml").write_text(base + more)
    found = plan.make(load_sweep(str(tmp_path / "mine.yaml")))
    task = found.task(found.runs[-1])
    assert list(task.files) == [str(tmp_path / "mycc.py")]
    assert json.dumps([task.lab, task.content]).count(f"{tmp_path}/mycc.py:Gentle") == 1


@pytest.mark.parametrize(("more", "place"), MISSING)
def test_a_policy_that_is_missing_is_refused_at_its_line(more: str, place: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine.yaml").write_text(BASE + more)
    with pytest.raises(
        ExperimentError, match=rf"mine.yaml:12: {place}: .*nocc(\.py)?: no (such file|installed package)"
    ):
        plan.make(load_sweep(str(tmp_path / "mine.yaml")))
