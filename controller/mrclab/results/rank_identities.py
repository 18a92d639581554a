"""Identities of the ranks' books: what they put, got and measured, what was done to the lab, and their samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mrc_host.answers import EvEvent, HostStatistics, MrcHostStatistics, Times
from mrc_host.node.samples import LOSSES, condense, requestors, responders
from mrc_host.proto.events import EvState
from mrc_host.workloads import WORKLOADS
from mrc_topo import addressing
from mrc_topo.base.plain import encode
from mrclab.results.account import Account, Entry
from mrclab.results.series import TIME, flat

_DENIED, _GOOD = EvState.DENIED.name, EvState.GOOD.name


def _placed(statistics: HostStatistics) -> int:
    """Return the payload that a host's responders placed, by their own counters."""
    mrc = responders(statistics) if isinstance(statistics, MrcHostStatistics) else {}
    return mrc.get("payload_bytes_placed", 0) + statistics.endpoint.get("payload_bytes_placed", 0)


def goodput(account: Account) -> Iterator[Entry]:
    """Yield payload that responders placed = the integral of goodput over the run, from the first to the last bin; by
    host, = the payload that is printed of it."""
    ranks = [name for name in account.ranks if name in account.hosts]
    if len(ranks) == len(account.ranks):
        placed = sum(account.grown(host, _placed) for host in ranks)
        total = round(account.goodput_bytes)
        yield Entry("all ranks", placed, total - 1, total + 1)
    for host, columns in account.sampled.items():
        if (both := account.until_end(host)) is not None:
            placed = _placed(both[1]) - _placed(both[0])
            yield Entry(host, columns.get("delivered_bytes", 0), placed, placed)


