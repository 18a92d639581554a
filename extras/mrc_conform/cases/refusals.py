"""Cases of the responder's refusals: NACKs and trimmed packets."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Damage, Packet

_NACK = Area.NACK
_TRIM = Area.TRIM
_DSCP_TRIMMED = 12
_DSCP_LASTHOP = 16
#: What a switch leaves of a data packet: UDP, BTH, METH, TSETH, RETH.
_HEADERS_BYTES = 8 + 12 + 4 + 4 + 16


@case("nack-echo", _NACK, "A NACK names EV and timestamp of the packet that it refuses.", Basis.NOTES, "§3")
def nack_echo(c: Script) -> None:
    c.send(c.data(30_000), ev=0x01020304, tx_timestamp=0x5A5A)
    c.expect("NACK", entropy=0x01020304, tx_timestamp=0x5A5A)


def _resource(name: str, reason: int) -> None:
    @case(
        f"nack-{name.replace('_', '-').lower()}",
        _NACK,
        f"A responder that lacks a resource refuses a packet with {name} and does not place it.",
        Basis.UET,
        "3.5.12",
        Need.PRESSURE,
        Need.MEMORY,
    )
    def refused(c: Script) -> None:
        c.device.set_pressure(0, refuse=reason)
        packet = c.data(0)
        c.send(packet)
        c.expect("NACK", nack_reason=reason, nack_psn=c.rx(0))
        c.expect_nothing("SACK")
        c.expect_memory(0, bytes(64))
        c.device.set_pressure(0)
        c.send(packet, rtx=1)
        c.expect("SACK", cack_psn=c.rx(0))
        c.expect_memory(0, packet.payload)


for _name in ("NO_BITMAP", "NO_PKT_BUFFER", "NO_RESOURCE", "UNEXP_EVENT"):
    _resource(_name, getattr(NackReason, _name))


@case(
    "nack-not-for-duplicates",
    _NACK,
    "A duplicate is acknowledged though the responder refuses new packets.",
    Basis.NOTES,
    "§6",
    Need.PRESSURE,
)
def nack_not_for_duplicates(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.device.set_pressure(0, refuse=NackReason.NO_RESOURCE)
    c.send(c.data(0), rtx=1)
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_nothing("NACK")


def _trimmed(c: Script, packet: Packet, dscp: int, keep: int = _HEADERS_BYTES) -> None:
    c.send(packet, Damage(trim_to=keep), dscp=dscp)


@case(
    "trim-nack",
    _TRIM,
    "A packet that a switch trimmed is refused with TRIMMED, and nothing is placed.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def trim_nack(c: Script) -> None:
    packet = c.data(0)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0), entropy=packet.ev)
    c.expect_nothing("SACK")
    c.expect_memory(0, bytes(64))


@case(
    "trim-nack-last-hop",
    _TRIM,
    "A packet that was trimmed at the last hop is refused with TRIMMED_LASTHOP.",
    Basis.NOTES,
    "§6",
)
def trim_nack_last_hop(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_LASTHOP)
    c.expect("NACK", nack_reason=NackReason.TRIMMED_LASTHOP, nack_psn=c.rx(0))
    c.expect_nothing("SACK")


@case(
    "trim-by-length",
    _TRIM,
    "A UDP length beyond what arrived says that a packet was trimmed, whatever its DSCP.",
    Basis.NOTES,
    "§6",
)
def trim_by_length(c: Script) -> None:
    _trimmed(c, c.data(0), 4)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0))


@case("trim-to-bth", _TRIM, "A packet of which only BTH and METH are left is refused as well.", Basis.OURS, "§6")
def trim_to_bth(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED, keep=8 + 12 + 4)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, nack_psn=c.rx(0))


@case(
    "trim-some-payload",
    _TRIM,
    "Payload that is left of a trimmed packet is not placed.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def trim_some_payload(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED, keep=_HEADERS_BYTES + 256)
    c.expect("NACK", nack_reason=NackReason.TRIMMED)
    c.expect_memory(0, bytes(256))


@case("trim-echo-time", _TRIM, "The NACK of a trimmed packet echoes its timestamp.", Basis.NOTES, "§3")
def trim_echo_time(c: Script) -> None:
    packet = c.data(0, tx_timestamp=0x4321)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK", tx_timestamp=0x4321)


@case(
    "trim-duplicate",
    _TRIM,
    "A trimmed packet that had arrived before is a duplicate: SACK, not NACK.",
    Basis.NOTES,
    "§6",
)
def trim_duplicate(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    _trimmed(c, c.data(0), _DSCP_TRIMMED)
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_nothing("NACK")


@case("trim-repaired", _TRIM, "The retransmission of a trimmed packet is placed.", Basis.NOTES, "§6", Need.MEMORY)
def trim_repaired(c: Script) -> None:
    packet = c.data(0)
    _trimmed(c, packet, _DSCP_TRIMMED)
    c.expect("NACK")
    c.send(packet, rtx=1, dscp=8)
    c.expect("SACK", cack_psn=c.rx(0), rtx=1)
    c.expect_memory(0, packet.payload)


@case(
    "trim-not-capable",
    _TRIM,
    "Without the trim-NACK capability a trimmed packet is not answered.",
    Basis.NOTES,
    "§6",
    settings=Settings(trim_nack=False),
)
def trim_not_capable(c: Script) -> None:
    _trimmed(c, c.data(0), _DSCP_TRIMMED)
    c.expect_nothing()


@case("trim-control", _TRIM, "Only data may be trimmed: a trimmed SACK is dropped.", Basis.OURS, "§9", Need.POST)
def trim_control(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    made = c.make("SACK", psn=c.tx(0), cack_psn=c.tx(0), entropy=packet.ev, sack_offset=1)
    c.send(made, Damage(trim_to=8 + 12 + 28), dscp=_DSCP_TRIMMED)
    c.expect_nothing("SACK", "NACK")
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)


@case(
    "trim-no-time",
    _TRIM,
    "A trimmed packet without a timestamp is refused with an echo of 0, whatever stands where one would be.",
    Basis.NOTES,
    "§3",
    settings=Settings(timestamps=False),
)
def trim_no_time(c: Script) -> None:
    packet = c.data(0).with_fields({"reth.va": 0x1234_5678_0000_0000})
    _trimmed(c, packet, _DSCP_TRIMMED, keep=_HEADERS_BYTES - 4)
    c.expect("NACK", nack_reason=NackReason.TRIMMED, tx_timestamp=0)
