"""What happens in one run: the set-up, the user's operations, the faults of the network. All of it comes from a seed.

A scenario is plain data, so that it can be written to a file, replayed, and made smaller without its seed.
"""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass, field
from typing import Any, Final

MRC: Final = "mrc"
ROCE: Final = "roce"
SECOND: Final = 1_000_000_000

#: Classes of packets that a fault may be limited to; "any" is all of them, "control" all but data.
CLASSES: Final = (
    "any", "any", "any", "data", "data", "rtx", "rtx", "control", "sack", "sack", "ack", "ack", "nack", "probe",
    "answer", "node",
)  # fmt: skip
FAULTS: Final = (
    "loss", "loss", "loss", "duplicate", "reorder", "corrupt", "trim", "trim_last", "delay", "blackhole", "blackhole",
    "mark", "first",
)  # fmt: skip

TROUBLE: Final = (
    "port", "port", "stall", "restart", "error", "reset", "reset", "destroy", "close", "pressure", "deny", "replay",
    "garbage", "mpr", "starve", "deregister", "late_timer", "probe", "replace", "pause",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """From `start` to `end` (ns of the scenario) packets of class `only`, from host `src` on `plane` (-1: any) suffer.

    `share` is the probability per packet. `value`: ns for `reorder` and `delay`, the modulus for `blackhole`, how many
    packets are lost for `first`.
    """

    kind: str
    start: int
    end: int
    plane: int = -1
    src: int = -1
    only: str = "any"
    share: float = 1.0
    value: int = 0


@dataclass(frozen=True)
class Op:
    """What a user or an operator does at `at` (ns of the scenario).

    `where` is a pair or a host, `side` an end of a pair; `size` and `value` depend on the kind, see `operations.py`.
    """

    at: int
    kind: str
    where: int
    side: int = 0
    size: int = 0
    value: int = 0


@dataclass(frozen=True)
class Setup:
    """What does not change during a run. Durations in ns, sizes in bytes."""

    transport: str
    seed: int
    hosts: int
    planes: int
    pairs: tuple[tuple[int, int], ...]
    mtu: int
    rate_bps: int  # of each port
    delays: tuple[int, ...]  # of each plane, one way
    epoch_ns: int  # where the clock of all hosts begins
    batch_bytes: int  # room that the driver offers at a time
    max_message: int
    slots: int
    timeout: int
    linear_cnt: int
    exp_cnt: int
    retry_cnt: int
    ev_count: int
    ev_active: int
    wide_evs: bool
    window: str  # fixed, nscc
    window_bytes: int
    sack_every: int
    sack_delay_ns: int
    tail_probe: bool
    rack: bool
    same_ev: bool
    adaptive: bool
    mpr: int
    dynamic_mpr: bool
    service_time: bool
    trim_nack: bool
    max_wimm: int
    timestamps: bool
    probe_interval_ns: int
    always_skip_after: int
    psn: int  # -1: drawn by the endpoint
    wrap: bool  # counters of 16, 24 and 32 bits begin close to their ends
    ack_every: int
    max_inflight: int
    selective: bool
    dcqcn: bool
    mark_ns: int  # a queue this long is marked
    trim_ns: int  # at a longer one packets are trimmed, or dropped where they may not be
    chaos_ns: int
    ending: str  # heal, silence
    dead: int  # with `silence`: the host that is heard no more, -1: all of them
    strict: bool  # timeouts are long enough for everything to succeed in a network that is well
    profiles: bool = False  # pairs use one of two EV and CC profiles
    reuse: bool = True  # a queue pair that was reset is connected again

    @property
    def base_rtt_ns(self) -> int:
        """Of a full packet and its answer in an empty network."""
        return 2 * max(self.delays) + (4 * self.mtu + 800) * 8 * SECOND // self.rate_bps

    @property
    def healthy_rtt_ns(self) -> int:
        """The longest round trip in a network without faults: behind everything that windows let into one queue."""
        if self.transport == ROCE:
            inside = self.max_inflight * (self.mtu + 100) * len(self.pairs) * 2
        else:
            inside = max(self.window_bytes, self.mtu + 100) * 2 * self.hosts
        return self.base_rtt_ns + inside * 8 * SECOND // self.rate_bps + self.sack_delay_ns

    @property
    def timeout_ns(self) -> int:
        """Local ACK timeout."""
        return 1024 << self.timeout

    @property
    def longest_ns(self) -> int:
        """The longest timeout of a packet."""
        if self.transport == ROCE:
            return self.timeout_ns
        return max(self.timeout_ns, min(self.timeout_ns << self.exp_cnt, 1024 << 24))

    @property
    def patience_ns(self) -> int | None:
        """How long the retries of one packet last when nothing is heard; None: for ever."""
        if self.transport == ROCE:
            return self.timeout_ns * (self.retry_cnt + 1)
        if self.exp_cnt >= 25:
            return None
        doubled = [max(self.timeout_ns, min(self.timeout_ns << n, 1024 << 24)) for n in range(1, self.exp_cnt + 1)]
        return self.timeout_ns * (self.linear_cnt + 1) + sum(doubled)


@dataclass(frozen=True)
class Scenario:
    """A whole run."""

    setup: Setup
    ops: tuple[Op, ...] = ()
    faults: tuple[Fault, ...] = field(default_factory=tuple)

    def to_json(self) -> str:
        """As text, for a file."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Scenario:
        """Return the scenario in a text of `to_json`."""
        data: dict[str, Any] = json.loads(text)
        setup = data["setup"]
        setup["pairs"] = tuple((a, b) for a, b in setup["pairs"])
        setup["delays"] = tuple(setup["delays"])
        ops = tuple(Op(**each) for each in data["ops"])
        return Scenario(Setup(**setup), ops, tuple(Fault(**each) for each in data["faults"]))


def draw(seed: int, transport: str, *, quick: bool = False) -> Scenario:
    """Return the scenario of a seed; `quick`: a small one, for the tests that always run."""
    rng = random.Random(f"{transport} {seed} {quick}")
    setup = _setup(rng, seed, transport, quick)
    return Scenario(setup, _ops(rng, setup, quick), _faults(rng, setup))


def _pairs(rng: random.Random, hosts: int, quick: bool) -> tuple[tuple[int, int], ...]:
    shape = rng.random()
    if not quick and shape < 0.01:
        count = rng.choice((300, 1000, 2000))
    elif shape < 0.15:
        count = rng.randint(8, 24)
    else:
        count = rng.choice((1, 1, 1, 2, 2, 3, 4, 6))
    incast = rng.random() < 0.4
    pairs = []
    for _ in range(count):
        a, b = rng.sample(range(hosts), 2)
        pairs.append((a, 0) if incast and a else (a, b))
    return tuple(pairs)


def _setup(rng: random.Random, seed: int, transport: str, quick: bool) -> Setup:
    hosts = rng.choice((2, 2, 2, 3, 4))
    planes = rng.choice((1, 2, 2, 3, 4, 8))
    pairs = _pairs(rng, hosts, quick)
    many = len(pairs) > 50
    mtu = rng.choice((256, 256, 1024, 4096))
    rate = rng.choice((1, 10, 10, 100)) * SECOND
    delay = rng.choice((1_000, 5_000, 20_000, 200_000))
    uneven = rng.random() < 0.3
    delays = tuple(delay * rng.choice((1, 1, 2, 5)) if uneven else delay for _ in range(planes))
    packets = rng.choice((1, 2, 4, 12, 40)) if not many else rng.choice((1, 2, 3))
    max_message = packets * mtu + rng.choice((0, 1, mtu // 2 + 1))
    per_plane = rng.choice((1, 2, 4, 16, 32)) if not many else rng.choice((2, 4))
    bdp = rate * planes * (2 * delay) // (8 * SECOND)
    window = rng.choice(("fixed", "nscc", "nscc"))
    full = mtu + 92
    window_bytes = rng.choice((1, 1, full, 2 * full, 8 * full, max(bdp, full), max(3 * bdp // 2, full)))
    longest = 2 * max(delays)
    weak = rng.random() < 0.1
    sack_every = rng.choice((1, 1, 1, 2, 8, 32, 256))
    chaos = rng.choice((20, 60, 200, 1000)) * longest
    draft = Setup(
        transport=transport,
        seed=seed,
        hosts=hosts,
        planes=planes,
        pairs=pairs,
        mtu=mtu,
        rate_bps=rate,
        delays=delays,
        epoch_ns=rng.choice((0, 1, (1 << 32) - 50_000, (1 << 48) - 7, 1_700_000_000 * SECOND + 13)),
        batch_bytes=rng.choice((0, 0, 0, 20_000, 100_000)),
        max_message=max_message,
        slots=2 if many else rng.choice((2, 8, 24)),
        timeout=0,
        linear_cnt=rng.choice((0, 0, 1, 3, 7)),
        exp_cnt=rng.choice((0, 1, 3, 5, 8, 25)),
        retry_cnt=rng.choice((1, 3, 7, 7)),
        ev_count=per_plane * planes * 2,
        ev_active=per_plane * planes,
        wide_evs=rng.random() < 0.8,
        window=window,
        window_bytes=window_bytes,
        sack_every=sack_every,
        sack_delay_ns=rng.choice((1, longest // 4 + 1, longest + 1, 3 * longest)) if sack_every > 1 else 20_000,
        tail_probe=rng.random() < 0.85,
        rack=rng.random() < 0.85,
        same_ev=rng.random() < 0.85,
        adaptive=rng.random() < 0.2,
        mpr=rng.choice((1, 1, 2, 64)),
        dynamic_mpr=rng.random() < 0.3,
        service_time=rng.random() < 0.3,
        trim_nack=rng.random() < 0.85,
        max_wimm=rng.choice((1, 4, 1024)),
        timestamps=rng.random() < 0.85,
        probe_interval_ns=rng.choice((longest, 5 * longest, 1_000_000)),
        always_skip_after=rng.choice((0, 0, 0, 3)),
        psn=rng.choice((-1, 0, 0xFFFFFF, 0xFFFFF0, 0xFFFF80, 0x7FFFFE)),
        wrap=rng.random() < 0.5,
        ack_every=rng.choice((1, 2, 16, 64)),
        max_inflight=rng.choice((1, 2, 8, 32, 64)),
        selective=rng.random() < 0.4,
        dcqcn=rng.random() < 0.5,
        mark_ns=rng.choice((0, longest // 4, longest, 10 * longest)),
        trim_ns=rng.choice((longest // 2 + 2_000, 2 * longest, 20 * longest)),
        chaos_ns=chaos,
        ending=rng.choice(("heal", "heal", "heal", "heal", "silence")),
        dead=rng.choice((-1, rng.randrange(hosts))),
        profiles=rng.random() < 0.3,
        reuse=rng.random() < 0.7,
        strict=not weak,
    )
    wanted = draft.healthy_rtt_ns * (rng.choice((4, 8, 30, 300, 1500)) if not weak else rng.choice((0.3, 1)))
    timeout = 0
    while 1024 << timeout < wanted:
        timeout += 1
    setup = dataclasses.replace(draft, timeout=min(timeout, 20))
    # While a peer is gone its EVs are probed all the time: some thousand times are enough.
    longest_wait = setup.patience_ns or 100 * setup.timeout_ns
    return dataclasses.replace(setup, probe_interval_ns=max(setup.probe_interval_ns, longest_wait // 2000))


def _ops(rng: random.Random, setup: Setup, quick: bool) -> tuple[Op, ...]:
    ops: list[Op] = []
    pairs, chaos = len(setup.pairs), setup.chaos_ns

    def when() -> int:
        return rng.randrange(chaos)

    sizes = [0, 1, 3, setup.mtu - 1, setup.mtu, setup.mtu + 1, setup.max_message]
    posts = rng.choice((3, 10, 30, 80)) if pairs <= 50 else 2 * pairs
    bursts = [when() for _ in range(rng.randint(1, 6))]
    for _ in range(min(posts, 20) if quick else posts):
        size = min(rng.choice(sizes) if rng.random() < 0.5 else rng.randint(0, setup.max_message), setup.max_message)
        at = rng.choice(bursts) if rng.random() < 0.6 else when()
        kind = "post_imm" if rng.random() < 0.35 else "post"
        ops.append(Op(at, kind, rng.randrange(pairs), rng.randrange(2), size, rng.randrange(16)))
    # Most scenarios have a few kinds of trouble and not all, or nothing would survive long enough to meet the next.
    for kind in TROUBLE:
        if rng.random() > 0.15:
            continue
        for _ in range(rng.choice((1, 1, 2, 5))):
            ops += _trouble(rng, setup, kind, when())
    ops.sort(key=lambda op: op.at)
    return tuple(ops)


def _trouble(rng: random.Random, setup: Setup, kind: str, at: int) -> list[Op]:
    host, pair, side = rng.randrange(setup.hosts), rng.randrange(len(setup.pairs)), rng.randrange(2)
    rtt = setup.base_rtt_ns
    again = at + rng.choice((rtt // 3, rtt, 5 * rtt, setup.chaos_ns // 4, 2 * setup.timeout_ns))
    if kind == "port":
        port, admin = rng.randrange(setup.planes), rng.randrange(2)
        ports = range(setup.planes) if rng.random() < 0.2 else (port,)
        ops = [Op(at, "port_down", host, admin, 0, each) for each in ports]
        if rng.random() < 0.8:
            ops += [Op(again, "port_up", host, admin, 0, each) for each in ports]
        return ops
    if kind in ("stall", "late_timer"):
        return [Op(at, kind, host, 0, rng.choice((rtt, 10 * rtt, setup.timeout_ns, 3 * SECOND)))]
    if kind == "restart":
        ops = [Op(at, kind, host)]
        mine = [number for number, ends in enumerate(setup.pairs) if host in ends]
        ops += [Op(again, "renew", number) for number in mine if rng.random() < 0.7]
        return ops
    if kind in ("error", "reset", "destroy", "close", "deregister"):
        ops = [Op(at, kind, pair, side)]
        if rng.random() < 0.6:
            ops.append(Op(again, "renew", pair, rng.randrange(2), 0, rng.choice((0, 0, rtt, 3 * rtt))))
        return ops
    if kind == "pressure":
        refuse = rng.choice((0, 0, 6, 7, 10))
        return [Op(at, kind, host, 0, refuse, rng.choice((0, 1, 20, 127))), Op(again, kind, host, 0, 0, 0)]
    if kind == "pause":
        return [Op(at, kind, host, 0, rng.choice((0, 100, 0xFFFF)), rng.randrange(setup.planes))]
    if kind == "replace":
        return [Op(at, kind, pair, side, rng.randrange(1 << 16), rng.randrange(1 << 16))]
    if kind == "deny":
        return [Op(at, kind, pair, side, rng.choice((0, 0, 1)), rng.randrange(1 << 16))]
    if kind == "mpr":
        return [Op(at, kind, pair, side, 0, rng.choice((1, 2, 64)))]
    return [Op(at, kind, host, side, rng.choice((1, 5, 40)), rng.randrange(1 << 30))]


def _faults(rng: random.Random, setup: Setup) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    chaos, rtt = setup.chaos_ns, setup.base_rtt_ns
    for _ in range(rng.choice((0, 1, 2, 3, 5, 8))):
        kind = rng.choice(FAULTS)
        start = rng.randrange(chaos)
        length = rng.choice((rtt // 2, 2 * rtt, 10 * rtt, chaos))
        value = 0
        if kind == "reorder":
            value = rng.choice((rtt // 4, rtt, 6 * rtt))
        elif kind == "delay":
            value = rng.choice((3 * rtt, setup.timeout_ns, 20 * setup.timeout_ns, 3 * SECOND))
        elif kind == "blackhole":
            value = rng.choice((2, 2, 3, 8))
        elif kind == "first":
            value = rng.choice((1, 1, 2, 6, 20))
        share = rng.choice((0.02, 0.1, 0.4, 1.0))
        if kind in ("blackhole", "first"):
            share = 1.0
        elif kind in ("corrupt", "delay"):
            share = min(share, 0.4)
        only = rng.choice(CLASSES)
        plane = rng.choice((-1, -1, rng.randrange(setup.planes)))
        src = rng.choice((-1, -1, rng.randrange(setup.hosts)))
        faults.append(Fault(kind, start, min(start + length, chaos), plane, src, only, share, value))
    return tuple(faults)
