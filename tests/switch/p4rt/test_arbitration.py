"""Who is primary: the rules of P4Runtime's "Client Arbitration", on the Arbiter and without a network."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4lite.messages import code_pb2, p4runtime_pb2
from p4lite.switch.p4rt.arbitration import MAX_CLIENTS_PER_ROLE, Arbiter, election_value
from p4lite.switch.p4rt.errors import P4RtError

DEVICE = 7


class Controller:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, message: Any) -> None:
        self.heard.append(message.arbitration)

    def offer(self, message: Any) -> bool:
        self.send(message)
        return True

    def last(self) -> tuple[int, int | None]:
        """Code and election id of the latest notification, which is then forgotten."""
        latest = self.heard[-1]
        self.heard.clear()
        return latest.status.code, election_value(latest)


def update(election: int | None, role: str = "", device: int = DEVICE) -> Any:
    message = p4runtime_pb2.MasterArbitrationUpdate(device_id=device)
    if role:
        message.role.name = role
    if election is not None:
        message.election_id.high = election >> 64
        message.election_id.low = election & ((1 << 64) - 1)
    return message


def refused(arbiter: Arbiter, client: Controller, message: Any) -> int:
    with pytest.raises(P4RtError) as caught:
        arbiter.update(client, message)
    return caught.value.status


def test_first_is_primary_second_with_lower_id_is_backup() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    assert first.last() == (code_pb2.OK, 5)
    arbiter.update(second, update(4))
    assert second.last() == (code_pb2.ALREADY_EXISTS, 5)
    assert first.heard == []  # nothing changed for it
    assert arbiter.is_primary(first)
    assert not arbiter.is_primary(second)


def test_higher_id_demotes_the_primary_who_hears_first() -> None:
    arbiter, order = Arbiter(DEVICE), []
    first, second = Controller(), Controller()
    first.send = lambda message: order.append(("first", message.arbitration.status.code))  # type: ignore[method-assign]
    second.send = lambda message: order.append(("second", message.arbitration.status.code))  # type: ignore[method-assign]
    arbiter.update(first, update(1))
    order.clear()
    arbiter.update(second, update(1 << 64))
    assert order == [("first", code_pb2.ALREADY_EXISTS), ("second", code_pb2.OK)]
    arbiter.check_primary("", 1 << 64)
    with pytest.raises(P4RtError) as caught:
        arbiter.check_primary("", 1)
    assert caught.value.status == code_pb2.PERMISSION_DENIED


def test_primary_steps_down_by_itself() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    arbiter.update(second, update(3))
    arbiter.update(first, update(2))
    # Nobody has the highest id ever seen, so nobody is primary.
    assert first.last() == (code_pb2.NOT_FOUND, 5)
    assert second.last() == (code_pb2.NOT_FOUND, 5)
    arbiter.update(second, update(5))
    assert second.last() == (code_pb2.OK, 5)
    assert first.last() == (code_pb2.ALREADY_EXISTS, 5)


def test_lost_stream_of_the_primary_is_told_to_backups() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    arbiter.update(second, update(4))
    second.heard.clear()
    arbiter.remove(first)
    assert second.last() == (code_pb2.NOT_FOUND, 5)
    with pytest.raises(P4RtError) as caught:
        arbiter.check_primary("", 5)
    assert caught.value.status == code_pb2.PERMISSION_DENIED
    third = Controller()
    arbiter.update(third, update(5))
    assert third.last() == (code_pb2.OK, 5)


def test_lost_backup_is_told_to_nobody() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    arbiter.update(second, update(4))
    first.heard.clear()
    arbiter.remove(second)
    assert first.heard == []


def test_unset_election_id_never_becomes_primary() -> None:
    arbiter, standby, zero = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(standby, update(None))
    assert standby.last() == (code_pb2.NOT_FOUND, None)
    arbiter.update(zero, update(0))
    assert zero.last() == (code_pb2.OK, 0)
    assert standby.last() == (code_pb2.ALREADY_EXISTS, 0)
    with pytest.raises(P4RtError):
        arbiter.check_primary("", None)


def test_arbitration_refuses_equal_election_ids_and_other_devices() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    assert refused(arbiter, second, update(5)) == code_pb2.INVALID_ARGUMENT
    assert refused(arbiter, first, update(5, device=DEVICE + 1)) == code_pb2.FAILED_PRECONDITION
    assert refused(arbiter, first, update(5, role="other")) == code_pb2.FAILED_PRECONDITION
    with_config = update(6)
    with_config.role.config.type_url = "type.example/x"
    assert refused(arbiter, second, with_config) == code_pb2.INVALID_ARGUMENT
    assert arbiter.is_primary(first)


def test_too_many_streams_of_a_role() -> None:
    arbiter = Arbiter(DEVICE)
    for election in range(MAX_CLIENTS_PER_ROLE):
        arbiter.update(Controller(), update(election))
    assert refused(arbiter, Controller(), update(10**6)) == code_pb2.RESOURCE_EXHAUSTED


def test_roles_have_a_primary_each() -> None:
    arbiter, first, second = Arbiter(DEVICE), Controller(), Controller()
    arbiter.update(first, update(5))
    arbiter.update(second, update(1, role="qos"))
    assert second.heard[-1].role.name == "qos"
    assert second.last() == (code_pb2.OK, 1)
    assert set(arbiter.primaries()) == {first, second}
    arbiter.check_primary("qos", 1)
    with pytest.raises(P4RtError) as caught:
        arbiter.check_primary("nobody", 1)
    assert caught.value.status == code_pb2.NOT_FOUND


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-1, 4))), max_size=30))
def test_whatever_happens_at_most_one_primary_with_the_highest_id(steps: list[tuple[int, int | None]]) -> None:
    """Random arrivals, changes and losses (-1) keep the specification's invariants, and all agree on them."""
    arbiter, clients, highest = Arbiter(DEVICE), [Controller() for _ in range(4)], None
    live: dict[int, int | None] = {}
    for who, election in steps:
        if election == -1:
            arbiter.remove(clients[who])
            live.pop(who, None)
            clients[who] = Controller()
        elif election is not None and any(other != who and used == election for other, used in live.items()):
            assert refused(arbiter, clients[who], update(election)) == code_pb2.INVALID_ARGUMENT
        else:
            arbiter.update(clients[who], update(election))
            live[who] = election
            if election is not None:
                highest = election if highest is None else max(highest, election)
        primaries = [who for who, client in enumerate(clients) if arbiter.is_primary(client)]
        assert primaries == [who for who, used in live.items() if used is not None and used == highest]
        for client in (clients[who] for who in live):
            code = client.heard[-1].status.code
            expected = code_pb2.NOT_FOUND if not primaries else code_pb2.ALREADY_EXISTS
            assert code == (code_pb2.OK if arbiter.is_primary(client) else expected)
