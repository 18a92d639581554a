"""The send ring: whose turn it is, who waits for a window, and what is left of a port's room, by scripted senders."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_host import native
from mrc_host.proto.timers import Timed, TimerKind, TimerQueue

SOURCE = native.PACKAGE / "proto" / "send_ring.py"
NEEDS = 100


def interpreted() -> Any:
    """Return the module as it stands: senders of the compiled one cannot be written in Python."""
    spec = importlib.util.spec_from_file_location("send_ring_as_it_stands", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ring = interpreted()


class Window(Timed):
    """A controller's window, and whether its planes wait for one that is behind."""

    def __init__(self, cwnd: float = 0, inflight: int = 0) -> None:
        self.cc = SimpleNamespace(cwnd=cwnd, inflight=inflight)
        self.in_ring = 0
        self.waiting: list[Script] = []
        self.balance: Any = SimpleNamespace(waiting=False, pause=lambda: setattr(self.balance, "waiting", False))

    def on_timer(self, kind: TimerKind, now: int) -> None:
        raise NotImplementedError


class Script:
    """A sender whose answers are given; after them it has nothing to send."""

    def __init__(self, qpcc: Window, *answers: bytes | int | Exception) -> None:
        self.qpcc = qpcc
        self.answers = list(answers)
        self.in_ring = self.waiting = False
        self.needs = NEEDS

    def emit(self, port: int, now: int, room: int) -> bytes | int:
        answer = self.answers.pop(0) if self.answers else ring.IDLE
        if isinstance(answer, Exception):
            raise answer
        return answer


def made(*senders: Script, length_only: bool = False) -> Any:
    """Return a ring with these in it."""
    found = ring.SendRing(TimerQueue(), length_only)
    for each in senders:
        found.wake(each)
    return found


def wait(qpcc: Window, count: int) -> list[Script]:
    """Return senders that wait for a window."""
    senders = [Script(qpcc) for _ in range(count)]
    for each in senders:
        each.waiting = True
        qpcc.waiting.append(each)
    return senders


def filled(of: Any, room: int = 10_000) -> tuple[list[bytes], int]:
    """Return what the ring sends on a port, and the room that is left."""
    packets: list[bytes] = []
    return packets, of.fill(0, 0, room, packets)


@pytest.mark.parametrize(
    ("cwnd", "inflight", "woken"),
    [
        (NEEDS - 1, 1, 0),  # something is in flight: it opens the window when it arrives
        (NEEDS - 1, 0, 1),  # nothing is: one packet may leave, whatever its size
        (NEEDS, 0, 1),
        (3 * NEEDS + 50, NEEDS, 2),
        (3 * NEEDS, NEEDS, 2),
        (9 * NEEDS, 0, 4),
    ],
)
def test_as_many_are_woken_as_the_window_has_room_for(cwnd: int, inflight: int, woken: int) -> None:
    qpcc = Window(cwnd, inflight)
    senders = wait(qpcc, 4)
    found = made()
    found.wake_waiting(qpcc)
    assert list(found.senders) == senders[:woken], "in turn"
    assert list(qpcc.waiting) == senders[woken:]
    assert [each.waiting for each in senders] == [number >= woken for number in range(4)]
    assert qpcc.in_ring == woken


def test_who_is_withdrawn_counts_no_more() -> None:
    qpcc = Window()
    first, second, third = Script(qpcc), Script(qpcc, b"packet"), *wait(qpcc, 1)
    found = made(first, second)
    found.withdraw(first)
    found.withdraw(third)
    assert (list(found.senders), qpcc.in_ring, list(qpcc.waiting)) == ([second], 1, [])
    assert filled(found)[0] == [b"packet"]


def test_an_idle_sender_leaves_its_room_to_one_that_waits() -> None:
    qpcc = Window(cwnd=NEEDS)
    (waiting,) = wait(qpcc, 1)
    waiting.answers = [b"packet"]
    assert filled(made(Script(qpcc)))[0] == [b"packet"]


def test_a_closed_window_holds_its_senders_and_nobody_else() -> None:
    closed, open_ = Window(inflight=1), Window()
    first = Script(closed, ring.WINDOW)
    found = made(first, Script(closed, b"not this"), Script(open_, b"packet"))
    assert filled(found)[0] == [b"packet"]
    assert list(closed.waiting) == [first]
    assert (closed.in_ring, open_.in_ring) == (1, 0)


def test_a_port_that_is_ahead_of_one_peer_sends_to_another() -> None:
    ahead = Window()
    # The first one had nothing for this port; it is not counted again among those that are held.
    found = made(Script(ahead, ring.PORT), Script(ahead, ring.AHEAD), Script(Window(), b"packet"))
    assert filled(found)[0] == [b"packet"]


def test_planes_wait_for_each_other_no_more_when_nobody_sends() -> None:
    qpcc = Window()
    qpcc.balance.waiting = True
    timers = TimerQueue()
    timers.arm(TimerKind.BALANCE, qpcc, 1)
    found = ring.SendRing(timers)
    found.wake(Script(qpcc))
    filled(found)
    assert not qpcc.balance.waiting
    assert not timers.is_armed(TimerKind.BALANCE, qpcc)


def test_who_does_not_fit_keeps_its_turn() -> None:
    qpcc = Window()
    first, second = Script(qpcc, ring.BUDGET, b"first"), Script(qpcc, b"second")
    found = made(first, second)
    assert filled(found)[0] == []
    assert filled(found)[0] == [b"first", b"second"]


@pytest.mark.parametrize(("length_only", "taken"), [(False, 60), (True, 1040)])
def test_a_packet_takes_the_room_of_its_whole_length(length_only: bool, taken: int) -> None:
    packet = bytes(4) + (1000).to_bytes(2, "big") + bytes(54)
    assert filled(made(Script(Window(), packet), length_only=length_only), 5000) == ([packet], 5000 - taken)


def test_who_fails_is_out_of_the_ring() -> None:
    qpcc, error = Window(), ValueError("of the sender")
    failing, good = Script(qpcc, error), Script(qpcc, b"packet")
    found = made(failing, good)
    assert filled(found)[0] == []
    assert found.failed == (failing, error)
    assert (list(found.senders), qpcc.in_ring) == ([good], 1)
