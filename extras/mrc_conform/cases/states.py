"""Queue pair states, errors, flushes."""

from __future__ import annotations

from itertools import pairwise

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import FOR_EVER, DeviceError, Need, Outcome, PairState, Settings
from mrc_conform.script import Nak, Script

_STATE = Area.STATE
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
_ALL = (*_DATA, "SACK", "NACK", "ACK", "PROBE")


@case(
    "error-flushes",
    _STATE,
    "A queue pair that is moved to ERROR flushes every request and every receive.",
    Basis.IBTA,
    "10.3.1.5",
    Need.POST,
    Need.STATES,
)
def error_flushes(c: Script) -> None:
    c.device.post_recv(c.dut, 500)
    requests = [c.post(8) for _ in range(2)]
    c.device.modify(c.dut, PairState.ERROR)
    for wr in [*requests, 500]:
        c.expect_completion(wr, Outcome.WR_FLUSH_ERR)


@case(
    "error-posts-flush",
    _STATE,
    "A request that is posted in ERROR is flushed.",
    Basis.IBTA,
    "10.3.1.5",
    Need.POST,
    Need.STATES,
)
def error_posts_flush(c: Script) -> None:
    c.device.modify(c.dut, PairState.ERROR)
    c.expect_completion(c.post(8), Outcome.WR_FLUSH_ERR)
    c.expect_nothing(*_DATA)


@case("error-silent", _STATE, "In ERROR nothing is sent on a timer.", Basis.NOTES, "§4", Need.POST, Need.STATES)
def error_silent(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    c.device.modify(c.dut, PairState.ERROR)
    c.drain(_ALL)
    c.expect_nothing(*_ALL, within=10 * c.ack_timeout_ns)


@case(
    "error-places-nothing",
    _STATE,
    "In ERROR data is neither placed nor acknowledged.",
    Basis.IBTA,
    "10.3.1.5",
    Need.MEMORY,
    Need.STATES,
)
def error_places_nothing(c: Script) -> None:
    place = c.data(0)
    c.device.modify(c.dut, PairState.ERROR)
    c.send(place)
    c.expect_nothing("SACK")
    c.expect_memory(0, bytes(64))


@case(
    "error-ignores-answers",
    _STATE,
    "In ERROR late acknowledgements complete nothing a second time.",
    Basis.IBTA,
    "10.3.1.5",
    Need.POST,
    Need.STATES,
)
def error_ignores_answers(c: Script) -> None:
    wr = c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.device.modify(c.dut, PairState.ERROR)
    c.expect_completion(wr, Outcome.WR_FLUSH_ERR)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_no_completion()


@case("error-no-probe", _STATE, "In ERROR a probe is not answered by a SACK.", Basis.NOTES, "§4", Need.STATES)
def error_no_probe(c: Script) -> None:
    c.device.modify(c.dut, PairState.ERROR)
    c.send("PROBE", probe_id=3)
    c.expect_nothing("SACK")


@case(
    "reset-forgets",
    _STATE,
    "RESET ends work requests without completions.",
    Basis.IBTA,
    "10.3.1",
    Need.POST,
    Need.STATES,
)
def reset_forgets(c: Script) -> None:
    c.device.post_recv(c.dut, 500)
    c.post(8)
    c.device.modify(c.dut, PairState.RESET)
    c.expect_no_completion()


@case("reset-silent", _STATE, "A queue pair in RESET answers nothing.", Basis.IBTA, "10.3.1.1", Need.STATES)
def reset_silent(c: Script) -> None:
    c.device.modify(c.dut, PairState.RESET)
    c.send(c.data(0))
    c.send("PROBE", probe_id=3)
    c.expect_nothing(*_ALL)


@case(
    "reset-new-psn",
    _STATE,
    "RESET draws a new first PSN, so that delayed packets of the old connection do not fit the new one.",
    Basis.OURS,
    "§4",
    Need.STATES,
    Need.POST,
)
def reset_new_psn(c: Script) -> None:
    c.post(8)
    first = c.expect("WRITE_ONLY")["psn"]
    c.device.modify(c.dut, PairState.RESET)
    c.device.connect(c.dut, c.kit)
    c.post(8)
    c.check(c.expect("WRITE_ONLY")["psn"] != first, "the new connection begins with the same PSN")


@case(
    "error-reset-connects",
    _STATE,
    "After ERROR and RESET a queue pair can be connected again.",
    Basis.IBTA,
    "10.3.1",
    Need.STATES,
)
def error_reset_connects(c: Script) -> None:
    c.device.modify(c.dut, PairState.ERROR)
    c.device.modify(c.dut, PairState.RESET)
    c.device.connect(c.dut, c.kit)
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0))


