"""How much counters grew between two readings: of hosts whose agents began again, and of ports with flow control."""

from __future__ import annotations

from typing import TypeVar

from mrc_host.answers import MrcHostStatistics
from mrc_topo.base.plain import decode
from mrclab.results import counted
from mrclab.results.reading import completed
from p4lite.switch.targetapi.values import DeviceStats

T = TypeVar("T")


def filled(kind: type[T], document: object) -> T:
    """Return a value of a document that has only the keys that a test is about."""
    return decode(kind, completed(kind, document))


def host(sent: int, gone: int, instance: int) -> MrcHostStatistics:
    row = {"requestor": {"packets_sent": sent}}
    document = {"qps": [row], "gone_requestors": {"packets_sent": gone}, "endpoint": {"faults": 2}}
    return filled(MrcHostStatistics, {**document, "instance": instance})


def test_growth_of_a_host_has_queue_pairs_that_are_gone_and_begins_with_its_agent() -> None:
    before = host(5, 100, 1)
    again = counted.grown(before, host(7, 130, 1))
    assert again["packets"] == again["requestor.packets_sent"] == 32
    assert again["endpoint.faults"] == 0
    assert counted.grown(before, host(3, 4, 2))["packets"] == 7
    assert counted.grown(None, host(3, 4, 2))["endpoint.faults"] == 2


def switches(pauses: int, stalls: int, held: int, headroom_drops: int = 0) -> dict[str, DeviceStats]:
    pfc = {"priority": 3, "pauses_sent": pauses, "paused_ns": 10 * pauses, "held_bytes": held, "paused": True}
    pfc |= {"max_held_bytes": held, "headroom_drops": headroom_drops}
    credit = {"priority": 3, "stalls": stalls, "stall_ns": 10 * stalls}
    credit |= dict.fromkeys(
        ("buffer_bytes", "credit_bytes", "held_bytes", "max_held_bytes", "least_credit_bytes"), held
    )
    return {"s": filled(DeviceStats, {"ports": {7: {"pfc": [pfc], "credits": [credit]}}})}


def test_flow_control_is_final_minus_initial_with_the_final_levels() -> None:
    before, after = switches(5, 6, 100), switches(8, 7, 30)
    (paused,) = counted.pauses(before, after)["s:7"].values()
    assert (paused.priority, paused.pauses_sent, paused.paused_ns, paused.held_bytes, paused.paused) == (
        3, 3, 30, 30, True,
    )  # fmt: skip
    stalled = counted.credits(before, after)["s:7"]["3"]
    assert (stalled.stalls, stalled.stall_ns) == (1, 10)
    levels = stalled.buffer_bytes, stalled.credit_bytes, stalled.held_bytes, stalled.max_held_bytes
    assert {*levels, stalled.least_credit_bytes, paused.max_held_bytes} == {30}
    assert counted.pauses(after, switches(8, 7, 30, headroom_drops=1))["s:7"]["3"].headroom_drops == 1
    assert counted.pauses(after, after) == counted.credits(after, after) == {}
    assert counted.pauses({}, after)["s:7"]["3"].pauses_sent == 8
