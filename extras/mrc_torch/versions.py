"""Versions of torch that the backend is for; knows nothing of torch itself.

Read in their sources, tried with the last: from 2.7 on torch keeps the Python half of a work alive that a process
group written in Python returns to C++. Before, DDP could ask for the future of a work that Python had given up.
Up to 2.5 C++ asked such a group neither for its name nor for its description.
"""

from __future__ import annotations

import re
from typing import Final

FIRST: Final = (2, 7)
LAST: Final = (2, 15)


def refusal(version: str) -> str | None:
    """Return why the backend does not work with a version of torch; None if it does."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and FIRST <= (int(found[1]), int(found[2])) <= LAST:
        return None
    first, last = (".".join(map(str, each)) for each in (FIRST, LAST))
    return (
        f"the backend mrc is for torch {first} to {last}, and this is torch {version}: "
        f"`pip install 'torch>={first},<{LAST[0]}.{LAST[1] + 1}'`"
    )
