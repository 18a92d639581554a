"""The core of p4lite without p4lite_tools: it compiles, switches, and says how to get what is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.switch.process import SwitchProcess

ROOT = Path(__file__).parents[2]
TOOLS = {"format", "graph", "lsp", "trace", "debug", "coverage", "diff", "lint", "stf", "wrappers"}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return how to start Python with a copy of the core in the place of the checkout's packages."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "p4/p4lite", folder / "p4lite", ignore=shutil.ignore_patterns("__pycache__"))
    path = f"import sys; sys.path[:] = [{str(folder)!r}, *(p for p in sys.path if p not in ('', {str(ROOT / 'p4')!r}))]"
    return [sys.executable, "-c", f"{path}; exec(sys.argv.pop(1))"]


COMMAND = "from p4lite.cli import main; sys.exit(main())"


def run(core: list[str], code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*core, code, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)


def test_the_tools_are_missing_in_the_copy(core: list[str]) -> None:
    done = run(core, "import p4lite, importlib.util as u; print(p4lite.__file__, u.find_spec('p4lite_tools'))")
    file, spec = done.stdout.split()
    assert spec == "None"
    assert not file.startswith(str(ROOT))


def test_help_lists_what_is_there(core: list[str]) -> None:
    done = run(core, COMMAND, "--help")
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE)) == {"compile", "switch"}


@pytest.mark.parametrize("verb", sorted(TOOLS))
def test_a_tool_says_how_to_get_it(core: list[str], verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(core, COMMAND, verb, "x.p4")
    assert (done.returncode, done.stdout) == (2, "")
    assert "p4lite_tools" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_programs_compile_and_switch_packets(core: list[str], tmp_path: Path) -> None:
    program = ROOT / "tests/switch/programs/control.p4"
    done = run(core, COMMAND, "compile", program, "-o", tmp_path / "c.json", "--p4info", tmp_path / "c.txtpb")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c.txtpb").stat().st_size > 0
    code = (
        "import p4lite\nswitch = p4lite.Switch(p4lite.compile(sys.argv[1]))\n"
        "switch.tables['l2'].default = ('forward', {'port': 2})\nprint(switch.send(1, bytes(14)))"
    )
    done = run(core, code, tmp_path / "c.json")
    assert done.stdout == f"{[(2, bytes(14))]}\n", done.stderr
    with SwitchProcess(str(tmp_path / "c.json"), command=[*core, COMMAND, "switch"]) as switch:
        assert switch.stop() == 0


def test_what_needs_the_interpreter_says_how_to_get_it(core: list[str], tmp_path: Path) -> None:
    source = ROOT / "benchmarks/router.p4"
    code = (
        "import p4lite\n"
        "from p4lite.switch.errors import InvalidArgument\n"
        f"program = p4lite.compile({str(source)!r})\n"
        "print(p4lite.Switch(program).backend)\n"
        "try:\n    p4lite.Switch(program, backend='interpreter')\n"
        "except InvalidArgument as error:\n    print(error)\n"
    )
    done = run(core, code)
    assert done.returncode == 0, done.stderr
    backend, refusal = done.stdout.splitlines()
    assert backend == "compiled"
    assert "p4lite_tools" in refusal
