"""Keys and protection."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Outcome, PairState
from mrc_conform.script import Nak, Script, pattern

_KEYS = Area.PROTECTION


def _refused(name: str, rule: str, clause: str, *, va: int = 0, length: int = 64) -> None:
    @case(name, _KEYS, rule, Basis.IBTA, clause, Need.STATES)
    def refused(c: Script) -> None:
        c.send(c.data(0, payload=pattern(0, length), va=c.region.va + va & (1 << 64) - 1))
        c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(0), msn=0)
        c.expect_state(PairState.ERROR)


_refused(
    "key-beyond",
    "A WRITE that begins after the last byte of its region is refused: remote access error.",
    "10.6.6.2",
    va=1 << 20,
)
_refused("key-before", "A WRITE that begins before its region is refused.", "10.6.6.2", va=-1)
_refused("key-across", "A WRITE that ends one byte after its region is refused.", "10.6.6.2", va=(1 << 20) - 63)
_refused("key-address-wraps", "A WRITE whose address wraps is refused.", "10.6.6.2", va=(1 << 64) - 4096)


@case(
    "key-unknown", _KEYS, "A WRITE with an R_Key that does not exist is refused.", Basis.IBTA, "10.6.6.2", Need.STATES
)
def key_unknown(c: Script) -> None:
    c.send(c.data(0, rkey=c.region.rkey ^ 0x5A5A))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)
    c.expect_state(PairState.ERROR)


@case(
    "key-read-only",
    _KEYS,
    "A WRITE to a region without remote write access is refused.",
    Basis.IBTA,
    "10.6.6.2",
    Need.MEMORY,
)
def key_read_only(c: Script) -> None:
    region = c.device.region(4096, writable=False)
    c.send(c.data(0, payload=b"\x44" * 64, va=region.va, rkey=region.rkey))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)
    c.check(c.device.read(region)[:64] == bytes(64), "bytes were written")


@case("key-withdrawn", _KEYS, "A region that was deregistered takes nothing more.", Basis.IBTA, "10.6.6", Need.MEMORY)
def key_withdrawn(c: Script) -> None:
    c.send(c.data(0))
    c.expect("ACK", syndrome=0x1F)
    c.device.deregister(c.region)
    c.send(c.data(1))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(1), msn=1)


@case(
    "key-nothing-placed",
    _KEYS,
    "Of a packet that is refused no byte is placed, not even those inside the region.",
    Basis.IBTA,
    "10.6.6.2",
    Need.MEMORY,
)
def key_nothing_placed(c: Script) -> None:
    place = c.region.length - 32
    c.send(c.data(0, payload=b"\x33" * 64, place=place))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)
    c.expect_memory(place, bytes(32))


@case(
    "nak-in-turn", _KEYS, "A NAK is sent in the packet's turn, when everything before it has arrived.", Basis.OURS, "§6"
)
def nak_in_turn(c: Script) -> None:
    c.send(c.data(1, rkey=0xBAD))
    c.expect("SACK", ooo_count=1)
    c.expect_nothing("ACK")
    c.send(c.data(0))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(1), msn=1)


@case("nak-sacked", _KEYS, "A packet that is refused for its semantics was received: it is SACKed.", Basis.NOTES, "§6")
def nak_sacked(c: Script) -> None:
    c.send(c.data(0, rkey=0xBAD))
    c.expect("SACK", cack_psn=c.rx(0))


@case("nak-repeated", _KEYS, "The NAK is repeated in answer to later packets.", Basis.OURS, "§6")
def nak_repeated(c: Script) -> None:
    c.send(c.data(0, rkey=0xBAD))
    c.expect("SACK")
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)
    c.send(c.data(1))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(0))
    c.expect_nothing("SACK")


def _nak(name: str, syndrome: int, outcome: Outcome) -> None:
    @case(
        name,
        _KEYS,
        f"A NAK {syndrome:#04x} ends the queue pair: its request gets {outcome.value}, later ones are flushed.",
        Basis.IBTA,
        "9.7.5.2.8, 10.8.3",
        Need.POST,
        Need.STATES,
    )
    def ended(c: Script) -> None:
        first, second, third = (c.post(8) for _ in range(3))
        c.drain()
        c.ack(1, 1, syndrome)
        c.expect_completion(first)
        c.expect_completion(second, outcome)
        c.expect_completion(third, Outcome.WR_FLUSH_ERR)
        c.expect_state(PairState.ERROR)


_nak("nak-access", Nak.REMOTE_ACCESS, Outcome.REM_ACCESS_ERR)
_nak("nak-invalid", Nak.INVALID_REQUEST, Outcome.REM_INV_REQ_ERR)
_nak("nak-operation", Nak.REMOTE_OPERATION, Outcome.REM_OP_ERR)


@case(
    "nak-outlives-user",
    _KEYS,
    "When the user of a queue pair in ERROR is gone, the NAK that ended it is repeated, and no other.",
    Basis.OURS,
    "§6",
    Need.STATES,
)
def nak_outlives_user(c: Script) -> None:
    c.send(c.data(0))
    c.expect("ACK", syndrome=0x1F)
    c.send(c.data(1, rkey=0xBAD))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(1), msn=1)
    c.device.close_pair(c.dut)
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(1), msn=1)
    c.send(c.data(2))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(1), msn=1)


@case(
    "nak-lowest",
    _KEYS,
    "Of two packets that are refused the NAK is that of the lower PSN, whichever came first.",
    Basis.OURS,
    "§6",
)
def nak_lowest(c: Script) -> None:
    c.send(c.data(3, rkey=0xBAD))
    c.send(c.data(2, length=c.settings.mtu + 1))
    c.send(c.data(1))
    c.send(c.data(4, rkey=0xBAD))
    c.expect_nothing("ACK")
    c.send(c.data(0))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(2), msn=2)


@case(
    "nak-inside-message",
    _KEYS,
    "A packet inside a message that is refused ends the queue pair in its turn, though no message ends there.",
    Basis.OURS,
    "§6",
    Need.STATES,
)
def nak_inside_message(c: Script) -> None:
    packets = c.message(0, 4)
    c.send(packets[0])
    c.send(packets[2], rkey=0xBAD)
    c.expect_state(PairState.RTS)
    c.send(packets[1])
    c.expect("ACK", psn=c.rx(2), msn=0)
    c.expect_state(PairState.ERROR)


@case(
    "nak-unknown",
    _KEYS,
    "A NAK whose code is not known ends the queue pair with a remote operation error.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def nak_unknown(c: Script) -> None:
    wr = c.post(8)
    c.drain()
    c.ack(0, 0, 0x64)
    c.expect_completion(wr, Outcome.REM_OP_ERR)


@case("nak-repeated-to-probe", _KEYS, "The NAK is repeated in answer to a probe.", Basis.OURS, "§6")
def nak_repeated_to_probe(c: Script) -> None:
    c.send(c.data(0, rkey=0xBAD))
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS)
    c.send("PROBE", probe_id=3)
    c.expect("ACK", syndrome=Nak.REMOTE_ACCESS, psn=c.rx(0))
