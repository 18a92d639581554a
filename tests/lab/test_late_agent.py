"""An agent that stood still for longer than an ACK timeout gives nothing up that was answered meanwhile."""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

from mrclab.lab.session.real import RealSession
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.lab.labs import lab_file, session

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}
#: An ACK timeout of 134 ms, and standing still for more than twice that.
TIMEOUT, STOP_S = 17, 0.3
STOPS, BETWEEN_S = 5, 0.7


def given_up(made: RealSession, host: str) -> int:
    """Packets that a host took for lost, for want of a word in time or by what it read of others, or has sent again."""
    names = ("lost_timeout", "lost_rack", "lost_same_ev", "retransmissions")
    queue_pairs = made.clients[host].request("statistics")["qps"]
    return sum(int(each["requestor"][name]) for each in queue_pairs for name in names)


def test_what_was_answered_while_an_agent_stood_still_is_not_sent_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    lab = lab_file(tmp_path, "tiny", **SMALL, reliability={"timeout": TIMEOUT})
    streams = Workload(name="permutation", params={"message_bytes": 1 << 16, "window": 4}, duration=STOPS * 1.5 + 2)
    costs: list[int] = []
    due = 0.0

    with session(lab, "real") as made:
        assert isinstance(made, RealSession)
        stopped = next(each for each in made.run.processes() if each.role == "h0")

        def stop(result: RunResult) -> None:
            """Freeze the agent in mid-stream; the cost in packets is known a little later."""
            nonlocal due
            if len(costs) == STOPS or time.monotonic() < due or not result.progress["h0"].bytes_sent:
                return
            before = given_up(made, "h0")
            stopped.signal(signal.SIGSTOP)
            time.sleep(STOP_S)
            stopped.signal(signal.SIGCONT)
            time.sleep(BETWEEN_S)
            costs.append(given_up(made, "h0") - before)
            due = time.monotonic() + 0.1

        result = run_on(made, Experiment(name="x", title="x", lab="tiny", workload=streams), stop)
    assert result.failures == []
    assert all(each.bytes_verified for each in result.progress.values())
    assert len(costs) == STOPS
    # Whoever times out by when it looks gives a window of packets up each time. Another process may take the machine in
    # one of these moments or the other, and then somebody else is late.
    assert 0 in costs, costs
