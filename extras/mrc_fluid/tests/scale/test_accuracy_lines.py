"""What `mrclab scale` says of its accuracy: which figure is of all runs, and which of its own case and size."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import typer.testing

from mrc_fluid import cases, kernels, limits
from mrc_fluid.calibration import calibrate, large, produce
from mrc_fluid.calibration.calibrate import ComparedValue
from mrc_fluid.cases import FailureCase
from mrc_fluid.caveat import NICS, caveat, measured
from mrc_fluid.cli_scale import _accuracy
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.replays import fluid, page
from mrc_host.graph.source import Source
from mrclab.cli.app import app
from support.amount import LONG

ROOT = pathlib.Path(__file__).parents[4]
CLUSTER = "name: c\nradix: 128\nplanes: 4\nnics: 512\nev: {size: 32, active: 16}\njobs: [{name: j}]\n"


def failing(text: str, nics: int = 512, **changes: str) -> Loaded:
    made = CLUSTER.replace("nics: 512", f"nics: {nics}")
    for old, new in changes.items():
        made = made.replace(f"{old}: 128", new)
    return parse_cluster(made + (f"failures: [{{{text}}}]\n" if text else ""))


def test_a_run_quotes_its_own_case_alone() -> None:
    loaded = failing("")
    first, head, *own = list(_accuracy(loaded))
    assert not re.search(r"\d", first)
    assert "own case" in head
    assert limits.PAGE in head
    assert [line.strip() for line in own] == [each.text for each in cases.own_errors(loaded)]
    assert own[0].startswith("  nothing fails: ")


@pytest.mark.parametrize("failure", ["", "fail: p0-t1.3", "fail: p0-t0.1"])
def test_no_surface_of_a_run_has_an_error_that_is_not_of_its_cases(tmp_path: pathlib.Path, failure: str) -> None:
    path = tmp_path / "c.yaml"
    text = CLUSTER.replace("radix: 128", "radix: 16").replace("nics: 512", "nics: 64")
    path.write_text(text + (f"failures: [{{{failure}}}]\n" if failure else ""))
    loaded = parse_cluster(path.read_text())
    allowed = {number for each in cases.own_errors(loaded) for number in re.findall(r"\d+ ?%", each.text)}
    allowed |= {number for each in limits.limits_of(loaded) for number in re.findall(r"\d+ ?%", each)}
    told = [*_accuracy(loaded), cases.accuracy(loaded)]
    if LONG:
        replayed = fluid.run(Source(model="gpt3-6.7b", data=64), fluid.bed_of_cluster(loaded), kernels.reference())
        told += [page.caveat(replayed), *page.notes(replayed)]
    assert {number for line in told for number in re.findall(r"\d+(?:\.\d+)? ?%", line)} <= allowed
    assert caveat() not in told


def test_the_figures_of_limits_are_said_to_be_of_other_cases() -> None:
    loaded = failing("", radix="radix: 16\ntiers: 3")
    _, _, _, between, *near = list(_accuracy(loaded))
    assert "Those comparisons have two tiers" in between
    assert "may be off by more" in between
    assert limits.PAGE in between
    assert [each.strip() for each in near] == limits.limits_of(loaded)
    assert near


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        ("", [FailureCase.WHOLE]),
        ("fail: p0-t1.3", [FailureCase.DEAD_T1]),
        ("fail: t1s, count: 3", [FailureCase.DEAD_T1]),
        ("fail: p0-t0.0--p0-t1.1", [FailureCase.CUT_LINK]),
        ("fail: p0-t0.0--p0-t1.1, loss: 0.1", [FailureCase.GREY_LINK]),
        ("fail: p0, rate: 0.1", [FailureCase.SLOW_PLANE]),
        ("fail: p0-t1.3, rate: 0.1", [FailureCase.SLOW_OTHER]),
        ("fail: p0-t1.3, rate: 0.1, loss: 0.1", [FailureCase.GREY_OTHER, FailureCase.SLOW_OTHER]),
        ("fail: p0", [FailureCase.DEAD_PLANE]),
        ("fail: p0, loss: 0.1", [FailureCase.GREY_OTHER]),
        ("fail: 'h1:2'", [FailureCase.DEAD_PORT]),
        ("fail: p0-t0.1, lanes: 4", [FailureCase.TRANSCEIVER]),
        ("fail: p0-t0.1", [FailureCase.DEAD_T0]),
        ("fail: p0-t1.3}, {fail: 'h1:2'", [FailureCase.DEAD_T1, FailureCase.DEAD_PORT]),
    ],
)
def test_the_cases_of_a_run_are_those_of_its_failures(failure: str, wanted: list[FailureCase]) -> None:
    assert cases.cases_of(failing(failure)) == wanted


@pytest.mark.parametrize(
    ("nics", "compared", "of_this_size"),
    [(40, 128, False), (64, 128, True), (250, 128, True), (300, 512, True), (724, 512, True), (1024, 1024, True),
     (2048, 1024, True), (2080, 1024, False)],
)  # fmt: skip
def test_the_comparison_is_the_nearest_in_size(nics: int, compared: int, of_this_size: bool) -> None:
    (own,) = cases.own_errors(failing("fail: p0-t1.3", nics))
    assert (own.compared, own.of_this_size) == (compared, of_this_size)
    assert own.text.startswith(f"a T1 is dead: {'at' if of_this_size else f'no comparison has {nics:,} NICs; at'}")


def test_a_dead_t1_at_1024_nics_has_the_error_that_packets_showed() -> None:
    (own,) = cases.own_errors(failing("fail: p0-t1.3", 1024))
    assert own.goodput == pytest.approx(0.69, abs=0.005)
    assert own.p99 == pytest.approx(-0.01, abs=0.005)
    assert own.streams == pytest.approx(0.038, abs=0.0005)
    assert "in flows of 256 packets goodput is 69 % too high and P99 of flows is 1 % too low" in own.text
    assert f"in streams between {NICS} NICs settled goodput is 4 % too high" in own.text


def test_what_was_never_compared_says_so() -> None:
    (port,) = cases.own_errors(failing("fail: 'h1:2'"))
    assert port.text == (
        "a NIC port goes down: no comparison has 512 NICs, or P99 of flows; in streams between 8 NICs settled goodput "
        "is 1 % too low"
    )
    (t0,) = cases.own_errors(failing("fail: p0-t0.1"))
    assert t0.text == "a T0 is dead: never compared with packets, at any size"
    assert (t0.goodput, t0.p99, t0.streams) == (None, None, None)


def test_files_and_page_have_the_same_comparisons() -> None:
    page = (ROOT / limits.PAGE).read_text(encoding="utf-8")
    for each in cases.comparisons():
        document = json.loads((ROOT / "extras/mrc_fluid" / cases.file_of(each.nics)).read_text(encoding="utf-8"))
        for case, values in document["cases"].items():
            columns = [("goodput", 1000, 1), ("p50", 1, 0), ("p99", 1, 0)]
            cells = [_cell(values[name], unit, digits) for name, unit, digits in columns]
            section = page.partition(f"\n| {each.nics} NICs |")[2].partition("\n\n")[0]
            assert f"| {case} | {' | '.join(cells)} |" in section


def _cell(values: list[float], unit: int, digits: int) -> str:
    packets, model = values
    return f"{packets / unit:.{digits}f}, {model / unit:.{digits}f} ({round((model / packets - 1) * 100):+d} %)"


def test_cases_name_scenarios_that_there_are() -> None:
    streams = {row["scenario"] for row in (measured() or {})["rows"]}
    assert {name for case in FailureCase for name in case.value.streams} <= streams
    assert streams == {each.name for each in calibrate.SCENARIOS}
    assert {2 * each.per_t0 for each in calibrate.SCENARIOS} == {NICS}
    titles = {each.title for each in large.scenarios(128)}
    assert titles == {case for each in cases.comparisons() for case in each.goodput}
    assert titles <= {case.value.title for case in FailureCase}


def test_a_comparison_is_written_as_it_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ComparedValue("a T1 is dead", name, 100.0, 110.0 + at, "x", kind)
        for at, (name, kind) in enumerate((("goodput", "goodput"), ("FCT P50", "FCT P50"), ("FCT P99", "FCT P99")))
    ]
    monkeypatch.setattr(produce, "load_kernels", kernels.reference)
    monkeypatch.setattr(large, "compare", lambda *given, **how: rows)
    asked = ["scale", "--calibrate", "--nics", "96", "-o", str(tmp_path / "made")]
    assert typer.testing.CliRunner().invoke(app, asked).exit_code == 0
    made = cases.parse((tmp_path / "made" / cases.file_of(96)).read_text(encoding="utf-8"))
    assert (made.nics, made.packets) == (96, 256)
    assert made.goodput == {"a T1 is dead": pytest.approx(0.10)}
    assert made.p99 == {"a T1 is dead": pytest.approx(0.12)}


@pytest.mark.parametrize(("message", "told"), [("1MiB", False), ("64MiB", True)])
def test_quantity_that_is_off_by_more_than_15_percent_is_not_told(message: str, told: bool) -> None:
    """Beside a dead T1 goodput of flows is 69 % too high, and that of streams 4 %."""
    made = CLUSTER.replace("nics: 512", "nics: 1024").replace("{name: j}", f"{{name: j, message: {message}}}")
    text = made + "failures: [{fail: p0-t1.3}]\n"
    unknown = cases.not_modelled(parse_cluster(text))
    assert (cases.Modelled.GOODPUT not in unknown) is told
    assert cases.Modelled.STEPS not in unknown
