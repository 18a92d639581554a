"""Layout of the fields of a match key, or the parameters of an action, in 64-bit words.

Key fields of up to 64 bits are packed into words in order, none across two words; wider ones take words of their
own, most significant first, the first one partly filled. Parameters take whole words, least significant first.
The C of a program and its control operations share this layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KeyField:
    """`width` bits at `shift` of word `word`, or, above 64 bits, filling `words` words from `word` on."""

    word: int
    words: int
    shift: int
    width: int

    def put(self, target: list[int], value: int) -> None:
        """Set the field, which must be 0 in `target`."""
        if self.words == 1:
            target[self.word] |= value << self.shift
            return
        for i in range(self.words):
            target[self.word + i] |= (value >> (64 * (self.words - 1 - i))) & MASK64

    def take(self, source: Sequence[int]) -> int:
        if self.words == 1:
            return (source[self.word] >> self.shift) & ((1 << self.width) - 1)
        value = 0
        for i in range(self.words):
            value = value << 64 | source[self.word + i]
        return value


def key_layout(widths: Sequence[int]) -> tuple[list[KeyField], int]:
    """Return places of the key fields, and the number of words."""
    fields: list[KeyField] = []
    words, free = 0, 0  # words begun; bits left in the last one
    for width in widths:
        if width <= 64:
            if width > free:
                words, free = words + 1, 64
            free -= width
            fields.append(KeyField(words - 1, 1, free, width))
        else:
            n = (width + 63) // 64
            fields.append(KeyField(words, n, 0, width))
            words, free = words + n, 0
    return fields, words


class KeyWords:
    """A match key of `words` words: value, mask and high words, and the order among entries (the lower wins)."""

    def __init__(self, words: int):
        self.value = [0] * words
        self.mask = [0] * words
        self.high = [0] * words
        self.order = 0

    def put(self, place: KeyField, value: int, mask: int, high: int = 0) -> None:
        place.put(self.value, value)
        place.put(self.mask, mask)
        place.put(self.high, high)


def pack_args(widths: Sequence[int], values: Sequence[int], words: int) -> list[int]:
    """Return arguments as the `words` words of an entry."""
    out: list[int] = []
    for width, value in zip(widths, values, strict=True):
        for i in range(max((width + 63) // 64, 1)):
            out.append((value >> (64 * i)) & MASK64)
    return out + [0] * (words - len(out))


def unpack_args(widths: Sequence[int], words: Sequence[int]) -> tuple[int, ...]:
    values, at = [], 0
    for width in widths:
        n = max((width + 63) // 64, 1)
        values.append(sum(words[at + i] << (64 * i) for i in range(n)))
        at += n
    return tuple(values)


def arg_words(widths: Sequence[int]) -> int:
    return sum(max((width + 63) // 64, 1) for width in widths)
