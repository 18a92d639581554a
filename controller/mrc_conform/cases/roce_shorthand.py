"""What the modules of RoCE cases do with a connection."""

from __future__ import annotations

from typing import Final

from mrc_conform.device import Settings
from mrc_conform.script import ACK_SYNDROME, Script, pattern
from mrc_conform.wire import Packet, wire_format

#: One port, no congestion control that would pace, and a short retry budget.
USUAL: Final = Settings(planes=1, mtu=1024)
DATA: Final = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY", "SEND_ONLY", "READ_REQUEST")


def roce(**changes: object) -> Settings:
    """Return the usual settings with these fields of `RoceConfig`."""
    return Settings(planes=1, mtu=1024, roce=changes)


def request(c: Script, n: int, opcode: str = "WRITE_ONLY", payload: bytes | None = None, **changes: int) -> Packet:
    """Return the kit's request packet n; a WRITE goes to `n` MTUs from the start of the region, unless said."""
    packet = c.make(opcode)
    packet.dscp = 0
    packet.ecn = 2
    if opcode not in ("READ_REQUEST", "COMPARE_SWAP", "FETCH_ADD"):
        packet.payload = pattern(n, c.settings.mtu) if payload is None else payload
    values = {"bth.psn": c.rx(n), "bth.ack_req": int("LAST" in opcode or "ONLY" in opcode)}
    if packet.find("reth.va"):
        values |= {
            "reth.va": c.region.va + n * c.settings.mtu,
            "reth.rkey": c.region.rkey,
            "reth.dma_length": len(packet.payload),
        }
    if packet.find("atomiceth.va"):
        values |= {"atomiceth.va": c.region.va, "atomiceth.rkey": c.region.rkey}
    return packet.with_fields(values).with_fields(changes)


def write(c: Script, n: int, packets: int) -> list[Packet]:
    """Return the packets of a WRITE of `packets` full packets from packet n on."""
    if packets == 1:
        return [request(c, n)]
    made = []
    for index in range(packets):
        opcode = "WRITE_FIRST" if index == 0 else "WRITE_LAST" if index == packets - 1 else "WRITE_MIDDLE"
        packet = request(c, n + index, opcode)
        made.append(packet.with_fields({"dma_length": packets * c.settings.mtu}) if index == 0 else packet)
    return made


def requests(c: Script) -> list[Packet]:
    """Return all request packets that the device has sent and the script has not taken."""
    return c.drain({*DATA, "WRITE_ONLY_IMM", "WRITE_LAST_IMM", "SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "COMPARE_SWAP",
                    "FETCH_ADD"})  # fmt: skip


def number(value: int) -> bytes:
    """Return a 64-bit number in the byte order in which atomic operations see memory here."""
    return value.to_bytes(8, "little" if memoryview(b"\1\0").cast("H")[0] == 1 else "big")


def response(c: Script, opcode: str, index: int, payload: bytes, msn: int = 1) -> Packet:
    """Send a READ response packet for the device's PSN `index`."""
    packet = c.make(opcode)
    packet.dscp = wire_format().dscp["control"]
    packet.ecn = 0
    packet.payload = payload
    values = {"bth.psn": c.tx(index)}
    if packet.find("aeth.msn"):
        values |= {"aeth.syndrome": ACK_SYNDROME, "aeth.msn": msn}
    return c.send(packet.with_fields(values))
