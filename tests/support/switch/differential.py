"""Compares the compiled program with the reference interpreter, packet by packet, with the same table entries."""

from __future__ import annotations

import random

from p4lite.interpreter.machine import Interpreter
from p4lite.switch.errors import AlreadyExists, ResourceExhausted
from p4lite.switch.fuzz.campaign import random_args, random_key
from p4lite.switch.fuzz.frames import FrameMaker
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.runtime.instance import ProgramInstance
from p4lite.switch.runtime.keys import words_to_key
from p4lite.switch.runtime.loader import Program
from p4lite.switch.runtime.runner import Runner


def fill(instance: ProgramInstance, oracle: Interpreter, rng: random.Random, entries: int) -> None:
    """Random entries in every table that takes them, the same on both sides."""
    for table in instance.program.tables.values():
        if table.action_profile is not None or not table.key or table.const_entries:
            continue
        actions = list(table.actions.values())
        for _ in range(rng.randint(0, entries)):
            words = random_key(table, rng)
            key = words_to_key(table, words.value, words.mask, words.high)
            action = rng.choice(actions)
            args = tuple(random_args(action, rng))
            priority = words.order if table.needs_priority else 0
            try:
                instance.table_add(table.name, key, ActionCall(action.name, args), priority=priority)
            except (AlreadyExists, ResourceExhausted):
                continue
            oracle.table_add(table.name, key, ActionCall(action.name, args), priority=priority)


def compare(program: Program, seed: int, packets: int, *, entries: int = 6) -> tuple[int, int]:
    """(packets compared, packets left out because they are replicated or resubmitted). Raises AssertionError."""
    rng = random.Random(seed)
    instance, oracle = program.instance(), Interpreter(program)
    compared = skipped = 0
    try:
        fill(instance, oracle, rng, entries)
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
