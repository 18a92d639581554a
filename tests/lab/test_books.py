"""The books of a run: every random run balances, and every identity notices a miscount in each of its books."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mrc_host.answers import EvEvent, MrcHostStatistics
from mrclab.lab.faults.action import Action
from mrclab.results.books import IDENTITIES, Account, balance
from mrclab.results.record import Books
from mrclab.results.recording import StoredEvents
from mrclab.runs import accounts, execute
from mrclab.runs.experiment import Experiment
from support.amount import LONG
from support.lab.books import Case

#: Of the campaign `python -m support.lab.books --runs 2000`; cases that once did not balance are below.
RUNS = 30 if LONG else 10
#: A duplicated packet in flight, marks at two switches, streams that ended apart, puts that ended with an error.
REGRESSIONS = (1_000_009, 1_000_022, 1_000_029)


@pytest.mark.parametrize("seed", [*range(RUNS), *REGRESSIONS])
def test_the_books_of_a_random_run_balance(seed: int) -> None:
    case = Case.draw(random.Random(seed))
    books = case.run().books
    assert books is not None
    assert [each for each in books.balances if each.unbalanced] == [], case


def test_counts_have_what_came_before_the_first_sample(tmp_path: pathlib.Path) -> None:
    """The whole burst is trimmed within 50 ms, which is when hosts take their first samples."""
    burst = Experiment.model_validate(
        {
            "name": "burst",
            "title": "an incast whose burst is trimmed at its start",
            "lab": "incast",
            "clock": "virtual",
            "workload": {"name": "incast", "params": {"message_bytes": "64KiB", "iterations": 1}},
            "expect": {"trims": True},
        }
    )
    outcome = execute.execute(burst, folder=tmp_path, live=False)
    assert outcome.verdict.passed
    totals = outcome.result.totals()
    assert (totals["retransmissions"], totals["trims"], totals["packets"]) == (337, 337, 922)
    assert outcome.result.program_counters is not None
    assert outcome.result.program_counters["trimmed"] == 337


def test_the_first_command_of_the_tutorial_counts_all_packets(tmp_path: pathlib.Path) -> None:
    first = Experiment.model_validate({"name": "a", "title": "a", "lab": "tiny", "workload": {"name": "all_to_all"}})
    outcome = execute.execute(first, "virtual", folder=tmp_path, live=False)
    assert outcome.result.totals()["packets"] == 768


# --- planted miscounts -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account() -> Account:
    """Return the account of a run with trims, marks, duplicates and a failure, in which no packet was lost for good."""
    case = Case.draw(random.Random(4))
    lab = {
        **case.lab, "planes": 2, "t0_per_plane": 2, "t1_per_plane": 2, "hosts": 6, "hosts_per_t0": 3, "seed": 1,
        "payload": "bytes", "ev": {"size": 64, "active": 32},
        "queues": {"limit": "16KiB", "ecn": {"kmin": "2KiB", "kmax": "8KiB"}, "trim": {"threshold": "8KiB"}},
    }  # fmt: skip
    schedule = [
        (0.01, Action("fail", "h1:0", "impair", settings={"delay_ns": 2_000_000})),
        (0.03, Action("restore", "h1:0", "impair")),
    ]
    spec = dataclasses.replace(case.spec, workload="all_to_all", params={"block_bytes": 60_000}, duration_s=0.2)
    taken: list[Account] = []

    def kept(found: Account) -> Books:
        """Keep the account of a run, whose file of events is gone when it has ended."""
        assert found.events is not None
        events = StoredEvents({host: list(rows) for host, rows in found.events.items()})
        taken.append(dataclasses.replace(found, events=events))
        return balance(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "balance", kept)
        dataclasses.replace(case, lab=lab, transport="mrc", spec=spec, schedule=schedule).run()
    return taken[0]


def after(account: Account, **changes: Any) -> Account:
    return dataclasses.replace(account, after=dataclasses.replace(account.after, **changes))


def of_host(account: Account, change: Callable[[MrcHostStatistics], MrcHostStatistics]) -> Account:
    """Change the final statistics of host h1."""
    statistics = account.after.hosts["h1"]
    assert isinstance(statistics, MrcHostStatistics)
    return after(account, hosts={**account.after.hosts, "h1": change(statistics)})


def more(counters: Mapping[str, int], name: str, count: int) -> dict[str, int]:
    return {**counters, name: counters.get(name, 0) + count}


def sent(name: str) -> Callable[[Account, int], Account]:
    """Miscount a counter of h1's requestors."""
    return lambda account, count: of_host(
        account, lambda each: dataclasses.replace(each, gone_requestors=more(each.gone_requestors, name, count))
    )