@case(
    "state-order",
    _STATE,
    "RESET cannot go to RTS at once: INIT and RTR come before it.",
    Basis.IBTA,
    "10.3.1",
    Need.STATES,
    connected=False,
)
def state_order(c: Script) -> None:
    c.create()
    c.device.connect(c.dut, c.kit)
    try:
        c.device.connect(c.dut, c.kit)
    except DeviceError:
        return
    c.check(False, "a queue pair in RTS was connected a second time")


@case(
    "user-dies",
    _STATE,
    "When the user of a queue pair is gone the peer receives a NAK: remote operation error.",
    Basis.OURS,
    "§6",
    Need.STATES,
)
def user_dies(c: Script) -> None:
    c.send(c.data(0))
    c.expect("ACK", syndrome=0x1F)
    c.device.close_pair(c.dut)
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION, psn=c.rx(1), msn=1)


@case(
    "user-dies-repeated",
    _STATE,
    "That NAK is repeated as often as a packet would be, and then no more.",
    Basis.OURS,
    "§6",
    Need.STATES,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=2, exp_cnt=1),
)
def user_dies_repeated(c: Script) -> None:
    c.device.close_pair(c.dut)
    c.advance(20 * c.ack_timeout_ns)
    times = [packet.at_ns for packet in c.drain({"ACK"})]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    c.check(gaps == [c.ack_timeout_ns] * 3, f"the NAK was sent {len(times)} times, in intervals of {gaps} ns")


