"""Whether a process of a lab still lives."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

from mrc_control.lab.process import Process, wait_dead

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