def placed(name: str) -> Callable[[Account, int], Account]:
    """Miscount a counter of h1's responders."""
    return lambda account, count: of_host(
        account, lambda each: dataclasses.replace(each, gone_responders=more(each.gone_responders, name, count))
    )


def linked(name: str) -> Callable[[Account, int], Account]:
    """Miscount packets of the link of h1's first port."""

    def change(account: Account, count: int) -> Account:
        def links(each: MrcHostStatistics) -> MrcHostStatistics:
            first, *others = each.links
            return dataclasses.replace(each, links=[_plus(first, name, count), *others])

        return of_host(account, links)

    return change


def _plus(row: Any, name: str, count: int) -> Any:
    return dataclasses.replace(row, **{name: getattr(row, name) + count})


def ported(name: str, drop: str = "", number: int = 1) -> Callable[[Account, int], Account]:
    """Miscount a counter of a port of p0-t0.0 (2: that of h1's first link), or its drops for a reason."""

    def change(account: Account, count: int) -> Account:
        device = account.after.fabric["p0-t0.0"]
        port = device.ports[number]
        if name == "queued":
            first, *others = port.queues
            port = dataclasses.replace(port, queues=(_plus(first, "depth_packets", count), *others))
        else:
            port = dataclasses.replace(port, drops=more(port.drops, drop, count)) if drop else _plus(port, name, count)
        device = dataclasses.replace(device, ports={**device.ports, number: port})
        return after(account, fabric={**account.after.fabric, "p0-t0.0": device})

    return change


def switched(name: str, drop: str = "") -> Callable[[Account, int], Account]:
    """Miscount a counter of p0-t0.0 itself, or its drops for a reason."""

    def change(account: Account, count: int) -> Account:
        device = account.after.fabric["p0-t0.0"]
        switch = device.switch
        switch = (
            dataclasses.replace(switch, drops=more(switch.drops, drop, count)) if drop else _plus(switch, name, count)
        )
        return after(account, fabric={**account.after.fabric, "p0-t0.0": dataclasses.replace(device, switch=switch)})

    return change


def counted(name: str) -> Callable[[Account, int], Account]:
    """Miscount what the P4 program counts."""
    return lambda account, count: after(account, program=more(account.after.program, name, count))


def worked(name: str) -> Callable[[Account, int], Account]:
    """Miscount the progress of rank h1."""
    return lambda account, count: dataclasses.replace(
        account, progress={**account.progress, "h1": _plus(account.progress["h1"], name, count)}
    )


def sampled(name: str) -> Callable[[Account, int], Account]:
    """Miscount the growth of a column of h1's samples."""
    return lambda account, count: dataclasses.replace(
        account, sampled={**account.sampled, "h1": more(account.sampled["h1"], name, count)}
    )


def delivered_by_sender(account: Account, count: int) -> Account:
    """Take delivered bytes from another host: their sum is right, and those of two hosts are wrong."""
    moved = {
        name: more(account.sampled[name], "delivered_bytes", size) for name, size in (("h1", count), ("h2", -count))
    }
    return dataclasses.replace(account, sampled={**account.sampled, **moved})


def last_sample(name: str) -> Callable[[Account, int], Account]:
    """Miscount a column of h1's last stored sample."""
    return lambda account, count: dataclasses.replace(
        account, rows={**account.rows, "h1": more(account.rows["h1"], name, count)}
    )


