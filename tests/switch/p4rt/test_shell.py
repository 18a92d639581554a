"""p4runtime-shell, unmodified, as a program of its own environment on a running `p4lite switch`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrclab.lab import p4shell
from support.p4shell import need_shell
from support.switch.p4rt import control_config
from support.switch.process import SwitchProcess

CASES = Path(__file__).parents[2] / "support" / "switch" / "shell_cases.py"


@pytest.fixture
def pipeline(tmp_path: Path) -> tuple[str, str]:
    """Return the files of the P4Info and the program of control.p4."""
    config = control_config()
    (tmp_path / "p4info.txtpb").write_text(str(config.p4info), encoding="utf-8")
    (tmp_path / "program.json").write_bytes(config.p4_device_config)
    return str(tmp_path / "p4info.txtpb"), str(tmp_path / "program.json")


@pytest.fixture
def command() -> Iterator[list[str]]:
    """Yield the shell's command for a switch process that was started without program."""
    need_shell()
    with SwitchProcess("--no-p4", "--device-id", "1", "--cpu-port", "255") as switch:
        yield p4shell.command(switch.address, 1, 1)
        assert switch.stop() == 0


@pytest.mark.parametrize(
    "case",
    [
        "insert_read_modify_delete",
        "ternary_range_optional_and_default",
        "counters_and_a_packet_out",
        "profiles_meters_replication_and_digests",
    ],
)
def test_scripts_with_the_shell(command: list[str], pipeline: tuple[str, str], case: str) -> None:
    address = command[command.index("--grpc-addr") + 1]
    words = [command[0], "-I", str(CASES), address, *pipeline, case]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["passed"]), done.stdout + done.stderr


def test_the_prompt_imports_nothing_of_the_current_folder_or_ours(
    command: list[str], pipeline: tuple[str, str], tmp_path: Path
) -> None:
    """IPython would search the current folder before the packages that it imports when they are first needed."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("google", "grpc", "IPython", "p4runtime_sh", "planted", "pygments", "sitecustomize"):
        (hostile / f"{name}.py").write_text("print('HOSTILE')", encoding="utf-8")
    typed = 'import planted\nprint("TABLES", sum(1 for _ in tables))\nexit\n'
    environment = {**os.environ, "PYTHONPATH": str(hostile), "IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "dumb"}
    done = subprocess.run(
        [*command, "--config", ",".join(pipeline)],
        cwd=hostile, env=environment, input=typed, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TABLES 7" in done.stdout
    assert "HOSTILE" not in done.stdout + done.stderr
    assert "No module named 'planted'" in done.stdout
