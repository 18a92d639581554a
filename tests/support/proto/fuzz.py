"""Mutated packets into live endpoints: `PYTHONPATH=tests python -m support.proto.fuzz --packets 5000000`, seeded.

Each run is a transfer between two endpoints; with every real packet come mutated copies. Two kinds of run:

* *broken*: the ICRC is not repaired, as the network would harm packets. Nothing may happen: no exception, and the
  transfer completes with every byte in place, once.
* *forged*: the ICRC is right again, as a faulty peer would send. Then the transfer may end in any way, but it must end:
  every work request with success or an error, in bounded time, without an exception or a fault, and without touching
  memory outside the registered regions.

Exit status: 0, 1 (a run failed), 2 (usage). `--only SEED` replays one run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mrc_host.proto.config import EvConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.events import Fault
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, Bth, Ipv6, Udp
from support.proto.net import GIGABIT, Host, Impairment, NetConfig, Stalled, flip_bits, inner_offset
from support.proto.workload import GUARD, GUARD_BYTE, Bench, Mismatch

MS = 1_000_000
COPIES = 8
FORGED_SHARE = 0.15
MAX_EVENTS = 400_000


class Mutator:
    """Makes bad packets out of good ones."""

    def __init__(self, rng: random.Random, *, forge: bool) -> None:
        self.rng = rng
        self.forge = forge
        self.seen: list[bytes] = []
        self._ways = [
            self.flip, self.flip, self.randomize, self.set_field, self.set_field, self.truncate, self.cut,
            self.extend, self.trimmed, self.splice, self.encapsulate, self.noise, self.replay,
        ]  # fmt: skip

    def __call__(self, packet: bytes) -> bytes:
        """One mutated packet."""
        if self.rng.random() < 0.05:
            self.seen.append(packet)
            if len(self.seen) > 200:
                self.seen.pop(self.rng.randrange(200))
        made = self.rng.choice(self._ways)(packet)
        return seal(made) if self.forge else made

    def flip(self, packet: bytes) -> bytes:
        return flip_bits(packet, self.rng)

    def randomize(self, packet: bytes) -> bytes:
        bad = bytearray(packet)
        start = self.rng.randrange(len(bad))
        size = self.rng.choice((1, 2, 4, 16))
        bad[start : start + size] = self.rng.randbytes(min(size, len(bad) - start))
        return bytes(bad)

    def set_field(self, packet: bytes) -> bytes:
        """Return an extreme or random value in a field of one of the headers."""
        rng, base = self.rng, inner_offset(packet)
        opcode = packet[base + 48]
        layout = MRC_LAYOUTS.get(opcode)
        headers = [(Ipv6.header, 0), (Udp.header, 40), (Bth.header, 48), (Bth.header, 48)]
        offset = 60
        for header in layout.headers if layout else ():
            if header is HEADERS["TSETH"] and not packet[base + 56] & 0x10:
                continue
            headers.append((header, offset))
            offset += header.size
        header, at = rng.choice(headers)
        at += base
        if at + header.size > len(packet):
            return packet
        item = rng.choice(header.fields)
        value = rng.choice((0, 1, item.mask, item.mask >> 1, item.mask ^ 1, rng.getrandbits(item.width)))
        word = int.from_bytes(packet[at : at + header.size], "big")
        shift = header.size * 8 - item.bit - item.width
        if rng.random() < 0.5:  # near the value that is there
            value = (word >> shift) + rng.choice((-129, -2, -1, 1, 2, 129))
        word = word & ~(item.mask << shift) | (value & item.mask) << shift
        return packet[:at] + word.to_bytes(header.size, "big") + packet[at + header.size :]

    def truncate(self, packet: bytes) -> bytes:
        return packet[: self.rng.randrange(len(packet))]

    def cut(self, packet: bytes) -> bytes:
        """Shorter, and the IP length says so: as if trimmed."""
        if len(packet) < 41:
            return packet
        return with_length(packet[: self.rng.randrange(40, len(packet))])

    def trimmed(self, packet: bytes) -> bytes:
        """Return the trim DSCPs on anything, then more harm."""
        dscp = self.rng.choice((12, 16))
        marked = bytes((packet[0] & 0xF0 | dscp >> 2, packet[1] & 0x3F | dscp << 6 & 0xC0)) + packet[2:]
        return self.rng.choice((self.flip, self.cut, self.set_field, self.randomize))(marked)

    def extend(self, packet: bytes) -> bytes:
        longer = packet + self.rng.randbytes(self.rng.randrange(1, 64))
        return with_length(longer) if self.rng.random() < 0.5 else longer

    def splice(self, packet: bytes) -> bytes:
        other = self.rng.choice(self.seen) if self.seen else packet
        at = self.rng.randrange(len(packet))
        return packet[:at] + other[self.rng.randrange(len(other)) :]

    def encapsulate(self, packet: bytes) -> bytes:
        rng = self.rng
        segments = tuple(rng.randbytes(16) for _ in range(rng.randrange(3)))
        wrapped = encapsulate(self.flip(packet), rng.randbytes(16), rng.randbytes(16), segments)
        return self.flip(wrapped) if rng.random() < 0.5 else wrapped

    def noise(self, packet: bytes) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 40, 60, 64, 100, 200)))

    def replay(self, packet: bytes) -> bytes:
        """Return a good packet, again and later."""
        return self.rng.choice(self.seen) if self.seen else packet


def with_length(packet: bytes) -> bytes:
    """With an outer IPv6 payload length that is right."""
    return packet[:4] + (len(packet) - 40).to_bytes(2, "big") + packet[6:]


def seal(packet: bytes) -> bytes:
    """With an ICRC that is right, where there is room for one; often with right lengths too."""
    base = inner_offset(packet) if len(packet) > 6 else 0
    if len(packet) < base + 64:
        return packet
    inner = bytearray(packet[base:-4])
    length = (len(inner) - 36).to_bytes(2, "big")
    inner[4:6] = inner[44:46] = length
    whole = packet[:base] + bytes(inner) + full.icrc(bytes(inner[:40]), bytes(inner[40:]))
    return with_length(whole)


@dataclass
class FuzzResult:
    """How a run went."""

    seed: int
    forged: bool
    packets: int = 0
    problem: str = ""
    drops: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)


def run(seed: int) -> FuzzResult:  # noqa: C901 - one story from set-up to verdict
    """One transfer under fire; never raises."""
    rng = random.Random(f"fuzz-{seed}")
    result = FuzzResult(seed, rng.random() < FORGED_SHARE)
    planes = rng.choice((1, 2, 4))
    net = NetConfig(
        planes=planes,
        port_rate_bps=100 * GIGABIT,
        trim_bytes=rng.choice((None, 20_000)),
        impairment=Impairment(loss=rng.choice((0.0, 0.02))),
    )
    settings: dict[str, Any] = {
        "wire": WireConfig(mtu=rng.choice((256, 1024)), timestamps=rng.random() < 0.8),
        "reliability": ReliabilityConfig(
            timeout=8, mpr=rng.choice((1, 8)), mpr_dest=rng.choice((1, 8)), dynamic_mpr=rng.random() < 0.5
        ),
        "ev": EvConfig(count=8 * planes, active=4 * planes, ev_min_active=1),
        "initial_psn": rng.choice((None, 0xFFFFF0)),
    }
    mutate = Mutator(rng, forge=result.forged)
    where = ""
    try:
        bench = Bench(net, seed, **settings)
        bench.keep_events = True
        one, two = bench.add_host(), bench.add_host()
        connections = [bench.connect(one, two), bench.connect(one, two)]
        connections.append(bench.reverse(connections[0]))

        def fire(now: int, kind: str, host: Host, port: int, path: int, packet: bytes) -> None:
            if kind == "received":
                for _ in range(COPIES):
                    host.core.receive_datagram(port, mutate(packet), now)
                result.packets += COPIES

        bench.net.watchers.append(fire)
        for number in range(24):
            size = rng.choice((0, 1, 300, 4096, 20_000))
            bench.post(connections[number % 3], size, immediate=number if number % 4 == 0 else None)
        if result.forged:
            bench.verify = False
        try:
            bench.run(max_time_ns=20_000 * MS, max_events=MAX_EVENTS)
        except Stalled as problem:
            # Forged packets may end a transfer in any way, but end it: within the time that all retries take.
            if not result.forged or bench.net.events < MAX_EVENTS:
                result.problem = str(problem)
        if not result.problem:
            bench.net.run(max_time_ns=MS)
        if result.forged:
            guard = bytes((GUARD_BYTE,)) * GUARD
            if any(w.memory[:GUARD] != guard or w.memory[-GUARD:] != guard for w in bench.writes):
                result.problem = "memory outside a region was touched"
        elif not result.problem:
            bench.check()
            if bench.statuses() != {"SUCCESS": 24}:
                result.problem = f"the transfer ended {dict(bench.statuses())}"
        result.statuses = bench.statuses()
        for host in bench.net.hosts:
            statistics = host.core.statistics()
            result.drops.update(statistics.drops)
            if statistics.endpoint["faults"]:
                told = [event.detail for _, _, event in bench.events if isinstance(event, Fault)]
                result.problem = f"{statistics.endpoint['faults']} faults of the endpoint: {told[0] if told else ''}"
    except Mismatch as problem:
        result.problem = f"Mismatch: {problem}"
    except Exception as problem:  # noqa: BLE001 - any exception of the core is a finding, reported with its seed
        frames = traceback.extract_tb(problem.__traceback__)
        where = " <- ".join(f"{f.filename.split('/')[-1]}:{f.lineno}" for f in reversed(frames[-3:]))
        result.problem = f"{type(problem).__name__}: {problem} ({where})"
    return result


def main(arguments: list[str]) -> int:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="support.proto.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--packets", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--only", type=int, help="replay this one seed")
    options = parser.parse_args(arguments)
    if options.only is not None:
        print(result := run(options.only))
        return 1 if result.problem else 0
    if options.packets < 1 or options.jobs < 1:
        parser.error("--packets and --jobs must be at least 1")
    sent, runs, failed = 0, Counter[bool](), 0
    drops, statuses = Counter[str](), Counter[str]()
    began, seed = time.perf_counter(), options.seed
    with multiprocessing.Pool(options.jobs) as pool:
        while sent < options.packets:
            for result in pool.imap_unordered(run, range(seed, seed + 8 * options.jobs)):
                sent += result.packets
                runs[result.forged] += 1
                drops.update(result.drops)
                statuses.update(
                    {f"{name}{' (forged)' if result.forged else ''}": n for name, n in result.statuses.items()}
                )
                if result.problem:
                    failed += 1
                    kind = "forged" if result.forged else "broken"
                    print(f"FAILED seed {result.seed} ({kind}): {result.problem}", flush=True)
            seed += 8 * options.jobs
    print(
        f"{sent} mutated packets in {runs[False]} broken and {runs[True]} forged runs, {failed} failed, "
        f"{time.perf_counter() - began:.0f} s"
    )
    print(f"work requests: {dict(statuses)}")
    print(f"dropped: {dict(drops.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
