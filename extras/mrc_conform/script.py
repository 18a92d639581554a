"""The verbs of a case: `send`, `expect`, `expect_nothing`, `advance`, and shorthands for the packets of a connection.

The kit is the device's peer. `rx(n)` is the PSN of the kit's nth packet, which the device receives; `tx(n)` that of the
device's nth packet. Field names are those of the dissector (docs/mrc.lua), in full (`bth.psn`) or by their last part.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mrc_conform.device import (
    Device,
    DeviceError,
    Done,
    EvEntry,
    Local,
    Outcome,
    PairState,
    PathState,
    Region,
    Remote,
    Settings,
)
from mrc_conform.wire import ENDPOINT_QP, Damage, FormatError, Packet, blank, decode, encode, wire_format
from mrc_topo.base import interruption

PSN_MASK: Final = 0xFFFFFF
ACK_SYNDROME: Final = 0x1F
#: The kit's own queue pair and its first PSN.
_NUMBER: Final = 0x4B17
_FIRST_PSN: Final = 0x1000
_REGION_BYTES: Final = 1 << 20
_DATA: Final = frozenset(
    {"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY", "WRITE_ONLY_IMM"}
)
Expected = int | bytes | Container[int]


class NackReason:
    """NETH.nack_reason (`mrc-protocol.md §3`)."""

    TRIMMED: Final = 0x01
    TRIMMED_LASTHOP: Final = 0x02
    NO_BITMAP: Final = 0x06
    NO_PKT_BUFFER: Final = 0x07
    NO_RESOURCE: Final = 0x0A
    PSN_OOR_WINDOW: Final = 0x0B
    UNEXP_EVENT: Final = 0x19


class Nak:
    """AETH.syndrome of a NAK (IBTA 1.4, 9.7.5.2.8)."""

    SEQUENCE: Final = 0x60
    INVALID_REQUEST: Final = 0x61
    REMOTE_ACCESS: Final = 0x62
    REMOTE_OPERATION: Final = 0x63


class Mismatch(AssertionError):
    """The device did something else than the rule says."""


class Direction(Enum):
    """Which way a packet of the transcript went."""

    SENT = "to the device"
    RECEIVED = "from the device"


@dataclass(frozen=True, slots=True)
class Line:
    """A packet of the transcript, with a note: what it was expected to be, or what is wrong with it."""

    direction: Direction
    at_ns: int
    port: int
    data: bytes
    summary: str
    note: str = ""


class Script:
    """One run of a case against a device: the connection, its packets, and what was seen."""

    def __init__(self, device: Device, settings: Settings) -> None:
        self.device = device
        self.settings = settings
        self.transcript: list[Line] = []
        self.pending: list[Packet] = []
        planes = settings.planes
        self.kit = Remote(device.kit_address, _NUMBER, _FIRST_PSN, settings.mtu, planes, (1 << planes) - 1, 0, 7)
        self._local: Local | None = None
        self._region: Region | None = None
        self._arrived: dict[int, int] = {}  # sizes of the device's packets that the kit has acknowledged, by PSN
        self._sizes: dict[int, int] = {}
        self._next_id = 1
        self._done: list[Done] = []
        self._group = [self]  # the connections of the case
        self._fresh = False  # the first packet will say with which PSN the device begins

    # --- the connection ---

    def connect(self, **changes: object) -> Local:
        """Create a queue pair of the device and connect it to the kit; `changes` are fields of `Remote`."""
        self.kit = replace(self.kit, p_key=self.settings.p_key)
        if changes:
            self.kit = replace(self.kit, **changes)  # type: ignore[arg-type]
        local = self.create()
        self.device.connect(local, self.kit)
        return local

    def second(self, **changes: object) -> Script:
        """Connect another queue pair of the device to another of the kit; each script sees the packets of its own."""
        other = Script(self.device, self.settings)
        other.transcript, other.pending, other._group = self.transcript, self.pending, self._group
        self._group.append(other)
        other.kit = replace(self.kit, number=_NUMBER + len(self._group), psn=_FIRST_PSN * len(self._group))
        other._region = self.region
        other.connect(**changes)
        return other

    def reset(self) -> None:
        """Move the queue pair to RESET."""
        self.device.modify(self.dut, PairState.RESET)
        self.advance(0)
        self.pending[:] = [packet for packet in self.pending if not self._is_mine(packet)]
        self._arrived.clear()
        self._sizes.clear()

    def reconnect(self, **changes: object) -> None:
        """Connect the queue pair again after RESET; its first packet says with which PSN it begins."""
        self.reset()
        self.kit = replace(self.kit, **changes)  # type: ignore[arg-type]
        self.device.connect(self.dut, self.kit)
        self._fresh = True

    def create(self) -> Local:
        """Create a queue pair of the device without connecting it."""
        self._local = self.device.create()
        return self._local

    @property
    def dut(self) -> Local:
        """The device's queue pair."""
        if self._local is None:
            raise DeviceError("the script has not connected a queue pair")
        return self._local

    @property
    def region(self) -> Region:
        """Memory of the device that the kit may write to, registered at its first use."""
        if self._region is None:
            self._region = self.device.region(_REGION_BYTES)
        return self._region

    def rx(self, n: int) -> int:
        """Return the PSN of the kit's packet n."""
        return self.kit.psn + n & PSN_MASK

    def tx(self, n: int) -> int:
        """Return the PSN of the device's packet n."""
        return self.dut.psn + n & PSN_MASK

    @property
    def now(self) -> int:
        """The device's time (ns)."""
        return self.device.now()

    @property
    def ack_timeout_ns(self) -> int:
        """The local ACK timeout of a first transmission (`mrc-protocol.md §4`)."""
        exponent = self.device.timeout if self.settings.timeout is None else self.settings.timeout
        return 1024 << exponent

    @property
    def stamp(self) -> int:
        """The timestamp of this instant, in units of 128 ns."""
        return self.now >> 7 & 0xFFFF

    # --- the four verbs ---

    def send(self, what: str | Packet, damage: Damage | None = None, /, *, port: int = 0, **changes: int) -> Packet:
        """Send a packet to the device: an opcode with fields, or a packet that was made before; return it as sent."""
        packet = self.make(what) if isinstance(what, str) else what
        packet = self._changed(packet, changes)
        raw = encode(packet, damage or Damage(), self.device.udp_port)
        packet = replace(packet, raw=raw, at_ns=self.now, port=port)
        note = "" if damage is None or damage == Damage() else f"damaged on purpose: {damage}"
        self._log(Direction.SENT, packet, note)
        self.device.send(port, raw)
        return packet

    def send_raw(self, raw: bytes, *, port: int = 0) -> None:
        """Send bytes that need not be a packet."""
        self.transcript.append(Line(Direction.SENT, self.now, port, raw, f"{len(raw)} bytes"))
        self.device.send(port, raw)

    def expect(
        self,
        opcode: str,
        *,
        within: int | None = None,
        after: int | None = None,
        since: int | None = None,
        **fields: Expected,
    ) -> Packet:
        """Return the next packet of this opcode, which must have these fields.

        `within`: how long it may take (ns; None: as long as the device may take to answer). `after`: how long after
        `since` (None: now) it must be sent, within the device's tolerance. A field is a number, a range or a set;
        `ev`, `dscp`, `ecn`, `port`, `size` and `payload` are properties of the packet.

        Raises:
            Mismatch: nothing came in time, or it has other fields.
        """
        device = self.device
        start = self.now if since is None else since
        wait = device.answer_ns if within is None else within + device.answer_ns
        if after is not None:
            wait = after + device.tolerance_ns
        packet = self._await(opcode, (start if after is not None else self.now) + wait)
        if packet is None:
            others = ", ".join(dict.fromkeys(each.opcode for each in self.pending)) or "nothing"
            raise Mismatch(f"expected {opcode}{_shown(fields)} within {wait:,} ns; {others} came")
        self.pending.remove(packet)
        self._compare(packet, fields)
        if after is not None and not -device.tolerance_ns <= packet.at_ns - start - after <= device.tolerance_ns:
            raise Mismatch(f"expected {opcode} after {after:,} ns; it came after {packet.at_ns - start:,} ns")
        return packet

    def expect_nothing(self, *opcodes: str, within: int = 0) -> None:
        """Check that no packet of these opcodes (none: of any) comes for `within` ns; `pending` ones count.

        Raises:
            Mismatch: one came.
        """
        deadline = self.now + within + self.device.quiet_ns
        while True:
            for packet in filter(self._is_mine, self.pending):
                if packet.opcode in opcodes or (not opcodes and not _idle(packet)):
                    raise Mismatch(f"expected no {' or '.join(opcodes) or 'packet'}; {packet.opcode} came")
            if not self._take(deadline):
                return

    def advance(self, ns: int) -> None:
        """Let the time pass; what the device sends meanwhile waits for `expect`."""
        interruption.check()
        deadline = self.now + ns
        while self._take(deadline):
            pass

    # --- packets by hand ---

    def make(self, opcode: str, *, stamped: bool | None = None, **changes: int) -> Packet:
        """Return a packet to the device's queue pair (or to QP 2 for endpoint operations), ready to be changed."""
        if stamped is None:
            stamped = self.settings.timestamps
        packet = blank(opcode, stamped=stamped)
        packet.source, packet.destination = self.kit.address, self.dut.address
        packet.fields["bth.p_key"] = self.kit.p_key
        packet.fields["bth.dest_qp"] = ENDPOINT_QP if opcode.startswith("ENDPOINT") else self.dut.number
        dscp = wire_format().dscp
        data = opcode in _DATA or opcode == "PROBE"
        packet.dscp = dscp["trimmable"] if data else dscp["control"]
        packet.ecn = 2 if data else 0
        packet.ev = 0x00C50001
        for name in ("spdcid", "dpdcid"):
            if (full := packet.find(name)) is not None:
                packet.fields[full] = (self.kit.number if name == "spdcid" else self.dut.number) & 0xFFFF
        full = packet.find("tx_timestamp")
        if full is not None:
            packet.fields[full] = self.stamp
        return self._changed(packet, changes)

    def data(
        self,
        n: int,
        opcode: str = "WRITE_ONLY",
        *,
        msn: int | None = None,
        payload: bytes | None = None,
        length: int | None = None,
        place: int | None = None,
        **changes: int,
    ) -> Packet:
        """Return WRITE packet n of the kit; unless said, a message of its own with one MTU of bytes, at `n` MTUs.

        `place`: bytes from the start of the region. `length`: of the whole message.
        """
        mtu = self.settings.mtu
        if payload is None:
            payload = pattern(n, mtu)
        packet = self.make(opcode)
        packet.payload = payload
        packet.ev = 0x00C50000 + (n & 0xFFF)
        values = {
            "bth.psn": self.rx(n),
            "bth.ack_req": int("LAST" in opcode or "ONLY" in opcode),
            "meth.msn": (n + 1 & 0xFFFF) if msn is None else msn,
            "reth.va": self.region.va + (n * mtu if place is None else place),
            "reth.rkey": self.region.rkey,
            "reth.dma_length": len(payload) if length is None else length,
        }
        return self._changed(packet.with_fields(values), changes)

    def message(
        self,
        n: int,
        packets: int,
        *,
        msn: int = 1,
        immediate: int | None = None,
        rqmsn: int = 0,
        last: int | None = None,
    ) -> list[Packet]:
        """Return the packets of one message from packet n on; `last`: bytes of its last packet (None: a full one)."""
        mtu = self.settings.mtu
        last = mtu if last is None else last
        length = (packets - 1) * mtu + last
        imm = "" if immediate is None else "_IMM"
        made = []
        for index in range(packets):
            ending = index == packets - 1
            if packets == 1:
                opcode = "WRITE_ONLY" + imm
            else:
                opcode = "WRITE_LAST" + imm if ending else "WRITE_MIDDLE" if index else "WRITE_FIRST"
            size = last if ending else mtu
            packet = self.data(n + index, opcode, msn=msn, payload=pattern(n + index, size), length=length, rqmsn=rqmsn)
            if ending and immediate is not None:
                packet = packet.with_fields({"immdt.immediate": immediate})
            made.append(packet)
        return made

    def sack(
        self, packet: Packet, cack: int, got: Iterable[int] = (), /, *, port: int | None = None, **changes: int
    ) -> Packet:
        """Answer a packet of the device: everything up to its packet `cack` has arrived, and those in `got`.

        Echoes EV, timestamp and rtx, and counts the bytes of all packets that were ever acknowledged so.
        """
        got = list(got)
        trigger = self._index(packet)
        for index in [*range(cack + 1), *got, trigger]:
            self._arrived.setdefault(index, self._sizes.get(index, 0))
        lowest = cack + 1
        bitmap = sum(1 << index - lowest for index in got if 0 <= index - lowest < 64)
        beyond = [index for index in got if index > cack]
        made = self.make("SACK")
        values = {
            "bth.psn": self.tx(cack),
            "bth.rtx": packet["rtx"],
            "seth.cack_psn": self.tx(cack),
            "seth.ack_psn_offset": trigger - cack,
            "seth.entropy": packet.ev,
            "seth.sack_offset": 1,
            "seth.sack_bitmap": bitmap,
            "cc_state.tx_timestamp": _stamp_of(packet),
            "cc_state.ooo_count": len(beyond),
            "cc_state.rcvd_bytes": self._received_units,
        }
        return self.send(made.with_fields(values), port=packet.port if port is None else port, **changes)

    def ack(self, index: int, msn: int, syndrome: int = ACK_SYNDROME, *, port: int = 0) -> Packet:
        """Send a transport ACK or NAK of the device's packet `index`."""
        return self.send("ACK", port=port, psn=self.tx(index), msn=msn, syndrome=syndrome)

    def nack(self, packet: Packet, reason: int, **changes: int) -> Packet:
        """Refuse a packet of the device."""
        made = self.make("NACK").with_fields(
            {
                "bth.psn": packet["psn"],
                "neth.nack_psn": packet["psn"],
                "neth.nack_reason": reason,
                "neth.entropy": packet.ev,
                "neth.tx_timestamp": _stamp_of(packet),
            }
        )
        return self.send(made, port=packet.port, **changes)

    def probe_reply(self, probe: Packet, cack: int, got: Iterable[int] = (), /, **changes: int) -> Packet:
        """Answer a reliability probe of the device."""
        bitmap = sum(1 << index - cack - 1 for index in got)
        signed = probe["probe_id"] - (0x10000 if probe["probe_id"] & 0x8000 else 0)
        made = self.make("SACK").with_fields(
            {
                "bth.psn": self.tx(cack),
                "seth.pr": 1,
                "seth.cack_psn": self.tx(cack),
                "seth.ack_psn_offset": signed,
                "seth.entropy": probe.ev,
                "seth.sack_offset": 1,
                "seth.sack_bitmap": bitmap,
                "cc_state.tx_timestamp": probe["tx_timestamp"],
                "cc_state.rcvd_bytes": self._received_units,
            }
        )
        return self.send(made, port=probe.port, **changes)

    # --- requests and memory of the device ---

    def post(self, length: int, immediate: int | None = None, *, solicited: bool = False, at: int = 0x10000) -> int:
        """Have the device write `length` bytes of `pattern` to the kit; return the request's number."""
        number, self._next_id = self._next_id, self._next_id + 1
        self.device.post_write(self.dut, number, pattern(0, length), at, 0xABCD, immediate, solicited)
        return number

    def drain(self, opcodes: Container[str] = _DATA, within: int = 0) -> list[Packet]:
        """Return all packets of these opcodes that came, or come within `within` ns."""
        self.advance(within + self.device.quiet_ns)
        found: list[Packet] = []
        others: list[Packet] = []
        for packet in self.pending:
            (found if packet.opcode in opcodes and self._is_mine(packet) else others).append(packet)
        self.pending[:] = others
        return found

    def expect_completion(
        self, wr_id: int, outcome: Outcome = Outcome.SUCCESS, *, immediate: int | None = None
    ) -> Done:
        """Return the next completion, which must be of this request.

        Raises:
            Mismatch: another one, or none.
        """
        done = self._completion()
        if done is None:
            raise Mismatch(f"expected a completion of request {wr_id}: {outcome.value}; there is none")
        if (done.wr_id, done.outcome) != (wr_id, outcome):
            raise Mismatch(f"expected completion {wr_id}: {outcome.value}; got {done.wr_id}: {done.outcome.value}")
        if immediate is not None and done.immediate != immediate:
            raise Mismatch(f"expected the immediate {immediate:#x}; the completion has {done.immediate}")
        return done

    def expect_no_completion(self) -> None:
        """Check that no request has completed. Raises Mismatch when one has."""
        self.advance(self.device.quiet_ns)
        done = self._completion(wait=False)
        if done is not None:
            raise Mismatch(f"expected no completion; request {done.wr_id} completed: {done.outcome.value}")

    def _completion(self, *, wait: bool = True) -> Done | None:
        deadline = self.now + self.device.answer_ns
        while True:
            self._done += self.device.completions(self.dut)
            if self._done or not wait or self.now >= deadline:
                return self._done.pop(0) if self._done else None
            self.advance(min(1_000_000, deadline - self.now))

    def expect_memory(self, place: int, data: bytes) -> None:
        """Check the bytes of the region. Raises Mismatch where they differ."""
        deadline = self.now + self.device.answer_ns
        self.advance(self.device.quiet_ns)
        found = self.device.read(self.region)[place : place + len(data)]
        while found != data and self.now < deadline:
            self.advance(self.device.quiet_ns)
            found = self.device.read(self.region)[place : place + len(data)]
        if found != data:
            first = next(index for index in range(len(data)) if found[index] != data[index])
            raise Mismatch(f"byte {place + first} of the region is {found[first]:#04x}, expected {data[first]:#04x}")

    def expect_state(self, state: PairState) -> None:
        """Check the state of the queue pair. Raises Mismatch when it is another."""
        found = self.device.state(self.dut)
        if found is not state:
            raise Mismatch(f"the queue pair is in {found.value}, expected {state.value}")

    def check(self, condition: bool, text: str) -> None:
        """Raise Mismatch with this text unless the condition holds."""
        if not condition:
            raise Mismatch(text)

    def expect_ev_state(self, value: int, state: PathState) -> None:
        """Check the state of one of the queue pair's EVs. Raises Mismatch when it is another."""
        found = self.ev(value).state
        if found is not state:
            raise Mismatch(f"the EV is {found.name}, expected {state.name}")

    def ev(self, value: int) -> EvEntry:
        """Return one of the queue pair's EVs. Raises Mismatch for a value that is not in its profile."""
        for entry in self.device.evs(self.dut):
            if entry.value == value:
                return entry
        raise Mismatch(f"EV {value:08x} is not in the queue pair's profile")

    def evs(self, keep: Callable[[EvEntry], bool] = lambda _: True) -> Sequence[EvEntry]:
        """Return the queue pair's EVs for which `keep` holds."""
        return [entry for entry in self.device.evs(self.dut) if keep(entry)]

    # --- inside ---

    @property
    def _received_units(self) -> int:
        """What CC_STATE.rcvd_bytes says: the bytes that were ever acknowledged, in units of 256."""
        return -(-sum(self._arrived.values()) // 256) & 0xFFFFFF

    def _index(self, packet: Packet) -> int:
        """Return n of the device's packet with this PSN."""
        distance = packet["psn"] - self.dut.psn & PSN_MASK
        return distance - (PSN_MASK + 1) if distance > PSN_MASK // 2 else distance

    def _changed(self, packet: Packet, changes: dict[str, int]) -> Packet:
        """Return the packet with other fields or properties."""
        fields = {}
        for name, value in changes.items():
            if name in ("ev", "dscp", "ecn"):
                packet = replace(packet, **{name: value})  # type: ignore[arg-type]
            else:
                fields[name] = value
        return packet.with_fields(fields) if fields else packet

    def _log(self, direction: Direction, packet: Packet, note: str = "") -> None:
        summary = f"{packet.opcode} psn={packet.fields.get('bth.psn', 0)} ev={packet.ev:08x}"
        self.transcript.append(Line(direction, packet.at_ns, packet.port, packet.raw, summary, note))

    def _take(self, deadline: int) -> bool:
        """Receive one packet until the deadline; False when none came.

        Raises:
            Mismatch: it is not well-formed.
        """
        arrival = self.device.receive(deadline)
        if arrival is None:
            return False
        try:
            packet = decode(arrival.data, self.device.udp_port, self.device.check_icrc)
        except FormatError as error:
            line = Line(Direction.RECEIVED, arrival.at_ns, arrival.port, arrival.data, "malformed", str(error))
            self.transcript.append(line)
            raise Mismatch(f"the device sent a packet that is not well-formed: {error}") from None
        packet = replace(packet, at_ns=arrival.at_ns, port=arrival.port)
        self._log(Direction.RECEIVED, packet)
        owner = next((each for each in self._group if each._is_mine(packet)), self)
        if packet.opcode in _DATA and not packet.trimmed:
            owner._note(packet)
        self.pending.append(packet)
        return True

    def _is_mine(self, packet: Packet) -> bool:
        """Return whether a packet is one to this connection, or to none of the case."""
        target = packet.fields["bth.dest_qp"]
        return target == self.kit.number or all(target != each.kit.number for each in self._group)

    def _note(self, packet: Packet) -> None:
        """Note the size of a data packet of the device, and the PSN with which it begins."""
        if self._fresh and not packet["rtx"]:
            self._fresh = False
            self._local = replace(self.dut, psn=packet["psn"])
        self._sizes[self._index(packet)] = packet.size

    def _await(self, opcode: str, deadline: int) -> Packet | None:
        while True:
            for packet in self.pending:
                if packet.opcode == opcode and self._is_mine(packet):
                    return packet
            if not self._take(deadline):
                return None

    def _compare(self, packet: Packet, fields: dict[str, Expected]) -> None:
        for name, wanted in fields.items():
            if name in ("ev", "dscp", "ecn", "port", "size", "payload"):
                found: int | bytes = getattr(packet, name)
            elif packet.find(name) is None:
                raise Mismatch(f"{packet.opcode} has no {name}, expected {wanted!r}")
            else:
                found = packet[name]
            if isinstance(wanted, int | bytes):
                same = found == wanted
            else:
                same = found in wanted
            if not same:
                raise Mismatch(f"{packet.opcode}.{name} is {_value(found)}, expected {_value(wanted)}")


def _stamp_of(packet: Packet) -> int:
    """Return the timestamp that an answer to a packet echoes, 0 of a packet without one."""
    return packet["tx_timestamp"] if packet.find("tx_timestamp") else 0


def _idle(packet: Packet) -> bool:
    """Return whether a packet belongs to no rule but its own: an EV probe, which a device may send at any time."""
    return packet.opcode == "ENDPOINT_REQUEST" and packet["op"] == 1


def pattern(n: int, length: int) -> bytes:
    """Return bytes that differ from packet to packet."""
    block = bytes((n * 31 + index * 7 + (index >> 8)) & 0xFF for index in range(min(length, 4096)))
    return (block * (length // 4096 + 1))[:length] if length > 4096 else block


def _value(value: object) -> str:
    if isinstance(value, int):
        return f"{value:#x}" if value > 9 else str(value)
    if isinstance(value, bytes):
        return f"{value[:16].hex()}{'...' if len(value) > 16 else ''} ({len(value)} bytes)"
    return str(value)


def _shown(fields: dict[str, Expected]) -> str:
    return "".join(f" {name}={_value(value)}" for name, value in fields.items())
