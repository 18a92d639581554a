"""Flowlets: packets stay on a path until the queue pair has paused, and then take another one at random.

Source: Vanini et al., "Let It Flow: Resilient Asymmetric Load Balancing with Flowlet Switching" (NSDI 2017), there in
switches. The pause that ends a flowlet is one base RTT of the reference network of UET 1.0, 12 us.
"""

from __future__ import annotations

from mrc_host.policy import EvInput, EvSet

GAP_NS = 12_000


class Flowlet(EvSet):
    """Draw an EV for each flowlet."""

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the EV of the plane's flowlet, or a new one after a pause or a loss."""
        # Created here, for the base class has no room for attributes before its constructor has ended.
        latest = self.__dict__.setdefault("latest", {})
        order = self.order[plane]
        ev, at = latest.get(plane, (-1, 0))
        if ev not in order or ev == avoid or self.now_ns - at > GAP_NS:
            others = [other for other in order if other != avoid]
            ev = self._rng.choice(others) if others else -1
        latest[plane] = (ev, self.now_ns)
        return ev

    def apply(self, ev: int, item: EvInput) -> bool:
        """Feed an input to an EV, unless it is a mark or a trim, which flowlets do not know."""
        if item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            return False
        return super().apply(ev, item)
