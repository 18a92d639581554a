"""`python -m mrclab.cli` is `mrclab`, for debuggers and profilers."""

from mrclab.cli.entry import main

main()
