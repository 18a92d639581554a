"""The account of bytes in flight: never negative, one owner, the sum of its parts (`mrc-protocol.md §8`)."""

from __future__ import annotations

import ast
import pathlib
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import mrc_host.proto
from mrc_host.proto.config import EvConfig, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.inflight import RCVD_UNIT, InflightAccount
from mrc_host.proto.congestion.nscc import FixedConfig
from support.proto.net import Impairment, NetConfig
from support.proto.story import WIDE, Story
from support.proto.workload import Bench

FLOWS = 3


@dataclass
class Packet:
    """A packet in flight, as the account sees it."""

    size: int
    counted: bool = True


class Accounts(RuleBasedStateMachine):
    """Three queue pairs on one controller; a model of what is on its way, what was lost, what has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.cc = FixedConfig().controller(4096)
        self.accounts = [InflightAccount(self.cc) for _ in range(FLOWS)]
        self.flying: list[list[int]] = [[] for _ in range(FLOWS)]
        self.lost: list[list[int]] = [[] for _ in range(FLOWS)]
        self.received = [0] * FLOWS
        self.proven = [0] * FLOWS

    flow = st.integers(0, FLOWS - 1)

    @rule(flow=flow, size=st.integers(1, 9_200))
    def send(self, flow: int, size: int) -> None:
        self.accounts[flow].send(size)
        self.flying[flow].append(size)

    @rule(flow=flow, which=st.integers(0, 99), told=st.booleans())
    def arrive(self, flow: int, which: int, told: bool) -> None:
        """Let a packet arrive, and a SACK report it or get lost."""
        if self.flying[flow]:
            self.received[flow] += self.flying[flow].pop(which % len(self.flying[flow]))
        if told:
            self.accounts[flow].receive(-(-self.received[flow] // RCVD_UNIT) & 0xFFFFFF)

    @rule(flow=flow, which=st.integers(0, 99))
    def lose(self, flow: int, which: int) -> None:
        if self.flying[flow]:
            size = self.flying[flow].pop(which % len(self.flying[flow]))
            self.accounts[flow].lose(size)
            self.lost[flow].append(size)

    @rule(flow=flow, told_first=st.booleans())
    def revive(self, flow: int, told_first: bool) -> None:
        """Let a packet taken for lost arrive; the peer's count comes before or after the requestor notices."""
        if not self.lost[flow]:
            return
        size = self.lost[flow].pop()
        self.received[flow] += size
        units = -(-self.received[flow] // RCVD_UNIT) & 0xFFFFFF
        if told_first:
            self.accounts[flow].receive(units)
            self.accounts[flow].revive(size)
        else:
            self.accounts[flow].revive(size)
            self.accounts[flow].receive(units)

    @rule(flow=flow, claim=st.integers(0, 0xFFFFFF))
    def forged(self, flow: int, claim: int) -> None:
        """Forge a SACK: more than was sent is not believed, so nothing is owed beyond that."""
        account = self.accounts[flow]
        before = account.in_flight
        newly = account.receive(claim)
        assert newly >= 0
        assert account.in_flight >= 0
        assert before - account.in_flight <= newly
        # Start afresh: the account believes the lie from here on.
        self.close(flow)

    @rule(flow=flow, which=st.integers(0, 99))
    def prove(self, flow: int, which: int) -> None:
        """Let a packet arrive and its SACK be lost; a transport ACK proves it."""
        if self.flying[flow]:
            size = self.flying[flow].pop(which % len(self.flying[flow]))
            self.received[flow] += size
            self.proven[flow] += size
            self.accounts[flow].prove(Packet(size))

    @rule(flow=flow)
    def close(self, flow: int) -> None:
        self.accounts[flow].close()
        self.flying[flow].clear()
        self.lost[flow].clear()
        self.received[flow] = self.proven[flow] = 0
        assert self.accounts[flow].in_flight == 0

    @invariant()
    def never_negative_and_the_sum_of_its_parts(self) -> None:
        assert all(account.in_flight >= 0 for account in self.accounts)
        assert self.cc.inflight == sum(account.in_flight for account in self.accounts)

    @invariant()
    def what_is_proven_is_not_in_flight(self) -> None:
        for flow, account in enumerate(self.accounts):
            assert account.in_flight <= sum(self.flying[flow]) + self.received[flow] - self.proven[flow]


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)


def test_bytes_counted_early_by_rounding_are_subtracted_later() -> None:
    controller = FixedConfig().controller(4096)
    account = InflightAccount(controller)
    account.send(1_000)
    assert account.receive(4) == 1_024  # rounded up
    assert controller.inflight == 0
    account.send(1_000)
    assert controller.inflight == 976  # not 1 000: 24 bytes were counted already
    assert account.receive(3) == 0  # an older SACK
    assert account.receive(0x900) == 4 * 256  # 8 units are all that can be true
    assert controller.inflight == 0


def test_received_bytes_count_across_the_wrap_of_their_units() -> None:
    """The responder's counter has 24 bits of units of 256 bytes, and 4 MB arrive as it wraps."""
    before = (1 << 24) - 100
    account = InflightAccount(None)
    account.send(2 * RCVD_UNIT << 24)
    assert sum(map(account.receive, (0x700000, 0xE00000, before))) == before * RCVD_UNIT
    s = Story(wire=WireConfig(mtu=4096), cc=WIDE)
    s.connection.peer.responder.rcvd_bytes = before * RCVD_UNIT
    s.bench.post(s.connection, 4_000_000)
    s.until(lambda: s.bench.outstanding == 0)
    told = [sack.packet.cc_state.rcvd_bytes for sack in s.sacks() if sack.packet.cc_state is not None]
    assert told[0] > told[-1]
    assert not any(account.overtaken(units) or not account.receive(units) for units in told)
    assert account.overtaken(before)
    assert account.receive(before) == 0
    assert told[-1] + 100 >= 15_625


def test_only_the_account_writes_inflight() -> None:
    for path in pathlib.Path(mrc_host.proto.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets: list[Any] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == "inflight":
                    where = f"{path.name}:{vars(node)['lineno']}"
                    first = path.parts[-2:] == ("congestion", "control.py") and isinstance(node, ast.Assign)
                    assert path.name == "inflight.py" or first, where


def test_statistics_never_show_less_than_nothing_in_flight() -> None:
    """An incast of eight with losses, trims, reordering and duplicates, looked at after every event."""
    config = NetConfig(
        planes=2,
        paths=2,
        impairment=Impairment(loss=0.02, reorder=0.05, duplicate=0.02),
        port_trim_bytes=40_000,
    )
    bench = Bench(
        config,
        5,
        verify=False,
        wire=WireConfig(mtu=1000),
        ports=PortsConfig(count=2),
        ev=EvConfig(count=16, active=8),
        reliability=ReliabilityConfig(timeout=8),
    )
    target = bench.add_host()
    senders = [bench.add_host() for _ in range(8)]
    for sender in senders:
        for _ in range(2):
            bench.post(bench.connect(sender, target), 150_001)
    lowest = 0

    def look() -> bool:
        nonlocal lowest
        for sender in senders:
            for peer in sender.core.peers.values():
                for qpcc in peer.controllers:
                    parts = [sender.account.in_flight for sender in qpcc.senders]
                    assert qpcc.cc.inflight == sum(parts)
                    lowest = min(lowest, *parts)
        return bench.outstanding == 0

    bench.net.run(look, max_time_ns=10**10)
    assert bench.statuses() == {"SUCCESS": 16}
    assert lowest == 0
    assert all(row.cc.inflight == 0 for sender in senders for row in sender.core.statistics().peers)
