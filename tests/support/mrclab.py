"""`python -m support.mrclab COMMAND ...` is `mrclab COMMAND ...`, where no such program is installed."""

from __future__ import annotations

import sys

from mrclab.cli.entry import main

if __name__ == "__main__":
    sys.argv[0] = "mrclab"
    main()
