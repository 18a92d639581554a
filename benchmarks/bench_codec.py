"""CPU time per packet of the wire codec: the data path's half against the readable half, ICRC included."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks import scaled
from mrc_host.proto.wire import codec as wire
from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import Opcode

#: Of the codec, and of the readable one in a round.
CALLS, SLOW_CALLS = scaled((20_000, 500), (50, 5))


def _microseconds(action: Callable[[], object], count: int) -> float:
    """Return the best of five rounds of `count` calls, CPU time per call."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(count):
            action()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def run() -> None:
    """Print the table."""
    codec = wire.Codec()
    rng = random.Random(1)
    addresses = rng.randbytes(32)

    def data(size: int) -> Callable[[], bytes]:
        payload = memoryview(rng.randbytes(size))
        return lambda: codec.encode_data(
            addresses, 0x12345678, 18, Opcode.WRITE_MIDDLE, 7, 99, 0x80, 1, 2, 300, 1 << 40, 7, 1 << 20, payload
        )

    def sack() -> bytes:
        return codec.encode_sack(addresses, 1, 184, 7, 0, 0, 0, 1, 2, 3, 4, 99, 0, 0, 8, 1, 0xFF, 5, 0, 0, 0, 6)

    srv6 = encapsulate(data(4096)(), addresses[:16], addresses[16:])
    print(f"{'packet':22} {'encode us':>10} {'decode us':>10} {'readable encode':>16} {'readable decode':>16}")
    rows: list[tuple[str, Callable[[], bytes], bytes]] = [
        ("WRITE, 1024 bytes", data(1024), data(1024)()),
        ("WRITE, 4096 bytes", data(4096), data(4096)()),
        (
            "the same in SRv6",
            lambda: encapsulate(rows[1][1](), addresses[:16], addresses[16:]),
            srv6,
        ),
        ("SACK", sack, sack()),
    ]
    for name, encode, encoded in rows:
        whole = full.decode(encoded)
        fast = (
            _microseconds(encode, scaled(20_000, 50)),
            _microseconds(lambda e=encoded: codec.decode(e), scaled(20_000, 50)),  # type: ignore[misc]
        )
        slow = (
            _microseconds(lambda w=whole: full.encode(w), SLOW_CALLS),  # type: ignore[misc]
            _microseconds(lambda e=encoded: full.decode(e), SLOW_CALLS),  # type: ignore[misc]
        )
        print(f"{name:22} {fast[0]:10.2f} {fast[1]:10.2f}", end=" ")
        print(f"{slow[0]:10.1f} ({slow[0] / fast[0]:.0f}x) {slow[1]:10.1f} ({slow[1] / fast[1]:.0f}x)")
