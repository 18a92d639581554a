"""The endurance run of `make soak`, short: it plays, and it fails when memory grows."""

from __future__ import annotations

import gc
import time

import grpc
import pytest

from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import fabric_program
from support.lab import endurance
from support.lab.labs import session

MIB = 1 << 20


def test_a_switch_is_refilled_after_another_controller_was_primary_and_left() -> None:
    with session("tiny", "virtual") as made:
        assert isinstance(made, VirtualSession)
        switch = made.topology.switch("p1-t1.0")
        with grpc.insecure_channel(made.server.address) as channel:
            guest = Device(channel, switch.device_id, switch.name, fabric_program().p4info)
            guest.become_primary(election_id=time.time_ns())
            guest.close()
            entries = guest.count_entries()
            made.failures.perform(made, Action("fail", switch.name, "reboot"))
            made.failures.perform(made, Action("restore", switch.name))
            assert made.failures.broken == {}
            assert guest.count_entries() == entries > 0


def test_a_client_keeps_nothing_of_what_it_hears_of_others() -> None:
    with session("tiny", "virtual") as made:
        assert isinstance(made, VirtualSession)
        switch = made.topology.switches[0]
        with grpc.insecure_channel(made.server.address) as own:
            owner = Device(own, switch.device_id, switch.name, fabric_program().p4info)
            owner.become_primary(election_id=time.time_ns())
            for _ in range(3):
                with grpc.insecure_channel(made.server.address) as channel:
                    guest = Device(channel, switch.device_id, switch.name, fabric_program().p4info)
                    guest.become_primary(election_id=time.time_ns())
                    guest.close()
            time.sleep(0.2)
            assert owner._answers.qsize() == 0
            owner.close()


@pytest.mark.long
@pytest.mark.slow
def test_a_planted_leak_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert endurance.main(["--hours", "0.04", "--longest", "6", "--leak", "400000"]) == 1
    told = capsys.readouterr().out.splitlines()
    (line,) = [line for line in told if line.startswith("FAILED")]
    assert line.startswith("FAILED memory of this process grew by"), told


def test_simulations_of_one_process_leave_nothing_to_the_next() -> None:
    """Their objects form cycles, and Python would look at them hardly ever."""

    def alive() -> int:
        with session("tiny", "virtual") as lab:
            lab.advance(0.2)
            return sum(isinstance(each, VirtualSession) for each in gc.get_objects())

    assert [alive() for _ in range(4)] == [1] * 4
