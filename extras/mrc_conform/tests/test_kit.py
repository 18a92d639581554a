"""The conformance kit: our endpoints pass, mutants do not, and reports say what happened."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections import Counter
from xml.etree import ElementTree

import pytest

from mrc_conform import evidence, report
from mrc_conform.adapters import lines
from mrc_conform.adapters.process import ProcessAdapter
from mrc_conform.case import Area, Basis, Case, catalogue, select
from mrc_conform.device import Device, DeviceError, Need, Outcome, PathState, Settings
from mrc_conform.devices.kinds import DeviceKind, Target, make
from mrc_conform.profile import Profile, load
from mrc_conform.run import Verdict, run_case, run_cases
from mrc_conform.script import Mismatch, Script
from mrc_topo.base.document import DocumentError
from mrc_topo.base.errors import UsageError
from support import pcapng
from support.amount import first
from support.conform import sensitivity
from support.conform.mutant import table
from support.mrclab import within

#: Mutants that CI runs, each with the cases of its rule; `support.conform.sensitivity` runs all with all cases.
SAMPLE = {
    "mutants.yaml": (
        "pause-does-not-double",
        "sack-bit-off-by-one-requestor",
        "backup-of-another-plane",
        "skip-persists",
    ),
}
#: How many cases may have no mutant that they notice. Fewer is better; a new case needs one.
MOST_WITHOUT = 8


def mrclab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command; it must end with this exit code."""
    done = within(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def device() -> Device:
    return make(Target(DeviceKind.VIRTUAL))


def test_our_endpoint_follows_every_rule() -> None:
    cases = select([])
    run = run_cases(cases, device(), 1)
    wrong = [f"{each.case.name}: {each.text}" for each in run.results if each.verdict is not Verdict.PASSED]
    assert not wrong
    assert len(cases) >= 550


@pytest.mark.parametrize("seed", first([2, 3]))
def test_rules_do_not_depend_on_the_seed(seed: int) -> None:
    run = run_cases(select([]), device(), seed)
    wrong = [f"{each.case.name}: {each.text}" for each in run.results if each.verdict is not Verdict.PASSED]
    assert not wrong


def test_catalogue_covers_every_area_with_a_source_for_each_rule() -> None:
    areas = Counter(each.area for each in catalogue())
    assert set(areas) == set(Area)
    assert min(areas.values()) >= 6
    for each in catalogue():
        assert each.rule.endswith("."), each.name
        assert each.clause, each.name
    assert sum(each.basis is Basis.OURS for each in catalogue()) < len(catalogue()) * 2 / 5


def test_every_mutant_changes_one_place_and_names_cases_that_exist() -> None:
    names = {each.name for each in catalogue()}
    root = pathlib.Path(__file__).parents[3] / "hosts/mrc_host/proto"
    for file in SAMPLE:
        mutants = table(file)
        assert len({each.name for each in mutants}) == len(mutants) >= (60 if file == "mutants.yaml" else 25)
        for each in mutants:
            assert (root / each.file).read_text().count(each.old) == 1, each.name
            assert set(each.cases) <= names, each.name


def test_nearly_every_case_has_a_mutant_that_it_names() -> None:
    without = {each.name for each in catalogue()} - {name for each in table("mutants.yaml") for name in each.cases}
    assert len(without) <= MOST_WITHOUT, sorted(without)


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in SAMPLE.items() for name in names])
def test_mutant_is_named_by_the_rule_that_it_breaks(file: str, name: str) -> None:
    mutant = next(each for each in table(file) if each.name == name)
    found = sensitivity.run(file, mutant, *mutant.cases)
    assert found.named, found


@pytest.mark.long
@pytest.mark.parametrize("file", list(SAMPLE))
def test_nearly_all_mutants_are_named(file: str) -> None:
    results = [sensitivity.run(file, each) for each in table(file)]
    assert sum(each.named for each in results) >= sensitivity.FLOOR * len(results), [
        each.mutant.name for each in results if not each.named
    ]


def _case(script, basis: Basis = Basis.NOTES, needs: frozenset[Need] = frozenset()) -> Case:  # type: ignore[no-untyped-def]
    return Case("made-up", Area.SACK, "A rule.", basis, "§0", script, Settings(), needs, True)


