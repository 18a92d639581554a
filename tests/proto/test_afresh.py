"""The memory of a queue pair: starting it again begins every field afresh, but for those that are listed with why."""

from __future__ import annotations

import contextlib
import inspect
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from mrc_host.proto.config import EndpointConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.endpoint import RoceEndpoint

PSN = 1000
Parts = Callable[[Any], Iterable[Any]]
#: Fields that starting again does not set, and what does.
KEPT = {
    "mrc requestor": {
        *("association", "cq", "counters", "work", "unacked", "rtt", "prober", "recovery", "lost"),  # parts
        *("in_ring", "waiting", "needs"),  # the send ring withdraws a sender that ends
        *("_account", "_board", "_counters", "_has_data", "_probe", "_repeat_last", "_rtt", "_unacked", "_wake"),
        *("_queue", "current", "offset"),  # the work queue is emptied when requests end
    },
    "mrc responder": {"association", "counters", "cq", "receives"},
    "roce": {
        *("codec", "dcqcn", "recv_cq", "send_cq", "srq", "_timed", "_overflowed", "number", "domain", "state"),
        *("mtu", "entropy", "traffic_class", "selective", "keeps_early", "ack_every", "max_inflight"),  # settings
        *("min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic", "retry_cnt", "rnr_retry", "timeout", "timeout_ns"),
        *("access", "home_port", "port", "sent_packets", "retransmitted"),
        *("in_ring", "closing", "cnp_at"),  # a CNP that was sent a short while ago holds back the next one in any life
    },
}


def fields(part: Any) -> dict[str, Any]:
    """Return the fields of an object, compiled or not, by name."""
    kind = type(part)
    names = (name for name in dir(kind) if not name.startswith("__") and inspect.isdatadescriptor(getattr(kind, name)))
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def plain(value: Any) -> Any:
    """Return a value that can be compared: containers are copied, and of objects only the kind counts."""
    if isinstance(value, dict | set):
        return type(value)(value)
    if isinstance(value, deque | list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, int | float | str | bytes) else type(value).__name__


def soil(part: Any, name: str, value: Any) -> None:
    """Leave something in a field, as a life before would."""
    if isinstance(value, dict):
        value[7] = 7
    elif isinstance(value, set):
        value.add(7)
    elif isinstance(value, deque):
        value.append(7)
    elif isinstance(value, list):
        value[:] = [7 for _ in value] or [7]
    else:
        for dirt in (not value, 7) if isinstance(value, bool) else (7, (7, 7)) if value is None else (7,):
            with contextlib.suppress(TypeError, AttributeError):
                setattr(part, name, dirt)
                break


def mrc() -> Any:
    core = Endpoint(EndpointConfig(address=bytes(15) + b"\x01"), random.Random(1))
    return core.create_qp(core.create_cq())


def roce() -> Any:
    core = RoceEndpoint(RoceConfig(bytes(15) + b"\x01"), random.Random(1))
    return core.create_qp(core.create_cq())


def start_roce(qp: Any) -> None:
    qp.reset_responder()
    qp.start(PSN)


def parts_of_requestor(qp: Any) -> tuple[Any, ...]:
    requestor = qp.requestor
    return requestor, requestor.recovery, requestor.rtt, requestor.work, requestor.board, requestor.account


@pytest.mark.parametrize(
    ("name", "make", "parts", "start"),
    [
        ("mrc requestor", mrc, parts_of_requestor, lambda qp: qp.requestor.start(PSN)),
        ("mrc responder", mrc, lambda qp: (qp.responder,), lambda qp: qp.responder.start(PSN)),
        ("roce", roce, lambda qp: (qp,), start_roce),
    ],
)
def test_starting_again_begins_every_field_afresh(
    name: str, make: Callable[[], Any], parts: Parts, start: Callable[[Any], None]
) -> None:
    qp = make()
    start(qp)
    fresh = [{field: plain(value) for field, value in fields(part).items()} for part in parts(qp)]
    assert KEPT[name] <= {field for row in fresh for field in row}
    for part in parts(qp):
        for field, value in fields(part).items():
            if field not in KEPT[name] and isinstance(value, int | float | dict | set | deque | list | None):
                soil(part, field, value)
    start(qp)
    for part, before in zip(parts(qp), fresh, strict=True):
        assert {field: plain(value) for field, value in fields(part).items()} == before