def puts(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put = payload that responders placed, but for puts that have not ended."""
    ranks, progress = [name for name in account.ranks if name in account.hosts], account.progress.values()
    if len(ranks) != len(account.ranks):
        return
    placed = sum(account.grown(host, _placed) for host in ranks)
    put = sum(each.bytes_sent for each in progress)
    yield Entry("all ranks", placed, put if all(map(account.ended, account.progress)) else 0, put)


def payload(account: Account) -> Iterator[Entry]:
    """Yield payload that requestors of MRC sent for the first time = bytes that their rank put; and that others sent to
    a host = what its responders placed, but for what is outstanding or was given up."""
    known = {name: account.until_end(name) for name in account.ranks}
    sent: dict[str, int] = dict.fromkeys((addressing.text(host.address) for host in account.topology.hosts), 0)
    exact, gone = True, 0
    for name, both in known.items():
        if both is None or not isinstance(both[1], MrcHostStatistics) or "payload_bytes_placed" in both[1].endpoint:
            return  # RoCE does not count what it sends
        if account.ended(name):
            put = account.progress[name].bytes_sent
            yield Entry(f"put by {name}", _of_senders(both, "payload_bytes_sent"), put, put)
        before = {qp.qpn: qp for qp in both[0].qps} if isinstance(both[0], MrcHostStatistics) else {}
        for qp in both[1].qps:
            first = before[qp.qpn].requestor["payload_bytes_sent"] if qp.qpn in before else 0
            exact = exact and not qp.outstanding_packets
            if qp.peer in sent:
                sent[qp.peer] += qp.requestor["payload_bytes_sent"] - first
            else:
                gone += qp.requestor["payload_bytes_sent"] - first
        exact = exact and not _of_senders(both, "requests_flushed")
    for host in account.topology.hosts:
        if (both := known.get(host.name)) is not None:
            all_of_it = sent[addressing.text(host.address)]
            placed = _placed(both[1]) - _placed(both[0])
            yield Entry(f"placed at {host.name}", placed, all_of_it if exact else 0, all_of_it + gone)


def losses(account: Account) -> Iterator[Entry]:
    """Yield losses by reason = packets whose timer expired, that a detector of losses named, and that NACKs named; by
    host."""
    for host in account.mrc():
        sent = Counter(account.requests(host))
        pairs = (
            ("timeouts", sent["lost_timeout"], sent["packets_expired"]),
            ("inferred", sent["lost_rack"] + sent["lost_same_ev"], sent["packets_inferred"]),
        )
        for reason, lost, named in pairs:
            yield Entry(f"{host}, {reason}", lost, named, named)
        named = sent["nacks_received"] - sent["bogus_nacks"] - sent["stale_nacks"]
        # A NACK that ends its queue pair has no packet sent again.
        yield Entry(f"{host}, nacks", sent["lost_nack"], named - min(named, sent["requests_flushed"]), named)


#: Bytes that all ranks together put, and verify, in an iteration of a workload of n ranks with these parameters.
VOLUMES: Final[Mapping[str, Callable[[int, Any], tuple[int, int]]]] = {
    "all_to_all": lambda n, given: (n * (n - 1) * given.block_bytes, n * (n - 1) * given.block_bytes),
    "ring_all_reduce": lambda n, given: (2 * (n - 1) * given.size_bytes, n * given.size_bytes),
    "tree_all_reduce": lambda n, given: (2 * (n - 1) * given.size_bytes, n * given.size_bytes),
    "reduce_scatter": lambda n, given: ((n - 1) * given.size_bytes, given.size_bytes),
    "all_gather": lambda n, given: ((n - 1) * given.size_bytes, n * given.size_bytes),
    "broadcast": lambda n, given: ((n - 1) * given.size_bytes, (n - 1) * given.size_bytes),
    "write_lat": lambda n, given: (2 * given.message_bytes, 2 * given.message_bytes),
}


def iterations(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put and verified = iterations x the size of an iteration, of ranks that ended together; of
    a stream = messages x their size. The iterations that are printed are those of the ranks."""
    numbers = [each.iterations for each in account.progress.values() if each.takes_part] or [0]
    if account.achieved is not None:
        yield Entry("fewest iterations", account.achieved.least_iterations, min(numbers), min(numbers))
        yield Entry("most iterations", account.achieved.most_iterations, max(numbers), max(numbers))
    for name, each in account.progress.items():
        if each.measured is not None and each.measured.streams is not None and each.done and not each.failure:
            streams = each.measured.streams.values()
            size = sum(stream.messages * stream.message_bytes for stream in streams)
            yield Entry(f"streams of {name}", each.bytes_sent, size, size)
    working = [each for each in account.progress.values() if each.takes_part]
    counts = {each.iterations for each in working}
    if account.workload not in VOLUMES or len(counts) != 1 or any(each.failure or not each.done for each in working):
        return
    params = WORKLOADS[account.workload].complete(account.params)
    (iterations,) = counts
    put, verified = (iterations * size for size in VOLUMES[account.workload](len(account.ranks), params))
    if account.topology.lab.payload == "length":
        verified = 0  # packets have no bytes that could be verified
    yield Entry("bytes put", sum(each.bytes_sent for each in account.progress.values()), put, put)
    yield Entry("bytes verified", sum(each.bytes_verified for each in account.progress.values()), verified, verified)


def times(account: Account) -> Iterator[Entry]:
    """Yield times of each action: asked for <= done <= goodput back, in the order of the record, all within the run, in
    ns; no denied EV is found bad."""
    latest = account.before.t_ns
    for number, happening in enumerate(account.happenings):
        name = f"{happening.action.describe()} ({number})"
        yield Entry(f"{name}, done", happening.done_ns, max(happening.at_ns, latest), account.after.t_ns)
        latest = happening.done_ns
        if number in account.recovered_ns:
            later = [each.done_ns for each in account.happenings[number + 1 :]]
            end = min(later, default=account.after.t_ns)
            yield Entry(f"{name}, recovered", account.recovered_ns[number], happening.done_ns, end)
    if account.events is not None and account.happenings and account.topology.lab.policies.ev is None:
        evs = (event for _, event in account.events.between(-(1 << 63), 1 << 63, "ev") if isinstance(event, EvEvent))
        wrong = sum(event.old == _DENIED and event.new not in (_DENIED, _GOOD) for event in evs)
        yield Entry("denied EVs that are found bad", wrong, 0, 0)


def durations(account: Account) -> Iterator[Entry]:
    """Yield times that a rank measured, of iterations and half round trips: as many as iterations, together no longer
    than the rank ran, the least of them more than 0 and as far from the mean as the deviation allows; in ns."""
    for name, each in account.progress.items():
        if not each.done or each.failure or each.measured is None:
            continue
        ran = each.finished_ns - each.started_ns
        for what, found, halves in (
            ("iteration", each.measured.iteration_ns, 1),
            ("half round trip", each.measured.latency_ns, 2),
        ):
            if found is not None:
                yield Entry(f"{name}, times: {what}", found.count, each.iterations, each.iterations)
                yield from _spread(f"{name}, {what}", found, ran // halves)


def _spread(name: str, times: Times, ran: int) -> Iterator[Entry]:
    count, rounding = times.count, 1 + ran // 10**9
    most = times.stdev * math.sqrt(max(count - 1, 0)) + rounding
    lowest, highest = math.ceil(times.mean - most), math.floor(times.mean + most)
    yield Entry(f"{name}, sum", round(times.mean * count), times.min * count - rounding, ran + rounding)
    yield Entry(f"{name}, least", times.min, max(lowest, 1), min(math.floor(times.mean) + rounding, times.typical))
    yield Entry(f"{name}, most", times.max, max(math.ceil(times.mean) - rounding, times.typical), highest)


def samples(account: Account) -> Iterator[Entry]:
    """Yield the growth of a counter in the samples = final minus initial statistics; the last sample that is stored =
    the final statistics, and of a port, between the sample before and the counters read after the run."""
    for host, columns in account.sampled.items():
        if (both := account.until_end(host)) is None:
            continue
        before, final = (flat(encode(condense(each, 0))) for each in both)
        for name, count in columns.items():
            total = final[name] - before[name]
            yield Entry(f"{host} {name}", count, total, total)
        if (row := account.rows.get(host)) is not None:
            for name in final.keys() - {TIME}:
                yield Entry(f"{host} {name}, last", row.get(name, 0), final[name], final[name])
        lost, expired = (_of_senders(both, *names) for names in (LOSSES, ["packets_expired"]))
        ends = {
            name: both[1].endpoint.get(name, 0) - both[0].endpoint.get(name, 0) for name in ("naks_sent", "timeouts")
        }
        yield Entry(f"{host} losses by reason", columns.get("losses", 0), *[lost + ends["naks_sent"]] * 2)
        yield Entry(f"{host} timers", columns.get("timeouts", 0), *[expired + ends["timeouts"]] * 2)
    yield from _last_of_ports(account)


def _of_senders(both: tuple[HostStatistics, HostStatistics], *names: str) -> int:
    before, final = (requestors(each) if isinstance(each, MrcHostStatistics) else {} for each in both)
    return sum(final.get(name, 0) - before.get(name, 0) for name in names)


def _last_of_ports(account: Account) -> Iterator[Entry]:
    if len(account.fabric_rows) < 2:
        return
    earlier, last = account.fabric_rows
    for node, device in account.after.fabric.items():
        for number, port in device.ports.items():
            counts = {"tx_bytes": port.tx_bytes, "drops": sum(port.drops.values())}
            for name, count in counts.items():
                column = f"ports.{node}:{number}.{name}"
                low = earlier.get(column, 0)
                if column in last and low <= count:  # A counter that falls began again.
                    yield Entry(f"{node}:{number} {name}, last", last[column], low, count)
