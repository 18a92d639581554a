"""Nodes in two groups over one fabric, in one process, as several processes simulate them (`session.partition`).

While the groups act, the fabric runs in a thread. They hand over what they have sent in changing order, which must not
matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrc_host.drivers.surface import NodeInterface
from mrc_host.drivers.virtual import VirtualDriver
from mrc_lab.session.partition_worker import ToldFabric
from p4lite.switch.fabric.outside import Arrival, ExternalHosts


class Split:
    """As `VirtualDriver`: one for each group, and what `PartitionedHosts` does between them."""

    def __init__(
        self,
        fabric: ExternalHosts,
        nodes: Mapping[str, NodeInterface],
        places: Mapping[str, Sequence[int]],
        mtu_bytes: int,
    ) -> None:
        self.fabric = fabric
        self.now = fabric.now_ns
        names = list(nodes)
        self.groups: list[tuple[ToldFabric, VirtualDriver]] = []
        self.of: dict[str, VirtualDriver] = {}
        for own in (names[::2], names[1::2]):
            told = ToldFabric(fabric.headers)
            told.links = fabric.transmitters()
            driver = VirtualDriver(told, {name: nodes[name] for name in own}, places, mtu_bytes)
            self.groups.append((told, driver))
            self.of.update(dict.fromkeys(own, driver))

    def _refresh(self) -> int:
        links = self.fabric.transmitters()
        for told, driver in self.groups:
            told.links, told.ahead_ns = list(links), max(self.fabric.lookahead_ns() - 1, 0)
            driver.now = self.now
        return max(self.fabric.lookahead_ns() - 1, 0)

    def _hand_over(self) -> bool:
        """Give the fabric what the groups have sent, each time in another order; return whether there was anything."""
        self.groups.reverse()
        sent = False
        for told, driver in self.groups:
            words, parts = driver.take_sent()
            words, parts = told.words + words, told.parts + parts
            told.words, told.parts = [], []
            if words:
                self.fabric.send(words, parts)
                sent = True
        return sent

    def touch(self, name: str) -> None:
        """See `VirtualDriver`."""
        self._refresh()
        self.of[name].touch(name)
        self._hand_over()

    def hold(self, name: str, *, dead: bool = False) -> None:
        """See `VirtualDriver`."""
        self.of[name].hold(name, dead=dead)

    def release(self, name: str, node: NodeInterface | None = None) -> None:
        """See `VirtualDriver`."""
        self._refresh()
        self.of[name].release(name, node)
        self._hand_over()

    def run_until(self, end_ns: int) -> None:
        """See `VirtualDriver`."""
        ahead = self._refresh()
        for _, driver in self.groups:
            driver.begin(self.now)
        self._hand_over()
        fabric = self.fabric
        arrivals: list[Arrival] = []
        while True:
            wake = min(driver.next_wake() for _, driver in self.groups)
            first = min(arrivals[0][0], wake) if arrivals else wake
            limit = max(min(first + ahead, end_ns), fabric.now_ns)
            known = fabric.known_ns
            fabric.begin([], [], limit, end_ns)
            try:
                for _, driver in self.groups:
                    driver.react(arrivals, known, end_ns)
            finally:
                arrivals = fabric.finish()
            if fabric.surprises:
                self._hand_over()
                ahead = self._refresh()
                for _, driver in self.groups:
                    driver.refresh_links()
            sent = self._hand_over()
            wake = min(driver.next_wake() for _, driver in self.groups)
            if not (arrivals or wake < end_ns or sent) and limit >= end_ns:
                break
        self.now = max(self.now, end_ns)
