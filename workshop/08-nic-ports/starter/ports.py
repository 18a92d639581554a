"""A table of planes that ignores port states: packets go to all planes, whether their ports are up or not."""

from mrc_host.policy import EvSet


class Ports(EvSet):
    def usable_planes(self, ours, theirs):
        """Which planes may carry data, as a bit mask: bit 0 is plane 0, and so on.

        Asked whenever a port goes down or comes up. `ours` has a bit for each port of this host that has a link,
        `theirs` for each of the peer's that is up, by what its last port status said.
        """
        return (1 << len(self.order)) - 1
