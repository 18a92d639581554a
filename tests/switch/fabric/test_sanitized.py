"""The fabric's tests once more, with the core and the program built with the address and undefined sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from p4lite.switch.native.build import FABRIC_DIR, build

HERE = Path(__file__).parent


def runtime(name: str) -> str:
    """Return the sanitizer's run-time library, which must be loaded before Python itself."""
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"the C compiler has no {name}")
    return found


def run_sanitized(*arguments: str) -> None:
    environment = os.environ | {
        "P4LITE_SANITIZE": "1",
        "LD_PRELOAD": runtime("libasan.so"),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.slow
def test_the_fabric_under_sanitizers() -> None:
    tests = [
        str(HERE / name)
        for name in (
            "test_target.py",
            "test_links.py",
            "test_missing.py",
            "test_borrowed.py",
            "test_fuzz.py",
            "test_outside.py",
            "test_pfc.py",
            "test_credits.py",
            "test_tunnel.py",
        )
    ]
    run_sanitized(*tests, "-k", "not 24_switches")


@pytest.mark.netns
@pytest.mark.slow
def test_interfaces_under_sanitizers() -> None:
    run_sanitized(str(HERE / "test_real.py"), "-k", "not iperf3")


@pytest.mark.root
@pytest.mark.long
def test_xdp_under_sanitizers() -> None:
    run_sanitized(str(HERE / "test_xdp.py"))


def test_segmentation_of_random_frames_under_sanitizers() -> None:
    """offload_fuzz.c checks the sizes and checksums of what is cut; the sanitizers its memory."""
    program = build("offload-fuzz", [HERE / "offload_fuzz.c", FABRIC_DIR / "offload.c"], sanitize=True, executable=True)
    done = subprocess.run([str(program), "200000"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cut = int(done.stdout.split()[0])
    assert cut > 1000
