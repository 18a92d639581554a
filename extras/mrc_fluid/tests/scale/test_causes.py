"""Why a design loses hours in a year of failures, and `mrclab scale --days`."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest
import typer.testing

from mrc_fluid import cli_scale as scale
from mrc_fluid import kernels, year
from mrc_fluid.calibration import produce
from mrc_fluid.calibration.produce import ScaleError
from mrc_fluid.causes import cause
from mrc_fluid.clusterfile import parse_cluster
from mrc_fluid.schema import Cluster, YearSpec
from mrc_fluid.year import YearOutcome
from mrclab.cli.app import app

CLUSTER = """
name: few
radix: 64
planes: 4
nics: 512
ev: {size: 32, active: 16}
duration: 100ms
jobs: [{name: j, message: 16MiB}]
"""
QUIET: dict[str, dict[str, float]] = {
    kind: {"per_year": 0.0, "hours": 1.0} for kind in ("flaps", "port_flaps", "links", "ports", "t0s", "t1s")
}
runner = typer.testing.CliRunner()


def mrc(at_once: float) -> tuple[YearOutcome, Cluster, YearSpec]:
    """Return ten years of MRC in which this many of the 2048 NIC ports are away at a time on average, a day each."""
    spec = YearSpec.model_validate({**QUIET, "days": 3650, "ports": {"per_year": at_once * 365 / 2048, "hours": 24}})
    loaded = parse_cluster(CLUSTER)
    return year.outcomes(loaded.cluster, loaded.shape, None, spec)[0], loaded.cluster, spec


@pytest.mark.parametrize("at_once", [0.2, 1.0, 2.46])
def test_hours_with_a_port_away_have_their_closed_form(at_once: float) -> None:
    """Failures are a Poisson process and repairs take the same time: a queue M/D/inf, of which the busy share is the
    one of at least one failure in a day."""
    outcome, _, spec = mrc(at_once)
    assert outcome.slow_by == "ports"
    assert outcome.slow_for_h / outcome.hours == pytest.approx(1 - math.exp(-at_once), rel=0.03)
    # A NIC has three of four planes left, so communication takes a third more; two ports of one NIC are rare.
    pace = 1 - 1 / (1 + spec.communication / 3)
    assert outcome.slower_h == pytest.approx(outcome.slow_for_h * pace, rel=0.1)


def test_more_failures_cost_nothing_more_where_a_port_is_always_away() -> None:
    often, _, _ = mrc(4.0)
    seldom, _, _ = mrc(0.1)
    assert mrc(8.0)[0].slower_h < 1.2 * often.slower_h
    assert mrc(0.2)[0].slower_h > 1.8 * seldom.slower_h


def test_the_sentence_names_what_slows_the_job_for_how_long_and_when_rates_do_not_matter() -> None:
    outcome, cluster, spec = mrc(2.46)
    text = cause(outcome, cluster, spec)
    assert f"for {outcome.slow_for_h:,.0f} h of 87,600 at least one NIC port is away (up to 24 h until" in text
    assert "the whole job waits for the NICs there, which costs" in text
    assert "failure rates matter little" in text
    assert "failure rates" not in cause(*mrc(0.1))


def test_other_causes_have_sentences_of_their_own() -> None:
    loaded, spec = parse_cluster(CLUSTER), YearSpec(restart_minutes=10, checkpoint_minutes=30)

    def of(slower: float, stalled: float, restarts: float) -> str:
        return cause(YearOutcome("x", 9, 9, slower, stalled, restarts, 720.0, "t1s", 1.0, 30.0), loaded.cluster, spec)

    assert of(1, 2, 8.3).startswith("8.3 h are interruptions: each takes 25 min")
    assert of(1, 2.5, 0).startswith("2.5 h it stands still, 1 s for each change of paths")
    assert "for 30 h of 720 at least one T1 is away (up to 2 h until" in of(3, 2, 1)
    assert of(0, 0, 0) == "nothing that fails slows or interrupts the job"


def test_a_run_of_any_cluster_can_have_days_of_failures(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra mrclab[scale]")
    monkeypatch.setattr(produce, "load_kernels", kernels.reference)
    path = tmp_path / "few.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    asked = ["scale", str(path), "-o", str(tmp_path / "out"), "--days", "30"]
    shown = runner.invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "MRC, 4 planes:" in shown.stdout
    assert "100 %" in shown.stdout
    assert "effective training time" in shown.stdout
    found = json.loads(runner.invoke(app, [*asked, "--json"]).stdout)["year"]
    assert [each["hours"] for each in found] == [720.0, 720.0]
    assert all(each["cause"] for each in found)
    page = (tmp_path / "out" / produce.REPORT).read_text(encoding="utf-8")
    assert "30 days of failures" in page
    assert found[0]["cause"] in page


def test_days_keep_the_rates_of_the_file() -> None:
    for text, minutes in (("year: {days: 365, restart_minutes: 7}\n", 7.0), ("", 10.0)):
        made = scale.with_days(parse_cluster(CLUSTER + text), 3.5).cluster.year
        assert made is not None
        assert (made.days, made.restart_minutes) == (3.5, minutes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["cluster-16k", "--days", "0"], "--days 0: give more than 0 and at most 3660"),
        (["cluster-16k", "--days", "nan"], "--days nan: give more than 0"),
        (["--validate", "--days", "3"], "--days is of a cluster's run; name a cluster"),
    ],
)
def test_days_that_cannot_be_are_refused(options: list[str], says: str) -> None:
    result = runner.invoke(app, ["scale", *options])
    assert isinstance(result.exception, ScaleError)
    assert says in str(result.exception)


def test_an_oversubscribed_fabric_has_a_year_without_a_design_beside_it() -> None:
    """`mrclab topo plan` knows fabrics without oversubscription only, so there is no fabric for RoCE."""
    text = CLUSTER.replace("nics: 512", "nics: 2100\nnics_per_t0: 48\nt1_per_plane: 16")
    made = produce.run(parse_cluster(text + "year: {}\n"), kernels.reference())
    assert [each.name for each in made.year] == ["MRC, 4 planes"]
    assert made.effective
