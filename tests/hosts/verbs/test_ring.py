"""The order of loads and stores of a ring in shared memory, where the machine does not keep it by itself (arm64).

The first tests look at the steps themselves. The last one runs two processes against each other: on an arm64 machine it
can fail without the fences; on x86-64, and under qemu there, it cannot.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_host import ordering
from mrc_host.ordering import fence, is_weak
from mrc_host.verbs import completion, layout
from mrc_host.verbs.completion import CompletionQueue
from mrc_host.verbs.layout import Consumer, Producer

CAPACITY = 8
NAMES = {layout.TAIL: "TAIL", layout.NOTED: "NOTED", layout.HEAD: "HEAD"}


class Recorder:
    """The counters of a ring; it notes loads, stores and fences in their order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.values = dict.fromkeys(NAMES, 0)

    def __getitem__(self, word: int) -> int:
        self.steps.append(f"load {NAMES[word]}")
        return self.values[word]

    def __setitem__(self, word: int, value: int) -> None:
        self.steps.append(f"store {NAMES[word]}")
        self.values[word] = value

    def fence(self) -> None:
        self.steps.append("fence")


@pytest.fixture(params=[True, False], ids=["weak", "strong"])
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    made = Recorder()
    for module in (layout, completion):
        monkeypatch.setattr(module, "WEAK", request.param)
        monkeypatch.setattr(module, "fence", made.fence)
    yield made
    assert ("fence" in made.steps) == request.param, "fences are for machines that need them, and for those only"


def make(kind: type[Any], recorder: Recorder) -> Any:
    """Return an end of a ring whose counters are the recorder."""
    nbytes = layout.ring_bytes(CAPACITY, layout.COMPLETION_BYTES)
    made = kind(memoryview(bytearray(nbytes)), CAPACITY, layout.COMPLETION_BYTES)
    made.words = recorder
    return made


def steps(recorder: Recorder, *words: str) -> list[str]:
    return [word for word in words if word != "fence" or "fence" in recorder.steps]


def test_a_producer_publishes_after_the_entries(recorder: Recorder) -> None:
    made = make(Producer, recorder)
    made.publish()
    made.note(1)
    assert recorder.steps == steps(recorder, "fence", "store TAIL", "fence", "store NOTED")


def test_a_producer_writes_after_the_consumer_has_given_back(recorder: Recorder) -> None:
    assert make(Producer, recorder).room() == CAPACITY
    assert recorder.steps == steps(recorder, "load HEAD", "fence")


def test_a_consumer_reads_after_the_counter_and_before_it_gives_back(recorder: Recorder) -> None:
    made = make(Consumer, recorder)
    made.pending()
    made.release()
    made.noted()
    wanted = ("load TAIL", "fence", "fence", "store HEAD", "load NOTED", "fence")
    assert recorder.steps == steps(recorder, *wanted)


def test_a_completion_queue_does_the_same(recorder: Recorder) -> None:
    queue = CompletionQueue.__new__(CompletionQueue)
    queue._ring = make(Consumer, recorder)
    queue.context = types.SimpleNamespace(queue_pairs={})  # type: ignore[assignment]
    layout.COMPLETION.pack_into(queue._ring.buffer, layout.HEAD_BYTES, 7, 0, layout.WcOpcode.RDMA_WRITE, 1, 9, 0, 0, 1)
    recorder.values[layout.TAIL] = 1
    assert [each.wr_id for each in queue.poll()] == [7]
    assert recorder.steps == steps(recorder, "load TAIL", "fence", "fence", "store HEAD")


@pytest.mark.parametrize(
    ("machine", "weak"), [("x86_64", False), ("AMD64", False), ("aarch64", True), ("arm64", True), ("riscv64", True)]
)
def test_machines_that_need_fences(machine: str, weak: bool) -> None:
    assert is_weak(machine) is weak


PRODUCE = """
import mmap, sys
from mrc_host.verbs import layout
layout.WEAK = layout.WEAK or sys.argv[3] == "fences"
number, count = int(sys.argv[1]), int(sys.argv[2])
memory = mmap.mmap(number, 0)
end = layout.Producer(memoryview(memory), 8, 64)
made = 0
while made < count:
    if end.room():
        at = end.at(end.tail)
        end.buffer[at : at + 64] = (made & 0xFF).to_bytes(1, "big") * 64
        end.tail += 1
        made += 1
        end.publish()
"""


@pytest.mark.parametrize("fences", ["fences", "as the machine needs"])
def test_two_processes_pass_whole_entries(fences: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(layout, "WEAK", ordering.WEAK or fences == "fences")
    count, entry_bytes = 20_000, 64
    nbytes = layout.ring_bytes(CAPACITY, entry_bytes)
    with (tmp_path / "ring").open("w+b") as file:
        file.truncate(nbytes)
        command = [sys.executable, "-c", PRODUCE, str(file.fileno()), str(count), fences]
        producer = subprocess.Popen(command, pass_fds=[file.fileno()], stderr=subprocess.PIPE, text=True)
        memory = mmap.mmap(file.fileno(), nbytes)
        end = Consumer(memoryview(memory), CAPACITY, entry_bytes)
        taken = 0
        while taken < count:
            waiting = end.pending()
            if not waiting:
                assert producer.poll() in (None, 0), producer.communicate()[1]
            for _ in range(waiting):
                at = end.at(end.head)
                assert bytes(end.buffer[at : at + entry_bytes]) == bytes([taken & 0xFF]) * entry_bytes, taken
                end.head += 1
                taken += 1
            if waiting:
                end.release()
        _, said = producer.communicate(timeout=300)
        assert producer.returncode == 0, said


def test_a_fence_returns_while_other_threads_fence() -> None:
    """Fences share a lock, which none of them holds for longer than a moment."""
    threads = [threading.Thread(target=lambda: [fence() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
