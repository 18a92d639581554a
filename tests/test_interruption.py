"""Signals of a command: handlers note them, and the work looks at the note between its steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted, interruptible

TERM = signal.SIGTERM


def test_a_handler_raises_nothing_and_check_does_once() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(TERM)
    with interruptible() as made:
        interruption.check()
        signal.raise_signal(TERM)
        assert made.number == TERM
        with pytest.raises(Interrupted) as raised:
            interruption.check()
        interruption.check()
    assert raised.value.exit_code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(TERM)) == before


def terminated(wait: Callable[[], object]) -> None:
    """Run a wait of an interruptible command that SIGTERM finds."""
    with interruptible():
        signal.raise_signal(TERM)
        wait()


def failing() -> None:
    with interruptible():
        raise ValueError("the compiler was killed")


def test_a_signal_that_nothing_looked_at_is_not_lost() -> None:
    with pytest.raises(Interrupted):
        terminated(bool)
    # Nor where the command failed of it: a terminal's signal also ends the compiler that a command waits for.
    with pytest.raises(Interrupted):
        terminated(failing)


def test_two_contexts_are_one_command() -> None:
    with interruptible() as outer, interruptible() as inner:
        signal.raise_signal(TERM)
        with pytest.raises(Interrupted):
            inner.check()
    assert outer.number == TERM


@pytest.mark.parametrize(
    "wait",
    [
        lambda: interruption.sleep(3600),
        lambda: interruption.run(["sleep", "3600"]),
        lambda: list(interruption.completed([Future[None]()])),
    ],
)
def test_a_wait_ends_with_a_signal(wait: Callable[[], object]) -> None:
    with pytest.raises(Interrupted):
        terminated(wait)


def test_a_command_that_is_run() -> None:
    assert interruption.run(["cat"], input="x\n").stdout == "x\n"
    # Its input is longer than a pipe holds, and it takes longer than the time between two looks at the signals.
    slow = interruption.run(["sh", "-c", "sleep 0.3; wc -c"], input="x" * 200_000)
    assert slow.stdout.strip() == "200000"
    failed = interruption.run([sys.executable, "-c", "import sys; sys.exit('no')"])
    assert (failed.returncode, failed.stderr) == (1, "no\n")
    with pytest.raises(subprocess.TimeoutExpired):
        interruption.run(["sleep", "3600"], timeout=0.01)


def test_what_a_command_has_started_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()

    def come() -> None:
        assert os.read(reader, 1) == b"1"  # It has started another one.
        raise Interrupted(TERM)

    monkeypatch.setattr(interruption, "check", come)
    with pytest.raises(Interrupted):
        interruption.run(["sh", "-c", f"(printf 1; sleep 20; echo alive) > /dev/fd/{writer} & wait"], pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


TWICE = """
import os, signal, sys, time
from mrc_topo.base import interruption
with interruption.interruptible() as made, made.at_once(lambda: print("last act", flush=True)):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
        if made.number:
            print("heard", flush=True)
"""


def test_the_first_signal_ends_at_once_while_nothing_has_begun() -> None:
    code = (
        "import signal; from mrc_topo.base.interruption import *\\n"
        "with interruptible(), idle(): signal.raise_signal(15)"
    )
    done = subprocess.run([sys.executable, "-c", f"exec('{code}')"], check=False)
    assert done.returncode == 143


def test_a_second_signal_ends_at_once_and_the_same_one_twice_is_one() -> None:
    code = [sys.executable, "-c", TWICE]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(TERM)  # as `timeout` does: to the command, and to its group
        assert process.stdout.readline() == "heard\n"
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < 60:
            process.send_signal(TERM)
            time.sleep(0.05)
        assert process.stdout.read().splitlines()[-1] == "last act"
    assert process.returncode == 143
