"""Types of options that take numbers, for argparse: each refuses what is out of its bounds, and names them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

#: A longer text is no number that an option takes.
LONGEST_NUMBER = 40
MOST_QUEUES = 256
MOST_PACKETS = 10**9
MAX_SEED = 2**63 - 1


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an option that takes whole numbers in these bounds."""

    def parse(text: str) -> int:
        if (
            len(text) > LONGEST_NUMBER
            or not re.fullmatch(r"[+-]?\d+", text, re.ASCII)
            or not least <= int(text) <= most
        ):
            raise argparse.ArgumentTypeError(f"'{text[:LONGEST_NUMBER]}': give a whole number from {least} to {most}")
        return int(text)

    return parse


def percent(text: str) -> float:
    """Parse an option that takes a percentage."""
    if len(text) > LONGEST_NUMBER or not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) > 100:
        raise argparse.ArgumentTypeError(f"'{text[:LONGEST_NUMBER]}': give a number from 0 to 100")
    return float(text)
