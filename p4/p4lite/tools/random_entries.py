"""Random table entries, the same for several switches."""

from __future__ import annotations

import random
from collections.abc import Sequence

from p4lite.api.control import Control
from p4lite.switch.errors import AlreadyExists, ResourceExhausted
from p4lite.switch.fuzz.campaign import random_args, random_key
from p4lite.switch.program.entry import ActionCall
from p4lite.switch.program.facts import TableFacts
from p4lite.switch.runtime.keys import words_to_key


def same_table(table: TableFacts, other: TableFacts | None) -> bool:
    """Return whether entries of a table fit another: keys alike, actions alike."""
    if other is None:
        return False
    keys = [(k.match, k.width) for k in table.key] == [(k.match, k.width) for k in other.key]
    actions = {n: a.widths for n, a in table.actions.items()} == {n: a.widths for n, a in other.actions.items()}
    return keys and actions and (table.action_profile is None) == (other.action_profile is None)


def takes_entries(table: TableFacts) -> bool:
    """Return whether random entries can be made for a table."""
    return bool(table.key) and bool(table.actions) and not table.const_entries and table.action_profile is None


def fill(controls: Sequence[Control], rng: random.Random, entries: int, *, least: int = 0) -> int:
    """Add `least` to `entries` to every table that all switches have; return how many were added."""
    first, added = controls[0], 0
    for table in first.program.tables.values():
        if not takes_entries(table) or not all(same_table(table, c.program.tables.get(table.name)) for c in controls):
            continue
        actions = list(table.actions.values())
        for _ in range(rng.randint(least, entries)):
            words = random_key(table, rng)
            key = words_to_key(table, words.value, words.mask, words.high)
            action = rng.choice(actions)
            call = ActionCall(action.name, tuple(random_args(action, rng)))
            priority = words.order if table.needs_priority else 0
            try:
                for control in controls:
                    control.table_add(table.name, key, call, priority=priority)
            except (AlreadyExists, ResourceExhausted):
                continue
            added += 1
    return added
