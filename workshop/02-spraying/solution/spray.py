"""Which entropy value (EV) a packet takes: the next one in turn, so that every packet is a flow of its own."""

from mrc_host.policy import EvSet


class Spray(EvSet):
    def choose(self, plane, avoid=-1):
        """Return the EV of the next packet on `plane`; -1: none.

        `self.order[plane]` are the EVs in use, `self.cursor[plane]` is a number of yours, 0 at first. `avoid` is the
        EV on which the packet was lost before, -1 for one that is sent for the first time: take another.
        """
        order = self.order[plane]
        for _ in order:
            self.cursor[plane] = (self.cursor[plane] + 1) % len(order)
            ev = order[self.cursor[plane]]
            if ev != avoid:
                return ev
        return -1
