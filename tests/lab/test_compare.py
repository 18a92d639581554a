"""RoCE in the lab, and MRC beside it."""

from __future__ import annotations

import json
import math
import pathlib
import re

import pytest
import yaml
from typer.testing import CliRunner

from mrc_topo.labfile import load_lab, parse_lab
from mrc_topo.topology import Topology
from mrclab.cli.app import app
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.runs import compare
from mrclab.runs.compare import Comparison, Condition, Timing
from mrclab.runs.experiment import ExperimentError
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from p4lite.switch.targetapi.inside import FabricInside
from support.amount import first
from support.lab.results import plain


@pytest.mark.parametrize("qps", [1, 4])
@pytest.mark.parametrize("workload", ["ring_all_reduce", "all_to_all"])
def test_roce_delivers_verified_bytes(workload: str, qps: int) -> None:
    session = VirtualSession(load_lab("tiny"), "roce")
    try:
        params = {"size_bytes": 1 << 16} if workload == "ring_all_reduce" else {"block_bytes": 20_000}
        spec = WorkloadSpec(workload, {**params, "iterations": 2}, qps_per_peer=qps)
        result = WorkloadRun(session, spec).go()
        session.advance(0.1)
        samples = [host.request("samples")["samples"] for host in session.hosts.values()]
    finally:
        session.close()
    assert not result.failures
    verified = sum(each.bytes_verified for each in result.progress.values())
    assert verified == (2 * 4 * (1 << 16) if workload == "ring_all_reduce" else 2 * 4 * 3 * 20_000)
    assert all(each.mismatches == 0 for each in result.progress.values())
    peers = 2 if workload == "ring_all_reduce" else 3
    assert all(len(host["qps"]) == qps * peers for host in plain(result)["statistics"].values())
    if qps == 4:
        assert all({qp["port"] for qp in host["qps"]} == {0, 1} for host in plain(result)["statistics"].values())
    # What the sampler shows must be what arrived, not what the workload says.
    moved = 2 * 6 * (1 << 16) // 4 if workload == "ring_all_reduce" else 2 * 3 * 20_000
    assert all(host["endpoint"]["payload_bytes_placed"] == moved for host in plain(result)["statistics"].values())
    assert all(rows[-1]["delivered_bytes"] <= moved for rows in samples)


@pytest.mark.slow
@pytest.mark.parametrize("name", first(["mrc-vs-roce", "mrc-vs-lossless", "training-failures"]))
def test_a_comparison_of_the_project_shows_what_it_says(name: str) -> None:
    comparison = compare.load_comparison(name)
    cells = compare.compare(comparison)
    assert len(cells) == len(comparison.variants) * len(comparison.conditions)
    missed = [each for each in compare.judge(comparison, cells) if not each.passed]
    assert not missed, cells


