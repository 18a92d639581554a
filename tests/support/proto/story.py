"""Narrated runs of two endpoints: what each sent and when, decoded; the stories of the protocol tests assert on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mrc_host.proto.congestion.nscc import FixedConfig
from mrc_host.proto.events import EvState
from mrc_host.proto.paths.ev import STATES
from mrc_host.proto.reliability.scoreboard import Scoreboard
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Ipv4, Opcode, Packet
from support.proto.net import Host, Net, NetConfig
from support.proto.workload import Bench, Connection, pair

# A window wide enough not to matter where a story is not about congestion control.
WIDE = FixedConfig(fixed_window_bytes=1 << 30, base_rtt_ns=8_000)


@dataclass(frozen=True)
class Sent:
    """One packet as it left an endpoint."""

    time: int
    host: int
    port: int
    packet: Packet

    @property
    def opcode(self) -> int:
        return self.packet.bth.opcode

    @property
    def is_data(self) -> bool:
        return self.opcode <= Opcode.WRITE_ONLY_IMM

    @property
    def psn(self) -> int:
        return self.packet.bth.psn

    @property
    def ev(self) -> int:
        return self.packet.entropy

    @property
    def rtx(self) -> bool:
        return bool(self.packet.bth.rtx)

    @property
    def dscp(self) -> int:
        assert not isinstance(self.packet.ip, Ipv4)
        return self.packet.ip.dscp


class Story:
    """A pair of endpoints, requestor (host 0) and responder (host 1), and everything they sent."""

    def __init__(self, config: NetConfig | None = None, seed: int = 1, **endpoint: Any) -> None:
        endpoint.setdefault("initial_psn", 1)
        self.bench: Bench
        self.connection: Connection
        self.bench, self.connection = pair(config or NetConfig(trim_bytes=None, ecn=None), seed, **endpoint)
        self.bench.keep_events = True
        self.net: Net = self.bench.net
        self.sent: list[Sent] = []
        self.net.watchers.append(self._watch)
        self.requestor_host, self.responder_host = self.net.hosts

    def _watch(self, time: int, what: str, host: Host, port: int, path: int, packet: bytes) -> None:
        if what == "sent":
            self.sent.append(Sent(time, host.index, port, wire.decode(packet)))

    # --- what happened ---

    def packets(self, *opcodes: int, host: int | None = None) -> list[Sent]:
        """Return what was sent with one of the opcodes."""
        return [s for s in self.sent if s.opcode in opcodes and host in (None, s.host)]

    def data(self, psn: int | None = None) -> list[Sent]:
        """Return data packets of the requestor, in the order sent; of one PSN if given."""
        return [s for s in self.sent if s.is_data and s.host == 0 and psn in (None, s.psn)]

    def sacks(self) -> list[Sent]:
        """SACKs of the responder that answer data."""
        return [s for s in self.packets(Opcode.SACK, host=1) if s.packet.seth is not None and not s.packet.seth.pr]

    def events(self, kind: type, host: int = 0) -> list[tuple[int, Any]]:
        """Events of one kind, with their times."""
        return [(time, event) for time, index, event in self.bench.events if index == host and isinstance(event, kind)]

    # --- the requestor's inside ---

    @property
    def qp(self) -> Any:
        return self.connection.qp

    @property
    def board(self) -> Scoreboard:
        board = self.qp.requestor.board
        assert isinstance(board, Scoreboard)
        return board

    @property
    def counters(self) -> Any:
        return self.qp.requestor.counters

    def state_of(self, ev: int) -> EvState:
        """Return the state of an EV value at the requestor."""
        return STATES[self.qp.evs.state[self.qp.evs.universe.index[ev]]]

    def plane_of(self, ev: int) -> int:
        return int(self.qp.evs.universe.planes[self.qp.evs.universe.index[ev]])

    def active(self, plane: int) -> set[int]:
        """Active EV values of a plane."""
        return {self.qp.evs.universe.values[ev] for ev in self.qp.evs.order[plane]}

    def backups(self, plane: int) -> set[int]:
        """Backup EV values of a plane."""
        return {self.qp.evs.universe.values[ev] for ev in self.qp.evs.backup[plane]}

    # --- moving on ---

    def until(self, condition: Callable[[], bool], *, max_time_ns: int = 1_000_000_000) -> None:
        """Run until the condition holds; fails (Stalled) when it does not come true."""
        self.net.run(condition, max_time_ns=max_time_ns)

    def lose(self, wanted: Callable[[Sent], bool]) -> None:
        """From now on the network loses what `wanted` selects."""

        def rule(net: Net, host: Host, port: int, index: int, packet: bytes) -> str | None:
            return "drop" if wanted(Sent(net.now, host.index, port, wire.decode(packet))) else None

        self.net.rules.append(rule)


def bits(bitmap: int, base: int) -> Iterator[int]:
    """PSNs that a SACK bitmap shows as received."""
    return (base + i for i in range(64) if bitmap >> i & 1)


def shown(sack: Sent) -> set[int]:
    """PSNs beyond cack_psn that a SACK shows as received."""
    seth = sack.packet.seth
    assert seth is not None
    return set(bits(seth.sack_bitmap, seth.cack_psn + seth.sack_offset))
