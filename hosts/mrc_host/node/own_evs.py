"""The host's own EVs towards each peer, which a controller may replace (`mrc_ctl.h`: REPLACE_EV)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from mrc_host.proto.config import EvConfig

Values = tuple[tuple[int, ...], ...]  # by plane


def replaced(values: Sequence[Sequence[int]], old: int, new: int) -> Values | None:
    """Return the values with `new` in the place of `old`; None if they lack `old` or have `new`."""
    everything = {value for plane in values for value in plane}
    if old not in everything or new in everything:
        return None
    return tuple(tuple(new if value == old else value for value in plane) for plane in values)


class HostEvs:
    """The EV values of a host by the address of the peer; queue pairs to one peer share one EV profile.

    Values are read only of peers that are asked for: all pairs of a large lab would take more memory than its
    simulation.
    """

    def __init__(self, values: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self._given = values
        self._values: dict[str, Values] = {}
        self._made: dict[tuple[int, str], tuple[EvConfig, EvConfig]] = {}

    def _towards(self, peer: str) -> Values:
        if peer not in self._values:
            self._values[peer] = tuple(tuple(plane) for plane in self._given.get(peer, ()))
        return self._values[peer]

    def towards(self, default: EvConfig, peer: str) -> EvConfig:
        """Return the EV profile `default` with the host's values towards a peer, the same object each time."""
        values = self._towards(peer)
        if not values:
            return default
        known = self._made.get((id(default), peer))
        if known is None or known[1].values != values:
            # The default is kept beside the profile made from it, so that its identity stays unique.
            known = self._made[id(default), peer] = (default, dataclasses.replace(default, values=values))
        return known[1]

    def replace(self, old: int, new: int, peer: str | None) -> int:
        """Replace an EV towards a peer, or towards all (None), for later queue pairs; return towards how many peers."""
        count = 0
        for address in self._given if peer is None else (peer,):
            values = replaced(self._towards(address), old, new)
            if values is not None:
                self._values[address] = values
                count += 1
        return count
