"""Whether packets carry their payload or only its length (`payload` of the lab file), and where the latter is refused.

With `payload: length` a simulation takes the same decisions at the same times: headers and sizes of packets are real,
and no byte of the payload is stored, copied or verified. So nothing that needs those bytes can run.
"""

from __future__ import annotations

from mrc_topo.base.errors import SIMULATE
from mrc_topo.topology import Topology
from mrclab.lab.records.rundir import RunError

#: What results say in the place of bytes that were verified.
NOT_VERIFIED = "not verified (payload: length)"


class PayloadRefused(RunError):
    """`payload: length` where payloads are needed; the text names the file and says what to do."""


def chosen(topology: Topology, payload: str | None) -> Topology:
    """Return the lab with this kind of payload; None: that of its file."""
    if payload is None or payload == topology.lab.payload:
        return topology
    return topology.with_lab(topology.lab.model_copy(update={"payload": payload}))


def check(topology: Topology, clock: str, file: str = "") -> None:
    """Check that a lab, read from `file`, can run on this clock with the payload that it asks for.

    Raises:
        PayloadRefused: it asks for lengths only on the real clock, or has a program of its own, which may read
            payloads.
    """
    lab = topology.lab
    if lab.payload != "length":
        return
    where = file or f"lab '{lab.name}'"
    if clock != "virtual":
        raise PayloadRefused(
            f"{where}: payload: length is for simulated time; remove it (or give `payload: bytes`), or {SIMULATE}"
        )
    if lab.program is not None or lab.compiler != "p4lite":
        own = f"program {lab.program}" if lab.program is not None else f"compiler: {lab.compiler}"
        raise PayloadRefused(
            f"{where}: payload: length goes with the lab's usual program only, since others may read payloads; remove "
            f"`{own}`, or give `payload: bytes`"
        )


def require_bytes(topology: Topology, what: str) -> None:
    """Check that packets carry their payload, which `what` verifies.

    Raises:
        PayloadRefused: they do not.
    """
    if topology.lab.payload == "length":
        raise PayloadRefused(
            f"lab '{topology.lab.name}' has payload: length, and {what} verifies every byte; give `payload: bytes` in "
            "its file"
        )
