"""Wait of a queue pair with unfinished requests, and its begin, to explain a stall."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """`what` is waited for since `since_ns` (of the endpoint's clock) by requests of which `psn` is the oldest packet
    (24 bits, as on the wire), sent `sent` times; `packets` are on their way on `planes`.

    `patience_ns`: how long a packet is retried in a silent network; None: for ever.
    """

    what: str
    since_ns: int
    psn: int
    sent: int
    packets: int
    planes: tuple[int, ...]
    patience_ns: int | None


def numbers(values: tuple[int, ...]) -> str:
    """Format planes as `plane 1` or `planes 0,2`."""
    return f"plane{'s' if len(values) > 1 else ''} {','.join(map(str, values))}"
