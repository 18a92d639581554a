"""`payload: length`: decisions and times are those with bytes; it is labelled, and refused where bytes are needed."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mrc_host.node import jobs
from mrc_host.node.jobs import Job
from mrc_topo.labfile import parse_lab
from mrc_topo.schema import Lab
from mrclab.cli.app import app
from mrclab.lab.payloads import PayloadRefused
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import verdict
from mrclab.results.record import RunResult
from mrclab.runs import precheck
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, load_experiment
from mrclab.runs.sessions import session_for
from mrclab.studies.chaos import run as chaos
from mrclab.studies.chaos.schedule import Schedule
from support.amount import LONG, first
from support.lab.labs import SMALL_LOADS, lab_file

#: What says that there were no payloads; all else is equal.
LABELS = ("bytes verified", "payload of packets")


def done(experiment: Experiment, payload: str) -> tuple[RunResult, dict[str, Any]]:
    """Run an experiment; return its result and its verdict."""
    asked = experiment.model_copy(update={"payload": payload})
    with session_for(precheck.requested_lab(asked, clock="virtual")) as made:
        result = run_on(made, asked)
        judged = verdict.judge(result, made.topology, asked.expect, asked.claims())
    return result, judged.document()


def seen(result: RunResult, judged: dict[str, Any]) -> dict[str, Any]:
    """Return all that a run has recorded, without what says how its payloads were."""
    document: dict[str, Any] = json.loads(json.dumps(result.document(), default=repr))
    document.pop("fidelity")
    for each in document["progress"].values():
        each.pop("bytes_verified")
    samples = {}
    for name, series in result.samples.items():
        columns = sorted(series.columns)
        samples[name] = dict(zip(columns, (each.tolist() for each in series.take(columns)), strict=True))
    assert samples
    events = {name: [repr(each) for each in result.events[name]] for name in result.events}
    return {
        "document": document,
        "samples": samples,
        "events": events,
        "checks": [each for each in judged["checks"] if each["what"] not in LABELS],
        "recoveries": judged["recoveries"],
    }


def assert_alike(experiment: Experiment) -> RunResult:
    """Run an experiment with bytes and with lengths, and compare all but the labels; return the first result."""
    whole, judged = done(experiment, "bytes")
    length, also = done(experiment, "length")
    assert seen(length, also) == seen(whole, judged)
    assert not any(each.bytes_verified for each in length.progress.values())
    return whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", first(["lossy-link", "incast-victim", "fabric-links", "mixed-links", "nic-flaps", "t0-down"])
)
def test_experiments_decide_alike(name: str) -> None:
    assert_alike(load_experiment(name))


def impairing(folder: pathlib.Path, **changes: Any) -> Experiment:
    """Return a short experiment in which links corrupt, duplicate, reorder and lose packets, and queues trim."""
    queues = {"limit": "64KiB", "ecn": {"kmin": "4KiB", "kmax": "12KiB"}, "trim": {"threshold": "16KiB"}}
    lab = lab_file(folder, "tiny", queues=queues, clock="virtual")
    impairments = {"corrupt": 0.03, "duplicate": 0.03, "reorder": 0.05, "reorder_extra_ns": 100_000, "loss": 0.01}
    links = ("p0-t0.0--p0-t1.0", "h0:0", "h3:1")
    document = {
        "name": "impairing",
        "title": "impairing",
        "lab": lab,
        "workload": {"name": "incast", "params": {"message_bytes": 30_001}, "duration": 0.5},
        "schedule": [
            {"at": 0.05, "fail": link, "kind": "impair", "settings": impairments, "evidence": {"dropped": 1}}
            for link in links
        ],
    }
    return Experiment.model_validate(document | changes)


@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_damaged_trimmed_and_repeated_packets_decide_alike(transport: str, tmp_path: pathlib.Path) -> None:
    result = assert_alike(impairing(tmp_path, transport=transport))
    found = json.dumps(result.document(), default=repr)
    assert '"icrc"' in found, "nothing was corrupt"
    assert result.totals()["retransmissions"]
    if transport == "mrc":
        assert result.totals()["trims"]


MODES = ["srv6_usid", "srv6_srh", "structured_ev", "ecmp", "spray"]


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return changes of a lab file, and an experiment on it."""
    limit = draw(st.sampled_from(["8KiB", "24KiB", "64KiB"]))
    trim = draw(st.sampled_from([None, {"threshold": "6KiB"}]))
    changes: dict[str, Any] = {
        "path_mtu": draw(st.sampled_from([64, 256, 1024, 4096])),
        "link_overhead": draw(st.sampled_from([0, 20])),
        "routing": {"mode": draw(st.sampled_from(MODES))},
        "queues": {"limit": limit, "ecn": {"kmin": "2KiB", "kmax": "6KiB"}, "trim": trim},
        "seed": draw(st.integers(1, 10**6)),
    }
    if changes["path_mtu"] == 4096:
        changes["queues"]["limit"] = "64KiB"
    name = draw(st.sampled_from(sorted(SMALL_LOADS)))
    numbers = {
        "corrupt": draw(st.sampled_from([0.01, 0.1])),
        "duplicate": draw(st.sampled_from([0.0, 0.1])),
        "reorder": draw(st.sampled_from([0.0, 0.1])),
        "reorder_extra_ns": 100_000,
        "loss": draw(st.sampled_from([0.0, 0.05])),
    }
    links = draw(st.lists(st.sampled_from(["p0-t0.0--p0-t1.0", "h0:0", "h2:1"]), min_size=1, unique=True))
    experiment = {
        "name": "any",
        "title": "any",
        "transport": draw(st.sampled_from(["mrc", "mrc", "roce"])),
        "workload": {"name": name, "params": SMALL_LOADS[name], "duration": 0.1, "limit": 5},
        "schedule": [
            {"at": 0.01, "fail": link, "kind": "impair", "settings": numbers, "evidence": {"dropped": 1}}
            for link in links
        ],
    }
    if experiment["transport"] == "roce" and changes["routing"]["mode"] not in ("ecmp", "spray"):
        changes["routing"]["mode"] = "ecmp"
    return changes, experiment


