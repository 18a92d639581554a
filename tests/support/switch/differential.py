"""Compares the compiled program with the interpreter, packet by packet, with the same table entries."""

from __future__ import annotations

import random

from p4lite.switch.runtime.loader import LoadedProgram
from p4lite_tools.diff import fill
from p4lite_tools.fuzz.frames import FrameMaker
from p4lite_tools.interpreter.machine import Interpreter
from support.switch.runner import Runner


def compare(program: LoadedProgram, seed: int, packets: int, *, entries: int = 6) -> tuple[int, int]:
    """(packets compared, packets left out because they are replicated or resubmitted). Raises AssertionError."""
    rng = random.Random(seed)
    instance, oracle = program.instance(), Interpreter(program)
    compared = skipped = 0
    try:
        fill([instance, oracle], rng, entries)
        runner, maker = Runner(instance), FrameMaker(program, rng)
        for _ in range(packets):
            data = maker.make()
            if rng.random() < 0.15:
                data = data[: rng.randrange(len(data) + 1)]
            port = rng.randrange(8)
            got = runner.run(data, port)
            want = oracle.process(port, data)
            if got.clone_session is not None or got.mcast_grp or got.resubmit or got.recirculate:
                skipped += 1
                continue
            compared += 1
            assert ([] if got.dropped else [(got.port, got.data)]) == want, (data.hex(), port)
    finally:
        instance.close()
    return compared, skipped
