"""EVs that are never given up: whatever happens to a packet, its path stays in use."""

from mrc_host.policy import ASSUMED_BAD, DENIED, GOOD, SKIP, EvInput, EvSet  # noqa: F401


class Paths(EvSet):
    def apply(self, ev, item):
        old = self.state[ev]
        new = old
        if item is EvInput.DENY:
            new = DENIED
        elif item is EvInput.ALLOW:
            new = GOOD
        elif item in (EvInput.SKIP_ONCE, EvInput.TRIMMED) and old == GOOD:
            new = SKIP
        elif item is EvInput.TURN and old == SKIP:
            new = GOOD
        return self.move(ev, new, item)

    def replacement(self, ev):
        """Return the backup EV that replaces one that leaves the active set; -1: none."""
        return -1

    def probe_answered(self, ev, mark):
        """Handle the answer to a probe of an ASSUMED_BAD EV; `mark` is the SACK's m, 0 if nothing was wrong."""
        return False
