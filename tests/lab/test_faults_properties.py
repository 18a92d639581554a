"""Any failures and restores in any order: the state is the union of the causes, and in the end it is as it was."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_topo.base.plain import decode, encode
from mrc_topo.capacity import Capacity
from mrc_topo.labfile import load_lab
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import FaultLedger, LedgerState, MemoryRecord, UnsettledError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.studies.chaos.invariants import entries
from mrclab.studies.chaos.truth import expected
from p4lite.switch.targetapi.values import FabricInfo
from support.amount import examples
from support.lab.fake_lab import BrokenOff, FakeLab
from support.lab.fault_cases import actions, lost

TINY = load_lab("tiny")


@given(st.data())
@settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
def test_the_ledger_knows_the_fabric(data: st.DataObject) -> None:
    fake = FakeLab(TINY)
    before = fake.state()
    record = MemoryRecord()
    failures = actions(TINY)
    for _ in range(data.draw(st.integers(1, 12), label="steps")):
        # Every step is another process, which knows what is written and nothing else.
        record.state = decode(LedgerState, json.loads(json.dumps(encode(record.state))))
        ledger = FaultLedger(TINY, fake.refill, record)
        were = list(ledger.causes)
        fake.calls_left = data.draw(st.none() | st.integers(1, 12), label="calls that get through")
        fake.late = data.draw(st.booleans(), label="late")
        action = data.draw(failures, label="action")
        if were and data.draw(st.booleans(), label="restore"):  # type: ignore[arg-type]
            known = data.draw(st.sampled_from(were))
            action = Action("restore", known.target, data.draw(st.sampled_from(["", known.kind])))
        broke_off = False
        try:
            ledger.perform(fake, action)
        except FailureError as error:
            assert "is broken already" in str(error)  # noqa: PT017 - of several that may come
            assert list(ledger.causes) == were
        except (BrokenOff, UnsettledError):
            broke_off = True
        fake.heal()
        if broke_off:
            # Undone, or remembered; nothing that was in force is forgotten, and a new failure only with a mark.
            assert [each for each in ledger.causes if each in were] == were
            assert len(ledger.causes) == len(were) or (action in ledger.causes and ledger.unsettled)
        touched = ledger.effects().touched()
        assert set(ledger.unsettled) <= touched
        check(fake, before, ledger)
    left = list(dict.fromkeys(each.target for each in ledger.causes))
    for target in data.draw(st.permutations(left), label="order of restores"):
        ledger.restore(fake, target)
        check(fake, before, ledger)
    assert fake.state() == before
    assert record.state == LedgerState([], {}, [])


def check(fake: FakeLab, before: tuple[Any, ...], ledger: FaultLedger) -> None:
    """Every element that is not marked is as the causes say."""
    info, carriers = expected(TINY, before[0], before[1], ledger.causes)
    now = fake.state()
    for switch in TINY.switches:
        have, want = (each.switches[switch.device_id] for each in (now[0], info))
        if switch.name not in ledger.unsettled:
            assert have.state is want.state
            assert switch.name in fake.tables or switch.name in ledger.effects().emptied
        for port, link in switch.links.items():
            if link.name not in ledger.unsettled:
                assert have.ports[port] == want.ports[port]
    for (host, plane), up in now[1].items():
        if f"{host}:{plane}" not in ledger.unsettled:
            assert up == carriers[host, plane]


@pytest.fixture(scope="module")
def session() -> Iterator[VirtualSession]:
    made = VirtualSession(TINY)
    with contextlib.closing(made):
        yield made


@pytest.mark.slow
@given(st.data())
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    deadline=None,
)
def test_the_ledger_knows_a_real_fabric(session: VirtualSession, data: st.DataObject) -> None:
    """As above on P4 switches and endpoints in one process; and in the end their tables are full."""
    topology, ledger = session.topology, session.failures
    ledger.restore_all(session)  # of an example that failed
    before_entries = entries(session)

    def state() -> tuple[FabricInfo, dict[tuple[str, int], bool]]:
        info = replace(session.fabric.info(), now_ns=0, events=0)
        ports = {
            (name, number): port.up
            for name, node in session.nodes.items()
            for number, port in enumerate(node.endpoint.context.ports.ports)  # type: ignore[attr-defined]
        }
        return info, ports

    before = state()
    failures = data.draw(st.lists(actions(topology), min_size=1, max_size=5), label="failures")
    for action in failures:
        with contextlib.suppress(FailureError):
            ledger.fail(session, action)
        session.advance(0.001)
    assert state() == expected(topology, *before, ledger.causes)
    causes = list(ledger.causes)
    for cause in data.draw(st.permutations(causes), label="order of restores"):
        ledger.restore(session, cause.target, cause.kind)
        session.advance(0.001)
        assert state() == expected(topology, *before, ledger.causes)
    assert state() == before
    assert entries(session) == before_entries


@st.composite
def labs(draw: st.DrawFn) -> Topology:
    """Small ones, with rates that differ from link to link."""
    t0 = draw(st.integers(1, 3))
    lab = {
        "name": "drawn",
        "planes": draw(st.integers(1, 2)),
        "t0_per_plane": t0,
        "t1_per_plane": draw(st.integers(1, 3)),
        "hosts_per_t0": (per := draw(st.integers(1, 3))),
        "hosts": draw(st.integers((t0 - 1) * per + 1, t0 * per)),
        "ev": {"size": 32, "active": 16, "min_active": 1},
        "queues": {"pfc": draw(st.sampled_from([None, {}]))},
    }
    names = sorted(Topology(Lab.model_validate(lab)).links)
    rates = st.sampled_from(["4Mbps", "10Mbps", "25Mbps"])
    overrides = draw(st.dictionaries(st.sampled_from(names), st.fixed_dictionaries({"rate": rates}), max_size=4))
    return Topology(Lab.model_validate(lab | {"overrides": overrides}))


@pytest.mark.slow
@given(labs(), st.data())
@settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
def test_capacity_lost_is_what_maximum_flows_say(topology: Topology, data: st.DataObject) -> None:
    fake = FakeLab(topology)
    ledger = FaultLedger(topology, fake.refill)
    host = data.draw(st.integers(0, topology.lab.hosts - 1), label="host")
    for action in data.draw(st.lists(actions(topology), max_size=5), label="failures"):
        with contextlib.suppress(FailureError):
            ledger.fail(fake, action)
    assert ledger.expected_loss([host]) == pytest.approx(max(lost(topology, ledger.causes, [host]), 0.0), abs=1e-5)
    for cause in ledger.causes:
        by_itself = Capacity(topology).lost(host, kinds.KINDS[cause.kind].effects(topology, cause).rates(topology))
        assert by_itself == pytest.approx(max(lost(topology, [cause], [host]), 0.0), abs=1e-5)
        assert by_itself <= ledger.expected_loss() + 1e-9 or "rate_bps" in str(ledger.causes)