def small(**changes: object) -> dict[str, object]:
    return {
        "name": "x",
        "title": "y",
        "workload": {"name": "write_bw", "params": {"message_bytes": 20_000}},
        "variants": [{"name": "a"}, {"name": "b", "transport": "roce"}],
        "conditions": [{"name": "good"}, {"name": "bad", "impair": {"blackhole": True}, "evidence": {"lost": 5}}],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"expect": [{"faster": "c", "than": "a", "at": "good"}]}, "no variant 'c'; it has: a, b"),
        ({"expect": [{"faster": "a", "than": "b", "at": "night"}]}, "no condition 'night'"),
        ({"expect": [{"slowdown": "a", "at": "bad"}]}, "exactly one of at_most and at_least"),
        ({"conditions": [{"name": "x", "impair": {"colour": 1}}]}, "impair takes no 'colour'"),
        ({"conditions": [{"name": "x", "impair": {"loss": 0.5}}]}, "nothing would tell if it were not in force"),
        ({"conditions": [{"name": "x", "evidence": {"lost": 1}}]}, "evidence of what"),
        ({"conditions": [{"name": "x", "at": ["p0-t1.0"]}]}, "at says where the condition's impair is"),
        ({"conditions": [{"name": "x", "impair": {"loss": 0.5}, "evidence": {}}]}, "evidence needs lost or slower"),
        ({"variants": []}, "variants"),
        (
            {"variants": [{"name": "a", "lab": {"hosts": 3}}]},
            "'hosts' is the same for all variants; one may have its own queues",
        ),
        ({"speed": 3}, "speed"),
        (
            {"variants": [{"name": "a", "transport": "roce", "policies": {"loss": "own.py:Own"}}]},
            "policies: they are of MRC; the transport is roce",
        ),
    ],
)
def test_load_of_a_wrong_comparison_names_file_and_key(
    changes: dict[str, object], hint: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "compare.yaml"
    path.write_text(yaml.safe_dump(small(**changes)))
    with pytest.raises(ExperimentError, match=hint) as caught:
        compare.load_comparison(str(tmp_path))
    assert str(caught.value).startswith(str(path))
    with pytest.raises(ExperimentError, match=r"known: .*mrc-vs-roce"):
        compare.load_comparison("nothing")


NO_INFERENCE = """\
from mrc_host.policy import LossDetector
from mrc_topo.topology import Topology
class Own(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        return []
"""


def test_a_variant_has_policies_of_its_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own.py").write_text(NO_INFERENCE)
    variants = [{"name": "ours"}, {"name": "own", "policies": {"loss": "own.py:Own"}}]
    workload = {"name": "all_to_all", "params": {"block_bytes": 100_000, "iterations": 2}}
    conditions = [{"name": "good"}, {"name": "bad", "impair": {"loss": 0.02}, "evidence": {"lost": 5}}]
    expect = [{"faster": "ours", "than": "own", "at": "bad", "by": 1.2}]
    content = small(variants=variants, workload=workload, conditions=conditions, expect=expect)
    (tmp_path / "compare.yaml").write_text(yaml.safe_dump(content))
    comparison = compare.load_comparison(str(tmp_path))
    cells = compare.compare(comparison)
    assert all(each.passed for each in compare.judge(comparison, cells)), cells
    (tmp_path / "own.py").unlink()
    with pytest.raises(RunError, match=r"policies\.loss: .*own\.py"):
        compare.compare(comparison)


@pytest.mark.parametrize("trust_code", [False, True])
def test_policies_run_on_the_real_clock_if_trusted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, trust_code: bool
) -> None:
    """Return whether they are trusted arrives where policies are checked, before a lab comes up."""
    (tmp_path / "own.py").write_text(NO_INFERENCE)
    content = small(clock="real", variants=[{"name": "own", "policies": {"loss": "own.py:Own"}}], expect=[])
    (tmp_path / "compare.yaml").write_text(yaml.safe_dump(content))

    def check(topology: Topology, clock: str, transport: str, *, trust_code: bool) -> None:
        raise RunError(f"{topology.lab.policies.loss} on the {clock} clock: trusted: {trust_code}")

    monkeypatch.setattr("mrclab.lab.requested.own.check", check)
    with pytest.raises(RunError, match=f"own.py:Own on the real clock: trusted: {trust_code}"):
        compare.compare(compare.load_comparison(str(tmp_path)), trust_code=trust_code)


def test_expectations_are_judged_by_ratios() -> None:
    expect = [
        {"faster": "a", "than": "b", "at": "good", "by": 2.0},
        {"faster": "b", "than": "a", "at": "good"},
        {"slowdown": "a", "at": "bad", "at_most": 3.0},
        {"slowdown": "b", "at": "bad", "at_least": 100.0},
        {"faster": "b", "than": "a", "at": "bad"},
    ]
    comparison = Comparison.model_validate(small(expect=expect))
    cells = {
        ("a", "good"): Timing(1.0),
        ("b", "good"): Timing(2.0),
        ("a", "bad"): Timing(3.5, lost=5),
        ("b", "bad"): Timing(math.inf, lost=5),
    }
    judged = compare.judge(comparison, cells)
    assert [each.passed for each in judged] == [True, True, True, False, False, True, False]
    # A condition that was not in force is missed, whatever the times say.
    cells["a", "bad"] = Timing(3.5, lost=4)
    assert [each.what for each in compare.judge(comparison, cells)[:2] if not each.passed] == [judged[0].what]


