"""Entropy values by rule: what the 32 bits say in each routing mode (`mrc-protocol.md §2, §7`).

In structured and SRv6 modes an EV is `plane(4) | T1(12) | source port(16)`: the upper half travels in the flow
label, where a T0 finds the T1's number as its hop field. Several EVs share a path and differ in the source port.
In modes ECMP and spray the hop field is 0 and the source port is all that varies; plane 0..15 stays on top, so
that an EV tells its plane in every mode.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mrc_topo.modes import HOP_MASK, MODES, RoutingMode, UplinkChooser

#: Source ports are dynamic ones: 0xC000 to 0xFFFF.
SALT_BASE: Final = 0xC000
SALTS: Final = 0x4000
#: Slots of the switch's counter of packets by EV.
EV_COUNTERS: Final = 4096


def make_ev(plane: int, t1: int, salt: int) -> int:
    """Return the EV of a plane and T1 (0 where the EV names none); `salt` is 0..16383."""
    return plane << 28 | t1 << 16 | SALT_BASE | salt


def plane_of(ev: int) -> int:
    """Return the plane of an EV that `make_ev` made."""
    return ev >> 28


def hop_of(ev: int) -> int:
    """Return the T0's hop field: the number of the T1."""
    return ev >> 16 & HOP_MASK


def counter_index(ev: int) -> int:
    """Return the slot of the switch's counter `ev_packets` that counts this EV; EVs 4096 salts apart share one."""
    return (hop_of(ev) ^ ev) & (EV_COUNTERS - 1)


@dataclass(frozen=True, slots=True)
class EvField:
    """A field of a GENERATED profile, most significant first. The bits set in `mask` are filled with EV bits (or with
    the plane's number), the others come from `init`; `minimum..maximum` bound the value generated for the mask."""

    width: int
    init: int = 0
    minimum: int = 0
    maximum: int | None = None
    mask: int = 0
    plane: bool = False


def generated_fields(mode: RoutingMode, t1_count: int) -> tuple[EvField, ...]:
    """Return the field rules of a GENERATED profile that yields EVs of this module's layout."""
    if MODES[mode].chooser is UplinkChooser.EV and t1_count > 0:
        hop = EvField(12, 0, 0, t1_count - 1, (1 << (t1_count - 1).bit_length()) - 1)
    else:
        hop = EvField(12, 0, 0, 0, 0)
    return (EvField(4, mask=0xF, plane=True), hop, EvField(16, init=SALT_BASE, mask=SALTS - 1))


def draw_profile(
    mode: RoutingMode, hops_of: Sequence[int], size: int, rng: random.Random, even: bool = True
) -> tuple[tuple[int, ...], ...]:
    """Return `size` distinct EVs in pseudo-random order, equally many per plane: one tuple per plane.

    Each plane's EVs are spread as equally as possible over the values of its hop field, which are T1s or paths;
    `hops_of` has their number for each plane. Without `even` each EV's T1 is drawn independently,
    as by an endpoint that generates EVs without a controller (`mrc-protocol.md §7`).
    """
    profile = []
    planes = len(hops_of)
    for plane, many in enumerate(hops_of):
        named = many if MODES[mode].chooser is UplinkChooser.EV else 0
        hops: list[int] = []
        if not even and named:
            hops = [rng.randrange(named) for _ in range(size // planes)]
        while len(hops) < size // planes:
            turn = list(range(named)) or [0]
            rng.shuffle(turn)
            hops += turn
        hops = hops[: size // planes]
        salts = rng.sample(range(SALTS), len(hops))
        profile.append(tuple(make_ev(plane, hop, salt) for hop, salt in zip(hops, salts, strict=True)))
    return tuple(profile)


def ecmp_uplink(
    salt: int, src: bytes, dst: bytes, flow_label: int, ports: tuple[int, int], next_header: int, uplinks: int
) -> int:
    """Return the uplink that `fabric.p4` chooses by hash: CRC-32 of the fields in this order, modulo the uplinks."""
    data = b"".join(
        (
            salt.to_bytes(4, "big"),
            src,
            dst,
            flow_label.to_bytes(4, "big"),
            ports[0].to_bytes(2, "big"),
            ports[1].to_bytes(2, "big"),
            bytes([next_header]),
        )
    )
    return zlib.crc32(data) % uplinks
