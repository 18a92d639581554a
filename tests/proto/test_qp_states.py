"""Queue pair states: the table, every state x every verb and packet, and any sequence of them (`§4`)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig, ReliabilityConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import QpError, QpState, QpStateChanged
from mrc_host.proto.negotiation import REQUIRED
from mrc_host.proto.reliability.qp import TRANSITIONS, QpInput, QueuePair
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Opcode

S = QpState
TARGETS = {
    QpInput.TO_INIT: S.INIT,
    QpInput.TO_RTR: S.RTR,
    QpInput.TO_RTS: S.RTS,
    QpInput.TO_RESET: S.RESET,
    QpInput.TO_ERROR: S.ERROR,
}
# RESET -> INIT -> RTR -> RTS one step at a time; ERROR and RESET from anywhere.
ALLOWED = {(S.RESET, S.INIT), (S.INIT, S.RTR), (S.RTR, S.RTS)} | {(a, b) for a in S for b in (S.ERROR, S.RESET)}
ATTRIBUTES: dict[S, dict[str, Any]] = {
    S.RTR: {
        "remote_number": 99,
        "remote_address": bytes(15) + b"\x02",
        "rq_psn": 1000,
        "mtu": 1024,
        "max_wimm_dest": 8,
        "mpr_dest": 4,
    },
    S.RTS: {"sq_psn": 5, "max_wimm": 8, "mpr": 4, "timeout": 8, "linear_cnt": 1, "exp_cnt": 1},
}


def endpoint() -> Endpoint:
    return Endpoint(
        EndpointConfig(
            address=bytes(15) + b"\x01",
            ev=EvConfig(count=8, active=4),
            ports=PortsConfig(count=2),
            cc=NsccConfig(base_rtt_ns=10_000),
            reliability=ReliabilityConfig(timeout=8, linear_cnt=1, exp_cnt=1),
        ),
        random.Random(1),
    )


def bring(core: Endpoint, qp: QueuePair, state: S) -> None:
    """RESET to `state` by verbs alone."""
    for step in (S.INIT, S.RTR, S.RTS):
        if state in (S.RESET, S.ERROR):
            break
        core.modify(qp, step, 0, **ATTRIBUTES.get(step, {}))
        if step is state:
            break
    if state is S.ERROR:
        core.modify(qp, S.ERROR, 0)
    assert qp.state is state


@pytest.mark.parametrize("target", list(S))
@pytest.mark.parametrize("state", list(S))
def test_modify_allows_exactly_the_transitions_of_the_table(state: S, target: S) -> None:
    core = endpoint()
    qp = core.create_qp(core.create_cq())
    bring(core, qp, state)
    if (state, target) in ALLOWED:
        core.modify(qp, target, 0, **ATTRIBUTES.get(target, {}))
        assert qp.state is target
    else:
        with pytest.raises(QpError, match=f"is in {state.value}.*refused; allowed:"):
            core.modify(qp, target, 0, **ATTRIBUTES.get(target, {}))
        assert qp.state is state


def test_transition_table_agrees_with_the_allowed_transitions() -> None:
    modify = {(state, TARGETS[item]) for state, item in TRANSITIONS if item in TARGETS}
    assert modify == ALLOWED
    assert all(TRANSITIONS[state, item] is TARGETS[item] for state, item in TRANSITIONS if item in TARGETS)
    fatal = {state for state, item in TRANSITIONS if item is QpInput.FATAL}
    assert fatal == {S.RTR, S.RTS, S.ERROR}


@pytest.mark.parametrize("target", [S.RTR, S.RTS])
def test_missing_attributes_are_named(target: S) -> None:
    core = endpoint()
    qp = core.create_qp(core.create_cq())
    bring(core, qp, S.INIT if target is S.RTR else S.RTR)
    for missing in REQUIRED[target]:
        attributes = {name: value for name, value in ATTRIBUTES[target].items() if name != missing}
        with pytest.raises(QpError, match=missing):
            core.modify(qp, target, 0, **attributes)


def packets(core: Endpoint, qp: QueuePair, rkey: int, va: int) -> dict[str, bytes]:
    """One packet of every opcode from the peer of `ATTRIBUTES` to a queue pair."""
    codec = core.context.codec
    ends = bytes(15) + b"\x02" + core.config.address
    n = qp.number
    return {
        "data": codec.encode_data(ends, 3, 18, 0xCA, n, 1000, 0x80, 1, 1, 5, va, rkey, 4, b"abcd"),
        "sack": codec.encode_sack(ends, 3, 184, n, 0, 0, 0, 0, 3, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0),
        "nack": codec.encode_nack(ends, 3, 184, n, 5, 1, 3, 0, 0, 0),
        "ack": codec.encode_ack(ends, 3, 184, n, 5, 31, 1),
        "nak": codec.encode_ack(ends, 3, 184, n, 5, 0x62, 1),
        "probe": codec.encode_probe(ends, 3, 18, n, 7, 0, 0, 5),
        "request": codec.encode_endpoint_request(ends, 3, 184, 1, 1, 0, 5, dest_qp=n),
        "response": codec.encode_endpoint_response(ends, 3, 184, 1, 1, 5, dest_qp=n),
    }


# What a queue pair in each state answers; "drop" is counted, "" is taken in silently.
ANSWERS = {
    S.RESET: dict.fromkeys(("data", "sack", "nack", "ack", "nak", "probe"), "drop"),
    S.INIT: dict.fromkeys(("data", "sack", "nack", "ack", "nak", "probe"), "drop"),
    S.RTR: {"data": "sack+ack", "probe": "sack", "sack": "drop", "nack": "drop", "ack": "drop", "nak": "drop"},
    S.RTS: {"data": "sack+ack", "probe": "sack", "sack": "", "nack": "", "ack": "", "nak": ""},
    S.ERROR: dict.fromkeys(("data", "sack", "nack", "ack", "nak", "probe"), "drop"),
}


@pytest.mark.parametrize("kind", ["data", "sack", "nack", "ack", "nak", "probe", "request", "response"])
@pytest.mark.parametrize("state", list(S))
def test_queue_pair_handles_every_packet_in_every_state(state: S, kind: str) -> None:
    core = endpoint()
    qp = core.create_qp(core.create_cq())
    bring(core, qp, state)
    memory = bytearray(4)
    region = core.register_memory(memory)
    if state is S.RTS:  # something is in flight, so that answers have something to answer
        core.post_write(qp, b"", 0, 0, 1)
        assert sum(len(core.datagrams_to_send(port, 0, 10_000)) for port in range(2)) == 1
    core.receive_datagram(0, packets(core, qp, region.rkey, region.va)[kind], 100)
    answers = [wire.decode(p).bth.opcode for port in range(2) for p in core.datagrams_to_send(port, 100, 10_000)]
    dropped = sum(core.statistics().drops.values())
    expected = "drop" if kind in ("request", "response") else ANSWERS[state][kind]
    assert dropped == (expected == "drop")
    assert answers == {"sack+ack": [Opcode.SACK, Opcode.ACK], "sack": [Opcode.SACK]}.get(expected, [])
    assert memory == (b"abcd" if expected == "sack+ack" else bytes(4))
    assert qp.state is (S.ERROR if (state, kind) == (S.RTS, "nak") else state)


class QpMachine(RuleBasedStateMachine):
    """Any verbs, packets and timers in any order: the state follows the table, every request completes exactly once.

    Only RESET ends requests without a completion.
    """

    @initialize()
    def start(self) -> None:
        self.core = endpoint()
        self.cq = self.core.create_cq()
        self.qp = self.core.create_qp(self.cq)
        self.region = self.core.register_memory(bytearray(64))
        self.model = S.RESET
        self.now = 0
        self.posted: dict[tuple[CompletionKind, int], int] = {}
        self.done: dict[tuple[CompletionKind, int], CompletionStatus] = {}
        self.serial = 0

    @rule(to=st.sampled_from(list(S)))
    def modify(self, to: S) -> None:
        if (self.model, to) in ALLOWED:
            self.core.modify(self.qp, to, self.now, **ATTRIBUTES.get(to, {}))
            self.model = to
            if to is S.RESET:  # what is under way ends without a completion
                self.posted = {key: self.posted[key] for key in self.done}
        else:
            with pytest.raises(QpError):
                self.core.modify(self.qp, to, self.now, **ATTRIBUTES.get(to, {}))

    @rule(size=st.integers(0, 3000), imm=st.booleans())
    def post(self, size: int, imm: bool) -> None:
        self.serial += 1
        kind = CompletionKind.WRITE_IMM if imm else CompletionKind.WRITE
        arguments = (self.qp, bytes(size), 0, 0)
        if self.model not in (S.RTS, S.ERROR):
            with pytest.raises(QpError, match="needs RTS"):
                self.core.post_write(*arguments, self.serial)
            return
        self.posted[kind, self.serial] = self.now
        if imm:
            self.core.post_write_imm(*arguments, 1, self.serial)
        else:
            self.core.post_write(*arguments, self.serial)
        self.observe()

    @rule()
    def post_recv(self) -> None:
        self.serial += 1
        if self.model is S.RESET:
            with pytest.raises(QpError, match="needs INIT"):
                self.core.post_recv(self.qp, self.serial)
            return
        self.posted[CompletionKind.RECV_IMM, self.serial] = self.now
        self.core.post_recv(self.qp, self.serial)

    @rule(kind=st.sampled_from(("data", "sack", "nack", "ack", "nak", "probe")), psn=st.integers(0, 8))
    def receive(self, kind: str, psn: int) -> None:
        packet = bytearray(packets(self.core, self.qp, self.region.rkey, self.region.va)[kind])
        packet[59] = (packet[59] + psn) % 256
        packet = packet[:-4] + wire.icrc(bytes(packet[:40]), bytes(packet[40:-4]))
        self.core.receive_datagram(psn % 2, bytes(packet), self.now)
        self.observe()

    @rule(step=st.integers(1, 2_000_000))
    def tick(self, step: int) -> None:
        self.now += step
        self.core.handle_timer(self.now)
        for port in range(2):
            self.core.datagrams_to_send(port, self.now, 20_000)
        self.observe()

    def observe(self) -> None:
        """Fatal errors move RTR and RTS to ERROR without being asked."""
        if self.qp.state is S.ERROR and self.model in (S.RTR, S.RTS):
            assert self.qp.error is not None
            self.model = S.ERROR

    @invariant()
    def states_agree(self) -> None:
        assert self.qp.state is self.model
        while (event := self.core.next_event()) is not None:
            if isinstance(event, QpStateChanged):
                assert event.old is not event.new

    @invariant()
    def every_request_completes_once(self) -> None:
        for completion in self.core.poll(self.cq, 1000):
            key = (completion.kind, completion.wr_id)
            assert key in self.posted
            assert key not in self.done
            self.done[key] = completion.status
        open_ = self.posted.keys() - self.done.keys()
        if self.model is S.ERROR:
            assert not open_
        assert len(open_) == len(self.qp.requestor.unacked) + len(self.qp.responder.receives)

    @invariant()
    def nothing_is_owed_outside_rts(self) -> None:
        if self.model is not S.RTS:
            assert not self.qp.requestor.board.outstanding
            assert not self.qp.requestor.lost
        if self.model in (S.RESET, S.ERROR) and self.qp.connected:
            assert self.qp.qpcc.cc.inflight == 0


TestQpMachine = QpMachine.TestCase
TestQpMachine.settings = settings(max_examples=80, stateful_step_count=40)