def last_sample_of_ports(account: Account, count: int) -> Account:
    """Miscount the last sample of p0-t0.0's first port by more than it grew since the sample before."""
    earlier, last = account.fabric_rows
    column = "ports.p0-t0.0:1.tx_bytes"
    wrong = more(last, column, count * (last[column] - earlier[column] + account.moving + 1))
    return dataclasses.replace(account, fabric_rows=[earlier, wrong])


def achieved(name: str) -> Callable[[Account, int], Account]:
    """Miscount what is printed of all ranks together."""
    return lambda account, count: dataclasses.replace(account, achieved=_plus(account.achieved, name, count))


def measured(**wrong: Callable[[Any, int], float]) -> Callable[[Account, int], Account]:
    """Change the times of h1's iterations; by name, a function of the times and the sign."""

    def change(account: Account, count: int) -> Account:
        progress = account.progress["h1"]
        assert progress.measured is not None
        assert progress.measured.iteration_ns is not None
        times = progress.measured.iteration_ns
        changes: dict[str, Any] = {name: value(times, count) for name, value in wrong.items()}
        found = dataclasses.replace(progress.measured, iteration_ns=dataclasses.replace(times, **changes))
        return dataclasses.replace(
            account, progress={**account.progress, "h1": dataclasses.replace(progress, measured=found)}
        )

    return change


def recovered(account: Account, count: int) -> Account:
    """Let goodput be back before the first action, or after the second one."""
    first, second = account.happenings
    at_ns = first.done_ns - 1 if count < 0 else second.done_ns + 1
    return dataclasses.replace(account, recovered_ns={0: at_ns})


def logged(first: tuple[int, str, str], second: tuple[int, str, str]) -> Callable[[Account, int], Account]:
    """Let h1 log two events of an EV: time, old and new state."""
    events = [EvEvent(at, "ev", 1, 7, 0, old, new, "", 0) for at, old, new in (first, second)]
    return lambda account, count: dataclasses.replace(account, events=StoredEvents({"h1": events}))


def final(half: str, name: str) -> Callable[[Account, int], Account]:
    """Miscount a counter of h1 at the end of the workload; `half`: requestors or responders."""

    def change(account: Account, count: int) -> Account:
        statistics, gone = account.final["h1"], f"gone_{half}"
        changes: dict[str, Any] = {gone: more(getattr(statistics, gone), name, count)}
        assert isinstance(statistics, MrcHostStatistics)
        return dataclasses.replace(account, final={**account.final, "h1": dataclasses.replace(statistics, **changes)})

    return change


def integrated(account: Account, count: int) -> Account:
    return dataclasses.replace(account, goodput_bytes=account.goodput_bytes + 3 * count)


def timed(name: str) -> Callable[[Account, int], Account]:
    """Ask for the first action later than it was done, or do it after the second one."""

    def change(account: Account, count: int) -> Account:
        first, *others = account.happenings
        changes: dict[str, Any] = {name: others[0].done_ns + count}
        moved = dataclasses.replace(first, **changes)
        return dataclasses.replace(account, happenings=[moved, *others])

    return change


