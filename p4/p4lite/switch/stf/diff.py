"""Compares a received packet with an STF pattern and shows where they part."""

from __future__ import annotations

ROW = 32  # hex digits a row: 16 bytes


def mismatches(pattern: str, exact: bool, received: bytes) -> list[int]:
    """Return positions (in hex digits) where `received` departs from `pattern`; empty when it matches.

    Digits missing from the packet count, and with `exact` also those it has too many.
    """
    got = received.hex().upper()
    wrong = [at for at, want in enumerate(pattern) if want != "*" and got[at : at + 1] != want]
    wrong += [at for at in range(len(got), len(pattern)) if pattern[at] == "*"]
    if exact:
        wrong += range(len(pattern), len(got))
    return sorted(wrong)


def _spaced(digits: str) -> str:
    return " ".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def hex_diff(pattern: str, exact: bool, received: bytes) -> str:
    """Return rows of 16 bytes, expected over received, with `^` under every digit that differs.

    `..` stands where one of the two has ended; rows without a difference are folded into one line.
    """
    got = received.hex().upper()
    wrong = set(mismatches(pattern, exact, received))
    width = max(len(pattern), len(got))
    lines: list[str] = []
    folded = 0
    for start in range(0, width, ROW):
        end = min(start + ROW, width)
        if not any(at in wrong for at in range(start, end)):
            folded += (end - start + 1) // 2
            continue
        if folded:
            lines.append(f"          ({folded} bytes as expected)")
            folded = 0
        want_row = pattern[start:end].ljust(end - start, "." if exact else " ")
        got_row = got[start:end].ljust(end - start, ".")
        marks = "".join("^" if at in wrong else " " for at in range(start, end))
        lines.append(f"  {start // 2:>4}    expected {_spaced(want_row)}".rstrip())
        lines.append(f"          received {_spaced(got_row)}".rstrip())
        lines.append(f"                   {_spaced(marks)}".rstrip())
    if folded and lines:
        lines.append(f"          ({folded} more bytes as expected)")
    return "\n".join(lines)
