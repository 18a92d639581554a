"""EVs by the table of section 7: a lost packet takes its path out of use, probes bring it back."""

from mrc_host.policy import ASSUMED_BAD, DENIED, GOOD, SKIP, EvInput, EvSet

DEAD = (EvInput.LOSS, EvInput.ALWAYS_SKIP, EvInput.PROBE_TIMEOUT)


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
        elif item in DEAD and old in (GOOD, SKIP):
            new = ASSUMED_BAD
        elif item is EvInput.REVIVED and old == ASSUMED_BAD:
            new = GOOD
        if new == old == ASSUMED_BAD and item in DEAD:
            self.streak[ev] = 0  # answered probes in a row
        return self.move(ev, new, item)

    def replacement(self, ev):
        """Return the backup EV that replaces one that leaves the active set; -1: none."""
        backup = self.backup[self.universe.planes[ev]]
        return next((other for other in backup if self.state[other] == GOOD), -1)

    def probe_answered(self, ev, mark):
        """Handle the answer to a probe of an ASSUMED_BAD EV; `mark` is the SACK's m, 0 if nothing was wrong."""
        if self.state[ev] != ASSUMED_BAD or mark:
            return False
        self.streak[ev] += 1
        return self.streak[ev] >= self.probes_to_revive and self.apply(ev, EvInput.REVIVED)
