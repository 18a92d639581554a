"""The EV universes of the profiles in use: one of each, shared by the queue pairs that name the profile."""

from __future__ import annotations

import random
from collections import Counter

from mrc_host.proto.config import EvConfig
from mrc_host.proto.paths.ev_profile import EvUniverse


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
