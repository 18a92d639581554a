"""The wires and what is behind them, in step: whatever state a switch comes from, and whatever it shall be in."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.base.plain import encode
from mrc_topo.base.rpc import RefusedError
from mrc_topo.labfile import load_lab
from mrclab.lab.records.record import LabRecord
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.fabricset import FabricSet
from mrclab.lab.session.wired import WiredFabric
from mrclab.lab.switches.bmv2 import Bmv2Switches
from mrclab.lab.switches.forwarders import chosen
from p4lite.switch.fabric.values import LinkSettings, SwitchState

RUNNING, FROZEN, STOPPED = SwitchState.RUNNING, SwitchState.FROZEN, SwitchState.STOPPED
TOPOLOGY = chosen(load_lab("tiny"), "bmv2")
NAME = TOPOLOGY.switches[0].name


class House:
    """A daemon without processes: what they would be in."""

    def __init__(self) -> None:
        self.topology = TOPOLOGY
        self.record = LabRecord()
        self.process = "running"
        self.filled = True
        self.died = ""

    def signal(self, role: str, number: int) -> None:
        assert (role, self.process) != (NAME, "dead")
        self.process = {signal.SIGSTOP: "frozen", signal.SIGCONT: "running"}[signal.Signals(number)]

    def end_unrecorded(self, role: str) -> None:
        self.process, self.filled = "dead", False

    def check_alive(self, role: str) -> Callable[[], None]:
        def check() -> None:
            if self.died:
                raise RunError(self.died)

        return check

    def write(self) -> None:
        """Nobody reads."""


class ForwardingBackend(Bmv2Switches):
    def _launch(self, switch: object) -> None:
        assert self.house.process == "dead"  # type: ignore[attr-defined]
        self.house.process = "running"  # type: ignore[attr-defined]

    def set_rate(self, switch: Any, port: int, rate_bps: int) -> None:
        self.rates = {**getattr(self, "rates", {}), (switch.name, port): rate_bps}


class Lab:
    """A switch behind its wires; `wires` is the state of these."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.house = House()
        self.behind = ForwardingBackend(self.house, "bmv2")  # type: ignore[arg-type]
        self.wires = RUNNING
        patch.setattr(FabricSet, "set_state", lambda _, device, state: self.set_wires(state))
        patch.setattr(FabricSet, "restart", lambda _, device, disconnect=False: self.set_wires(RUNNING))
        patch.setattr(FabricSet, "set_port_link", lambda *_, **__: None)
        patch.setattr(
            WiredFabric, "_tell", lambda _, request, name: self.behind.verbs()(request.verb, encode(request), 0)
        )
        self.fabric = WiredFabric({}, TOPOLOGY, pathlib.Path("x"), {NAME: "unix:x"}, self.refill, str)

    def set_wires(self, state: SwitchState) -> None:
        self.wires = state

    def refill(self, name: str) -> None:
        # While anything could pass, there must be tables; and who is asked must answer.
        assert (name, self.house.process) == (NAME, "running")
        self.house.filled = True


@given(st.lists(st.sampled_from([RUNNING, FROZEN, STOPPED, "restart"]), max_size=12))
def test_wires_and_process_are_in_step_and_what_runs_has_its_tables(steps: list[SwitchState | str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lab = Lab(patch)
        for step in steps:
            if isinstance(step, str):
                # As the ledger does it.
                lab.fabric.restart(1)
                assert not lab.house.filled
                lab.refill(NAME)
                step = RUNNING
            lab.fabric.set_state(1, step)
            assert lab.wires is step
            assert lab.house.process == {RUNNING: "running", FROZEN: "frozen", STOPPED: "dead"}[step]
            assert lab.house.filled == (step is not STOPPED)
            assert lab.house.record.held == ({} if step is RUNNING else {NAME: step.value})


def test_a_links_rate_is_told_to_the_switches_at_both_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch)
    slow, fast = LinkSettings(rate_bps=1_000), LinkSettings(rate_bps=9_000)
    lab.fabric.set_port_link(1, 3, outgoing=slow, incoming=fast)
    assert lab.behind.rates == {("p0-t0.0", 3): 1_000, ("p0-t1.0", 1): 9_000}
    lab.fabric.set_port_link(1, 1, incoming=slow)
    assert len(lab.behind.rates) == 2


@pytest.mark.parametrize("step", [RUNNING, FROZEN, STOPPED, "restart"])
def test_nothing_is_done_to_a_dead_switch(step: SwitchState | str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch)
    lab.house.died = "was killed by SIGKILL"
    with pytest.raises(
        RunError, match=rf"switch {NAME} is dead, its process was killed by SIGKILL.*`mrclab down tiny`"
    ):
        lab.fabric.restart(1) if isinstance(step, str) else lab.fabric.set_state(1, step)
    assert (lab.wires, lab.house.process, lab.house.record.held) == (RUNNING, "running", {})


def test_what_the_daemon_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = Lab(monkeypatch).behind.verbs()
    with pytest.raises(RefusedError, match="hold: state is 'gone'; expected: one of running, frozen, stopped"):
        verbs("hold", {"switch": NAME, "state": "gone"}, 0)
    with pytest.raises(RunError, match="p9"):
        verbs("hold", {"switch": "p9-t0.0", "state": "running"}, 0)
    with pytest.raises(RunError, match="has no port 77"):
        verbs("rate", {"switch": NAME, "port": 77, "rate_bps": 1}, 0)
