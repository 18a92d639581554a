"""A small seeded part of the simulation campaign and of the mutation fuzz; `make soak` runs the whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mrc_host.proto.roce.endpoint import RoceConfig, RoceEndpoint
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.packet import WireError
from support.amount import first
from support.proto import fuzz, soak
from support.proto.net import Impairment, Net, NetConfig, Stalled, address_of, trim
from support.proto.workload import GUARD, Mismatch, pair

MS = 1_000_000
# Seeds that once failed, with what went wrong.
REGRESSIONS = {
    1248: "on a dead path every packet in turn used up its own retry budget",
    1478: "the same, with a window of one packet",
    14092: "everything sacked, the transport ACK lost, the network dead: the tail timer doubled beyond the budget",
}


@pytest.mark.slow
@pytest.mark.parametrize("first", first(range(0, 240, 40), 2))
def test_soak_runs_end_without_problems(first: int) -> None:
    results = [soak.run(seed) for seed in range(first, first + 40)]
    assert [f"{r.problem} ({r.text})" for r in results if r.problem] == []
    assert sum(r.statuses["SUCCESS"] for r in results) > 200


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seed_that_failed_before_passes(seed: int) -> None:
    assert soak.run(seed).problem == "", REGRESSIONS[seed]


def test_a_run_is_decided_by_its_seed() -> None:
    one, two = soak.run(7), soak.run(7)
    one.wall_s = two.wall_s = 0
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize("first", first(range(0, 8, 4)))
def test_fuzz_runs_end_without_problems(first: int) -> None:
    results = [fuzz.run(seed) for seed in range(first, first + 4)]
    assert [(r.seed, r.problem) for r in results if r.problem] == []
    assert sum(r.packets for r in results) > 20_000
    assert sum(sum(r.drops.values()) for r in results) > 10_000


def test_mutator_reaches_every_reason() -> None:
    """Each check of the codec is hit, and forged packets get past the ICRC."""
    seen: dict[str, int] = {}
    for seed in range(100, 104):
        for name, count in fuzz.run(seed).drops.items():
            seen[name] = seen.get(name, 0) + count
    assert {"short", "trailing_bytes", "ip_version", "next_header", "udp_port", "length", "icrc"} <= seen.keys()
    assert {"transport_version", "trimmed_control", "unknown_qp"} <= seen.keys()
    mutate = fuzz.Mutator(random.Random(1), forge=True)
    base = soak.wire_sample()
    passed = 0
    for _ in range(300):
        try:
            Codec().decode(mutate(base))
            passed += 1
        except WireError:
            continue
    assert passed > 60


# --- the instruments themselves must be able to fail ---


class Careless(RoceEndpoint):
    """An endpoint with a fault, to see that the checks find it."""

    fault: Callable[[Any], None] | None = None

    def poll(self, cq: Any, limit: int = 64) -> Any:
        done = super().poll(cq, limit)
        if done and self.fault is not None:
            self.fault()  # type: ignore[call-arg]
        return done


def faulty(fault: Callable[[Any, Any], None]) -> str:
    """Return what the bench says when the target's endpoint does `fault` at the first completion."""
    bench, connection = pair(NetConfig(), 1, factory=make)
    write = bench.post(connection, 5000)
    connection.source.core.fault = lambda: fault(bench, write)

    def whole() -> None:
        bench.run(max_time_ns=10 * MS)
        bench.settle(MS)

    with pytest.raises(Mismatch) as caught:
        whole()
    return str(caught.value)


def make(config: Any, rng: random.Random) -> Careless:
    return Careless(RoceConfig(config.address, config.wire, config.ports), rng)


def test_bench_finds_wrong_bytes_and_touched_guards() -> None:
    def wrong(bench: Any, write: Any) -> None:
        write.memory[GUARD + 7] ^= 1

    def guard(bench: Any, write: Any) -> None:
        write.memory[-1] ^= 1

    def late(bench: Any, write: Any) -> None:
        bench.net.at(bench.net.now + 10, lambda: write.memory.__setitem__(GUARD, 0))

    assert faulty(wrong) == "write 0: completed, but byte 7 of 5000 is wrong"
    assert faulty(guard) == "write 0: memory outside its region was touched"
    assert faulty(late) == "write 0: placed again after its completion"


def test_network_run_stops_at_its_time_and_event_limits() -> None:
    bench, connection = pair(NetConfig(), 1, factory=make)
    bench.net.set_path(False)
    bench.post(connection, 100)
    with pytest.raises(Stalled, match=r"0\.001 s of virtual time are over"):
        bench.run(max_time_ns=MS)
    with pytest.raises(Stalled, match=r"events at"):
        bench.run(max_time_ns=10**12, max_events=bench.net.events + 2)


