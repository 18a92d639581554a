"""A short part of the model-based campaign, and the proof that each of its judgements can fail.

The whole campaign: `PYTHONPATH=tests python -m support.model --help`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.events import ErrorReason, QpState, QpStateChanged
from mrc_host.proto.events import Fault as FaultEvent
from mrc_host.proto.statistics import QpStatistics, RoceStatistics
from support.model import make
from support.model.judge import Outcome, run
from support.model.network import kind_of, sealed, trimmed
from support.model.scenario import MRC, ROCE, Fault, Op, Scenario, draw
from support.model.shrink import shrink
from support.model.world import World

BOTH = pytest.mark.parametrize("transport", [MRC, ROCE])


def calm(transport: str, **changes: Any) -> Scenario:
    """Two hosts, one pair, some writes, nothing that goes wrong."""
    setup = replace(
        draw(1, transport, quick=True).setup,
        hosts=2, planes=2, pairs=((0, 1),), mtu=1024, rate_bps=10_000_000_000, delays=(5_000, 5_000), epoch_ns=0,
        batch_bytes=0, max_message=5_000, slots=8, timeout=9, linear_cnt=3, exp_cnt=3, retry_cnt=7, ev_count=16,
        ev_active=8, wide_evs=True, window="fixed", window_bytes=20_000, sack_every=1, tail_probe=True, rack=True,
        same_ev=True, adaptive=False, mpr=64, dynamic_mpr=False, service_time=False, trim_nack=True, max_wimm=64,
        timestamps=True, probe_interval_ns=100_000, always_skip_after=0, psn=5, wrap=False, ack_every=4,
        max_inflight=16,
        selective=False, dcqcn=False, mark_ns=0, trim_ns=1 << 40, chaos_ns=400_000, ending="heal", dead=-1,
        profiles=False, reuse=True, strict=True,
    )  # fmt: skip
    setup = replace(setup, **changes)
    ops = tuple(Op(1_000 + 10_000 * n, "post_imm" if n % 3 == 2 else "post", 0, n % 2, 700 * n, n) for n in range(8))
    return Scenario(setup, ops)


# --- the campaign, for some seconds ---


@BOTH
@pytest.mark.parametrize("seed", range(25))
def test_scenario_of_a_seed_has_a_good_outcome(transport: str, seed: int) -> None:
    outcome = run(draw(seed, transport, quick=True))
    assert not outcome.bad, f"python -m support.model --quick --transport {transport} --replay {seed}: {outcome.text}"


@BOTH
def test_a_scenario_is_the_same_every_time(transport: str) -> None:
    first, second = (run(draw(3, transport, quick=True)) for _ in range(2))
    assert first == second
    scenario = draw(3, transport)
    assert Scenario.from_json(scenario.to_json()) == scenario


@BOTH
def test_counters_begin_close_to_their_ends(transport: str) -> None:
    world = World(calm(transport, psn=0xFFFFFE, wrap=True))
    qp = world.everything[1].qp
    assert (qp.msn if transport == ROCE else qp.responder.rcvd_bytes >> 8) & 0xFFFFFF > 0xFFFF00
    outcome = run(calm(transport, psn=0xFFFFFE, wrap=True))
    assert (outcome.kind, outcome.succeeded) == ("ok", outcome.writes)


# --- each judgement fails when there is reason to ---


class Around:
    """An endpoint with something wrong: what is not defined here is the endpoint's."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)


class LosesCompletions(Around):
    def poll(self, cq: Any, limit: int) -> Any:
        found = self._endpoint.poll(cq, limit)
        return [each for each in found if each.kind.value == "recv_imm" or each.byte_len != 700]


class RepeatsCompletions(Around):
    def poll(self, cq: Any, limit: int) -> Any:
        return [each for each in self._endpoint.poll(cq, limit) for _ in range(2)]


class SwapsCompletions(Around):
    """The next completion is held back until another one has come."""

    held: Any = None

    def poll(self, cq: Any, limit: int) -> Any:
        found = self._endpoint.poll(cq, limit)
        if found and found[0].kind.value != "recv_imm" and self.held is None:
            self.held = found.pop(0)
        elif found and self.held is not None:
            found.append(self.held)
        return found


