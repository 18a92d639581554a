"""Oblivious spraying: EVs in turn, in an order that is drawn again after each round, whatever marks say.

Source: uet-htsim, `UecMpOblivious` (github.com/ultraethernet/uet-htsim, htsim/sim/uec_mp.cpp). EVs that carry nothing
leave the active set as they do in MRC; without that a dead path would lose its packets for ever.
"""

from __future__ import annotations

from mrc_host.policy import EvInput, EvSet


class Oblivious(EvSet):
    """Ignore marks and trims."""

    def apply(self, ev: int, item: EvInput) -> bool:
        """Feed an input to an EV, unless it is a mark or a trim."""
        if item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            return False
        return super().apply(ev, item)
