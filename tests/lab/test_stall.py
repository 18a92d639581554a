"""A run that makes no progress ends, and names who waits for what."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any, Literal

import pytest

from mrc_host.answers import JobWaiting
from mrc_topo.base.plain import decode
from mrclab.lab.session.base import Session
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.expectation import Evidence
from mrclab.results.reading import of_any_version
from mrclab.runs import endings
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from support.lab.labs import lab_file, session
from support.lab.results import plain

CLOCKS = ["virtual", pytest.param("real", marks=[pytest.mark.lab, pytest.mark.long])]
SMALL: dict[str, Any] = {
    "planes": 2,
    "t0_per_plane": 1,
    "t1_per_plane": 0,
    "hosts": 3,
    "hosts_per_t0": 4,
    "ev": {"size": 8, "active": 4},
}
SLOW: dict[str, Any] = {**SMALL, "links": {"host": {"rate": "1Mbps", "delay": "20ms"}}}
#: Queue pairs that never give up.
FOR_EVER = {**SMALL, "reliability": {"exp_cnt": 25}}
RING = Workload(name="ring_all_reduce", params={"size_bytes": 1_200_000}, duration=600)
SHOWS = Evidence(losses=1)


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def blackhole(target: str, at: float = 0.1) -> ExperimentStep:
    """Take everything without a sign."""
    return ExperimentStep(at=at, fail=target, kind="impair", settings={"blackhole": True}, evidence=SHOWS)


def stalled(
    lab: str,
    clock: str,
    schedule: list[ExperimentStep],
    workload: Workload = RING,
    transport: Literal["mrc", "roce"] = "mrc",
    prepare: Callable[[Session], None] = lambda made: None,
) -> dict[str, Any]:
    """Return the result of a run that must not get to its end."""
    experiment = Experiment(
        name="stall", title="stall", lab=lab, workload=workload, schedule=schedule, transport=transport
    )
    with session(lab, clock, transport) as made:
        prepare(made)
        document = plain(run_on(made, experiment))
    assert document["failures"]
    seconds = (document["finished_ns"] - document["started_ns"]) / 1e9
    if clock == "virtual":
        assert seconds < 60, document["failures"]
    return document


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
def test_stall_behind_a_black_hole_names_queue_pairs_and_peer(clock: str, tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", **FOR_EVER)
    document = stalled(lab, clock, [blackhole("h1:0"), blackhole("h1:1")])
    (failure,) = document["failures"]
    assert failure.startswith("no progress for ")
    assert "not finished: h0, h1, h2; " in failure
    named = re.findall(r"(h\d) QP (\d+) to (h\d) waits for (.*?) since (\d+\.\d) s", failure)
    assert {name for name, *_ in named} <= {"h0", "h1"}, failure
    name, qpn, peer, what, since = named[0]
    assert "h1" in (name, peer)
    assert re.fullmatch(r"SACK of PSN \d+ on planes? [01](,1)?", what), failure
    assert float(since) > 5
    assert failure.endswith("broken: h1:0, h1:1")
    row = document["waiting"][name]["qps"][0]
    assert (str(row["qpn"]), row["peer"], row["what"]) == (qpn, peer, what)
    assert row["sent"] > 1


@pytest.mark.slow
def test_stall_of_a_host_without_ports_says_that_none_is_up(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", **FOR_EVER)
    steps = [ExperimentStep(at=0.1, fail=f"h1:{port}", kind="port_down", evidence=SHOWS) for port in (0, 1)]
    (failure,) = stalled(lab, "virtual", steps)["failures"]
    assert re.search(r"h1 QP \d+ to h2 waits for a plane to send PSN \d+ on \(own ports up: none; ", failure), failure


@pytest.mark.slow
def test_queue_pairs_that_give_up_leave_the_others_waiting(tmp_path: pathlib.Path) -> None:
    """The rank with the dead queue pair ends by itself; whoever waits for it is not left to the limit of the run."""
    lab = lab_file(tmp_path, "tiny", **{**SMALL, "hosts": 4})
    document = stalled(lab, "virtual", [blackhole("h1:0"), blackhole("h1:1")])
    text = "; ".join(document["failures"])
    assert "h1: retry counter exceeded" in text
    assert re.search(
        r"no progress for \d+\.\d s; not finished: [h0-9, ]+; "
        r"h\d waits for step \d+ of iteration \d+ of h\d, which ended by: "
        r"rank \d to rank \d: h\d: retry counter exceeded",
        text,
    ), text


def test_a_message_that_its_receiver_never_takes_notice_of(tmp_path: pathlib.Path) -> None:
    """No queue pair waits for anything; the workloads do."""

    def deafen(made: Session) -> None:
        assert isinstance(made, VirtualSession)
        node = made.nodes["h2"]
        node._completed = lambda completion, now: None  # type: ignore[method-assign]

    lab = lab_file(tmp_path, "tiny", **SMALL)
    document = stalled(lab, "virtual", [], prepare=deafen)
    (failure,) = document["failures"]
    assert failure.startswith("no progress for 5.")
    assert "; h2 waits for 1 of its own writes to end, of which no queue pair knows; " in failure, failure


def test_the_baseline_names_its_port(tmp_path: pathlib.Path) -> None:
    """RoCE gives up after its retries; what it waits for until then is told all the same."""
    lab = lab_file(tmp_path, "tiny", **SMALL)
    with session(lab, "virtual", "roce") as made:
        seen: list[str] = []

        def look(_: object) -> None:
            for host in made.hosts.values():
                (job,) = made.nodes[host.name].jobs  # type: ignore[attr-defined]
                waiting = decode(JobWaiting, host.request("waiting", job=job), lenient=True)
                seen.extend(endings.culprits({host.name: waiting}))

        experiment = Experiment(
            name="stall", title="stall", lab=lab, workload=RING, transport="roce",
            schedule=[blackhole("h1:0"), blackhole("h1:1")],
        )  # fmt: skip
        document = plain(run_on(made, experiment, look))
    assert any(
        re.fullmatch(r"h\d QP \d+ to h\d waits for ACK of PSN \d+ on plane [01] since \d.*", each) for each in seen
    )
    assert any("which ended by" in each for each in document["failures"]), document["failures"]


@pytest.mark.slow
def test_what_is_scheduled_is_waited_for(tmp_path: pathlib.Path) -> None:
    """An outage longer than any patience is none of a stall's while its end is on the schedule."""
    lab = lab_file(tmp_path, "tiny", **FOR_EVER)
    steps = [blackhole("h1:0"), blackhole("h1:1")]
    steps += [ExperimentStep(at=30.0, restore=f"h1:{port}") for port in (0, 1)]
    experiment = Experiment(
        name="stall", title="stall", lab=lab, schedule=steps,
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 120_000}, duration=31.0),
    )  # fmt: skip
    with session(lab, "virtual") as made:
        document = plain(run_on(made, experiment))
    assert document["failures"] == []


