"""The kernels as loops, compiled by numba. `plain.py` does the same in NumPy; a test compares.

They release Python's lock, so that planes or parts of the queue pairs are worked on in threads. Each plane's links are
one thread's, in the order of queue pairs: sums are the same whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import config, njit

from mrc_host.proto.paths.ev import ASSUMED_BAD as _BAD
from mrc_topo.ev import SALTS as _SALTS

F = TypeVar("F", bound=Callable[..., Any])
# Only in a folder that was given and looked at (`kernels.compiled`): numba loads and runs what it finds there.
_compile: Callable[[F], F] = njit(nogil=True, cache=bool(config.CACHE_DIR))
BAD = int(_BAD)
SALTS = int(_SALTS)
_N = 624
_M = 397
_ALL = 0xFFFFFFFF


# --- Python's generator (Matsumoto and Nishimura's MT19937, seeded by an array, as `random.Random` does it) ---


@_compile
def _fresh() -> Any:
    """Return the state that every seed begins with: that of the number 19650218."""
    mt = np.zeros(_N + 1, np.int64)
    mt[0] = 19650218
    for i in range(1, _N):
        mt[i] = (1812433253 * (mt[i - 1] ^ (mt[i - 1] >> 30)) + i) & _ALL
    return mt


@_compile
def _seed(mt: Any, fresh: Any, key: Any, words: int) -> None:
    for i in range(_N):
        mt[i] = fresh[i]
    i, j = 1, 0
    for _ in range(max(_N, words)):
        mt[i] = ((mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1664525)) + np.int64(key[j]) + j) & _ALL
        i += 1
        j += 1
        if i >= _N:
            mt[0] = mt[_N - 1]
            i = 1
        if j >= words:
            j = 0
    for _ in range(_N - 1):
        mt[i] = ((mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1566083941)) - i) & _ALL
        i += 1
        if i >= _N:
            mt[0] = mt[_N - 1]
            i = 1
    mt[0] = 0x80000000
    mt[_N] = _N  # where the next number is


@_compile
def _mixed(high: int, low: int) -> int:
    y = (high & 0x80000000) | (low & 0x7FFFFFFF)
    return (y >> 1) ^ (0x9908B0DF if y & 1 else 0)


@_compile
def _renew(mt: Any) -> None:
    """Make the next `_N` numbers. Three loops, so that none needs a remainder."""
    for k in range(_N - _M):
        mt[k] = mt[k + _M] ^ _mixed(mt[k], mt[k + 1])
    for k in range(_N - _M, _N - 1):
        mt[k] = mt[k + _M - _N] ^ _mixed(mt[k], mt[k + 1])
    mt[_N - 1] = mt[_M - 1] ^ _mixed(mt[_N - 1], mt[0])
    mt[_N] = 0


@_compile
def _word(mt: Any) -> int:
    if mt[_N] >= _N:
        _renew(mt)
    y = mt[mt[_N]]
    mt[_N] += 1
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    word: int = y & _ALL
    return word


@_compile
def _bits(n: int) -> int:
    bits = 0
    while n >> bits:
        bits += 1
    return bits


@_compile
def _below(mt: Any, n: int) -> int:
    """Do as `Random._randbelow`."""
    shift = 32 - _bits(n)
    r = _word(mt) >> shift
    while r >= n:
        r = _word(mt) >> shift
    return r


@_compile
def _shuffle(mt: Any, x: Any, n: int) -> None:
    """Do as `Random.shuffle`. A number that is too large exchanges a place with itself: a processor that had to guess
    whether one is too large would be wrong too often."""
    i = n - 1
    while i > 0:
        bits = _bits(i + 1)
        lowest = (1 << (bits - 1)) - 1  # the number of bits is the same down to here
        while i >= max(lowest, 1):
            r = _word(mt) >> (32 - bits)
            fits = r <= i
            j = r if fits else i
            kept = x[i]
            x[i] = x[j]
            x[j] = kept
            i -= 1 if fits else 0


@_compile
def _skip_sample(mt: Any, k: int, seen: Any) -> None:
    """Advance the generator as `Random.sample(range(SALTS), k)` would."""
    size = 21
    if k > 5:
        power = 1
        while power < 3 * k:
            power *= 4
        size += power
    if size >= SALTS:
        for i in range(k):
            _below(mt, SALTS - i)
        return
    for i in range(k):
        while True:
            j = _below(mt, SALTS)
            new = True
            for other in range(i):
                if seen[other] == j:
                    new = False
            if new:
                break
        seen[i] = j


@_compile
def _add_uplinks(mt: Any, t1s: int, uplinks: int, even: bool, order: Any, taken: Any, hop: Any) -> None:
    """Turn the T1s of EVs into paths to other pods: see `plain.add_uplinks`."""
    for t1 in range(t1s if even else 0):
        taken[t1] = 0
        for i in range(uplinks):
            order[t1, i] = i
        _shuffle(mt, order[t1], uplinks)
    for i in range(len(hop)):
        t1 = int(hop[i])
        if even:
            uplink = order[t1, taken[t1] % uplinks]
            taken[t1] += 1
        else:
            uplink = _below(mt, uplinks)
        hop[i] = t1s + t1 * uplinks + uplink


@_compile
def draw(
    first: Any, first_words: Any, second: Any, second_words: Any, t1s: int, uplinks: int, far: Any, even: bool,
    hop: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    planes, _, each = hop.shape
    fresh, mt = _fresh(), np.zeros(_N + 1, np.int64)
    turn = np.zeros(max(t1s, 1), np.int64)
    seen = np.zeros(each, np.int64)
    drawn = np.zeros(each, np.int64)
    order, taken = np.zeros((t1s, uplinks), np.int64), np.zeros(t1s, np.int64)
    for q in range(begin, end):
        _seed(mt, fresh, first[q], first_words[q])
        for plane in range(planes):
            done = 0
            while not even and done < each:
                hop[plane, q, done] = _below(mt, t1s)
                done += 1
            while done < each:
                for i in range(t1s):
                    turn[i] = i
                _shuffle(mt, turn, t1s)
                for i in range(min(t1s, each - done)):
                    hop[plane, q, done + i] = turn[i]
                done += t1s
            _skip_sample(mt, each, seen)
        if far[q]:
            for plane in range(planes):
                _add_uplinks(mt, t1s, uplinks, even, order, taken, hop[plane, q])
        _seed(mt, fresh, second[q], second_words[q])
        for plane in range(planes):
            for i in range(each):
                drawn[i] = hop[plane, q, i]
            _shuffle(mt, drawn, each)
            for i in range(each):
                hop[plane, q, i] = drawn[i]


# --- load and shares ---


@_compile
def _weight(halves: float, lowest: float) -> float:
    return 0.0 if halves == 0.0 else max(halves, lowest)


@_compile
def spread(
    hop: Any, active: Any, src: Any, dst: Any, value: Any, lowest: float, weight_up: Any, weight_dn: Any, up: Any,
    dn: Any,
) -> None:  # fmt: skip
    """See `Kernels`."""
    weights = np.zeros(hop.shape[1])
    for q in range(hop.shape[0]):
        amount = value[q]
        if amount == 0.0:
            continue
        a, b = src[q], dst[q]
        if a == b:
            continue
        total = 0.0
        for i in range(active[q]):
            h = hop[q, i]
            weights[i] = _weight(weight_up[a, h] * weight_dn[b, h], lowest)
            total += weights[i]
        if total <= 0.0:
            continue
        scale = amount / total
        for i in range(active[q]):
            h = hop[q, i]
            part = scale * weights[i]
            up[a, h] += part
            dn[b, h] += part


@_compile
def least(
    hop: Any, active: Any, src: Any, dst: Any, wanted: Any, weight_up: Any, weight_dn: Any, up: Any, dn: Any, out: Any
) -> None:
    """See `Kernels`."""
    for q in range(hop.shape[0]):
        if not wanted[q] or src[q] == dst[q]:
            continue
        a, b = src[q], dst[q]
        lowest = out[q]
        for i in range(active[q]):
            h = hop[q, i]
            if weight_up[a, h] == 0.0 or weight_dn[b, h] == 0.0:
                continue
            if up[a, h] < lowest:
                lowest = up[a, h]
            if dn[b, h] < lowest:
                lowest = dn[b, h]
        out[q] = lowest


@_compile
def living(hop: Any, active: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, out: Any) -> None:
    """See `Kernels`."""
    for q in range(hop.shape[0]):
        a, b = src[q], dst[q]
        count = 0
        for i in range(active[q]):
            h = hop[q, i]
            if a == b or not (dead_up[a, h] or dead_dn[b, h]):
                count += 1
        out[q] = count


# --- states of EVs ---


@_compile
def weigh(
    hop: Any, active: Any, src: Any, dst: Any, lowest: float, weight_up: Any, weight_dn: Any, up: Any, dn: Any,
    add: bool, out: Any,
) -> None:  # fmt: skip
    """See `Kernels`."""
    for q in range(hop.shape[0]):
        a, b = src[q], dst[q]
        total = 0.0
        for i in range(active[q]):
            h = hop[q, i]
            if a == b:
                total += 1.0
                continue
            value = up[a, h] + dn[b, h] if add else up[a, h] * dn[b, h]
            total += value * _weight(weight_up[a, h] * weight_dn[b, h], lowest)
        out[q] = total


@_compile
def take_out(  # noqa: C901 - Numba compiles one loop; calls would copy its state
    hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, used: Any,
    floor: int, to: int, hits: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    planes = hop.shape[0]
    for q in range(begin, end):
        a, b = src[q], dst[q]
        if a == b:
            continue
        total = 0
        for p in range(planes):
            total += active[p, q]
        for p in range(planes):
            if not used[p, q]:
                continue  # a port is down: nothing is sent there, so nothing is found
            if to != BAD:
                # A controller that denies EVs also denies backups.
                kept = active[p, q]
                last = active[p, q] + backup[p, q]
                i = kept
                while i < last:
                    h = hop[p, q, i]
                    if dead_up[p, a, h] or dead_dn[p, b, h]:
                        for j in range(i, last - 1):
                            hop[p, q, j] = hop[p, q, j + 1]
                        hop[p, q, last - 1] = h
                        state[p, q, last - 1] = to
                        last -= 1
                        hits[p, q] += 1
                    else:
                        i += 1
                backup[p, q] = last - kept
            i = 0
            while i < active[p, q]:
                h = hop[p, q, i]
                if not (dead_up[p, a, h] or dead_dn[p, b, h]):
                    i += 1
                    continue
                hits[p, q] += 1
                n, m = active[p, q], backup[p, q]
                if m > 0:
                    hop[p, q, i] = hop[p, q, n]
                    for j in range(n, n + m - 1):
                        hop[p, q, j] = hop[p, q, j + 1]
                    hop[p, q, n + m - 1] = h
                    state[p, q, i] = 0
                    state[p, q, n + m - 1] = to
                    backup[p, q] = m - 1
                    i += 1
                elif to == BAD and total <= floor:
                    state[p, q, i] = to
                    i += 1
                else:
                    for j in range(i, n - 1):
                        hop[p, q, j] = hop[p, q, j + 1]
                        state[p, q, j] = state[p, q, j + 1]
                    hop[p, q, n - 1] = h
                    state[p, q, n - 1] = to
                    active[p, q] = n - 1
                    total -= 1


@_compile
def bring_back(
    hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, target: int,
    was: int, count: Any, begin: int, end: int,
) -> None:  # fmt: skip
    """See `Kernels`."""
    planes, _, each = hop.shape
    for q in range(begin, end):
        a, b = src[q], dst[q]
        for p in range(planes):
            for i in range(active[p, q]):
                h = hop[p, q, i]
                if state[p, q, i] == was and not (dead_up[p, a, h] or dead_dn[p, b, h]):
                    state[p, q, i] = 0
                    count[q] += 1
            for j in range(active[p, q] + backup[p, q], each):
                h = hop[p, q, j]
                if state[p, q, j] != was or dead_up[p, a, h] or dead_dn[p, b, h]:
                    continue
                count[q] += 1
                n, m = active[p, q], backup[p, q]
                bad = -1
                for i in range(n):
                    if state[p, q, i] == BAD:
                        bad = i
                        break
                if bad >= 0:
                    hop[p, q, j] = hop[p, q, bad]
                    state[p, q, j] = BAD
                    hop[p, q, bad] = h
                    state[p, q, bad] = 0
                    continue
                out = n + m  # the first that is out of use gives its place
                hop[p, q, j] = hop[p, q, out]
                state[p, q, j] = state[p, q, out]
                hop[p, q, out] = h
                state[p, q, out] = 0
                if n < target:
                    for i in range(out, n, -1):
                        hop[p, q, i] = hop[p, q, i - 1]
                    hop[p, q, n] = h
                    active[p, q] = n + 1
                else:
                    backup[p, q] = m + 1
