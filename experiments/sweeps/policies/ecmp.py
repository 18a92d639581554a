"""ECMP: one path per queue pair and plane, drawn once and kept until it fails, as a hash of the five-tuple does.

Source: RFC 2992 (hash-threshold), whose flows stay where their hash puts them.
"""

from __future__ import annotations

from mrc_host.policy import EvInput, EvSet


class Ecmp(EvSet):
    """Send all packets of a plane on the first active EV that may be used."""

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the first EV of the plane; another only for a packet that was lost on it."""
        return next((ev for ev in self.order[plane] if ev != avoid), -1)

    def apply(self, ev: int, item: EvInput) -> bool:
        """Feed an input to an EV, unless it is a mark or a trim, which hashes do not know."""
        if item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            return False
        return super().apply(ev, item)
