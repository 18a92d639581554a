"""`python -m mrc_cli` is `mrclab`, for debuggers and profilers."""

from mrc_cli.entry import main

main()
