"""Comparison of framing.c with framing.py on random packets: `python -m support.proto.framing_in_c LIBRARY COUNT SEED`.

Forms of heads, values at the ends of their fields, payloads, encapsulations, and packets whose bits were changed.
Prints how many packets were compared; the first difference raises.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import Any, Final

from mrc_host.proto.wire import framing

#: Bytes of each code, and whether it has a sign.
CODES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8, "b": 1, "h": 2, "i": 4}
#: IPv6, UDP and BTH as encoders have them: what follows them is random.
HEAD: Final = "!IHH32sHHH2xBBHII"
#: What follows it (60 bytes) in heads of 256 bytes, the longest, and in longer ones.
LONGEST: Final = ("196x", "188xQ", "192xI", "194xH", "195xB", "195xx", "164x32s")
TOO_LONG: Final = ("197x", "189xQ", "193xI", "196xB", "196xx", "165x32s", "188xQQ")


class InC:
    """The functions of a library made of framing.c."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.PyDLL(path)
        self._library.mrc_packet.restype = ctypes.py_object
        self._library.mrc_sealed.restype = ctypes.c_char
        self._library.mrc_append_words.restype = ctypes.c_char

    def packet(
        self, form: bytes, outer: bytes, payload: Any, offset: int, size: int, absent: bool, *values: Any
    ) -> bytes:
        """Call it as compiled modules do."""
        objects = [ctypes.py_object(each) for each in (form, outer, payload)]
        words = [
            ctypes.py_object(value) if isinstance(value, bytes) else ctypes.c_size_t(tagged(value)) for value in values
        ]
        place = [ctypes.c_size_t(tagged(offset)), ctypes.c_size_t(tagged(size)), ctypes.c_int(absent)]
        made: bytes = self._library.mrc_packet(*objects, *place, *words)
        return made

    def sealed(self, packet: bytes, at: int, missing: int) -> bool:
        """Call it as compiled modules do."""
        held = self._library.mrc_sealed(ctypes.py_object(packet), ctypes.c_int64(at), ctypes.c_int64(missing))
        return bool(held == b"\1")

    def append_words(self, buffer: bytearray, *words: int) -> None:
        """Call it as compiled modules do."""
        self._library.mrc_append_words(ctypes.py_object(buffer), *map(ctypes.c_int64, words))


def tagged(value: int) -> int:
    """Return an int as mypyc passes it: twice its value, or its object's address with the last bit set."""
    return value << 1 & (1 << 64) - 1 if -(1 << 62) <= value < 1 << 62 else id(value) | 1


def outcome(call: Any, *arguments: Any) -> Any:
    """Return what a call returns, or the type of what it raises."""
    try:
        return call(*arguments)
    except (OverflowError, ValueError) as error:
        return type(error)


def value_of(rng: random.Random, code: str) -> int:
    """Return a number for a field, often one at the end of its range, and at times one beyond it."""
    bits = 8 * CODES[code]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1)
    if rng.random() < 0.01:
        return rng.choice((low - 1, high + 1, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 70)))
    return rng.choice((low, high, rng.randint(low, high), rng.randint(low, high)))


def case(rng: random.Random) -> tuple[Any, ...]:
    """Return arguments of `packet` whose lengths agree."""
    tail = "".join(rng.choice(("B", "H", "I", "Q", "b", "h", "i", "x", "3x", "26x")) for _ in range(rng.randint(0, 9)))
    form = HEAD + tail
    size = rng.choice((0, 1, 3, 4, 5, 64, 255, 1024, 4096, rng.randint(0, 9000)))
    if rng.random() < 0.01:
        size = rng.randint(32_000, 65_000)
    offset = rng.choice((0, 0, 7, 4096))
    payload = rng.randbytes(offset + size + rng.choice((0, 0, 9)))
    if rng.random() < 0.01:
        offset = -1
    if rng.random() < 0.01 and size:
        payload = payload[: offset + size - 1]
    length = struct.calcsize(form) - 40 + size + (-size & 3) + 4
    fixed: list[Any] = [
        0x60000000 | rng.getrandbits(28),
        length,
        0x1140,
        rng.randbytes(rng.choice((32, 32, 8))),
        rng.getrandbits(16),
        4793,
        length,
    ]
    fixed += [rng.getrandbits(bits) for bits in (8, 8, 16, 24, 32)]
    values = [value_of(rng, code) for code in tail if code in CODES]
    outer = rng.randbytes(rng.choice((0, 40, 64, 80)))
    kind = rng.choice((bytes, bytearray, memoryview))
    absent = rng.random() < 0.3
    return form.encode(), outer, kind(payload), offset, size, absent, *fixed, *values


def compare_longest(in_c: InC) -> None:
    """Compare the longest heads; longer ones are refused in C."""
    for tail in (*LONGEST, *TOO_LONG):
        values = [b"addresses" if code == "s" else 7 for code in tail if code in (*CODES, "s")]
        fixed = [0x60000000, 400, 0x1140, bytes(32), 5, 4793, 400, 1, 2, 3, 4, 5]
        arguments = ((HEAD + tail).encode(), b"", b"", 0, 0, True, *fixed, *values)
        expected = ValueError if tail in TOO_LONG else outcome(framing.packet, *arguments)
        assert outcome(in_c.packet, *arguments) == expected, tail


def main(path: str, count: str, seed: str) -> None:
    """See the module's docstring."""
    rng, in_c = random.Random(int(seed)), InC(path)
    compare_longest(in_c)
    for _ in range(int(count)):
        arguments = case(rng)
        whole = outcome(framing.packet, *arguments)
        assert outcome(in_c.packet, *arguments) == whole, arguments
        # The same addresses and lengths, with the payload if it was absent and without it if it was there.
        other = (*arguments[:5], not arguments[5], *arguments[6:])
        assert outcome(in_c.packet, *other) == outcome(framing.packet, *other), other
        if not isinstance(whole, bytes):
            continue
        outer, size, absent = arguments[1], arguments[4], arguments[5]
        missing = size + (-size & 3) if absent else 0
        assert in_c.sealed(whole, len(outer), missing) is framing.sealed(whole, len(outer), missing) is True, arguments
        changed = bytearray(whole)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        short = bytes(changed[: rng.choice((len(changed), len(changed), len(changed) - 1, 70))])
        for at in (len(outer), rng.choice((0, -1, 60))):
            of_c, of_python = (outcome(each.sealed, short, at, missing) for each in (in_c, framing))
            assert of_c == of_python, (arguments, short, at)
        words = [rng.randint(-(1 << 63), (1 << 63) - 1) for _ in range(4)]
        one, two = bytearray(b"x"), bytearray(b"x")
        in_c.append_words(one, *words)
        framing.append_words(two, *words)
        assert one == two
    print(f"{count} packets are alike")


if __name__ == "__main__":
    main(*sys.argv[1:])
