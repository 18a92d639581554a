"""Form in which the protocol core runs in this process: compiled or not, and what computes its CRCs."""

from __future__ import annotations

from mrc_host import native
from mrc_host.proto.wire import crc


def document() -> dict[str, str]:
    """Return `core` (compiled, pure) and `crc` (isal, zlib), for a report of fidelity."""
    return {"core": "compiled" if native.COMPILED else "pure", "crc": crc.LIBRARY}


def description() -> str:
    """Return one line for people, with the reason when it is not compiled."""
    core = "compiled" if native.COMPILED else f"pure Python ({native.WHY_NOT})"
    return f"protocol core {core}, CRC by {crc.LIBRARY}"
