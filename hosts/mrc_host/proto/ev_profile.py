"""EV universes: the values of a profile, equally many per plane (`mrc-protocol.md §7`).

A universe is made once per profile and shared by all queue pairs that use it; what differs per queue
pair (states, active set, scan order) is `ev.EvSet`.
"""

from __future__ import annotations

import random
from array import array

from mrc_host.proto.config import ConfigError, EvConfig, EvField, EvFormat, EvMode, Srv6Path

_DRAWS_PER_VALUE = 64  # tries to find a value that is new before the profile is called too narrow


def expand(fields: tuple[EvField, ...], ev: int, ev_bits: int, plane: int) -> int:
    """The formatted value of an EV: fields concatenated, most significant first (`mrc-protocol.md §7`).

    For each bit set in a field's mask, MSB first, the next most significant EV bit is taken (of a
    `plane` field: the plane number, right-aligned in the mask's bits).
    """
    result = 0
    left = ev_bits
    for field in fields:
        value = field.init
        taken = field.mask.bit_count()
        for bit in range(field.width - 1, -1, -1):
            if not field.mask >> bit & 1:
                continue
            taken -= 1
            if field.plane:
                source = plane >> taken & 1
            else:
                left -= 1
                source = ev >> left & 1 if left >= 0 else 0
            value = value | 1 << bit if source else value & ~(1 << bit)
        maximum = (1 << field.width) - 1 if field.maximum is None else field.maximum
        if not field.minimum <= value <= maximum:
            value = field.minimum + value % (maximum - field.minimum + 1)
        result = result << field.width | value
    return result


class EvUniverse:
    """The EVs of a profile. `values[i]` is the 32-bit entropy of EV i, `planes[i]` its plane; `index` inverts."""

    __slots__ = ("by_plane", "config", "index", "planes", "values")

    def __init__(self, config: EvConfig, planes: int, rng: random.Random) -> None:
        """Raises ConfigError when the profile cannot give each plane its share of distinct values."""
        self.config = config
        self.values = array("I")
        self.planes = bytearray()
        self.index: dict[int, int] = {}
        if config.mode is EvMode.EXPLICIT:
            if len(config.values) != planes:
                raise ConfigError(f"ev.values lists {len(config.values)} planes; the endpoint has {planes} ports")
            for plane, values in enumerate(config.values):
                for value in values:
                    self._add(value, plane)
        else:
            per_plane = config.count // planes
            if per_plane < 1:
                raise ConfigError(f"ev.count is {config.count}; {planes} planes need at least one EV each")
            for plane in range(planes):
                for _ in range(per_plane):
                    self._add(self._draw(plane, rng), plane)
        self.by_plane = [array("H", (i for i, plane in enumerate(self.planes) if plane == p)) for p in range(planes)]

    def _add(self, value: int, plane: int) -> None:
        top = 0xFFFF if self.config.fmt is EvFormat.UDP16 else 0xFFFFFFFF
        if not 0 <= value <= top:
            raise ConfigError(f"ev value {value:#x} does not fit {self.config.fmt.name}")
        if value in self.index:
            raise ConfigError(f"ev value {value:#x} appears twice in the profile")
        self.index[value] = len(self.values)
        self.values.append(value)
        self.planes.append(plane)

    def _draw(self, plane: int, rng: random.Random) -> int:
        """A value not yet in the universe."""
        config = self.config
        fields = tuple(config.fields)
        for _ in range(_DRAWS_PER_VALUE):
            bits = rng.getrandbits(config.ev_bits)
            if config.mode is EvMode.AUTO:
                value = bits & 0xFFFF if config.fmt is EvFormat.UDP16 else bits
            elif config.fmt in (EvFormat.UDP16, EvFormat.STEV32):
                value = expand(fields, bits, config.ev_bits, plane)
            else:
                value = bits  # the uSID follows from it and the plane
            if value not in self.index:
                return value
        raise ConfigError(f"ev profile is too narrow for {config.count} distinct values")

    def path(self, ev: int, destination: bytes) -> Srv6Path | None:
        """The SRv6 path of an EV value, None for formats without one.

        A resolver decides if there is one; else GENERATED fields are the address (and the segment).
        """
        config = self.config
        if config.fmt in (EvFormat.UDP16, EvFormat.STEV32):
            return None
        if config.resolver is not None:
            return config.resolver(ev, destination)
        index = self.index.get(ev)
        plane = self.planes[index] if index is not None else 0
        whole = expand(tuple(config.fields), ev, config.ev_bits, plane)
        if config.fmt is EvFormat.SRV6_USID128:
            return Srv6Path(whole.to_bytes(16, "big"))
        return Srv6Path((whole >> 128).to_bytes(16, "big"), ((whole & (1 << 128) - 1).to_bytes(16, "big"),))

    def replace(self, old: int, new: int) -> int:
        """Put `new` where `old` was; returns the index. Raises KeyError or ConfigError."""
        index = self.index[old]
        if new in self.index:
            raise ConfigError(f"ev value {new:#x} is already in the profile")
        del self.index[old]
        self.index[new] = index
        self.values[index] = new
        return index