def test_a_slower_condition_is_shown_by_the_time() -> None:
    condition = {"name": "bad", "impair": {"rate_bps": 100_000}, "evidence": {"slower": 2.0}}
    comparison = Comparison.model_validate(small(conditions=[{"name": "good"}, condition], expect=[]))
    cells = {(name, at): Timing(1.0) for name in "ab" for at in ("good", "bad")}
    assert [each.passed for each in compare.judge(comparison, cells)] == [False, False]
    cells["b", "bad"] = Timing(2.5)
    assert [each.passed for each in compare.judge(comparison, cells)] == [False, True]


def test_a_comparison_whose_impairment_is_only_booked_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = {"name": "write_bw", "params": {"message_bytes": 100_000, "source": 0, "target": 3}}
    bad = {"name": "bad", "impair": {"loss": 0.05}, "evidence": {"lost": 1}}
    comparison = Comparison.model_validate(
        small(workload=workload, variants=[{"name": "a"}], conditions=[{"name": "good"}, bad])
    )
    (judged,) = compare.judge(comparison, compare.compare(comparison))
    assert judged.passed, judged
    monkeypatch.setattr(FabricInside, "set_port_link", lambda *_, **__: None)
    (judged,) = compare.judge(comparison, compare.compare(comparison))
    assert not judged.passed
    assert judged.what == "evidence of bad, a: packets the links dropped"


@pytest.mark.parametrize(
    ("at", "links"),
    [
        (None, {"p0-t0.0--p0-t1.0", "p0-t0.1--p0-t1.0", "p1-t0.0--p1-t1.0", "p1-t0.1--p1-t1.0"}),
        (["p0-t1.0"], {"p0-t0.0--p0-t1.0", "p0-t0.1--p0-t1.0"}),
        (["p1-t1.0--p1-t0.1", "p0-t0.0", "p0-t1.0"], {"p0-t0.0--p0-t1.0", "p0-t0.1--p0-t1.0", "p1-t0.1--p1-t1.0"}),
    ],
)
def test_a_condition_impairs_the_links_that_it_names(at: list[str] | None, links: set[str]) -> None:
    lab = {"planes": 2, "t0_per_plane": 2, "t1_per_plane": 1, "hosts": 4, "hosts_per_t0": 2}
    topology = parse_lab(json.dumps({"name": "x", **lab, "ev": {"size": 8, "active": 4}}), "lab")
    condition = Condition.model_validate({"name": "bad", "impair": {"loss": 0.5}, "at": at, "evidence": {"lost": 1}})
    assert set(compare.impaired(condition, topology, "x")) == links


def test_a_comparison_impairs_nothing_else() -> None:
    workload = {"name": "write_bw", "params": {"message_bytes": 100_000, "source": 0, "target": 3}}
    conditions = [
        {"name": "good"},
        {"name": "one", "impair": {"blackhole": True}, "at": ["p0-t1.0"], "evidence": {"lost": 1}},
        {"name": "all", "impair": {"blackhole": True}, "evidence": {"lost": 1}},
    ]
    comparison = Comparison.model_validate(small(workload=workload, variants=[{"name": "a"}], conditions=conditions))
    cells = compare.compare(comparison)
    assert cells["a", "one"].lost > 0
    assert math.isfinite(cells["a", "one"].seconds), "the other T1s still carry it"
    assert math.isinf(cells["a", "all"].seconds)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"impair": {"loss": 0.5}, "at": ["p7-t1.0"]}, "a: condition bad: at: nothing in lab tiny is called 'p7-t1.0'"),
        ({"impair": {"loss": 0.5}, "at": ["h0:0"]}, "at: h0:0: name links between switches, or switches"),
        ({"impair": {"loss": 0.5}, "at": ["h0"]}, "at: h0: name links between switches, or switches"),
    ],
)
def test_a_condition_at_what_is_no_link_between_switches_is_refused(condition: dict[str, object], said: str) -> None:
    bad = {"name": "bad", **condition, "evidence": {"lost": 1}}
    comparison = Comparison.model_validate(small(conditions=[{"name": "good"}, bad], expect=[]))
    with pytest.raises(ExperimentError, match=re.escape(said)):
        compare.check(comparison)