def _wrong(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", m=3)


def test_broken_rule_fails_with_field_and_values() -> None:
    result = run_case(_case(_wrong), device(), 1)
    assert result.verdict is Verdict.FAILED
    assert result.text == "SACK.m is 0, expected 3"
    assert [line.direction.name for line in result.transcript] == ["SENT", "RECEIVED"]


@pytest.mark.parametrize(
    ("claims", "basis", "verdict"),
    [
        (None, Basis.NOTES, Verdict.FAILED),
        (None, Basis.OURS, Verdict.DIFFERENT),
        (Profile(device="ours"), Basis.OURS, Verdict.FAILED),
        (Profile(device="theirs", readings=False), Basis.OURS, Verdict.DIFFERENT),
        (Profile(device="theirs", readings=False), Basis.NOTES, Verdict.FAILED),
        (Profile.model_construct(device="theirs", departs={"made-up": "m is 3"}), Basis.NOTES, Verdict.DIFFERENT),
    ],
)
def test_device_is_judged_by_what_it_claims(claims: Profile | None, basis: Basis, verdict: Verdict) -> None:
    run = run_cases([_case(_wrong, basis)], device(), 1, profile=claims)
    assert run.results[0].verdict is verdict
    assert run.passed == (verdict is not Verdict.FAILED)


def test_device_that_departs_by_its_profile_and_follows_the_rule_is_named() -> None:
    claims = Profile.model_construct(device="theirs", departs={"made-up": "m is 3"})
    assert run_case(_case(lambda c: None), device(), 1, claims).verdict is Verdict.DIFFERENT


def test_case_that_needs_more_than_a_device_offers_is_skipped() -> None:
    class Lesser(type(device())):  # type: ignore[misc]
        offers = frozenset(Need) - {Need.EVS}

    asked = _case(_wrong, needs=frozenset({Need.EVS}))
    result = run_case(asked, Lesser(), 1)
    assert result.verdict is Verdict.SKIPPED
    assert "a look at the states of EVs" in result.text
    # A profile must say so, with a reason; then that is what a reader finds.
    assert run_case(asked, Lesser(), 1, Profile(device="lesser")).verdict is Verdict.ERROR
    explained = run_case(asked, Lesser(), 1, Profile(device="lesser", cannot={"EVS": "a secret"}))
    assert (explained.verdict, explained.text) == (Verdict.SKIPPED, "EVS: a secret")


def test_case_whose_settings_a_device_cannot_have_is_outside_of_its_profile() -> None:
    claims = Profile(device="fixed", fixed={"mtu": 4096, "control": "nscc"})
    cases = {case.name: claims.outside(case) for case in select([])}
    assert cases["write-only"] is None  # settings do not matter to it
    assert cases["nscc-decrease"] == "mtu is 4096, the case needs 1024"
    assert Profile(device="fixed", fixed={"tail_probe": False}).outside(select(["nscc-decrease"])[0]) is None


def test_profiles_of_our_devices_explain_what_is_left_out() -> None:
    assert all(load("virtual").outside(case) is None for case in select([]))
    left_out = [case for case in select([]) if load("agent").outside(case) is not None]
    assert {need.name for case in left_out for need in case.needs} >= load("agent").cannot.keys()
    assert all({need.name for need in case.needs} & load("agent").cannot.keys() for case in left_out)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cannot: {CLOCK: none}", "nic.yaml:2: cannot.CLOCK: no need has this name"),
        ("fixed: {mtuu: 1}", "nic.yaml:2: fixed.mtuu: no setting has this name"),
        ("departs: {write-onlyy: x}", "nic.yaml:2: departs.write-onlyy: no case has this name"),
        ("reading: true", "nic.yaml:2: reading: unknown key"),
        ("cannot: {EVS: ''}", "nic.yaml:2: cannot.EVS"),
    ],
)
def test_profile_that_cannot_be_used_is_refused_with_its_line(
    line: str, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("nic.yaml").write_text(f"device: nic\n{line}\n")
    with pytest.raises(DocumentError) as refused:
        load("nic.yaml")
    assert message in str(refused.value)


def test_fault_of_a_case_does_not_end_the_run() -> None:
    def faulty(c: Script) -> None:
        raise ZeroDivisionError

    run = run_cases([_case(faulty), _case(lambda c: None)], device(), 1)
    assert [each.verdict for each in run.results] == [Verdict.ERROR, Verdict.PASSED]
    assert not run.passed


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (lambda c: c.expect("SACK"), "expected SACK within 0 ns; nothing came"),
        (lambda c: (c.send(c.data(0)), c.expect_nothing("SACK")), "expected no SACK; SACK came"),
        (lambda c: (c.post(8), c.expect_completion(1)), "expected a completion of request 1"),
        (lambda c: c.expect_memory(0, b"\1"), "byte 0 of the region is 0x00, expected 0x01"),
        (lambda c: (c.send(c.data(0)), c.expect("SACK", payload_size=3)), "SACK has no payload_size"),
    ],
)
def test_verbs_say_what_they_expected(script, text: str) -> None:  # type: ignore[no-untyped-def]
    result = run_case(_case(script), device(), 1)
    assert result.verdict is Verdict.FAILED
    assert text in result.text


