"""Check of a learner's own EV policy when a NIC port fails: at its own host, and at the peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mrc_topo.base.document import Model
from mrc_workshop.job import Run
from mrc_workshop.kinds.policies import MS, SHOWN, Flight, flights
from mrc_workshop.kinds.registry import Finding, kind
from mrc_workshop.trace import line


class PlaneLeft(Model):
    """`port`: a port that fails once and is restored, such as `h0:0`. No host sends writes to its host in its plane
    later than `grace_ms` after the failure; its host retransmits at once what was on the way through it; `back_ms`
    after it was restored, the plane is used again in both directions."""

    port: str
    grace_ms: Annotated[int, Field(ge=0)] = 10
    back_ms: Annotated[int, Field(ge=1)] = 50


@kind(PlaneLeft)
def plane_left(params: PlaneLeft, runs: Sequence[Run]) -> Finding:
    """Check that host and peers leave the plane of a dead NIC port, and use it again when the port is back."""
    told = ""
    for run in runs:
        found = _judged(params, run)
        if not found.passed:
            return found
        told = found.measured
    return Finding(True, told)


def _judged(params: PlaneLeft, run: Run) -> Finding:
    name, _, number = params.port.partition(":")
    plane = int(number)
    host = next(each for each in run.topology.hosts if each.name == name)
    if len(host.ports) < 2:
        mistake = f"{name} has one port: with it down there is no plane left to send on"
        return Finding(False, "1 port", mistake, run=run)
    died, mended = run.done_ns["fail"], run.done_ns["restore"]
    grace, back = died + params.grace_ms * MS, mended + params.back_ms * MS
    planes = {each.ports[index].t0: index for each in run.topology.hosts for index in range(len(each.ports))}
    sent: list[tuple[Flight, int]] = []  # sent by the host
    received: list[tuple[Flight, int]] = []  # sent to the host
    for qp in flights(run):
        for flight in qp:
            at = flight.seen.inner_at
            ends = flight.seen.data[at + 8 : at + 24], flight.seen.data[at + 24 : at + 40]
            if host.address in ends:
                (sent if ends[0] == host.address else received).append((flight, planes[flight.seen.switch]))
    late = sorted(
        (flight for flight, where in received if where == plane and grace <= flight.seen.t_ns < mended),
        key=lambda flight: flight.seen.t_ns,
    )
    if late:
        after = (late[0].seen.t_ns - died) / MS
        mistake = (
            f"{len(late)} packets were sent to {name} in plane {plane} later than {params.grace_ms} ms after its port "
            f"had gone down, the first after {after:.1f} ms: what the peer says of its ports counts, too (`theirs`)"
        )
        packets = tuple(flight.seen for flight in late[:SHOWN])
        evidence = tuple(line(run.topology, each) for each in packets[:3])
        return Finding(False, f"{len(late)} packets into the dead plane", mistake, evidence, packets, run)
    again = run.result.counted.get(name, {}).get("requestor.lost_port_down", 0)
    measured = f"{again} packets, on their way through the port, sent again at once"
    if not again:
        mistake = (
            f"{name} had packets on the way through port {plane} when it went down, and waited until each of them was "
            "taken for lost: what is up at this end counts, too (`ours`), then they are sent again at once"
        )
        return Finding(False, measured, mistake, (), (), run)
    for which, them in (("sends nothing", sent), ("is sent nothing", received)):
        if not any(where == plane and flight.seen.t_ns >= back for flight, where in them):
            mistake = (
                f"{name} {which} in plane {plane} {params.back_ms} ms after its port came back: a plane that was left "
                "is used again when both ends say that it is up"
            )
            return Finding(False, f"nothing in plane {plane} afterwards", mistake, (), (), run)
    return Finding(True, measured)
