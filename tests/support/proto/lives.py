"""Lives of endpoints, each decided by its seed: `PYTHONPATH=tests python -m support.proto.lives --record | SEED`.

Two or three endpoints of MRC or RoCE live for some milliseconds. Their users, the ports, the network and the other
ends do at random whatever they can do. `digest` is of every packet with its time, every event, completion and counter,
the states of EVs and all memory: whoever changes a decision that is taken in a life changes its digest.

A digest does not say that something is right; the other tests do. It says that something has changed, which `--record`
accepts: look at what a change does to a life first (`lives SEED` prints one, for `diff` with that of the version
before).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import heapq
import itertools
import json
import pathlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from mrc_host.access import Access
from mrc_host.proto.config import EndpointConfig, EvConfig, EvFormat, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvState, QpError, QpState
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.receive import Element, Scatter
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.trace import Tracer
from mrc_host.proto.wire.fields import NackReason
from mrc_topo.base.errors import MrclabError
from mrc_topo.base.plain import encode
from support.proto.net import address_of, flip_bits, trim
from support.proto.progress import what_is_stuck, what_is_wrong
from support.proto.soak import carrier

RECORD: Final = pathlib.Path(__file__).resolve().parents[2] / "proto/lives.json"
#: How many lives are recorded.
LIVES: Final = 600
US: Final = 1_000
MS: Final = 1_000_000
LATENCY_NS: Final = 2 * US
MEMORY: Final = 1 << 15
#: Packets that a life has at most.
MAX_PACKETS: Final = 1500
ALL: Final = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC)
DSCP_TRIMMED: Final = 12
DSCP_TRIMMED_LASTHOP: Final = 16


@dataclass
class Weather:
    """What the network does to a packet, as probabilities, and for how long. `dark`: planes on which nothing passes."""

    loss: float = 0.0
    answers_lost: float = 0.0
    trim: float = 0.0
    last_hop: float = 0.0
    mark: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    answers_late: float = 0.0
    late_ns: int = 0
    broken: float = 0.0
    dark: frozenset[int] = frozenset()
    lasts_ns: int = MS


def weather(rng: random.Random, ports: int) -> Weather:
    """Return a random spell."""
    lasts = rng.choice((50 * US, 200 * US, MS))
    kinds: list[Callable[[], Weather]] = [
        Weather,
        lambda: Weather(loss=rng.choice((0.02, 0.2, 0.6))),
        lambda: Weather(answers_lost=rng.choice((0.3, 1.0))),
        lambda: Weather(trim=rng.choice((0.1, 0.7)), last_hop=rng.choice((0.0, 0.5)), mark=0.2),
        lambda: Weather(mark=rng.choice((0.1, 0.6, 1.0))),
        lambda: Weather(late=rng.choice((0.1, 0.5)), late_ns=rng.choice((8 * US, 60 * US, 400 * US))),
        lambda: Weather(twice=0.3, late=0.3, late_ns=rng.choice((10 * US, 300 * US))),
        lambda: Weather(dark=frozenset(rng.sample(range(ports), rng.randint(1, ports)))),
        lambda: Weather(answers_late=rng.choice((0.2, 0.6)), late_ns=rng.choice((8 * US, 60 * US)), loss=0.05),
        lambda: Weather(answers_late=0.4, answers_lost=0.4, late_ns=40 * US, loss=0.1),
        lambda: Weather(0.1, 0.1, 0.1, 0.3, 0.2, 0.1, 0.2, 0.2, 30 * US, 0.02),
    ]
    return dataclasses.replace(rng.choice(kinds)(), lasts_ns=lasts)


@dataclass
class End:
    """An endpoint, its memory, and how its user treats it."""

    index: int
    core: Any
    memory: bytearray
    regions: list[MemoryRegion]
    busy: list[int]
    lazy: float  # the share of moments at which completions are not polled
    queues: list[Any] = field(default_factory=list)
    serial: int = 0


@dataclass
class Pair:
    """A connected pair of queue pairs: end and queue pair of both sides; `gone` are sides whose user has left."""

    ends: tuple[End, End]
    qps: tuple[Any, Any]
    gone: set[int] = field(default_factory=set)


class Life:
    """A life while it goes on."""

    def __init__(self, seed: int, told: Callable[[str], None]) -> None:
        self.rng = rng = random.Random(f"life-{seed}")
        self.traced = seed % 2 == 0
        self.told = told
        self.now = 0
        self.packets = 0
        self.roce = rng.random() < 0.35
        self.ports = rng.choice((1, 2, 2, 4))
        self.mtu = rng.choice((64, 256, 256, 1024))
        self.budget = rng.choice((1200, 10_000, 1 << 20))
        self.rate_bps = rng.choice((1, 10, 100)) * 10**9
        self.dying = rng.random() < 0.12
        #: Whether nothing ends a queue pair but its user: what is lost is repeated for ever.
        self.lasting = rng.random() < 0.6 and not self.dying
        self.busy_user = rng.choice((0.2, 1.0, 3.0))
        self.weather = Weather()
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self.ends = [self._end(index) for index in range(rng.choice((2, 2, 2, 3)))]
        self.pairs: list[Pair] = []

    # --- what there is ---

    def _wire(self) -> WireConfig:
        rng = self.rng
        return WireConfig(mtu=self.mtu, timestamps=rng.random() < 0.85, fabric_trims=rng.random() < 0.7)

    def reliability(self) -> ReliabilityConfig:
        """Return random attributes of a queue pair."""
        rng = self.rng
        return ReliabilityConfig(
            timeout=rng.choice((5, 6, 7)),
            linear_cnt=rng.choice((0, 1, 3, 7, 7)),
            exp_cnt=25 if self.lasting else rng.choice((0, 1, 3)),
            mpr=rng.choice((1, 1, 2, 64)),
            mpr_dest=rng.choice((1, 1, 2, 64)),
            dynamic_mpr=rng.random() < 0.6,
            max_wimm=64 if self.lasting else rng.choice((2, 64)),
            max_wimm_dest=64 if self.lasting else rng.choice((2, 64)),
            trim_nack=rng.random() < 0.85,
            service_time=rng.random() < 0.3,
            sack_every=rng.choice((1, 1, 2, 4, 16)),
            sack_delay_ns=rng.choice((2 * US, 20 * US)),
            hole_cycle=rng.choice((2, 4)),
            always_skip_after=rng.choice((0, 0, 1, 3)),
            same_ev_inference=rng.random() < 0.85,
            rack_inference=rng.random() < 0.85,
            adaptive_reordering=rng.random() < 0.3,
            tail_probe=rng.random() < 0.85,
        )

    def evs(self) -> EvConfig:
        """Return a random EV profile."""
        rng = self.rng
        count = self.ports * rng.choice((2, 4, 8))
        srv6 = rng.random() < 0.1
        return EvConfig(
            fmt=EvFormat.SRV6_USID128 if srv6 else rng.choice((EvFormat.UDP16, EvFormat.STEV32)),
            count=count,
            active=max(self.ports, count // rng.choice((1, 2, 2))),
            ev_min_active=rng.choice((1, 2, 3)),
            resolver=carrier if srv6 else None,
            probe_interval_ns=rng.choice((50 * US, 200 * US, MS)),
            probe_timeout_ns=rng.choice((20 * US, 100 * US)),
            probe_burst=rng.choice((1, 2, 16)),
            probes_to_revive=rng.choice((1, 2, 3)),
            reverse_probes=rng.random() < 0.5,
            reverse_probe_ns=rng.choice((0, 0, 30 * US)),
            rescan_rounds=rng.choice((2, 64)),
        )

    def congestion(self) -> CcConfig:
        """Return a random profile of congestion control."""
        rng = self.rng
        common: dict[str, Any] = {
            "line_rate_bps": self.ports * self.rate_bps,
            "base_rtt_ns": rng.choice((2, 6, 20)) * US,
            "trimming": rng.random() < 0.6,
        }
        if rng.random() < 0.25:
            return FixedConfig(fixed_window_bytes=rng.choice((self.mtu, 3000, 100_000)), **common)
        return NsccConfig(
            target_qdelay_ns=rng.choice((None, US, 5 * US)),
            max_wnd_bytes=rng.choice((None, 4000, 100_000)),
            initial_cwnd_bytes=rng.choice((None, 1000, 30_000)),
            gamma=rng.choice((0.2, 0.8)),
            max_md_jump=rng.choice((0.1, 0.5)),
            disable_qa=rng.random() < 0.2,
            qa_gate=rng.choice((0, 1, 3)),
            qa_threshold_ns=rng.choice((None, US, 8 * US)),
            adjust_bytes_threshold=rng.choice((None, 500, 8000)),
            adjust_period_threshold_ns=rng.choice((None, 3 * US)),
            delay_gain=rng.choice((0.0125, 0.3)),
            **common,
        )

    def _ports(self) -> PortsConfig:
        rng = self.rng
        return PortsConfig(
            count=self.ports,
            status_repeat_ns=rng.choice((20 * US, 100 * US)),
            status_repeat_max_ns=rng.choice((100 * US, MS)),
            balance_slack_packets=rng.choice((1, 4)),
            balance_patience_ns=rng.choice((5 * US, 50 * US)),
        )

    def _core(self, index: int) -> Any:
        rng = self.rng
        own = random.Random(rng.random())
        first = rng.choice((None, 0, 0xFFFFF0, 0x7FFFF0))
        if not self.roce:
            config = EndpointConfig(
                address_of(index), self._wire(), self.reliability(), self.evs(), self.congestion(), self._ports(),
                initial_psn=first,
            )  # fmt: skip
            # In half of the lives, since a trace is most of what there is to write.
            tracer = Tracer(lambda line: self.tell(f"{index} {line}")) if self.traced else None
            return Endpoint(config, own, tracer)
        return RoceEndpoint(
            RoceConfig(
                address_of(index),
                WireConfig(mtu=self.mtu),
                self._ports(),
                DcqcnConfig(
                    enabled=rng.random() < 0.8,
                    cnp_interval_ns=rng.choice((5 * US, 50 * US)),
                    alpha_interval_ns=rng.choice((5 * US, 55 * US)),
                    rate_interval_ns=rng.choice((10 * US, 55 * US)),
                    byte_counter=rng.choice((None, 2000, 100_000)),
                    recovery_rounds=rng.choice((1, 5)),
                ),
                line_rate_bps=self.ports * self.rate_bps,
                timeout=rng.choice((8, 9) if self.lasting else (5, 6)),
                retry_cnt=7 if self.lasting else rng.choice((0, 1, 3)),
                ack_every=rng.choice((1, 2, 16)),
                max_inflight_packets=rng.choice((1, 4, 1024)),
                min_rnr_timer=rng.choice((1, 7)),
                rnr_retry=7 if self.lasting else rng.choice((0, 1)),
                max_rd_atomic=rng.choice((1, 2, 16)),
                max_dest_rd_atomic=rng.choice((1, 2, 16)),
                initial_psn=first,
                selective_repeat=rng.random() < 0.4,
                reorders=rng.random() < 0.2,
            ),
            own,
        )

    def _end(self, index: int) -> End:
        core, memory = self._core(index), bytearray(self.rng.randbytes(MEMORY))
        region = core.register_memory(memory, access=ALL) if self.roce else core.register_memory(memory)
        return End(index, core, memory, [region], [0] * self.ports, self.rng.choice((0.0, 0.0, 0.5)))

    def connect(self) -> None:
        """Connect a new pair of two ends."""
        rng = self.rng
        ends = rng.sample(self.ends, 2)
        qps = []
        for end in ends:
            depth = 65536 if rng.random() < 0.95 else 4
            cq = rng.choice(end.queues) if end.queues and rng.random() < 0.4 else end.core.create_cq(depth)
            if cq not in end.queues:
                end.queues.append(cq)
            own: dict[str, Any] = {}
            if not self.roce:
                own = {"reliability": self.reliability(), "ev": self.evs(), "cc": self.congestion()}
                own = {key: value for key, value in own.items() if rng.random() < 0.3}
            qps.append(end.core.create_qp(cq, **own))
        pair = Pair((ends[0], ends[1]), (qps[0], qps[1]))
        self.pairs.append(pair)
        self.join(pair)

    def join(self, pair: Pair) -> None:
        """Exchange the documents of a pair."""
        documents = [end.core.local_attributes(qp) for end, qp in zip(pair.ends, pair.qps, strict=True)]
        for side, (end, qp) in enumerate(zip(pair.ends, pair.qps, strict=True)):
            end.core.connect(qp, documents[1 - side], self.now)

    # --- what happens ---

    def at(self, time_ns: int, what: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._later, (time_ns, next(self._serial), what))

    def tell(self, what: str) -> None:
        """Make a line part of the life."""
        self.told(f"{self.now} {what}")

    def go(self) -> None:
        """Live until nothing happens any more, or for so long."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 4))):
            self.attempt(self.connect)
        lasts = rng.choice((MS, 3 * MS, 3 * MS))
        self._change_weather(lasts)
        self._act(lasts)
        until = lasts + 30 * MS
        while self._step(until):
            pass
        self._check()
        if self.lasting and self.packets <= MAX_PACKETS:
            # All ports are up and nothing is lost any more: whatever was posted has been done.
            alive = [pair for pair in self.pairs if not pair.gone and self._joined(pair)]
            works = [qp.work if self.roce else qp.requestor for pair in alive for qp in pair.qps]
            assert [len(work.unacked) for work in works if work.unacked] == []
        for end in self.ends:
            self.tell(f"{end.index} {json.dumps(encode(end.core.statistics()), sort_keys=True)}")
            self.tell(f"{end.index} {hashlib.sha256(end.memory).hexdigest()}")
        self._tell_evs()

    def _joined(self, pair: Pair) -> bool:
        return all(qp.state is QpState.RTS for qp in pair.qps)

    def _check(self) -> None:
        """Raise AssertionError for an endpoint that contradicts itself, or waits for what cannot happen."""
        wrong = [problem for end in self.ends for problem in (*what_is_wrong(end.core), *what_is_stuck(end.core))]
        assert wrong == [], f"at {self.now}: {wrong}"

    def _tell_evs(self) -> None:
        for pair in [] if self.roce else self.pairs:
            for side, (end, qp) in enumerate(zip(pair.ends, pair.qps, strict=True)):
                if side not in pair.gone:
                    rows = [str(row) for row in end.core.query_evs(qp)]
                    self.tell(f"{end.index} {qp.state.value} {rows}")

    def _change_weather(self, lasts: int) -> None:
        if self.now < lasts:
            self.weather = weather(self.rng, self.ports)
            self.at(self.now + self.weather.lasts_ns, lambda: self._change_weather(lasts))
        elif self.dying:
            self.weather = Weather(dark=frozenset(range(self.ports)))
        else:
            self.weather = Weather()
            for end in self.ends:
                for port in range(self.ports):
                    self._set_port(end, port, True)
                    end.core.set_port_enabled(port, True, self.now)
                if not self.roce:
                    end.core.set_denials({}, self.now)

    def _act(self, lasts: int) -> None:
        self._check()
        if self.now >= lasts:
            self.attempt(self._tell_evs)
            return
        rng = self.rng
        if not any(not pair.gone and self._joined(pair) for pair in self.pairs):
            self.attempt(self.connect)
        for _ in range(rng.choice((1, 1, 3))):
            choices = _ROCE if self.roce else _MRC
            weights = [weight * (weight > 1 or not self.lasting) for _, weight in choices]
            self.attempt(rng.choices([act for act, _ in choices], weights)[0].__get__(self))
        self.at(self.now + int(rng.expovariate(self.busy_user / (60 * US))), lambda: self._act(lasts))

    def attempt(self, what: Callable[[], None]) -> None:
        """Do something that an endpoint may refuse."""
        try:
            what()
        except (MrclabError, QpError, ValueError, KeyError) as error:
            self.tell(f"refused: {type(error).__name__}")

    def _step(self, until: int) -> bool:
        for end in self.ends:
            self._send(end)
            if self.rng.random() >= end.lazy:
                self._look(end)
        times = [self._later[0][0]] if self._later else []
        times += [due for end in self.ends if (due := end.core.next_timer()) is not None]
        if not times or min(times) > until or self.packets > MAX_PACKETS:
            for end in self.ends:
                self._look(end)
            return False
        self.now = max(self.now, min(times))
        while self._later and self._later[0][0] <= self.now:
            heapq.heappop(self._later)[2]()
        for end in self.ends:
            end.core.handle_timer(self.now)
        return True

    def _look(self, end: End) -> None:
        while (event := end.core.next_event()) is not None:
            self.tell(f"{end.index} {event}")
        for cq in end.queues:
            for completion in end.core.poll(cq):
                self.tell(f"{end.index} {completion}")

    def _send(self, end: End) -> None:
        for port in range(self.ports):
            if end.busy[port] > self.now:
                continue
            packets = end.core.datagrams_to_send(port, self.now, self.budget)
            for packet in packets:
                self.packets += 1
                self.tell(f"{end.index} {port} {packet.hex()}")
                end.busy[port] = max(end.busy[port], self.now) + len(packet) * 8 * 10**9 // self.rate_bps
                self._carry(end, port, packet)
            if packets:
                self.at(end.busy[port], lambda: None)

    def _carry(self, end: End, port: int, packet: bytes) -> None:
        rng, spell = self.rng, self.weather
        is_data = len(packet) > 140
        if port in spell.dark or rng.random() < (spell.loss if is_data else spell.answers_lost):
            return
        if is_data and rng.random() < spell.trim and not self.roce:
            packet = trim(packet, DSCP_TRIMMED_LASTHOP if rng.random() < spell.last_hop else DSCP_TRIMMED)
        elif rng.random() < spell.mark:
            packet = bytes((packet[0], packet[1] | 0x30)) + packet[2:]
        if rng.random() < spell.broken:
            packet = flip_bits(packet, rng)
        # Planes and EVs have paths of different lengths.
        way = LATENCY_NS + 100 * port + 300 * (packet[3] % 4)
        for _ in range(1 + (rng.random() < spell.twice)):
            share = spell.late if is_data else max(spell.late, spell.answers_late)
            late = rng.randrange(spell.late_ns) if rng.random() < share else 0
            self.at(end.busy[port] + way + late, lambda: self._arrive(end, port, packet))

    def _arrive(self, sender: End, port: int, packet: bytes) -> None:
        others = [end for end in self.ends if end is not sender]
        inner = packet[40:] if packet[6] == 41 else packet
        for end in others:
            if inner[24:40] == address_of(end.index):
                end.core.receive_datagram(port, packet, self.now)

    # --- what users do ---

    def _side(self) -> tuple[Pair, int, End, Any, End, Any]:
        rng = self.rng
        usable = [each for each in self.pairs if len(each.gone) < 2]
        alive = [each for each in usable if not each.gone and self._joined(each)]
        pair = rng.choice(alive if alive and rng.random() < 0.95 else usable)
        here = rng.choice([side for side in range(2) if side not in pair.gone])
        return pair, here, pair.ends[here], pair.qps[here], pair.ends[1 - here], pair.qps[1 - here]

    def _sized(self) -> int:
        rng = self.rng
        return min(rng.choice((0, 1, self.mtu - 1, self.mtu, self.mtu + 1, rng.randrange(4000), 9000)), 9000)

    def _place(self, end: End, size: int) -> tuple[int, int]:
        """Return an address and a key for that many bytes of an end's memory; sometimes wrong ones."""
        rng = self.rng
        region = rng.choice(end.regions)
        va = region.va + rng.randrange(max(1, region.length - size + 1))
        if self.lasting:
            region = end.regions[0]
            return region.va + rng.randrange(region.length - size + 1), region.rkey
        if rng.random() < 0.004:
            return va + region.length, region.rkey
        return va, region.rkey ^ (rng.random() < 0.004)

    def _next(self, end: End) -> int:
        end.serial += 1
        return end.serial

    def write(self) -> None:
        """Post a WRITE, with an immediate or without."""
        _, _, end, qp, other, other_qp = self._side()
        rng, size = self.rng, self._sized()
        va, key = self._place(other, size)
        own: dict[str, Any] = {"fence": rng.random() < 0.2} if self.roce else {}
        if rng.random() < 0.6:
            end.core.post_write(qp, rng.randbytes(size), va, key, self._next(end), **own)
            return
        if self.lasting or rng.random() < 0.9:
            self._receive(other, other_qp, MEMORY)
        own["solicited"] = rng.random() < 0.3
        end.core.post_write_imm(qp, rng.randbytes(size), va, key, rng.getrandbits(32), self._next(end), **own)

    def receive(self) -> None:
        """Post receives."""
        _, _, end, qp, _, _ = self._side()
        for _ in range(self.rng.choice((1, 3))):
            self._receive(end, qp, MEMORY)

    def _receive(self, end: End, qp: Any, room: int) -> None:
        region = end.regions[0]
        if self.roce:
            end.core.post_receive(qp, self._next(end), [Element(region.va, room, region.rkey)])
        else:
            end.core.post_recv(qp, self._next(end))

    def flip_port(self) -> None:
        """Take a port down or up, in the endpoint's eyes or by its user."""
        rng = self.rng
        end, port = rng.choice(self.ends), rng.randrange(self.ports)
        if rng.random() < 0.8:
            self._set_port(end, port, rng.random() < 0.5)
        else:
            end.core.set_port_enabled(port, rng.random() < 0.6, self.now)

    def _set_port(self, end: End, port: int, up: bool) -> None:
        end.core.set_port_state(port, up, self.now)

    def fail(self) -> None:
        """Move a queue pair to ERROR."""
        _, _, end, qp, _, _ = self._side()
        if self.roce:
            end.core.fail_qp(qp)
        else:
            end.core.modify(qp, QpState.ERROR, self.now)

    def reset(self) -> None:
        """Reset a pair and connect it again; sometimes only one side of it."""
        pair, here, _, _, _, _ = self._side()
        both = self.rng.random() < 0.8
        for side in (here, 1 - here) if both else (here,):
            if side in pair.gone:
                continue
            if self.roce:
                pair.ends[side].core.reset_qp(pair.qps[side])
            else:
                pair.ends[side].core.modify(pair.qps[side], QpState.RESET, self.now)
        if both and not pair.gone:
            self.join(pair)

    def leave(self) -> None:
        """Close or destroy a queue pair."""
        pair, here, end, qp, _, _ = self._side()
        pair.gone.add(here)
        (end.core.close_qp if self.rng.random() < 0.6 else end.core.destroy_qp)(qp, self.now)

    def withdraw(self) -> None:
        """Register a further region, or withdraw one."""
        rng, end = self.rng, self.rng.choice(self.ends)
        if len(end.regions) > 1 and rng.random() < 0.5:
            end.core.deregister_memory(end.regions.pop())
            return
        view = memoryview(end.memory)[: rng.choice((100, 5000, MEMORY))]
        own = {"access": rng.choice((ALL, ALL, ALL, 0))} if self.roce else {}
        end.regions.append(end.core.register_memory(view, **own))

    def restart(self) -> None:
        """Let an endpoint die and come back at its address."""
        end = self.rng.choice(self.ends)
        fresh = self._end(end.index)
        for pair in self.pairs:
            pair.gone |= {side for side in range(2) if pair.ends[side] is end}
        self.ends[end.index] = fresh
        self.connect()

    # --- MRC only ---

    def deny(self) -> None:
        """Deny EVs or allow them again, by each way that there is."""
        _, _, end, qp, other, _ = self._side()
        rng = self.rng
        values = [row.ev for row in end.core.query_evs(qp)]
        some = rng.sample(values, min(len(values), rng.choice((1, 1, 3))))
        match rng.randrange(4):
            case 0 | 1:
                state = rng.choice((EvState.DENIED, EvState.DENIED, EvState.GOOD))
                end.core.set_ev_state(qp, some[0], state, self.now)
            case 2:
                end.core.deny_evs(some, rng.random() < 0.5, self.now)
            case _:
                end.core.set_denials({address_of(other.index): some if rng.random() < 0.5 else []}, self.now)

    def replace(self) -> None:
        """Replace a value of a profile by another one."""
        _, _, end, qp, _, _ = self._side()
        values = [row.ev for row in end.core.query_evs(qp)]
        end.core.replace_ev(qp, self.rng.choice(values), self.rng.getrandbits(16), self.now)

    def retune(self) -> None:
        """Change a profile of a queue pair."""
        _, _, end, qp, _, _ = self._side()
        if self.rng.random() < 0.5:
            end.core.modify_ev_profile(qp, probes_to_revive=self.rng.choice((1, 2)), ev_min_active=1)
        else:
            end.core.set_profiles(qp, ev=self.evs(), cc=self.congestion())

    def probe(self) -> None:
        """Send a probe on an EV of the endpoint's own."""
        _, _, end, qp, other, _ = self._side()
        values = [row.ev for row in end.core.query_evs(qp)]
        port = self.rng.randrange(self.ports)
        end.core.probe_ev(address_of(other.index), self.rng.choice(values), port, self.now, 30 * US)

    def press(self) -> None:
        """Put a receiver under pressure, or relieve it."""
        rng, end = self.rng, self.rng.choice(self.ends)
        reasons = (NackReason.NO_RESOURCE, NackReason.NO_PKT_BUFFER, NackReason.NO_BITMAP, None, None)
        end.core.set_receive_pressure(rng.choice((0, 0, 5, 60)), restore=rng.random() < 0.3, refuse=rng.choice(reasons))
        self.at(self.now + 100 * US, lambda: end.core.set_receive_pressure(0))

    def narrow(self) -> None:
        """Change the window of a responder."""
        _, _, end, qp, _, _ = self._side()
        end.core.set_mpr(qp, self.rng.choice((1, 2, 64)))

    # --- RoCE only ---

    def send(self) -> None:
        """Post a SEND, and mostly a receive for it."""
        _, _, end, qp, other, other_qp = self._side()
        rng, size = self.rng, self._sized()
        if self.lasting or rng.random() < 0.9:
            self._receive(other, other_qp, MEMORY if self.lasting or rng.random() < 0.97 else size // 2)
        immediate = rng.choice((None, 7))
        own = {"immediate": immediate, "solicited": rng.random() < 0.3, "fence": rng.random() < 0.2}
        end.core.post_send(qp, rng.randbytes(size), self._next(end), **own)

    def read(self) -> None:
        """Post a READ or an atomic."""
        _, _, end, qp, other, _ = self._side()
        rng, fence = self.rng, self.rng.random() < 0.2
        size = self._sized()
        if rng.random() < 0.5:
            va, key = self._place(other, size)
            end.core.post_read(qp, Scatter([(end.regions[0], 0, size)]), va, key, self._next(end), fence=fence)
            return
        va, key = self._place(other, 8)
        target = Scatter([(end.regions[0], 8 * rng.randrange(8), 8)])
        va = va if not self.lasting and rng.random() < 0.01 else va & ~7
        if rng.random() < 0.5:
            end.core.post_fetch_add(qp, target, va, key, rng.getrandbits(8), self._next(end), fence=fence)
        else:
            wanted, new = rng.getrandbits(8), rng.getrandbits(64)
            end.core.post_compare_swap(qp, target, va, key, wanted, new, self._next(end), fence=fence)


_COMMON: Final = (
    (Life.write, 40), (Life.receive, 3), (Life.flip_port, 4), (Life.fail, 0.3), (Life.reset, 0.9), (Life.leave, 0.5),
    (Life.withdraw, 1), (Life.restart, 0.3), (Life.connect, 1.5),
)  # fmt: skip
_MRC: Final = (
    *_COMMON, (Life.deny, 3), (Life.replace, 0.5), (Life.retune, 0.5), (Life.probe, 1), (Life.press, 2),
    (Life.narrow, 5),
)  # fmt: skip
_ROCE: Final = (*_COMMON, (Life.send, 15), (Life.read, 25))


def lines_of(seed: int) -> list[str]:
    """Return what happens in a life."""
    lines: list[str] = []
    Life(seed, lines.append).go()
    return lines


def digest(seed: int) -> str:
    """Return the digest of a life."""
    seen = hashlib.sha256()
    Life(seed, lambda line: seen.update(line.encode() + b"\n")).go()
    return seen.hexdigest()[:16]


def main(arguments: list[str]) -> int:
    """Print a life, or record the digests of all."""
    parser = argparse.ArgumentParser(prog="support.proto.lives", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("seed", type=int, nargs="?", help="the life to print")
    parser.add_argument("--record", action="store_true", help=f"write the digests of all {LIVES}")
    options = parser.parse_args(arguments)
    if options.record:
        digests = [digest(seed) for seed in range(LIVES)]
        RECORD.write_text(json.dumps(digests, indent=0) + "\n", encoding="utf-8")
    elif options.seed is not None:
        print("\n".join(lines_of(options.seed)))
    else:
        parser.error("give a seed, or --record")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