class FailsAfterFailure(Around):
    def poll(self, cq: Any, limit: int) -> Any:
        found = self._endpoint.poll(cq, limit)
        bad = CompletionStatus.RETRY_EXC_ERR
        return [each if each.kind.value == "recv_imm" else each._replace(status=bad) for each in found]


class SucceedsTooSoon(Around):
    """A write completes although a byte of it is missing."""

    def register_memory(self, buffer: Any) -> Any:
        self.last = buffer
        return self._endpoint.register_memory(buffer)

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        self._endpoint.receive_datagram(port, packet, now)
        if kind_of(packet) == "data" and len(packet) > 200:
            for place, byte in enumerate(self.last):
                if byte != 0xA5:
                    self.last[place] ^= 1
                    return


class WritesBeside(Around):
    """A byte outside of all writes changes."""

    def register_memory(self, buffer: Any) -> Any:
        buffer.obj[3] ^= 0xFF
        return self._endpoint.register_memory(buffer)


class SwapsImmediates(Around):
    def poll(self, cq: Any, limit: int) -> Any:
        found = self._endpoint.poll(cq, limit)
        return [each._replace(immediate=each.immediate ^ 1) if each.immediate is not None else each for each in found]


class EarlyImmediates(Around):
    """An immediate is delivered before the message is there: its memory is taken back before the user looks."""

    def register_memory(self, buffer: Any) -> Any:
        self.last = buffer
        return self._endpoint.register_memory(buffer)

    def poll(self, cq: Any, limit: int) -> Any:
        found = self._endpoint.poll(cq, limit)
        if any(each.immediate is not None for each in found):
            self.last[:] = b"\xa5" * len(self.last)
        return found


class LosesImmediates(Around):
    def poll(self, cq: Any, limit: int) -> Any:
        return [each for each in self._endpoint.poll(cq, limit) if each.kind.value != "recv_imm"]


class Deaf(Around):
    """Sends, hears nothing, has no timers."""

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        pass


class SlowForEver(Around):
    """Has a timer that does nothing."""

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        self.now = now

    def next_timer(self) -> int | None:
        return getattr(self, "now", 0) + 1_000_000

    def handle_timer(self, now: int) -> None:
        self.now = now


class Spins(Around):
    def next_timer(self) -> int | None:
        return 0


class Raises(Around):
    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        raise KeyError("something")


class TellsFaults(Around):
    def next_event(self) -> Any:
        self._calls += 1
        return FaultEvent("here", None, "x", "y") if self._calls == 3 else self._endpoint.next_event()


class TellsImpossible(Around):
    def next_event(self) -> Any:
        self._calls += 1
        if self._calls == 3:
            return QpStateChanged(1, QpState.RTS, QpState.ERROR, ErrorReason.CONTRADICTION)
        return self._endpoint.next_event()


class Repeats(Around):
    """Sends some packets again and again, from some time on or after its queue pair has ended."""

    wanted = ("data",)
    times = 300
    after = 0

    def datagrams_to_send(self, port: int, now: int, budget: int) -> Any:
        found = self._endpoint.datagrams_to_send(port, now, budget)
        if found:
            seen = [packet for packet in found if kind_of(packet) in self.wanted]
            self.kept = seen or getattr(self, "kept", [])
        elif now > self.after and getattr(self, "kept", None) and self._calls < self.times:
            self._calls += 1
            return self.kept[:1]
        return found


class Echoes(Around):
    """Answers each packet by one that it has sent before."""

    def datagrams_to_send(self, port: int, now: int, budget: int) -> Any:
        found = self._endpoint.datagrams_to_send(port, now, budget)
        if now > 405_000 and not found and self._calls:
            self._calls = 0
            return self.kept  # type: ignore[has-type]
        self.kept = [packet for packet in found if kind_of(packet) == "data"][:1] or getattr(self, "kept", [])
        return found

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        self._endpoint.receive_datagram(port, packet, now)
        self._calls = int(kind_of(packet) == "ack")