class Sink:
    """Sends what is in `out`, keeps what arrives."""

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.out: list[bytes] = []

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        self.got.append((now, packet))

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        sent, self.out = self.out[:4], self.out[4:]
        return sent

    def quiet(self) -> bool:
        return not self.out

    def next_timer(self) -> None:
        return None

    def handle_timer(self, now: int) -> None:
        raise AssertionError("no timer was asked for")

    def next_event(self) -> None:
        return None

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        return None


def test_network_impairs_packets_at_the_given_probabilities() -> None:
    """Counts of a long stream under each impairment are near what their probability says."""

    def stream(wrap: bool = False, **settings: Any) -> tuple[Net, list[tuple[int, bytes]], list[bytes]]:
        net = Net(NetConfig(**settings), 3)
        one, two = Sink(), Sink()
        net.add(address_of(0), one)
        net.add(address_of(1), two)
        codec = Codec()
        addresses = address_of(0) + address_of(1)
        one.out = [
            codec.encode_data(addresses, psn * 7919, 18, 0xC7, 1, psn, 0, 0, 0, 0, 0, 0, 0, bytes(1000))
            for psn in range(4000)
        ]
        if wrap:
            one.out = [
                encapsulate(packet, addresses[:16], soak.carrier(number, b"").destination)
                for number, packet in enumerate(one.out)
            ]
        wanted = list(one.out)
        net.run(max_time_ns=100 * MS)
        return net, two.got, wanted

    net, got, wanted = stream(paths=1)
    assert [p for _, p in got] == wanted
    assert got[-1][0] - got[0][0] == pytest.approx(3999 * 1088 * 8 / 100, rel=0.01)  # line rate
    _, got, _ = stream(impairment=Impairment(loss=0.25))
    assert len(got) == pytest.approx(3000, abs=100)
    net, got, _ = stream(paths=1, impairment=Impairment(burst_enter=0.01, burst_leave=0.1))
    assert len(got) == pytest.approx(4000 * 0.91, abs=150)
    _, got, _ = stream(impairment=Impairment(duplicate=0.25))
    assert len(got) == pytest.approx(5000, abs=100)
    _, got, wanted = stream(impairment=Impairment(corrupt=0.25))
    assert sum(p not in set(wanted) for _, p in got) == pytest.approx(1000, abs=100)
    _, got, wanted = stream(paths=1, impairment=Impairment(reorder=0.1))
    assert [p for _, p in got] != wanted
    assert sorted(p for _, p in got) == sorted(wanted)
    slow: dict[str, Any] = {"paths": 1, "path_rate_bps": 50_000_000_000}
    net, got, _ = stream(**slow, ecn=(50_000, 100_000), trim_bytes=None, queue_bytes=10**9)
    marked = [p[1] & 0x30 == 0x30 for _, p in got]
    assert not any(marked[:50])
    assert all(marked[-2000:])
    net, got, wanted = stream(**slow, trim_bytes=50_000)
    path = next(net.paths(group=0))
    cut = [p for _, p in got if len(p) == 84]
    assert path.trimmed == len(cut) == pytest.approx(2100, abs=100)  # the cut ones take room, too
    assert set(cut) <= {trim(p, 12) for p in wanted}
    net, got, _ = stream(**slow, trim_bytes=None, queue_bytes=50_000)
    assert next(net.paths(group=0)).dropped == 4000 - len(got) == pytest.approx(2000, abs=100)
    for how in ({"select": "hash"}, {"select": "structured"}, {"select": "srv6", "wrap": True}):
        net, got, _ = stream(paths=8, **how)
        shares = [path.sent for path in net.paths(group=0)]
        assert min(shares) > 0.7 * max(shares), how


def test_commands_report_runs_and_refuse_wrong_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert soak.main(["--only", "7"]) == 0
    assert "seed 7: " in capsys.readouterr().out
    assert soak.main(["--runs", "3", "--jobs", "1", "--seed", "20"]) == 0
    out = capsys.readouterr().out
    assert "3 runs, 0 failed" in out
    assert "longest virtual time:" in out
    for command in (soak.main, fuzz.main):
        with pytest.raises(SystemExit) as stopped:
            command(["--jobs", "0"])
        assert stopped.value.code == 2
    assert fuzz.main(["--packets", "1000", "--jobs", "1"]) == 0
    assert "broken and" in capsys.readouterr().out
    monkeypatch.setattr(soak, "verdict", lambda bench, what: "made to fail")
    assert soak.main(["--only", "7"]) == 1
