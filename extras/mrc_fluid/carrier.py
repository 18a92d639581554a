"""Rates that the fabric gives messages that are under way at the same time, and the cost of a failure to those that it
strikes.

The queue pairs of a graph have EVs as in `run`; each set of active ones gets the model's steady state, which is kept
for when the same ones are active again. A failure is found by each queue pair when it next sends: what it has sent on
dead EVs until then is sent again, and the message ends no sooner than a detection and a round trip after that.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrc_fluid import evs as ev_states
from mrc_fluid import queueing
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.dead_evs import DeadEvs, Pace
from mrc_fluid.evs import Endpoints, Evs
from mrc_fluid.fabric import Bools, Floats, Ints
from mrc_fluid.grey import clean
from mrc_fluid.jobs import Flows
from mrc_fluid.kernels import Kernels
from mrc_fluid.queueing import Delays
from mrc_fluid.run import MAX_ROUNDS, ClusterRun, Interval
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads, LinkPrices, Model
from mrc_fluid.tails import Tails
from mrc_fluid.timeline import Event

#: Steady states that are kept; beyond them the oldest are forgotten.
KEPT = 512
#: Queue pairs beyond which load is moved in fewer passes: rates of 16 384 are then 0.3 % lower, in two thirds of the
#: time.
MANY, FEWER = 4096, 16


@dataclass(frozen=True)
class Shares:
    """Payload of queue pairs, bytes per ns; the queueing delay of their packets, s; the tails of messages; the share of
    what they want that links between switches hold back; packets per second that grey elements lose; and seconds from
    one use of a dead EV to the next by plane and queue pair, where any have yet to be found."""

    rates: Floats
    waits: Floats
    tails: Tails
    held: Floats
    grey: Floats
    turns: Floats | None


class Carrier:
    """The fabric of a cluster under the queue pairs from NICs `src` to NICs `dst`."""

    def __init__(
        self, loaded: Loaded, kernels: Kernels, pool: ThreadPoolExecutor, src: Ints, dst: Ints,
        ev: EvSpec | None = None, link_rates: LinkLoads | None = None, lone: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw the EVs of all queue pairs.

        Args:
            ev: of a queue pair, if other than the cluster's: several may have one path, as in labs.
            link_rates: of all links, bits per second, where they differ.
            lone: how much more of payload a NIC's port carries where nothing goes the other way, beside `nic_share`,
                which a port has for data and acknowledgements.
        """
        count = len(src)
        flows = Flows(
            src.astype(np.int32), dst.astype(np.int32), np.zeros(count, np.int32), np.zeros(count, np.float64)
        )
        self.run = ClusterRun(loaded, kernels, every=flows)
        self.loaded, self.kernels, self.pool = loaded, kernels, pool
        shape = loaded.shape
        self.lone = lone / loaded.cluster.model.nic_share
        self.evs = self.run.draw(pool, ev or loaded.cluster.ev)
        self.run.link_rates = link_rates
        self.planes = np.ones((shape.planes, count), bool)
        self.dead = DeadEvs(count, loaded.cluster.seed)
        self._kept: dict[bytes, Shares] = {}
        self.states = 0

    def rates(self, active: Ints) -> Floats:
        """Return the payload that each of these queue pairs carries, bytes per ns; they are in order."""
        return self.state(active).rates

    def state(self, active: Ints) -> Shares:
        """Return all that is known of these queue pairs, which are in order, while they send."""
        key = active.tobytes()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = self._steady(active)
            self.states += 1
        return found

    def _steady(self, active: Ints) -> Shares:
        """Return the model's steady state."""
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
        model.set_lone(self.lone)
        demand = np.full(len(active), run.window_bps)
        _, state = run.settled(model, demand, None if len(active) <= MANY else FEWER)
        # A pair of ranks has one queue pair, so its packets are those of its own window.
        packets, queues = run.packets_per_s(state.rates), run.queues[active]
        waits = queueing.waiting(run.window, packets, run.base_rtt, run.target, queues)
        held = np.zeros(len(active)) if state.held is None else state.held
        # Only queue pairs that have yet to find dead EVs need these.
        turns = self._turns(model, state) if self.dead else None
        grey = np.zeros(len(active)) if state.grey is None else state.grey
        return Shares(
            state.rates * run.payload / 8e9,
            waits,
            Tails(waits * self._busy(model, state), queues, state.trims),
            held,
            grey,
            turns,
        )

    def _busy(self, model: Model, state: Interval) -> Floats:
        """Return the share of packets that meet others at both links between switches: a window waits at its own port
        where nothing else is on its way."""
        loads = zip(state.load.fabric().each(), model.capacity.fabric().each(), strict=True)
        each = model.passing(state.prices, LinkPrices(*(np.minimum(load / whole, 1.0) for load, whole in loads)))
        found: Floats = (each * model.use).sum(axis=0) / np.maximum(model.planes, 1)
        return found

    def _turns(self, model: Model, state: Interval) -> Floats:
        """Return the seconds from one use of a dead EV to the next, by plane and queue pair.

        No answer, no mark: a dead EV has all of its turns, while others are passed over once for each mark.
        """
        packets = self.run.packets_per_s(state.rates) / np.maximum(model.use.sum(axis=0), 1)
        # Where all EVs of a plane have left, each was found while as many as there should be took turns.
        active = np.where(model.evs.active > 0, model.evs.active, model.evs.target)
        with np.errstate(divide="ignore", invalid="ignore"):
            turns: Floats = active * self.run.taken(model, state) / packets
        return turns

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
            self.dead.forget()
        rounds = self._rounds(dead, used, state)
        grey, loss = self._find_grey(links, used)
        fresh = ports & ~before
        # A port takes the packets on their way in that plane along, about as many as the EVs of a plane.
        cut = fresh[:, run.ends.src_nic] | fresh[:, run.ends.dst_nic]
        self.dead.set_grey(any(losses.any() for losses in fabric.losses()))
        if not denied:
            self.dead.add(rounds)
            self.dead.add(grey, loss)
            self.dead.add_cut((cut * self.evs.active).sum(axis=0))

    def _rounds(self, dead: tuple[Bools, Bools], used: Bools, state: int) -> list[NDArray[np.int32]]:
        """Let active EVs that cross something dead leave, then the backups that replace them, and so on; return how
        many did in each round, by plane and queue pair."""
        rounds: list[NDArray[np.int32]] = []
        while len(rounds) < MAX_ROUNDS:
            hits = ev_states.take_out(self.kernels, self.pool, self.evs, self.run.ends, dead, used, state)
            if not hits.any():
                break
            rounds.append(hits)
        return rounds

    def _find_grey(self, dead: Bools, used: Bools) -> tuple[list[NDArray[np.int32]], float]:
        """Let active EVs across grey links leave, where others avoid these; return what `_rounds` does, and the share
        of packets that these links lose, on average."""
        run = self.run
        packets = float(run.packets_per_s(np.array([run.window_bps]))[0])
        turn = packets / max(float(self.evs.active.sum(axis=0).mean()), 1)
        bad = run.grey_paths(turn)
        if not bad.any():
            return [], 1.0
        used = used & (clean(run.model(self.pool, self.evs), bad | dead) > 0)
        return self._rounds((bad, bad), used, ev_states.ASSUMED_BAD), run.grey_loss(turn)

    def price(
        self, active: Ints, due: Ints, left: Floats, until: float, draws: int = 1, since: Floats | None = None
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """Return what messages pay for EVs that have died: bytes that are sent again, on average over this many draws,
        and ns from now before which the last of them has not left, `[draw, message]`.

        Args:
            active: queue pairs that have messages under way, in order.
            due: which of them pay, as positions.
            left: bytes of their messages.
            until: ns until something is repaired.
            since: ns since each message began, if its queue pair was idle before.
        """
        run, mtu = self.run, self.loaded.cluster.path_mtu
        state = self.state(active)
        turns = np.zeros(self.evs.active.shape) if state.turns is None else state.turns
        rates = state.rates[due]
        given = self.loaded.cluster.model.detection_rtts
        waits, queues = state.waits[due], run.queues[active[due]]
        found = np.full(len(due), (given or 0.0) * run.base_rtt)
        if given is None:
            found = queueing.detection(waits, run.base_rtt, queues)
        evs = np.maximum(self.evs.active[:, active[due]].sum(axis=0), 1)
        began_s = np.full(len(due), np.inf) if since is None else since / 1e9
        paid = [
            self.dead.pay(
                qp,
                Pace(lasts, turns[:, at].tolist(), count, grey, until / 1e9, began),
                Delays.of(wait, run.base_rtt, known),
                draws,
            )
            for qp, at, lasts, count, grey, wait, known, began in zip(
                active[due].tolist(), due.tolist(), (left / rates / 1e9).tolist(), evs.tolist(),
                state.grey[due].tolist(), waits.tolist(), found.tolist(), began_s.tolist(), strict=True,
            )
        ]  # fmt: skip
        return np.array([lost for lost, _ in paid]) * mtu, np.array([ends for _, ends in paid]).T * 1e9
