"""Evidence of failures: stated by every experiment, looked for in every run, and missed when nothing failed."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from mrc_topo.labfile import load_lab
from mrc_topo.paths import Paths
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import performance, verdict
from mrclab.results.expectation import Evidence
from mrclab.results.recording import Series
from mrclab.results.verdict import LABELS, findings
from mrclab.runs import execute
from mrclab.runs.experiment import ExperimentError, ExperimentStep, known_experiments, load_experiment
from p4lite.switch.targetapi.inside import FabricInside
from support.amount import only
from support.lab.results import result_of
from support.lab.usual import usual_experiments

BREAKING = [name for name in usual_experiments() if load_experiment(name).schedule]


@pytest.fixture
def nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are booked, and that is all: neither the fabric nor a host hears of them."""
    for method in ("set_port_up", "set_port_link", "set_state", "restart"):
        monkeypatch.setattr(FabricInside, method, lambda *_, **__: None)
    monkeypatch.setattr(VirtualSession, "set_carrier", lambda *_: None)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_breaks")
@pytest.mark.parametrize("name", only(BREAKING, ("nic-flaps",)))
def test_an_experiment_without_its_failure_fails_for_want_of_evidence(name: str, tmp_path: pathlib.Path) -> None:
    experiment = load_experiment(name)
    outcome = execute.execute(experiment, "virtual", folder=tmp_path, live=False)
    assert outcome.result.failures == []  # the booking itself went well
    evidence = [check for check in outcome.verdict.checks if check.what.startswith("evidence of ")]
    stated = [claim for claim in experiment.claims() if claim is not None]
    assert len(evidence) == sum(len(claim.model_dump(exclude_none=True)) for claim in stated)
    # Every failure of the schedule is missed by itself, not one for all.
    texts = [each.action.describe() for each in outcome.result.happenings if each.fails]
    assert len(texts) == len(stated)
    for text in texts:
        assert any(not check.passed and text in check.what for check in evidence), text
    assert not outcome.verdict.passed


def test_an_experiment_that_breaks_something_must_state_evidence(tmp_path: pathlib.Path) -> None:
    document = yaml.safe_load(known_experiments()["lossy-link"].read_text())
    path = tmp_path / "experiment.yaml"
    for step in ({"fail": "p0-t0.1--p0-t1.1"}, {"flap": "h1:0", "kind": "port_down", "count": 2}):
        path.write_text(yaml.safe_dump({**document, "schedule": [{"at": 1, **step}]}))
        with pytest.raises(ExperimentError, match=r"schedule.0: .*nothing would tell if .* state what") as caught:
            load_experiment(str(path))
        assert str(caught.value).startswith(str(path))
    with pytest.raises(ValidationError, match="at least one of: dropped, carried"):
        Evidence()
    with pytest.raises(ValidationError, match="a restore has no evidence"):
        ExperimentStep(at=1, restore="h1:0", evidence=Evidence(dropped=1))
    assert set(LABELS) == set(Evidence.model_fields)


def test_every_failure_of_the_projects_experiments_has_evidence_of_its_own() -> None:
    assert BREAKING
    for name in BREAKING:
        experiment = load_experiment(name)
        for (_, action), claim in zip(experiment.actions(), experiment.claims(), strict=True):
            assert (claim is not None) == (action.verb == "fail"), (name, action)


# --- each kind of evidence by itself, on a run whose truth is known ---------------------------------------------

TOPOLOGY = load_lab("default")
LINK, PORT = "p1-t0.0--p1-t1.0", "h3:2"
SECOND = 1_000_000_000


def ports(name: str) -> list[str]:
    link = TOPOLOGY.links[name]
    switches = {switch.name for switch in TOPOLOGY.switches}
    return [f"{end.node}:{end.port}" for end in (link.low, link.high) if end.node in switches]


