"""The live view of a lab on the real clock: beside a run of another process, and when the lab goes."""

from __future__ import annotations

import pathlib
import signal
import threading

import pytest

from mrc_topo.base.interruption import Interrupted
from mrclab.lab import lifecycle
from mrclab.lab.records import rundir
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from mrclab.web.hub import CommandError, Hub
from mrclab.web.lab import LabView
from support.web import LINK, SHORT, Watching, watching

pytestmark = pytest.mark.lab
LONG_S = 120.0


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def texts(view: Watching) -> list[str]:
    return [row["text"] for row in view.hub.log.since(0)]


def test_a_lab_is_watched_broken_and_mourned(tmp_path: pathlib.Path) -> None:
    lifecycle.up(LabRequest.of("tiny", clock="real"))
    hub = Hub()
    shown = LabView(hub, "tiny", lambda name: SHORT, [SHORT.name])
    up = True
    try:
        with watching(hub, shown.go) as view:
            view.until(lambda state: all(host.get("alive") for host in state["hosts"]), LONG_S)
            with pytest.raises(CommandError, match="experiment short is of lab spray; this is tiny"):
                view.ask("run", name="short")
            # Somebody else's run and somebody else's failure are seen.
            other = RealSession("tiny")
            # It runs until all of it has been seen.
            spec, seen = WorkloadSpec("ring_all_reduce", {"size_bytes": 65536}, duration_s=1000.0), threading.Event()
            stopped = Interrupted(signal.SIGTERM)

            def stop() -> None:
                if seen.is_set():
                    raise stopped

            run = threading.Thread(target=WorkloadRun(other, spec, interrupted=stop).go)
            run.start()
            state = view.until(lambda state: state["goodput_bps"] > 0 and state["job"], LONG_S)
            assert state["job"] is not None
            assert state["job"]["workload"] == "ring_all_reduce"
            view.ask("capture", port="h0:0")
            view.ask("fail", target=LINK)
            state = view.until(lambda state: len(state["broken"]) == 1 and LINK in state["found"], LONG_S)
            assert RealSession("tiny").failures.broken == {LINK: f"link down {LINK}"}
            assert f"link down {LINK}" in texts(view)
            view.ask("restore", target=LINK)
            view.until(lambda state: not state["broken"] and not state["found"], LONG_S)
            seen.set()
            run.join()
            other.close()
            view.ask("capture", port="h0:0", on=False)
            captured = shown.view.captures.file("h0:0")
            assert captured is not None
            assert captured.stat().st_size > 1000
            # A workload of the page's own.
            view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536, "iterations": 3})
            state = view.until(lambda state: state["job"] and not state["job"]["running"], LONG_S)
            assert state["job"] is not None
            assert state["job"]["verdict"] == "passed", state["job"]
            rundir.down("tiny")
            up = False
            state = view.until(lambda state: state["phase"] == "lost", LONG_S)
            assert state["problem"]
            with pytest.raises(CommandError):
                view.ask("fail", target=LINK)
            view.stop()
            shown.view.close()
    finally:
        if up:
            rundir.down("tiny")
