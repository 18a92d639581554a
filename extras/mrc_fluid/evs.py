"""The EVs of every queue pair: drawn as its endpoint draws them, kept as numbers of paths, with their states.

`hop[plane, qp, i]` is the path (`fabric`) of the i-th EV of a queue pair in a plane, which within a pod is its T1:
first the active ones (`active[plane, qp]`), then the backups (`backup[plane, qp]`), then those that are out of use;
`state` says why. What happens to them follows `mrc_host.proto.paths.ev.EvSet`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.fabric import Bools, FabricShape
from mrc_fluid.kernels import Kernels, spans
from mrc_fluid.schema import EvSpec
from mrc_host.proto.paths.ev import ASSUMED_BAD, DENIED, GOOD

#: A key of Python's generator: its text, and SHA-512 of it.
_DIGEST_BYTES = 64


@dataclass
class Evs:
    """EVs of all queue pairs; see the module's docstring."""

    hop: NDArray[np.uint16]
    state: NDArray[np.uint8]
    active: NDArray[np.int32]
    backup: NDArray[np.int32]
    target: int
    floor: int

    def counts(self) -> dict[str, int]:
        """Count the EVs of queue pairs by what they are: active, backup, assumed bad, denied.

        EVs that the floor keeps in use although they are bad count as bad.
        """
        bad = int(np.count_nonzero(self.state == ASSUMED_BAD))
        denied = int(np.count_nonzero(self.state == DENIED))
        backup = int(self.backup.sum())
        return {"active": self.state.size - bad - denied - backup, "backup": backup, "bad": bad, "denied": denied}


def text_of(seed: int, lab: str, src: int, dst: int, qp: int = 0) -> str:
    """Return what seeds the generator of a queue pair's profile (`mrc_topo.paths.Paths.profile`)."""
    return f"{seed}/{lab}/{src}/{dst}/{qp}"


def keys(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return what `random.Random(text)` gives its generator, for each text: 32-bit words, and how many of them
    count.
    """
    raw = [text.encode() for text in texts]
    longest = max(map(len, raw)) + _DIGEST_BYTES
    width = -(-longest // 4) * 4
    # The number that Python makes of it is big-endian, its words are taken from the least significant one on.
    whole = b"".join((each + hashlib.sha512(each).digest())[::-1].ljust(width, b"\0") for each in raw)
    words = np.frombuffer(whole, "<u4").reshape(len(raw), width // 4)
    lengths = np.array([-(-(len(each) + _DIGEST_BYTES) // 4) for each in raw], np.int32)
    return words.astype(np.uint32), lengths


def draw(
    kernels: Kernels, pool: ThreadPoolExecutor, texts: Iterable[str], shape: FabricShape, spec: EvSpec,
    far: Bools | None = None,
) -> Evs:  # fmt: skip
    """Return the EVs of the queue pairs with these texts: their universe (`mrc_topo.ev.draw_profile`), then the choice
    of the active ones as in `EvSet`, by a generator of the text and `/order` (`/order/1` and so on for more of one
    text). The EVs of those between pods (`far`) also have one of the uplinks of their T1."""
    named = list(texts)
    apart = np.zeros(len(named), bool) if far is None else far
    seen: Counter[str] = Counter()
    orders = []
    for text in named:
        orders.append(f"{text}/order/{seen[text]}" if seen[text] else f"{text}/order")
        seen[text] += 1
    planes, each, even = shape.planes, spec.size // shape.planes, spec.spread == "even"
    first, first_words = keys(named)
    second, second_words = keys(orders)
    hop = np.zeros((planes, len(named), each), np.uint16)

    def part(span: tuple[int, int]) -> None:
        kernels.draw(first, first_words, second, second_words, shape.t1s, shape.uplinks, apart, even, hop, *span)

    list(pool.map(part, spans(len(named))))
    target = max(1, spec.active // planes)
    inside = np.full((planes, len(named)), min(target, each), np.int32)
    return Evs(hop, np.zeros(hop.shape, np.uint8), inside, each - inside, target, spec.min_active)


def take_out(
    kernels: Kernels,
    pool: ThreadPoolExecutor,
    evs: Evs,
    ends: Endpoints,
    dead: tuple[Bools, Bools],
    used: Bools,
    state: int,
) -> NDArray[np.int32]:
    """Run one round in which all active EVs that cross something dead are detected and leave, to the state
    ASSUMED_BAD or DENIED, in the planes that are used; backups take their places, which may be dead, too. Returns
    how many were found, by plane and queue pair."""
    hits = np.zeros(evs.active.shape, np.int32)

    def part(span: tuple[int, int]) -> None:
        kernels.take_out(
            evs.hop, evs.state, evs.active, evs.backup, ends.src, ends.dst, *dead, used, evs.floor, state, hits, *span
        )

    list(pool.map(part, spans(evs.active.shape[1])))
    return hits


def bring_back(
    kernels: Kernels, pool: ThreadPoolExecutor, evs: Evs, ends: Endpoints, dead: tuple[Bools, Bools], state: int
) -> int:
    """Bring EVs in a state that cross nothing dead back into use, as `EvSet` does; return how many.

    ASSUMED_BAD: their probes are answered. DENIED: they are allowed again.
    """
    count = np.zeros(evs.active.shape[1], np.int32)

    def part(span: tuple[int, int]) -> None:
        kernels.bring_back(
            evs.hop, evs.state, evs.active, evs.backup, ends.src, ends.dst, *dead, evs.target, state, count, *span
        )

    list(pool.map(part, spans(evs.active.shape[1])))
    return int(count.sum())


@dataclass(frozen=True)
class Endpoints:
    """T0s of the senders and of the receivers of queue pairs, and their NICs."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    src_nic: NDArray[np.signedinteger[Any]]
    dst_nic: NDArray[np.signedinteger[Any]]


__all__ = [
    "ASSUMED_BAD",
    "DENIED",
    "GOOD",
    "Endpoints",
    "Evs",
    "bring_back",
    "draw",
    "keys",
    "take_out",
    "text_of",
]