def test_reports_have_the_verdicts_and_the_packets(tmp_path: pathlib.Path) -> None:
    good = select(["sack-echo-ev"])
    run = run_cases([*good, _case(_wrong)], device(), 1)
    tree = ElementTree.fromstring(report.junit(run))
    suite = tree.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    page = report.page(run, {each.case.name: "" for each in run.results})
    assert "made-up" in page
    assert "SACK.m is 0, expected 3" in page
    path = evidence.write(run.results[1], tmp_path)
    assert pcapng.packets(path.read_bytes()) == [line.data for line in run.results[1].transcript]


def test_command_lists_runs_and_refuses(tmp_path: pathlib.Path) -> None:
    listed = mrclab("conform", "--list", "--only", "nack")
    assert "nack-pause-doubles" in listed.stdout
    done = mrclab("conform", "--only", "keys", "--only", "protection", "-o", str(tmp_path / "out"), code=2)
    assert "--only keys" in done.stderr
    done = mrclab("conform", "--only", "protection", "-o", str(tmp_path / "out"), "--json")
    assert json.loads(done.stdout)["counts"]["passed"] >= 10
    assert (tmp_path / "out/junit.xml").exists()
    assert "go together" in mrclab("conform", "--interface", "lo", code=2).stderr
    assert "no such interface" in mrclab("conform", "--interface", "none0", "--peer", "::1", code=2).stderr


def test_selection_by_area_and_name() -> None:
    assert {each.area for each in select(["trim"])} >= {Area.TRIM}
    assert [each.name for each in select(["ack-alone"])] == ["ack-alone"]
    with pytest.raises(UsageError, match="--only nothing-like-it"):
        select(["nothing-like-it"])


# --- adapters ---


def test_lines_carry_values_both_ways() -> None:
    asked = lines.request("write", number=3, data=b"\xab", solicited=True)
    assert lines.parse(asked.line()) == lines.Request("write", {"number": "3", "data": "ab", "solicited": "1"})
    assert lines.completions({"list": "7:SUCCESS:1:64:5;8:WR_FLUSH_ERR:0:0:-"})[1].outcome is Outcome.WR_FLUSH_ERR
    assert lines.evs({"list": "0x10:1:SKIP:1"})[0].state is PathState.SKIP


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("error no such queue pair", "adapter, create: no such queue pair"),
        ("hm", "expected a line that begins with ok or error"),
        ("ok number", "is not key=value"),
    ],
)
def test_wrong_answers_are_named(line: str, text: str) -> None:
    with pytest.raises(DeviceError, match=text):
        lines.answer(line, "create")


def test_adapter_that_ends_is_named() -> None:
    adapter = ProcessAdapter([sys.executable, "-c", "input(); raise SystemExit(3)"])
    with pytest.raises(DeviceError, match="exit code 3"):
        adapter.ask("hello")
    adapter.close()


def test_adapter_that_cannot_be_started_is_named() -> None:
    with pytest.raises(DeviceError, match="--adapter"):
        ProcessAdapter("/nonexistent/program")


def test_mismatch_is_an_assertion() -> None:
    assert issubclass(Mismatch, AssertionError)


def test_kit_shares_no_code_with_the_endpoint() -> None:
    """Importing everything but the devices loads nothing of the endpoint."""
    code = (
        "import sys; from mrc_conform.case import catalogue; catalogue();"
        "import mrc_conform.report, mrc_conform.evidence;"
        "sys.exit(any(name.startswith('mrc_host') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _without_memory(script: Script) -> None:
    raise MemoryError


def test_memory_that_the_machine_has_not_is_no_result_of_the_device() -> None:
    with pytest.raises(MemoryError):
        run_case(_case(_without_memory), device(), 1)
