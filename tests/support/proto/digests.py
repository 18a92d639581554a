"""`PYTHONPATH=tests python -m support.proto.digests SEED ...`: how the core runs, and what comes of each seed."""

from __future__ import annotations

import sys

from mrc_host import native
from support.proto.soak import digest

if __name__ == "__main__":
    print("compiled" if native.COMPILED else "pure")
    for seed in sys.argv[1:]:
        print(seed, digest(int(seed)))
