"""Artifacts: packed runs give the same bytes when they are repeated, also with code; damaged ones are refused."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import stat
import sys
import zipfile
from collections.abc import Callable

import pytest

from mrclab.cli import app as cli
from mrclab.runs import artifact, execute
from mrclab.runs.artifact import ArtifactError
from mrclab.studies.sweeps.work import PLAN

POLICY = """
from mrc_host.policy import EvInput, EvSet

class NeverSkip(EvSet):
    def apply(self, ev, item):
        return False if item is EvInput.SKIP_ONCE else super().apply(ev, item)
"""
EXPERIMENT = """
{name: mine, title: mine, lab: tiny, policies: {ev: never.py:NeverSkip},
 workload: {name: write_bw, params: {message_bytes: 8192, iterations: 3}}, expect: {valid: false}}
"""
Call = Callable[..., int]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Call:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))

    def go(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["mrclab", "-q", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0)

    return go


@pytest.fixture
def run(call: Call, tmp_path: pathlib.Path) -> pathlib.Path:
    words = ("--lab", "tiny", "--clock", "virtual", "--set", "iterations=2", "-o", str(tmp_path / "plain"))
    assert call("run", "write_bw", *words) == 0
    return tmp_path / "plain"


def test_runs_are_packed_and_give_the_same_bytes_again(
    call: Call, run: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "never.py").write_text(POLICY, encoding="utf-8")
    (tmp_path / "code" / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    assert call("run", str(tmp_path / "code" / "mine.yaml"), "-o", str(tmp_path / "own")) == 0
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    for path in (one, two):
        assert call("artifact", "pack", str(run), str(tmp_path / "own"), "-o", str(path)) == 0
    assert one.read_bytes() == two.read_bytes()
    # Where it is repeated, the author's files are not.
    (tmp_path / "code" / "never.py").unlink()
    capsys.readouterr()
    assert call("artifact", "check", str(one)) == 2
    assert "has code of its author's (code/2/never.py), which would run as you" in capsys.readouterr().err
    assert call("artifact", "check", str(one), "--trust-code", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same_sources"] is True
    assert [(row["run"]["name"], row["same"], row["results"]) for row in found["runs"]] == [
        ("write_bw", True, []),
        ("mine", True, []),
    ]


SEND, RECEIVE = "num_ranks 2\nrank 0 {\nl1: send 4096b to 1 tag 1\n}\nrank 1 {\n", "l1: recv 4096b from 0 tag 1\n}\n"
TRACE = "{name: traced, title: traced, lab: tiny, workload: {name: trace, params: {file: two.goal, iterations: 2}}}"


def test_the_trace_of_a_workload_is_packed(
    call: Call, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.goal").write_text(SEND + RECEIVE, encoding="utf-8")
    (tmp_path / "traced.yaml").write_text(TRACE, encoding="utf-8")
    assert call("run", str(tmp_path / "traced.yaml"), "--clock", "virtual", "-o", str(tmp_path / "own")) == 0
    assert call("artifact", "pack", str(tmp_path / "own"), "-o", str(tmp_path / "a.zip")) == 0
    (tmp_path / "two.goal").unlink()
    capsys.readouterr()
    assert call("artifact", "check", str(tmp_path / "a.zip")) == 0
    assert "the same bytes" in capsys.readouterr().out
    with pytest.raises(ArtifactError, match=r"two.goal: .*no such file.*own names it"):
        artifact.pack([tmp_path / "own"], tmp_path / "b.zip")
    rewritten(tmp_path / "a.zip", {"data/1/file/two.goal": (SEND + RECEIVE + "\n").encode()})
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactError, match=r"data/1/file/two\.goal is missing or was changed"):
        artifact.unpack(tmp_path / "a.zip", tmp_path / "out")


def rewritten(path: pathlib.Path, changes: dict[str, bytes | None], more: dict[str, bytes] | None = None) -> None:
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**contents, **changes, **(more or {})}.items():
            if content is not None:
                archive.writestr(name, content)


def test_what_was_packed_is_counted_and_a_sweep_is_refused_with_the_way_to_its_runs(
    call: Call, run: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one.zip"
    capsys.readouterr()
    assert call("artifact", "pack", str(run), "-o", str(one)) == 0
    assert re.fullmatch(re.escape(f"{one}: 1 run, ") + r"[1-9][\d.]* KiB\n", capsys.readouterr().out)
    packed = one.read_bytes()
    assert call("artifact", "pack", str(run), str(run), "-o", str(one)) == 2
    assert "the same run is in it twice (runs/1-write_bw and runs/2-write_bw)" in capsys.readouterr().err
    assert one.read_bytes() == packed
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    (sweep / PLAN).write_text("{}", encoding="utf-8")
    assert call("artifact", "pack", str(sweep), "-o", str(one)) == 2
    assert "this is the folder of a sweep, which keeps the numbers of its runs" in (said := capsys.readouterr().err)
    assert f"mrclab sweep repeat {sweep} RUN -o one" in said
    assert call("artifact", "pack", str(tmp_path), "-o", str(one)) == 2
    assert "no recorded run: it has no result.json; there are some in it: plain" in capsys.readouterr().err


def test_another_result_is_found(
    call: Call, run: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that was changed before packing: the repetition has another."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    result["totals" if "totals" in result else "seconds"] = 7
    (run / "result.json").write_text(json.dumps(result), encoding="utf-8")
    assert call("artifact", "pack", str(run), "-o", str(tmp_path / "a.zip")) == 0
    capsys.readouterr()
    assert call("artifact", "check", str(tmp_path / "a.zip")) == 1
    assert "other bytes in result.json" in " ".join(capsys.readouterr().out.split())


def test_damaged_artifacts_are_refused(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.zip"
    places = (tmp_path / f"place{number}" for number in itertools.count())

    def refused(text: str, changes: dict[str, bytes | None], more: dict[str, bytes] | None = None) -> None:
        artifact.pack([run], path)
        rewritten(path, changes, more)
        place = next(places)
        place.mkdir()
        with pytest.raises(ArtifactError, match=text):
            artifact.unpack(path, place)

    refused(r"runs/1-write_bw/result.json is missing or was changed", {"runs/1-write_bw/result.json": b"{}"})
    refused(r"runs/1-write_bw/samples.npz is missing or was changed", {"runs/1-write_bw/samples.npz": None})
    refused(r"is no artifact; it has no artifact.json", {"artifact.json": None})
    refused(r"artifact.json: ", {"artifact.json": b"{"})
    refused(r"of format 9; this version reads 1", {"artifact.json": b'{"format": 9}'})
    refused(r"'../x' leads out of the archive", {}, {"../x": b"x"})
    refused(r"'/tmp/x' leads out of the archive", {}, {"/tmp/x": b"x"})
    assert not (tmp_path / "x").exists()
    made = json.loads(zipfile.ZipFile(path).read("artifact.json")) if path.exists() else {}
    made["runs"][0]["folder"] = "../../etc"
    refused(r"'../../etc' in artifact.json leads out of the archive", {"artifact.json": json.dumps(made).encode()})
    path.write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match="is no artifact; `mrclab artifact pack` makes one"):
        artifact.read(path)
    with pytest.raises(ArtifactError, match="No such file"):
        artifact.read(tmp_path / "nothing.zip")


def test_links_and_too_large_ones_are_not_unpacked(
    run: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    artifact.pack([run], path)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("runs/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ArtifactError, match="'runs/link' leads out of the archive"):
        artifact.unpack(path, tmp_path)
    monkeypatch.setattr(artifact, "MAX_BYTES", 1000)
    with pytest.raises(ArtifactError, match="it is not unpacked"):
        artifact.unpack(path, tmp_path)


def test_a_policy_that_is_gone_is_named(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "never.py").write_text(POLICY, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(EXPERIMENT, encoding="utf-8")
    assert call("run", str(tmp_path / "mine.yaml"), "-o", str(tmp_path / "own")) == 0
    (tmp_path / "never.py").unlink()
    with pytest.raises(ArtifactError, match=r"never.py: No such file or directory; .*own names it"):
        artifact.pack([tmp_path / "own"], tmp_path / "a.zip")


def test_the_digest_of_the_sources_is_of_this_installation(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = artifact.pack([run], tmp_path / "a.zip")
    assert made.sources == execute.software()
    assert len(made.sources) == 64