@case(
    "peer-dies",
    _STATE,
    "A NAK of the next PSN, which was not sent yet, ends a queue pair that has nothing outstanding.",
    Basis.OURS,
    "§6",
    Need.POST,
    Need.STATES,
)
def peer_dies(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.ack(0, 1)
    c.expect_completion(wr)
    c.ack(1, 1, Nak.REMOTE_OPERATION)
    c.expect_state(PairState.ERROR)


@case(
    "last-ack-lost",
    _STATE,
    "When only the transport ACK is missing, the requestor asks for it.",
    Basis.OURS,
    "§5",
    Need.POST,
)
def last_ack_lost(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.probe_reply(probe, 0)
    c.ack(0, 1)
    c.expect_completion(wr)


@case("last-ack-repeated", _STATE, "A responder that is probed repeats its last transport ACK.", Basis.OURS, "§6")
def last_ack_repeated(c: Script) -> None:
    c.send(c.data(0))
    c.expect("ACK")
    c.send("PROBE", probe_id=9)
    c.expect("ACK", psn=c.rx(0), msn=1)


@case(
    "last-ack-never",
    _STATE,
    "A peer that never sends the transport ACK and falls silent ends the queue pair, as an unanswered packet would.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def last_ack_never(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.advance(12 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case(
    "window-closed-silence",
    _STATE,
    "A request that waits for a closed window ends with retry exceeded when the peer falls silent.",
    Basis.OURS,
    "§5, the invariant",
    Need.POST,
    settings=Settings(planes=1, window=1200, linear_cnt=1, exp_cnt=1),
)
def window_closed_silence(c: Script) -> None:
    first, second, third = c.post(500), c.post(500), c.post(4096)
    c.expect("WRITE_ONLY")
    c.ack(0, 1)  # its SACK is lost
    c.expect_completion(first)
    c.advance(40 * c.ack_timeout_ns)
    c.expect_completion(second, Outcome.RETRY_EXC_ERR)
    c.expect_completion(third, Outcome.WR_FLUSH_ERR)


@case(
    "last-ack-of-each",
    _STATE,
    "The transport ACK of one request begins the wait for that of the next one afresh.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
)
def last_ack_of_each(c: Script) -> None:
    requests = [c.post(8) for _ in range(2)]
    c.sack(c.drain()[-1], 1)
    for index, request in enumerate(requests):
        asked, late = 0, c.now + 100 * c.ack_timeout_ns
        while asked < c.settings.linear_cnt + c.settings.exp_cnt:
            c.advance(c.settings.base_rtt_ns)
            asked += len(c.drain({"PROBE", "WRITE_ONLY"}))
            c.check(c.now < late, "the device asks no more")
        c.ack(index, index + 1)
        c.expect_completion(request)


@case(
    "last-ack-asked",
    _STATE,
    "Where only transport ACKs are missing, probes and the last packet of the oldest request ask for them in turn.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(window=4000),
)
def last_ack_asked(c: Script) -> None:
    first, second = c.post(2 * c.settings.mtu), c.post(8)
    packets = c.drain()
    c.sack(packets[2], 2)
    for index in (1, 2):
        kinds = []
        for _ in range(4):
            while not (asked := c.drain({"PROBE", "WRITE_LAST", "WRITE_ONLY"})):
                c.advance(c.settings.base_rtt_ns)
            kinds.append(asked[0].opcode)
            if asked[0].opcode != "PROBE":
                c.check(asked[0].payload == packets[index].payload, "the packet that asks has other bytes")
                c.check(asked[0]["psn"] == c.tx(index), "another packet than the last of the oldest request asks")
                c.check(asked[0]["rtx"] == asked[0]["ack_req"] == 1, "the packet does not ask for an answer")
        c.check(kinds == ["PROBE", packets[index].opcode] * 2, f"asked by {kinds}")
        c.ack(index, index)
    c.expect_completion(first)
    c.expect_completion(second)
    _full(c)


def _full(c: Script) -> None:
    c.post(40 * c.settings.mtu)
    found = len(c.drain())
    c.check(found == c.settings.window // 1112, f"{found} packets left: what asked for an answer holds the window")


@case(
    "last-ack-patience",
    _STATE,
    "Without an answer to these questions the queue pair ends after one more than its retries.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def last_ack_patience(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    asked = 0
    while not (done := c.device.completions(c.dut)):
        c.advance(c.settings.base_rtt_ns)
        asked += len(c.drain({"PROBE", "WRITE_ONLY"}))
    c.check(asked == 3, f"the queue pair ended after {asked} questions")
    c.check([(each.wr_id, each.outcome) for each in done] == [(wr, Outcome.RETRY_EXC_ERR)], f"it ended with {done}")


@case(
    "last-ack-without-probes",
    _STATE,
    "It asks for a transport ACK also where it does not probe for lost packets.",
    Basis.OURS,
    "§5",
    Need.POST,
    settings=Settings(tail_probe=False),
)
def last_ack_without_probes(c: Script) -> None:
    c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.expect("PROBE", within=c.ack_timeout_ns)


@case(
    "probe-acks-nothing",
    _STATE,
    "A responder that has completed no message answers a probe without a transport ACK.",
    Basis.OURS,
    "§6",
)
def probe_acks_nothing(c: Script) -> None:
    c.send(c.message(0, 2)[0])
    c.expect("SACK")
    c.send("PROBE", probe_id=9)
    c.expect("SACK", pr=1, cack_psn=c.rx(0))
    c.expect_nothing("ACK")


@case(
    "user-dies-doubling",
    _STATE,
    "The intervals of that NAK double as those of a packet do.",
    Basis.OURS,
    "§6",
    Need.STATES,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=0, exp_cnt=3),
)
def user_dies_doubling(c: Script) -> None:
    c.device.close_pair(c.dut)
    c.advance(40 * c.ack_timeout_ns)
    times = [packet.at_ns for packet in c.drain({"ACK"})]
    gaps = [(later - earlier) // c.ack_timeout_ns for earlier, later in pairwise(times)]
    c.check(gaps == [1, 2, 4], f"intervals of {gaps} timeouts")


@case(
    "last-ack-unsent",
    _STATE,
    "No packet that was never sent asks for a transport ACK, though all that were sent have arrived.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(mpr=1, mpr_dest=1, rack_inference=False, same_ev_inference=False),
)
def last_ack_unsent(c: Script) -> None:
    c.post(200 * c.settings.mtu)
    packets = c.drain()
    for first in (0, 64):
        c.sack(packets[first], -1, sack_offset=first + 1, sack_bitmap=(1 << 64) - 1)
    for _ in range(3):
        c.expect("PROBE", within=c.ack_timeout_ns)
    c.expect_nothing("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST")


@case(
    "user-dies-for-ever",
    _STATE,
    "With retries for ever the NAK of a user that is gone is sent linear_cnt + 8 times more, and then no more.",
    Basis.OURS,
    "§6",
    Need.STATES,
    Need.EXACT_TIME,
    settings=Settings(timeout=0, linear_cnt=1, exp_cnt=FOR_EVER),
)
def user_dies_for_ever(c: Script) -> None:
    c.device.close_pair(c.dut)
    c.advance(5000 * c.ack_timeout_ns)
    sent = len(c.drain({"ACK"}))
    c.check(sent == 1 + 1 + 8, f"the NAK was sent {sent} times")
