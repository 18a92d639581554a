"""The RNR NAK timer: how long a requestor waits when the responder has no receive posted (IBTA 1.4, table 45)."""

from __future__ import annotations

from typing import Final

TIMER_MASK: Final = 0x1F
_HUNDREDTHS_MS: Final = (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip


def rnr_delay_ns(syndrome: int) -> int:
    """Return the time in ns that the timer code of an RNR NAK's syndrome stands for."""
    return _HUNDREDTHS_MS[syndrome & TIMER_MASK] * 10_000