class Haunts(Repeats):
    """Sends data after the end of its queue pair."""

    after = 300_000


class KeepsTimers(Around):
    """One timer never goes away."""

    def next_timer(self) -> int | None:
        found = self._endpoint.next_timer()
        return self.now + 100_000_000 if found is None and hasattr(self, "now") else found

    def handle_timer(self, now: int) -> None:
        self.now = now
        self._endpoint.handle_timer(now)


class Miscounts(Around):
    def statistics(self) -> Any:
        found = self._endpoint.statistics()
        for row in found.qps:
            if isinstance(row, QpStatistics):
                cast("dict[str, int]", row.requestor)["requests_completed"] += 1
        found.endpoint["retransmissions"] = 1 << 60
        return found


class StaysInFlight(Around):
    def statistics(self) -> Any:
        found = self._endpoint.statistics()
        if isinstance(found, RoceStatistics):
            return found
        return replace(found, peers=[replace(row, cc=replace(row.cc, inflight=588)) for row in found.peers])


class ForgetsPlanes(Around):
    def statistics(self) -> Any:
        found = self._endpoint.statistics()
        for row in getattr(found, "peers", ()):
            row.planes[0] = False
        return found


class LosesPorts(Around):
    def ports_up(self) -> Any:
        return [False, *self._endpoint.ports_up()[1:]]


def _with(scenario: Scenario, *extra: Op) -> Scenario:
    return replace(scenario, ops=tuple(sorted((*scenario.ops, *extra), key=lambda op: op.at)))


@BOTH
def test_calm_scenario_succeeds(transport: str) -> None:
    outcome = run(calm(transport))
    assert (outcome.kind, outcome.succeeded) == ("ok", outcome.writes), outcome.text
    assert outcome.writes >= 8


@BOTH
@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        (LosesCompletions, {"completion"}),
        (RepeatsCompletions, {"completion"}),
        (SwapsCompletions, {"completion"}),
        (FailsAfterFailure, {"flush-order"}),
        (SucceedsTooSoon, {"memory"}),
        (WritesBeside, {"memory"}),
        (SwapsImmediates, {"immediate"}),
        (EarlyImmediates, {"immediate", "memory"}),
        (LosesImmediates, {"immediate"}),
        (Deaf, {"hang"}),
        (SlowForEver, {"late"}),
        (Spins, {"spin"}),
        (Raises, {"exception"}),
        (TellsFaults, {"fault"}),
        (TellsImpossible, {"impossible"}),
        (KeepsTimers, {"timers"}),
        (Miscounts, {"counters"}),
        (LosesPorts, {"ports"}),
    ],
)
def test_every_judgement_finds_its_planted_fault(transport: str, wrong: Callable[[Any], Any], kinds: set[str]) -> None:
    outcome = run(calm(transport), wrong)
    assert outcome.kind in kinds, outcome.text


def test_packets_without_a_reason_are_judged_restless() -> None:
    """With MRC each packet that comes sets a timer, and the timers are what is seen."""
    assert run(calm(ROCE), Echoes).kind == "restless"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(StaysInFlight, "inflight"), (ForgetsPlanes, "planes")],
)
def test_mrc_specific_judgement_finds_its_planted_fault(wrong: Callable[[Any], Any], kind: str) -> None:
    assert run(calm(MRC), wrong).kind == kind


def test_repeated_packets_are_judged_a_storm() -> None:
    class Storms(Repeats):
        after = 405_000

    scenario = _with(calm(MRC), *(Op(398_000, "post", 0, 0, 3_000, 0) for _ in range(3)))
    outcome = run(scenario, Storms)
    assert outcome.kind == "storm", outcome.text


@BOTH
def test_data_sent_in_error_is_judged_bad(transport: str) -> None:
    outcome = run(_with(calm(transport), Op(200_000, "error", 0, 0), Op(200_000, "error", 0, 1)), Haunts)
    assert outcome.kind == "error-sends", outcome.text


