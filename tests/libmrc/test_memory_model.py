"""The algorithm of rings (`hosts/libmrc/src/ring.h`) under a weak memory model: right as it is, wrong without any of
its orders.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from libmrc import build
from support.memory_model import Fence, Load, Operation, Store, outcomes

LITMUS = pathlib.Path(__file__).parent / "litmus"
ORDERS = {"room", "publish", "pending", "release"}
ENTRIES = 3


def producer(orders: set[str], capacity: int) -> list[Operation]:
    """Return `ring_room`, the writing of an entry of two words, and `ring_publish`, for each entry."""
    found: list[Operation] = []
    for entry in range(1, ENTRIES + 1):
        least = entry - capacity

        def fits(head: int, least: int = least) -> bool:
            return head >= least

        found.append(Load("HEAD", f"head{entry}", fits, acquire="room" in orders))
        found.append(Store(f"word{entry % capacity}", entry))
        found.append(Store("TAIL", entry, release="publish" in orders))
    return found


def consumer(orders: set[str], capacity: int) -> list[Operation]:
    """Return `ring_pending`, the reading of an entry, and `ring_release`, for each entry."""
    found: list[Operation] = []
    for entry in range(1, ENTRIES + 1):

        def there(tail: int, entry: int = entry) -> bool:
            return tail >= entry

        found.append(Load("TAIL", f"tail{entry}", there, acquire="pending" in orders))
        found.append(Load(f"word{entry % capacity}", f"got{entry}"))
        found.append(Store("HEAD", entry, release="release" in orders))
    return found


def right(orders: set[str], capacity: int, *, control: bool = False) -> bool:
    """Return whether the consumer gets what the producer wrote, in every execution."""
    found = outcomes([producer(orders, capacity), consumer(orders, capacity)], control=control)
    assert found
    return all(dict(outcome)[f"got{entry}"] == entry for outcome in found for entry in range(1, ENTRIES + 1))


@pytest.mark.parametrize("capacity", [1, 2])
def test_entries_cross_whole(capacity: int) -> None:
    assert right(ORDERS, capacity)
    assert right(ORDERS, capacity, control=True)


@pytest.mark.parametrize("missing", sorted(ORDERS))
def test_each_order_is_needed(missing: str) -> None:
    assert not right(ORDERS - {missing}, 1)
    assert not right(ORDERS - {missing}, 2)


def test_machines_order_what_depends_on_a_condition() -> None:
    """There the acquire of `ring_room` is for the compiler alone."""
    assert right(ORDERS - {"room"}, 1, control=True)
    for missing in sorted(ORDERS - {"room"}):
        assert not right(ORDERS - {missing}, 1, control=True)


def notified(*, note_release: bool, note_acquire: bool) -> bool:
    """Return whether who sees a notification sees the completion that it is of."""
    agent = [Store("word", 7), Store("TAIL", 1, release=True), Store("NOTED", 1, release=note_release)]
    program = [
        Load("NOTED", "noted", lambda noted: noted == 1, acquire=note_acquire),
        Load("TAIL", "tail", acquire=True),
        Load("word", "got"),
    ]
    return all(dict(found)["tail"] == 1 and dict(found)["got"] == 7 for found in outcomes([agent, program]))


def test_a_notification_comes_after_its_completion() -> None:
    assert notified(note_release=True, note_acquire=True)
    assert not notified(note_release=False, note_acquire=True)
    assert not notified(note_release=True, note_acquire=False)


def wakes(*, program_fence: bool, agent_fence: bool) -> bool:
    """Return whether a program that asks for a notification without a bell is never forgotten.

    The agent sees the request before it sleeps, or the program sees that a completion was added, and rings
    (`lab_arm`, `RawDriver.run`).
    """
    fence: list[Operation] = [Fence()]
    program = [Store("REQUESTS", 1, release=True), *(fence * program_fence), Load("COMPLETIONS", "added", acquire=True)]
    agent = [Store("COMPLETIONS", 1, release=True), *(fence * agent_fence), Load("REQUESTS", "asked", acquire=True)]
    return (("added", 0), ("asked", 0)) not in outcomes([program, agent])


def test_a_request_for_a_notification_needs_no_bell() -> None:
    assert wakes(program_fence=True, agent_fence=True)
    assert not wakes(program_fence=False, agent_fence=True)
    assert not wakes(program_fence=True, agent_fence=False)


def test_the_model_knows_the_usual_litmus_tests() -> None:
    """Store buffering is allowed even with acquire and release, message passing with them is not, and coherence is
    never broken.
    """
    buffering = outcomes(
        [
            [Store("x", 1, release=True), Load("y", "a", acquire=True)],
            [Store("y", 1, release=True), Load("x", "b", acquire=True)],
        ]
    )
    assert (("a", 0), ("b", 0)) in buffering
    passing = outcomes([[Store("x", 1), Store("y", 1, release=True)], [Load("y", "a", acquire=True), Load("x", "b")]])
    assert (("a", 1), ("b", 0)) not in passing
    assert (("a", 0), ("b", 1)) in passing
    coherence = outcomes([[Store("x", 1), Store("x", 2)], [Load("x", "a"), Load("x", "b")]])
    assert (("a", 2), ("b", 1)) not in coherence


def test_the_source_has_the_orders_that_were_explored() -> None:
    text = (build.SOURCES / "ring.h").read_text()
    functions = dict(re.findall(r"^static inline \w+ ring_(\w+)\(.*?\)\n\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE))
    for name, order in {
        "room": "memory_order_acquire", "publish": "memory_order_release", "produced": "memory_order_acquire",
        "release": "memory_order_release", "noted": "memory_order_acquire",
    }.items():  # fmt: skip
        assert re.findall(r"memory_order_\w+", functions[name]) == [order]
    assert "ring_produced" in functions["pending"]
    arm = (build.SOURCES / "post.c").read_text().partition("int lab_arm(")[2].partition("\n}")[0]
    steps = ("ring_publish(", "atomic_thread_fence(memory_order_seq_cst)", "ring_produced(")
    assert [arm.count(step) for step in steps] == [1, 1, 1]
    assert sorted(steps, key=arm.index) == list(steps)


def herd(litmus: pathlib.Path) -> bool:
    """Return whether herd7 finds no execution with a wrong entry and no data race, under repaired C11 (RC11)."""
    command = shutil.which("herd7")
    if command is None:
        pytest.skip("herd7 is not installed")
    said = subprocess.run(
        [command, "-model", "rc11.cat", str(litmus)], check=True, capture_output=True, text=True
    ).stdout
    assert "Observation" in said
    return " Never " in said and "Flag *undef*" not in said


@pytest.mark.parametrize("name", ["publish", "reuse", "notify", "sleep"])
def test_herd_agrees(tmp_path: pathlib.Path, name: str) -> None:
    right = LITMUS / f"ring-{name}.litmus"
    assert herd(right)
    wrong = tmp_path / right.name
    orders = re.sub(r".*atomic_thread_fence.*\n", "", right.read_text())
    wrong.write_text(orders.replace("memory_order_release", "memory_order_relaxed"))
    assert not herd(wrong)