def test_an_untroubled_run_waits_for_nobody(tmp_path: pathlib.Path) -> None:
    lab = lab_file(tmp_path, "tiny", **SMALL)
    workload = Workload(name="all_to_all", params={"block_bytes": 50_000, "iterations": 2})
    with session(lab, "virtual") as made:
        experiment = Experiment(name="calm", title="calm", lab=lab, workload=workload)
        document = plain(run_on(made, experiment))
    assert document["failures"] == []
    assert document["waiting"] == {}


def waiting(**given: Any) -> JobWaiting:
    return of_any_version(JobWaiting, given, "")


@pytest.mark.parametrize(
    ("patience", "bound"), [([], 5.0), ([2_000_000_000], 7.0), ([2_000_000_000, None], 5.0 + (1024 << 24) / 1e9)]
)
def test_nothing_is_a_stall_before_the_retries_are_over(patience: list[int | None], bound: float) -> None:
    documents = {f"h{index}": waiting(qps=[{"patience_ns": each}]) for index, each in enumerate(patience)}
    assert endings.bound_s(documents) == pytest.approx(bound)


def rank(**changes: Any) -> dict[str, Any]:
    return {"qps": [], "done": False, "puts": 0, "what": "step 1", "awaits": [], "failure": ""} | changes


@pytest.mark.parametrize(
    ("documents", "line"),
    [
        ({"h0": rank(awaits=["h1"]), "h1": rank(failure="gone")}, "h0 waits for step 1 of h1, which ended by: gone"),
        ({"h0": rank(awaits=["h1"]), "h1": rank(done=True)}, "h0 waits for step 1 of h1, which has ended"),
        ({"h0": rank(awaits=["h1"])}, "h0 waits for step 1 of h1, which does not answer"),
        ({"h0": rank(awaits=["h9"])}, "h0 waits for step 1 of h9, which is gone"),
        ({"h0": rank(awaits=["h1"]), "h1": rank(what="word")},
         "h0 waits for step 1 of h1, which waits for word and for no other rank"),
        ({"h0": rank(awaits=["h1"]), "h1": rank(awaits=["h0"])},
         "h0 waits for step 1 of h1; h1 waits for step 1 of h0"),
        ({"h0": rank(done=True)}, "no rank waits for anything"),
        ({f"h{n}": rank(puts=2, awaits=[]) for n in range(5)},
         "".join(f"h{n} waits for 2 of its own writes to end, of which no queue pair knows; " for n in range(3))
         + "and 2 more"),
    ],
)  # fmt: skip
def test_text_of_a_stall_names_the_end_of_the_chain_of_waiting_hosts(documents: dict[str, Any], line: str) -> None:
    assert endings.text({host: waiting(**each) for host, each in documents.items()}, gone=["h9"]) == line


def test_a_run_that_looks_late_does_not_take_that_for_a_stall(tmp_path: pathlib.Path) -> None:
    workload = Workload(name="write_lat", params={"message_bytes": 8}, duration=16)
    experiment = Experiment(name="late", title="late", lab=lab_file(tmp_path, "tiny", **SLOW), workload=workload)
    with session(experiment.lab, "virtual") as made:
        late = iter([14.0])
        result = run_on(made, experiment, observe=lambda result: made.advance(next(late, 0.0)))
    assert result.failures == []
    assert result.books.balances
    assert result.books.balanced