PLANTED: Mapping[str, Mapping[str, Callable[[Account, int], Account]]] = {
    "packets by link": {
        "hosts: sent": linked("sent_packets"),
        "hosts: received": linked("received_packets"),
        "fabric: received": ported("rx_packets"),
        "fabric: sent": ported("tx_packets"),
        "fabric: lost": ported("", "loss"),
        "fabric: duplicated": ported("duplicated"),
        "fabric: on the wire": ported("on_wire"),
        "fabric: on the wire between switches": ported("on_wire", number=4),
    },
    "packets by switch": {
        "fabric: received": switched("received"),
        "fabric: sent": switched("transmitted"),
        "fabric: dropped": switched("", "ingress"),
        "fabric: queue full": ported("", "queue_full"),
        "fabric: waits": ported("queued"),
    },
    "packets by plane": {
        "hosts: sent": linked("sent_packets"),
        "hosts: received": linked("received_packets"),
        "fabric: dropped by the program": switched("", "egress"),
        "fabric: lost": ported("", "link_down"),
        "fabric: absorbed": switched("absorbed"),
    },
    "data packets": {"requestors": sent("packets_sent"), "responders": placed("packets_placed")},
    "first transmissions": {
        "requestors: sent": sent("packets_sent"),
        "requestors: sent again": sent("retransmissions"),
        "responders": placed("packets_placed"),
    },
    "retransmissions": {
        "requestors: sent again": sent("retransmissions"),
        "requestors: lost": sent("lost_rack"),
        "requestors: acknowledged": sent("spurious_losses"),
    },
    "answers": {
        f"{half}: {name}": plant(name)
        for half, plant, names in (
            ("requestors", sent, ("acks_received", "sacks_received", "nacks_received")),
            ("responders", placed, ("acks_sent", "sacks_sent", "nacks_sent")),
        )
        for name in names
    },
    "losses": {
        name: sent(name)
        for name in (
            "lost_rack",
            "lost_same_ev",
            "lost_timeout",
            "lost_nack",
            "packets_expired",
            "packets_inferred",
            "nacks_received",
        )
    }
    | {"RACK as timeouts": lambda account, count: sent("lost_rack")(sent("lost_timeout")(account, count), -count)},
    "duplicates": {"requestors": sent("retransmissions"), "responders": placed("duplicates")},
    "trims": {"fabric": counted("trimmed"), "hosts": placed("trimmed")},
    "marks": {"fabric": counted("marked"), "hosts": placed("ecn_marked")},
    "bytes delivered": {
        "responders": placed("payload_bytes_placed"),
        "goodput": integrated,
        "hosts": delivered_by_sender,
    },
    "bytes put": {"ranks": worked("bytes_sent"), "responders": placed("payload_bytes_placed")},
    "payload sent": {
        "requestors": final("requestors", "payload_bytes_sent"),
        "ranks": worked("bytes_sent"),
        "responders": final("responders", "payload_bytes_placed"),
    },
    "iterations": {
        "bytes put": worked("bytes_sent"),
        "bytes verified": worked("bytes_verified"),
        "ranks": worked("iterations"),
        "fewest": achieved("least_iterations"),
        "most": achieved("most_iterations"),
    },
    "durations": {
        "count": measured(count=lambda times, sign: times.count + sign, stdev=lambda times, sign: 1e12),
        "sum": measured(mean=lambda times, sign: times.mean * (1 + 0.5 * sign)),
        "since the start": measured(mean=lambda times, sign: times.mean * (times.count + 1) / 2),
        "least": measured(
            min=lambda times, sign: 0 if sign < 0 else times.max + 1, stdev=lambda times, sign: 10 * times.mean
        ),
        "most": measured(max=lambda times, sign: times.min - 1 if sign < 0 else 1000 * times.max),
    },
    "times": {
        "asked for": timed("at_ns"),
        "done": timed("done_ns"),
        "recovered": recovered,
        "denied": logged((1, "ASSUMED_BAD", "DENIED"), (2, "DENIED", "ASSUMED_BAD")),
    },
    "samples": {
        "samples": sampled("packets"),
        "timeouts": sampled("timeouts"),
        "statistics": final("requestors", "packets_sent"),
        "last": last_sample("packets"),
        "last level": last_sample("ports_up"),
        "last of ports": last_sample_of_ports,
    },
}


@pytest.mark.parametrize("direction", ["rx_packets", "tx_packets"])
def test_a_packet_at_one_switch_alone_has_moved(account: Account, direction: str) -> None:
    """A report of a host's kernel goes no further than its T0: between two readings only that one's count grows."""
    assert accounts.moved(account.after, account.after) == 0
    assert accounts.moved(account.after, ported(direction)(account, 1).after) == 1


def test_every_identity_is_planted(account: Account) -> None:
    assert PLANTED.keys() == {identity.name for identity in IDENTITIES}
    books = balance(account)
    assert books.balanced, books
    assert {each.identity for each in books.balances} == PLANTED.keys()
    assert all(account.after.program[name] for name in ("trimmed", "marked"))


