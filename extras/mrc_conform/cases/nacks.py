"""NACKs and their effects on the requestor."""

from __future__ import annotations

from dataclasses import replace

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import condemn, one
from mrc_conform.device import Need, Outcome, PairState, PathState, Settings
from mrc_conform.script import NackReason, Script

_NACK = Area.NACK
_TRIM = Area.TRIM
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
_QUIET = Settings(tail_probe=False)


@case(
    "nack-trimmed-repeats",
    _TRIM,
    "A packet refused with TRIMMED is sent again at once, on another EV.",
    Basis.NOTES,
    "§5",
    Need.POST,
)
def nack_trimmed_repeats(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED)
    again = c.expect("WRITE_ONLY", psn=packet["psn"], rtx=1, dscp=8)
    c.check(again.ev != packet.ev, "the retransmission travels on the EV that failed")


@case("nack-trimmed-skips", _TRIM, "TRIMMED brings a GOOD EV to SKIP.", Basis.NOTES, "§7", Need.POST, Need.EVS)
def nack_trimmed_skips(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED)
    c.expect_ev_state(packet.ev, PathState.SKIP)


@case(
    "nack-last-hop-repeats",
    _TRIM,
    "A packet refused with TRIMMED_LASTHOP is sent again, and its EV stays GOOD.",
    Basis.NOTES,
    "§5, §7",
    Need.POST,
    Need.EVS,
)
def nack_last_hop_repeats(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", psn=packet["psn"], rtx=1)
    c.expect_ev_state(packet.ev, PathState.GOOD)


@case(
    "nack-late-ev",
    _TRIM,
    "A NACK of an earlier transmission concerns the EV that it names, and repeats nothing.",
    Basis.NOTES,
    "§5, §7",
    Need.POST,
    Need.EVS,
    settings=_QUIET,
)
def nack_late_ev(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    again = c.expect("WRITE_ONLY", rtx=1)
    c.nack(packet, NackReason.TRIMMED)
    c.expect_nothing("WRITE_ONLY")
    c.expect_ev_state(packet.ev, PathState.SKIP)
    c.expect_ev_state(again.ev, PathState.GOOD)


@case(
    "nack-trim-budget",
    _TRIM,
    "Trims cost at most one retry in each local ACK timeout, so that an incast does not end a queue pair.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.STATES,
)
def nack_trim_budget(c: Script) -> None:
    packet = one(c)
    for _ in range(60):
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
        packet = c.expect("WRITE_ONLY", rtx=1)
    c.expect_state(PairState.RTS)


@case(
    "nack-trim-for-ever",
    _TRIM,
    "A packet that is trimmed for as long as retries last ends the queue pair.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_trim_for_ever(c: Script) -> None:
    wr = c.post(8)
    for _ in range(40):
        for packet in c.drain():
            c.advance(c.ack_timeout_ns // 2)
            c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


def _refusal(name: str) -> None:
    reason = int(getattr(NackReason, name))
    label = name.replace("_", "-").lower()

    @case(
        f"nack-{label}-pause",
        _NACK,
        f"A packet refused with {name} is sent again after a pause, and its EV stays GOOD.",
        Basis.NOTES,
        "§5, §7",
        Need.POST,
        Need.EXACT_TIME,
        Need.EVS,
        settings=_QUIET,
    )
    def pause(c: Script) -> None:
        packet = one(c)
        c.nack(packet, reason)
        c.expect_nothing("WRITE_ONLY", within=c.settings.base_rtt_ns // 2)
        c.expect("WRITE_ONLY", within=c.settings.base_rtt_ns, rtx=1)
        c.expect_ev_state(packet.ev, PathState.GOOD)


for _name in ("NO_BITMAP", "NO_PKT_BUFFER", "NO_RESOURCE", "PSN_OOR_WINDOW"):
    _refusal(_name)


@case(
    "nack-pause-doubles",
    _NACK,
    "The pause is a round trip and doubles while refusals go on.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_doubles(c: Script) -> None:
    packet = one(c)
    for turn in range(4):
        since = c.now
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns << turn, since=since)


@case(
    "nack-pause-no-progress",
    _NACK,
    "An answer that acknowledges nothing new does not end the doubling.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_no_progress(c: Script) -> None:
    first = one(c)
    c.sack(first, 0)
    packet = one(c)
    for turn in range(4):
        c.sack(first, 0)
        since = c.now
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns << turn, since=since)


@case(
    "nack-pause-burst",
    _NACK,
    "Refusals that come in one pause are one: the next pause is two round trips.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_burst(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    for factor in (1, 2):
        packets = c.drain()
        since = c.now
        for packet in packets:
            c.nack(packet, NackReason.NO_RESOURCE)
        first = c.expect(packets[0].opcode, after=factor * c.settings.base_rtt_ns, since=since)
        c.pending.append(first)


@case(
    "nack-pause-ends",
    _NACK,
    "An acknowledged packet ends the series: the next pause is a round trip again.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_ends(c: Script) -> None:
    packet = one(c)
    for _ in range(3):
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", within=8 * c.settings.base_rtt_ns)
    c.sack(packet, 0)
    c.ack(0, 1)
    packet = one(c)
    since = c.now
    c.nack(packet, NackReason.NO_RESOURCE)
    c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns, since=since)


@case(
    "nack-refusal-budget",
    _NACK,
    "Every refusal costs a retry: beyond the budget the queue pair ends with retry exceeded.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(tail_probe=False, linear_cnt=2, exp_cnt=1),
)
def nack_refusal_budget(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    for _ in range(3):
        c.nack(packet, NackReason.NO_BITMAP)
        packet = c.expect("WRITE_ONLY", within=c.ack_timeout_ns)
    c.expect_no_completion()
    c.nack(packet, NackReason.NO_BITMAP)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case(
    "nack-unexpected-event",
    _NACK,
    "UNEXP_EVENT ends the queue pair with a remote operation error; nothing is sent again.",
    Basis.NOTES,
    "§5",
    Need.POST,
    Need.STATES,
)
def nack_unexpected_event(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.nack(packet, NackReason.UNEXP_EVENT)
    c.expect_completion(wr, Outcome.REM_OP_ERR)
    c.expect_state(PairState.ERROR)
    c.expect_nothing(*_DATA, within=3 * c.ack_timeout_ns)


@case(
    "nack-unknown-reason",
    _NACK,
    "A reason that the protocol does not have yet is a lack of a resource.",
    Basis.OURS,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=_QUIET,
)
def nack_unknown_reason(c: Script) -> None:
    packet = one(c)
    c.nack(packet, 0x55)
    c.expect_nothing("WRITE_ONLY", within=c.settings.base_rtt_ns // 2)
    c.expect("WRITE_ONLY", within=c.settings.base_rtt_ns, rtx=1)


@case(
    "nack-of-acknowledged",
    _NACK,
    "A NACK of a packet that is no longer outstanding has no effect.",
    Basis.NOTES,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    Need.STATES,
)
def nack_of_acknowledged(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0)
    for reason in (NackReason.TRIMMED, NackReason.NO_RESOURCE, NackReason.UNEXP_EVENT):
        c.nack(packet, reason)
    c.expect_state(PairState.RTS)
    c.expect_nothing("WRITE_ONLY")
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "nack-of-earlier",
    _NACK,
    "A NACK of an earlier transmission does not repeat the present one.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=_QUIET,
)
def nack_of_earlier(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.TRIMMED)
    c.expect("WRITE_ONLY", rtx=1)
    c.nack(packet, NackReason.TRIMMED)
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns // 2)


@case(
    "nack-of-unsent",
    _NACK,
    "A NACK of a PSN that was never sent has no effect.",
    Basis.NOTES,
    "§5",
    Need.POST,
    Need.STATES,
)
def nack_of_unsent(c: Script) -> None:
    packet = one(c)
    c.nack(packet, NackReason.UNEXP_EVENT, psn=c.tx(7), nack_psn=c.tx(7))
    c.expect_state(PairState.RTS)


@case(
    "nack-one-packet",
    _NACK,
    "A NACK repeats the packet that it names, and no other.",
    Basis.NOTES,
    "§5",
    Need.POST,
    settings=_QUIET,
)
def nack_one_packet(c: Script) -> None:
    c.post(5 * c.settings.mtu)
    packets = c.drain()
    c.nack(packets[2], NackReason.TRIMMED)
    c.expect("WRITE_MIDDLE", psn=c.tx(2), rtx=1, payload=packets[2].payload)
    c.expect_nothing(*_DATA)


@case(
    "nack-pause-holds-new",
    _NACK,
    "During the pause after a refusal nothing new is sent, either.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_holds_new(c: Script) -> None:
    packet = one(c)
    since = c.now
    c.nack(packet, NackReason.NO_PKT_BUFFER)
    c.post(c.settings.mtu)
    c.post(8)
    c.expect_nothing(*_DATA, within=c.settings.base_rtt_ns - 1)
    c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns, since=since, rtx=1)
    c.check(len(c.drain()) == 2, "what was posted in the pause did not follow")


@case(
    "nack-pause-lasts",
    _NACK,
    "The pause lasts also when the packet that was refused turns out to have arrived.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_lasts(c: Script) -> None:
    packet = one(c)
    since = c.now
    c.nack(packet, NackReason.NO_PKT_BUFFER)
    c.sack(packet, 0, tx_timestamp=0)
    c.post(8)
    c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns, since=since, psn=c.tx(1))


@case(
    "nack-pause-of-rtt",
    _NACK,
    "The pause is the smoothed round trip where that is longer than the base RTT.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def nack_pause_of_rtt(c: Script) -> None:
    rtt = 3 * c.settings.base_rtt_ns
    for index in range(3):
        packet = one(c)
        c.advance(rtt)
        c.sack(packet, index)
        c.ack(index, index + 1)
    packet = one(c)
    since = c.now
    c.nack(packet, NackReason.NO_RESOURCE)
    c.expect("WRITE_ONLY", after=rtt, since=since)


@case(
    "nack-pause-longest",
    _NACK,
    "The pause doubles ten times at most.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, exp_cnt=25, timeout=20),
)
def nack_pause_longest(c: Script) -> None:
    packet = one(c)
    for turn in range(13):
        since = c.now
        c.nack(packet, NackReason.NO_RESOURCE)
        packet = c.expect("WRITE_ONLY", after=c.settings.base_rtt_ns << min(turn, 10), since=since)


@case(
    "nack-keeps-row",
    _NACK,
    "A refusal or a mark of a packet on a bad EV does not break its row of answered probes.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4, ev_min_active=1),
)
def nack_keeps_row(c: Script) -> None:
    bad = condemn(c)
    for state in (PathState.ASSUMED_BAD, PathState.SKIP):
        c.probe_reply(c.expect("PROBE", within=2 * c.settings.probe_interval_ns, ev=bad.ev), 0)
        c.nack(bad, NackReason.TRIMMED)
        c.nack(bad, NackReason.NO_RESOURCE)
        c.expect_ev_state(bad.ev, state)


@case(
    "nack-twice",
    _NACK,
    "A packet that waits to be sent again costs no second retry when its NACK comes twice, and is sent once.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, linear_cnt=1, exp_cnt=0),
)
def nack_twice(c: Script) -> None:
    packet = one(c)
    for _ in range(3):
        c.nack(packet, NackReason.NO_RESOURCE)
    c.expect_no_completion()
    found = len(c.drain(within=3 * c.settings.base_rtt_ns))
    c.check(found == 1, f"the packet was sent {found} times again")
