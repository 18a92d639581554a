"""A small operational model of a machine with weak memory order, explored completely.

Threads are straight lines of loads and stores on one shared memory. A thread executes its operations in any order that
these rules allow, and each operation takes effect for all threads at once, as on ARMv8:

* operations on the same address keep their order;
* a store of a value that was loaded before follows that load;
* what follows an acquire load in the program follows it in execution;
* what precedes a release store in the program precedes it in execution;
* what precedes a fence precedes it in execution, and what follows it follows it;
* with `control`, a store follows a load with a condition before it. Machines do this, and C11 does not
  promise it: a compiler may do without the condition.

A load may have a condition: a spin until it holds, of which only the last turn is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Registers = Mapping[str, int]


@dataclass(frozen=True)
class Load:
    """Load `address` into `register`; executed only when the value makes `until` true."""

    address: str
    register: str
    until: Callable[[int], bool] | None = None
    acquire: bool = False


@dataclass(frozen=True)
class Store:
    """Store a number, or the value of a register."""

    address: str
    value: int | str
    release: bool = False


@dataclass(frozen=True)
class Fence:
    """Keep the operations before it and those after it in order."""


Operation = Load | Store | Fence


def _ordered(thread: Sequence[Operation], control: bool) -> list[int]:
    """Return for each operation which earlier ones must be executed before it, as bits."""
    found = []
    for index, later in enumerate(thread):
        before = 0
        for number, earlier in enumerate(thread[:index]):
            if isinstance(earlier, Fence) or isinstance(later, Fence):
                before |= 1 << number
                continue
            depends = isinstance(later, Store) and isinstance(earlier, Load) and later.value == earlier.register
            if (
                earlier.address == later.address
                or depends
                or (isinstance(earlier, Load) and earlier.acquire)
                or (isinstance(later, Store) and later.release)
                or (control and isinstance(earlier, Load) and earlier.until is not None and isinstance(later, Store))
            ):
                before |= 1 << number
        found.append(before)
    return found


def outcomes(threads: Sequence[Sequence[Operation]], *, control: bool = False) -> set[tuple[tuple[str, int], ...]]:
    """Return all final contents of the registers; memory is 0 at the beginning.

    An execution in which a condition never becomes true has no outcome.
    """
    before = [_ordered(thread, control) for thread in threads]
    # A state: what each thread has executed, as bits; the memory; the registers.
    addresses = sorted({each.address for thread in threads for each in thread if not isinstance(each, Fence)})
    place = {address: index for index, address in enumerate(addresses)}
    names = sorted({each.register for thread in threads for each in thread if isinstance(each, Load)})
    slot = {name: index for index, name in enumerate(names)}
    start = ((0,) * len(threads), (0,) * len(addresses), (0,) * len(names))
    seen, todo, found = {start}, [start], set()
    full = tuple((1 << len(thread)) - 1 for thread in threads)
    while todo:
        done, memory, registers = todo.pop()
        if done == full:
            found.add(tuple(zip(names, registers, strict=True)))
        for number, thread in enumerate(threads):
            for index, each in enumerate(thread):
                if done[number] >> index & 1 or before[number][index] & ~done[number]:
                    continue
                if isinstance(each, Fence):
                    after = memory, registers
                elif isinstance(each, Load):
                    at = place[each.address]
                    if each.until is not None and not each.until(memory[at]):
                        continue
                    changed = (*registers[: slot[each.register]], memory[at], *registers[slot[each.register] + 1 :])
                    after = memory, changed
                else:
                    at = place[each.address]
                    value = registers[slot[each.value]] if isinstance(each.value, str) else each.value
                    after = (*memory[:at], value, *memory[at + 1 :]), registers
                state = (*done[:number], done[number] | 1 << index, *done[number + 1 :]), *after
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
    return found
