"""What the fabric gives messages that are under way at the same time, and what a failure costs those that it strikes.

The queue pairs of a graph have EVs as in `run`; each set of active ones gets the model's steady state, which is kept
for when the same ones are active again. A failure is found by each queue pair when it next sends: what it has sent on
dead EVs until then is sent again, and the message ends no sooner than a detection and a round trip after that.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mrc_scale import evs as ev_states
from mrc_scale import queueing
from mrc_scale.clusterfile import Loaded
from mrc_scale.evs import Endpoints, Evs
from mrc_scale.fabric import Bools, Floats, Ints
from mrc_scale.grey import clean
from mrc_scale.jobs import Flows
from mrc_scale.kernels import Kernels
from mrc_scale.run import MAX_ROUNDS, ClusterRun, Interval
from mrc_scale.schema import EvSpec
from mrc_scale.shares import LinkLoads
from mrc_scale.timeline import Event

#: Steady states that are kept; beyond them the oldest are forgotten.
KEPT = 512
#: Queue pairs beyond which load is moved in fewer passes: rates of 16 384 are then 0.3 % lower, in two thirds of the
#: time.
MANY, FEWER = 4096, 16


class Carrier:
    """The fabric of a cluster under the queue pairs from NICs `src` to NICs `dst`."""

    def __init__(
        self, loaded: Loaded, kernels: Kernels, pool: ThreadPoolExecutor, src: Ints, dst: Ints,
        ev: EvSpec | None = None, link_rates: LinkLoads | None = None,
    ) -> None:  # fmt: skip
        """Draw the EVs of all queue pairs.

        Args:
            ev: of a queue pair, if other than the cluster's: several may have one path, as in labs.
            link_rates: of all links, bits per second, where they differ.
        """
        count = len(src)
        flows = Flows(
            src.astype(np.int32), dst.astype(np.int32), np.zeros(count, np.int32), np.zeros(count, np.float64)
        )
        self.run = ClusterRun(loaded, kernels, every=flows)
        self.loaded, self.kernels, self.pool = loaded, kernels, pool
        shape = loaded.shape
        self.evs = self.run.draw(pool, ev or loaded.cluster.ev)
        self.run.link_rates = link_rates
        self.planes = np.ones((shape.planes, count), bool)
        #: Queue pairs that have EVs to find dead, and how many.
        self.struck = np.zeros(count, np.int64)
        self._kept: dict[bytes, tuple[Floats, Floats]] = {}
        self.states = 0

    def rates(self, active: Ints) -> Floats:
        """Return the payload that each of these queue pairs carries, bytes per ns; they are in order."""
        return self._state(active)[0]

    def late(self, active: Ints) -> Floats:
        """Return what a slow plane adds to the time of the last packet of these queue pairs' messages, ns."""
        return self._state(active)[1]

    def _state(self, active: Ints) -> tuple[Floats, Floats]:
        key = active.tobytes()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            state = self._steady(active)
            late = np.zeros(len(active)) if state.late is None else state.late * 1e9
            found = self._kept[key] = state.rates * self.run.payload / 8e9, late
            self.states += 1
        return found

    def _steady(self, active: Ints) -> Interval:
        """Return the model's steady state; rates are bits per second of the wire."""
        run = self.run
        every = run.ends
        ends = Endpoints(every.src[active], every.dst[active], every.src_nic[active], every.dst_nic[active])
        evs = self.evs
        chosen = Evs(
            np.ascontiguousarray(evs.hop[:, active]), np.ascontiguousarray(evs.state[:, active]),
            np.ascontiguousarray(evs.active[:, active]), np.ascontiguousarray(evs.backup[:, active]),
            evs.target, evs.floor,
        )  # fmt: skip
        model = run.model(self.pool, chosen, ends)
        demand = np.full(len(active), run.window_bps)
        return run.settled(model, demand, None if len(active) <= MANY else FEWER)[1]

    def change(self, events: list[Event], denied: bool = False) -> None:
        """Apply failures and repairs that come at the same time; `denied`: what is dead is known to all beforehand."""
        fabric, run = self.run.fabric, self.run
        before = fabric.dead_ports()
        for event in events:
            fabric.change(event.name, event.by, event.lanes, event.harm)
        links, ports = fabric.dead_paths(), fabric.dead_ports()
        dead = (links, links)
        self._kept.clear()
        state = ev_states.DENIED if denied else ev_states.ASSUMED_BAD
        used: Bools = ~ports[:, run.ends.src_nic] & ~ports[:, run.ends.dst_nic]
        if any(event.by < 0 for event in events):
            ev_states.bring_back(self.kernels, self.pool, self.evs, run.ends, dead, ev_states.ASSUMED_BAD)
            ev_states.bring_back(self.kernels, self.pool, self.evs, run.ends, dead, ev_states.DENIED)
        found = np.zeros(len(self.struck), np.int64)
        for _ in range(MAX_ROUNDS):
            hits = ev_states.take_out(self.kernels, self.pool, self.evs, run.ends, dead, used, state)
            if not hits.any():
                break
            found += hits.sum(axis=0)
        found += self._find_grey(links, used)
        fresh = ports & ~before
        # A port takes the packets on their way in that plane along, about as many as the EVs of a plane.
        cut = fresh[:, run.ends.src_nic] | fresh[:, run.ends.dst_nic]
        found += (cut * self.evs.active).sum(axis=0)
        if not denied:
            self.struck += found

    def _find_grey(self, dead: Bools, used: Bools) -> Ints:
        """Let active EVs across grey links leave, where others avoid these; return how many of each queue pair did."""
        run = self.run
        found = np.zeros(len(self.struck), np.int64)
        turn = run.packets_per_s(np.array([run.window_bps])) / np.maximum(self.evs.active.sum(axis=0).mean(), 1)
        bad = run.grey_paths(float(turn[0]))
        if not bad.any():
            return found
        model = run.model(self.pool, self.evs)
        used = used & (clean(model, bad | dead) > 0)
        for _ in range(MAX_ROUNDS):
            hits = ev_states.take_out(
                self.kernels, self.pool, self.evs, run.ends, (bad, bad), used, ev_states.ASSUMED_BAD
            )  # fmt: skip
            if not hits.any():
                break
            found += hits.sum(axis=0)
        return found

    def price(self, flows: Ints, rates: Floats) -> tuple[Floats, Floats]:
        """Return what queue pairs pay that send for the first time since they were struck: bytes that are sent again,
        and ns until the last is found lost and has come; they have paid then. `rates`: bytes per ns."""
        run = self.run
        hits = self.struck[flows].astype(float)
        wire = rates * 8e9 / run.payload
        given = self.loaded.cluster.model.detection_rtts
        # A pair of ranks has one queue pair, so its packets are those of its own window.
        wait = queueing.waiting(run.window, run.packets_per_s(wire), run.base_rtt, run.target)
        detection = (
            queueing.detection(wait, run.base_rtt) if given is None else np.full(len(flows), given * run.base_rtt)
        )
        active = np.maximum(self.evs.active[:, flows].sum(axis=0), 1)
        turns = run.packets_per_s(wire) / active * detection
        packets = hits * (1.0 + queueing.further(turns, np.zeros(len(flows))))
        delay = np.where(hits > 0, (detection + run.base_rtt) * 1e9, 0.0)
        self.struck[flows] = 0
        return packets * self.loaded.cluster.path_mtu, delay
