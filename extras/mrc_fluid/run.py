"""A cluster over its time: loads, rates, losses and states of EVs, bin after bin.

Between two changes nothing changes, so a run is as many steady states as there are bins in which something fails, is
repaired, or comes back into use. What a failure costs until endpoints have found it is a pulse in its bin.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from mrc_fluid import evs as ev_states
from mrc_fluid import queueing
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.evs import Endpoints, Evs
from mrc_fluid.fabric import NOTHING, Bools, Fabric, Floats
from mrc_fluid.grey import Grey, clean, grey, most, revival_s
from mrc_fluid.jobs import Flows, flows, step_seconds
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads, LinkPrices, Model, window_bps
from mrc_fluid.shedding import Protocol, shed
from mrc_fluid.tails import Trims
from mrc_fluid.timeline import Event, times
from mrc_host.proto.congestion.inflight import nominal_size
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_topo.schema import HEADER_BYTES

#: The most rounds in which dead backups are found dead in their turn; after these all others count as found.
MAX_ROUNDS = 64

Progress = Callable[[float, str], None]


@dataclass
class ClusterStep:
    """The state from a bin on.

    It has goodput and offered rate of all queue pairs (bits per second), packets lost when it began, the most at one
    NIC and queue pairs that lost some, packets of probes lost per second, EVs by state, seconds of a step by job, queue
    pairs that cannot send, seconds until all failures were found, and data packets that grey elements lose per second.
    """

    bin: int
    goodput: float
    offered: float
    lost: float = 0.0
    worst_nic: float = 0.0
    hit: int = 0
    probes: float = 0.0
    evs: dict[str, int] = field(default_factory=dict)
    jobs: list[float] = field(default_factory=list)
    cut: int = 0
    found_s: float = 0.0
    grey: float = 0.0
    what: list[str] = field(default_factory=list)


@dataclass
class ClusterResult:
    """A run: its steps; loads (share of the capacity) of links at the first step and at the worst of those with a
    failure; rates of queue pairs at both."""

    loaded: Loaded
    flows: Flows
    steps: list[ClusterStep]
    first: LinkLoads
    worst: LinkLoads
    worst_bin: int
    rates: Floats
    worst_rates: Floats
    cwnd: Floats
    dead_links: Bools
    dead_upper: Bools
    payload: float

    def series(self) -> dict[str, Floats]:
        """Return a row per bin: time, goodput, losses of data and of probes per second and NIC, EVs by state, step
        times."""
        cluster = self.loaded.cluster
        count = -(-cluster.duration // cluster.bin)
        at = np.searchsorted([step.bin for step in self.steps], np.arange(count), side="right") - 1
        seconds = cluster.bin / 1e9
        nics = self.loaded.shape.nics
        rows: dict[str, Floats] = {"time_s": np.arange(count, dtype=np.float64) * seconds}
        rows["goodput_bps"] = np.array([self.steps[i].goodput for i in at])
        lost = np.array([self.steps[i].grey for i in at]) * seconds
        worst = np.zeros(count)
        for step in self.steps:
            lost[step.bin] += step.lost
            worst[step.bin] = step.worst_nic / seconds
        rows["lost_per_s_nic"] = lost / seconds / nics
        rows["lost_per_s_worst_nic"] = worst
        rows["probes_lost_per_s_nic"] = np.array([self.steps[i].probes for i in at]) / nics
        for state in ("active", "backup", "bad", "denied"):
            rows[f"ev_{state}"] = np.array([self.steps[i].evs[state] for i in at])
        for number, job in enumerate(cluster.jobs):
            rows[f"step_s_{job.name}"] = np.array([self.steps[i].jobs[number] for i in at])
        return rows


@dataclass
class Interval:
    """The state until something changed: rates of queue pairs, prices and loads of links; `trims`: what a slow plane
    does to the last packets of messages; `held`: the share of what queue pairs want that links between switches hold
    back; `grey`: packets per second that grey elements lose, by queue pair;
    `bad`: EVs of planes without a clean one that are out of use at a time."""

    rates: Floats
    prices: LinkPrices
    load: LinkLoads
    trims: Trims | None = None
    held: Floats | None = None
    grey: Floats | None = None
    bad: float = 0.0


class ClusterRun:
    """A run of a cluster; `mrc` makes the result."""

    def __init__(
        self, loaded: Loaded, kernels: Kernels, progress: Progress = lambda share, text: None,
        every: Flows | None = None, evs: Evs | None = None,
    ) -> None:  # fmt: skip
        """Take the EVs of a lab of the cluster's name and seed. `every`: queue pairs in the place of those of the
        jobs; `evs`: their EVs in the place of drawn ones, which change."""
        self.loaded, self.kernels, self.progress = loaded, kernels, progress
        cluster, shape = loaded.cluster, loaded.shape
        self.flows = flows(cluster.jobs, shape, cluster.seed) if every is None else every
        self.fabric = Fabric(shape)
        self.evs = evs
        t0 = self.fabric.t0_of
        # As indices: from other numbers NumPy would make them at each use.
        nics = self.flows.src.astype(np.intp), self.flows.dst.astype(np.intp)
        self.ends = Endpoints(t0[self.flows.src], t0[self.flows.dst], *nics)
        #: Queue pairs whose packets cross a T2, and the queues on the ways of packets.
        self.far: Bools = shape.pod_of[self.ends.src] != shape.pod_of[self.ends.dst]
        self.queues = np.where(self.far, queueing.LONGER, queueing.QUEUES)
        self.payload = cluster.path_mtu / (cluster.path_mtu + HEADER_BYTES)
        self.packet_bits = (cluster.path_mtu + HEADER_BYTES) * 8
        bdp = shape.nic_bps / 8 * cluster.base_rtt / 1e9
        config = NsccConfig(line_rate_bps=int(shape.nic_bps), base_rtt_ns=cluster.base_rtt)
        self.nscc = config.controller(cluster.path_mtu)
        self.window_bps = window_bps(max(self.nscc.max_wnd, bdp), cluster.base_rtt)
        #: Bits per second of all links, where not all are the same before anything fails.
        self.link_rates: LinkLoads | None = None
        self._uneven = False
        # Packets, packets per second and seconds, as `queueing` has them.
        self.window = self.nscc.max_wnd / nominal_size(cluster.path_mtu)
        self.base_rtt, self.target = cluster.base_rtt / 1e9, self.nscc.target_ns / 1e9
        shortest = cluster.model.min_rtt or cluster.base_rtt
        self.protocol = Protocol(
            max(self.nscc.max_wnd, bdp) * 8 * shortest / cluster.base_rtt, shortest / 1e9, self.base_rtt, self.target,
            cluster.model.trim_rtts * self.base_rtt, self.packet_bits, 1 - self.payload,
            shape.fabric_bps, self.nscc.alpha * self.nscc.target_ns * 8,
        )  # fmt: skip
        self.room = queueing.places(self.target, shape.fabric_bps / self.packet_bits)
        # A window is one of a pair of NICs, whatever the number of their queue pairs.
        pair = self.flows.src.astype(np.int64) * shape.nics + self.flows.dst
        self._pair = np.unique(pair, return_inverse=True)[1].ravel()

    def texts(self, src: int, dst: int) -> str:
        """Return what seeds the EVs of a queue pair."""
        return ev_states.text_of(self.loaded.cluster.seed, self.loaded.cluster.name, src, dst)

    def packets_per_s(self, rates: Floats) -> Floats:
        """Return data packets per second, at rates on the wire."""
        return rates * self.payload / (self.loaded.cluster.path_mtu * 8)

    def waiting(self, rates: Floats) -> Floats:
        """Return the queueing delay of the packets of each queue pair, s."""
        together = np.bincount(self._pair, self.packets_per_s(rates))[self._pair]
        return queueing.waiting(self.window, together, self.base_rtt, self.target, self.queues)

    def detection(self, rates: Floats) -> Floats:
        """Return the time from a packet lost on an EV of each queue pair until the EV is found dead, s."""
        given = self.loaded.cluster.model.detection_rtts
        if given is not None:
            return np.full(len(rates), given * self.base_rtt)
        return queueing.detection(self.waiting(rates), self.base_rtt, self.queues)

    def mrc(self) -> ClusterResult:
        """Run the cluster with MRC."""
        with ThreadPoolExecutor(workers()) as pool:
            evs = self.evs
            if evs is None:
                self.progress(0.0, f"drawing the EVs of {len(self.flows)} queue pairs")
                evs = self.draw(pool, self.loaded.cluster.ev)
            return self._steps(self.model(pool, evs), evs)

    def beginning(self) -> Evs:
        """Draw the EVs again as `mrc` did, before anything failed."""
        with ThreadPoolExecutor(workers()) as pool:
            return self.draw(pool, self.loaded.cluster.ev)

    def draw(self, pool: ThreadPoolExecutor, spec: EvSpec) -> Evs:
        """Draw the EVs of all queue pairs."""
        pairs = zip(self.flows.src.tolist(), self.flows.dst.tolist(), strict=True)
        texts = [self.texts(src, dst) for src, dst in pairs]
        return ev_states.draw(self.kernels, pool, texts, self.loaded.shape, spec, self.far)

    def model(self, pool: ThreadPoolExecutor, evs: Evs, ends: Endpoints | None = None) -> Model:
        """Return the model of all queue pairs with these EVs, or of those between `ends`."""
        spec = self.loaded.cluster.model
        usable = (spec.nic_share, spec.fabric_share or 1.0)
        room = self.room if spec.fabric_share is None else None
        return Model(self.loaded.shape, ends or self.ends, evs, self.kernels, pool, usable, spec.steering, room)

    def _steps(self, model: Model, evs: Evs) -> ClusterResult:
        cluster = self.loaded.cluster
        waiting = list(self.loaded.events)
        bins = times(cluster, waiting)
        steps: list[ClusterStep] = []
        first = worst = LinkLoads.none(self.loaded.shape)
        rates = worst_rates = np.zeros(len(self.flows))
        worst_bin, least, failed = 0, (True, math.inf), 0
        dead_then = self.fabric.dead()
        prices, load = LinkPrices.fresh(self.loaded.shape), first
        done, basis, begin = 0, b"", None
        while bins:
            now = bins.pop(0)
            self.progress(
                done / (done + len(bins) + 1), f"{now * cluster.bin / 1e9:.3g} s of {cluster.duration / 1e9:g} s"
            )
            due = [event for event in waiting if event.at // cluster.bin <= now]
            waiting = waiting[len(due) :]
            failed += sum(event.by for event in due)
            step, revived = self.change(
                model, evs, Interval(rates, prices, load), due, now, steps[-1] if steps else None
            )
            if revived and revived not in bins and revived * cluster.bin < cluster.duration:
                bins = sorted({*bins, revived})
            model.set_dead(self.fabric.dead())
            before, basis = basis, self._basis(model)
            if not steps or not basis or basis != before:
                # Every state begins with the prices of the first, so a repaired fabric is as it was before the failure.
                wanted, now_is = self.settled(model, np.full(len(self.flows), self.window_bps), start=begin)
            rates, prices, load = now_is.rates, now_is.prices, now_is.load
            begin = begin or prices
            step.offered, step.goodput = float(wanted.sum()), float(rates.sum()) * self.payload
            step.cut = int(np.count_nonzero(rates <= 0))
            step.evs = evs.counts()
            step.evs["bad"] += round(now_is.bad)
            step.evs["active"] -= round(now_is.bad)
            step.grey = 0.0 if now_is.grey is None else float(now_is.grey.sum())
            step.probes = self._probes(evs)
            step.jobs = [
                step_seconds(job, number, self.flows, rates, self.payload) for number, job in enumerate(cluster.jobs)
            ]
            if not steps:
                first, first_rates, cwnd = load, rates, self._windows(rates)
            # The worst moment is one with a failure, if there is any: after a repair other EVs are active, and goodput
            # may be a little lower than during the failure.
            intact, total = failed == 0, float(rates.sum())
            if (intact, total) < (least[0], least[1] * (1 - 1e-9)):
                worst, worst_rates, worst_bin, least = load, rates, now, (intact, total)
                dead_then = self.fabric.dead()
            steps.append(step)
            done += 1
        self.progress(1.0, "")
        for load in {id(each): each for each in (first, worst)}.values():
            for part, whole in zip(load.each(), self._line_rates(), strict=True):
                part /= whole
        return ClusterResult(
            self.loaded, self.flows, steps, first, worst, worst_bin, first_rates, worst_rates,
            cwnd, dead_then.links, dead_then.upper, self.payload,
        )  # fmt: skip

    def _basis(self, model: Model) -> bytes:
        """Return a digest of all that a steady state follows from; empty if elements are grey or slow, or if EVs in use
        cross something dead. It is often the same after a repair, since EVs come back as backups."""
        evs, harmed = model.evs, (*self.fabric.grey.values(), *self.fabric.slow.values())
        if not model.intact or any((each > NOTHING).any() for each in harmed):
            return b""
        digest = hashlib.blake2b()
        for each in (evs.hop[:, :, : int(evs.active.max(initial=0))], evs.active, model.use):
            digest.update(np.ascontiguousarray(each).data)
        return digest.digest()

    def settled(
        self, model: Model, demand: Floats, most_steps: int | None = None, start: LinkPrices | None = None
    ) -> tuple[Floats, Interval]:
        """Return what queue pairs want that send at `demand` at most (bits per second), and what they get, as the
        fabric is now. `most_steps`: in which load is moved, if fewer than the file's; `start`: prices to begin with,
        if not all the same."""
        prices = LinkPrices.fresh(self.loaded.shape)
        if start is not None:
            prices = LinkPrices(*(each.copy() for each in start.each()))
        dead = self.fabric.dead()
        model.set_dead(dead)
        prices.set_dead(dead)
        self._set_rates(model)
        wanted = model.ports_only(demand)
        lossy, beside, bad = self._limit(model, prices, wanted)
        if beside is not None:
            wanted = model.ports_only(demand)
        steps = self.loaded.cluster.model.steps
        model.steer(wanted, prices, steps if most_steps is None else min(steps, most_steps))
        waits, load = model.max_min(wanted, prices)
        spilt = shed(model, wanted, waits, prices, self.protocol)
        rates, load = model.idle(wanted, waits, load, prices)
        held = 1 - np.divide(waits, wanted, out=np.ones(len(waits)), where=wanted > 0)
        made = Interval(rates, prices, load, held=held)
        if spilt is not None:
            made = Interval(
                np.where(spilt.which, spilt.rates, rates),
                prices,
                spilt.load,
                spilt.trims,
                np.where(spilt.which, 0.0, held),
            )
        if lossy is not None:
            self._lose(model, made, lossy, beside)
            made.bad = bad
        return wanted, made

    def _set_rates(self, model: Model) -> None:
        """Give all links their rates, where not all are the same."""
        left, given = self.fabric.rates(), self.link_rates
        if left is None and given is None and not self._uneven:
            return
        self._uneven = left is not None
        rates = LinkLoads.none(self.loaded.shape)
        lines: Iterable[float | Floats] = self._line_rates() if given is None else given.each()
        for part, whole in zip(rates.each(), lines, strict=True):
            part[:] = whole
        if left is not None:
            shares = (left.links, left.links, left.ports, left.ports, left.upper, left.upper)
            for part, share in zip(rates.each(), shares, strict=True):
                part *= share
        model.set_rates(rates)

    def _limit(self, model: Model, prices: LinkPrices, wanted: Floats) -> tuple[Grey | None, Floats | None, float]:
        """Take planes out of the balance that EVs leave faster than they come back: they carry what the EVs there are
        allow. Returns what is grey; what these planes carry, by plane and queue pair; and how many EVs are out of
        use."""
        lossy = grey(model, self.fabric, prices)
        if lossy is None:
            return None, None, 0.0
        evs, planes = model.evs.hop.shape[2], np.maximum(model.planes, 1)
        back = revival_s(lossy.loss, self.loaded.cluster.ev, self.base_rtt)
        each = self.packets_per_s(wanted / planes)
        most_of = np.where(lossy.trapped, most(lossy.loss, evs, back), np.inf)
        bad = float((np.minimum(np.minimum(each, most_of) * lossy.loss * back, evs) * lossy.trapped).sum())
        out: Bools = most_of < each
        if not out.any():
            return lossy, None, bad
        model.use &= ~out
        model.planes = model.use.sum(axis=0)
        return lossy, np.where(out, most_of, 0.0) * self.packet_bits, bad

    def _lose(self, model: Model, made: Interval, lossy: Grey, beside: Floats | None) -> None:
        """Take from rates what grey elements lose, and add what planes beside the balance carry."""
        share = np.divide((lossy.loss * model.use).sum(axis=0), np.maximum(model.planes, 1))
        lost, more = made.rates * share, np.zeros(len(made.rates))
        if beside is not None:
            lost, more = lost + (beside * lossy.loss).sum(axis=0), (beside * (1 - lossy.loss)).sum(axis=0)
        made.rates = made.rates * (1 - share) + more
        made.grey = self.packets_per_s(lost)

    def change(
        self, model: Model, evs: Evs, until: Interval, due: list[Event], now: int, before: ClusterStep | None
    ) -> tuple[ClusterStep, int]:
        """Apply the changes of a bin: failures are found at the price of packets, repaired paths are probed.

        Returns the step, and the bin in which EVs that are probed now will be back (0: none are).
        """
        cluster = self.loaded.cluster
        ports_before = self.fabric.dead_ports()
        for event in due:
            self.fabric.change(event.name, event.by, event.lanes, event.harm)
        paths, ports = self.fabric.dead_paths(), self.fabric.dead_ports()
        step = ClusterStep(now, 0.0, 0.0, what=[event.what for event in due])
        dead = (paths, paths)
        if before is None:
            if cluster.denylist:
                ev_states.take_out(self.kernels, model.pool, evs, self.ends, dead, model.use, ev_states.DENIED)
            # Nothing is known of rates yet: all that the ports allow.
            until.rates = model.ports_only(np.full(len(self.flows), self.window_bps))
        if before is None or any(event.by > 0 for event in due):
            self._find(model, evs, until, dead, ports & ~ports_before, step)
        revived = 0
        if before is not None:
            delay = self._revival_s(evs)
            late = round(delay * 1e9) // cluster.bin
            if any(event.by < 0 for event in due) and late > 0:
                revived = now + late
            else:
                ev_states.bring_back(self.kernels, model.pool, evs, self.ends, dead, ev_states.ASSUMED_BAD)
                ev_states.bring_back(self.kernels, model.pool, evs, self.ends, dead, ev_states.DENIED)
        if self._find_grey(model, evs, until, paths, step) and not revived:
            revived = now + max(round(self._revival_s(evs) * 1e9) // cluster.bin, 1)
        return step, revived

    def grey_links(self, turns: float) -> tuple[Bools, Bools]:
        """Return which links of T0s and T1s, and of T1s and T2s, lose enough packets for EVs across them to be found
        within a bin; `turns`: of an EV, per second."""
        losses, uses = self.fabric.losses(), turns * self.loaded.cluster.bin / 1e9
        return losses.links * uses >= 1, losses.upper * uses >= 1

    def grey_loss(self, turns: float) -> float:
        """Return the share of packets that such links lose, on average."""
        (links, upper), losses = self.grey_links(turns), self.fabric.losses()
        return float(np.concatenate([losses.links[links], losses.upper[upper]]).mean())

    def grey_paths(self, turns: float) -> Bools:
        """Return which halves of paths have such a link."""
        return self.loaded.shape.halves(*self.grey_links(turns), np.logical_or)

    def _find_grey(self, model: Model, evs: Evs, until: Interval, dead: Bools, step: ClusterStep) -> bool:
        """Let active EVs across grey links leave at the price of a packet each, where others avoid these links."""
        sending = until.rates > 0
        if not sending.any():
            return False
        planes = np.maximum(model.use.sum(axis=0), 1)
        turn = self.packets_per_s(until.rates) / planes / np.maximum(evs.active.sum(axis=0) / len(evs.active), 1)
        turns = float(np.median(turn[sending]))
        bad = self.grey_paths(turns)
        if not bad.any():
            return False
        used = model.use & (clean(model, bad | dead) > 0) & sending
        loss = self.grey_loss(turns)
        detection = self.detection(until.rates)
        lost = np.zeros(len(turn))
        for _ in range(MAX_ROUNDS):
            before = evs.active.copy(), int(evs.backup.sum())
            hits = ev_states.take_out(
                self.kernels, model.pool, evs, self.ends, (bad, bad), used, ev_states.ASSUMED_BAD
            )  # fmt: skip
            lost += hits.sum(axis=0) * (1.0 + loss * turn * detection)
            if not hits.any() or ((evs.active == before[0]).all() and int(evs.backup.sum()) == before[1]):
                break
        if not lost.any():
            return False
        step.lost += float(lost.sum())
        step.hit = max(step.hit, int(np.count_nonzero(lost)))
        step.worst_nic = max(step.worst_nic, float(np.bincount(self.flows.src, lost).max()))
        step.found_s = max(step.found_s, float((1.0 / (loss * turn[sending]) + detection[sending]).max()))
        return True

    def _find(
        self, model: Model, evs: Evs, until: Interval, dead: tuple[Bools, Bools], ports: Bools, step: ClusterStep
    ) -> None:
        """Run rounds of detection: packets sent on dead EVs are lost until the endpoint detects that."""
        rates = until.rates
        sending = rates > 0
        detection = self.detection(rates)
        planes = model.use.sum(axis=0)
        each = np.divide(self.packets_per_s(rates), planes, out=np.zeros(len(rates)), where=planes > 0)
        lost = np.zeros(len(rates))
        # A queue pair without a port in a plane sends nothing there.
        down = self.fabric.dead_ports()
        ported = ~down[:, self.ends.src_nic] & ~down[:, self.ends.dst_nic]
        # No answer, no mark: a dead EV has its turns, while others are passed over once for each mark.
        weight = model.weights(until.prices)
        turned = self.taken(model, until)
        for number in range(MAX_ROUNDS):
            active, waiting = evs.active.copy(), int(evs.backup.sum())
            hits = ev_states.take_out(self.kernels, model.pool, evs, self.ends, dead, ported, ev_states.ASSUMED_BAD)
            if not hits.any():
                break
            plane, qp = np.nonzero((hits > 0) & sending & (weight > 0))
            if len(qp):
                taken = np.minimum(turned[plane, qp] * weight[plane, qp] / np.maximum(active[plane, qp], 1), 1.0)
                turns = each[qp] / np.maximum(active[plane, qp], 1) / taken
                again = queueing.further(turns * detection[qp], 1.0 - taken)
                np.add.at(lost, qp, hits[plane, qp] * (1.0 + again))
                # The last of the EVs to have its turn after the failure; an EV that replaces one takes its turns. The
                # first packets that were lost had left before the failure, and were half of the way on average.
                count, gap = float(hits[plane, qp].sum()), float(np.median(1.0 / turns))
                takes = float(detection[qp].max())
                rounds = number * math.ceil(takes / gap) * gap
                step.found_s = max(step.found_s, rounds + takes + gap * count / (count + 1) - self.base_rtt / 4)
            if (evs.active == active).all() and int(evs.backup.sum()) == waiting:
                break  # only the floor keeps these
        # A port that went down costs the packets on their way in that plane, from either end: an end that learns of it
        # retransmits all of them. The peer learns of it by a message that takes as long as an answer.
        struck = (ports[:, self.ends.src_nic] | ports[:, self.ends.dst_nic]) & model.use
        if struck.any():
            given = self.loaded.cluster.model.port_rtts
            trip = self.base_rtt + self.waiting(rates) if given is None else np.full(len(rates), given * self.base_rtt)
            lost += (struck * each * trip).sum(axis=0)
            if not step.found_s:
                step.found_s = self.base_rtt / 2
        step.lost = float(lost.sum())
        step.hit = int(np.count_nonzero(lost))
        if step.hit:
            step.worst_nic = float(np.bincount(self.flows.src, lost).max())

    def taken(self, model: Model, until: Interval) -> Floats:
        """Return the share of the turns of active EVs that no mark makes pass over, by plane and queue pair."""
        spec, shape = self.loaded.cluster.model, self.loaded.shape
        shares = [
            queueing.marked(carried / shape.fabric_bps, self.room, spec.ecn_low, spec.ecn_high)
            for carried in until.load.fabric().each()
        ]

        def across(links: int) -> Floats:
            # Each queue's room is that of a whole path (`queueing.places`), so a path is marked as often as one of its
            # links says: the geometric mean of all.
            parts = LinkPrices(*((1.0 + share) ** (-1 / links) for share in shares))
            return model.passing(until.prices, parts)

        # A path between pods has four links between switches.
        near, far = across(2), shape.pod_of[model.ends.src] != shape.pod_of[model.ends.dst]
        return np.where(far, across(4), near) if far.any() else near

    def _line_rates(self) -> tuple[float, ...]:
        fabric, port = self.loaded.shape.fabric_bps, self.loaded.shape.port_bps
        return fabric, fabric, port, port, fabric, fabric

    def _revival_s(self, evs: Evs) -> float:
        """Return the time from a repair to the use of an EV, s: probes in turn, a burst per interval, each answered
        often enough.
        """
        spec = self.loaded.cluster.ev
        bad = (evs.state == ev_states.ASSUMED_BAD).sum(axis=(0, 2)).max(initial=0)
        turns = max(1, math.ceil(float(bad) / spec.probe_burst))
        return (spec.probe_interval * spec.probes_to_revive * turns + self.loaded.cluster.base_rtt) / 1e9

    def _probes(self, evs: Evs) -> float:
        """Return the unanswered probes per second of all queue pairs: an EV that is bad is probed once an interval."""
        spec = self.loaded.cluster.ev
        bad = np.minimum((evs.state == ev_states.ASSUMED_BAD).sum(axis=(0, 2)), spec.probe_burst)
        return float(bad.sum()) * 1e9 / spec.probe_interval

    def _windows(self, rates: Floats) -> Floats:
        """Return the bytes of each queue pair that are on their way: a round trip's worth."""
        trip = self.base_rtt + self.waiting(rates)
        window: Floats = np.clip(rates / 8 * trip, self.loaded.cluster.path_mtu, max(self.nscc.max_wnd, 1.0))
        return window