def run(target: str, *, broken: bool) -> dict[str, Any]:
    """Ten seconds, the target fails from second 4 to second 8; at a tenth of a second everything is counted."""
    names = [host.name for host in TOPOLOGY.hosts]
    every = [f"{switch.name}:{port}" for switch in TOPOLOGY.switches for port in switch.links]
    fabric, samples = [], []
    sent, lost, delivered, losses = dict.fromkeys(every, 0), dict.fromkeys(every, 0), 0, 0
    for tick in range(101):
        t_ns = tick * SECOND // 10
        counters = {port: {"tx_bytes": sent[port], "lost": lost[port], "drops": 9} for port in every}
        fabric.append({"t_ns": t_ns, "ports": counters})
        samples.append({"t_ns": t_ns, "delivered_bytes": delivered, "losses": losses})
        down = broken and 40 <= tick < 80
        for port in every:
            dead = down and port in ports(target)
            sent[port] += 0 if dead else 1000
            lost[port] += int(dead)
        delivered += 750 if down else 1000
        losses += int(down)
    action = {"target": target, "text": "it fails"}
    peer = {"qpn": 7, "peer": "fd4d:5248:3::1"}
    events = [
        {"t_ns": 5 * SECOND, "kind": "ev", "qpn": 7, "ev": value, "new": "ASSUMED_BAD"}
        for value in next(iter(crossing(target, "h0")), ())
        if broken
    ]
    port_row = {"t_ns": 5 * SECOND, "kind": "port", "port": 2, "up": False, "peer": None}
    port_rows = [port_row] if broken else []
    heard = [{**port_row, "peer": TOPOLOGY.host("h3").address.hex()}] if broken else []
    return {
        "ranks": names,
        "started_ns": 0,
        "finished_ns": 10 * SECOND,
        "fabric": fabric,
        "samples": dict.fromkeys(names, samples),
        "statistics": {"h0": {"qps": [peer]}},
        "events": {"h0": [*events, *heard], "h3": port_rows},
        "happenings": [
            {"at_ns": 4 * SECOND, "done_ns": 4 * SECOND, "action": {"verb": "fail", "kind": "impair", **action}},
            {"at_ns": 8 * SECOND, "done_ns": 8 * SECOND, "action": {"verb": "restore", **action}},
        ],
    }


def crossing(target: str, host: str) -> list[tuple[int, ...]]:
    """EVs from a host to h6 that cross the target."""
    paths = Paths(TOPOLOGY)
    source = TOPOLOGY.host(host).index
    values = [value for plane in paths.profile(source, 6) for value in plane]
    found = paths.evs_crossing(TOPOLOGY.element(target), source, 6, values)
    return [found] if found else []


@pytest.mark.parametrize(
    ("target", "claim"),
    [
        (LINK, {"dropped": 80}),
        (LINK, {"carried": 0.01}),
        (LINK, {"evs_lost": 3}),
        (LINK, {"losses": 8 * 40}),
        (LINK, {"goodput": 0.8}),
        (PORT, {"dropped": 40}),
        (PORT, {"carried": 0.01}),
        (PORT, {"ports_down": 2}),
    ],
    ids=str,
)
def test_evidence_of_each_kind_is_found_at_its_element_alone(target: str, claim: dict[str, float]) -> None:
    claims = [Evidence.model_validate(claim), None]
    (found,) = findings(result_of(run(target, broken=True)), TOPOLOGY, claims)
    assert found.passed, found
    (missed,) = findings(result_of(run(target, broken=False)), TOPOLOGY, claims)
    assert not missed.passed, missed
    # The same happenings at another element are no evidence of this one.
    other = run(target, broken=True)
    for row in other["happenings"]:
        row["action"]["target"] = "p3-t0.2--p3-t1.1" if target == LINK else "h5:1"
    if not {"losses", "goodput"} & set(claim):
        (elsewhere,) = findings(result_of(other), TOPOLOGY, claims)
        assert not elsewhere.passed, elsewhere


def test_a_failure_that_never_came_to_pass_has_no_evidence() -> None:
    document = run(LINK, broken=True) | {"happenings": []}
    (found,) = findings(result_of(document), TOPOLOGY, [Evidence(dropped=1)])
    assert not found.passed
    assert found.measured == "never made"


def test_sums_of_counters_are_those_of_the_last_row_at_or_before_each_time() -> None:
    series = Series.of([{"t_ns": 10, "a": 1, "b": 2}, {"t_ns": 20, "a": 4, "b": 2}])
    assert verdict._sums(series, ["a", "b", "unknown"], (5, 10, 15, 20, 99)) == [None, 3, 3, 6, 6]
    assert verdict._sums(series, ["unknown"], (5, 10)) == [None, 0]
    assert verdict._sums(Series.of([]), ["a"], (5, 10)) == [None, None]


def test_jain_of_equal_rates_is_one_and_of_a_single_winner_its_share() -> None:
    assert performance.jain([5.0, 5.0, 5.0]) == pytest.approx(1)
    assert performance.jain([9.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert performance.jain([]) == 0


def test_the_table_of_streams_says_how_fair_an_incast_was() -> None:
    def stream(bps: float) -> dict[str, float]:
        return {"message_bytes": 1, "messages": 1, "peak_bps": bps, "average_bps": bps, "messages_per_s": 1.0}

    def titles(progress: dict[str, Any]) -> list[str]:
        return [
            each.title for each in performance.tables(result_of({"ranks": ["h0", "h1", "h2"], "progress": progress}))
        ]

    to_h0 = {f"h{n}": {"measured": {"streams": {"0": stream(rate)}}} for n, rate in ((1, 9.0), (2, 3.0))}
    (title,) = titles(to_h0)
    assert title.endswith("Jain's index of fairness of 2 streams to h0: 0.800")
    assert titles({"h1": to_h0["h1"]}) == ["bandwidth, Mb/s; messages per second"]
