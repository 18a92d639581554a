"""`usid_paths`: every packet of the plan is seen at every switch of its path, each time with the right address."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_topo import addressing
from mrc_workshop import inject
from mrc_workshop.inject import Hop, InjectedPacket
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, NoParams, kind
from mrc_workshop.trace import CapturedPacket, address_text, line

SHOWN = 4


@kind(NoParams)
def usid_paths(params: NoParams, runs: Sequence[Run]) -> Finding:
    """Along every path of the lab each switch shifts its own uSID out, byte by byte, and takes the port of the next."""
    good = total = 0
    worst: Finding | None = None
    for run in runs:
        plan = inject.usid_paths(run.topology, run.order.seed)
        seen: dict[int, list[CapturedPacket]] = {}
        for each in run.packets:
            if each.is_ipv6 and each.psn is not None:
                seen.setdefault(each.psn, []).append(each)
        total += len(plan)
        for packet in plan:
            found = _judge(run, packet, seen.get(packet.number, []))
            good += found is None
            worst = worst or found
    measured = f"{good} of {total} packets did what they should"
    if worst is None:
        return Finding(True, measured)
    return Finding(False, measured, worst.mistake, worst.evidence, worst.packets, worst.run)


def _judge(run: Run, packet: InjectedPacket, seen: list[CapturedPacket]) -> Finding | None:
    """Return the first mistake of the switches with a packet; None if there is none."""
    topology = run.topology

    def wrong(mistake: str) -> Finding:
        shown = [line(topology, each) for each in seen[-SHOWN:]]
        evidence = (f"packet {packet.number}: {packet.what}", *shown)
        return Finding(False, "", mistake, evidence, tuple(seen), run)

    left = list(seen)
    before = packet.frame[14 + 24 : 14 + 40]
    hop_limit = inject.HOP_LIMIT
    for hop in packet.hops:
        came = next((each for each in left if each.switch == hop.switch and not each.out), None)
        if came is None:
            return wrong(f"the packet never came to {hop.switch}")
        left.remove(came)
        went = [each for each in left if each.switch == hop.switch and each.out]
        if hop.out_port is None:
            if went:
                return wrong(
                    f"{hop.switch} sent a packet on whose path ends there (its own uSID was the last one, or none "
                    "has the next): there is no route for it, so it must be dropped"
                )
            return None
        wanted = address_text(topology, hop.destination)
        if not went:
            return wrong(_dropped(run, hop, before))
        out = went[0]
        left.remove(out)
        if out.destination != hop.destination:
            return wrong(f"{hop.switch} {_how(run, hop, before, out.destination)}; it must leave with {wanted}")
        if out.port != hop.out_port:
            return wrong(
                f"{hop.switch} sent it out of port {out.port}, but the static route of {wanted} is port "
                f"{hop.out_port}: the table must see the address as it is after the shift"
            )
        if len(went) > 1:
            return wrong(f"{hop.switch} sent {len(went)} copies of it")
        hop_limit -= 1
        if out.hop_limit != hop_limit:
            return wrong(f"{hop.switch} must lower the hop limit by one, to {hop_limit}; it left with {out.hop_limit}")
        at = out.inner_at
        if at != 54 or out.inner != packet.frame[54 : 54 + len(out.inner)]:
            return wrong(f"{hop.switch} changed bytes behind the outer IPv6 header, which no switch may")
        before = hop.destination
    return None


def _words(address: bytes) -> list[bytes]:
    return [address[at : at + 2] for at in range(4, 16, 2)]


def _dropped(run: Run, hop: Hop, before: bytes) -> str:
    own = addressing.usid_prefix(run.topology.switch(hop.switch).usid).to_bytes(6, "big")
    came = address_text(run.topology, before)
    mine = before[:6] == own
    shown = _observed(run, hop.switch, own if mine else None)
    if shown is not None:
        sent, after = shown
        wanted = sent[:4] + sent[6:] + bytes(2) if mine else sent
        if after != wanted:
            return f"{hop.switch} {_how(run, hop, sent, after)}, and found no route; it must be {_text(run, wanted)}"
    if not mine:
        return (
            f"{hop.switch} dropped a packet to {came}: its first uSID is not the switch's own, so it must not be "
            "shifted but routed by it as it is"
        )
    return (
        f"{hop.switch} dropped a packet to {came}: its own uSID is first, so it must shift it out and look up "
        f"{hop.destination[:6].hex(':', 2)}, the block with the next uSID"
    )


def _observed(run: Run, switch: str, own: bytes | None) -> tuple[bytes, bytes] | None:
    """Return the address before and after a switch that had a route for everything (`inject.looks`), for a packet with
    `own` in front (None: with another switch's uSID); None if that was not tried there."""
    seen = [each for each in run.packets if each.switch == switch and each.psn is not None and each.psn >= inject.LOOKS]
    prefix = addressing.usid_prefix(run.topology.switch(switch).usid).to_bytes(6, "big")
    for came in seen:
        if not came.out and (came.destination[:6] == prefix) is (own is not None):
            went = next((each for each in seen if each.out and each.psn == came.psn), None)
            if went is not None:
                return came.destination, went.destination
    return None


def _text(run: Run, address: bytes) -> str:
    return address_text(run.topology, address)


def _how(run: Run, hop: Hop, before: bytes, after: bytes) -> str:
    """Return, in words, what a switch did to an address."""
    own = addressing.usid_prefix(run.topology.switch(hop.switch).usid).to_bytes(6, "big")
    got = address_text(run.topology, after)
    words = _words(before)
    if after == before:
        return (
            f"sent the packet on with its own uSID still in front ({got}): the next switch does not find itself there"
        )
    if before[:6] != own:
        return f"changed the address although the first uSID was not its own ({got}): only a hit in local_usid shifts"
    if after[:4] != before[:4]:
        if after == before[2:] + bytes(2):
            return (
                f"shifted the whole address, locator block and all ({got}): only what is behind the first 32 bits moves"
            )
        return f"changed the locator block, the first 32 bits ({got})"
    moved = _words(after)
    if moved[:4] == words[2:]:
        return f"shifted by 32 bits ({got}): a uSID has 16"
    if moved[:5] == words[1:]:
        if moved[5] == words[0]:
            return f"rotated its uSID to the end ({got}): the last 16 bits must become 0"
        return f"left {moved[5].hex()} in the last 16 bits ({got}): they must become 0"
    if moved[1:] == words[1:]:
        return f"overwrote its uSID in place ({got}): all that follows must move up by 16 bits"
    return f"made another address of it ({got})"
