"""EV universes: the values of a profile, equally many per plane (`mrc-protocol.md §7`).

A universe is made once per profile and shared by all queue pairs that use it; what differs per queue
pair (states, active set, scan order) is `ev.EvSet`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from mrc_host.proto.config import EvConfig, EvField, EvFormat, EvMode, Srv6Path
from mrc_host.proto.limits import ConfigError

_DRAWS_PER_VALUE: Final = 64  # tries to find a value that is new before the profile is called too narrow


def expand(fields: Sequence[EvField], ev: int, ev_bits: int, plane: int, widths: Sequence[int] = ()) -> int:
    """Return the formatted value of an EV: fields concatenated, most significant first (`mrc-protocol.md §7`).

    For each bit set in a field's mask, MSB first, the next most significant of the `ev_bits` EV bits is taken (of a
    `plane` field: the plane number, right-aligned in the mask's bits); the others are those of `init`. `widths[i]` is
    the place of field i in the format: a wider place is filled with zeros on the left. Empty: the fields' own widths.
    """
    result = 0
    left = ev_bits
    for field, width in zip(fields, widths or [field.width for field in fields], strict=False):
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
        result = result << width | value
    return result


def generate(fields: Sequence[EvField], ev_bits: int, rng: random.Random) -> int:
    """Draw the EV bits of the fields: in each mask a value within the field's bounds; the first field's bits come
    first.
    """
    ev = 0
    left = ev_bits
    for field in fields:
        if field.mask and not field.plane:
            left -= field.mask.bit_count()
            ev |= rng.randint(*field.bounds) << left
    return ev


class EvUniverse:
    """The EVs of a profile. `values[i]` is the 32-bit entropy of EV i, `planes[i]` its plane; `index` inverts."""

    __slots__ = ("by_plane", "config", "index", "planes", "values")

    def __init__(self, config: EvConfig, planes: int, rng: random.Random) -> None:
        """Raise ConfigError when the profile cannot give each plane its share of distinct values."""
        self.config = config
        self.values: list[int] = []
        self.planes: list[int] = []
        self.index: dict[int, int] = {}
        if config.mode is EvMode.EXPLICIT:
            if len(config.values) != planes:
                raise ConfigError(f"ev.values lists {len(config.values)} planes; the endpoint has {planes} ports")
            for plane, values in enumerate(config.values):
                for value in values:
                    self._add(value, plane)
        else:
            for number, field in enumerate(config.fields):
                if config.mode is EvMode.GENERATED and field.plane and planes > 1 << field.mask.bit_count():
                    raise ConfigError(f"ev.fields[{number}] has too few mask bits for the numbers of {planes} planes")
            per_plane = config.count // planes
            if per_plane < 1:
                raise ConfigError(f"ev.count is {config.count}; {planes} planes need at least one EV each")
            for plane in range(planes):
                for _ in range(per_plane):
                    self._add(self._draw(plane, rng), plane)
        numbers = range(len(self.values))
        self.by_plane = [[i for i in numbers if self.planes[i] == plane] for plane in range(planes)]

    def _add(self, value: int, plane: int) -> None:
        top = 0xFFFF if self.config.fmt is EvFormat.UDP16 else 0xFFFFFFFF
        if not 0 <= value <= top:
            raise ConfigError(f"EV {value:08x} does not fit {self.config.fmt.name}")
        if value in self.index:
            raise ConfigError(f"EV {value:08x} appears twice in the profile")
        self.index[value] = len(self.values)
        self.values.append(value)
        self.planes.append(plane)

    def _draw(self, plane: int, rng: random.Random) -> int:
        """Draw a value that is not yet in the universe."""
        config = self.config
        for _ in range(_DRAWS_PER_VALUE):
            if config.mode is EvMode.AUTO:
                bits = rng.getrandbits(config.ev_bits)
                value = bits & 0xFFFF if config.fmt is EvFormat.UDP16 else bits
            else:
                value = generate(config.fields, config.ev_bits, rng)
                if config.formatted_bits <= 32:
                    value = self._formatted(value, plane)
                # else the address follows from the EV bits and the plane
            if value not in self.index:
                return value
        raise ConfigError(f"ev profile is too narrow for {config.count} distinct values")

    def _formatted(self, ev: int, plane: int) -> int:
        """Return the EV in the format, from its most significant bit on."""
        config = self.config
        widths = config.format_widths or [field.width for field in config.fields]
        used = sum(widths[: len(config.fields)])
        return expand(config.fields, ev, config.ev_bits, plane, widths) << (config.formatted_bits - used)

    def path(self, ev: int, destination: bytes) -> Srv6Path | None:
        """Return the SRv6 path of an EV value, None for formats without one.

        A resolver decides if there is one; else GENERATED fields are the address (and the segment).
        """
        config = self.config
        if config.fmt in (EvFormat.UDP16, EvFormat.STEV32):
            return None
        if config.resolver is not None:
            return config.resolver(ev, destination)
        index = self.index.get(ev)
        plane = self.planes[index] if index is not None else 0
        whole = self._formatted(ev, plane)
        if config.fmt is EvFormat.SRV6_USID128:
            return Srv6Path(whole.to_bytes(16, "big"))
        return Srv6Path((whole >> 128).to_bytes(16, "big"), ((whole & (1 << 128) - 1).to_bytes(16, "big"),))

    def replace(self, old: int, new: int) -> int:
        """Put `new` where `old` was; return the index. Raises KeyError or ConfigError."""
        index = self.index[old]
        if new in self.index:
            raise ConfigError(f"ev value {new:#x} is already in the profile")
        del self.index[old]
        self.index[new] = index
        self.values[index] = new
        return index


class Universes:
    """The EV universes in use, by identity of the profile. A universe keeps its profile alive, so that the identity
    stays unique.
    """

    __slots__ = ("_planes", "_rng", "_users", "by_profile")

    def __init__(self, planes: int, rng: random.Random) -> None:
        self._planes = planes
        self._rng = rng
        self.by_profile: dict[int, EvUniverse] = {}
        self._users: Counter[int] = Counter()

    def of(self, config: EvConfig) -> EvUniverse:
        """Return the universe of a profile in use."""
        return self.by_profile[id(config)]

    def take(self, config: EvConfig) -> EvUniverse:
        """Return the universe of a profile, for one more user; it is made if need be."""
        universe = self.by_profile.get(id(config))
        if universe is None:
            universe = EvUniverse(config, self._planes, self._rng)
            self.by_profile[id(config)] = universe
        self._users[id(config)] += 1
        return universe

    def drop(self, universe: EvUniverse) -> None:
        """Count one user less; remove the universe with the last one."""
        key = id(universe.config)
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self.by_profile[key]
