"""Port status."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import condemn
from mrc_conform.device import FOR_EVER, Need, Outcome, PathState, Settings
from mrc_conform.script import Script

_PORT = Area.PORT
_PORT_STATUS = 0


def _status(c: Script, number: int, mask: int) -> None:
    c.send("ENDPOINT_REQUEST", op=_PORT_STATUS, psn=number, port_status_mask=mask, port=1)
    c.expect("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=number)


def _ports_used(c: Script, packets: int = 16) -> set[int]:
    c.post(packets * c.settings.mtu)
    return {packet.port for packet in c.drain()}


@case(
    "port-announced",
    _PORT,
    "A port that goes down is announced to the peer over a working one: one bit for each port, to QP 2.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
)
def port_announced(c: Script) -> None:
    c.device.set_port(0, False)
    c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS, port_status_mask=0b10, port=1, dest_qp=2, dscp=46)


@case(
    "port-returns-announced",
    _PORT,
    "Recovery is announced in the same way, with a later request id.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
)
def port_returns_announced(c: Script) -> None:
    c.device.set_port(0, False)
    down = c.expect("ENDPOINT_REQUEST", port_status_mask=0b10)
    c.send("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=down["psn"], tx_timestamp=down["tx_timestamp"], port=1)
    c.device.set_port(0, True)
    up = c.expect("ENDPOINT_REQUEST", port_status_mask=0b11)
    c.check(0 < (up["psn"] - down["psn"] & 0xFFFF) < 0x8000, "the later status has no later request id")


@case(
    "port-repeated",
    _PORT,
    "A port status is repeated until it is answered, with the same id.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
)
def port_repeated(c: Script) -> None:
    c.device.set_port(0, False)
    first = c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS)
    for _ in range(3):
        c.expect(
            "ENDPOINT_REQUEST",
            within=16 * c.settings.status_repeat_ns,
            op=_PORT_STATUS,
            psn=first["psn"],
            port_status_mask=0b10,
        )
    c.send("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=first["psn"], tx_timestamp=first["tx_timestamp"], port=1)
    c.expect_nothing("ENDPOINT_REQUEST", within=100 * c.settings.status_repeat_ns)


@case(
    "port-repeated-slower", _PORT, "The interval of repetitions doubles.", Basis.OURS, "§7", Need.PORTS, Need.EXACT_TIME
)
def port_repeated_slower(c: Script) -> None:
    c.device.set_port(0, False)
    times = [c.expect("ENDPOINT_REQUEST", within=10**8).at_ns for _ in range(4)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    step = c.settings.status_repeat_ns
    c.check(gaps == [step, 2 * step, 4 * step], f"intervals {gaps} ns")


@case(
    "port-repeated-afresh",
    _PORT,
    "A later port status is repeated after the first interval again, however long the one before was unanswered.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    Need.EXACT_TIME,
)
def port_repeated_afresh(c: Script) -> None:
    c.device.set_port(0, False)
    for _ in range(4):
        c.expect("ENDPOINT_REQUEST", within=10**8)
    c.device.set_port(0, True)
    up = c.expect("ENDPOINT_REQUEST", port_status_mask=0b11)
    c.expect("ENDPOINT_REQUEST", after=c.settings.status_repeat_ns, since=up.at_ns, psn=up["psn"])


@case(
    "port-wrong-answer",
    _PORT,
    "An answer to another request id does not end the repetitions.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
)
def port_wrong_answer(c: Script) -> None:
    c.device.set_port(0, False)
    first = c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS)
    c.send("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=first["psn"] ^ 0x4000, tx_timestamp=first["tx_timestamp"], port=1)
    c.expect("ENDPOINT_REQUEST", within=4 * c.settings.status_repeat_ns, port_status_mask=0b10)


@case(
    "port-remap",
    _PORT,
    "Packets in flight on a port that goes down are sent again at once on another.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
    Need.POST,
)
def port_remap(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    lost = [packet["psn"] for packet in c.drain() if packet.port == 0]
    c.device.set_port(0, False)
    again = c.drain()
    c.check(
        sorted(packet["psn"] for packet in again) == sorted(lost),
        f"{len(lost)} packets were lost, {len(again)} were sent again",
    )
    c.check({packet.port for packet in again} == {1}, "a packet was sent on the port that is down")


@case(
    "port-no-blame",
    _PORT,
    "The EVs of a plane whose port is down are not ASSUMED_BAD: the port is to blame.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
    Need.POST,
    Need.EVS,
)
def port_no_blame(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    c.drain()
    c.device.set_port(0, False)
    bad = c.evs(lambda entry: entry.state is PathState.ASSUMED_BAD)
    c.check(not bad, f"{len(bad)} EVs are ASSUMED_BAD")


@case("port-returns", _PORT, "A port that has returned carries data again.", Basis.NOTES, "§7", Need.PORTS, Need.POST)
def port_returns(c: Script) -> None:
    c.device.set_port(0, False)
    c.device.set_port(0, True)
    c.check(_ports_used(c) == {0, 1}, "the port that returned carries no data")


@case(
    "port-of-peer", _PORT, "A plane whose port is down at the peer carries no data to it.", Basis.NOTES, "§7", Need.POST
)
def port_of_peer(c: Script) -> None:
    _status(c, 1, 0b10)
    c.check(_ports_used(c) == {1}, "data went to a port that the peer has announced as down")


@case(
    "port-of-peer-in-flight",
    _PORT,
    "Packets in flight to a port that the peer announces as down are sent again at once.",
    Basis.NOTES,
    "§7",
    Need.POST,
)
def port_of_peer_in_flight(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    lost = sorted(packet["psn"] for packet in c.drain() if packet.port == 0)
    _status(c, 1, 0b10)
    again = c.drain()
    c.check(sorted(packet["psn"] for packet in again) == lost, "the packets on that plane were not sent again")


@case(
    "port-of-peer-returns",
    _PORT,
    "A plane that the peer announces as up again is used again.",
    Basis.NOTES,
    "§7",
    Need.POST,
)
def port_of_peer_returns(c: Script) -> None:
    _status(c, 1, 0b10)
    _status(c, 2, 0b11)
    c.check(_ports_used(c) == {0, 1}, "the plane is not used again")


@case(
    "port-reordered",
    _PORT,
    "Of two statuses in the wrong order the later by number counts; the earlier is answered and ignored.",
    Basis.OURS,
    "§7",
    Need.POST,
)
def port_reordered(c: Script) -> None:
    _status(c, 2, 0b11)
    _status(c, 1, 0b10)
    c.check(_ports_used(c) == {0, 1}, "an earlier status was accepted after a later one")


@case("port-duplicate", _PORT, "A repeated status is answered again and changes nothing.", Basis.NOTES, "§7", Need.POST)
def port_duplicate(c: Script) -> None:
    _status(c, 1, 0b10)
    _status(c, 1, 0b10)
    _status(c, 2, 0b11)
    _status(c, 1, 0b10)
    c.check(_ports_used(c) == {0, 1}, "a repeated old status was accepted")


@case(
    "port-number-wraps",
    _PORT,
    "The numbers of statuses are compared modulo 2^16.",
    Basis.OURS,
    "§7",
    Need.POST,
    connected=False,
)
def port_number_wraps(c: Script) -> None:
    c.connect(port_status=0xFFFF)
    _status(c, 0, 0b10)
    c.check(_ports_used(c) == {1}, "a status after the wrap of its number was not accepted")


@case(
    "port-document",
    _PORT,
    "A port that the peer's document says is down carries no data.",
    Basis.OURS,
    "§7",
    Need.POST,
    connected=False,
)
def port_document(c: Script) -> None:
    c.connect(ports_up=0b10, port_status=3)
    c.check(_ports_used(c) == {1}, "data went to a port that the peer's document says is down")


@case("port-high-bits", _PORT, "Bits of ports that do not exist are ignored.", Basis.OURS, "§7", Need.POST)
def port_high_bits(c: Script) -> None:
    _status(c, 1, 0xFFFFFFFE)
    c.check(_ports_used(c) == {1}, "bits of other ports changed the planes in use")


@case(
    "port-stranger",
    _PORT,
    "A status from an address to which no queue pair is connected is neither accepted nor answered.",
    Basis.OURS,
    "§7",
)
def port_stranger(c: Script) -> None:
    packet = c.make("ENDPOINT_REQUEST", op=_PORT_STATUS, psn=5, port_status_mask=0)
    packet.source = packet.source[:-1] + b"\x66"
    c.send(packet)
    c.expect_nothing("ENDPOINT_RESPONSE")


@case(
    "port-all-down",
    _PORT,
    "With no usable plane a queue pair ends after the time that all retries of a packet take.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def port_all_down(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    for port in range(c.settings.planes):
        c.device.set_port(port, False)
    c.advance(3 * c.ack_timeout_ns)
    c.expect_no_completion()
    c.advance(2 * c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case(
    "port-all-down-returns",
    _PORT,
    "A plane that returns in time goes on where it stopped.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.PORTS,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def port_all_down_returns(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    for port in range(c.settings.planes):
        c.device.set_port(port, False)
    c.advance(2 * c.ack_timeout_ns)
    c.device.set_port(1, True)
    packet = c.expect("WRITE_ONLY", rtx=1, port=1)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.expect_completion(wr)


@case(
    "port-returns-probes",
    _PORT,
    "EVs that look bad are probed at once when a port of the endpoint returns.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(tail_probe=False),
)
def port_returns_probes(c: Script) -> None:
    bad = condemn(c)
    c.device.set_port(bad.port, False)
    c.advance(c.settings.probe_interval_ns // 2)
    c.device.set_port(bad.port, True)
    c.expect("PROBE", within=c.settings.probe_interval_ns // 4, ev=bad.ev)


@case(
    "port-flaps-cost-nothing",
    _PORT,
    "A packet that ports which go down have lost has used up no retry.",
    Basis.OURS,
    "§4",
    Need.PORTS,
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(tail_probe=False),
)
def port_flaps_cost_nothing(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    for _ in range(30):
        c.advance(c.ack_timeout_ns * 6 // 10)
        c.device.set_port(packet.port, False)
        c.device.set_port(packet.port, True)
        packet = c.expect("WRITE_ONLY", rtx=1)


@case(
    "port-returned-before",
    _PORT,
    "A port that was down when the document was written and is up when the queue pair is connected is announced.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    connected=False,
)
def port_returned_before(c: Script) -> None:
    c.device.set_port(0, False)
    c.create()
    c.device.set_port(0, True)
    c.device.connect(c.dut, c.kit)
    c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS, port_status_mask=0b11)


@case(
    "port-known-before",
    _PORT,
    "Ports that the document shows as they are are not announced when the queue pair is connected.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    connected=False,
)
def port_known_before(c: Script) -> None:
    c.device.set_port(0, False)
    c.connect()
    c.expect_nothing("ENDPOINT_REQUEST", within=10 * c.settings.status_repeat_ns)


@case(
    "port-control-forgotten",
    _PORT,
    "Answers that wait on a port that goes down do not leave when it returns.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    Need.STALL,
    Need.EXACT_TIME,
)
def port_control_forgotten(c: Script) -> None:
    c.device.stall_port(0, True)
    c.send(c.data(0))
    c.device.set_port(0, False)
    c.device.stall_port(0, False)
    c.advance(c.ack_timeout_ns)
    c.device.set_port(0, True)
    c.expect_nothing("SACK", "ACK")


@case(
    "port-answered-elsewhere",
    _PORT,
    "A status that declares the plane on which it came as down is answered on another.",
    Basis.OURS,
    "§7",
)
def port_answered_elsewhere(c: Script) -> None:
    for number, port in ((1, 1), (2, 0)):
        c.send("ENDPOINT_REQUEST", op=_PORT_STATUS, psn=number, port_status_mask=1 << 1 - port, port=port)
        c.expect("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=number, port=1 - port)


@case(
    "port-answers-elsewhere",
    _PORT,
    "SACK, NACK, transport ACK and the answer to a probe avoid a plane that the peer has declared down.",
    Basis.OURS,
    "§7",
)
def port_answers_elsewhere(c: Script) -> None:
    _status(c, 1, 0b10)
    c.send(c.data(0))
    c.expect("SACK", port=1)
    c.expect("ACK", port=1)
    c.send(c.data(20_000, place=0))
    c.expect("NACK", port=1)
    c.send("PROBE", probe_id=3)
    c.expect("SACK", port=1, pr=1)
    c.expect("ACK", port=1)
    c.send("ENDPOINT_REQUEST", op=1, psn=9)
    c.expect("ENDPOINT_RESPONSE", port=1, op=1, psn=9)


@case(
    "port-outage-since-first",
    _PORT,
    "Posting more does not put off the end of a queue pair that has no plane to send on.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def port_outage_since_first(c: Script) -> None:
    for port in (0, 1):
        c.device.set_port(port, False)
    wr = c.post(8)
    c.advance(3 * c.ack_timeout_ns)
    later = c.post(8)
    c.expect_no_completion()
    c.advance(c.ack_timeout_ns)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)
    c.expect_completion(later, Outcome.WR_FLUSH_ERR)


@case(
    "port-outage-afresh",
    _PORT,
    "A plane that returns ends the wait; the next outage may last as long again.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=1, exp_cnt=1, tail_probe=False),
)
def port_outage_afresh(c: Script) -> None:
    c.post(8)
    for _ in range(3):
        for port in (0, 1):
            c.device.set_port(port, False)
        c.advance(3 * c.ack_timeout_ns)
        c.device.set_port(0, True)
        c.drain()
        c.expect_no_completion()


@case(
    "port-outage-of-peer",
    _PORT,
    "A queue pair whose peer has no port up ends after the time that all retries of a packet take.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=1, exp_cnt=1),
)
def port_outage_of_peer(c: Script) -> None:
    _status(c, 1, 0)
    wr = c.post(8)
    c.expect_nothing("WRITE_ONLY", within=4 * c.ack_timeout_ns - 1)
    c.expect_no_completion()
    c.advance(1)
    c.expect_completion(wr, Outcome.RETRY_EXC_ERR)


@case(
    "port-late-answer",
    _PORT,
    "A late answer to an earlier status does not end the repetition of the present one; its own does.",
    Basis.NOTES,
    "§7",
    Need.PORTS,
)
def port_late_answer(c: Script) -> None:
    found = []
    for up in (False, True):
        c.device.set_port(0, up)
        found.append(c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS))
    down, up_again = found
    c.send("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=down["psn"], tx_timestamp=down["tx_timestamp"], port=1)
    c.expect("ENDPOINT_REQUEST", within=4 * c.settings.status_repeat_ns, psn=up_again["psn"], port_status_mask=0b11)
    c.send("ENDPOINT_RESPONSE", op=_PORT_STATUS, psn=up_again["psn"], tx_timestamp=up_again["tx_timestamp"])
    c.drain({"ENDPOINT_REQUEST"})
    c.expect_nothing("ENDPOINT_REQUEST", within=100 * c.settings.status_repeat_ns)


@case(
    "port-repeated-elsewhere",
    _PORT,
    "The repetitions of a status take the usable ports in turn.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    settings=Settings(planes=4, ev_count=32),
)
def port_repeated_elsewhere(c: Script) -> None:
    c.device.set_port(0, False)
    used = {c.expect("ENDPOINT_REQUEST", within=10**8).port for _ in range(3)}
    c.check(used == {1, 2, 3}, f"three statuses left on the ports {sorted(used)}")


@case(
    "port-repeated-longest",
    _PORT,
    "The interval of repetitions does not grow beyond its maximum.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    Need.EXACT_TIME,
)
def port_repeated_longest(c: Script) -> None:
    c.device.set_port(0, False)
    times = [c.expect("ENDPOINT_REQUEST", within=10**8).at_ns for _ in range(10)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    c.check(gaps[-2:] == [10_000_000] * 2, f"intervals {gaps} ns")


def _documents(c: Script, number: int, mask: int, used: set[int]) -> None:
    _status(c, 5, 0b10)
    c.second(ports_up=mask, port_status=number)
    c.check(_ports_used(c) == used, f"data did not go to the planes {used}")


for _name, _what, _number, _mask, _used in (
    ("older", "A document that was written before the newest status changes nothing.", 4, 0b11, {1}),
    ("same", "A document with the number of the newest status changes nothing.", 5, 0b11, {1}),
    ("newer", "A document that was written after the newest status counts.", 6, 0b11, {0, 1}),
):
    case(f"port-document-{_name}", _PORT, _what, Basis.OURS, "§7", Need.POST, Need.SECOND_QP)(
        partial(_documents, number=_number, mask=_mask, used=_used)
    )


@case(
    "port-document-remaps",
    _PORT,
    "Packets in flight to a port that a newer document shows as down are sent again at once.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.SECOND_QP,
)
def port_document_remaps(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    lost = sorted(packet["psn"] for packet in c.drain() if packet.port == 0)
    c.second(ports_up=0b10, port_status=1)
    again = sorted(packet["psn"] for packet in c.drain())
    c.check(again == lost, "the packets on that plane were not sent again")


@case(
    "port-none-of-peer",
    _PORT,
    "A status leaves on a port of the device though the peer has announced none of its own as up.",
    Basis.OURS,
    "§7",
    Need.PORTS,
)
def port_none_of_peer(c: Script) -> None:
    _status(c, 1, 0)
    c.device.set_port(0, False)
    c.expect("ENDPOINT_REQUEST", op=_PORT_STATUS, port_status_mask=0b10, port=1)


@case(
    "port-remap-window",
    _PORT,
    "What a port that goes down has lost makes room in the window, also for other queue pairs to the peer.",
    Basis.OURS,
    "§7",
    Need.PORTS,
    Need.POST,
    Need.SECOND_QP,
    Need.EXACT_TIME,
    settings=Settings(window=20_000, tail_probe=False),
)
def port_remap_window(c: Script) -> None:
    other = c.second()
    c.post(17 * c.settings.mtu)
    lost = sum(packet.port == 0 for packet in c.drain())
    other.post(40 * c.settings.mtu)
    c.device.set_port(0, False)
    again, new = len(c.drain()), len(other.drain())
    c.check(again + new == lost and new > 0 < again, f"{again} packets were repeated and {new} sent; {lost} were lost")


@case(
    "port-down-twice",
    _PORT,
    "A port that is set to the state that it has announces nothing.",
    Basis.OURS,
    "§7",
    Need.PORTS,
)
def port_down_twice(c: Script) -> None:
    c.device.set_port(0, True)
    c.expect_nothing("ENDPOINT_REQUEST", within=10 * c.settings.status_repeat_ns)


@case(
    "port-control-first",
    _PORT,
    "Answers leave before data that waits for the same port.",
    Basis.OURS,
    "§9",
    Need.POST,
    Need.STALL,
    settings=Settings(planes=1),
)
def port_control_first(c: Script) -> None:
    c.device.stall_port(0, True)
    c.post(4 * c.settings.mtu)
    c.send(c.data(0))
    c.device.stall_port(0, False)
    kinds = [packet.opcode for packet in c.drain({"SACK", "ACK", "WRITE_FIRST"})]
    c.check(kinds == ["SACK", "ACK", "WRITE_FIRST"], f"in this order: {', '.join(kinds)}")


@case(
    "port-outage-for-ever",
    _PORT,
    "A queue pair that retries for ever waits for ever for a plane and for a transport ACK.",
    Basis.OURS,
    "§4",
    Need.POST,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=Settings(linear_cnt=0, exp_cnt=FOR_EVER),
)
def port_outage_for_ever(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.advance(100 * c.ack_timeout_ns)
    for port in (0, 1):
        c.device.set_port(port, False)
    later = c.post(8)
    c.advance(100 * c.ack_timeout_ns)
    c.expect_no_completion()
    c.device.set_port(0, True)
    c.ack(0, 1)
    c.expect_completion(wr)
    c.sack(c.expect("WRITE_ONLY"), 1)
    c.ack(1, 2)
    c.expect_completion(later)
