"""Types of options that take numbers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

#: A longer text is no number that an option takes.
LONGEST_NUMBER = 40
MOST_QUEUES = 256


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
