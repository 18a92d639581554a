"""Form in which the protocol core runs in this process: compiled or not, and what computes its CRCs."""

from __future__ import annotations

from typing import Final

from mrc_host import native
from mrc_host.proto.wire import crc

#: What computes the ICRCs: compiled modules have their own.
CRC: Final = "crc32.c" if native.COMPILED else crc.LIBRARY


def document() -> dict[str, str]:
    """Return `core` (compiled, pure) and `crc` (crc32.c, isal, zlib), for a report of fidelity."""
    return {"core": "compiled" if native.COMPILED else "pure", "crc": CRC}


def description() -> str:
    """Return one line for people, with the reason when it is not compiled."""
    core = "compiled" if native.COMPILED else f"pure Python ({native.WHY_NOT})"
    return f"protocol core {core}, CRC by {CRC}"