@BOTH
def test_a_peer_that_is_gone_is_not_waited_for(transport: str) -> None:
    scenario = _with(calm(transport, ending="silence"), Op(399_999, "post", 0, 0, 100, 0))
    assert run(scenario).kind == "ok"
    assert run(scenario, SlowForEver).kind == "late-silent"


@BOTH
def test_failure_of_new_work_is_judged_bad(transport: str) -> None:
    """From some time on nothing is heard, which old work did not meet."""

    class Deafens(Around):
        def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
            if now < 402_000:
                self._endpoint.receive_datagram(port, packet, now)

    outcome = run(calm(transport), Deafens)
    assert outcome.kind in ("failed-though-well", "late-proof"), outcome.text


def test_remaining_table_entries_are_judged_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "tables", lambda setup, endpoint: {"peers": 1})
    assert run(calm(MRC)).kind == "tables"


# --- the model itself ---


@BOTH
def test_packets_are_read_as_they_are_written(transport: str) -> None:
    world = World(calm(transport))
    seen: list[bytes] = []
    send = world.network.send
    world.network.send = lambda src, plane, packet, at: (seen.append(packet), send(src, plane, packet, at))  # type: ignore
    world.run_until(300_000)
    assert {"data", "ack"} <= {kind_of(packet) for packet in seen}
    assert all(sealed(packet) == packet for packet in seen)


def test_a_trimmed_packet_is_answered_by_a_nack() -> None:
    scenario = replace(calm(MRC), faults=(Fault("trim", 0, 60_000, only="data"),))
    world = World(scenario)
    world.run_until(400_000)
    takes = [row.responder for host in world.hosts for row in host.endpoint.statistics().qps]
    assert sum(row["trimmed"] for row in takes) == sum(row["nacks_sent"] for row in takes) > 0
    packet = next(packet for _, _, packet in world.network.captured if kind_of(packet) == "data" and len(packet) > 500)
    assert len(trimmed(packet, 96, 12)) == 96


def test_a_packet_cut_to_nothing_is_neither_marked_nor_trimmed() -> None:
    faults = tuple(Fault(kind, 0, 300_000, only="data") for kind in ("corrupt", "mark", "trim_last"))
    for seed in range(20):  # one packet of ten is cut, at any place
        assert run(replace(calm(MRC, seed=seed), faults=faults)).kind != "exception"


def test_a_side_that_connects_after_healing_has_the_receives_that_its_peer_needs() -> None:
    scenario = calm(ROCE)
    at = scenario.setup.chaos_ns
    late = (
        Op(at - 60_000, "starve", 1),
        Op(at - 50_000, "reset", 0, 1),
        Op(at - 40_000, "renew", 0, 0, 0, 100_000),
        Op(at - 30_000, "post_imm", 0, 0, 100, 3),
    )
    outcome = run(replace(scenario, ops=late))
    assert outcome.kind == "ok", outcome.text


def test_a_failing_scenario_is_made_small() -> None:
    scenario = draw(7, MRC, quick=True)
    scenario = _with(scenario, Op(5, "error", 0, 1))
    small = shrink(scenario, lambda tried: any(op.kind == "error" for op in tried.ops), 5.0)
    assert [op.kind for op in small.ops] == ["error"]
    assert small.faults == ()


def test_an_outcome_says_whether_it_is_bad() -> None:
    assert [Outcome(kind).bad for kind in ("ok", "too long", "memory")] == [False, False, True]


def test_a_packet_that_was_cut_off_crosses_a_full_queue() -> None:
    """Corruption may leave a byte of a packet: a queue that marks finds no header there, and passes it on."""
    outcome = run(draw(912000160, MRC))
    assert not outcome.bad, outcome.text


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(40000366, id="no RACK"),
        pytest.param(130000403, id="no tail probe"),
        pytest.param(800000018, id="no peer, which holds the window of others"),
    ],
)
def test_bound_allows_for_a_timeout_that_resource_nacks_doubled(seed: int) -> None:
    """A packet is refused several times for lack of a resource, then lost: its timeout has doubled by then.

    Nothing else finds the loss of a last packet without RACK, or without a tail probe that RACK could use.
    """
    outcome = run(draw(seed, MRC))
    assert not outcome.bad, outcome.text