def test_a_variant_has_its_own_lab() -> None:
    variants = [
        {"name": "a"},
        {"name": "b", "transport": "roce", "lab": {"queues": {"pfc": {"xoff": "8KiB"}, "trim": None}}},
        {"name": "c", "transport": "roce", "lab": {"queues": {"credits": {}}, "routing": {"adaptive": {}}}},
        {"name": "d", "transport": "roce", "lab": {"roce": {"repair": "reorder"}, "queues": {"ecn": None}}},
    ]
    comparison = Comparison.model_validate(small(variants=variants, lab="tiny", expect=[]))
    plain, pfc, credits, roce = (compare.variant_topology(comparison, each).lab for each in comparison.variants)
    assert plain == load_lab("tiny").lab
    # What is not named stays as the lab has it.
    assert (pfc.queues.pfc is not None, pfc.queues.trim, pfc.queues.limit) == (True, None, plain.queues.limit)
    assert credits.queues.credits is not None
    assert credits.routing.adaptive is not None
    assert (roce.roce.repair, roce.queues.ecn, roce.ev) == ("reorder", None, plain.ev)
    assert len({pfc.name, credits.name, plain.name}) == 3


def test_a_variant_that_cannot_be_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "session_for", lambda *_: pytest.fail("it has begun"))
    bad = {"name": "b", "transport": "roce", "lab": {"queues": {"pfc": {}, "credits": {}}}}
    comparison = Comparison.model_validate(small(variants=[{"name": "a"}, bad], expect=[]))
    with pytest.raises(ExperimentError, match=r"comparison x: variant b: tiny with its `lab`.*pfc and credits both"):
        compare.compare(comparison)


def test_variants_on_labs_of_their_own_run_side_by_side() -> None:
    workload = {"name": "incast", "params": {"message_bytes": 40_000, "iterations": 2, "target": 0}}
    lossless = {"queues": {"limit": "16KiB", "trim": None, "ecn": None, "credits": {"buffer": "8KiB"}}}
    lossy = {"queues": {"limit": "16KiB", "trim": None, "ecn": None}}
    off = {"roce": {"congestion_control": False}}
    variants = [
        {"name": "lossy", "transport": "roce", "lab": lossy | off},
        {"name": "ib-like", "transport": "roce", "lab": lossless | off},
    ]
    expect = [{"faster": "ib-like", "than": "lossy", "at": "good", "by": 1.5}]
    comparison = Comparison.model_validate(
        small(workload=workload, variants=variants, conditions=[{"name": "good"}], expect=expect)
    )
    cells = compare.compare(comparison)
    (judged,) = compare.judge(comparison, cells)
    assert judged.passed, cells


def test_json_has_no_infinity_and_leaves_names_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """A run that failed has no time; what is called NaN or Infinity keeps its name."""
    document = small(
        name="to-Infinity",
        variants=[{"name": "NaN"}, {"name": "b", "transport": "roce"}],
        expect=[{"faster": "NaN", "than": "b", "at": "bad"}],
    )
    path = tmp_path / "compare.yaml"
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setattr(
        compare,
        "compare",
        lambda comparison, progress, trust_code: {
            (variant.name, condition.name): Timing(math.inf if condition.name == "bad" else 2.0)
            for variant in comparison.variants
            for condition in comparison.conditions
        },
    )
    done = CliRunner().invoke(app, ["compare", str(path), "--json"])
    assert done.exit_code == 1

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(done.stdout, parse_constant=refuse)
    assert found["name"] == "to-Infinity"
    cells = {(each["variant"], each["condition"]): each["seconds"] for each in found["cells"]}
    assert cells == {("NaN", "good"): 2.0, ("NaN", "bad"): None, ("b", "good"): 2.0, ("b", "bad"): None}
    assert found["checks"][-1]["what"] == "b over NaN, bad"