@pytest.mark.parametrize(
    ("identity", "book"), [(identity, book) for identity, books in PLANTED.items() for book in books]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_identity_notices_a_miscount(account: Account, identity: str, book: str, sign: int) -> None:
    (found,) = [each for each in balance(account).balances if each.identity == identity]
    # Where a kind of packet is not counted, a miscount hides behind as many packets that were lost or in flight.
    hidden = found.slack if found.entries == 1 or identity in ("answers", "bytes delivered") else 0
    change = PLANTED[identity][book]
    sign = abs(sign) if book in ("asked for", "done") else sign
    (after,) = [each for each in balance(change(account, sign * (hidden + 1))).balances if each.identity == identity]
    assert len(after.unbalanced) >= 1


def before_too(change: Callable[[Account, int], Account]) -> Callable[[Account, int], Account]:
    """Miscount in the readings of before and after a run."""

    def changed(account: Account, count: int) -> Account:
        earlier = change(dataclasses.replace(account, after=account.before), count)
        return dataclasses.replace(change(account, count), before=earlier.after)

    return changed


#: Identities of nothing but counters of before and after: what was there before takes no part.
BETWEEN = tuple(PLANTED)[: list(PLANTED).index("bytes delivered")]


@pytest.mark.parametrize(("identity", "book"), [(each, book) for each in BETWEEN for book in PLANTED[each]])
def test_an_identity_counts_from_the_beginning_of_the_run(account: Account, identity: str, book: str) -> None:
    changed = balance(before_too(PLANTED[identity][book])(account, 10**6))
    assert not any(each.unbalanced for each in changed.balances if each.identity == identity)


def unread(account: Account, count: int) -> Account:
    rows = account.after.unread
    first, *others = rows["h1"]
    return after(account, unread={**rows, "h1": [first + count, *others]})


def unfinished(account: Account, count: int) -> Account:
    """Leave packets of h0's first queue pair outstanding at the end of the workload, and none of its last one."""
    statistics = account.final["h0"]
    assert isinstance(statistics, MrcHostStatistics)
    first, *others = statistics.qps
    changed = dataclasses.replace(statistics, qps=[_plus(first, "outstanding_packets", count), *others])
    return dataclasses.replace(account, final={**account.final, "h0": changed})


def outstanding(account: Account, count: int) -> Account:
    """Leave packets of a queue pair that sent none of the others outstanding after the run."""
    statistics = account.final["h1"]
    assert isinstance(statistics, MrcHostStatistics)
    qp = dataclasses.replace(statistics.qps[0], outstanding_packets=count, requestor={}, responder={})
    return of_host(account, lambda each: dataclasses.replace(each, qps=[*each.qps, qp]))


def back_between(account: Account, count: int) -> Account:
    return dataclasses.replace(account, recovered_ns={0: account.happenings[0].done_ns + count})


@pytest.mark.parametrize(
    ("identity", "wrong", "sign", "cover"),
    [
        ("packets by link", linked("received_packets"), -1, unread),
        ("packets by link", linked("sent_packets"), 1, ported("storm_frames", number=2)),
        ("losses", sent("nacks_received"), 1, sent("bogus_nacks")),
        ("retransmissions", sent("retransmissions"), 1, sent("repeats")),
        ("trims", counted("trimmed"), 1, placed("trimmed_duplicates")),
        ("data packets", sent("packets_sent"), 1, before_too(ported("queued"))),
        ("first transmissions", sent("packets_sent"), 1, outstanding),
        ("payload sent", final("responders", "payload_bytes_placed"), -1, unfinished),
        ("times", recovered, -1, back_between),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_identity_takes_what_explains_a_difference(
    account: Account,
    identity: str,
    wrong: Callable[[Account, int], Account],
    sign: int,
    cover: Callable[[Account, int], Account],
) -> None:
    (found,) = [each for each in balance(account).balances if each.identity == identity]
    count = 1 + (found.slack if found.entries == 1 else 0)
    noticed = wrong(account, sign * count)
    for changed, right in ((noticed, False), (cover(noticed, count), True)):
        (made,) = [each for each in balance(changed).balances if each.identity == identity]
        assert (not made.unbalanced) == right, made
