"""Makes a failing scenario small: fewer operations and faults, a plainer set-up, while it fails in the same way."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from support.model.scenario import Scenario

T = TypeVar("T")
Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails, seconds: float) -> Scenario:
    """Return the smallest scenario found within some CPU time that still fails."""
    end = time.process_time() + seconds
    before = None
    while before != scenario and time.process_time() < end:
        before = scenario
        scenario = _simpler(_fewer_faults(_fewer_ops(scenario, fails, end), fails, end), fails, end)
    return scenario


def _fewer_ops(scenario: Scenario, fails: Fails, end: float) -> Scenario:
    ops = _fewer(scenario.ops, lambda kept: fails(dataclasses.replace(scenario, ops=tuple(kept))), end)
    return dataclasses.replace(scenario, ops=tuple(ops))


def _fewer_faults(scenario: Scenario, fails: Fails, end: float) -> Scenario:
    faults = _fewer(scenario.faults, lambda kept: fails(dataclasses.replace(scenario, faults=tuple(kept))), end)
    return dataclasses.replace(scenario, faults=tuple(faults))


def _fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool], end: float) -> Sequence[T]:
    """Delta debugging: leave out pieces, first large ones."""
    size = len(items)
    while size >= 1:
        start = 0
        while start < len(items):
            if time.process_time() > end:
                return items
            kept = [*items[:start], *items[start + size :]]
            if fails(kept):
                items = kept
            else:
                start += size
        size //= 2
    return items


def _simpler(scenario: Scenario, fails: Fails, end: float) -> Scenario:
    """Plainer settings, one by one."""
    used = {op.where for op in scenario.ops if op.kind.startswith("post")}
    plain: dict[str, Any] = {
        "epoch_ns": 0, "batch_bytes": 0, "wrap": False, "adaptive": False, "dynamic_mpr": False,
        "service_time": False, "timestamps": True, "always_skip_after": 0, "sack_every": 1, "tail_probe": True,
        "rack": True, "same_ev": True, "trim_nack": True, "mark_ns": 0, "trim_ns": 1 << 40, "window": "fixed",
        "mpr": 64, "max_wimm": 1024, "exp_cnt": 0, "linear_cnt": 3, "dcqcn": False, "selective": False,
        "ev_active": scenario.setup.planes,
    }  # fmt: skip
    if len(used) == 1 and len(scenario.setup.pairs) > 1 and all(op.kind.startswith("post") for op in scenario.ops):
        where = next(iter(used))
        single_packet_mode = dataclasses.replace(scenario.setup, pairs=(scenario.setup.pairs[where],))
        moved = tuple(dataclasses.replace(op, where=0) for op in scenario.ops)
        tried = dataclasses.replace(scenario, setup=single_packet_mode, ops=moved)
        if fails(tried):
            scenario = tried
    for name, value in plain.items():
        if time.process_time() > end:
            break
        if getattr(scenario.setup, name) == value:
            continue
        tried = dataclasses.replace(scenario, setup=dataclasses.replace(scenario.setup, **{name: value}))
        if fails(tried):
            scenario = tried
    for number, op in enumerate(scenario.ops):
        for size in (0, 1, scenario.setup.mtu):
            if time.process_time() > end or not op.kind.startswith("post") or size >= op.size:
                break
            ops = list(scenario.ops)
            ops[number] = dataclasses.replace(op, size=size)
            tried = dataclasses.replace(scenario, ops=tuple(ops))
            if fails(tried):
                scenario = tried
                break
    return scenario
