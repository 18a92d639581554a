"""An adversarial network for workloads: data is read as late as MRC may read it, completions come late."""

from __future__ import annotations

import random
from typing import Any

from mrc_host.workloads import WORKLOADS, Workload


class ToyNet:
    """Per (source, destination) in-order delivery at random times; acknowledgements at random later times."""

    def __init__(self, name: str, size: int, document: dict[str, Any], seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        kind = WORKLOADS[name]
        params = kind.complete(document)
        nbytes = kind.memory_bytes(size, params)
        self.memories = [bytearray(nbytes) for _ in range(size)]
        self.peers = [kind.peers(rank, size, params) for rank in range(size)]
        self.flows: dict[tuple[int, int], list[tuple[int, int, int, int, int | None]]] = {}
        self.acks: dict[tuple[int, int], list[int]] = {}
        #: (when, whose), as they were asked for.
        self.alarms: list[tuple[int, int]] = []
        self.ranks: list[Workload[Any]] = [
            kind(rank, size, params, ToyChannel(self, rank), memoryview(self.memories[rank])) for rank in range(size)
        ]

        self.waiting = list(range(size))
        self.rng.shuffle(self.waiting)

    def run(self, events: int = 200_000) -> None:
        if self.go(events):
            raise AssertionError("no end")

    def go(self, events: int) -> bool:
        """Run this many events, or until none is left; return whether there are more."""
        for _ in range(events):
            self.now += 1
            choices: list[tuple[str, Any]] = [("start", self.waiting)] if self.waiting else []
            choices += [("data", flow) for flow, queue in self.flows.items() if queue]
            choices += [("ack", flow) for flow, queue in self.acks.items() if queue]
            if self.alarms and (not choices or min(self.alarms)[0] <= self.now):
                choices.append(("alarm", min(self.alarms)))
            if not choices:
                return False
            kind, what = self.rng.choice(choices)
            if kind == "start":
                self.ranks[what.pop()].start(self.now)
            elif kind == "alarm":
                self.alarms.remove(what)
                self.now = max(self.now, what[0])
                self.ranks[what[1]].woken(self.now)
            elif kind == "data":
                source, destination = what
                offset, remote, length, tag, imm = self.flows[what].pop(0)
                data = self.memories[source][offset : offset + length]
                assert len(data) == length
                self.memories[destination][remote : remote + length] = data
                self.acks.setdefault(what, []).append(tag)
                if imm is not None:
                    self.ranks[destination].arrived(source, imm, self.now)
            else:
                self.ranks[what[0]].put_done(what[1], self.acks[what].pop(0), self.now)
        return True

    def stop(self) -> None:
        """As the controller does it: rank after rank, while the others go on."""
        begun = []
        for rank in self.rng.sample(self.ranks, len(self.ranks)):
            begun.append(rank.wind_down(self.now))
            self.go(self.rng.randrange(8))
        for rank in self.rng.sample(self.ranks, len(self.ranks)):
            rank.stop_after(max(begun), self.now)
            self.go(self.rng.randrange(8))


class ToyChannel:
    def __init__(self, net: ToyNet, rank: int) -> None:
        self.net, self.rank = net, rank

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        assert peer in self.net.peers[self.rank]
        assert offset + length <= len(self.net.memories[self.rank])
        assert remote_offset + length <= len(self.net.memories[peer])
        self.net.flows.setdefault((self.rank, peer), []).append((offset, remote_offset, length, tag, imm))

    def wake(self, at_ns: int) -> None:
        assert at_ns > self.net.now
        self.net.alarms.append((at_ns, self.rank))
