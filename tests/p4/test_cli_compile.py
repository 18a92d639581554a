"""`p4lite compile`: files, exit codes, messages."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from p4lite import terminal
from p4lite.cli import compile as cli
from p4lite.cli import main
from support.p4.source import program


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    # What is said on standard error here must not depend on how busy the machine is.
    monkeypatch.setattr(terminal, "AFTER_S", 600.0)
    Path("good.p4").write_text(program(apply="sm.egress_spec = 1;"))
    return "good.p4"


def test_writes_json_and_p4info(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([good, "-o", "out.json", "--p4info", "out.txtpb"]) == 0
    assert [p["name"] for p in json.loads(Path("out.json").read_text())["pipelines"]] == ["ingress", "egress"]
    assert 'arch: "v1model"' in Path("out.txtpb").read_text()
    assert capsys.readouterr() == ("", "")


def test_runs_as_the_verb_of_the_command(good: str) -> None:
    assert main(["compile", good, "-o", "out.json"]) == 0
    assert Path("out.json").exists()


def test_without_output_it_only_checks(good: str) -> None:
    assert cli.run([good]) == 0
    assert sorted(p.name for p in Path().iterdir()) == ["good.p4"]


def test_json_to_standard_output(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([good, "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["pipelines"]


def test_program_from_standard_input(
    good: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"const bit<8> x = y;")))
    assert cli.run(["-"]) == 1
    assert capsys.readouterr().err.startswith("<stdin>:1:18: error: 'y' is not declared")


def test_errors_go_to_standard_error_and_nothing_is_written(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.p4").write_text(program(apply="meta.a = nope; meta.a = true;"))
    assert cli.run(["bad.p4", "-o", "out.json"]) == 1
    err = capsys.readouterr().err
    assert err.count(": error: ") == 2
    assert "Traceback" not in err
    assert not Path("out.json").exists()


def test_a_failed_run_leaves_the_old_output(good: str) -> None:
    Path("out.json").write_text("old")
    Path("bad.p4").write_text("nonsense")
    assert cli.run(["bad.p4", "-o", "out.json"]) == 1
    assert Path("out.json").read_text() == "old"


def test_warnings_and_what_to_do_with_them(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("warn.p4").write_text(program(apply="meta.a = 300;"))
    assert cli.run(["warn.p4"]) == 0
    assert ": warning: value 300" in capsys.readouterr().err
    assert cli.run(["warn.p4", "-w"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.run(["warn.p4", "--Werror"]) == 1


@pytest.mark.parametrize("argv", [[], ["x.p4", "--nope"], ["-", "--watch"], ["x.p4", "-o"]])
def test_compile_with_wrong_arguments_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == 2
    assert "error" in capsys.readouterr().err


def test_compile_help_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    assert "--p4info" in capsys.readouterr().out


def test_output_that_cannot_be_written(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([good, "-o", "no/such/place/out.json"]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_defines_and_include_directories(good: str) -> None:
    Path("lib").mkdir()
    Path("lib/mine.p4").write_text("const bit<8> k = WIDTH;\n")
    Path("use.p4").write_text("#include <mine.p4>\n" + program(apply="meta.a = k;"))
    assert cli.run(["use.p4"]) == 1
    assert cli.run(["use.p4", "-I", "lib"]) == 1
    assert cli.run(["use.p4", "-I", "lib", "-D", "WIDTH=3"]) == 0


def test_watch_compiles_again_when_an_include_changes(
    good: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("k.p4").write_text("const bit<8> k = 1;\n")
    Path("use.p4").write_text('#include "k.p4"\n' + program(apply="meta.a = k;"))
    naps = iter(range(3))

    def sleep(_: float) -> None:
        nap = next(naps)
        if nap == 0:
            Path("k.p4").write_text("const bit<8> k = true;\n")
        elif nap == 1:
            Path("k.p4").write_text("const bit<8> k = 2;\n")
        else:
            raise KeyboardInterrupt
        os.utime("k.p4", ns=(nap, nap))

    monkeypatch.setattr("p4lite.cli.compile.time.sleep", sleep)
    assert cli.run(["use.p4", "--watch", "-o", "out.json"]) == 0
    said = [line.split(" in ")[0] for line in capsys.readouterr().err.splitlines() if line.endswith("watching")]
    assert said == ["use.p4: compiled", "use.p4: failed", "use.p4: compiled"]


@pytest.mark.parametrize("words", [["--help"], ["compile", "--help"]])
def test_reader_that_closes_the_output_ends_it_without_a_traceback(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "import sys; from p4lite.cli import main; sys.exit(main())", *words]
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""