@given(case=runs())
@settings(max_examples=12 if LONG else 4, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_lab_decides_alike(case: tuple[dict[str, Any], dict[str, Any]], tmp_path_factory: Any) -> None:
    changes, document = case
    lab = lab_file(tmp_path_factory.mktemp("any"), "tiny", clock="virtual", **changes)
    assert_alike(Experiment.model_validate(document | {"lab": lab}))


def test_results_say_that_nothing_was_verified(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", payload="length")
    arguments = [
        "run",
        "permutation",
        "--lab",
        lab,
        "--clock",
        "virtual",
        "--duration",
        "0.1",
        "-o",
        str(tmp_path / "out"),
    ]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "bytes not verified (payload: length)" in shown.output
    out = tmp_path / "out"
    result = json.loads((out / "result.json").read_text())
    assert result["fidelity"]["payload"] == "length"
    assert not any(each["bytes_verified"] for each in result["progress"].values())
    assert json.loads((out / "verdict.json").read_text())["payload"] == "not verified (payload: length)"
    assert "not verified (payload: length)" in (out / "report.html").read_text()
    again = CliRunner().invoke(app, ["run", "--again", str(out), "-o", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output
    asked = [*arguments[:-1], str(tmp_path / "bytes"), "--payload", "bytes"]
    assert "bytes verified " in CliRunner().invoke(app, asked).output
    assert "payload" not in json.loads((tmp_path / "bytes" / "result.json").read_text())["fidelity"]


def test_regions_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Job[Any]] = []
    create = Job.__init__

    def created(self: Job[Any], *arguments: Any, **named: Any) -> None:
        create(self, *arguments, **named)
        made.append(self)

    monkeypatch.setattr(Job, "__init__", created)
    lab = parse_lab("name: small\nhosts: 4\nt0_per_plane: 2\nhosts_per_t0: 2\nplanes: 2\npayload: length", "small")
    experiment = Experiment.model_validate(
        {
            "name": "large",
            "title": "large",
            "workload": {"name": "permutation", "params": {"message_bytes": 1 << 27, "window": 2}, "duration": 0.02},
        }
    )
    with closing(VirtualSession(lab)) as session:
        run_on(session, experiment)
    assert len(made) == 4
    for job in made:
        assert len(job.view) == 1 << 29
        assert job.view.readonly
        assert job.view.obj is jobs.address_space().obj


@pytest.mark.parametrize("verb", ["up", "run"])
def test_the_real_clock_refuses_and_names_file_and_remedy(verb: str, tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", payload="length")
    arguments = ["up", lab] if verb == "up" else ["run", "permutation", "--lab", lab, "--clock", "real"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code != 0
    text = " ".join((shown.output + str(shown.exception)).split())
    assert f"{lab}: payload: length is for simulated time" in text
    assert "payload: bytes" in text


def test_a_program_of_the_labs_own_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "own.p4").write_text("")
    lab = tmp_path / "lab.yaml"
    lab.write_text(yaml.safe_dump({"name": "own", "payload": "length", "program": "own.p4"}))
    with pytest.raises(
        PayloadRefused, match=r"lab\.yaml: payload: length .* others may read payloads; remove `program"
    ):
        LabRequest.of(str(lab), clock="virtual")


def test_chaos_refuses_what_it_cannot_verify(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", payload="length")
    schedule = Schedule(lab=lab, duration=0.1)
    with pytest.raises(PayloadRefused, match="chaos verifies every byte"):
        chaos.play(schedule, "virtual")


def test_the_key_has_two_values() -> None:
    assert Lab(name="a").payload == "bytes"
    with pytest.raises(ValueError, match="'bytes' or 'length'"):
        Lab.model_validate({"name": "a", "payload": "none"})
