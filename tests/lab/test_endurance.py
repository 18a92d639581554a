"""The endurance run of `make soak`, short: it plays, and it fails when memory grows."""

from __future__ import annotations

import gc
import random
import time

import grpc
import pytest

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import fabric_program
from support.lab import endurance
from support.lab.labs import session

MIB = 1 << 20


def test_what_counts_as_growth() -> None:
    noise = [MIB * each for each in (1, 0, 2, 1)]
    assert endurance.grown([90 * MIB, 97 * MIB, 99 * MIB, 100 * MIB, *(100 * MIB + each for each in noise * 3)]) <= MIB
    assert endurance.grown([100 * MIB + each * MIB for each in range(16)]) == 8 * MIB
    assert endurance.grown([100 * MIB] * 15 + [200 * MIB]) == 0


def test_failures_are_one_at_a_time_and_all_are_restored() -> None:
    topology = load_lab("tiny")
    for seed in range(50):
        steps = endurance.schedule(random.Random(seed), topology, 60.0)
        assert [action.verb for _, action in steps] == ["fail", "restore"] * (len(steps) // 2)
        assert [at for at, _ in steps] == sorted(at for at, _ in steps)
        assert all(one.target == two.target for (_, one), (_, two) in zip(steps[::2], steps[1::2], strict=True))
        assert all(0 < at < 60 for at, _ in steps)


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


@pytest.mark.parametrize("arguments", [["--hours", "0"], ["--hours", "nan"], ["--leak", "-1"], ["--longest", "1"]])
def test_endurance_with_wrong_arguments_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        endurance.main(arguments)
    assert end.value.code == 2


def test_simulations_of_one_process_leave_nothing_to_the_next() -> None:
    """Their objects form cycles, and Python would look at them hardly ever."""

    def alive() -> int:
        with session("tiny", "virtual") as lab:
            lab.advance(0.2)
            return sum(isinstance(each, VirtualSession) for each in gc.get_objects())

    assert [alive() for _ in range(4)] == [1] * 4
