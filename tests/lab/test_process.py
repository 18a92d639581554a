"""Whether a process of a lab still lives, and works."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from mrclab.lab.processes.process import Process, wait_dead, wanted_s

#: Its first thread ends at once; what it has opened stays open as long as the other one lives.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", HEADLESS]) as made:
        try:
            process = Process.of("h1", made.pid)
            stat = pathlib.Path(f"/proc/{made.pid}/stat")
            while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                pass
            assert process.alive()
            assert not wait_dead(process, 0.1)
            process.signal(signal.SIGKILL)
            assert wait_dead(process, 20)
            assert made.wait(20) == -signal.SIGKILL
        finally:
            made.kill()


def test_what_works_wants_a_core_and_what_waits_does_not() -> None:
    busy = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with (
        subprocess.Popen([sys.executable, "-c", busy], start_new_session=True) as works,
        subprocess.Popen(["sleep", "60"]) as waits,
    ):
        try:
            while wanted_s(works.pid) < 1:
                pass
            assert wanted_s(waits.pid) < 0.5
        finally:
            os.killpg(works.pid, signal.SIGKILL)
            waits.kill()
    assert wanted_s(works.pid) == 0
